//! What can go wrong with a client, by kind: the names that reports count under.

use crate::engine::tls::TlsFailure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Why a connection was not made, or did not last. Ordered, so that reports list kinds the same way every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// Nobody listens at the target.
    Refused,
    /// The connection was reset before the upgrade was answered.
    Reset,
    /// No connection within the connect timeout.
    ConnectTimeout,
    /// No answer to the upgrade request within the handshake timeout.
    HandshakeTimeout,
    /// The server ended the connection instead of answering the upgrade request.
    HandshakeEnded,
    /// The server answered the upgrade request with this status instead of 101.
    HandshakeStatus(u16),
    /// The answer is not HTTP, or does not prove that the server speaks WebSocket.
    HandshakeInvalid,
    /// No source port is free (`EADDRNOTAVAIL`).
    NoSourcePort,
    /// A source address is not this machine's, or may not be used.
    SourceRefused,
    /// No descriptor is free (`EMFILE`, `ENFILE`).
    NoDescriptor,
    /// No kernel memory is free (`ENOBUFS`, `ENOMEM`).
    NoMemory,
    /// There is no way to the target.
    Unreachable,
    /// Something about TLS.
    Tls(TlsFailure),
    /// Some other error of the system, by its number.
    System(i32),
    /// The server broke the WebSocket protocol.
    Protocol,
    /// The server sent a message that is larger than the scenario lets messages be.
    MessageTooLarge,
    /// The server sent a length that no message can have.
    FrameInvalid,
    /// A message of a client was not sent, because it does not fit the framing.
    MessageUnfit,
    /// The server began messages and finished none, until they were more than the crowd keeps.
    Unfinished,
    /// `connect` and all `subscribe` commands were not answered within the handshake timeout.
    SessionTimeout,
    /// The server ended the connection instead of answering them.
    SessionEnded,
    /// The server closed with this code instead of answering them, or sent a `disconnect` with it.
    SessionClosed(u16),
    /// The server sent something that is no message of the protocol, or the wrong one.
    SessionInvalid,
    /// `connect` was answered with this error.
    ConnectError(u16),
    /// `subscribe` was answered with this error.
    SubscribeError(u16),
    /// The server ended a subscription with this code.
    Unsubscribed(u16),
    /// The server answered a command that nobody had sent, or answered one twice.
    ReplyUnknown,
    /// A request of a client was answered with this status.
    Answer(u16),
    /// A request of a client was answered with something that is no HTTP, or no answer to it.
    AnswerInvalid,
    /// The head of a stream did not come within the handshake timeout.
    AnswerTimeout,
    /// The server ended the connection instead of answering a client's first request.
    AnswerEnded,
    /// The server ended an open connection without a close frame.
    LostEnd,
    /// An open connection was reset.
    LostReset,
    /// An open connection timed out in the kernel.
    LostTimeout,
    /// The server left a client's heartbeat unanswered for a whole interval.
    HeartbeatUnanswered,
    /// An answer to an echo was not what was sent.
    EchoWrong,
    /// An echo's answer came twice, on another connection, or after the settle time.
    EchoUnknown,
    /// The server answered what a client published with this error.
    ClientPublish(u16),
    /// The server answered a command of a flow with this error, or not at all (0).
    Command(u16),
    /// The reply to a command of a flow is not what it should be.
    CommandWrong,
    /// A request was answered with this status instead of 200, or not at all (0).
    Request(u16),
    /// A request was answered with another body than was sent.
    RequestWrong,
    /// A request of a flow was answered with this status, which is not what the flow expects, or not at all (0).
    Call(u16),
    /// The answer to a request of a flow is not what it should be.
    CallWrong,
    /// A publication was answered with this status, or not at all (0).
    Publish(u16),
    /// A publication could not be sent: there was no connection to its URL.
    PublishUnreached,
    /// A kind beyond those that are told apart.
    Other,
}

/// Most kinds that are told apart: a server may answer with any code, and an agent of a fleet tells all kinds in each message.
pub(crate) const KINDS_MAX: usize = 1000;

/// Adds to the count of a kind.
pub(crate) fn add_failures(kinds: &mut BTreeMap<Failure, u64>, failure: Failure, count: u64) {
    let is_told = kinds.len() < KINDS_MAX || kinds.contains_key(&failure);
    let failure = if is_told { failure } else { Failure::Other };
    *kinds.entry(failure).or_default() += count;
}

