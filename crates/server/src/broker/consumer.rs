//! The messages of a stream in their order, from a place on.
//!
//! By a push consumer whose messages are counted: a message that is lost on its way leaves a hole in the count, and a heartbeat of the
//! consumer says how many there were. The client library has such a consumer, which begins again by itself. Ours ends instead: whoever opens
//! the log again looks at what the stream has become meanwhile. And a stored message counts whatever its headers say. The library takes one
//! with a status for a message about the consumer, and begins again without end; one that it cannot parse ends its connection.
//!
//! It has a connection of its own, which a task reads ([`Pump`]), so that pings are answered while the owner waits for room. The server
//! sends a part of the stream, and waits until the owner has read that (flow control): this bounds what waits here.

use super::direct::{own_headers, status_of};
use super::servers::{Feed, FeedError, Stored};
use async_nats::Subject;
use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::consumer::{DeliverPolicy, Info, IntoConsumerConfig as _};
use async_nats::jetstream::response::Response;
use bytes::Bytes;
use myriad_nats::raw::{Headers, RawConnection, RawError, RawMessage, Sid};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout_at};

/// How reply subjects of stored messages begin. They say where a message stands ([`Delivery`]).
const ACK_PREFIX: &str = "$JS.ACK.";
/// How subjects begin by which a server asks how much has been read.
const FLOW_PREFIX: &str = "$JS.FC.";
/// The status of a heartbeat, and of a question how much has been read.
const HEARTBEAT: u16 = 100;
/// Bytes that wait for the owner. By flow control the server sends 32 MiB at most before it waits. It does not count the subjects of
/// messages, which may have 765 bytes each.
const QUEUE_BYTES_MAX: usize = 128 << 20;
/// How long a server may take to answer that there is a consumer, before it is asked again. Without a leader nobody answers, and a request
/// that was on its way to a leader that has gone is lost.
const CREATE_PATIENCE: Duration = Duration::from_millis(1_500);
/// How soon a server is asked again that has said that it cannot make one now.
const CREATE_PAUSE: Duration = Duration::from_millis(250);
/// How long it is asked. An election takes 4 to 9 s.
const CREATE_TIMEOUT: Duration = Duration::from_secs(12);
/// How often it is looked whether there is room again.
const ROOM_PAUSE: Duration = Duration::from_millis(10);
/// Messages that are handed over at once, if so many have come.
const BATCH_MAX: usize = 256;

type Batch = Result<Vec<RawMessage>, FeedError>;

/// A stream's messages as they come by a consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    batches: UnboundedReceiver<Batch>,
    batch: vec::IntoIter<RawMessage>,
    /// What is to be published by the connection.
    outgoing: UnboundedSender<Outgoing>,
    /// The question for the consumer. It names the consumer, so that it may be asked again.
    question: Outgoing,
    waiting_bytes: Arc<AtomicUsize>,
    /// The subscription to the answer that there is a consumer.
    created_sid: Sid,
    /// Messages of the consumer so far.
    count: u64,
    /// The last place that came, or the one before the first.
    sequence: u64,
    heard: Instant,
}

