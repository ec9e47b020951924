//! What writers of streams are answered.

use super::super::error::Refusal;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use myriad_shard::{
    ProducerPosition, StreamAnswer, StreamDone, StreamExpiry, StreamRefused, StreamState,
};
use myriad_wire::reads::SCHEMES;
use myriad_wire::streams::timestamp;

/// A request that was not carried out.
#[derive(Debug)]
pub(super) struct Failure {
    refusal: Refusal,
    /// What the protocol wants told beside it.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            headers: Vec::new(),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.refusal.into_response();
        if response.status() == StatusCode::UNAUTHORIZED {
            let schemes = HeaderValue::from_static(SCHEMES);
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, schemes);
        }
        response.headers_mut().extend(self.headers);
        response
    }
}

impl Failure {
    fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push(pair(name, value));
        self
    }

    /// With what a stream is.
    pub(super) fn with_state(mut self, state: &StreamState) -> Self {
        self.headers.extend(headers_of(state));
        self
    }
}

fn pair(name: &'static str, value: impl ToString) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::from_str(&value.to_string());
    // Content types were read from a header; everything else is digits and letters.
    let value = value.unwrap_or_else(|_| HeaderValue::from_static(""));
    (HeaderName::from_static(name), value)
}

/// The header with an offset.
pub(super) fn offset(token: &str) -> [(HeaderName, HeaderValue); 1] {
    [pair("stream-next-offset", token)]
}

/// The headers that say where a stream is, and whether it is closed.
pub(super) fn headers_of(state: &StreamState) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![pair("stream-next-offset", state.tail.stream_offset())];
    if state.is_closed {
        headers.push(pair("stream-closed", "true"));
    }
    headers
}

/// The headers that describe a stream.
fn describe(state: &StreamState, headers: &mut HeaderMap) {
    headers.extend(headers_of(state));
    headers.extend([pair("content-type", state.content_type.as_str())]);
    match state.expiry {
        StreamExpiry::Never => {}
        StreamExpiry::Idle(seconds) => headers.extend([pair("stream-ttl", seconds)]),
        StreamExpiry::At(ms) => headers.extend([pair("stream-expires-at", timestamp(ms))]),
    }
}

/// The answer to a request that a home has judged.
pub(super) fn of(answer: StreamAnswer) -> Result<Response, Failure> {
    let done = answer.map_err(refused)?;
    let described = |status: StatusCode, state: &StreamState| {
        let mut response = status.into_response();
        describe(state, response.headers_mut());
        response
    };
    Ok(match done {
        StreamDone::Created(state) => described(StatusCode::CREATED, &state),
        StreamDone::Existed(state) | StreamDone::Described(state) => {
            described(StatusCode::OK, &state)
        }
        StreamDone::Appended {
            state,
            producer,
            count,
        } => {
            // A producer is told apart whether its data is new (section "Idempotent Producers").
            let status = if producer.is_some() && count > 0 {
                StatusCode::OK
            } else {
                StatusCode::NO_CONTENT
            };
            appended(status, &state, producer)
        }
        StreamDone::Repeated { state, producer } => {
            appended(StatusCode::NO_CONTENT, &state, producer)
        }
        StreamDone::Deleted => StatusCode::NO_CONTENT.into_response(),
    })
}

fn appended(
    status: StatusCode,
    state: &StreamState,
    producer: Option<ProducerPosition>,
) -> Response {
    let mut response = status.into_response();
    let headers = response.headers_mut();
    headers.extend(headers_of(state));
    if let Some(ProducerPosition { epoch, seq }) = producer {
        headers.extend([pair("producer-epoch", epoch), pair("producer-seq", seq)]);
    }
    response
}

fn refused(refused: StreamRefused) -> Failure {
    let failure = |status, code, message: &str| Failure::from(Refusal::new(status, code, message));
    let conflict = |code, message: &str| failure(StatusCode::CONFLICT, code, message);
    match refused {
        StreamRefused::NotFound => failure(
            StatusCode::NOT_FOUND,
            "stream",
            "there is no such stream; create it by PUT, or publish to its channel",
        ),
        StreamRefused::Behind => Refusal::busy(
            "this node has not read the stream up to its end yet; wait as long as Retry-After says, then ask again",
        )
        .into(),
        StreamRefused::NoHistory => failure(
            StatusCode::METHOD_NOT_ALLOWED,
            "history",
            "the channel's namespace keeps no history, so it has no streams; set its history_size and history_ttl",
        ),
        StreamRefused::Differs(state) => {
            let kept = state.content_type.as_str();
            let message = format!(
                "the stream exists, with content type {kept}, and differs in its content type, time to live or end"
            );
            conflict("differs", &message).with_state(&state)
        }
        StreamRefused::Closed(state) => conflict(
            "closed",
            "the stream is closed: nothing can be appended any more",
        )
        .with_state(&state),
        StreamRefused::ContentType(state) => {
            let kept = state.content_type.as_str();
            let message = format!("the stream's content type is {kept}: append that");
            conflict("content_type", &message).with_state(&state)
        }
        StreamRefused::StreamSeq { last } => {
            let message = format!("Stream-Seq does not come after {last:?}, the last one");
            conflict("stream_seq", &message)
        }
        StreamRefused::StaleProducer { epoch } => failure(
            StatusCode::FORBIDDEN,
            "stale_producer",
            "another instance of the producer has taken over with a later epoch",
        )
        .with("producer-epoch", epoch),
        StreamRefused::ProducerBegin => failure(
            StatusCode::BAD_REQUEST,
            "header",
            "an epoch of a producer begins with Producer-Seq 0",
        ),
        StreamRefused::ProducerGap { expected, received } => conflict(
            "producer_gap",
            "something is missing before this Producer-Seq; send it first",
        )
        .with("producer-expected-seq", expected)
        .with("producer-received-seq", received),
    }
}

/// A request that has nothing to append.
pub(super) fn empty(what: &str) -> Refusal {
    Refusal::bad_request(
        "malformed",
        format!("{what}; send data, or Stream-Closed: true without any"),
    )
}

/// A home did not answer.
pub(super) fn unanswered() -> Refusal {
    Refusal::busy("a shard did not answer in time; whether the request was carried out is unknown")
}