impl Failure {
    /// The kind of an error while connecting.
    pub(crate) fn of_connect(errno: i32) -> Self {
        match errno {
            libc::ECONNREFUSED => Self::Refused,
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Self::Reset,
            libc::ETIMEDOUT => Self::ConnectTimeout,
            libc::EADDRNOTAVAIL | libc::EADDRINUSE | libc::EAGAIN => Self::NoSourcePort,
            libc::EINVAL | libc::EACCES | libc::EPERM => Self::SourceRefused,
            libc::EMFILE | libc::ENFILE => Self::NoDescriptor,
            libc::ENOBUFS | libc::ENOMEM => Self::NoMemory,
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN => {
                Self::Unreachable
            }
            other => Self::of_other(other),
        }
    }

    /// The kind of an error while the upgrade's answer is awaited.
    pub(crate) fn of_upgrade(errno: i32) -> Self {
        match errno {
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Self::Reset,
            libc::ETIMEDOUT => Self::HandshakeTimeout,
            other => Self::of_connect(other),
        }
    }

    /// The kind of an error on an open connection.
    pub(crate) fn of_open(errno: i32) -> Self {
        match errno {
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Self::LostReset,
            libc::ETIMEDOUT => Self::LostTimeout,
            other => Self::of_other(other),
        }
    }

    fn of_other(errno: i32) -> Self {
        TlsFailure::of_errno(errno).map_or(Self::System(errno), Self::Tls)
    }

    /// What a failure of an HTTP client's connection is called before its first answer.
    pub(crate) fn of_first_answer(self) -> Self {
        match self {
            Self::LostEnd | Self::HandshakeEnded => Self::AnswerEnded,
            Self::LostReset => Self::Reset,
            Self::LostTimeout | Self::HandshakeTimeout => Self::AnswerTimeout,
            other => other,
        }
    }

    /// Whether the server ended or reset an open connection.
    pub(crate) fn is_lost_connection(self) -> bool {
        matches!(self, Self::LostEnd | Self::LostReset)
    }

    /// Whether the server has answered commands of a session: it speaks the protocol, and does not take the client.
    pub(crate) fn is_session_answer(self) -> bool {
        matches!(
            self,
            Self::SessionClosed(_) | Self::ConnectError(_) | Self::SubscribeError(_)
        )
    }

