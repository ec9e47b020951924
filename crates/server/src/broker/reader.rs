//! Reads one log, and tells the homes of this node what it says.
//!
//! By one consumer. Whatever goes wrong with it ends [`Reader::follow`], and the log is opened anew where this node stopped.
//!
//! A message may be what broke the connection: the client library cannot parse every subject and every header, and gives up the
//! connection over it. So behind a fault the next messages are asked for one by one, as text, before a consumer sends them again.

use super::answers::Waiter;
use super::beat::{self, BEAT_INTERVAL, BEAT_TIMEOUT, BeatError, Beats, Mark};
use super::counts::StreamCounts;
use super::homes::Homes;
use super::link::{BrokerError, Link, Log, ReadUpTo};
use super::live::{self, Taken};
use super::remarks::Remark;
use super::servers::{FeedError, Stored, Way, Which};
use myriad_broker::{Anchor, Extent, Opened, Reading, Step};
use myriad_shard::{LogEntry, LogEvent, NotPublished, Position};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Homes hear at least this often how far their node has read, where what it read is about no channel of theirs.
const TELL_INTERVAL: Duration = Duration::from_millis(50);
/// Between two attempts to write a beat: the first one has to be read.
const BEAT_PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts to open a log.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Entries that were stored further apart than this: in between, a server without the last ones may have become the stream's leader.
/// NATS needs longer than that to elect one.
const PAUSE_NS: i128 = 1_000_000_000;
/// Messages that are asked for one by one behind a fault.
const LOOKED_AT_MAX: usize = 64;
/// Opening a log takes a few requests.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a message cannot be read whose headers are none.
const SPOILED: &str = "its headers are no headers of NATS";

/// Why reading ended.
#[derive(Debug, Error)]
enum Fault {
    #[error(transparent)]
    Stream(#[from] BrokerError),
    #[error(transparent)]
    Beat(#[from] BeatError),
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(
        "it has lost its end, and has other messages there now; its channels get another epoch"
    )]
    Changed,
    #[error("no beat has come for {} s", BEAT_TIMEOUT.as_secs())]
    Silent,
    #[error("no answer for {} s", OPEN_TIMEOUT.as_secs())]
    Slow,
}

/// The servers' clock, as far as it is needed to tell how old a message is.
#[derive(Clone, Copy, Debug)]
struct Clock {
    stored_ns: i128,
    at: Instant,
}

impl Clock {
    fn of(mark: &Mark) -> Self {
        Self {
            stored_ns: mark.stored_ns,
            at: Instant::now(),
        }
    }

    /// How old a message is, by the servers' clocks alone: those of nodes may be wrong.
    fn age(self, stored_ns: i128) -> Duration {
        let elapsed = i128::try_from(self.at.elapsed().as_nanos()).unwrap_or(i128::MAX);
        let age = self.stored_ns.saturating_add(elapsed) - stored_ns;
        u64::try_from(age).map_or(Duration::ZERO, Duration::from_nanos)
    }
}

/// A question for entries that were read.
struct Check {
    /// The newest first.
    anchors: Vec<Anchor>,
    answer: JoinHandle<Result<Found, FeedError>>,
}

/// Entries that were looked for, up to the first one that is still there, and when what stands in its place was stored.
#[derive(Debug)]
struct Found(Vec<(Anchor, Option<i128>)>);

impl Found {
    /// Whether another entry stands in the place of one.
    fn has_other(&self) -> bool {
        let mut found = self.0.iter();
        found.any(|(anchor, stored_ns)| stored_ns.is_some_and(|ns| ns != anchor.stored_ns))
    }
}

/// Reads one log.
pub(super) struct Reader {
    link: Arc<Link>,
    homes: Arc<dyn Homes>,
    log: Arc<Log>,
    reading: Reading,
    /// The last place that every home has heard of.
    told: u64,
    /// When the last beat was read, or the log opened.
    heard: Instant,
    /// Where beats stand.
    beat: String,
    /// The last message that is known to stand there.
    last_beat: u64,
    /// Another message stands where the last beat stood: a node that comes finds no epoch.
    is_hidden: bool,
    /// When this node tried to write a beat.
    tried: Instant,
    was_live: bool,
    /// There was a feed before.
    was_followed: bool,
    /// The last entries before each pause, which may be others now. They are looked at one after the other.
    doubts: VecDeque<Vec<Anchor>>,
    /// Whether some of them are still the same.
    check: Option<Check>,
    /// The stream is not what this node has read.
    has_changed: bool,
    counts: StreamCounts,
}

impl Reader {
    pub(super) fn new(link: Arc<Link>, homes: Arc<dyn Homes>, log: Arc<Log>) -> Self {
        let stream = link.subjects.stream(&log.class);
        Self {
            counts: link.state.counts.of(&stream),
            beat: link.subjects.beat(&log.class),
            link,
            homes,
            log,
            reading: Reading::new(),
            told: 0,
            heard: Instant::now(),
            last_beat: 0,
            is_hidden: false,
            tried: Instant::now(),
            was_live: false,
            was_followed: false,
            doubts: VecDeque::new(),
            check: None,
            has_changed: false,
        }
    }

