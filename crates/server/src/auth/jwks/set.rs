//! A set of keys (JWK Set, RFC 7517) as an endpoint sends it.

use super::super::algorithm::{Algorithm, Hash};
use super::super::keys::{PublicKey, Rsa};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Keys of one set. Endpoints have a handful of them.
const KEYS_MAX: usize = 100;

/// The keys of a set that verify signatures, with their names.
#[derive(Debug)]
pub(super) struct Set {
    keys: Vec<(Box<str>, PublicKey)>,
    /// Names of keys whose numbers cannot be read.
    unreadable: Vec<Box<str>>,
}

/// Why there is no set in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetFault {
    /// It is not a JSON object with a list `keys`.
    Malformed,
    /// No key in it has a name (`kid`) and verifies signatures. An endpoint that lost its keys must not take ours away.
    NoKeys,
    /// The same, because the numbers of all keys are written in another way than as base64url without padding (RFC 7515, section 2).
    Unreadable,
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// Members of a key (RFC 7517 and RFC 7518). Others change nothing.
#[derive(Deserialize)]
struct Key<'a> {
    #[serde(borrow)]
    kty: Cow<'a, str>,
    #[serde(borrow)]
    kid: Option<Cow<'a, str>>,
    #[serde(borrow)]
    r#use: Option<Cow<'a, str>>,
    key_ops: Option<Vec<String>>,
    #[serde(borrow)]
    alg: Option<Cow<'a, str>>,
    #[serde(borrow)]
    crv: Option<Cow<'a, str>>,
    #[serde(borrow)]
    n: Option<Cow<'a, str>>,
    #[serde(borrow)]
    e: Option<Cow<'a, str>>,
    #[serde(borrow)]
    x: Option<Cow<'a, str>>,
    #[serde(borrow)]
    y: Option<Cow<'a, str>>,
}

impl Set {
    /// Keys that cannot be used are left out: a set may have keys for other purposes, or of kinds that we do not know.
    pub(super) fn read(text: &[u8]) -> Result<Self, SetFault> {
        let document: Document<'_> =
            serde_json::from_slice(text).map_err(|_| SetFault::Malformed)?;
        let (mut keys, mut unreadable) = (Vec::new(), Vec::new());
        for raw in document.keys.into_iter().take(KEYS_MAX) {
            let Ok(key) = serde_json::from_str::<Key<'_>>(raw.get()) else {
                continue;
            };
            if let Some(name) = key.kid.as_deref().filter(|name| !name.is_empty())
                && key.verifies_signatures()
            {
                if key.is_unreadable() {
                    unreadable.push(name.into());
                    continue;
                }
                keys.extend(key.public().into_iter().map(|public| (name.into(), public)));
            }
        }
        match (keys.is_empty(), unreadable.is_empty()) {
            (true, true) => Err(SetFault::NoKeys),
            (true, false) => Err(SetFault::Unreadable),
            (false, _) => Ok(Self { keys, unreadable }),
        }
    }

    /// Names of keys that are left out because their numbers cannot be read, for the log.
    pub(super) fn unreadable(&self) -> &[Box<str>] {
        &self.unreadable
    }

    /// The key with this name for this algorithm.
    pub(super) fn find(&self, name: &str, algorithm: Algorithm) -> Option<&PublicKey> {
        let mut keys = self.keys.iter();
        keys.find(|(known, key)| **known == *name && key.algorithm == algorithm)
            .map(|(_, key)| key)
    }

    /// The names, each once, for the log.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.keys.iter().map(|(name, _)| &**name).collect();
        names.dedup();
        names
    }
}

