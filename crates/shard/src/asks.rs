//! Asks: questions of clients' commands to the control plane, and its answers, as plain data.
//!
//! Some commands need what a shard must not do: wait for an application, or compute for long. The shard hands such a question to
//! [`ControlPlane::ask`](crate::ControlPlane::ask), and [`Mesh::answer`](crate::Mesh::answer) brings the answer back.

use crate::access::{
    ConnectGrant, PublishGrant, RefreshGrant, Refusal, SubscribeGrant, TokenFault,
};
use crate::settings::ProcessLimits;
use myriad_hub::{ClientId, Headers, Now, Payload, Permit, Pool, Ticket};
use myriad_wheel::Tick;
use std::net::IpAddr;
use std::sync::Arc;

/// What an ask may hold beside its question's data: its record, and its entries in the mailbox, in the runtime and in an inbox.
const OVERHEAD_BYTES: u64 = 512;

/// The name of [`Question::Read`] among commands: who asks has no session.
pub(crate) const READ: &str = "read";

/// A question to the control plane. Its shard waits for the answer until the deadline, and then answers the client itself.
#[derive(Debug)]
pub struct Ask {
    pub(crate) ticket: Ticket,
    pub(crate) id: AskId,
    pub(crate) asker: AskingClient,
    pub(crate) question: Question,
    /// Released when both sides have dropped theirs: the shard at the answer, the control plane with the question.
    pub(crate) _place: Arc<AskPlace>,
}

impl Ask {
    /// What is asked.
    #[must_use]
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// Who asks.
    #[must_use]
    pub fn asker(&self) -> &AskingClient {
        &self.asker
    }

    /// When the shard stops waiting. An answer after it is dropped and counted.
    #[must_use]
    pub fn deadline(&self) -> Now {
        Now::at(self.id.deadline)
    }
}

/// The client whose command asks.
#[derive(Clone, Debug)]
pub struct AskingClient {
    /// Its connection's id.
    pub client: ClientId,
    /// Its user; none if it is anonymous, or not known yet.
    pub user: Option<Arc<str>>,
    /// Its transport, such as `websocket`.
    pub transport: &'static str,
    /// `json` or `protobuf`.
    pub protocol: &'static str,
    /// Its address, as far as it is known, if [`Access::addresses`](crate::Access::addresses) wants it. Behind a proxy that is not
    /// trusted, it is the proxy's.
    pub address: Option<IpAddr>,
    /// Headers of its upgrade request, those of [`Access::headers`](crate::Access::headers).
    pub headers: Option<Headers>,
    /// Headers in its connect command, those of [`Access::emulated_headers`](crate::Access::emulated_headers).
    pub emulated_headers: Option<Headers>,
    /// What the application said of it when it connected.
    pub meta: Option<Arc<[u8]>>,
}

/// What a command needs to know.
#[derive(Debug)]
pub enum Question {
    /// Whether a client may connect.
    Connect {
        /// A token whose verification takes long; none asks the application.
        token: Option<Box<str>>,
        /// What the client says.
        data: Option<Payload>,
        /// The client's name of itself.
        name: Box<str>,
        /// The client's version of itself.
        version: Box<str>,
        /// Server-side subscriptions that it had.
        channels: Vec<Box<str>>,
    },
    /// Who reads a stream. Answered by [`AskAnswer::Connect`].
    Read {
        /// A token whose verification takes long.
        token: Box<str>,
    },
    /// Whether a connection goes on.
    Refresh {
        /// A token whose verification takes long; none asks the application.
        token: Option<Box<str>>,
    },
    /// Whether a client may subscribe.
    Subscribe {
        /// The channel.
        channel: Box<str>,
        /// A token whose verification takes long.
        token: Option<Box<str>>,
        /// What the client says.
        data: Option<Payload>,
        /// Without a token: the name of the proxy to ask.
        proxy: Option<Arc<str>>,
    },
    /// Whether a subscription goes on.
    SubRefresh {
        /// The channel.
        channel: Box<str>,
        /// A token whose verification takes long.
        token: Option<Box<str>>,
        /// Without a token: the name of the proxy to ask.
        proxy: Option<Arc<str>>,
    },
    /// Whether, and what, a client may publish.
    Publish {
        /// The channel.
        channel: Box<str>,
        /// The client's data.
        data: Payload,
        /// The name of the proxy to ask.
        proxy: Arc<str>,
    },
    /// A client calls a method of the application.
    Rpc {
        /// The method's name; may be empty.
        method: Box<str>,
        /// The argument.
        data: Payload,
    },
}

