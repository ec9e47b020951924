//! Commands that are not carried out: errors in replies, closes, and what the debug log says of both.

use crate::access::Refusal;
use crate::events::{ConnectionEvent, RefusedCommand};
use crate::mesh::Mesh;
use crate::shard::Shard;
use crate::transport::close_frame_of;
use myriad_hub::{CloseReason, Kept, NameError, Now, Phase, Right, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Command, CommandError, ErrorCode, ReplyError};
use std::borrow::Cow;
use std::time::Duration;

/// A command that is not carried out. The client erred, or lacks a right, or the server cannot for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An error in the reply.
    Reply(ErrorCode),
    /// An error in the reply, with a sentence of ours instead of the protocol's words.
    Explained(ErrorCode, &'static str),
    /// An error in the reply, and its cause for the log: the client is only told the protocol's words.
    Caused(ErrorCode, &'static str),
    /// The end of the connection, and its cause for the log: the client is only told the protocol's words.
    Close(CloseReason, &'static str),
}

/// The end of a connection whose client broke the protocol, and how.
pub(super) const fn bad_request(cause: &'static str) -> Failure {
    Failure::Close(CloseReason::BadRequest, cause)
}

/// The end of a connection whose client showed a token to a server that has no key to verify one with.
pub(super) const INVALID_TOKEN: Failure = Failure::Close(
    CloseReason::InvalidToken,
    "it showed a token, and no key for tokens is configured (client.token)",
);

/// The end of a connection whose client the application does not know, as the log says it.
const NOBODY_IN_ANSWER: Failure = bad_request(
    "the application has answered connect without a result, so nothing says who the client is: answer {\"result\": {\"user\": \"42\"}}, or {\"result\": {}} for an anonymous client",
);

/// What a client wants to do in a channel, as the options of namespaces name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Subscribe,
    Publish,
    ReadHistory,
    ReadMembers,
}

macro_rules! lacking {
    ($act:literal, $subscribers:literal) => {
        [
            concat!(
                "its namespace does not allow it to this client: allow_",
                $act,
                "_for_client",
                $subscribers
            ),
            concat!(
                "the client is anonymous, and its namespace lacks allow_",
                $act,
                "_for_anonymous"
            ),
            concat!(
                "the client is anonymous: its namespace lacks allow_",
                $act,
                "_for_client",
                $subscribers,
                " and allow_",
                $act,
                "_for_anonymous"
            ),
        ]
    };
}

impl Act {
    /// Why a client may not: the option that is missing.
    fn lacking(self, right: Right, is_anonymous: bool, is_subscribed: bool) -> &'static str {
        let [client, anonymous, both] = match self {
            Self::Subscribe => lacking!("subscribe", ""),
            Self::Publish => lacking!(
                "publish",
                ", or allow_publish_for_subscriber for subscribers"
            ),
            Self::ReadHistory => lacking!(
                "history",
                ", or allow_history_for_subscriber for subscribers"
            ),
            Self::ReadMembers => lacking!(
                "presence",
                ", or allow_presence_for_subscriber for subscribers"
            ),
        };
        let lacks_right = !right.allows(false, is_subscribed);
        match (lacks_right, is_anonymous && !right.anonymous) {
            (true, true) => both,
            (true, false) => client,
            (false, _) => anonymous,
        }
    }
}

/// The lowest code of an error that is the application's. Those below are the protocol's.
const APPLICATION_ERROR_MIN: u32 = 400;

/// Time that a client has to read why it may not connect, and to go.
const REFUSED_TIME: Duration = Duration::from_secs(5);

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Self::Reply(code)
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Empty => bad_request("it names no channel"),
            NameError::TooLong => Self::Caused(
                ErrorCode::BadRequest,
                "the channel's name is longer than channel.max_length",
            ),
            NameError::Invalid => Self::Caused(
                ErrorCode::BadRequest,
                "the channel's name is not ASCII, or not what channel_regex of its namespace asks for",
            ),
            NameError::UnknownNamespace => Self::Caused(
                ErrorCode::UnknownChannel,
                "the channel's namespace is not configured ([[channel.namespaces]])",
            ),
            NameError::Private => Self::Caused(
                ErrorCode::PermissionDenied,
                "the channel is private ($): only a subscription token or the application lets a client in",
            ),
            NameError::OtherUsers => Self::Caused(
                ErrorCode::PermissionDenied,
                "the channel's name keeps it for other users",
            ),
        }
    }
}