    /// The same where it is known what the server said.
    pub(crate) fn next_step_after(self, said: &[u8]) -> Option<&'static str> {
        // Myriad's own words: its refusal names the option.
        let anonymous = memchr::memmem::find(said, b"--anonymous").is_some();
        let is_refused = matches!(self, Self::HandshakeStatus(401) | Self::Answer(401));
        if is_refused && anonymous {
            return Some(
                "start the server with --anonymous, which lets clients in without a token",
            );
        }
        self.next_step()
    }

    /// What to do about it, where there is something to do on this side.
    #[must_use]
    pub fn next_step(self) -> Option<&'static str> {
        Some(match self {
            Self::Refused => {
                "nobody listens there (the target's kernel says so, not a server): is the server running, and on that address and port?"
            }
            Self::ConnectTimeout => {
                "the server's listen backlog overflows or a firewall drops packets: lower --connect-rate or --connecting-max"
            }
            Self::HandshakeTimeout => {
                "the server accepts faster than it upgrades: lower --connect-rate, or raise --handshake-timeout"
            }
            Self::HandshakeStatus(status) => status_step(status),
            Self::Answer(status) => answer_step(status),
            Self::AnswerInvalid => {
                "the answer is no HTTP, or not what --protocol expects: check the target's path and --protocol"
            }
            Self::AnswerTimeout => {
                "the server accepts connections and does not answer: lower --connect-rate, raise --handshake-timeout, or is this a path that is held (--protocol long-poll)?"
            }
            Self::AnswerEnded => {
                "the server ended the connection instead of answering: is this its HTTP port, and does it want TLS (https://)? Its log may say why"
            }
            Self::HandshakeEnded => {
                "the server ended the connection instead of answering: is this its WebSocket port, and does it want TLS (wss://)? Its log may say why"
            }
            Self::Reset => {
                "the connection was reset before the server answered: it may be full, or restarting; lower --connect-rate, and look at its log"
            }
            Self::HandshakeInvalid => {
                "the answer is no HTTP, or no WebSocket handshake: is this a WebSocket endpoint?"
            }
            Self::NoSourcePort => {
                "source ports ran out: give more addresses with --source-ip, or widen net.ipv4.ip_local_port_range"
            }
            Self::Tls(failure) => return failure.next_step(),
            Self::SourceRefused => "check that the --source-ip addresses belong to this machine",
            Self::NoDescriptor => {
                "descriptors ran out: raise the hard limit (ulimit -Hn), or use --driver io_uring or more --threads"
            }
            Self::NoMemory => {
                "the kernel's memory for sockets ran out: open fewer connections, see net.ipv4.tcp_mem"
            }
            Self::SessionTimeout => {
                "the server upgrades and does not answer `connect` or `subscribe`, or what a scenario says in [opening], in time: is this the right endpoint, and are these the right answers (spaces count)? If so lower --connect-rate, or raise --handshake-timeout"
            }
            Self::MessageTooLarge | Self::FrameInvalid => {
                "check [framing] against what the server speaks: a wrong delimiter, or a wrong width or order of the length, makes messages look large; if they are so large, raise message-max"
            }
            Self::MessageUnfit => {
                "a message did not fit [framing], and was not sent: check what variables make of it"
            }
            Self::SessionEnded => {
                "the server ended the connection instead of answering `connect`, or what a scenario says in [opening]: is this the right endpoint? Its log may say why"
            }
            Self::SessionInvalid => {
                "the server does not speak the Centrifuge protocol: check the target's path (/connection/websocket) and --protocol"
            }
            Self::SessionClosed(code) | Self::ConnectError(code) => session_step(code)?,
            Self::SubscribeError(code) => subscribe_step(code)?,
            Self::ClientPublish(code) => client_publish_step(code)?,
            Self::Command(code) => command_step(code)?,
            _ => return self.open_step(),
        })
    }

    /// What to do about what an open connection lacks.
    fn open_step(self) -> Option<&'static str> {
        Some(match self {
            Self::LostEnd | Self::LostReset => {
                "connections ended that were open, and without a close frame: did the server stop, or something between? Its log may say why"
            }
            Self::HeartbeatUnanswered => {
                "nothing answered heartbeats in time: is [heartbeat] `answer` what the server sends (spaces count), or is it overloaded?"
            }
            Self::EchoWrong => {
                "the server must send each text message back as it is: is this its echo path?"
            }
            Self::EchoUnknown => {
                "the server answered an echo twice, to somebody else, or later than --settle"
            }
            _ => return self.request_step(),
        })
    }

    /// What to do about a request or a publication beside the crowd.
    fn request_step(self) -> Option<&'static str> {
        Some(match self {
            Self::Request(404 | 405) => "check the path of --request; it takes POST",
            Self::RequestWrong => "the server must answer with the body that was sent",
            Self::Call(401 | 403) => "the URL of a flow wants a key: give it in the flow's headers",
            Self::Call(404 | 405) => "check the URL or the path of the flow, and its method",
            Self::Call(0) => {
                "the server did not answer in hold.settle, or the connection ended before: is it overloaded, and does it keep connections for long enough?"
            }
            Self::CallWrong => "check what the URL of the flow answers, and the flow's `answer`",
            Self::Publish(401 | 403) => "the publish URL wants a key: give it with --api-key",
            Self::Publish(404 | 405) => "check the path of the publish URL, and --publish-body",
            Self::Publish(0) => {
                "the server took the publish request and did not answer it: is it overloaded, and is this its publish URL?"
            }
            Self::PublishUnreached => {
                "there was no connection to the publish URL: is the server running, and on that address and port?"
            }
            _ => return None,
        })
    }
}

/// What to do about a session that a server does not begin.
fn session_step(code: u16) -> Option<&'static str> {
    Some(match code {
        101 | 109 | 3500 | 3507 => {
            "the server does not take the token: give a valid one with --token"
        }
        3501 => {
            "the server takes no client without a token, or not this one: give one with --token (myriad serve --anonymous lets everybody in)"
        }
        3502 => "`connect` reached the server too late: lower --connect-rate",
        3504 | 3505 => "the server limits connections or channels of a user: raise its limits",
        _ => return None,
    })
}

