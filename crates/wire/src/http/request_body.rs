//! Bodies of requests, taken out of their framing.

use super::{BodyLength, ChunkError, ChunkedBody};

/// A small request body that comes in pieces of any size, kept until it is whole.
///
/// Feed it the bytes after the head until [`RequestBody::is_done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody {
    remaining: Remaining,
    bytes: Vec<u8>,
    bytes_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Remaining {
    Bytes(usize),
    Chunks(ChunkedBody),
}

/// A body that is not taken. The client is the cause, and the begin of its next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It has more bytes than the limit.
    TooLarge,
    /// Its chunks break RFC 9112.
    Chunk(ChunkError),
}

impl BodyError {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::TooLarge => 413,
            Self::Chunk(_) => 400,
        }
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::TooLarge => {
                "The body is over the limit of one message: send less in one request."
            }
            Self::Chunk(error) => error.sentence(),
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "body_too_large",
            Self::Chunk(_) => "body",
        }
    }
}

impl RequestBody {
    /// A body of which nothing has come. It may have `bytes_max` bytes, without what frames its chunks.
    ///
    /// # Errors
    /// Its length is over the limit.
    pub fn new(length: BodyLength, bytes_max: usize) -> Result<Self, BodyError> {
        let remaining = match length {
            BodyLength::Bytes(length) => match usize::try_from(length) {
                Ok(length) if length <= bytes_max => Remaining::Bytes(length),
                _ => return Err(BodyError::TooLarge),
            },
            BodyLength::Chunked => Remaining::Chunks(ChunkedBody::default()),
        };
        Ok(Self {
            remaining,
            bytes: Vec::new(),
            bytes_max,
        })
    }

    /// Whether the body is whole.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.remaining {
            Remaining::Bytes(count) => *count == 0,
            Remaining::Chunks(chunks) => chunks.is_done(),
        }
    }

    /// The bytes that have come.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes what belongs to the body off the front of `input`, and answers how many bytes that were. Fewer than all only at its end.
    ///
    /// # Errors
    /// The error is final.
    pub fn advance(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        match &mut self.remaining {
            Remaining::Bytes(count) => {
                let taken = input.len().min(*count);
                *count -= taken;
                self.bytes.extend_from_slice(&input[..taken]);
                Ok(taken)
            }
            Remaining::Chunks(chunks) => {
                let taken = chunks
                    .decode(input, &mut self.bytes, self.bytes_max)
                    .map_err(BodyError::Chunk)?;
                match taken {
                    Some(taken) => Ok(taken),
                    None => Err(BodyError::TooLarge),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<Option<(Vec<u8>, usize)>, BodyError>;

    fn read(length: BodyLength, pieces: &[&[u8]]) -> Read {
        let mut body = RequestBody::new(length, 10)?;
        let mut count = 0;
        for piece in pieces {
            count += body.advance(piece)?;
        }
        Ok(body.is_done().then(|| (body.bytes().to_vec(), count)))
    }

    /// The body and its bytes on the wire, whatever the pieces they come in.
    fn whole(length: BodyLength, text: &str) -> Read {
        let whole = read(length, &[text.as_bytes()]);
        for cut in 0..=text.len() {
            let (front, back) = text.as_bytes().split_at(cut);
            assert_eq!(read(length, &[front, back]), whole, "{text:?} cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(length, &bytes), whole, "{text:?} in bytes");
        whole
    }

    #[test]
    fn a_body_of_a_known_length_ends_there() {
        let bytes = BodyLength::Bytes;
        let expected = |text: &str| Ok(Some((text.as_bytes().to_vec(), text.len())));
        assert_eq!(whole(bytes(2), "{}"), expected("{}"));
        assert_eq!(whole(bytes(2), "{}GET / HTTP/1.1"), expected("{}"));
        assert_eq!(whole(bytes(0), "GET / HTTP/1.1"), expected(""));
        assert_eq!(whole(bytes(3), "{}"), Ok(None));
        assert_eq!(whole(bytes(10), "0123456789"), expected("0123456789"));
        for length in [11, u64::MAX] {
            assert_eq!(whole(bytes(length), ""), Err(BodyError::TooLarge));
        }
    }

    #[test]
    fn chunks_are_put_together() {
        let body = "3\r\n{\"a\r\n2;x=y\r\n\"}\r\n0\r\nTracer: 1\r\n\r\n";
        let expected = Ok(Some((b"{\"a\"}".to_vec(), body.len())));
        assert_eq!(whole(BodyLength::Chunked, body), expected);
        assert_eq!(
            whole(BodyLength::Chunked, &format!("{body}GET /")),
            expected
        );
        let empty = Ok(Some((Vec::new(), 5)));
        assert_eq!(whole(BodyLength::Chunked, "0\r\n\r\n"), empty);
    }

    #[test]
    fn chunks_are_bounded_together() {
        let chunked = |body| whole(BodyLength::Chunked, body);
        assert!(matches!(
            chunked("5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n"),
            Ok(Some(_))
        ));
        assert_eq!(
            chunked("5\r\n01234\r\n6\r\n567890"),
            Err(BodyError::TooLarge)
        );
        assert_eq!(
            chunked("7fffffffffffffff\r\n01234567890"),
            Err(BodyError::TooLarge)
        );
        assert_eq!(
            chunked("5\r\n01234x"),
            Err(BodyError::Chunk(ChunkError::LineEnd))
        );
    }
}
