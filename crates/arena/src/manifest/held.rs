//! Where a contestant serves clients that it holds over HTTP: long polls, and server-sent events.

use super::{Body, Broadcast, Stats};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How clients of a held crowd wait for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// A request that is answered when there is something, and is sent again.
    LongPoll,
    /// `text/event-stream`: one response that goes on.
    Sse,
}

impl Transport {
    /// As `--held`, the crowd's `--protocol` and the manifest write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LongPoll => "long-poll",
            Self::Sse => "sse",
        }
    }
}

/// A name that is no transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give long-poll or sse")]
pub struct UnknownTransport;

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        [Self::LongPoll, Self::Sse]
            .into_iter()
            .find(|transport| transport.name() == text)
            .ok_or(UnknownTransport)
    }
}

/// The key `held` of a contestant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Held {
    pub(super) long_poll: Option<HeldClients>,
    pub(super) sse: Option<HeldClients>,
    pub(crate) broadcast: Broadcast,
    /// Path of the stream that is created before the crowd comes.
    pub(crate) create: Option<String>,
    /// Where a poll goes on, as `--poll-position` of the crowd has it.
    pub(crate) position: Option<String>,
}

/// One transport.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldClients {
    pub(crate) path: String,
    /// Counts these clients; otherwise as the contestant does elsewhere.
    pub(crate) stats: Option<Stats>,
}

impl Held {
    pub(crate) fn clients(&self, transport: Transport) -> Option<&HeldClients> {
        match transport {
            Transport::LongPoll => self.long_poll.as_ref(),
            Transport::Sse => self.sse.as_ref(),
        }
    }

    /// Checks that types do not make; the error is a key and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.long_poll.is_none() && self.sse.is_none() {
            return Err(("held", "must have `long-poll`, `sse` or both"));
        }
        if self.broadcast.body == Body::Api {
            return Err(("held.broadcast.body", "must be `plain` or `stream`"));
        }
        Ok(())
    }
}
