//! Takes publications from shards and from the API to NATS.

use super::answers::Waiter;
use super::beat::{LastBeat, StoredBeats};
use super::counts::Outcome;
use super::hearing::Said;
use super::homes::Homes;
use super::link::{Link, Log};
use super::pause::Pause;
use super::reader::{answer, answer_in};
use super::servers::{ToStore, Way};
use super::store::{self, Order, Pending};
use crate::hex::hex;
use crate::mailbox::Letters;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use myriad_broker::{Envelope, Line, Origin};
use myriad_shard::{BrokerTask, NotPublished, Permit, Position, RequestId, Submission, Ticket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

/// How long a publication may take to be stored and read. The API and clients wait for 4 s: that leaves time for a check, and to look for
/// an epoch.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(3_300);
/// A publication that is stored is acknowledged after this time, or at its deadline, even if this node has not read it: that it is stored is
/// the promise.
const READ_PATIENCE: Duration = Duration::from_secs(1);
/// Publications under way to one stream at once, and of those that no history keeps. Each stream has its own: one without a leader
/// holds up no other.
const UNDER_WAY_MAX: usize = 1_024;
/// How often publishers are looked at that have waited too long.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the epoch of a publication is looked for that this node has not read in time. A server answers in some milliseconds.
const LOOK_TIMEOUT: Duration = Duration::from_millis(400);
const _: () = {
    let latest =
        PUBLISH_TIMEOUT.as_millis() + CHECK_INTERVAL.as_millis() + LOOK_TIMEOUT.as_millis();
    assert!(latest < 4_000, "the API and clients still wait");
};

/// A publication that no history keeps, on its way.
struct Live {
    subject: String,
    envelope: Envelope,
    waiter: Option<Waiter>,
    deadline: Instant,
    /// Released when it has left.
    _permit: Permit,
}

/// What became of a publication.
enum Ended {
    Stored {
        channel: Box<str>,
        log: Arc<Log>,
        waiter: Option<Waiter>,
        deadline: Instant,
        stored: Result<u64, Outcome>,
    },
    Sent {
        channel: Box<str>,
        waiter: Option<Waiter>,
        is_sent: bool,
    },
    /// The epoch was looked for of messages that this node has not read in time.
    Looked {
        log: Arc<Log>,
        stored: Vec<(u64, Waiter)>,
        /// None if there is no answer.
        last: Option<LastBeat>,
    },
}

type UnderWay = FuturesUnordered<BoxFuture<'static, Ended>>;

/// Publishes, until the node ends and has nothing to publish any more.
pub(super) async fn run(link: Arc<Link>, homes: Arc<dyn Homes>, mut letters: Letters<BrokerTask>) {
    let mut publisher = Publisher {
        lines: link.logs.iter().map(|_| Line::new(UNDER_WAY_MAX)).collect(),
        live: Line::new(UNDER_WAY_MAX),
        serial: 0,
        pause: Pause::new(),
        link,
        homes,
    };
    let state = Arc::clone(&publisher.link.state);
    let mut is_finishing = false;
    let mut under_way = UnderWay::new();
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        publisher.send_waiting(&under_way);
        if is_finishing && publisher.is_idle() && under_way.is_empty() {
            return;
        }
        tokio::select! {
            // In an order that is always the same. Nothing starves: checks come by time, and each task and each end is one publication.
            biased;
            _ = checks.tick() => publisher.check(&under_way),
            Some(ended) = under_way.next(), if !under_way.is_empty() => publisher.handle_ended(ended),
            tasks = letters.next() => match tasks {
                Ok(tasks) => {
                    for task in tasks {
                        publisher.handle_task(task);
                    }
                }
                Err(error) => {
                    tracing::error!("publications cannot be taken to the broker: {error}");
                    return;
                }
            },
            () = state.finish.notified(), if !is_finishing => {
                is_finishing = true;
                for task in letters.take() {
                    publisher.handle_task(task);
                }
            }
        }
    }
}

struct Publisher {
    link: Arc<Link>,
    homes: Arc<dyn Homes>,
    /// By log.
    lines: Box<[Line<Pending>]>,
    live: Line<Live>,
    /// Of the last message.
    serial: u64,
    pause: Pause,
}

impl Publisher {
    /// Sends what may leave now.
    fn send_waiting(&mut self, under_way: &UnderWay) {
        for line in self.lines.iter_mut() {
            while let Some((channel, pending)) = line.poll() {
                let link = Arc::clone(&self.link);
                under_way.push(Box::pin(async move {
                    let stored = store::store(&link, &channel, &pending).await;
                    let Pending {
                        log,
                        waiter,
                        deadline,
                        ..
                    } = pending;
                    Ended::Stored {
                        channel,
                        log,
                        waiter,
                        deadline,
                        stored,
                    }
                }));
            }
        }
        while let Some((channel, live)) = self.live.poll() {
            let link = Arc::clone(&self.link);
            under_way.push(Box::pin(send(link, channel, live)));
        }
    }

