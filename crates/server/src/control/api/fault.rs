//! What a method answers instead of a result, and what it does to the request as a whole.

use super::super::error::Refusal;
use super::debugging;
use super::reading::shortened;
use axum::http::StatusCode;
use myriad_shard::{NotPublished, PublishRefused};
use serde::Serialize;
use std::fmt::Display;

/// Codes of errors: those of Centrifugo's API, and of its client protocol where the API has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Also: the shards did not answer in time.
    Internal,
    /// The channel's namespace is not configured.
    UnknownChannel,
    /// There is nothing of that name.
    NotFound,
    /// The whole answer would be too long.
    LimitExceeded,
    /// Something in the request is not valid.
    BadRequest,
    /// The namespace does not have this feature.
    NotAvailable,
    /// The server has no room for it now.
    TooManyRequests,
    /// The position in the request is of another epoch.
    UnrecoverablePosition,
}

impl Code {
    /// All of them.
    pub(super) const ALL: [Self; 8] = [
        Self::Internal,
        Self::UnknownChannel,
        Self::NotFound,
        Self::LimitExceeded,
        Self::BadRequest,
        Self::NotAvailable,
        Self::TooManyRequests,
        Self::UnrecoverablePosition,
    ];

    /// Its number, the text that programs may compare, and the status in the mode `transport`.
    fn parts(self) -> (u32, &'static str, StatusCode) {
        match self {
            Self::Internal => (
                100,
                "internal server error",
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
            Self::UnknownChannel => (102, "unknown channel", StatusCode::NOT_FOUND),
            Self::NotFound => (104, "not found", StatusCode::NOT_FOUND),
            Self::LimitExceeded => (106, "limit exceeded", StatusCode::BAD_REQUEST),
            Self::BadRequest => (107, "bad request", StatusCode::BAD_REQUEST),
            Self::NotAvailable => (108, "not available", StatusCode::BAD_REQUEST),
            Self::TooManyRequests => (111, "too many requests", StatusCode::TOO_MANY_REQUESTS),
            Self::UnrecoverablePosition => (
                112,
                "unrecoverable position",
                StatusCode::RANGE_NOT_SATISFIABLE,
            ),
        }
    }

    /// The code of a number; that of an error inside of the server, if there is none.
    pub(super) fn numbered(number: u32) -> Self {
        let mut all = Self::ALL.into_iter();
        let code = all.find(|code| code.number() == number);
        code.unwrap_or(Self::Internal)
    }

    /// Its number.
    pub(crate) fn number(self) -> u32 {
        self.parts().0
    }

    /// The text that goes with it.
    pub(crate) fn text(self) -> &'static str {
        self.parts().1
    }

    /// The status of its answer in the mode `transport`.
    pub(super) fn status(self) -> StatusCode {
        self.parts().2
    }
}

/// A method that fails: `{"code", "message"}`, and `detail` where the request asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(super) code: Code,
    /// What is wrong, where, and what to do.
    pub(super) detail: String,
    /// The server's state, not the request, is why. A request of one method is answered by a status then, so that proxies and
    /// clients see it.
    server: Option<Server>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Busy,
    Draining,
    /// Another node answers in a form that this one does not know, or refuses what this one takes. There is no status for that.
    OfAnotherVersion,
}

