//! Hears what a stream republishes, by a connection of its own.
//!
//! The fence is asked for by the same connection as the subscriptions: the servers tell each other of these before they pass the question
//! on, so the leader knows of them when it answers.

use super::direct::{number, own_headers, stored};
use super::servers::{FeedError, Heard, HeardMessage, Listener};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::Info;
use myriad_broker::{Previous, Subjects};
use myriad_nats::raw::{RawConnection, RawMessage, Sid};
use std::task::{Context, Poll, ready};

/// A connection that hears one stream.
#[derive(Debug)]
pub(super) struct Republishing {
    connection: RawConnection,
    subjects: Subjects,
    /// Where the stream's leader is asked.
    question: String,
    /// Where it answers, and the subscription to that.
    inbox: String,
    answers: Sid,
}

impl Republishing {
    pub(super) fn new(mut connection: RawConnection, subjects: Subjects, stream: &str) -> Self {
        let inbox = connection.new_inbox();
        Self {
            answers: connection.subscribe(&inbox),
            question: format!("$JS.API.STREAM.INFO.{stream}"),
            inbox,
            connection,
            subjects,
        }
    }

    /// What a message says; none if it says nothing about this stream.
    fn read(&self, message: RawMessage) -> Result<Option<Heard>, FeedError> {
        if message.sid == self.answers {
            return end(&message).map(|end| Some(Heard::Fence(end)));
        }
        Ok(republished(&self.subjects, message).map(Heard::Message))
    }
}

/// A message that a stream has republished; none if it is not whole, or not from the stream.
fn republished(subjects: &Subjects, message: RawMessage) -> Option<HeardMessage> {
    let RawMessage {
        headers: block,
        payload,
        subject,
        ..
    } = message;
    let block = block?;
    let stored = stored(&block, &payload)?;
    // Anybody may publish here. What is not from the stream says so by its place.
    let is_from_stream = subjects.republished(&stored.subject).as_deref() == Some(&*subject);
    // They are parsed once, if they can be.
    let own = stored.headers.is_none().then(|| own_headers(&block));
    let headers = stored.headers.as_ref().or(own.as_ref())?;
    let previous = Previous::of(number(headers, "Nats-Last-Sequence")?);
    // An operator may have told the stream to republish headers only. Then it is as if the message had been lost on its way.
    let has_lost_data = stored.payload.is_empty() && number(headers, "Nats-Msg-Size").is_some();
    (is_from_stream && !has_lost_data).then_some(HeardMessage { stored, previous })
}

impl Listener for Republishing {
    fn subscribe(&mut self, subject: &str) -> Option<Sid> {
        let subject = self.subjects.republished(subject);
        let subject = subject.expect("a stored subject of this cluster");
        Some(self.connection.subscribe(&subject))
    }

    fn unsubscribe(&mut self, sid: Sid) {
        self.connection.unsubscribe(sid);
    }

    fn ask_fence(&mut self) {
        let (question, inbox) = (&self.question, &self.inbox);
        self.connection.publish(question, Some(inbox), b"");
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Heard, FeedError>> {
        loop {
            let message = ready!(self.connection.poll_next(context));
            let message = message.map_err(|error| FeedError::Ended(error.to_string()))?;
            if let Some(heard) = self.read(message)? {
                return Poll::Ready(Ok(heard));
            }
        }
    }
}

/// Where the stream ends, as its leader says.
fn end(message: &RawMessage) -> Result<u64, FeedError> {
    let failed = |why: &dyn std::fmt::Display| FeedError::Info(why.to_string());
    if message.payload.is_empty() {
        return Err(failed(&"nobody answers"));
    }
    let answer: Response<Info> =
        serde_json::from_slice(&message.payload).map_err(|error| failed(&error))?;
    match answer {
        Response::Ok(info) => Ok(info.state.last_sequence),
        Response::Err { error } => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(subject: &str, own: &str, payload: &'static [u8]) -> RawMessage {
        let place = "Nats-Subject: my.h.log.log:a\r\nNats-Sequence: 7\r\nNats-Last-Sequence: 5";
        let time = "Nats-Time-Stamp: 2026-11-22T10:00:00Z";
        let block = format!("NATS/1.0\r\n{place}\r\n{time}\r\n{own}\r\n");
        RawMessage {
            subject: subject.into(),
            sid: Sid(1),
            reply: None,
            headers: Some(block.into()),
            payload: Bytes::from_static(payload),
        }
    }

    #[test]
    fn what_a_stream_republishes_is_heard_if_it_is_whole() {
        let subjects = Subjects::new("my").expect("a prefix");
        let subject = subjects.republished("my.h.log.log:a");
        let subject = subject.expect("a stored subject");
        let heard = |message| {
            let heard = republished(&subjects, message)?;
            Some((heard.stored.sequence, heard.previous))
        };
        assert_eq!(
            heard(message(&subject, "", b"1")),
            Some((7, Previous::Place(5)))
        );
        assert_eq!(
            heard(message(&subject, "", b"")),
            Some((7, Previous::Place(5))),
            "a removal"
        );
        assert_eq!(heard(message("my.r.log.log:b", "", b"1")), None);
        // Without its data, and with a header of a publisher that looks like it.
        let size = "Nats-Msg-Size: 1\r\n";
        assert_eq!(heard(message(&subject, size, b"")), None);
        assert_eq!(
            heard(message(&subject, size, b"1")),
            Some((7, Previous::Place(5)))
        );
    }
}
