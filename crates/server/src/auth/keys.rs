//! Keys that verify signatures. Each key belongs to one algorithm, or to one kind of HMAC secret: what a token's header says
//! only chooses among them.

use super::algorithm::{Algorithm, Hash};
use super::parts::Parts;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::PublicEncryptingKey;
use aws_lc_rs::{hmac, signature};
use std::fmt;
use std::sync::Arc;

/// The keys of a table of the configuration.
#[derive(Clone, Default)]
pub(crate) struct Keys {
    pub(crate) hmac: Option<Secret>,
    /// The secret before the present one, until a time in seconds since 1970.
    pub(crate) previous_hmac: Option<(Secret, Option<u64>)>,
    pub(crate) rsa: Option<Rsa>,
    pub(crate) ecdsa: Option<PublicKey>,
    pub(crate) ed25519: Option<PublicKey>,
}

impl Keys {
    /// Whether no token can be verified by them.
    pub(crate) fn is_empty(&self) -> bool {
        self.hmac.is_none() && self.rsa.is_none() && self.ecdsa.is_none() && self.ed25519.is_none()
    }

    /// The key for an algorithm that costs more than a shard has time for.
    pub(super) fn public(&self, algorithm: Algorithm) -> Option<&PublicKey> {
        let key = match algorithm {
            Algorithm::Hmac(_) => None,
            Algorithm::Rsa(hash) => self.rsa.as_ref().map(|rsa| rsa.of(hash)),
            Algorithm::Ecdsa(_) => self.ecdsa.as_ref(),
            Algorithm::Ed25519 => self.ed25519.as_ref(),
        };
        key.filter(|key| key.algorithm == algorithm)
    }

    /// Verifies a signature by HMAC. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The cause, for the log.
    pub(super) fn verify_hmac(
        &self,
        parts: &Parts<'_>,
        hash: Hash,
        now: u64,
    ) -> Result<(), &'static str> {
        let Some(secret) = &self.hmac else {
            return Err("no hmac_secret_key is configured, and the token is signed with HMAC");
        };
        if secret.verifies(hash, parts) {
            return Ok(());
        }
        match &self.previous_hmac {
            Some((previous, until))
                if until.is_none_or(|until| now < until) && previous.verifies(hash, parts) =>
            {
                Ok(())
            }
            _ => Err(WRONG_SIGNATURE),
        }
    }
}

pub(super) const WRONG_SIGNATURE: &str = "the signature is not by the configured key";

/// Never shows keys, not even public ones: who reads the log cannot tell them apart.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("hmac", &self.hmac.is_some())
            .field("previous_hmac", &self.previous_hmac.is_some())
            .field("rsa", &self.rsa.is_some())
            .field("ecdsa", &self.ecdsa.is_some())
            .field("ed25519", &self.ed25519.is_some())
            .finish()
    }
}

/// A secret of HMAC, prepared for each hash: preparing costs as much as verifying.
#[derive(Clone)]
pub(crate) struct Secret([hmac::Key; Hash::ALL.len()]);

impl Secret {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(Hash::ALL.map(|hash| hmac::Key::new(hash.hmac(), secret)))
    }

    /// In constant time.
    fn verifies(&self, hash: Hash, parts: &Parts<'_>) -> bool {
        hmac::verify(&self.0[hash as usize], parts.signed, &parts.signature).is_ok()
    }
}

/// A public key, parsed once.
#[derive(Clone)]
pub(crate) struct PublicKey {
    pub(super) algorithm: Algorithm,
    key: Arc<signature::ParsedPublicKey>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl PublicKey {
    /// A key for ECDSA or EdDSA: the DER of its SubjectPublicKeyInfo, or its raw point. None if it is no key of the algorithm.
    pub(super) fn new(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        let method: &'static dyn signature::VerificationAlgorithm = match algorithm {
            Algorithm::Ecdsa(Hash::Sha256) => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Ecdsa(Hash::Sha384) => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Ecdsa(Hash::Sha512) => &signature::ECDSA_P521_SHA512_FIXED,
            Algorithm::Ed25519 => &signature::ED25519,
            Algorithm::Rsa(hash) => rsa_method(hash),
            Algorithm::Hmac(_) => return None,
        };
        let key = signature::ParsedPublicKey::new(method, bytes).ok()?;
        Some(Self {
            algorithm,
            key: Arc::new(key),
        })
    }

    /// An ECDSA key of whichever curve it is on.
    pub(super) fn ecdsa(der: &[u8]) -> Option<Self> {
        let mut curves = Hash::ALL.into_iter().map(Algorithm::Ecdsa);
        curves.find_map(|algorithm| Self::new(algorithm, der))
    }

    /// Takes 20 to 300 microseconds.
    pub(super) fn verifies(&self, signed: &[u8], signature: &[u8]) -> bool {
        self.key.verify_sig(signed, signature).is_ok()
    }
}

/// An RSA key, for each hash that a token may be signed with.
#[derive(Clone)]
pub(crate) struct Rsa([PublicKey; Hash::ALL.len()]);

/// Why an RSA key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RsaFault {
    /// It is no RSA key.
    Malformed,
    /// It has fewer than 2,048 bits, or more than 8,192.
    Size,
}

impl Rsa {
    /// From the DER of a SubjectPublicKeyInfo.
    pub(super) fn new(der: &[u8]) -> Result<Self, RsaFault> {
        let [sha256, sha384, sha512] =
            Hash::ALL.map(|hash| PublicKey::new(Algorithm::Rsa(hash), der));
        match (sha256, sha384, sha512) {
            (Some(sha256), Some(sha384), Some(sha512)) => {
                // As a key for signatures the library takes any size, and refuses every signature later.
                PublicEncryptingKey::from_der(der).map_err(|_| RsaFault::Size)?;
                Ok(Self([sha256, sha384, sha512]))
            }
            _ => Err(RsaFault::Malformed),
        }
    }

    /// From a modulus and an exponent.
    pub(super) fn from_components(modulus: &[u8], exponent: &[u8]) -> Result<Self, RsaFault> {
        // Some write a zero before a modulus whose highest bit is set.
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let components = signature::RsaPublicKeyComponents {
            n: &modulus[zeros..],
            e: exponent,
        };
        let der = components.as_der().map_err(|_| RsaFault::Malformed)?;
        Self::new(der.as_ref())
    }

    pub(super) fn of(&self, hash: Hash) -> &PublicKey {
        &self.0[hash as usize]
    }
}

fn rsa_method(hash: Hash) -> &'static signature::RsaParameters {
    match hash {
        Hash::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Hash::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Hash::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
    }
}
