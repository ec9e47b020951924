//! What the tasks of a broker share: the servers, the logs, and how far this node has read them.

use super::State;
use super::acknowledged::{Acknowledged, Acknowledgements};
use super::answers::{Answers, Waiter};
use super::beat::Mark;
use super::fill_budget::{FILL_BYTES_MAX, FillBudget, FillLimits};
use super::remarks::Remarks;
use super::servers::Servers;
use super::settings::BrokerInterest;
use myriad_broker::{Class, Source, Subjects};
use myriad_nats::NatsError;
use myriad_shard::{ChannelOptions, Epoch, LogId, Mesh, Namespaces, Partitions, Wish};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};

/// How long a server that starts waits for its streams.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const START_PAUSE: Duration = Duration::from_secs(1);
/// What was measured of a log that has been silent for longer says nothing of it: beats come each 10 s.
const RATE_LIFE: Duration = Duration::from_secs(60);
/// Messages of a channel that its stream keeps beyond twice its history. A node that reads late, or starts, must not find that the
/// stream has dropped what it has not read.
pub(super) const SPARE_MESSAGES: usize = 256;

/// Why a server cannot start with its broker.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// There is no connection.
    #[error("{}", advised(.0))]
    Nats(#[from] NatsError),
    /// The servers have no JetStream.
    #[error(
        "NATS answers, but JetStream does not ({0}); start nats-server with -js, or enable it for this account"
    )]
    JetStream(String),
    /// A stream cannot be made now.
    #[error("stream {stream} cannot be made: {why}; {}", cause.advice(*.replicas))]
    NoStream {
        /// Its name.
        stream: String,
        /// What JetStream says.
        why: String,
        /// What that means.
        cause: NoStreamCause,
        /// On how many servers it is wanted.
        replicas: usize,
    },
    /// A stream is none of ours.
    #[error("stream {stream} {why}")]
    Stream {
        /// Its name.
        stream: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// Why a stream cannot be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStreamCause {
    /// No server answers for all, or for the stream.
    NoLeader,
    /// There are fewer servers than the stream wants.
    TooFewServers,
    /// The servers have no room for it.
    NoRoom,
    /// Something else.
    Other,
}

impl NoStreamCause {
    fn advice(self, replicas: usize) -> String {
        match self {
            Self::NoLeader => {
                "JetStream has no leader now: more than half of its servers have to be there, and to reach each other".to_owned()
            }
            Self::TooFewServers => format!(
                "with broker-replicas = {replicas} the NATS cluster needs as many servers with JetStream: start the others"
            ),
            Self::NoRoom => {
                "the NATS servers have no room left: look at their disks, and at max_file_store and the limits of the account".to_owned()
            }
            Self::Other => "look at the log of the NATS servers".to_owned(),
        }
    }
}

/// Why there is no connection, and what to do: most reasons say so themselves.
fn advised(error: &NatsError) -> String {
    match error {
        NatsError::Connect { .. } => {
            format!("{error}; start the NATS servers, or correct broker")
        }
        error => error.to_string(),
    }
}

/// A log, and what is known of it.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) id: LogId,
    pub(super) class: Class,
    pub(super) options: Arc<ChannelOptions>,
    known: Mutex<Known>,
    /// The stream has to republish: this node hears single channels of it.
    needs_republish: AtomicBool,
    /// What homes want of its channels, where they are heard by themselves.
    wishes: UnboundedSender<Wish>,
    wished: Mutex<Option<UnboundedReceiver<Wish>>>,
}

#[derive(Debug, Default)]
struct Known {
    answers: Answers,
    read: ReadUpTo,
    /// Where the epoch began here, and the one before it.
    began: u64,
    former: Option<Epoch>,
    /// Messages of this node that the stream has acknowledged in this epoch.
    acknowledged: Acknowledgements,
    /// The stream is not what this node has read: positions mean nothing until it is opened again.
    is_suspect: bool,
    /// This node hears channels of the stream, and no fault is known.
    is_followed: bool,
    /// An epoch, and where its first beat stands.
    since: Option<(Epoch, u64)>,
    /// Messages a second, as measured last, and when.
    rate: Option<(u64, Instant)>,
    /// The channels that this node hears, where it does not read the log whole.
    heard: HashSet<Arc<str>>,
}

/// How far this node has read a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadUpTo {
    /// None before anything was.
    pub(super) epoch: Option<Epoch>,
    pub(super) position: u64,
}

impl Log {
    fn new(id: LogId, class: Class, options: Arc<ChannelOptions>, needs_republish: bool) -> Self {
        let (wishes, wished) = unbounded_channel();
        Self {
            id,
            class,
            options,
            known: Mutex::default(),
            needs_republish: AtomicBool::new(needs_republish),
            wishes,
            wished: Mutex::new(Some(wished)),
        }
    }