#[derive(Serialize)]
pub(super) struct Body<'a> {
    code: u32,
    message: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl Fault {
    /// An error with a sentence for people.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            server: None,
        }
    }

    /// Error 107.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, detail)
    }

    /// The shards did not answer in time, or not all of them.
    pub(crate) fn unanswered() -> Self {
        Self::new(
            Code::Internal,
            "a shard did not answer in time; whether the request was carried out is unknown",
        )
    }

    /// What another node answers cannot be read. `why` is what is wrong with it, and may quote it.
    pub(super) fn of_another_version(node: &str, why: &impl Display) -> Self {
        let what = "answers in a form of another version";
        Self::between_versions(node, what, why)
    }

    /// Another node refuses a request in which this one has found nothing wrong. `why` is what it says.
    pub(super) fn refused_elsewhere(node: &str, why: &impl Display) -> Self {
        let what = "refuses a request that this node takes";
        Self::between_versions(node, what, why)
    }

    fn between_versions(node: &str, what: &str, why: &impl Display) -> Self {
        let why = why.to_string();
        let why = shortened(&why);
        Self {
            server: Some(Server::OfAnotherVersion),
            ..Self::new(Code::Internal, format!("node {node} {what}: {why}"))
        }
    }

    /// Whether another node's answer could not be read, or is the refusal of a request that this one takes.
    pub(in super::super) fn is_of_another_version(&self) -> bool {
        self.server == Some(Server::OfAnotherVersion)
    }

    /// The server is shutting down.
    pub(crate) fn draining() -> Self {
        Self {
            server: Some(Server::Draining),
            ..Self::new(Code::Internal, Refusal::draining().message())
        }
    }

    /// The server has no room for it now.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self {
            server: Some(Server::Busy),
            ..Self::new(Code::TooManyRequests, detail)
        }
    }

    /// The mesh did not take a publication.
    pub(super) fn of_publication(refused: PublishRefused, channel: &str) -> Self {
        match refused {
            PublishRefused::Channel => Self::channel_length(channel),
            PublishRefused::TooLarge => Self::bad(
                "field \"data\" has more bytes than all publications in flight may have; send less, or a link to the data",
            ),
            PublishRefused::Busy => Self::busy(
                "publications arrive faster than they can be delivered; send fewer, or retry after a second",
            ),
            PublishRefused::Draining => Self::draining(),
        }
    }

    /// A home took a publication, and did not publish it.
    pub(super) fn not_published(why: NotPublished, channel: &str) -> Self {
        match why {
            NotPublished::Ended => Self::draining(),
            NotPublished::Unavailable => Self::new(
                Code::Internal,
                "the broker did not take the publication in time; publish it again, with an idempotency_key if it must not appear twice",
            ),
            NotPublished::Refused => Self::bad(
                "NATS refuses the publication; it may have more bytes than max_payload of the NATS servers, and this node's log says why",
            ),
            NotPublished::DiskFull => Self::new(
                Code::Internal,
                "the disk of the history is full; make room in history-dir, or publish again later",
            ),
            NotPublished::DiskFailed => Self::new(
                Code::Internal,
                "the disk of the history has failed, and nothing is kept until the server starts again; its log says why",
            ),
            NotPublished::Closed => Self::new(
                Code::NotAvailable,
                format!(
                    "channel {channel:?} is a stream that is closed; publish in another one, or delete it first"
                ),
            ),
        }
    }

    /// A channel's name that is empty or too long.
    pub(super) fn channel_length(channel: &str) -> Self {
        Self::bad(format!(
            "field \"channel\" has {} bytes; a channel's name has 1 to {}",
            channel.len(),
            myriad_shard::Mesh::CHANNEL_BYTES_MAX
        ))
    }

    /// The same about the field `info` instead of `data`.
    pub(super) fn of_info(mut self) -> Self {
        self.detail = self.detail.replacen("data\"", "info\"", 1);
        self
    }

    /// What a request of one method is answered, if the server's state is why.
    pub(in super::super) fn refusal(&self) -> Option<Refusal> {
        match self.server? {
            Server::Busy => Some(Refusal::busy(self.detail.clone())),
            Server::Draining => Some(Refusal::draining()),
            Server::OfAnotherVersion => None,
        }
    }

    /// What is wrong, for people.
    pub(in super::super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn body(&self) -> Body<'_> {
        Body {
            code: self.code.number(),
            message: self.code.text(),
            detail: if debugging::is_on() { &self.detail } else { "" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::Method;

    const PAGE: &str = include_str!("../../../../../docs/api.md");

    #[test]
    fn the_documentation_lists_every_code() {
        for code in Code::ALL {
            let (number, text, status) = code.parts();
            let row = format!("| {number} | {text} | {} |", status.as_u16());
            assert!(PAGE.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_documentation_lists_every_method() {
        for method in Method::ALL {
            let row = format!("\n| `{}` |", method.name());
            assert!(PAGE.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_fault_quotes_little_of_what_a_node_has_sent() {
        let sent = format!("invalid type: string \"{}\"", "é".repeat(1 << 20));
        let fault = Fault::of_another_version("b", &sent);
        let detail = fault.detail();
        assert!(detail.len() < 500, "{detail}");
        assert!(detail.contains("version: invalid type: string"), "{detail}");
    }
}