/// What a client asked for, for the log.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    command: &'static str,
    channel: Box<str>,
}

impl Asked {
    pub(super) fn by(command: &Result<Command<'_>, CommandError>) -> Self {
        match command {
            Ok(Command { request, .. }) => Self::command(request.name(), request.channel()),
            Err(_) => Self::command("message", ""),
        }
    }

    /// A command and its channel. The channel is cut to the length that a name may have.
    pub(super) fn command(command: &'static str, channel: &str) -> Self {
        let shown = channel.floor_char_boundary(Mesh::CHANNEL_BYTES_MAX);
        Self {
            command,
            channel: channel[..shown].into(),
        }
    }
}

impl<R: Reactor> Shard<R> {
    /// Whether a client has a right that an option gives.
    pub(super) fn may(&self, right: Right, is_anonymous: bool, is_subscribed: bool) -> bool {
        self.settings.client.insecure || right.allows(is_anonymous, is_subscribed)
    }

    /// As [`Shard::may`]: an error that names the option that is missing.
    pub(super) fn check_may(
        &self,
        key: Key,
        act: Act,
        right: Right,
        is_subscribed: bool,
    ) -> Result<(), Failure> {
        let is_anonymous = self.is_anonymous(key);
        if self.may(right, is_anonymous, is_subscribed) {
            return Ok(());
        }
        let cause = act.lacking(right, is_anonymous, is_subscribed);
        Err(Failure::Caused(ErrorCode::PermissionDenied, cause))
    }

    /// Notes a command that is not carried out. `asked` is called only if the log has a line for it.
    pub(super) fn note_refused(
        &self,
        key: Key,
        asked: impl FnOnce() -> Asked,
        failure: Failure,
        now: Now,
    ) {
        let (code, reason) = match failure {
            Failure::Reply(code) => (code.code(), code.text()),
            Failure::Explained(code, cause) | Failure::Caused(code, cause) => (code.code(), cause),
            Failure::Close(reason, cause) => (u32::from(reason.code()), cause),
        };
        if self.may_note_refusal(("command refused", reason), now) {
            self.note_refused_as(key, asked(), code, reason.into(), now);
        }
    }

    /// Notes a refusal by the application, or by the control plane, with its code.
    pub(super) fn note_refusal_of(
        &self,
        key: Key,
        asked: impl FnOnce() -> Asked,
        refusal: &Refusal,
        now: Now,
    ) {
        let (code, by, words) = match refusal {
            Refusal::Error { code, message, .. } if *code >= APPLICATION_ERROR_MIN => {
                (*code, "the application answers", &**message)
            }
            Refusal::Error { code, message, .. } => (*code, "it cannot be carried out", &**message),
            Refusal::Disconnect(close) => {
                let by = "the application ends the connection";
                (u32::from(close.code()), by, close.reason())
            }
            Refusal::Nobody => {
                return self.note_refused(key, asked, NOBODY_IN_ANSWER, now);
            }
        };
        // The words may be other ones each time: they are no key.
        if self.may_note_refusal(("command refused", by), now) {
            // Quoted with escapes: they may hold line feeds.
            let reason = format!("{by}: {words:?}").into();
            self.note_refused_as(key, asked(), code, reason, now);
        }
    }

    fn note_refused_as(
        &self,
        key: Key,
        Asked { command, channel }: Asked,
        code: u32,
        reason: Cow<'static, str>,
        now: Now,
    ) {
        let refused = RefusedCommand {
            who: self.who(key),
            command,
            channel,
            code,
            reason,
        };
        let event = ConnectionEvent::CommandRefused(Box::new(refused));
        self.note_refusal(key, event, now);
    }

    /// Tells a client why its command is not carried out. A client without commands is told by the end of its connection.
    pub(super) fn tell_failure(&mut self, key: Key, id: u32, failure: Failure, now: Now) {
        let (code, sentence) = match failure {
            Failure::Reply(code) | Failure::Caused(code, _) => (code, code.text()),
            Failure::Explained(code, sentence) => (code, sentence),
            Failure::Close(reason, _) => return self.close_behind_replies(key, reason, now),
        };
        if self.is_unidirectional(key) {
            return self.end_connect_request(key, code.code(), now);
        }
        self.reply_error(key, id, code, sentence);
    }

