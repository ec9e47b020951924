//! The key of a handshake, and the answer which proves that the server understood it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};
use std::fmt;

/// The GUID of the WebSocket protocol, which is part of every answer (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Bytes of a key in base64.
const KEY_BYTES: usize = 24;

/// Bytes of an accept value: a SHA-1 in base64.
pub(super) const ACCEPT_BYTES: usize = 28;

/// The value of `Sec-WebSocket-Key`: 16 bytes in base64.
///
/// It is not a secret. It only proves that the answer belongs to this request. A client must still choose the bytes
/// at random (RFC 6455, section 4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Reads a header's value; `None` unless it is the base64 of exactly 16 bytes.
    ///
    /// The unused bits of the last digit may be set, as some clients do: the answer is computed from the text, never
    /// from the bytes.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let key: [u8; KEY_BYTES] = value.try_into().ok()?;
        let (digits, padding) = key.split_at(KEY_BYTES - 2);
        let lawful = digits
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        (lawful && padding == b"==").then_some(Self(key))
    }

    /// The `Sec-WebSocket-Accept` value that answers this key (RFC 6455, section 4.2.2).
    #[must_use]
    pub fn accept(&self) -> [u8; ACCEPT_BYTES] {
        let mut sha1 = Sha1::new();
        sha1.update(self.0);
        sha1.update(GUID);
        let mut accept = [0; ACCEPT_BYTES];
        STANDARD
            .encode_slice(sha1.finalize(), &mut accept)
            .expect("20 bytes are 28 base64 digits");
        accept
    }

    /// The key as it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

impl From<[u8; 16]> for Key {
    fn from(bytes: [u8; 16]) -> Self {
        let mut key = [0; KEY_BYTES];
        STANDARD
            .encode_slice(bytes, &mut key)
            .expect("16 bytes are 24 base64 digits");
        Self(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_answered() {
        let key = Key::from(*b"the sample nonce");
        assert_eq!(key.as_str(), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(Key::parse(b"dGhlIHNhbXBsZSBub25jZQ=="), Some(key));
        assert_eq!(&key.accept(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn only_sixteen_bytes_are_a_key() {
        let bad: [&[u8]; 8] = [
            b"",
            b"dGhlIHNhbXBsZSBub25jZQ",
            b"dGhlIHNhbXBsZSBub25jZQ=",
            b"dGhlIHNhbXBsZSBub25jZWE=",
            b"dGhlIHNhbXBsZSBub25jZWFh",
            b"dGhlIHNhbXBsZSBub25j*Q==",
            b"dGhlIHNhbXBs=SBub25jZQ==",
            b"dGhlIHNhbXBsZSBub25jZQ== ",
        ];
        for value in bad {
            assert_eq!(
                Key::parse(value),
                None,
                "{}",
                String::from_utf8_lossy(value)
            );
        }
        assert!(
            Key::parse(
                b"////////////////////////"[..22]
                    .iter()
                    .chain(b"==")
                    .copied()
                    .collect::<Vec<_>>()
                    .as_slice()
            )
            .is_some()
        );
    }
}
