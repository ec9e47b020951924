//! The five bytes before a record (RFC 8446, section 5.1).

use crate::alert::Fault;

/// Bytes of a header.
pub const HEADER: usize = 5;

/// The longest record with its header: 2^14 bytes of text, and 256 for its type, padding and tag (RFC 8446, 5.2).
pub const RECORD_MAX: usize = HEADER + (1 << 14) + 256;

/// A header with a type that no record has.
pub(crate) const NO_RECORD: [u8; HEADER] = [0; HEADER];

/// A record's header. The version in it says nothing (RFC 8446, 5.1), and is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the record: 20 to 23.
    pub kind: u8,
    /// Bytes behind the header.
    pub length: usize,
}

impl Header {
    /// Reads the header of the record at the start of `bytes`: nothing if it has not come whole.
    ///
    /// # Errors
    ///
    /// A type that TLS does not have, which is what another protocol looks like, and a length beyond [`RECORD_MAX`].
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        if let Some(kind) = bytes.first()
            && !(20..=23).contains(kind)
        {
            return Err(Fault::Unexpected(*kind));
        }
        let Some((header, _)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [kind, _, _, high, low] = *header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if HEADER + length > RECORD_MAX {
            return Err(Fault::TooLong);
        }
        Ok(Some(Self { kind, length }))
    }

    /// Bytes of the record with its header.
    pub fn whole(self) -> usize {
        HEADER + self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_when_it_is_whole_and_refused_as_early_as_possible() {
        let bytes = [23, 3, 3, 0x40, 0xff];
        for cut in 0..HEADER {
            assert_eq!(Header::read(&bytes[..cut]), Ok(None), "{cut}");
        }
        let header = Header {
            kind: 23,
            length: 0x40ff,
        };
        assert_eq!(Header::read(&bytes), Ok(Some(header)));
        assert_eq!(header.whole(), 0x4104);
        assert_eq!(Header::read(b"G"), Err(Fault::Unexpected(b'G')));
        assert_eq!(
            Header::read(&[23, 3, 3, 0x41, 0x00]),
            Ok(Some(Header {
                kind: 23,
                length: 0x4100
            }))
        );
        assert_eq!(Header::read(&[23, 3, 3, 0x41, 0x01]), Err(Fault::TooLong));
    }
}
