//! One small request to a contestant.

use crate::tls::Tls;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer longer than this is not one to such a request.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const HEADERS_MAX: usize = 64;

/// A status and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Where requests go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'a> {
    pub(crate) address: SocketAddr,
    /// None for a peer that speaks no TLS.
    pub(crate) tls: Option<&'a Tls>,
}

impl Peer<'_> {
    /// `GET path`, on a connection of its own.
    pub(crate) fn ask(self, path: &str, patience: Duration) -> io::Result<Answer> {
        self.send(&format!("GET {path}"), "", patience)
    }

    /// Creates a stream of text: `PUT path`, on a connection of its own.
    pub(crate) fn create(self, path: &str, patience: Duration) -> io::Result<Answer> {
        let headers = "Content-Type: text/plain\r\nContent-Length: 0\r\n";
        self.send(&format!("PUT {path}"), headers, patience)
    }

    fn send(self, line: &str, headers: &str, patience: Duration) -> io::Result<Answer> {
        let address = self.address;
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let request =
            format!("{line} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
        match self.tls {
            Some(tls) => exchange(tls.wrap(stream, address)?, &request),
            None => exchange(stream, &request),
        }
    }
}

/// Sends in one write: a server that answers after the first of several pieces and closes sends a reset.
fn exchange(mut stream: impl Read + Write, request: &str) -> io::Result<Answer> {
    stream.write_all(request.as_bytes())?;
    read(stream)
}

/// Reads until the answer is complete. Some servers keep the connection open despite `Connection: close`.
fn read(mut stream: impl Read) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        let length = match stream.read(&mut piece) {
            // On a socket with a timeout, a read fails with EINTR when the process was stopped and goes on (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        bytes.extend_from_slice(&piece[..length]);
        if let Some(answer) = parse(&bytes, length == 0) {
            return Ok(answer);
        }
        if length == 0 || bytes.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is not HTTP, or is too long"));
        }
    }
}

/// The answer, if it is complete. `ended`: the peer has ended the connection.
fn parse(bytes: &[u8], ended: bool) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes).ok()? else {
        return None;
    };
    let status = head.code?;
    let header = |name: &str| {
        let mut headers = head.headers.iter();
        headers
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let body = &bytes[length..];
    let chunked =
        header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
    let body = if chunked {
        dechunk(body)?
    } else if let Some(value) = header("content-length") {
        let length: usize = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
        body.get(..length)?.to_vec()
    } else if ended {
        body.to_vec()
    } else {
        return None;
    };
    Some(Answer { status, body })
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let httparse::Status::Complete((start, size)) = httparse::parse_chunk_size(rest).ok()?
        else {
            return None;
        };
        if size == 0 {
            return Some(body);
        }
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        body.extend_from_slice(rest.get(start..end)?);
        rest = rest.get(end..)?.strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_body_is_read() {
        let counted = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more";
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\n{\r\n1;x\r\n}\r\n0\r\n\r\n";
        let closed = b"HTTP/1.0 200 OK\r\n\r\n{}";
        for bytes in [&counted[..], chunked, closed] {
            let answer = read(bytes).unwrap();
            assert_eq!((answer.status, answer.body), (200, b"{}".to_vec()));
        }
    }

    #[test]
    fn an_answer_is_whole_when_its_last_byte_is_there() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ] {
            // The last two bytes of a chunked body are an empty trailer that nobody needs.
            for length in 0..bytes.len() - 2 {
                assert_eq!(parse(&bytes[..length], false), None, "{length}");
            }
            assert!(parse(bytes, false).is_some());
        }
    }

    #[test]
    fn a_program_that_was_stopped_reads_on() {
        struct Stopped<'a>(bool, &'a [u8]);
        impl Read for Stopped<'_> {
            fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
                self.0 = !self.0;
                let first = self.1.len().min(1);
                if self.0 {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    self.1.read(&mut piece[..first])
                }
            }
        }
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(read(Stopped(false, bytes)).unwrap().body, b"{}");
    }

    #[test]
    fn what_is_cut_off_or_no_http_is_no_answer() {
        for bytes in [
            &b""[..],
            b"SSH-2.0-x\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        ] {
            assert!(read(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