/// What to do about a publication that a server does not take from a client.
fn client_publish_step(code: u16) -> Option<&'static str> {
    Some(match code {
        103 => {
            "clients may not publish to the channel: allow it on the server (allow_publish_for_subscriber, allow_publish_for_client, allow_publish_for_anonymous)"
        }
        107 => {
            "the server does not take the publication: is it too large? See --client-publish-size"
        }
        111 => "clients publish faster than the server delivers: lower --client-publish",
        _ => return None,
    })
}

/// What to do about a command of a flow that a server refuses.
fn command_step(code: u16) -> Option<&'static str> {
    Some(match code {
        0 => {
            "the server did not answer in hold.settle, or the connection ended before: is it overloaded?"
        }
        102 => {
            "the channel's namespace is not configured on the server: check the name of the channel"
        }
        103 => {
            "clients may not do this in the channel: allow it on the server (allow_publish_for_subscriber, allow_history_for_subscriber, allow_presence_for_subscriber)"
        }
        108 => {
            "this is not on for the channel's namespace: history needs history_size and history_ttl, lists of members need presence, and rpc needs a proxy"
        }
        111 => {
            "clients do this faster than the server lets them: lower the flow's rate, or raise its limits"
        }
        _ => return None,
    })
}

/// What to do about a subscription that a server does not begin.
fn subscribe_step(code: u16) -> Option<&'static str> {
    Some(match code {
        102 => "the channel's namespace is not configured on the server: check --channel",
        103 => {
            "clients may not subscribe to the channel: allow it on the server (allow_subscribe_for_client, allow_subscribe_for_anonymous)"
        }
        106 => "too many channels for one connection: give fewer, or raise client.channel_limit",
        107 => "the channel's name is not valid on the server: check --channel",
        _ => return None,
    })
}

/// What to do about an answer other than 101 to an upgrade request.
fn status_step(status: u16) -> &'static str {
    match status {
        200..=299 => "ordinary HTTP is served there: check the target's path",
        300..=399 => "the server redirects: give the address it redirects to as the target",
        401 | 407 => {
            "the server wants credentials: give them with --header 'Authorization: ...' (a Myriad server lets everybody in with --anonymous)"
        }
        403 => {
            "the server forbids it: it may want credentials, or an Origin that it knows; give them with --header"
        }
        404 | 410 => "check the target's path",
        405 => "that path takes no GET: check the target's path",
        408 => "the request took too long to arrive: lower --connect-rate or --connecting-max",
        413 | 414 | 431 => {
            "the request is too large for the server: give fewer or shorter --header"
        }
        426 => {
            "the server wants another protocol or version than WebSocket 13: check the target's path"
        }
        429 => {
            "the server limits the connections of one address, or their rate, and a crowd has few addresses: raise that limit (myriad serve: connection_limit_per_address, connection_rate_limit_per_address, or this machine in unlimited_addresses), or give more addresses with --source-ip"
        }
        503 => {
            "the server is full or sheds load: raise its limit (myriad serve --max-connections), or lower --connect-rate"
        }
        501 | 505 => "the server does not support WebSockets there",
        502 | 504 => "a proxy does not reach the server behind it: is that one running?",
        500..=599 => "the server failed: look at its log",
        _ => {
            "the server does not take the request: check the target's path, and what --header it wants"
        }
    }
}

