//! Which web pages may write, and what every answer about streams says.
//!
//! A page may do with streams what it may do with WebSocket: the same list of origins counts, whoever asks. Answers need no cookie,
//! so that one `Access-Control-Allow-Origin: *` does for all pages that may.

use super::super::Control;
use super::super::error::Refusal;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use myriad_wire::http::check_origin;
use myriad_wire::reads::{HEADERS, PAGE_HEADERS};

/// What a stream's address answers.
pub(super) const METHODS: &str = "GET, HEAD, PUT, POST, DELETE, OPTIONS";
/// What it answers where the API has an address of its own.
pub(super) const READS: &str = "GET, OPTIONS";
/// Headers that pages may send, where their browser names none.
const SENT: &str = "authorization, content-type, if-none-match, last-event-id, producer-epoch, producer-id, producer-seq, \
     stream-closed, stream-expires-at, stream-seq, stream-ttl, x-api-key";
/// Bytes of a list of headers that a browser names: an answer repeats no more.
const NAMED_BYTES_MAX: usize = 4 << 10;
/// Seconds that a browser remembers what may be sent.
const REMEMBERED_S: &str = "600";

/// The page that a request comes from.
pub(super) struct Origin {
    refused: Option<Refusal>,
}

impl Origin {
    /// Of a request with these headers.
    pub(super) fn of(control: &Control, headers: &HeaderMap) -> Self {
        let settings = control.settings.load();
        let allowed = &settings.allowed_origins;
        let origins = headers.get_all(header::ORIGIN).into_iter();
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let checked = check_origin(origins.map(HeaderValue::as_bytes), host, allowed);
        Self {
            refused: checked
                .err()
                .map(|refused| Refusal::new(StatusCode::FORBIDDEN, "origin", refused.sentence())),
        }
    }

    /// # Errors
    /// It is a page that may not.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// Adds what every answer has.
    pub(super) fn finish(&self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        headers.extend(HEADERS.map(fixed));
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
        if self.refused.is_none() {
            headers.extend(PAGE_HEADERS.map(fixed));
        }
        response
    }
}

fn fixed((name, value): (&'static str, &'static str)) -> (HeaderName, HeaderValue) {
    (
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )
}

/// The answer to a browser that asks what a page may send. Whether this page may is said by [`Origin::finish`].
pub(super) fn preflight(methods: &'static str, asked: &HeaderMap) -> Response {
    let headers = [
        (header::ALLOW, methods),
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED_S),
    ];
    let mut response = (StatusCode::NO_CONTENT, headers).into_response();
    let sent = named_headers(asked).unwrap_or(HeaderValue::from_static(SENT));
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, sent);
    response
}

/// The headers that a browser says a page wants to send, for the answer. A page that was let in may send any: a header that nobody
/// reads does no harm, and tracing, caches' control and frameworks add their own.
pub(in super::super) fn named_headers(asked: &HeaderMap) -> Option<HeaderValue> {
    let lines = asked.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let lines: Vec<&[u8]> = lines.iter().map(HeaderValue::as_bytes).collect();
    let named = lines.join(&b", "[..]);
    let may_be_told = !named.is_empty() && named.len() <= NAMED_BYTES_MAX;
    let named = may_be_told.then(|| HeaderValue::from_bytes(&named));
    named.and_then(Result::ok)
}

/// Says where a new stream is: by the host and the scheme that the client used.
pub(super) fn add_location(answer: &mut HeaderMap, request: &HeaderMap, uri: &Uri) {
    let text = |name: &str| request.get(name).and_then(|value| value.to_str().ok());
    let Some(host) = uri
        .host()
        .and_then(|_| uri.authority().map(|authority| authority.as_str()))
        .or_else(|| text("host"))
    else {
        return;
    };
    // A proxy in front may end TLS; a client that says so itself misleads nobody else.
    let is_https =
        text("x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
    let scheme = if is_https { "https" } else { "http" };
    let location = format!("{scheme}://{host}{}", uri.path());
    if let Ok(location) = HeaderValue::from_str(&location) {
        answer.insert(header::LOCATION, location);
    }
}
