//! One request, and what its answer means.

use super::batch::Batch;
use super::{signature, unix_ms};
use crate::config::WebhookEndpoint;
use myriad_units::option::Span;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use std::error::Error as _;
use std::fmt;
use std::time::Duration;

/// Bytes of an answer that are read, so that its connection can be used again. Of what is longer the connection ends.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// How long a connection without requests stays. Shorter than most servers keep theirs, so that a request seldom meets an end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a request did not deliver its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// There was no answer within the time for it.
    Timeout(Duration),
    /// There was no connection, or it ended.
    Unreachable(String),
    /// The answer has another status than 2xx.
    Status(StatusCode),
}

impl Failure {
    /// The value of the metric's `outcome` label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Status(_) => "refused",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(time) => write!(f, "no answer within {}", Span(*time)),
            Self::Unreachable(why) => f.write_str(why),
            Self::Status(status) => write!(f, "the answer is {status}; 2xx would take the batch"),
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The receiver has the batch.
    Delivered,
    /// The receiver wants no more events: 410.
    Gone,
    /// The batch may be tried again.
    Failed(Failure),
}

/// A client for all endpoints. It follows no redirect: a body that is signed for one receiver is not for another.
pub(super) fn client() -> reqwest::Result<Client> {
    Client::builder()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(1)
        .user_agent(concat!("myriad/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Sends a batch once.
pub(super) async fn post(client: &Client, endpoint: &WebhookEndpoint, batch: &Batch) -> Outcome {
    let mut request = client
        .post(endpoint.url.clone())
        .timeout(endpoint.timeout)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header("x-myriad-batch", &batch.id);
    if let Some(secret) = endpoint.secret.secret() {
        let signed = signature::sign(secret, unix_ms() / 1000, &batch.body);
        request = request.header(signature::HEADER, signed);
    }
    match request.body(batch.body.clone()).send().await {
        Ok(answer) => {
            let outcome = outcome_of(answer.status());
            discard(answer).await;
            outcome
        }
        Err(error) if error.is_timeout() => Outcome::Failed(Failure::Timeout(endpoint.timeout)),
        Err(error) => Outcome::Failed(Failure::Unreachable(cause_of(&error))),
    }
}

fn outcome_of(status: StatusCode) -> Outcome {
    match status {
        StatusCode::GONE => Outcome::Gone,
        status if status.is_success() => Outcome::Delivered,
        status => Outcome::Failed(Failure::Status(status)),
    }
}

/// Reads the rest of an answer whose status has said everything. What goes wrong here changes nothing.
async fn discard(mut answer: Response) {
    let mut bytes = 0;
    while let Ok(Some(chunk)) = answer.chunk().await {
        bytes += chunk.len();
        if bytes > ANSWER_BYTES_MAX {
            return;
        }
    }
}

/// The last cause of an error: the ones before it name the URL and say "error sending request".
fn cause_of(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.source().is_none() {
        return "the request cannot be sent".into();
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_became_of_the_batch() {
        let outcome = |status| outcome_of(StatusCode::from_u16(status).expect("a status"));
        for status in [200, 202, 204, 299] {
            assert_eq!(outcome(status), Outcome::Delivered, "{status}");
        }
        assert_eq!(outcome(410), Outcome::Gone);
        for status in [301, 304, 400, 401, 404, 413, 429, 500, 503, 999] {
            assert!(
                matches!(outcome(status), Outcome::Failed(Failure::Status(_))),
                "{status}"
            );
        }
    }
}