/// What to do about an answer to an HTTP client that is an error.
fn answer_step(status: u16) -> &'static str {
    match status {
        200..=299 => "--protocol expects another answer there: check the target's path",
        300..=399 => {
            "the server redirects, and clients do not follow: give the address in its Location as the target"
        }
        400 => "the server does not understand the request: check the target's path and query",
        404 => {
            "check the target's path. A stream has to be created before clients read it (PUT to its URL)"
        }
        405 => "that path takes no GET, or no POST: check the target's path, and --request-body",
        410 => "the position is older than what the server keeps: begin with offset=now",
        408 => "the request took too long to arrive: lower --connect-rate or --connecting-max",
        status => status_step(status),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::ConnectTimeout => "connect_timeout",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::HandshakeEnded => "handshake_ended",
            Self::HandshakeStatus(status) => return write!(f, "handshake_{status}"),
            Self::HandshakeInvalid => "handshake_invalid",
            Self::NoSourcePort => "no_source_port",
            Self::SourceRefused => "source_refused",
            Self::NoDescriptor => "no_descriptor",
            Self::NoMemory => "no_memory",
            Self::Unreachable => "unreachable",
            Self::Tls(failure) => return write!(f, "tls_{failure}"),
            Self::System(errno) => return write!(f, "errno_{errno}"),
            Self::Protocol => "protocol",
            Self::Unfinished => "unfinished",
            Self::MessageTooLarge => "message_too_large",
            Self::FrameInvalid => "frame_invalid",
            Self::MessageUnfit => "message_unfit",
            Self::SessionTimeout => "session_timeout",
            Self::SessionEnded => "session_ended",
            Self::SessionClosed(code) => return write!(f, "session_closed_{code}"),
            Self::SessionInvalid => "session_invalid",
            Self::ConnectError(code) => return write!(f, "connect_error_{code}"),
            Self::SubscribeError(code) => return write!(f, "subscribe_error_{code}"),
            Self::Unsubscribed(code) => return write!(f, "unsubscribed_{code}"),
            Self::ReplyUnknown => "reply_unknown",
            Self::Answer(status) => return write!(f, "answer_{status}"),
            Self::AnswerInvalid => "answer_invalid",
            Self::AnswerTimeout => "answer_timeout",
            Self::AnswerEnded => "answer_ended",
            Self::LostEnd => "lost_end",
            Self::LostReset => "lost_reset",
            Self::LostTimeout => "lost_timeout",
            Self::HeartbeatUnanswered => "heartbeat_unanswered",
            Self::EchoWrong => "echo_wrong",
            Self::EchoUnknown => "echo_unknown",
            Self::ClientPublish(code) => return write!(f, "client_publish_error_{code}"),
            Self::Command(0) => "command_unanswered",
            Self::Command(code) => return write!(f, "command_error_{code}"),
            Self::CommandWrong => "command_wrong",
            Self::Request(0) => "request_unanswered",
            Self::Request(status) => return write!(f, "request_{status}"),
            Self::RequestWrong => "request_wrong",
            Self::Call(0) => "call_unanswered",
            Self::Call(status) => return write!(f, "call_{status}"),
            Self::CallWrong => "call_wrong",
            Self::Publish(0) => "publish_unanswered",
            Self::Publish(status) => return write!(f, "publish_{status}"),
            Self::PublishUnreached => "publish_unreached",
            Self::Other => "other",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_beyond_the_most_are_counted_together() {
        let mut kinds = BTreeMap::new();
        for code in 0..=u16::MAX {
            add_failures(&mut kinds, Failure::SubscribeError(code), 2);
        }
        add_failures(&mut kinds, Failure::SubscribeError(7), 1);
        assert_eq!(kinds.len(), KINDS_MAX + 1);
        assert_eq!(kinds[&Failure::SubscribeError(7)], 3);
        assert_eq!(kinds.values().sum::<u64>(), 2 * 65_536 + 1);
    }

    #[test]
    fn every_status_has_a_next_step() {
        for status in 200..600 {
            assert!(Failure::HandshakeStatus(status).next_step().is_some());
            assert!(Failure::Answer(status).next_step().is_some());
        }
    }

    #[test]
    fn a_myriad_that_lets_nobody_in_is_told_from_others() {
        let failure = Failure::HandshakeStatus(401);
        let said = b"Anonymous clients are not let in here: start the server with --anonymous, or with --dev to try things.";
        let step = failure.next_step_after(said).unwrap();
        assert!(
            step.contains("--anonymous") && !step.contains("--dev"),
            "{step}"
        );
        let step = failure.next_step_after(b"<h1>Unauthorized</h1>").unwrap();
        assert!(step.contains("--header"), "{step}");
    }

    #[test]
    fn a_refused_connection_is_not_the_servers_word() {
        let step = Failure::Refused.next_step().unwrap();
        assert!(step.starts_with("nobody listens there"), "{step}");
    }
}
