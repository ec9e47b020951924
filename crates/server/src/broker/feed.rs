//! The messages of a stream in their order, from a place on.
//!
//! By a push consumer whose messages are counted: a message that the connection has lost leaves a hole in the count, and a heartbeat
//! of the consumer says how many there were. The client library has such a consumer, which begins again by itself. Ours ends instead,
//! for three reasons. What had come before the connection broke is still given out; the library drops it, and where one message breaks
//! the connection each time, nothing before that one would ever be read. Whoever opens the log again looks at what the stream has
//! become meanwhile. And a message is one whatever its headers say: the library takes one with a status for something that is no
//! message, and begins again without end.

use super::servers::{Feed, FeedError, Stored, Which};
use crate::nats::{connects_of, header, is_connected};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Context, ErrorCode, Message};
use async_nats::{Client, StatusCode, Subject, Subscriber};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde::Deserialize;
use serde_json::json;
use std::task::{self, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A consumer without messages sends a heartbeat every 5 s.
const SILENCE_MAX: Duration = Duration::from_secs(11);
/// Where the server is told how much of the feed has been read. Its messages say so in their reply subjects.
const ACK_PREFIX: &str = "$JS.ACK.";
/// How headers begin that have no status.
const PLAIN_HEADERS: &[u8] = b"NATS/1.0\r\n";

/// A stream's messages as they come by a consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    client: Client,
    context: Context,
    messages: Subscriber,
    /// Connections that the client has had when the feed began.
    connects: u64,
    /// Messages of the consumer so far.
    count: u64,
    /// The last place that came, or the one before the first.
    sequence: u64,
    heard: Instant,
}

impl Consumer {
    /// Begins at a place.
    ///
    /// # Errors
    /// The server does not let us.
    pub(super) async fn open(
        client: &Client,
        context: &Context,
        stream: String,
        first: u64,
    ) -> Result<Self, FeedError> {
        let connects = connects_of(client);
        let inbox = client.new_inbox();
        let messages = client.subscribe(inbox.clone()).await;
        let messages = messages.map_err(|error| FeedError::make(&error))?;
        let config = OrderedConfig {
            deliver_subject: inbox,
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: first,
            },
            ..OrderedConfig::default()
        };
        // It goes by itself 30 s after its subscription.
        let made = context.create_consumer_on_stream(config, stream).await;
        made.map_err(|error| FeedError::make(&error))?;
        Ok(Self {
            client: client.clone(),
            context: context.clone(),
            messages,
            connects,
            count: 0,
            sequence: first - 1,
            heard: Instant::now(),
        })
    }

    fn take(&mut self, message: Option<async_nats::Message>) -> Result<Option<Stored>, FeedError> {
        let Some(message) = message else {
            return Err(FeedError::Ended("it has no subscription".to_owned()));
        };
        self.heard = Instant::now();
        let reply = message.reply.as_deref().unwrap_or_default();
        if reply.starts_with(ACK_PREFIX) {
            return self.take_stored(message).map(Some);
        }
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => self.handle_heartbeat(&message).map(|()| None),
            Some(status) => {
                let why = message.description.unwrap_or_default();
                Err(FeedError::Ended(format!("{status} {why}")))
            }
            // Somebody has guessed our inbox.
            None => Ok(None),
        }
    }

    fn take_stored(&mut self, message: async_nats::Message) -> Result<Stored, FeedError> {
        let message = Message {
            message,
            context: self.context.clone(),
        };
        let (sequence, count, stored_ns) = {
            let info = message.info();
            let info = info.map_err(|error| FeedError::Ended(error.to_string()))?;
            (
                info.stream_sequence,
                info.consumer_sequence,
                info.published.unix_timestamp_nanos(),
            )
        };
        if count != self.count + 1 {
            return Err(FeedError::Hole);
        }
        if sequence <= self.sequence {
            return Err(FeedError::Back);
        }
        (self.count, self.sequence) = (count, sequence);
        let message = message.message;
        Ok(Stored {
            sequence,
            stored_ns,
            subject: message.subject,
            headers: message.headers,
            payload: message.payload,
            is_spoiled: message.status.is_some(),
        })
    }

    /// The consumer says how many messages it has sent, or asks whether they were read.
    fn handle_heartbeat(&self, message: &async_nats::Message) -> Result<(), FeedError> {
        let header = |name: &str| header(message.headers.as_ref(), name);
        if let Some(count) = header("Nats-Last-Consumer")
            && count.parse() != Ok(self.count)
        {
            return Err(FeedError::Hole);
        }
        // The server waits for an answer to one of these before it sends more.
        let asks = header("Nats-Consumer-Stalled").map(Subject::from);
        if let Some(subject) = message.reply.clone().or(asks) {
            let client = self.client.clone();
            tokio::spawn(async move {
                // If it is lost, the consumer asks again.
                let _ = client.publish(subject, Bytes::new()).await;
            });
        }
        Ok(())
    }
}

