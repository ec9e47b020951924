//! Requests that are answered with an error. Changes nothing itself; closes connections by the methods of `closing`.

use crate::events::ConnectionEvent;
use crate::limits::Limit;
use crate::marks::hit;
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::handshake::Refusal;
use myriad_wire::http::{
    BodyError, HeadError, HostRefused, OriginRefused, QueryError, write_response,
};
use myriad_wire::peer::ProxyHeaderError;
use myriad_wire::reads::{Persistence, SCHEMES, error_body};
use std::time::Duration;

/// Seconds a client is asked to stay away when there is no room.
const RETRY_AFTER_S: &str = "5";
/// The same where the next one may come soon.
const RETRY_AFTER_RATE_S: &str = "1";

/// An HTTP answer instead of what was asked for. It ends the connection, unless it says otherwise.
pub(crate) struct Refused {
    status: u16,
    label: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    sentence: Box<str>,
    /// What only the log says.
    cause: Option<&'static str>,
    reason: CloseReason,
    /// The body is JSON, as the errors of the HTTP API are. Otherwise it is the sentence.
    is_json: bool,
    /// Where a reader of a stream can go on.
    next_offset: Option<Box<str>>,
    /// Seconds after which the client may ask again, where that depends on the client.
    retry_after_s: Option<u64>,
    /// What becomes of the connection.
    persistence: Persistence,
}

impl Refused {
    pub(super) fn new(status: u16, label: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            status,
            label,
            headers: Vec::new(),
            sentence: sentence.into().into(),
            cause: None,
            reason: CloseReason::Refused,
            is_json: false,
            next_offset: None,
            retry_after_s: None,
            persistence: Persistence::Close,
        }
    }

    /// The same with a cause that only the log says.
    pub(super) fn caused_by(self, cause: &'static str) -> Self {
        Self {
            cause: Some(cause),
            ..self
        }
    }

    /// The same with more headers.
    pub(super) fn with_headers(mut self, headers: &[(&'static str, &'static str)]) -> Self {
        self.headers.extend_from_slice(headers);
        self
    }

    /// The same as an answer about a stream.
    pub(super) fn with_json(mut self) -> Self {
        self.is_json = true;
        self.headers.push(("content-type", "application/json"));
        if self.status == 401 {
            self.headers.push(("www-authenticate", SCHEMES));
        }
        self
    }

    /// The same with the offset from which a reader of a stream can go on.
    pub(super) fn with_next_offset(self, offset: String) -> Self {
        Self {
            next_offset: Some(offset.into()),
            ..self
        }
    }

    /// The same of a connection that takes the next request, if its client wishes so.
    pub(crate) fn with_persistence(self, persistence: Persistence) -> Self {
        Self {
            persistence,
            ..self
        }
    }

    /// What went wrong, and what to do.
    #[cfg(test)]
    pub(super) fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Whether the connection takes the next request.
    pub(super) fn keeps_connection(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// The same with another reason for the end of the connection.
    pub(crate) fn because(self, reason: CloseReason) -> Self {
        Self { reason, ..self }
    }

    /// The path takes other methods than this one.
    pub(super) fn method(allowed: &'static str) -> Self {
        let sentence = format!("The method is not allowed here: send {allowed}.");
        Self::new(405, "method", sentence).with("allow", allowed)
    }

    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn unavailable(label: &'static str, reason: CloseReason, sentence: &str) -> Self {
        Self {
            headers: vec![("retry-after", RETRY_AFTER_S)],
            reason,
            ..Self::new(503, label, sentence)
        }
    }

    pub(crate) fn handshake_timeout() -> Self {
        let sentence =
            "The request head did not come in time: send it whole right after connecting.";
        Self {
            reason: CloseReason::HandshakeTimeout,
            ..Self::new(408, "handshake_timeout", sentence)
        }
    }

    pub(crate) fn body_timeout() -> Self {
        let sentence = "The body did not come in time: send it whole right behind the head, and check that Content-Length is right.";
        Self {
            sentence: sentence.into(),
            ..Self::handshake_timeout()
        }
    }

    /// The homes of the channels were asked, and are too busy to answer.
    pub(crate) fn join_timeout() -> Self {
        let sentence = "The server is too busy to subscribe you: reconnect after a pause.";
        Self::unavailable("join_timeout", CloseReason::Overloaded, sentence)
    }

    /// This node has not read the log of a channel up to its end.
    pub(crate) fn not_caught_up() -> Self {
        let sentence = "This node has not read your channels far enough: reconnect after a pause.";
        Self::unavailable("behind", CloseReason::Overloaded, sentence)
    }

    pub(crate) fn draining() -> Self {
        let sentence = "The server is shutting down: reconnect.";
        Self::unavailable("draining", CloseReason::Drain, sentence)
    }

    pub(super) fn full() -> Self {
        let sentence = "The server is full: reconnect after a pause.";
        Self::unavailable("full", CloseReason::Full, sentence)
    }

    /// A limit on strangers is reached.
    pub(super) fn limited(limit: Limit) -> Self {
        let (status, after_s, sentence) = match limit {
            Limit::ConnectionsPerAddress => (
                429,
                RETRY_AFTER_S,
                "Too many connections from this address: close some, or reconnect after a pause.",
            ),
            Limit::ConnectionRatePerAddress => (
                429,
                RETRY_AFTER_RATE_S,
                "Too many new connections from this address: reconnect after a pause.",
            ),
            _ => (
                503,
                RETRY_AFTER_RATE_S,
                "The server has too many new connections: reconnect after a pause.",
            ),
        };
        Self {
            headers: vec![("retry-after", after_s)],
            ..Self::new(status, limit.label(), sentence)
        }
    }

    /// A connection has sent more reads than it may.
    pub(crate) fn too_many_reads(wait: Duration) -> Self {
        let sentence = "Too many requests on this connection: wait as long as Retry-After says, then ask again. A connection that goes on is closed.";
        Self {
            // A whole second at least: a client that is told 0 asks at once.
            retry_after_s: Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)),
            ..Self::new(429, Limit::Reads.label(), sentence)
        }
    }

    /// The server cannot tell who a client is, and its operator has not allowed anonymous clients.
    pub(super) fn anonymous() -> Self {
        let sentence = "Anonymous clients are not let in here: start the server with --anonymous, or with --dev to try things.";
        Self::new(401, "anonymous", sentence)
    }

    /// It cannot be found out now whose a token is: too many are being verified, or their keys cannot be fetched.
    pub(crate) fn unverified() -> Self {
        let sentence = "The token cannot be verified now: ask again after a pause.";
        Self::unavailable("overloaded", CloseReason::Overloaded, sentence)
    }

    /// The budget of what is buffered for all is spent.
    pub(crate) fn overloaded() -> Self {
        let sentence = "The server has no memory to spare: reconnect after a pause.";
        Self::unavailable("overloaded", CloseReason::Overloaded, sentence)
    }
}

