//! Public keys as PEM text.

use super::Algorithm;
use super::keys::{PublicKey, Rsa, RsaFault};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Why a text is no key; what to write instead.
pub(crate) type Advice = String;

const WRITE_PUBLIC_KEY: &str =
    "write the public key as PEM: -----BEGIN PUBLIC KEY----- and what follows it";

/// An RSA key.
pub(crate) fn rsa(text: &str) -> Result<Rsa, Advice> {
    let der = decode(text)?;
    Rsa::new(&der).map_err(|fault| match fault {
        RsaFault::Size(bits) => format!("the key has {bits} bits; choose one with 2048 to 8192"),
        RsaFault::Malformed => format!("this is no RSA key; {WRITE_PUBLIC_KEY}"),
    })
}

/// A key for ES256, ES384 or ES512; its curve says for which.
pub(crate) fn ecdsa(text: &str) -> Result<PublicKey, Advice> {
    let der = decode(text)?;
    PublicKey::ecdsa(&der).ok_or_else(|| {
        format!("this is no key on one of the curves P-256, P-384 and P-521; {WRITE_PUBLIC_KEY}")
    })
}

/// A key for EdDSA.
pub(crate) fn ed25519(text: &str) -> Result<PublicKey, Advice> {
    let der = decode(text)?;
    PublicKey::new(Algorithm::Ed25519, &der)
        .ok_or_else(|| format!("this is no Ed25519 key; {WRITE_PUBLIC_KEY}"))
}

/// The bytes of the one key in a text.
fn decode(text: &str) -> Result<Vec<u8>, Advice> {
    // In an environment variable lines may be separated by a backslash and an n.
    let text = text.replace("\\n", "\n");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let label = lines
        .next()
        .and_then(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"))
        .ok_or(WRITE_PUBLIC_KEY)?;
    match label {
        "PUBLIC KEY" | "RSA PUBLIC KEY" => {}
        "CERTIFICATE" => {
            return Err("this is a certificate; write the key in it, which openssl x509 -pubkey -noout shows".into());
        }
        label if label.contains("PRIVATE KEY") => {
            return Err("this is a private key, which only the issuer of tokens should have; write the public key, which openssl pkey -pubout shows".into());
        }
        _ => return Err(WRITE_PUBLIC_KEY.into()),
    }
    let end = format!("-----END {label}-----");
    let mut body = String::new();
    for line in lines.by_ref() {
        if line == end {
            if lines.next().is_some() {
                return Err("there is more text after the key; write one key".into());
            }
            return BASE64_STANDARD
                .decode(body)
                .map_err(|_| format!("the key is not base64; {WRITE_PUBLIC_KEY}"));
        }
        body.push_str(line);
    }
    Err(format!("the line {end} is missing"))
}
