//! Commands that are not carried out: errors in replies, closes, and what the debug log says of both.

use crate::events::{ConnectionEvent, RefusedCommand};
use crate::mesh::Mesh;
use crate::shard::Shard;
use crate::transport::close_frame_of;
use myriad_hub::{CloseReason, Kept, NameError, Now, Phase, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Command, CommandError, ErrorCode, ReplyError};
use std::time::Duration;

/// A command that is not carried out. The client erred, or lacks a right, or the server cannot for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An error in the reply.
    Reply(ErrorCode),
    /// An error in the reply, with a sentence of ours instead of the protocol's words.
    Explained(ErrorCode, &'static str),
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

/// Time that a client has to read why it may not connect, and to go.
const REFUSED_TIME: Duration = Duration::from_secs(5);

impl From<ErrorCode> for Failure {
    fn from(code: ErrorCode) -> Self {
        Self::Reply(code)
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::Reply(match error {
            NameError::Empty => return bad_request("it names no channel"),
            NameError::TooLong | NameError::Invalid => ErrorCode::BadRequest,
            NameError::UnknownNamespace => ErrorCode::UnknownChannel,
            NameError::Private | NameError::OtherUsers => ErrorCode::PermissionDenied,
        })
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
            Failure::Explained(code, sentence) => (code.code(), sentence),
            Failure::Close(reason, cause) => (u32::from(reason.code()), cause),
        };
        if !self.may_note_refusal(("command refused", reason), now) {
            return;
        }
        let Asked { command, channel } = asked();
        let refused = RefusedCommand {
            client: self.client_id(key),
            user: self.hub.session(key.index).user.clone(),
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
            Failure::Reply(code) => (code, code.text()),
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

    /// Ends the connection of a client that reads only JSON and would be answered with something else. It could not be told what
    /// the publication says, and without that one the answer would look whole. A live delivery ends it the same way, and the code
    /// is final: the client does not come back to ask again. True if the client has ended.
    pub(super) fn close_if_unreadable(
        &mut self,
        key: Key,
        publications: &[Kept],
        asked: impl FnOnce() -> Asked,
        now: Now,
    ) -> bool {
        let transport = self.hub.connection(key.index).transport();
        let reads_all = !transport.reads_only_json()
            || publications
                .iter()
                .all(|kept| kept.content.payload.is_json());
        if !reads_all {
            let reason = CloseReason::InappropriateProtocol;
            let cause = "the answer has a publication that is not JSON";
            self.note_refused(key, asked, Failure::Close(reason, cause), now);
            self.close_behind_replies(key, reason, now);
        }
        !reads_all
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
    use super::{Failure, NameError};

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
                Failure::Reply(code) | Failure::Explained(code, _) => code.code(),
                Failure::Close(reason, _) => reason.code().into(),
            };
            assert_eq!(told, code, "{error:?}");
        }
    }
}