    /// Messages of a channel that its stream keeps at least.
    pub(super) fn kept_min(&self) -> usize {
        2 * self.options.history_size as usize + SPARE_MESSAGES
    }

    /// A home wants something of a channel.
    pub(super) fn wish(&self, wish: Wish) {
        // Without a receiver the server ends.
        let _ = self.wishes.send(wish);
    }

    /// What homes want; to be taken once.
    pub(super) fn take_wishes(&self) -> Option<UnboundedReceiver<Wish>> {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        wished.take()
    }

    /// Whether the stream has to republish: this node hears single channels of it.
    pub(super) fn needs_republish(&self) -> bool {
        self.needs_republish.load(Ordering::Relaxed)
    }

    /// From now on this node hears the log so.
    pub(super) fn note_source(&self, source: Source) {
        let needs_republish = source == Source::Channels;
        self.needs_republish
            .store(needs_republish, Ordering::Relaxed);
    }

    /// The log has so many messages a second.
    pub(super) fn note_rate(&self, rate: u64) {
        self.lock().rate = Some((rate, Instant::now()));
    }

    /// Messages a second; 0 if they were not measured of late.
    fn rate(&self) -> u64 {
        let fresh = self.lock().rate.filter(|(_, at)| at.elapsed() < RATE_LIFE);
        fresh.map_or(0, |(rate, _)| rate)
    }

    /// This node hears a channel, or no more.
    pub(super) fn note_heard(&self, channel: &Arc<str>, is_heard: bool) {
        let mut known = self.lock();
        if is_heard {
            known.heard.insert(Arc::clone(channel));
        } else {
            known.heard.remove(channel);
        }
    }

    /// Whether this node hears a channel.
    pub(super) fn hears(&self, channel: &str) -> bool {
        self.lock().heard.contains(channel)
    }

    /// A publication is stored there: gives the waiter back if it may be answered now. A node that reads the channel has read it then. One
    /// that does not read the channel hears the stream's beats, as far as it knows. Any other waits, at most until `until`.
    pub(super) fn wait(
        &self,
        sequence: u64,
        waiter: Waiter,
        reads_channel: bool,
        until: Instant,
    ) -> Option<Waiter> {
        let mut known = self.lock();
        let has_read = known.read.position >= sequence || (!reads_channel && known.is_followed);
        if has_read && !known.is_suspect {
            return Some(waiter);
        }
        known.answers.wait(sequence, waiter, until);
        None
    }

    /// Notes how far this node has read, in an epoch that began there, and takes those who waited for that.
    pub(super) fn note_read(&self, read: ReadUpTo, began: u64) -> Vec<(u64, Waiter)> {
        let mut known = self.lock();
        let is_new_epoch = known.read.epoch != read.epoch;
        if known.is_suspect && !is_new_epoch {
            return Vec::new();
        }
        if is_new_epoch {
            // Another node has told of the loss already.
            known.is_suspect = false;
            known.former = known.read.epoch;
            known.began = began;
            known.acknowledged = Acknowledgements::default();
        }
        known.read = read;
        known.answers.take_read(read.position)
    }

    pub(super) fn take_overdue(&self, now: Instant) -> Vec<(u64, Waiter)> {
        self.lock().answers.take_overdue(now)
    }

    /// The epoch of a place; none while that is not known.
    pub(super) fn epoch_of(&self, sequence: u64) -> Option<Epoch> {
        let known = self.lock();
        let since = known.since.filter(|(of, _)| known.read.epoch == Some(*of));
        let began = match known.began {
            // All of it was read anew.
            0 => since.map_or(0, |(_, since)| since),
            began => began,
        };
        if known.is_suspect {
            None
        } else if sequence > began {
            known.read.epoch
        } else {
            // A node that came later has read what stands there in this epoch.
            known.former.or(known.read.epoch)
        }
    }

    /// How far the stream goes at least: this node has read so much of it, or was told that a message of its own stands there.
    pub(super) fn known_up_to(&self) -> ReadUpTo {
        let known = self.lock();
        let newest = known.acknowledged.newest();
        let acknowledged = newest.map_or(0, |newest| newest.sequence);
        ReadUpTo {
            position: known.read.position.max(acknowledged),
            ..known.read
        }
    }

    /// A message was stored. The attempt that stored it began at `sent`, and `before` is how far the stream reached before the first one. At
    /// `before` or below it, the stream has lost its end, and the reader opens it again.
    pub(super) fn note_acknowledged(
        &self,
        message: Acknowledged,
        sent: Instant,
        before: ReadUpTo,
        now: Instant,
    ) {
        let mut known = self.lock();
        if known.read.epoch != before.epoch {
            return;
        }
        if message.sequence <= before.position {
            known.is_suspect = true;
        }
        known.acknowledged.note(message, sent, now);
    }