impl Question {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        let length = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let size = |data: &Option<Payload>| data.as_ref().map_or(0, |data| data.bytes().len());
        let bytes = match self {
            Self::Connect {
                token,
                data,
                name,
                version,
                channels,
            } => {
                let channels: usize = channels
                    .iter()
                    .map(|channel| channel.len() + size_of::<Box<str>>())
                    .sum();
                length(token) + size(data) + name.len() + version.len() + channels
            }
            Self::Read { token } => token.len(),
            Self::Refresh { token } => length(token),
            Self::Subscribe {
                channel,
                token,
                data,
                ..
            } => channel.len() + length(token) + size(data),
            Self::SubRefresh { channel, token, .. } => channel.len() + length(token),
            Self::Publish { channel, data, .. } => channel.len() + data.bytes().len(),
            Self::Rpc { method, data } => method.len() + data.bytes().len(),
        };
        bytes as u64
    }

    /// Whether who asks may be anybody.
    pub(crate) fn is_before_connect(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Read { .. })
    }

    /// Bytes of the share of clients that have not connected which an ask takes, with `text_bytes` of its command; none of an ask of
    /// a client that has.
    pub(crate) fn unconnected_bytes(&self, text_bytes: usize) -> u64 {
        match self.is_before_connect() {
            true => self.bytes() + text_bytes as u64 + OVERHEAD_BYTES,
            false => 0,
        }
    }

    /// Whether it is about a token; otherwise it is the application's.
    pub(crate) fn has_token(&self) -> bool {
        match self {
            Self::Connect { token, .. }
            | Self::Refresh { token }
            | Self::Subscribe { token, .. }
            | Self::SubRefresh { token, .. } => token.is_some(),
            Self::Read { .. } => true,
            Self::Publish { .. } | Self::Rpc { .. } => false,
        }
    }

    /// The command that asks, for the log.
    pub(crate) fn command(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Read { .. } => READ,
            Self::Refresh { .. } => "refresh",
            Self::Subscribe { .. } => "subscribe",
            Self::SubRefresh { .. } => "sub_refresh",
            Self::Publish { .. } => "publish",
            Self::Rpc { .. } => "rpc",
        }
    }
}

/// What the control plane answers. The answer to a question is one of its own kind, or one of the first three.
#[derive(Debug)]
pub enum AskAnswer {
    /// The application, or a rule, refuses it.
    Refused(Refusal),
    /// The token is at fault.
    Token(TokenFault),
    /// The application did not answer, or nothing that can be used. What expires goes on for a while; other commands get error 100.
    Unavailable,
    /// To [`Question::Connect`], and to [`Question::Read`].
    Connect(Box<ConnectGrant>),
    /// To [`Question::Refresh`] without a token. One with a token is answered by [`AskAnswer::Connect`].
    Refresh(Box<RefreshGrant>),
    /// To [`Question::Subscribe`], and to [`Question::SubRefresh`] with a token.
    Subscribe(Box<SubscribeGrant>),
    /// To [`Question::SubRefresh`] without a token.
    SubRefresh(Box<RefreshGrant>),
    /// To [`Question::Publish`].
    Publish(Box<PublishGrant>),
    /// To [`Question::Rpc`].
    Rpc(Payload),
}

/// Names an ask among those of its shard, in the order of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AskId {
    pub(crate) deadline: Tick,
    pub(crate) serial: u64,
}

