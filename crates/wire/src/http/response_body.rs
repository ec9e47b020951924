//! The body of a response, as a client reads it.

use super::body::decimal;
use super::{ChunkError, ChunkedBody, ResponseHead};

/// How long a response's body is, as its head says (RFC 9112, section 6.3), for any request but HEAD and CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseLength {
    /// So many bytes; 0 when there is no body.
    Bytes(u64),
    /// Up to the end of the last chunk's trailers.
    Chunked,
    /// Up to the end of the connection.
    UntilEnd,
}

impl ResponseLength {
    /// Reads it from the head; `None` where the head announces a length that can be read in several ways.
    #[must_use]
    pub fn of(head: &ResponseHead<'_>) -> Option<Self> {
        if matches!(head.status(), 100..=199 | 204 | 304) {
            return Some(Self::Bytes(0));
        }
        let mut codings = head.headers("transfer-encoding");
        let mut lengths = head.headers("content-length");
        match (codings.next(), lengths.next()) {
            (None, None) => Some(Self::UntilEnd),
            (None, Some(length)) if lengths.next().is_none() => decimal(length).map(Self::Bytes),
            (Some(coding), None)
                if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() =>
            {
                Some(Self::Chunked)
            }
            _ => None,
        }
    }
}

/// Reads a body in pieces of any size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// So many bytes are still to come.
    Bytes(u64),
    /// Chunks.
    Chunked(ChunkedBody),
    /// Everything up to the end of the connection.
    UntilEnd,
}

impl ResponseBody {
    /// A body of this length, of which nothing was read.
    #[must_use]
    pub fn new(length: ResponseLength) -> Self {
        match length {
            ResponseLength::Bytes(count) => Self::Bytes(count),
            ResponseLength::Chunked => Self::Chunked(ChunkedBody::default()),
            ResponseLength::UntilEnd => Self::UntilEnd,
        }
    }

    /// Whether the body is complete. One that lasts until the end of the connection never is.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::Bytes(remaining) => *remaining == 0,
            Self::Chunked(chunks) => chunks.is_done(),
            Self::UntilEnd => false,
        }
    }

    /// Whether a body of the same form of which nothing was read would read on from here in the same way.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        match self {
            Self::Bytes(_) => false,
            Self::Chunked(chunks) => chunks.is_between_chunks(),
            Self::UntilEnd => true,
        }
    }

    /// The next piece of the body at the front of `input`, which is moved behind it. `None` when the input is used up, or
    /// the body is complete.
    ///
    /// # Errors
    /// The chunks are malformed. The error is final.
    pub fn next_data<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, ChunkError> {
        let taken = match self {
            Self::Chunked(chunks) => {
                let data = chunks.next_data(input)?;
                // A response may never end. What frames it is little beside its data, and not in all.
                if data.is_some() {
                    chunks.forget_overhead();
                }
                return Ok(data);
            }
            Self::UntilEnd => input.len(),
            Self::Bytes(remaining) => {
                let most = usize::try_from(*remaining).unwrap_or(usize::MAX);
                let taken = most.min(input.len());
                *remaining -= taken as u64;
                taken
            }
        };
        let (data, rest) = input.split_at(taken);
        *input = rest;
        Ok((!data.is_empty()).then_some(data))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_response};
    use super::*;

    fn length(status: u16, headers: &str) -> Option<ResponseLength> {
        let head = format!("HTTP/1.1 {status} x\r\n{headers}\r\n");
        let head = parse_response(head.as_bytes(), HeadLimits::default());
        ResponseLength::of(&head.expect("a head").expect("a whole head"))
    }

    #[test]
    fn a_response_has_one_length() {
        assert_eq!(length(200, ""), Some(ResponseLength::UntilEnd));
        let seven = "Content-Length: 7\r\n";
        assert_eq!(length(200, seven), Some(ResponseLength::Bytes(7)));
        let chunked = "Transfer-Encoding: Chunked\r\n";
        assert_eq!(length(404, chunked), Some(ResponseLength::Chunked));
        for status in [204, 304, 103] {
            assert_eq!(length(status, seven), Some(ResponseLength::Bytes(0)));
        }
        for headers in [
            "Content-Length: 7, 7\r\n",
            "Content-Length: -7\r\n",
            "Content-Length: 7\r\nContent-Length: 7\r\n",
            "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
        ] {
            assert_eq!(length(200, headers), None, "{headers}");
        }
    }

    fn read(body: &mut ResponseBody, mut input: &[u8]) -> (Vec<u8>, usize) {
        let mut data = Vec::new();
        while let Some(piece) = body.next_data(&mut input).expect("well-formed") {
            data.extend_from_slice(piece);
        }
        (data, input.len())
    }

    #[test]
    fn a_body_without_end_may_have_extensions_without_end() {
        let mut body = ResponseBody::new(ResponseLength::Chunked);
        for _ in 0..2000 {
            // The pieces end within a chunk, so that no reader begins anew between two of them.
            assert_eq!(read(&mut body, b"2;part=middle\r\na"), (b"a".to_vec(), 0));
            assert_eq!(read(&mut body, b"b\r\n2;x=1\r\ncd\r\n").0, b"bcd");
        }
        let one = format!("1;{}\r\na", "x".repeat(5000));
        let refused = body.next_data(&mut one.as_bytes());
        assert_eq!(refused, Err(ChunkError::TooLong), "beside no data");
    }

    #[test]
    fn a_body_is_read_to_its_end_and_no_further() {
        let mut body = ResponseBody::new(ResponseLength::Bytes(5));
        assert_eq!(read(&mut body, b"abc"), (b"abc".to_vec(), 0));
        assert!(!body.is_done() && !body.is_at_rest());
        assert_eq!(read(&mut body, b"defg"), (b"de".to_vec(), 2));
        assert!(body.is_done());
        let mut body = ResponseBody::new(ResponseLength::Chunked);
        assert_eq!(read(&mut body, b"1\r\na\r\n"), (b"a".to_vec(), 0));
        assert!(body.is_at_rest());
        assert_eq!(read(&mut body, b"0\r\n\r\nHTTP"), (Vec::new(), 4));
        assert!(body.is_done());
        let mut body = ResponseBody::new(ResponseLength::UntilEnd);
        assert_eq!(read(&mut body, b"abc"), (b"abc".to_vec(), 0));
        assert!(!body.is_done() && body.is_at_rest());
    }
}