    /// The stream may have lost its end since something was acknowledged: the last such message is in doubt, unless it stands at `read` or
    /// before it.
    pub(super) fn doubt_acknowledged(&self, read: u64) {
        self.lock().acknowledged.doubt_newest(read);
    }

    /// Takes the oldest acknowledged message that is in doubt. Whoever takes it looks for it.
    pub(super) fn take_doubted(&self) -> Option<Acknowledged> {
        self.lock().acknowledged.take_doubted()
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.lock().is_suspect
    }

    /// The stream was opened again, and looked at.
    pub(super) fn note_opened(&self, mark: &Mark) {
        let mut known = self.lock();
        known.is_suspect = false;
        // Nodes of older versions do not say where the epoch began.
        let before = known.since.filter(|(epoch, _)| *epoch == mark.epoch);
        let since = before.map_or(mark.since, |(_, since)| since.min(mark.since));
        known.since = Some((mark.epoch, since));
    }

    /// This node hears the stream's beats.
    pub(super) fn note_followed(&self) {
        self.lock().is_followed = true;
    }

    /// The stream cannot be read or heard. If it has lost its end, what is acknowledged from now on may stand behind that.
    pub(super) fn note_fault(&self) {
        let mut known = self.lock();
        known.acknowledged.doubt_newest(0);
        known.is_followed = false;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The servers and the logs.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) servers: Arc<dyn Servers>,
    pub(super) subjects: Subjects,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) logs: Box<[Arc<Log>]>,
    pub(super) node: String,
    pub(super) state: Arc<State>,
    pub(super) remarks: Remarks,
    /// What this node hears of them.
    pub(super) interest: BrokerInterest,
    /// For what is read to fill channels.
    pub(super) fill_budget: FillBudget,
    /// How much each log may read at once for that.
    pub(super) fill_limits: FillLimits,
    /// Where random numbers come from; none if it has none.
    pub(super) random: fn() -> Option<u64>,
}

impl Link {
    pub(super) fn new(
        servers: Arc<dyn Servers>,
        subjects: Subjects,
        namespaces: Arc<Namespaces>,
        node: String,
        state: Arc<State>,
        random: fn() -> Option<u64>,
        interest: BrokerInterest,
    ) -> Self {
        let with_history = namespaces.with_history_in_logs();
        let needs_republish = interest == BrokerInterest::Channel;
        let logs = with_history.iter().flat_map(|(name, options)| {
            let partitions = options.logs.into_iter().flat_map(Partitions::iter);
            let alone = options.logs.is_some_and(|logs| logs.count == 1);
            (0..).zip(partitions).map(move |(partition, id)| {
                let class = if alone {
                    Class::of(name.as_deref())
                } else {
                    Class::partition_of(name.as_deref(), partition)
                };
                Arc::new(Log::new(id, class, Arc::clone(options), needs_republish))
            })
        });
        let logs: Box<[_]> = logs.collect();
        Self {
            fill_limits: FillLimits::of_each(logs.len()),
            logs,
            servers,
            subjects,
            namespaces,
            node,
            state,
            remarks: Remarks::default(),
            interest,
            fill_budget: FillBudget::new(FILL_BYTES_MAX),
            random,
        }
    }