/// A client may have so many asks, however many others wait.
const SHARE_MIN: u64 = 8;
/// One client may have this part of the places that are free. So a client that is alone has many, and the more clients want some,
/// the fewer each has: `n` clients that want all they can get hold `n / (n + 16)` of the places, and never the last ones.
const SHARE_DIVISOR: u64 = 16;

/// How many asks there may be in the process.
#[derive(Debug)]
pub(crate) struct AskPools {
    /// Of clients that are connected.
    pub(crate) commands: Pool,
    /// Of clients that want to connect, and of readers of streams.
    pub(crate) connects: Pool,
}

impl AskPools {
    pub(crate) fn new(limits: &ProcessLimits) -> Self {
        Self {
            commands: Pool::new(limits.asks_max),
            connects: Pool::new(limits.connect_asks_max),
        }
    }

    pub(crate) fn of(&self, question: &Question) -> &Pool {
        match question {
            _ if question.is_before_connect() => &self.connects,
            _ => &self.commands,
        }
    }

    /// How many of the commands' places one client may have now.
    pub(crate) fn share(&self) -> u64 {
        SHARE_MIN.max(self.commands.available() / SHARE_DIVISOR)
    }
}

/// An ask's share of two limits of the process: how many asks there are, and buffered bytes.
#[derive(Debug)]
pub(crate) struct AskPlace {
    _count: Permit,
    bytes: Permit,
    _unconnected: Option<Permit>,
}

impl AskPlace {
    /// None if the process has as many asks as it may, or no memory for this one.
    pub(crate) fn take(asks: &Pool, buffered: &Pool, bytes: u64) -> Option<Self> {
        Some(Self {
            _count: Permit::take(asks, 1, 0)?,
            bytes: Permit::take(buffered, bytes + OVERHEAD_BYTES, 0)?,
            _unconnected: None,
        })
    }

    /// Takes the same bytes of the share of clients that have not connected.
    pub(crate) fn within(self, unconnected: &Pool) -> Option<Self> {
        let permit = Permit::take(unconnected, self.bytes.credits(), 0)?;
        Some(Self {
            _unconnected: Some(permit),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(asks_max: u64) -> AskPools {
        AskPools::new(&ProcessLimits {
            asks_max,
            connect_asks_max: 1,
            ..ProcessLimits::default()
        })
    }

    /// What each of `clients` gets that all take as much as they may.
    fn held_by_greedy(clients: usize, pools: &AskPools) -> Vec<u64> {
        let (mut held, mut before) = (vec![0; clients], 0);
        loop {
            for held in &mut held {
                if *held < pools.share() {
                    *held += pools.commands.take(1, 1);
                }
            }
            let sum = held.iter().sum();
            if sum == before {
                return held;
            }
            before = sum;
        }
    }

    #[test]
    fn greedy_clients_leave_places_for_others() {
        for (clients, each) in [(1, 240), (2, 227), (16, 128), (100, 35), (400, 9)] {
            let pools = pools(4_096);
            let held = held_by_greedy(clients, &pools);
            assert!(held.iter().all(|held| held.abs_diff(each) <= 1), "{held:?}");
            assert!(pools.commands.available() >= SHARE_MIN);
        }
    }

    #[test]
    fn connects_and_commands_take_no_places_of_each_other() {
        let (pools, memory) = (pools(1), Pool::new(1 << 20));
        let connect = Question::Connect {
            token: None,
            data: None,
            name: "".into(),
            version: "".into(),
            channels: Vec::new(),
        };
        let refresh = Question::Refresh { token: None };
        let take = |question| AskPlace::take(pools.of(question), &memory, 0);
        let first = take(&connect).expect("nobody has it");
        assert!(take(&connect).is_none());
        let second = take(&refresh).expect("connects have their own");
        assert!(take(&refresh).is_none());
        drop((first, second));
        assert!(take(&connect).is_some() && take(&refresh).is_some());
    }
}
