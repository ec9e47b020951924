//! The cipher suites of TLS 1.3, and what is derived with their hash (RFC 8446, section 7.1).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use rustls::{CipherSuite, ConnectionTrafficSecrets};

/// A cipher suite of TLS 1.3. Its number is what a snapshot of a connection contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`
    Aes128Gcm = 1,
    /// `TLS_AES_256_GCM_SHA384`
    Aes256Gcm = 2,
    /// `TLS_CHACHA20_POLY1305_SHA256`
    ChaCha20Poly1305 = 3,
}

/// Bytes of the longest secret: a hash by SHA-384.
pub(crate) const SECRET: usize = 48;
/// Bytes of the longest key.
pub(crate) const KEY: usize = 32;
/// Bytes of a nonce, in all suites.
pub(crate) const NONCE: usize = 12;
/// Bytes of a tag, in all suites.
pub(crate) const TAG: usize = 16;

/// The length of what is derived.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Suite {
    /// The suite that was negotiated: nothing for one of TLS 1.2.
    pub fn of(suite: CipherSuite) -> Option<Self> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(Self::Aes128Gcm),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(Self::Aes256Gcm),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// The suite with this number in a snapshot.
    pub(crate) fn numbered(number: u8) -> Option<Self> {
        [Self::Aes128Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305]
            .into_iter()
            .find(|suite| *suite as u8 == number)
    }

    pub(crate) fn aead(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    /// Bytes of a traffic secret: of the suite's hash.
    pub(crate) fn secret_length(self) -> usize {
        if self == Self::Aes256Gcm { 48 } else { 32 }
    }

    /// Fills `derived` with `HKDF-Expand-Label(secret, label, "", length)`. False if `secret` has not the length of a hash.
    #[must_use]
    pub(crate) fn expand(self, secret: &[u8; SECRET], label: &str, derived: &mut [u8]) -> bool {
        let hash = if self == Self::Aes256Gcm {
            HKDF_SHA384
        } else {
            HKDF_SHA256
        };
        let (Ok(length), Ok(label_length)) = (
            u16::try_from(derived.len()),
            u8::try_from("tls13 ".len() + label.len()),
        ) else {
            return false;
        };
        let info: [&[u8]; 5] = [
            &length.to_be_bytes(),
            &[label_length],
            b"tls13 ",
            label.as_bytes(),
            &[0],
        ];
        Prk::new_less_safe(hash, &secret[..self.secret_length()])
            .expand(&info, Length(derived.len()))
            .and_then(|expanded| expanded.fill(derived))
            .is_ok()
    }
}

/// The key and nonce that rustls extracted.
pub(crate) fn key_and_nonce(secrets: &ConnectionTrafficSecrets) -> Option<(&[u8], &[u8])> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            Some((key.as_ref(), iv.as_ref()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hex"))
            .collect()
    }

    /// RFC 8448, section 3: the server's application traffic secret of a simple 1-RTT handshake, and its key and nonce.
    #[test]
    fn keys_are_derived_as_in_the_trace_of_rfc_8448() {
        let mut secret = [0; SECRET];
        secret[..32].copy_from_slice(&bytes(
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
        ));
        let (mut key, mut nonce) = ([0; 16], [0; NONCE]);
        assert!(Suite::Aes128Gcm.expand(&secret, "key", &mut key));
        assert!(Suite::Aes128Gcm.expand(&secret, "iv", &mut nonce));
        assert_eq!(key.to_vec(), bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(nonce.to_vec(), bytes("cf782b88dd83549aadf1e984"));
    }
}