    /// Reads for ever.
    pub(super) async fn run(mut self) {
        let mut retry = RETRY_MIN;
        loop {
            let begun = Instant::now();
            let Err(fault) = self.follow().await;
            self.counts.caught_up.set(0);
            let name = self.link.stream_of(&self.log);
            tracing::warn!("stream {name} cannot be read: {fault}; it is opened again");
            retry = if begun.elapsed() > RETRY_MAX {
                RETRY_MIN
            } else {
                (retry * 2).min(RETRY_MAX)
            };
            sleep(retry).await;
        }
    }

    /// Opens the log and reads it, until something fails.
    async fn follow(&mut self) -> Result<std::convert::Infallible, Fault> {
        let clock = timeout(OPEN_TIMEOUT, self.open())
            .await
            .map_err(|_| Fault::Slow)??;
        if self.was_followed {
            self.look_ahead(clock).await?;
        }
        self.was_followed = true;
        let first = self.reading.next_sequence();
        let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
        let mut feed = link.servers.follow(&log, first).await?;
        let mut ticks = interval(TELL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let jitter = Duration::from_millis((link.random)().unwrap_or(0) % 2_000);
        loop {
            tokio::select! {
                // In an order that is always the same: a tick comes by time, and messages may come without end.
                biased;
                _ = ticks.tick() => {
                    self.tell_position();
                    self.finish_check().await?;
                    self.check_next();
                    if self.log.is_suspect() {
                        return Err(Fault::Changed);
                    }
                    if let Some(fault) = feed.fault() {
                        let mut has_come = false;
                        while let Some(message) = feed.next_now()? {
                            self.handle_message(message, clock).await?;
                            has_come = true;
                        }
                        // What waited here is no silence.
                        if !(has_come && matches!(fault, FeedError::Silent(_))) {
                            return Err(fault.into());
                        }
                    }
                    self.keep_beating(jitter).await?;
                }
                message = feed.next() => self.handle_message(message?, clock).await?,
            }
        }
    }

    /// Reads the next messages as text: one of them may be what ended the feed before.
    async fn look_ahead(&mut self, clock: Clock) -> Result<(), Fault> {
        for _ in 0..LOOKED_AT_MAX {
            let next = self.reading.next_sequence();
            let Some(message) = look_from(&self.link, &self.log, next).await? else {
                break;
            };
            self.handle_message(message, clock).await?;
        }
        Ok(())
    }

    /// Opens the stream, and writes a mark at its end.
    async fn open(&mut self) -> Result<Clock, Fault> {
        let extent = self.link.servers.open(&self.log).await?;
        let is_same = !self.has_changed && !self.log.is_suspect() && self.still_has(extent).await?;
        let reading = &self.reading;
        let beats = self.beats();
        let mark = beats
            .mark(|beat| {
                // If the last message there is no beat, what this node has read is of the epoch that it knows.
                let epoch = beat?.epoch.or(reading.epoch())?;
                // Another node may have given it another epoch already.
                (is_same || reading.epoch() != Some(epoch)).then_some(epoch)
            })
            .await?;
        let clock = Clock::of(&mark);
        let mut steps = Vec::new();
        let opened = Opened {
            epoch: mark.epoch,
            mark: mark.sequence,
        };
        self.reading.handle_opened(opened, &mut steps);
        self.has_changed = false;
        self.check = None;
        self.doubts.clear();
        self.log.clear_suspicion();
        self.heard = Instant::now();
        self.last_beat = mark.sequence;
        self.counts.opened.inc();
        self.carry_out(steps).await?;
        Ok(clock)
    }

    /// Whether the stream still has what was read.
    async fn still_has(&self, extent: Extent) -> Result<bool, Fault> {
        // What was read since may all be of the stream as it is now.
        let asked = self.check.iter().map(|check| &check.anchors);
        for anchors in asked.chain(&self.doubts) {
            if look_for(&self.link, &self.log, anchors).await?.has_other() {
                return Ok(false);
            }
        }
        let Found(found) = look_for(&self.link, &self.log, &self.reading.anchors()).await?;
        let has_read = self.reading.position() > 0;
        Ok(!has_read || self.reading.still_has(extent, found))
    }

    /// An entry is read that was stored long after the one before it. The last ones are looked at again: if a server without the stream's end
    /// leads it since, what was stored meanwhile has places that this node has read, and what comes now looks as if nothing were missing.
    /// By the servers' clock, because this node may have stood still. What was stored before the log was opened is all of one stream.
    fn note_pause(&mut self, stored_ns: i128, clock: Clock) {
        if stored_ns <= clock.stored_ns {
            return;
        }
        let newest = self.reading.newest();
        if newest.is_some_and(|newest| stored_ns - newest.stored_ns > PAUSE_NS) {
            self.doubts.push_back(self.reading.anchors());
        }
    }

    /// Asks for the next entries in doubt, unless an answer is still to come.
    fn check_next(&mut self) {
        if self.check.is_some() {
            return;
        }
        let Some(anchors) = self.doubts.pop_front() else {
            return;
        };
        let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
        let asked = anchors.clone();
        let answer = tokio::spawn(async move { look_for(&link, &log, &asked).await });
        self.check = Some(Check { anchors, answer });
    }

    /// Looks at the answer, if there is one.
    ///
    /// # Errors
    /// Another entry is in the place of the one that was read.
    async fn finish_check(&mut self) -> Result<(), Fault> {
        let is_answered = |check: &mut Check| check.answer.is_finished();
        let Some(check) = self.check.take_if(is_answered) else {
            return Ok(());
        };
        match check.answer.await {
            Ok(Ok(found)) if found.has_other() => {
                self.has_changed = true;
                Err(Fault::Changed)
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                self.doubts.push_front(check.anchors);
                Ok(())
            }
        }
    }

    fn beats(&self) -> Beats<'_> {
        Beats {
            link: &self.link,
            log: &self.log,
            subject: &self.beat,
        }
    }

