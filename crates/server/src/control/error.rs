//! Answers to requests that cannot be served: a status, a code for programs, and a sentence for people.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use myriad_shard::REFUSALS;
use serde::Serialize;
use std::time::Duration;

/// Codes of refusals with their statuses; `docs/serve.md` lists them. Requests that break HTTP have the codes of the shards instead
/// ([`REFUSALS`]): both planes give the same verdict.
const CODES: [(&str, u16); 15] = [
    ("malformed", 400),
    ("body", 400),
    ("connection", 400),
    ("api_key", 401),
    ("origin", 403),
    ("foreign_host", 403),
    ("rights", 403),
    ("path", 404),
    ("method", 405),
    ("timeout", 408),
    ("too_large", 413),
    ("not_upgrade", 426),
    ("metrics", 500),
    ("busy", 503),
    ("draining", 503),
];

/// Codes that the API may answer: a page, not the API, has that of the metrics.
#[cfg(test)]
pub(super) fn api_codes() -> Vec<&'static str> {
    let codes = CODES.into_iter().map(|(code, _)| code);
    codes.filter(|code| *code != "metrics").collect()
}

/// Codes of refusals about streams beside those, and beside the shards'; `docs/streams.md` lists them.
const STREAM_CODES: [(&str, u16); 16] = [
    ("header", 400),
    ("offset", 400),
    ("malformed_query", 400),
    ("token", 401),
    ("stale_producer", 403),
    ("stream", 404),
    ("history", 405),
    ("differs", 409),
    ("closed", 409),
    ("content_type", 409),
    ("stream_seq", 409),
    ("producer_gap", 409),
    ("gone", 410),
    ("live", 421),
    ("busy", 429),
    ("unsupported", 501),
];

/// An answer other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    header: Option<(HeaderName, Box<str>)>,
}

#[derive(Serialize)]
struct Body<'a> {
    error: Sentence<'a>,
}

#[derive(Serialize)]
struct Sentence<'a> {
    code: &'a str,
    message: &'a str,
}

/// Seconds after which trying again makes sense when the server was busy: queues drain in far less.
pub(crate) const RETRY_AFTER_S: &str = "1";

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        debug_assert!(
            CODES.contains(&(code, status.as_u16()))
                || STREAM_CODES.contains(&(code, status.as_u16()))
                || REFUSALS.contains(&code),
            "{code} with {status} is not listed"
        );
        Self {
            status,
            code,
            message: message.into(),
            header: None,
        }
    }

    fn with(self, name: HeaderName, value: impl Into<Box<str>>) -> Self {
        Self {
            header: Some((name, value.into())),
            ..self
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// 400: the caller's request is at fault; `message` says where and what to send instead.
    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 413, and the end of the connection: the rest of the body is not worth reading.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            .with(header::CONNECTION, "close")
    }

    /// 429: more than a limit on clients allows, until that time is over.
    pub(crate) fn limited(time: Duration, message: impl Into<String>) -> Self {
        let whole_seconds = time.as_millis().div_ceil(1000).max(1);
        Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", message)
            .with(header::RETRY_AFTER, whole_seconds.to_string())
    }

    /// 503 that passes by itself.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
            .with(header::RETRY_AFTER, RETRY_AFTER_S)
    }

    /// 503 that ends with this server.
    pub(crate) fn draining() -> Self {
        let message = "the server is shutting down, and nobody is left to hear it; send the request to another one, or again after a restart";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message)
            .with(header::RETRY_AFTER, RETRY_AFTER_S)
    }

    /// 408: a head or a body came too slowly.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).with(header::CONNECTION, "close")
    }

    /// 401, with the way to do it.
    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "api_key", message)
            .with(header::WWW_AUTHENTICATE, "apikey")
    }

    /// 403: the key is right, and may not do this.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "rights", message)
    }

    /// 426 (RFC 9110 section 15.5.22).
    pub(crate) fn upgrade_required(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, "not_upgrade", message)
            .with(header::UPGRADE, "websocket")
    }
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    fn body(&self) -> Body<'_> {
        Body {
            error: Sentence {
                code: self.code,
                message: &self.message,
            },
        }
    }

    /// The whole answer, for a connection that no HTTP library serves (any more) and that ends with it.
    pub(crate) fn whole_response(&self) -> String {
        let body = serde_json::to_string(&self.body()).expect("two texts are always JSON");
        let header = self
            .header
            .as_ref()
            .map_or_else(String::new, |(name, value)| {
                // The line below says it.
                if name == header::CONNECTION {
                    return String::new();
                }
                format!("{name}: {value}\r\n")
            });
        format!(
            "HTTP/1.1 {status}\r\n{header}connection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len(),
            status = self.status,
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::{CODES, STREAM_CODES};

    #[test]
    fn the_documentation_lists_every_code() {
        let page = include_str!("../../../../docs/serve.md");
        // A page, not the API, answers with the code of the metrics.
        let codes = CODES.into_iter().filter(|(code, _)| *code != "metrics");
        assert_eq!(rows(page), codes.collect::<Vec<_>>());
        let page = include_str!("../../../../docs/streams.md");
        assert_eq!(rows(page), STREAM_CODES);
    }

    /// The table of codes of a page.
    fn rows(page: &str) -> Vec<(&str, u16)> {
        let (_, table) = page
            .split_once("| code | status | when |\n")
            .expect("a table of codes");
        table
            .lines()
            .skip(1)
            .map_while(|line| line.strip_prefix("| `"))
            .map(|row| {
                let mut cells = row.split('|').map(str::trim);
                let code = cells.next().unwrap_or_default().trim_end_matches('`');
                let status: u16 = cells.next().unwrap_or_default().parse().expect(row);
                (code, status)
            })
            .collect()
    }
}
