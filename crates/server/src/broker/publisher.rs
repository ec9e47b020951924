//! Takes publications from shards and from the API to NATS.

use super::answers::Waiter;
use super::counts::Outcome;
use super::link::{Link, Log};
use super::reader::answer;
use crate::mailbox::Letters;
use async_nats::header::{HeaderMap, HeaderValue, NATS_ROLLUP};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use myriad_broker::{Envelope, Line, Origin};
use myriad_shard::{
    BrokerTask, Mesh, NotPublished, Permit, Position, RequestId, Submission, Ticket,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

/// How long a publisher waits for the broker. The API and clients wait for 4 s.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(3_500);
/// One attempt of it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Between two attempts: JetStream has no leader, or is still storing the first.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// Publications under way at once.
const UNDER_WAY_MAX: usize = 4_096;
/// How often publishers are looked at that have waited too long.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A publication on its way to its stream.
struct Pending {
    log: Arc<Log>,
    subject: String,
    message: PublishMessage,
    waiter: Option<Waiter>,
    deadline: Instant,
    /// Released when the stream has it.
    _permit: Option<Permit>,
}

/// What became of one.
struct Ended {
    channel: Box<str>,
    log: Arc<Log>,
    waiter: Option<Waiter>,
    stored: Result<u64, Outcome>,
}

/// Publishes until the server ends.
pub(super) async fn run(link: Arc<Link>, mesh: Mesh, mut letters: Letters<BrokerTask>) {
    let mut publisher = Publisher {
        line: Line::new(UNDER_WAY_MAX),
        serial: 0,
        link,
        mesh,
    };
    let mut under_way = FuturesUnordered::new();
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        while let Some((channel, pending)) = publisher.line.poll() {
            under_way.push(store(Arc::clone(&publisher.link), channel, pending));
        }
        tokio::select! {
            Some(ended) = under_way.next(), if !under_way.is_empty() => publisher.handle_ended(ended),
            tasks = letters.next() => match tasks {
                Ok(tasks) => {
                    for task in tasks {
                        publisher.handle_task(task).await;
                    }
                }
                Err(error) => {
                    tracing::error!("publications cannot be taken to the broker: {error}");
                    return;
                }
            },
            _ = checks.tick() => publisher.check(),
        }
    }
}

struct Publisher {
    link: Arc<Link>,
    mesh: Mesh,
    line: Line<Pending>,
    /// Of the last message.
    serial: u64,
}

impl Publisher {
    async fn handle_task(&mut self, task: BrokerTask) {
        match task {
            BrokerTask::Publish(submission) => self.handle_submission(submission).await,
            BrokerTask::RemoveHistory { channel, id } => self.remove_history(&channel, id),
        }
    }

    async fn handle_submission(&mut self, submission: Submission) {
        if !self.link.is_connected() {
            // What the client library would keep for later would come when nobody counts on it any more.
            return self.refuse(submission.asker.map(Waiter::Publisher));
        }
        let origin = self.next_origin(submission.sender);
        match self.log_of(&submission.channel) {
            Some(log) if !submission.skip_history => self.store(submission, log, origin),
            _ => self.publish_live(submission, origin).await,
        }
    }

    /// Stores a message that takes the place of all others of its channel.
    fn remove_history(&mut self, channel: &str, id: RequestId) {
        let waiter = Waiter::Remover(id);
        let Some(log) = self.log_of(channel) else {
            // There is no history.
            return self.mesh.answer_remover(id, true);
        };
        if !self.link.is_connected() {
            return self.refuse(Some(waiter));
        }
        let removal = Envelope::removal(self.next_origin(None));
        self.enqueue(channel, log, &removal, None, Some(waiter), None);
    }

    fn next_origin(&mut self, sender: Option<Ticket>) -> Origin {
        self.serial += 1;
        Origin {
            node: self.link.node.as_str().into(),
            serial: self.serial,
            sender,
        }
    }

    fn log_of(&self, channel: &str) -> Option<Arc<Log>> {
        self.link.log_of(channel).cloned()
    }

    /// Puts a publication in the line to its stream.
    fn store(&mut self, submission: Submission, log: Arc<Log>, origin: Origin) {
        let Submission {
            channel,
            content,
            permit,
            asker,
            idempotency_key,
            delta,
            version,
            version_epoch,
            ..
        } = submission;
        let envelope = Envelope {
            content: Some(content),
            delta,
            version: (version, version_epoch),
            // JetStream remembers it, by the message's id.
            key: None,
            origin: Some(origin),
        };
        let key = idempotency_key.as_deref();
        let waiter = asker.map(Waiter::Publisher);
        self.enqueue(&channel, log, &envelope, key, waiter, Some(permit));
    }