impl Key<'_> {
    fn verifies_signatures(&self) -> bool {
        self.r#use.as_deref().is_none_or(|purpose| purpose == "sig")
            && self
                .key_ops
                .as_deref()
                .is_none_or(|operations| operations.iter().any(|name| name == "verify"))
    }

    /// Whether a number of it is no base64url. Padding is the usual cause: some libraries write `=` at the end.
    fn is_unreadable(&self) -> bool {
        let numbers = [&self.n, &self.e, &self.x, &self.y];
        let mut written = numbers.into_iter().filter(|number| number.is_some());
        written.any(|number| decoded(number).is_none())
    }

    /// The key for each algorithm that it may verify: its type says which, and `alg` may say less.
    fn public(&self) -> Vec<PublicKey> {
        let keys = match &*self.kty {
            "RSA" => self.rsa(),
            "EC" => self.ecdsa().into_iter().collect(),
            "OKP" => self.ed25519().into_iter().collect(),
            // Symmetric ones (oct) too: a secret that an endpoint shows to everybody is none.
            _ => Vec::new(),
        };
        let Some(name) = self.alg.as_deref() else {
            return keys;
        };
        let algorithm = Algorithm::named(name);
        keys.into_iter()
            .filter(|key| Some(key.algorithm) == algorithm)
            .collect()
    }

    fn rsa(&self) -> Vec<PublicKey> {
        let Some((modulus, exponent)) = decoded(&self.n).zip(decoded(&self.e)) else {
            return Vec::new();
        };
        Rsa::from_components(&modulus, &exponent)
            .map(|rsa| Hash::ALL.map(|hash| rsa.of(hash).clone()).into())
            .unwrap_or_default()
    }

    fn ecdsa(&self) -> Option<PublicKey> {
        let (hash, size) = match self.crv.as_deref()? {
            "P-256" => (Hash::Sha256, 32),
            "P-384" => (Hash::Sha384, 48),
            "P-521" => (Hash::Sha512, 66),
            _ => return None,
        };
        let mut point = vec![4];
        for coordinate in [&self.x, &self.y] {
            let bytes = decoded(coordinate)?;
            // Some leave out zeros at the front, which RFC 7518 (6.2.1.2) wants.
            let missing = usize::checked_sub(size, bytes.len())?;
            point.extend(std::iter::repeat_n(0, missing));
            point.extend(bytes);
        }
        PublicKey::new(Algorithm::Ecdsa(hash), &point)
    }

    fn ed25519(&self) -> Option<PublicKey> {
        let is_known = self.crv.as_deref() == Some("Ed25519");
        let point = decoded(&self.x).filter(|point| is_known && point.len() == 32)?;
        PublicKey::new(Algorithm::Ed25519, &point)
    }
}

