//! The three parts of a token, before anything is believed.

use super::algorithm::Algorithm;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;

/// Bytes of a token. A longer one is refused before it is decoded.
pub(crate) const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Bytes of the name of a key.
const KEY_ID_BYTES_MAX: usize = 256;
/// Bytes of a signature: RSA with 8,192 bits has the longest.
const SIGNATURE_BYTES_MAX: usize = 1024;

/// A token in compact form, decoded as far as it can be without a key. All of it is still a stranger's.
#[derive(Debug)]
pub(super) struct Parts<'t> {
    pub(super) algorithm: Algorithm,
    /// Which key, if the token says so.
    pub(super) key_id: Option<Box<str>>,
    /// What is signed: header and claims with the dot between them.
    pub(super) signed: &'t [u8],
    pub(super) signature: Vec<u8>,
    claims: &'t str,
}

/// The header. Members that we do not know change nothing (RFC 7515, section 4), except `crit`.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    alg: Cow<'a, str>,
    #[serde(borrow)]
    kid: Option<Cow<'a, str>>,
    crit: Option<IgnoredAny>,
}

impl<'t> Parts<'t> {
    /// # Errors
    /// What is wrong with the token, in words for the log.
    pub(super) fn read(token: &'t str) -> Result<Self, &'static str> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("the token is longer than 16 KiB");
        }
        let three = "the token does not have three parts with dots between them";
        let (signed, signature) = token.rsplit_once('.').ok_or(three)?;
        let (header, claims) = signed.split_once('.').ok_or(three)?;
        if claims.contains('.') {
            return Err(three);
        }
        if signature.len() > SIGNATURE_BYTES_MAX.div_ceil(3) * 4 {
            return Err("the signature is longer than any algorithm's");
        }
        let header = decoded(header).ok_or("the header is not base64url")?;
        let header: Header<'_> = serde_json::from_slice(&header)
            .map_err(|_| "the header is not a JSON object with alg as text, and each name once")?;
        if header.crit.is_some() {
            return Err("the header names extensions that must be understood (crit)");
        }
        let algorithm = Algorithm::named(&header.alg)
            .ok_or("the header's alg is none of HS, RS and ES with 256, 384 or 512, and EdDSA")?;
        let key_id = match header.kid {
            Some(id) if id.len() > KEY_ID_BYTES_MAX => {
                return Err("the header's kid is longer than 256 bytes");
            }
            id => id.map(|id| id.into()),
        };
        Ok(Self {
            algorithm,
            key_id,
            signed: signed.as_bytes(),
            signature: decoded(signature).ok_or("the signature is not base64url")?,
            claims,
        })
    }

    /// The claims as text.
    ///
    /// # Errors
    /// What is wrong with them, in words for the log.
    pub(super) fn claims(&self) -> Result<String, &'static str> {
        let bytes = decoded(self.claims).ok_or("the claims are not base64url")?;
        String::from_utf8(bytes).map_err(|_| "the claims are not UTF-8")
    }
}

/// Base64url without padding. There is one way to write each sequence of bytes; others are refused.
fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::Hash;
    use super::*;

    fn encoded(text: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(text)
    }

    fn with_header(header: &str) -> String {
        format!("{}.{}.AA", encoded(header), encoded("{}"))
    }

    #[test]
    fn a_header_names_algorithm_and_key() {
        let token = with_header(r#"{"typ":"JWT","alg":"ES256","kid":"k\u0031","x5c":[1,{}]}"#);
        let parts = Parts::read(&token).unwrap();
        assert_eq!(parts.algorithm, Algorithm::Ecdsa(Hash::Sha256));
        assert_eq!(parts.key_id.as_deref(), Some("k1"));
        assert_eq!(parts.signature, [0]);
        assert_eq!(parts.claims().unwrap(), "{}");
        assert!(token.as_bytes().starts_with(parts.signed));
    }

    #[test]
    fn what_is_no_token_has_a_cause() {
        let long_key = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(257));
        for (token, cause) in [
            (String::new(), "three parts"),
            ("a".into(), "three parts"),
            ("a.b".into(), "three parts"),
            ("a.b.c.d".into(), "three parts"),
            ("..".into(), "not a JSON object"),
            ("a b.e30.AA".into(), "header is not base64url"),
            (with_header("[]"), "not a JSON object"),
            (with_header("{}"), "not a JSON object"),
            (with_header(r#"{"alg":1}"#), "not a JSON object"),
            (with_header(r#"{"alg":null}"#), "not a JSON object"),
            (
                with_header(r#"{"alg":"HS256","alg":"none"}"#),
                "each name once",
            ),
            (with_header(r#"{"alg":"none"}"#), "alg is none of"),
            (with_header(r#"{"alg":"hs256"}"#), "alg is none of"),
            (with_header(r#"{"alg":""}"#), "alg is none of"),
            (with_header(r#"{"alg":"HS256","crit":["b64"]}"#), "crit"),
            (with_header(&long_key), "kid is longer"),
            (
                format!("{}=", with_header(r#"{"alg":"HS256"}"#)),
                "signature is not base64url",
            ),
            ("x".repeat(TOKEN_BYTES_MAX + 1), "longer than 16 KiB"),
            (
                format!("{}{}", with_header(r#"{"alg":"HS256"}"#), "A".repeat(2_000)),
                "signature is longer",
            ),
        ] {
            let found = Parts::read(&token).expect_err(&token);
            assert!(found.contains(cause), "{token}: {found}");
        }
    }

    #[test]
    fn spare_bits_at_the_end_must_be_zero() {
        // Otherwise one signature would have several texts, and a list of revoked texts would miss some.
        let token = with_header(r#"{"alg":"HS256"}"#);
        assert!(Parts::read(&token).is_ok());
        let other = format!("{}B", &token[..token.len() - 1]);
        assert!(Parts::read(&other).is_err());
    }
}
