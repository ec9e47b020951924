//! Is the server ready?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A health check that takes longer counts as not answered.
const PATIENCE: Duration = Duration::from_secs(2);

/// One `GET /healthz`: true when the answer is 200.
pub(crate) fn healthy(address: SocketAddr) -> bool {
    ask(address).is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200 "))
}

/// The first bytes of the answer, as many as a status line's beginning has.
fn ask(address: SocketAddr) -> io::Result<[u8; 13]> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In one write: a server that answers after the first of several pieces and closes sends a reset.
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 13];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_reserved_port::ReservedPort;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    fn answering(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /healthz HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn only_200_is_healthy() {
        assert!(healthy(answering(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        )));
        assert!(!healthy(answering(
            "HTTP/1.1 503 Service Unavailable\r\n\r\n"
        )));
        assert!(!healthy(answering("")));
    }

    #[test]
    fn nobody_listening_is_not_healthy() {
        let nobody = ReservedPort::take().unwrap();
        assert!(!healthy(nobody.address()));
    }
}