fn decoded(text: &Option<Cow<'_, str>>) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::parts::Parts;
    use super::*;

    /// RFC 7515, appendix A.3: a key on P-256.
    const P256: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;
    /// RFC 8037, appendix A.2.
    const ED25519: &str =
        r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;

    fn read(keys: &[String]) -> Result<Set, SetFault> {
        let keys: Vec<_> = keys.iter().map(|key| format!("{{{key}}}")).collect();
        Set::read(format!(r#"{{"keys":[{}],"other":1}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn a_key_is_found_by_its_name_and_for_its_algorithm_only() {
        let set = read(&[
            format!(r#"{P256},"kid":"a","use":"sig","alg":"ES256""#),
            format!(r#"{ED25519},"kid":"b","key_ops":["verify"]"#),
        ])
        .unwrap();
        assert_eq!(set.names(), ["a", "b"]);
        let es256 = Algorithm::Ecdsa(Hash::Sha256);
        assert!(set.find("a", es256).is_some());
        assert!(set.find("b", Algorithm::Ed25519).is_some());
        assert!(set.find("a", Algorithm::Ed25519).is_none());
        assert!(set.find("a", Algorithm::Ecdsa(Hash::Sha384)).is_none());
        assert!(set.find("a", Algorithm::Rsa(Hash::Sha256)).is_none());
        assert!(set.find("b", es256).is_none());
        assert!(set.find("", es256).is_none());
    }

    #[test]
    fn a_key_with_padding_is_left_out_by_its_name() {
        let padded = ED25519.replace("URo", "URo=");
        let set = read(&[
            format!(r#"{padded},"kid":"padded""#),
            format!(r#"{P256},"kid":"a""#),
        ])
        .unwrap();
        assert_eq!(set.names(), ["a"]);
        let left_out: Vec<_> = set.unreadable().iter().map(|name| &**name).collect();
        assert_eq!(left_out, ["padded"]);
        let alone = read(&[format!(r#"{padded},"kid":"padded""#)]);
        assert_eq!(alone.unwrap_err(), SetFault::Unreadable);
    }

    #[test]
    fn keys_that_verify_no_signature_are_left_out() {
        let off_curve = P256.replace("x_FE", "x_FF");
        for key in [
            P256.to_owned(),
            format!(r#"{P256},"kid":"""#),
            format!(r#"{P256},"kid":1"#),
            format!(r#"{P256},"kid":"a","use":"enc""#),
            format!(r#"{P256},"kid":"a","key_ops":["sign"]"#),
            format!(r#"{P256},"kid":"a","alg":"ES384""#),
            format!(r#"{P256},"kid":"a","alg":"HS256""#),
            format!(r#"{P256},"kid":"a","alg":"none""#),
            format!(r#"{off_curve},"kid":"a""#),
            r#""kty":"oct","k":"c2VjcmV0","kid":"a""#.to_owned(),
            r#""kty":"oct","k":"c2VjcmV0","kid":"a","alg":"HS256""#.to_owned(),
            r#""kty":"EC","crv":"secp256k1","x":"AA","y":"AA","kid":"a""#.to_owned(),
            r#""kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a""#.to_owned(),
            r#""kty":"OKP","crv":"Ed25519","x":"AA","kid":"a""#.to_owned(),
            // 512 bits, and no modulus at all.
            format!(r#""kty":"RSA","n":"{}w","e":"AQAB","kid":"a""#, "q".repeat(85)),
            r#""kty":"RSA","n":"","e":"AQAB","kid":"a""#.to_owned(),
            r#""kty":"RSA","kid":"a""#.to_owned(),
        ] {
            let found = read(std::slice::from_ref(&key));
            assert_eq!(found.expect_err(&key), SetFault::NoKeys);
            // It does not keep others out.
            let set = read(&[key, format!(r#"{ED25519},"kid":"b""#)]).unwrap();
            assert_eq!(set.names(), ["b"]);
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in ["", "{}", "[]", "<html>", r#"{"keys":{}}"#, r#"{"keys":1}"#] {
            let found = Set::read(text.as_bytes());
            assert_eq!(found.expect_err(text), SetFault::Malformed);
        }
        let none = Set::read(br#"{"keys":[1,null,"a",[]]}"#);
        assert_eq!(none.unwrap_err(), SetFault::NoKeys);
    }

    /// Whether a token's signature is by the key.
    fn verifies(key: &str, token: &str) -> bool {
        let set = read(&[format!(r#"{key},"kid":"a""#)]).unwrap();
        let Ok(parts) = Parts::read(token) else {
            return false;
        };
        let key = set.find("a", parts.algorithm).unwrap();
        key.verifies(parts.signed, &parts.signature)
    }

    #[test]
    fn examples_of_the_rfcs_are_verified() {
        const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        // RFC 7515, appendix A.2.
        let rsa = r#""kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB""#;
        let by_rsa = format!(
            "eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        );
        assert!(verifies(rsa, &by_rsa));
        // RFC 7515, appendix A.3.
        let by_ecdsa = format!(
            "eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        );
        assert!(verifies(P256, &by_ecdsa));
        // RFC 8037, appendix A.4.
        let by_ed25519 = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert!(verifies(ED25519, by_ed25519));
        for (key, token) in [(rsa, &*by_rsa), (P256, &*by_ecdsa), (ED25519, by_ed25519)] {
            let (signed, signature) = token.rsplit_once('.').unwrap();
            assert!(!verifies(key, &format!("{signed}AAAA.{signature}")));
            assert!(!verifies(key, &token[..token.len() - 4]));
        }
    }
}