impl From<HeadError> for Refused {
    fn from(error: HeadError) -> Self {
        Self::new(error.status(), error.label(), error.sentence())
    }
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        Self::new(error.status(), error.label(), error.sentence())
    }
}

impl From<QueryError> for Refused {
    fn from(error: QueryError) -> Self {
        Self::new(error.status(), error.label(), error.sentence())
    }
}

impl From<HostRefused> for Refused {
    fn from(refused: HostRefused) -> Self {
        Self::new(refused.status(), refused.label(), refused.sentence())
    }
}

impl From<OriginRefused> for Refused {
    fn from(refused: OriginRefused) -> Self {
        Self::new(refused.status(), refused.label(), refused.sentence())
    }
}

impl From<ProxyHeaderError> for Refused {
    fn from(error: ProxyHeaderError) -> Self {
        Self::new(error.status(), error.label(), error.sentence())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            headers: refusal.headers().to_vec(),
            ..Self::new(refusal.status(), refusal.label(), refusal.sentence())
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// Answers with an error. A connection that ends with it lingers, so that the answer is not eaten by a reset.
    pub(crate) fn refuse(&mut self, key: Key, refused: Refused, now: Now) {
        self.metrics().count_refusal(refused.label);
        if self.may_note_refusal(("refused", refused.label), now) {
            let address = self.client_address(key);
            let event = ConnectionEvent::Refused {
                status: refused.status,
                label: refused.label,
                cause: refused.cause,
                address,
            };
            self.note_refusal(key, event, now);
        }
        let reason = refused.reason;
        hit!(RefusedFull if reason == CloseReason::Full);
        hit!(RefusedDraining if reason == CloseReason::Drain);
        let mut response = Vec::with_capacity(256);
        let mut headers: Vec<(&str, &str)> = refused.headers.clone();
        if let Some(offset) = &refused.next_offset {
            headers.push(("stream-next-offset", &**offset));
        }
        let retry_after = refused.retry_after_s.map(|seconds| seconds.to_string());
        if let Some(seconds) = &retry_after {
            headers.push(("retry-after", seconds));
        }
        let persistence = refused.persistence;
        if persistence != Persistence::Close {
            headers.push(("connection", "keep-alive"));
        }
        let body = match refused.is_json {
            true => error_body(refused.label, &refused.sentence),
            false => refused.sentence.into(),
        };
        write_response(&mut response, refused.status, &headers, &body);
        match persistence {
            Persistence::Close => self.close_gracefully(key, refused.reason, response, now),
            Persistence::KeepAlive | Persistence::KeepAliveSaid => {
                self.answer_reader(key, response, persistence, now);
            }
        }
    }
}
