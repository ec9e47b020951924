//! Requests to the authority, by the same client as calls to applications. The client notes when the authority wants to be asked again,
//! because the library for ACME does not tell.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{Method, Request, StatusCode, header};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time of one request, and of its connecting.
const TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer. A chain of certificates has some 5 KB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// All clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Client {
    client: reqwest::Client,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    /// A client that trusts these CAs alone (PEM). Without them it trusts the CAs of the machine.
    ///
    /// # Errors
    /// Why there cannot be one.
    pub(super) fn new(ca: Option<&str>) -> Result<Self, String> {
        let builder = reqwest::Client::builder();
        let made = match ca {
            Some(pem) => reqwest::Certificate::from_pem_bundle(pem.as_bytes())
                .map(|roots| builder.tls_certs_only(roots)),
            None => Ok(builder),
        };
        let made = made.and_then(|builder| {
            builder
                .https_only(true)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .timeout(TIMEOUT)
                .connect_timeout(CONNECT_TIMEOUT)
                .build()
        });
        Ok(Self {
            client: made.map_err(|error| crate::proxy::innermost(&error))?,
            retry_after: Arc::default(),
        })
    }

    fn retry_after(&self) -> MutexGuard<'_, Option<Duration>> {
        let guard = self.retry_after.lock();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the authority wants to be left alone, if it has said so.
    pub(super) fn take_retry_after(&self) -> Option<Duration> {
        self.retry_after().take()
    }

    pub(super) fn boxed(&self) -> Box<dyn HttpClient> {
        Box::new(self.clone())
    }

    async fn carry(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let (parts, body) = request.into_parts();
        // It has no error.
        let body = body
            .collect()
            .await
            .map_or_else(|never| match never {}, |body| body.to_bytes());
        // Only directories and nonces are asked for without a signature (RFC 8555, section 6.3).
        let is_unsigned = matches!(parts.method, Method::GET | Method::HEAD);
        let request = reqwest::Request::try_from(Request::from_parts(parts, body));
        let answer = match request {
            Ok(request) => self.client.execute(request).await,
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| Error::Other(unreachable(&error).into()))?;
        let url = answer.url().clone();
        let answer = hyper::Response::from(answer);
        if !answer.status().is_success() {
            let value = answer.headers().get(header::RETRY_AFTER);
            if let Some(wait) = value.and_then(|value| wait(value.to_str().ok()?)) {
                *self.retry_after() = Some(wait);
            }
        }
        if is_unsigned && let Some(error) = refused(&url, answer.status()) {
            return Err(error);
        }
        Ok(answer
            .map(|body| Limited::new(body, ANSWER_BYTES_MAX))
            .into())
    }
}

/// Why the authority gives no directory or no nonce. The library would only say that the answer is not JSON.
fn refused(url: &reqwest::Url, status: StatusCode) -> Option<Error> {
    if status.is_success() {
        return None;
    }
    let words = format!("{url} answers with {status}");
    let passes = status.is_server_error()
        || matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
    let problem = serde_json::json!({
        "detail": format!("{words}: is tls-acme-directory right?"),
        "status": status.as_u16(),
    });
    match serde_json::from_value(problem) {
        // A state that passes by itself is tried again sooner than a mistake in our options.
        Ok(problem) if !passes => Some(Error::Api(problem)),
        _ => Some(Error::Other(words.into())),
    }
}

/// Which host cannot be reached, and why.
fn unreachable(error: &reqwest::Error) -> String {
    let host = error.url().and_then(reqwest::Url::host_str);
    let host = host.unwrap_or("the authority");
    if error.is_timeout() && !error.is_connect() {
        return format!("{host} did not answer for {} s", TIMEOUT.as_secs());
    }
    format!(
        "{host} cannot be reached: {}",
        crate::proxy::innermost(error)
    )
}

/// What `Retry-After` says (RFC 9110, section 10.2.3).
fn wait(value: &str) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(value).ok()?;
    Some(
        at.duration_since(std::time::SystemTime::now())
            .unwrap_or_default(),
    )
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().carry(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::acme::order::Fault;
    use std::time::SystemTime;

    #[test]
    fn a_refused_directory_is_no_unreachable_one() {
        let url = "https://acme.example/dir".parse().unwrap();
        assert!(refused(&url, StatusCode::OK).is_none());
        let fault = |status| Fault::from(refused(&url, status).unwrap());
        let forbidden = fault(StatusCode::FORBIDDEN);
        assert!(matches!(forbidden, Fault::Refused(_)), "{forbidden:?}");
        assert_eq!(
            forbidden.to_string(),
            "the authority says: https://acme.example/dir answers with 403 Forbidden: is tls-acme-directory right?"
        );
        for status in [
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::TOO_MANY_REQUESTS,
        ] {
            let busy = fault(status);
            assert!(matches!(busy, Fault::Unreachable(_)), "{busy:?}");
        }
    }

    #[test]
    fn retry_after_is_a_time_or_a_date() {
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait(&"9".repeat(30)), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3_600));
        let wait = wait(&later).unwrap();
        assert!(wait > Duration::from_secs(3_000) && wait <= Duration::from_secs(3_600));
    }
}
