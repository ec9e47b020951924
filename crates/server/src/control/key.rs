//! The API's key: made, presented, compared.

use super::Control;
use super::error::Refusal;
use crate::config::ApiKey;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write;
use std::io;
use std::sync::Arc;

/// Bytes of a generated key: 128 bits cannot be guessed.
const KEY_BYTES: usize = 16;

const ADVICE: &str = "send it as the header X-API-Key: KEY, or Authorization: apikey KEY";

/// The key to ask for; none when the API is open.
pub(crate) fn decide(configured: &ApiKey) -> io::Result<Option<Arc<str>>> {
    match configured {
        ApiKey::Open => Ok(None),
        ApiKey::Configured(key) => Ok(Some(Arc::from(&**key))),
        ApiKey::Generated => generate().map(Some),
    }
}

fn generate() -> io::Result<Arc<str>> {
    let mut bytes = [0; KEY_BYTES];
    // Requests of up to 256 bytes are answered whole (getrandom(2)).
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    let mut key = String::with_capacity(2 * KEY_BYTES);
    for byte in bytes {
        write!(key, "{byte:02x}").expect("a String takes everything");
    }
    Ok(key.into())
}

/// Lets requests with the right key pass.
pub(crate) async fn require(
    State(control): State<Arc<Control>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Some(key) = &control.key {
        let headers = request.headers();
        match presented(|name| headers.get(name).map(HeaderValue::as_bytes)) {
            None => {
                return Err(Refusal::unauthorized(format!(
                    "the API needs its key: {ADVICE}"
                )));
            }
            Some(other) if !equal(key.as_bytes(), other) => {
                return Err(Refusal::unauthorized(format!(
                    "this is not the API's key: {ADVICE}"
                )));
            }
            Some(_) => {}
        }
    }
    Ok(next.run(request).await)
}

/// The key that a request presents. `header` gives the first value of a header.
pub(super) fn presented<'a>(header: impl Fn(&str) -> Option<&'a [u8]>) -> Option<&'a [u8]> {
    if let Some(key) = header("x-api-key") {
        return Some(key);
    }
    let (scheme, key) = header("authorization")?.split_at_checked("apikey ".len())?;
    // Schemes are compared without regard to case (RFC 9110 section 11.1).
    scheme
        .eq_ignore_ascii_case(b"apikey ")
        .then(|| key.trim_ascii())
}

/// Compares in a time that depends on the lengths only, so that a key cannot be found byte by byte.
pub(super) fn equal(key: &[u8], other: &[u8]) -> bool {
    if key.len() != other.len() {
        return false;
    }
    let difference = key.iter().zip(other).fold(0, |difference, (a, b)| {
        std::hint::black_box(difference | (a ^ b))
    });
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_presented_in_either_header() {
        let headers = |name: &'static str, value: &'static str| {
            presented(|wanted| (wanted == name).then_some(value.as_bytes()))
        };
        assert_eq!(headers("x-api-key", "k1").unwrap(), b"k1");
        assert_eq!(headers("authorization", "apikey k1").unwrap(), b"k1");
        assert_eq!(headers("authorization", "ApiKey  k1").unwrap(), b"k1");
        assert_eq!(headers("authorization", "Bearer k1"), None);
        assert_eq!(headers("authorization", "apikey"), None);
    }

    #[test]
    fn only_the_key_equals_the_key() {
        assert!(equal(b"secret", b"secret"));
        for other in [&b"secreT"[..], b"Secret", b"secre", b"secrets", b""] {
            assert!(!equal(b"secret", other));
        }
    }

    #[test]
    fn generated_keys_differ_and_can_be_configured() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 2 * KEY_BYTES);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