    /// Whether every publication has come to its end.
    fn is_idle(&self) -> bool {
        self.live.is_empty() && self.lines.iter().all(Line::is_empty)
    }

    fn handle_task(&mut self, task: BrokerTask) {
        match task {
            BrokerTask::Publish(submission) => self.handle_submission(submission),
            BrokerTask::RemoveHistory { channel, id } => self.remove_history(&channel, id),
            BrokerTask::Tell(told) => self.link.servers.tell(told),
            BrokerTask::Wish(wish) => {
                if let Some(log) = self.link.log_of(&wish.channel) {
                    log.wish(wish);
                }
            }
        }
    }

    fn handle_submission(&mut self, submission: Submission) {
        if submission.idempotency_key.is_some() && self.pause.may_be_old(Instant::now()) {
            return self.refuse(submission.asker.map(Waiter::Publisher));
        }
        let log = self.log_of(&submission.channel);
        let log = log.filter(|_| !submission.skip_history);
        let servers = &self.link.servers;
        let can_leave = match log {
            Some(_) => servers.can_store(),
            // What the client library would keep for later would come when nobody counts on it any more.
            None => servers.can_send(),
        };
        if !can_leave {
            return self.refuse(submission.asker.map(Waiter::Publisher));
        }
        let origin = self.next_origin(submission.sender);
        match log {
            Some(log) => self.store(submission, log, origin),
            None => self.publish_live(submission, origin),
        }
    }