impl Consumer {
    /// Asks for a consumer that begins at a place, named as its inbox. Whether there is one, [`Consumer::created`] tells, or the first
    /// message does.
    pub(super) fn open(mut connection: RawConnection, stream: &str, first: u64) -> Self {
        let (messages, created) = (connection.new_inbox(), connection.new_inbox());
        connection.subscribe(&messages);
        let name = messages.rsplit('.').next().unwrap_or_default().to_owned();
        let subject = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
        let config = OrderedConfig {
            deliver_subject: messages,
            name: Some(name),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: first,
            },
            // It goes by itself 30 s after its subscription.
            ..OrderedConfig::default()
        };
        let config = config.into_consumer_config();
        let config = json!({ "stream_name": stream, "config": config });
        let created_sid = connection.subscribe(&created);
        let question = Outgoing {
            subject: subject.into(),
            reply: Some(created),
            payload: config.to_string().into(),
        };
        question.publish(&mut connection);
        let (handed, batches) = unbounded_channel();
        let (outgoing, to_publish) = unbounded_channel();
        let waiting_bytes = Arc::default();
        let pump = Pump {
            connection,
            batches: handed,
            outgoing: to_publish,
            waiting_bytes: Arc::clone(&waiting_bytes),
        };
        tokio::spawn(pump.run());
        Self {
            batches,
            batch: Vec::new().into_iter(),
            outgoing,
            question,
            waiting_bytes,
            created_sid,
            count: 0,
            sequence: first - 1,
            heard: Instant::now(),
        }
    }

    /// Waits until there is a consumer, and asks again for one that does not come.
    ///
    /// # Errors
    /// The server does not let us, or nobody answers.
    pub(super) async fn created(&mut self) -> Result<(), FeedError> {
        let deadline = Instant::now() + CREATE_TIMEOUT;
        let mut again = Instant::now() + CREATE_PATIENCE;
        let mut last = NotMade::Later(FeedError::make(&"there is no answer"));
        let mut early = Vec::new();
        loop {
            let Ok(batch) = timeout_at(again.min(deadline), self.batches.recv()).await else {
                if Instant::now() >= deadline {
                    return Err(last.into());
                }
                // If the task has ended, the next batch says why.
                let _ = self.outgoing.send(self.question.clone());
                again = Instant::now() + CREATE_PATIENCE;
                continue;
            };
            let mut is_made = false;
            for message in batch.unwrap_or(Err(FeedError::Cut))? {
                if message.sid != self.created_sid {
                    early.push(message);
                    continue;
                }
                self.note_taken(&message);
                match made(&message) {
                    Ok(()) => is_made = true,
                    Err(NotMade::Later(why)) => {
                        last = NotMade::Later(why);
                        again = Instant::now() + CREATE_PAUSE;
                    }
                    Err(NotMade::Never(why)) => return Err(why),
                }
            }
            if is_made {
                self.batch = early.into_iter();
                self.heard = Instant::now();
                return Ok(());
            }
        }
    }

    /// A message does not wait any more.
    fn note_taken(&self, message: &RawMessage) {
        self.waiting_bytes
            .fetch_sub(bytes_of(message), Ordering::Relaxed);
    }

    fn take(&mut self, message: RawMessage) -> Result<Option<Stored>, FeedError> {
        self.heard = Instant::now();
        if message.sid == self.created_sid {
            return Ok(made(&message).map(|()| None)?);
        }
        let reply = message.reply.as_deref().unwrap_or_default();
        if let Some(words) = reply.strip_prefix(ACK_PREFIX) {
            let delivery = Delivery::parse(words);
            let delivery = delivery.ok_or_else(|| {
                FeedError::Ended(format!("a message says {reply:?} of its place"))
            })?;
            return self.take_stored(delivery, message).map(Some);
        }
        let block = message.headers.as_deref().unwrap_or_default();
        match status_of(block) {
            Some(HEARTBEAT) => self.handle_heartbeat(&message).map(|()| None),
            Some(_) => {
                let line = block.split(|byte| *byte == b'\r').next();
                let line = String::from_utf8_lossy(line.unwrap_or_default());
                Err(FeedError::Ended(line.into_owned()))
            }
            // Somebody has guessed our inbox.
            None => Ok(None),
        }
    }

    fn take_stored(
        &mut self,
        delivery: Delivery,
        message: RawMessage,
    ) -> Result<Stored, FeedError> {
        let Delivery {
            sequence,
            count,
            stored_ns,
        } = delivery;
        if count != self.count + 1 {
            return Err(FeedError::Hole);
        }
        if sequence <= self.sequence {
            return Err(FeedError::Back);
        }
        (self.count, self.sequence) = (count, sequence);
        let headers = message.headers.map(|block| Headers::parse(&block));
        Ok(Stored {
            sequence,
            stored_ns,
            subject: message.subject,
            is_spoiled: matches!(headers, Some(None)),
            headers: headers.flatten(),
            payload: message.payload,
        })
    }

    /// The consumer says how many messages it has sent, or asks whether they were read.
    fn handle_heartbeat(&self, message: &RawMessage) -> Result<(), FeedError> {
        // `Headers::parse` refuses a block with a status.
        let headers = own_headers(message.headers.as_deref().unwrap_or_default());
        if let Some(count) = headers.last("Nats-Last-Consumer")
            && count.parse() != Ok(self.count)
        {
            return Err(FeedError::Hole);
        }
        // The server waits for an answer to one of these before it sends more. If the answer is lost, it asks again.
        let stalled = || headers.last("Nats-Consumer-Stalled").map(Subject::from);
        let asked = message.reply.clone().or_else(stalled);
        // Whoever has guessed our inbox must not have us publish anywhere.
        if let Some(subject) = asked.filter(|subject| is_flow_reply(subject)) {
            // If the task has ended, the next batch says why.
            let _ = self.outgoing.send(Outgoing {
                subject,
                reply: None,
                payload: Bytes::new(),
            });
        }
        Ok(())
    }
}

impl Feed for Consumer {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Stored, FeedError>> {
        loop {
            while let Some(message) = self.batch.next() {
                self.note_taken(&message);
                if let Some(stored) = self.take(message)? {
                    return Poll::Ready(Ok(stored));
                }
            }
            let batch = ready!(self.batches.poll_recv(context));
            self.batch = batch.unwrap_or(Err(FeedError::Cut))?.into_iter();
        }
    }

