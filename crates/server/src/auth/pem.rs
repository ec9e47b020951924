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
        RsaFault::Size => "choose a key with 2048 to 8192 bits".into(),
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
            let der = BASE64_STANDARD
                .decode(body)
                .map_err(|_| format!("the key is not base64; {WRITE_PUBLIC_KEY}"))?;
            return Ok(if label == "RSA PUBLIC KEY" {
                wrapped(&der)
            } else {
                der
            });
        }
        body.push_str(line);
    }
    Err(format!("the line {end} is missing"))
}

/// An RSA key in PKCS#1 as a SubjectPublicKeyInfo: the algorithm's name before it (RFC 8017, appendix A.1.1; RFC 3279, 2.3.1).
fn wrapped(key: &[u8]) -> Vec<u8> {
    const RSA_ENCRYPTION: &[u8] = &[
        0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
    ];
    const SEQUENCE: u8 = 0x30;
    const BIT_STRING: u8 = 0x03;
    // The first byte counts the bits that are not used at the end.
    let bits = [&[0], key].concat();
    let parts = [
        element(SEQUENCE, RSA_ENCRYPTION),
        element(BIT_STRING, &bits),
    ];
    element(SEQUENCE, &parts.concat())
}

/// An element of DER: its tag, its length and its content.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut element = vec![tag];
    if content.len() >= 0x80 {
        // At most eight.
        element.push(0x80 | digits.len().to_le_bytes()[0]);
    }
    element.extend(if digits.is_empty() { &[0] } else { digits });
    element.extend(content);
    element
}
