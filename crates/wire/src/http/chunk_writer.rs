//! Writes bodies in chunks (RFC 9112, section 7.1): bodies whose length nobody knows when they begin.

/// The chunk that ends a body, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Bytes around the data of a chunk at most: 16 digits and two line ends.
const FRAMING_BYTES_MAX: usize = 20;

/// Appends one chunk with the bytes of all `parts`, one after the other.
///
/// # Panics
/// There are no bytes: such a chunk would end the body.
pub fn encode_chunk(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    assert!(size > 0, "an empty chunk ends a body");
    out.reserve(size + FRAMING_BYTES_MAX);
    out.extend_from_slice(format!("{size:x}\r\n").as_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::super::ChunkedBody;
    use super::*;

    #[test]
    fn a_body_is_read_back_as_one() {
        let long = [b'x'; 300];
        let mut body = Vec::new();
        encode_chunk(&mut body, &[b"{}", b"\n"]);
        assert_eq!(body, b"3\r\n{}\n\r\n");
        encode_chunk(&mut body, &[b"", &long]);
        body.extend_from_slice(LAST_CHUNK);
        assert!(body.windows(5).any(|window| window == b"12c\r\n"));
        let mut reader = ChunkedBody::default();
        assert_eq!(reader.advance(&body), Ok(body.len()));
        assert!(reader.is_done());
    }

    #[test]
    #[should_panic(expected = "ends a body")]
    fn an_empty_chunk_is_never_written() {
        encode_chunk(&mut Vec::new(), &[b"", b""]);
    }
}