    /// A client may not connect, and has been told why. What it sends from now on is not read: behind the connect command there may
    /// be others that count on it.
    pub(super) fn refuse_client(&mut self, key: Key, now: Now) {
        self.forget_connecting(key.index);
        if self.hub.connection(key.index).phase == Phase::Open {
            self.hub.arm_refused(key.index, REFUSED_TIME, now);
        }
    }

    /// Ends a connection behind the replies that were gathered.
    pub(super) fn close_behind_replies(&mut self, key: Key, reason: CloseReason, now: Now) {
        self.finish_replies(key, now);
        let transport = self.hub.connection(key.index).transport();
        let frame = close_frame_of::<R>(transport, reason);
        self.close_gracefully(key, reason, frame, now);
    }

    /// Leaves out of an answer what its client cannot read: publications that are not JSON, where it reads only JSON. A live delivery
    /// leaves them out, too.
    pub(super) fn leave_out_unreadable(&mut self, key: Key, publications: &mut Vec<Kept>) {
        let transport = self.hub.connection(key.index).transport();
        if !transport.reads_only_json() {
            return;
        }
        let before = publications.len();
        publications.retain(|kept| kept.content.payload.is_json());
        self.hub.note_unreadable(before - publications.len());
    }

    /// Appends an error to the replies to the message that is being handled.
    pub(super) fn reply_error(&mut self, key: Key, command: u32, code: ErrorCode, message: &str) {
        self.metrics().command_errors[code.index()].add(1);
        let error = ReplyError {
            message,
            ..ReplyError::from(code)
        };
        self.reply(key, |writer| writer.error(command, error));
    }

    /// Answers a command with an error that has come from elsewhere.
    pub(super) fn answer_error(
        &mut self,
        key: Key,
        ticket: Ticket,
        asked: impl FnOnce() -> Asked,
        code: ErrorCode,
        now: Now,
    ) {
        self.answer_explained(key, ticket, asked, code, code.text(), now);
    }

    /// As [`Shard::answer_error`], with a cause for the log.
    pub(super) fn answer_caused(
        &mut self,
        key: Key,
        ticket: Ticket,
        asked: impl FnOnce() -> Asked,
        (code, cause): (ErrorCode, &'static str),
        now: Now,
    ) {
        self.note_refused(key, asked, Failure::Caused(code, cause), now);
        self.reply_error(key, ticket.command, code, code.text());
        self.finish_replies(key, now);
    }

    /// As [`Shard::answer_error`], with a sentence of ours instead of the protocol's words.
    pub(super) fn answer_explained(
        &mut self,
        key: Key,
        ticket: Ticket,
        asked: impl FnOnce() -> Asked,
        code: ErrorCode,
        sentence: &'static str,
        now: Now,
    ) {
        self.note_refused(key, asked, Failure::Explained(code, sentence), now);
        self.reply_error(key, ticket.command, code, sentence);
        self.finish_replies(key, now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Failure, NameError, Right};

    #[test]
    fn a_missing_right_is_named_by_its_options() {
        let right = |client, anonymous| Right {
            client,
            subscriber: false,
            anonymous,
        };
        for (right, is_anonymous, client, anonymous) in [
            (right(false, true), false, true, false),
            (right(false, false), false, true, false),
            (right(true, false), true, false, true),
            (right(false, false), true, true, true),
            (right(false, true), true, true, false),
        ] {
            for (act, name) in [
                (Act::Subscribe, "subscribe"),
                (Act::Publish, "publish"),
                (Act::ReadHistory, "history"),
                (Act::ReadMembers, "presence"),
            ] {
                let cause = act.lacking(right, is_anonymous, false);
                let names = |whom: &str| cause.contains(&format!("allow_{name}_for_{whom}"));
                assert_eq!(
                    (names("client"), names("anonymous")),
                    (client, anonymous),
                    "{cause}"
                );
            }
        }
    }

    #[test]
    fn names_are_refused_with_the_codes_of_the_protocol() {
        for (error, code) in [
            (NameError::Empty, 3501),
            (NameError::TooLong, 107),
            (NameError::UnknownNamespace, 102),
            (NameError::Invalid, 107),
            (NameError::Private, 103),
            (NameError::OtherUsers, 103),
        ] {
            let told = match Failure::from(error) {
                Failure::Reply(code) | Failure::Explained(code, _) | Failure::Caused(code, _) => {
                    code.code()
                }
                Failure::Close(reason, _) => reason.code().into(),
            };
            assert_eq!(told, code, "{error:?}");
        }
    }
}