    async fn handle_message(&mut self, message: Stored, clock: Clock) -> Result<(), Fault> {
        self.note_pause(message.stored_ns, clock);
        let sequence = message.sequence;
        let age = clock.age(message.stored_ns);
        let is_beat = *message.subject == *self.beat;
        let mut steps = Vec::new();
        if is_beat {
            self.handle_beat(sequence, &message.payload, &mut steps);
        } else {
            let event = match self.channel_of(&message.subject) {
                Some(channel) => self.event_of(channel, &message, age).await,
                None if message.is_spoiled => self.unreadable(None, &SPOILED),
                None => LogEvent::Passed,
            };
            self.reading.handle_entry(sequence, event, &mut steps);
        }
        let stored_ns = message.stored_ns;
        let anchor = Anchor {
            sequence,
            stored_ns,
        };
        self.reading.note_stored(anchor, is_beat);
        self.carry_out(steps).await
    }

    /// A message stands where beats do. The next beat is written behind it, whatever it says.
    fn handle_beat(&mut self, sequence: u64, payload: &[u8], steps: &mut Vec<Step>) {
        let is_new = sequence >= self.reading.next_sequence();
        self.last_beat = self.last_beat.max(sequence);
        let beat = beat::parse(payload);
        self.is_hidden = beat.is_none();
        let Some(epoch) = beat else {
            self.link.state.counts.count_unreadable();
            if self.link.remarks.may(Remark::Unreadable) {
                let beat = &self.beat;
                tracing::warn!(
                    "message {sequence} of {beat} is no beat; only nodes may write there"
                );
            }
            return self.reading.handle_entry(sequence, LogEvent::Passed, steps);
        };
        if is_new {
            self.heard = Instant::now();
        }
        self.reading.handle_beat(sequence, epoch, steps);
    }

