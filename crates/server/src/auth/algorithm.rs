//! The algorithms of signatures.

use aws_lc_rs::hmac;

/// An algorithm that we verify. `none` is no such algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Hmac(Hash),
    Rsa(Hash),
    Ecdsa(Hash),
    Ed25519,
}

/// The hash of an algorithm. For ECDSA it names the curve too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    pub(super) const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    pub(super) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

impl Algorithm {
    /// The algorithm with this name in a token's header or in a set of keys; the names are those of RFC 7518 and RFC 8037.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "HS256" => Self::Hmac(Hash::Sha256),
            "HS384" => Self::Hmac(Hash::Sha384),
            "HS512" => Self::Hmac(Hash::Sha512),
            "RS256" => Self::Rsa(Hash::Sha256),
            "RS384" => Self::Rsa(Hash::Sha384),
            "RS512" => Self::Rsa(Hash::Sha512),
            "ES256" => Self::Ecdsa(Hash::Sha256),
            "ES384" => Self::Ecdsa(Hash::Sha384),
            "ES512" => Self::Ecdsa(Hash::Sha512),
            // RFC 9864 gives the one curve of EdDSA that we know a name of its own.
            "EdDSA" | "Ed25519" => Self::Ed25519,
            _ => return None,
        })
    }
}