impl Feed for Consumer {
    fn poll_next(&mut self, context: &mut task::Context<'_>) -> Poll<Result<Stored, FeedError>> {
        loop {
            let message = ready!(self.messages.poll_next_unpin(context));
            if let Some(stored) = self.take(message)? {
                return Poll::Ready(Ok(stored));
            }
        }
    }

    fn fault(&self) -> Option<FeedError> {
        let is_cut = connects_of(&self.client) != self.connects || !is_connected(&self.client);
        if is_cut {
            Some(FeedError::Cut)
        } else {
            let is_silent = self.heard.elapsed() > SILENCE_MAX;
            is_silent.then_some(FeedError::Silent(SILENCE_MAX.as_secs()))
        }
    }
}

/// The answer to a question for a message.
#[derive(Debug, Deserialize)]
struct Found {
    message: RawMessage,
}

/// A message as the stream's leader has it; none if there is none. It comes as text, so that it can be read whatever stands in it.
///
/// # Errors
/// There is no answer.
pub(super) async fn look(
    context: &Context,
    stream: &str,
    which: Which<'_>,
) -> Result<Option<Stored>, FeedError> {
    let question = match which {
        Which::From(sequence) => json!({ "seq": sequence, "next_by_subj": ">" }),
        Which::OfFrom(subject, sequence) => json!({ "seq": sequence, "next_by_subj": subject }),
        Which::LastOf(subject) => json!({ "last_by_subj": subject }),
    };
    let subject = format!("STREAM.MSG.GET.{stream}");
    let answer = context.request(subject, &question).await;
    let answer: Response<Found> = answer.map_err(|error| FeedError::look(&error))?;
    match answer {
        Response::Ok(found) => Ok(Some(read(found.message))),
        Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Response::Err { error } => Err(FeedError::look(&error)),
    }
}

fn read(message: RawMessage) -> Stored {
    let sequence = message.sequence;
    let stored_ns = message.time.unix_timestamp_nanos();
    let subject = Subject::from(message.subject.clone());
    let headers = message.headers.as_ref().map(|text| BASE64.decode(text));
    let is_plain = match &headers {
        None => true,
        Some(Ok(headers)) => headers.starts_with(PLAIN_HEADERS),
        Some(Err(_)) => false,
    };
    let parsed = StreamMessage::try_from(message).ok().filter(|_| is_plain);
    match parsed {
        Some(parsed) => Stored {
            sequence,
            stored_ns,
            subject,
            headers: Some(parsed.headers),
            payload: parsed.payload,
            is_spoiled: false,
        },
        None => Stored {
            sequence,
            stored_ns,
            subject,
            headers: None,
            payload: Bytes::new(),
            is_spoiled: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(headers: Option<&[u8]>) -> Stored {
        let mut message = json!({
            "subject": "my.h.~.a",
            "seq": 7,
            "data": BASE64.encode("1"),
            "time": "2026-11-22T10:00:00.000000005Z",
        });
        if let Some(headers) = headers {
            message["hdrs"] = BASE64.encode(headers).into();
        }
        read(serde_json::from_value(message).unwrap())
    }

    #[test]
    fn a_message_is_read_whatever_its_headers_are() {
        for (headers, is_spoiled) in [
            (None, false),
            (Some(&b"NATS/1.0\r\nA: b\r\n\r\n"[..]), false),
            (Some(&b"NATS/1.0\r\nName: \xe9\r\n\r\n"[..]), true),
            (Some(&b"NATS/1.0 503\r\n\r\n"[..]), true),
            (Some(&b"NATS/1.0\r\nno colon\r\n\r\n"[..]), true),
            (Some(&b"HTTP/1.1\r\n\r\n"[..]), true),
        ] {
            let stored = stored(headers);
            assert_eq!(stored.is_spoiled, is_spoiled, "{headers:?}");
            assert_eq!((stored.sequence, &*stored.subject), (7, "my.h.~.a"));
            assert_eq!(stored.stored_ns % 1_000_000_000, 5);
            assert!(is_spoiled || *stored.payload == *b"1");
        }
    }
}