    /// The channel of a stored message; none if there is none that this log orders. Anybody may write to our subjects, and takes the
    /// wrong stream for a channel if it leaves out its namespace.
    fn channel_of(&self, subject: &str) -> Option<String> {
        let subjects = &self.link.subjects;
        let channel = subjects.channel_of_stored(&self.log.class, subject)?;
        if self
            .link
            .log_of(&channel)
            .is_some_and(|log| log.id == self.log.id)
        {
            return Some(channel);
        }
        self.link.state.counts.count_unreadable();
        if self.link.remarks.may(Remark::Misplaced) {
            let stream = subjects.stream(&self.log.class);
            tracing::warn!(
                "a message in stream {stream} is left out: channel {channel:?} is not of its namespace, or has too long a name"
            );
        }
        None
    }

    /// What a message says to its channel.
    async fn event_of(&self, channel: String, message: &Stored, age: Duration) -> LogEvent {
        if message.is_spoiled {
            return self.unreadable(Some(channel), &SPOILED);
        }
        let envelope = live::envelope_of(message.headers.as_ref(), &message.payload);
        let envelope = match envelope {
            Ok(envelope) => envelope,
            Err(error) => return self.unreadable(Some(channel), &error),
        };
        if envelope.content.is_none() {
            return LogEvent::Removed(channel.into());
        }
        match live::take_in(&*self.homes, &self.link.node, channel, envelope).await {
            Taken::Submission(submission) => LogEvent::Publication(submission, age),
            Taken::TooLarge(channel) => LogEvent::LostIn(channel.into()),
        }
    }

    /// What a message that cannot be read says to its channel, if it is known.
    fn unreadable(&self, channel: Option<String>, why: &dyn std::fmt::Display) -> LogEvent {
        self.link.state.counts.count_unreadable();
        if self.link.remarks.may(Remark::Unreadable) {
            let stream = self.link.stream_of(&self.log);
            let of = channel.as_deref().unwrap_or("no channel");
            tracing::warn!("a message in stream {stream} of {of:?} is left out: {why}");
        }
        channel.map_or(LogEvent::Passed, |channel| LogEvent::LostIn(channel.into()))
    }

    /// Does what the reading asks for.
    async fn carry_out(&mut self, steps: Vec<Step>) -> Result<(), Fault> {
        let mut steps = steps;
        while !steps.is_empty() {
            let mut next = Vec::new();
            for step in steps {
                match step {
                    Step::Tell { offset, event } => self.tell(offset, event),
                    Step::Mark => {
                        let epoch = self.reading.epoch();
                        let beats = self.beats();
                        let mark = beats.mark(|beat| beat?.epoch.or(epoch));
                        let mark = mark.await?.sequence;
                        let extent = self.link.servers.extent(&self.log).await?;
                        self.reading.handle_marked(mark, extent.first, &mut next);
                    }
                }
            }
            steps = next;
        }
        self.answer_publishers();
        self.note_live();
        Ok(())
    }