    /// Makes the streams that are missing. Servers that have just started have no leader yet.
    ///
    /// # Errors
    /// A stream cannot be made, or is none of ours.
    pub(super) async fn await_streams(&self) -> Result<(), BrokerError> {
        for log in &self.logs {
            let deadline = Instant::now() + START_TIMEOUT;
            loop {
                match self.servers.open(log).await {
                    Ok(_) => break,
                    Err(error @ BrokerError::NoStream { .. }) if Instant::now() < deadline => {
                        tracing::info!("{error}; it is tried again");
                        sleep(START_PAUSE).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Messages a second of all logs, as measured last.
    pub(super) fn rate(&self) -> u64 {
        let rates = self.logs.iter().map(|log| log.rate());
        rates.fold(0, u64::saturating_add)
    }

    /// The name of a log's stream.
    pub(super) fn stream_of(&self, log: &Log) -> String {
        self.subjects.stream(&log.class)
    }

    /// The log that orders a channel; none if no history keeps its publications, or no channel may have that name.
    pub(super) fn log_of(&self, channel: &str) -> Option<&Arc<Log>> {
        if channel.is_empty() || channel.len() > Mesh::CHANNEL_BYTES_MAX {
            return None;
        }
        let logs = self.namespaces.options_of(channel)?.logs?;
        Some(&self.logs[usize::from(logs.of(channel).0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log::new(LogId(0), Class::of(None), Arc::default(), false)
    }

    fn message(sequence: u64) -> Acknowledged {
        let serial = 100 + sequence;
        Acknowledged { sequence, serial }
    }

    fn read(epoch: u64, position: u64) -> ReadUpTo {
        let epoch = Some(Epoch::new(epoch));
        ReadUpTo { epoch, position }
    }

    /// The mark of an epoch.
    fn mark(epoch: u64) -> Mark {
        Mark {
            epoch: Epoch::new(epoch),
            sequence: 9,
            since: 5,
            stored_ns: 0,
        }
    }

    /// A message is sent and acknowledged; `before` is how far the stream reached until then.
    fn acknowledge(log: &Log, sequence: u64, before: ReadUpTo) {
        let now = Instant::now();
        log.note_acknowledged(message(sequence), now, before, now);
    }

    fn doubted(log: &Log) -> Vec<Acknowledged> {
        std::iter::from_fn(|| log.take_doubted()).collect()
    }

    #[test]
    fn a_message_at_an_acknowledged_place_is_a_lost_end() {
        let log = log();
        log.note_read(read(1, 5), 0);
        let before = log.known_up_to();
        assert_eq!(before, read(1, 5));
        // Two were under way at once, and their answers came the other way round.
        acknowledge(&log, 9, before);
        acknowledge(&log, 8, before);
        assert!(!log.is_suspect());
        let before = log.known_up_to();
        assert_eq!(before, read(1, 9));
        acknowledge(&log, 9, before);
        assert!(log.is_suspect(), "it has the place of another one");
        log.note_opened(&mark(1));
        assert!(!log.is_suspect());
    }

    #[test]
    fn another_epoch_ends_a_suspicion() {
        let log = log();
        log.note_read(read(1, 5), 0);
        acknowledge(&log, 5, log.known_up_to());
        assert!(log.is_suspect());
        log.note_read(read(1, 6), 0);
        assert!(
            log.is_suspect(),
            "in this epoch nobody has told of the loss"
        );
        log.note_read(read(2, 7), 6);
        assert!(!log.is_suspect());
        assert_eq!(log.known_up_to(), read(2, 7));
    }

    #[test]
    fn a_place_has_the_epoch_of_the_beat_before_it() {
        let log = log();
        log.note_read(read(1, 5), 0);
        log.note_opened(&mark(2));
        assert_eq!(
            log.epoch_of(7),
            Some(Epoch::new(1)),
            "nothing is read of it"
        );
        // All of it is read anew.
        log.note_read(read(2, 0), 0);
        let epochs = [4, 5, 6, 9].map(|place| log.epoch_of(place));
        let expected = [1, 1, 2, 2].map(|epoch| Some(Epoch::new(epoch)));
        assert_eq!(epochs, expected);
        // The beat of the next one is heard.
        log.note_read(read(3, 12), 12);
        let epochs = [11, 12, 13].map(|place| log.epoch_of(place));
        let expected = [2, 2, 3].map(|epoch| Some(Epoch::new(epoch)));
        assert_eq!(epochs, expected);
    }

    #[test]
    fn what_was_acknowledged_before_a_fault_is_in_doubt() {
        let log = log();
        log.note_read(read(1, 1), 0);
        log.doubt_acknowledged(0);
        assert_eq!(doubted(&log), []);
        acknowledge(&log, 7, log.known_up_to());
        log.doubt_acknowledged(0);
        // Reading fails again, and publications go on.
        acknowledge(&log, 12, log.known_up_to());
        log.doubt_acknowledged(0);
        acknowledge(&log, 13, log.known_up_to());
        assert_eq!(doubted(&log), [message(7), message(12)]);
        log.doubt_acknowledged(13);
        assert_eq!(doubted(&log), [], "it was read");
        log.doubt_acknowledged(12);
        log.note_read(read(2, 1), 0);
        assert_eq!(doubted(&log), [], "another epoch says nothing");
        acknowledge(&log, 20, read(1, 1));
        log.doubt_acknowledged(0);
        assert_eq!(doubted(&log), [], "nor does what began in one");
    }

    #[test]
    fn a_pause_puts_what_was_acknowledged_before_it_in_doubt() {
        let log = log();
        log.note_read(read(1, 1), 0);
        let start = Instant::now();
        for (sequence, seconds) in [(7, 0), (9, 2)] {
            let now = start + Duration::from_secs(seconds);
            log.note_acknowledged(message(sequence), now, log.known_up_to(), now);
        }
        assert!(!log.is_suspect());
        assert_eq!(doubted(&log), [message(7)]);
    }
}