    /// Stores a message that takes the place of all others of its channel.
    fn remove_history(&mut self, channel: &str, id: RequestId) {
        let waiter = Waiter::Remover(id);
        let Some(log) = self.log_of(channel) else {
            // There is no history.
            return self.homes.answer_remover(id, true);
        };
        if !self.link.servers.can_store() {
            return self.refuse(Some(waiter));
        }
        let removal = Envelope::removal(self.next_origin(None));
        self.enqueue(channel, log, removal, None, Some(waiter), None);
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
            behind: None,
            // JetStream remembers it, by the message's id.
            key: None,
            origin: Some(origin),
        };
        let key = idempotency_key.as_deref();
        let waiter = asker.map(Waiter::Publisher);
        self.enqueue(&channel, log, envelope, key, waiter, Some(permit));
    }

    /// Puts the message that was numbered last in the line to its stream.
    fn enqueue(
        &mut self,
        channel: &str,
        log: Arc<Log>,
        envelope: Envelope,
        key: Option<&str>,
        waiter: Option<Waiter>,
        permit: Option<Permit>,
    ) {
        let subject = self.link.subjects.stored(&log.class, channel);
        let id = match key {
            Some(key) => message_id(&subject, key),
            None => format!("{}:{}", self.link.node, self.serial),
        };
        let order = match &envelope {
            Envelope { content: None, .. } => Order::Removal,
            Envelope { version, .. } if version.0 > 0 => Order::Versioned,
            _ => Order::Any,
        };
        let line = usize::from(log.id.0);
        let pending = Pending {
            log,
            subject,
            envelope,
            id,
            shares_id: key.is_some(),
            order,
            waiter,
            deadline: Instant::now() + PUBLISH_TIMEOUT,
            _permit: permit,
        };
        self.lines[line].push(channel, pending);
    }

    /// Puts what no history keeps in the line of its channel.
    fn publish_live(&mut self, submission: Submission, origin: Origin) {
        let envelope = Envelope {
            content: Some(submission.content),
            delta: submission.delta,
            version: (submission.version, submission.version_epoch),
            behind: None,
            key: submission.idempotency_key,
            origin: Some(origin),
        };
        let live = Live {
            subject: self.link.subjects.live(&submission.channel),
            envelope,
            waiter: submission.asker.map(Waiter::Publisher),
            deadline: Instant::now() + PUBLISH_TIMEOUT,
            _permit: submission.permit,
        };
        self.live.push(&submission.channel, live);
    }

    fn handle_ended(&mut self, ended: Ended) {
        match ended {
            Ended::Stored {
                channel,
                log,
                waiter,
                deadline,
                stored,
            } => {
                self.lines[usize::from(log.id.0)].end(&channel);
                match stored {
                    Ok(sequence) => {
                        self.count(Outcome::Stored);
                        let reads_channel =
                            !self.link.interest.keeps_only_wanted() || log.hears(&channel);
                        let until = deadline.min(Instant::now() + READ_PATIENCE);
                        let read = waiter
                            .and_then(|waiter| log.wait(sequence, waiter, reads_channel, until))
                            .map(|waiter| (sequence, waiter));
                        answer(&*self.homes, &log, read.into_iter().collect());
                    }
                    Err(outcome) => self.fail(outcome, waiter),
                }
            }
            Ended::Sent {
                channel,
                waiter,
                is_sent,
            } => {
                self.live.end(&channel);
                if !is_sent {
                    return self.refuse(waiter);
                }
                self.count(Outcome::Sent);
                if let Some(Waiter::Publisher(asker)) = waiter {
                    let epoch = self.homes.epoch();
                    let position = Position { epoch, offset: 0 };
                    self.homes.answer_publisher(asker, Ok(position));
                }
            }
            Ended::Looked { log, stored, last } => {
                answer_in(&*self.homes, stored, |sequence| {
                    if log.is_suspect() {
                        return None;
                    }
                    // Without a beat the epoch that is known may be over. Whoever recovers from there is told so.
                    let beat = last.filter(|beat| beat.since < sequence);
                    let epoch = beat.and_then(|beat| beat.epoch);
                    epoch.or_else(|| log.epoch_of(sequence))
                });
            }
        }
    }

    /// Answers those who have waited long enough, and refuses all that wait while there is no connection.
    fn check(&mut self, under_way: &UnderWay) {
        let now = Instant::now();
        self.pause.note(now);
        self.say_whether_it_hears();
        let servers = &self.link.servers;
        let (can_store, can_send) = (servers.can_store(), servers.can_send());
        let counts = &self.link.state.counts;
        counts.set_connected(can_store && can_send);
        let mut count = self.live.under_way();
        let live = self.live.take_if(|live| !can_send || live.deadline <= now);
        let mut refused: Vec<_> = live.into_iter().map(|live| live.waiter).collect();
        for (line, log) in self.lines.iter_mut().zip(&self.link.logs) {
            count += line.under_way();
            let stored = log.take_overdue(now);
            if !stored.is_empty() {
                let (link, log) = (Arc::clone(&self.link), Arc::clone(log));
                under_way.push(Box::pin(look_for_epoch(link, log, stored)));
            }
            let stored = line.take_if(|pending| !can_store || pending.deadline <= now);
            refused.extend(stored.into_iter().map(|pending| pending.waiter));
        }
        self.link.state.counts.set_under_way(count);
        for waiter in refused {
            self.refuse(waiter);
        }
    }

    fn say_whether_it_hears(&self) {
        match self.link.state.hearing.take_said() {
            Some(Said::Deaf(stream, duration)) => tracing::warn!(
                "this node hears nothing of stream {stream} for {} s: its clients get nothing new, and /healthz says so",
                duration.as_secs()
            ),
            Some(Said::Hears) => tracing::info!("this node hears all streams again"),
            None => {}
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
                let why = match outcome {
                    Outcome::Refused => NotPublished::Refused,
                    _ => NotPublished::Unavailable,
                };
                self.homes.answer_publisher(asker, Err(why));
            }
            Some(Waiter::Remover(id)) => self.homes.answer_remover(id, false),
            None => {}
        }
    }
}

/// Sends what no history keeps to those who listen now.
async fn send(link: Arc<Link>, channel: Box<str>, live: Live) -> Ended {
    let message = ToStore {
        subject: live.subject,
        headers: live.envelope.headers(),
        payload: Bytes::copy_from_slice(live.envelope.data()),
        ..ToStore::default()
    };
    let servers = &link.servers;
    let sent = timeout_at(live.deadline, servers.send(message)).await;
    let is_sent = servers.can_send() && sent == Ok(true);
    Ended::Sent {
        channel,
        waiter: live.waiter,
        is_sent,
    }
}

/// Looks for the epoch of messages that this node has not read: another node may have given the stream another one before they came.
async fn look_for_epoch(link: Arc<Link>, log: Arc<Log>, stored: Vec<(u64, Waiter)>) -> Ended {
    let subject = link.subjects.beat(&log.class);
    let beats = StoredBeats {
        link: &link,
        log: &log,
        subject: &subject,
    };
    // What this node reads by another connection is late: that one may be why.
    let last = timeout(LOOK_TIMEOUT, beats.last(Way::Publishing)).await;
    let last = last.ok().and_then(Result::ok).flatten();
    Ended::Looked { log, stored, last }
}

/// Two publications of one channel with one key are one to JetStream.
fn message_id(subject: &str, key: &str) -> String {
    // Header values are ASCII without spaces at their ends, whatever the key is.
    format!("{subject} {}", hex(key.as_bytes()))
}