    /// Notes whether this node has read the log to its end, and follows it.
    fn note_live(&mut self) {
        let is_live = self.reading.is_live();
        self.counts.caught_up.set(is_live.into());
        let live = &self.link.state.live;
        if is_live && !self.was_live {
            live.fetch_add(1, Ordering::Relaxed);
        } else if !is_live && self.was_live {
            // It has another epoch, and is read anew.
            live.fetch_sub(1, Ordering::Relaxed);
        }
        self.was_live = is_live;
    }

    fn tell(&mut self, offset: u64, event: LogEvent) {
        let is_of_one = matches!(
            event,
            LogEvent::Publication(..) | LogEvent::Removed(_) | LogEvent::LostIn(_)
        );
        if !is_of_one {
            self.told = offset;
        }
        if matches!(event, LogEvent::Lost | LogEvent::LostIn(_)) {
            self.counts.losses.inc();
        }
        let log = self.log.id;
        self.homes.read_log(LogEntry { log, offset, event });
    }

    /// Homes that heard nothing of late hear how far the log has been read: a subscriber may come from a node that has read as far.
    fn tell_position(&mut self) {
        let position = self.reading.position();
        self.counts
            .position
            .set(i64::try_from(position).unwrap_or(i64::MAX));
        if position > self.told {
            self.tell(position, LogEvent::Passed);
        }
    }

    /// Publishers whose publications have been read are answered.
    fn answer_publishers(&self) {
        let read = ReadUpTo {
            epoch: self.reading.epoch(),
            position: self.reading.position(),
        };
        let answered = self.log.note_read(read, self.reading.began());
        answer(&*self.homes, &self.log, answered);
    }

    /// Writes a beat when none has come for a while.
    async fn keep_beating(&mut self, jitter: Duration) -> Result<(), Fault> {
        let silent = self.heard.elapsed();
        if silent > BEAT_TIMEOUT {
            return Err(Fault::Silent);
        }
        let Some(epoch) = self.reading.epoch() else {
            return Ok(());
        };
        let is_silent = silent >= BEAT_INTERVAL + jitter;
        let is_due = (is_silent || self.is_hidden) && self.tried.elapsed() >= BEAT_PAUSE;
        if !is_due || !self.reading.is_live() {
            return Ok(());
        }
        self.tried = Instant::now();
        // If another node was first, its beat comes; if nothing comes, the silence grows.
        let beats = self.beats();
        let written = timeout(BEAT_INTERVAL, beats.write(epoch, self.last_beat)).await;
        match written {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Fault::Slow),
        }
    }
}

/// The first message from a place on.
async fn look_from(link: &Link, log: &Log, sequence: u64) -> Result<Option<Stored>, FeedError> {
    let which = Which::From(sequence);
    link.servers.look(Way::Reading, log, which).await
}

/// Looks for entries, until one of them is still there: those before it are the same if it is.
async fn look_for(link: &Link, log: &Log, anchors: &[Anchor]) -> Result<Found, FeedError> {
    let mut found = Vec::new();
    for anchor in anchors {
        let next = look_from(link, log, anchor.sequence).await?;
        let same_place = next.filter(|next| next.sequence == anchor.sequence);
        let stored_ns = same_place.map(|entry| entry.stored_ns);
        found.push((*anchor, stored_ns));
        if stored_ns.is_some() {
            break;
        }
    }
    Ok(Found(found))
}

/// Answers those whose messages are stored.
pub(super) fn answer(homes: &dyn Homes, log: &Log, stored: Vec<(u64, Waiter)>) {
    for (offset, waiter) in stored {
        match waiter {
            Waiter::Publisher(asker) => {
                // Without an epoch nobody could tell what the place means.
                let epoch = log.epoch_of(offset).ok_or(NotPublished::Unavailable);
                let position = epoch.map(|epoch| Position { epoch, offset });
                homes.answer_publisher(asker, position);
            }
            Waiter::Remover(id) => homes.answer_remover(id, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_come_from_the_servers_clock() {
        let clock = Clock {
            stored_ns: 10_000_000_000,
            at: Instant::now(),
        };
        assert!(clock.age(4_000_000_000) >= Duration::from_secs(6));
        assert_eq!(clock.age(i128::MAX / 2), Duration::ZERO);
    }
}