    /// Puts the message that was numbered last in the line to its stream.
    fn enqueue(
        &mut self,
        channel: &str,
        log: Arc<Log>,
        envelope: &Envelope,
        key: Option<&str>,
        waiter: Option<Waiter>,
        permit: Option<Permit>,
    ) {
        let subject = self.link.subjects.stored(&log.class, channel);
        let id = match key {
            Some(key) => message_id(&subject, key),
            None => format!("{}:{}", self.link.node, self.serial),
        };
        let mut headers = headers(envelope);
        if envelope.content.is_none() {
            headers.insert(NATS_ROLLUP, "sub");
        }
        let message = PublishMessage::build()
            .headers(headers)
            .message_id(id)
            .payload(Bytes::copy_from_slice(envelope.data()));
        let pending = Pending {
            log,
            subject,
            message,
            waiter,
            deadline: Instant::now() + PUBLISH_TIMEOUT,
            _permit: permit,
        };
        self.line.push(channel, pending);
    }

    /// Publishes what no history keeps.
    async fn publish_live(&self, submission: Submission, origin: Origin) {
        let subject = self.link.subjects.live(&submission.channel);
        let envelope = Envelope {
            content: Some(submission.content),
            delta: submission.delta,
            version: (submission.version, submission.version_epoch),
            key: submission.idempotency_key,
            origin: Some(origin),
        };
        let data = Bytes::copy_from_slice(envelope.data());
        let client = &self.link.client;
        let sent = client.publish_with_headers(subject, headers(&envelope), data);
        let deadline = Instant::now() + PUBLISH_TIMEOUT;
        if !matches!(timeout_at(deadline, sent).await, Ok(Ok(()))) {
            return self.refuse(submission.asker.map(Waiter::Publisher));
        }
        self.count(Outcome::Sent);
        if let Some(asker) = submission.asker {
            let epoch = self.mesh.epoch();
            let position = Position { epoch, offset: 0 };
            self.mesh.answer_publisher(asker, Ok(position));
        }
    }

    fn handle_ended(&mut self, ended: Ended) {
        let Ended {
            channel,
            log,
            waiter,
            stored,
        } = ended;
        self.line.end(&channel);
        match (stored, waiter) {
            (Ok(sequence), waiter) => {
                self.count(Outcome::Stored);
                let waiter = waiter.and_then(|one| log.wait(sequence, one, Instant::now()));
                let read = waiter.map(|waiter| (sequence, waiter));
                answer(&self.mesh, &log, read.into_iter().collect());
            }
            (Err(outcome), waiter) => self.fail(outcome, waiter),
        }
    }

    /// Answers those who have waited long enough, and refuses all that wait while there is no connection.
    fn check(&mut self) {
        let now = Instant::now();
        let counts = &self.link.state.counts;
        counts.set_under_way(self.line.under_way());
        for log in &self.link.logs {
            answer(&self.mesh, log, log.take_overdue(now));
        }
        if !self.link.is_connected() {
            for pending in self.line.take_waiting() {
                self.refuse(pending.waiter);
            }
        }
    }

    fn count(&self, outcome: Outcome) {
        self.link.state.counts.count(outcome);
    }

    fn refuse(&self, waiter: Option<Waiter>) {
        self.fail(Outcome::Unavailable, waiter);
    }

    fn fail(&self, outcome: Outcome, waiter: Option<Waiter>) {
        self.count(outcome);
        match waiter {
            Some(Waiter::Publisher(asker)) => {
                let unavailable = Err(NotPublished::Unavailable);
                self.mesh.answer_publisher(asker, unavailable);
            }
            Some(Waiter::Remover(id)) => self.mesh.answer_remover(id, false),
            None => {}
        }
    }
}

/// Stores a publication, again and again with the same id until its deadline.
async fn store(link: Arc<Link>, channel: Box<str>, pending: Pending) -> Ended {
    let Pending {
        log,
        subject,
        message,
        waiter,
        deadline,
        _permit,
    } = pending;
    let before = log.read_up_to();
    let stored = loop {
        let now = Instant::now();
        if now >= deadline {
            break Err(Outcome::Unavailable);
        }
        let attempt = async {
            let sent = link.publishing.send_publish(subject.clone(), message.clone());
            sent.await?.await
        };
        let until = deadline.min(now + ATTEMPT_TIMEOUT);
        match timeout_at(until, attempt).await {
            Ok(Ok(ack)) => {
                if !ack.duplicate {
                    log.note_stored(ack.sequence, before);
                }
                break Ok(ack.sequence);
            }
            Ok(Err(error)) if !is_temporary(&error) => {
                tracing::warn!("a publication in channel {channel:?} was refused by NATS: {error}");
                break Err(Outcome::Refused);
            }
            Ok(Err(_)) => sleep_until(deadline.min(now + ATTEMPT_PAUSE)).await,
            Err(_) => {}
        }
    };
    Ended {
        channel,
        log,
        waiter,
        stored,
    }
}

/// Whether the same message may be stored a moment later: without a leader JetStream does not answer, and says 503 or 10158 in between.
fn is_temporary(error: &PublishError) -> bool {
    !matches!(
        error.kind(),
        PublishErrorKind::MaxPayloadExceeded
            | PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::WrongLastSequence
    )
}

/// Two publications of one channel with one key are one to JetStream.
fn message_id(subject: &str, key: &str) -> String {
    // Header values are ASCII without spaces at their ends, whatever the key is.
    let key: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{subject} {key}")
}

fn headers(envelope: &Envelope) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in envelope.headers() {
        let value: HeaderValue = value.as_str().into();
        headers.insert(name, value);
    }
    headers
}