    fn heard(&self) -> Instant {
        self.heard
    }
}

/// A message to be published.
#[derive(Clone, Debug)]
struct Outgoing {
    subject: Subject,
    reply: Option<String>,
    payload: Bytes,
}

impl Outgoing {
    fn publish(&self, connection: &mut RawConnection) {
        connection.publish(&self.subject, self.reply.as_deref(), &self.payload);
    }
}

/// Reads a connection until it is lost, or nobody takes what it reads.
struct Pump {
    connection: RawConnection,
    batches: UnboundedSender<Batch>,
    outgoing: UnboundedReceiver<Outgoing>,
    waiting_bytes: Arc<AtomicUsize>,
}

impl Pump {
    async fn run(mut self) {
        loop {
            let has_room = self.waiting_bytes.load(Ordering::Relaxed) < QUEUE_BYTES_MAX;
            tokio::select! {
                // In an order that is always the same: each reply was asked for by a message, and messages may come without end.
                biased;
                outgoing = self.outgoing.recv() => match outgoing {
                    Some(outgoing) => outgoing.publish(&mut self.connection),
                    None => return,
                },
                first = self.connection.next(), if has_room => {
                    let (batch, error) = self.take_batch(first);
                    let bytes = batch.iter().map(bytes_of).sum();
                    self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
                    if self.batches.send(Ok(batch)).is_err() {
                        return;
                    }
                    if let Some(error) = error {
                        let _ = self.batches.send(Err(error));
                        return;
                    }
                }
                () = sleep(ROOM_PAUSE), if !has_room => {}
            }
        }
    }

    /// What has come, and why nothing comes any more.
    fn take_batch(
        &mut self,
        first: Result<RawMessage, RawError>,
    ) -> (Vec<RawMessage>, Option<FeedError>) {
        let (mut batch, mut next) = (Vec::new(), first.map(Some));
        loop {
            match next {
                Ok(Some(message)) => batch.push(message),
                Ok(None) => return (batch, None),
                Err(error) => return (batch, Some(FeedError::Ended(error.to_string()))),
            }
            if batch.len() == BATCH_MAX {
                return (batch, None);
            }
            next = self.connection.next_now();
        }
    }
}

fn bytes_of(message: &RawMessage) -> usize {
    let headers = message.headers.as_ref().map_or(0, |block| block.len());
    size_of::<RawMessage>() + message.subject.len() + headers + message.payload.len()
}

/// Whether a server asks by it how much has been read.
fn is_flow_reply(subject: &str) -> bool {
    subject.starts_with(FLOW_PREFIX) && subject.bytes().all(|byte| byte > b' ')
}

/// Why there is no consumer.
#[derive(Debug)]
enum NotMade {
    /// Servers have no leader, or are too busy.
    Later(FeedError),
    Never(FeedError),
}

impl From<NotMade> for FeedError {
    fn from(not_made: NotMade) -> Self {
        match not_made {
            NotMade::Later(why) | NotMade::Never(why) => why,
        }
    }
}

/// Whether there is a consumer now.
fn made(answer: &RawMessage) -> Result<(), NotMade> {
    let block = answer.headers.as_deref().unwrap_or_default();
    if let Some(status) = status_of(block) {
        let why = FeedError::make(&format_args!("status {status}"));
        return Err(NotMade::Later(why));
    }
    let answer: Result<Response<Info>, _> = serde_json::from_slice(&answer.payload);
    match answer {
        Ok(Response::Ok(_)) => Ok(()),
        Ok(Response::Err { error }) if error.code() >= 500 => {
            Err(NotMade::Later(FeedError::make(&error)))
        }
        Ok(Response::Err { error }) => Err(NotMade::Never(FeedError::make(&error))),
        Err(error) => Err(NotMade::Never(FeedError::make(&error))),
    }
}

/// Where a message stands in the stream and among those of its consumer.
#[derive(Debug, PartialEq, Eq)]
struct Delivery {
    sequence: u64,
    count: u64,
    stored_ns: i128,
}

impl Delivery {
    /// Reads the words behind [`ACK_PREFIX`]: stream, consumer, attempts, place, count, time in ns, messages left. Where accounts share
    /// streams, a domain and an account come first, and perhaps more last (ADR-15 of NATS).
    fn parse(words: &str) -> Option<Self> {
        let before = match words.split('.').count() {
            7 => 3,
            9.. => 5,
            _ => return None,
        };
        let mut words = words.split('.').skip(before);
        Some(Self {
            sequence: words.next()?.parse().ok()?,
            count: words.next()?.parse().ok()?,
            stored_ns: words.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests;
