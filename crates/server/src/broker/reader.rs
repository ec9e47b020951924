//! Reads one log, and tells the homes of this node what it says.
//!
//! By one consumer. Whatever goes wrong with it ends [`Reader::follow`], and the log is opened anew where this node stopped.

use super::answers::Waiter;
use super::beat::{BeatKeeper, StoredBeats};
use super::counts::StreamCounts;
use super::entries::{Clock, Entries, SPOILED, of_log};
use super::fault::Fault;
use super::homes::Homes;
use super::link::{Link, Log, ReadUpTo};
use super::opening::{Backoff, Known, Leaving, Opening, in_time};
use super::servers::{FeedError, SILENCE_MAX, Stored};
use myriad_broker::{Anchor, Opened, Reading, Step};
use myriad_shard::{Epoch, LogEntry, LogEvent, NotPublished, Position};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Homes hear at least this often how far their node has read, where what it read is about no channel of theirs.
const TELL_INTERVAL: Duration = Duration::from_millis(50);

/// What was acknowledged comes within milliseconds. If nothing at all has come in so many ticks, it does not come: the consumer reads a copy
/// of the stream that has lost the others. Ticks, because a node that stood still has had no time to read.
const STUCK_TICKS: u32 = 80;

/// How far a log was read that is known to go further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unread {
    position: u64,
    acknowledged: u64,
}

/// Counts the ticks in which nothing came of a log that is known to go further.
#[derive(Debug, Default)]
struct Stuck {
    at: u64,
    ticks: u32,
}

impl Stuck {
    /// A tick. Whether the log has stood there for too long.
    fn is_late(&mut self, unread: Option<Unread>) -> bool {
        match unread {
            Some(unread) if self.is_at(unread) => self.ticks += 1,
            Some(Unread { position, .. }) => {
                (self.at, self.ticks) = (position, 0);
            }
            None => (self.at, self.ticks) = (u64::MAX, 0),
        }
        self.ticks >= STUCK_TICKS
    }

    /// Whether the log was read so far when it was looked at last.
    fn is_at(&self, unread: Unread) -> bool {
        self.at == unread.position
    }
}

/// Reads one log.
pub(super) struct Reader {
    link: Arc<Link>,
    homes: Arc<dyn Homes>,
    log: Arc<Log>,
    entries: Entries,
    reading: Reading,
    /// The last place that every home has heard of.
    told: u64,
    beat: BeatKeeper,
    was_live: bool,
    opening: Opening,
    leaving: Leaving,
    counts: StreamCounts,
}

impl Reader {
    pub(super) fn new(link: Arc<Link>, homes: Arc<dyn Homes>, log: Arc<Log>) -> Self {
        let stream = link.subjects.stream(&log.class);
        Self {
            counts: link.state.counts.of(&stream),
            beat: BeatKeeper::new(link.subjects.beat(&log.class), true),
            entries: Entries {
                link: Arc::clone(&link),
                homes: Arc::clone(&homes),
                log: Arc::clone(&log),
            },
            link,
            homes,
            log,
            reading: Reading::new(),
            told: 0,
            was_live: false,
            opening: Opening::default(),
            leaving: Leaving::default(),
        }
    }

    /// Reads for ever.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let begun = Instant::now();
            let Err(fault) = self.follow().await;
            self.log.note_fault();
            self.tell_heard(false);
            self.leaving.handle_fault(&fault, &self.link, &self.log);
            self.counts.caught_up.set(0);
            let name = self.link.stream_of(&self.log);
            tracing::warn!("stream {name} cannot be read: {fault}; it is opened again");
            sleep(backoff.after(begun.elapsed())).await;
        }
    }

    /// Opens the log and reads it, until something fails.
    async fn follow(&mut self) -> Result<std::convert::Infallible, Fault> {
        let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
        let opening = async {
            let clock = self.open().await?;
            let first = self.reading.next_sequence();
            Ok((clock, link.servers.follow(&log, first).await?))
        };
        let (clock, mut feed) = in_time(opening).await?;
        self.tell_heard(true);
        self.leaving.note_opened();
        let mut stuck = Stuck::default();
        let mut ticks = interval(TELL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let jitter = Duration::from_millis((link.random)().unwrap_or(0) % 2_000);
        loop {
            tokio::select! {
                // In an order that is always the same: a tick comes by time, and messages may come without end.
                biased;
                _ = ticks.tick() => {
                    self.tell_position();
                    self.opening.check(&self.link, &self.log).await?;
                    if self.log.is_suspect() {
                        return Err(Fault::Changed);
                    }
                    if stuck.is_late(self.unread()) {
                        // Nothing is stuck that waits here.
                        while let Some(message) = feed.next_now()? {
                            self.handle_message(message, clock).await?;
                        }
                        if let Some(unread) = self.unread().filter(|unread| stuck.is_at(*unread)) {
                            return Err(FeedError::Stuck(unread.acknowledged).into());
                        }
                    }
                    if feed.is_silent() || self.beat.is_silent() {
                        while let Some(message) = feed.next_now()? {
                            self.handle_message(message, clock).await?;
                        }
                        // What waited here was no silence.
                        if feed.is_silent() {
                            return Err(FeedError::Silent(SILENCE_MAX.as_secs()).into());
                        }
                    }
                    if let Some(epoch) = self.reading.epoch() {
                        let is_live = self.reading.is_live();
                        self.beat.keep(&self.link, &self.log, epoch, is_live, jitter).await?;
                    }
                }
                message = feed.next() => self.handle_message(message?, clock).await?,
            }
        }
    }

    /// What the stream has acknowledged of this node, and this node has not read.
    fn unread(&self) -> Option<Unread> {
        let (known, position) = (self.log.known_up_to(), self.reading.position());
        let is_unread = known.epoch == self.reading.epoch() && known.position > position;
        is_unread.then_some(Unread {
            position,
            acknowledged: known.position,
        })
    }

    /// Opens the stream, and writes a mark at its end.
    async fn open(&mut self) -> Result<Clock, Fault> {
        let known = Known {
            epoch: self.reading.epoch(),
            position: self.reading.position(),
            anchors: self.reading.anchors(),
        };
        let (link, log) = (&self.link, &self.log);
        let before = Instant::now();
        let opening = self.opening.open(link, log, &mut self.beat, &known);
        let mark = opening.await?;
        let clock = Clock::of(&mark, before);
        let mut steps = Vec::new();
        let opened = Opened {
            epoch: mark.epoch,
            mark: mark.sequence,
        };
        self.reading.handle_opened(opened, &mut steps);
        self.counts.opened.inc();
        self.carry_out(steps).await?;
        Ok(clock)
    }

    fn beats(&self) -> StoredBeats<'_> {
        StoredBeats {
            link: &self.link,
            log: &self.log,
            subject: &self.beat.subject,
        }
    }

    async fn handle_message(&mut self, message: Stored, clock: Clock) -> Result<(), Fault> {
        // What was stored before the log was opened is all of one stream.
        if message.stored_ns > clock.stored_ns {
            let (reading, newest) = (&self.reading, self.reading.newest());
            let anchors = || reading.anchors();
            self.opening
                .note_pause(&self.log, anchors, newest, message.stored_ns);
        }
        let sequence = message.sequence;
        let age = clock.age(message.stored_ns);
        let is_beat = *message.subject == *self.beat.subject;
        let mut steps = Vec::new();
        if is_beat {
            self.handle_beat(sequence, &message.payload, &mut steps);
        } else {
            let event = match self.entries.channel_of(&message.subject) {
                Some(channel) => self.entries.event_of(channel, &message, age).await,
                None if message.is_spoiled => self.entries.unreadable(None, &SPOILED),
                None => LogEvent::Passed,
            };
            self.reading.handle_entry(sequence, event, &mut steps);
        }
        let stored_ns = message.stored_ns;
        if is_beat {
            let event = LogEvent::Beat(clock.age_max(stored_ns));
            self.homes.read_log(of_log(&self.log, sequence, event));
        }
        let anchor = Anchor {
            sequence,
            stored_ns,
        };
        self.reading.note_stored(anchor, is_beat);
        self.carry_out(steps).await
    }

    /// A message stands where beats do.
    fn handle_beat(&mut self, sequence: u64, payload: &[u8], steps: &mut Vec<Step>) {
        let is_new = sequence >= self.reading.next_sequence();
        match self.beat.hear(&self.link, sequence, payload, is_new) {
            Some(epoch) => {
                let before = self.reading.epoch();
                self.reading.handle_beat(sequence, epoch, steps);
                if self.reading.epoch() != before {
                    // Another node has told of a loss. Whoever found it again would give the stream one more epoch.
                    self.opening.forget_doubts();
                }
            }
            None => self.reading.handle_entry(sequence, LogEvent::Passed, steps),
        }
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
            LogEvent::Publication(..) | LogEvent::Removed { .. } | LogEvent::LostIn(_)
        );
        if !is_of_one {
            self.told = offset;
        }
        if matches!(event, LogEvent::Lost | LogEvent::LostIn(_)) {
            self.counts.losses.inc();
        }
        let log = self.log.id;
        self.homes.read_log(LogEntry {
            log,
            channel: None,
            offset,
            event,
        });
    }

    /// Homes hear whether this node hears the log.
    fn tell_heard(&self, is_heard: bool) {
        let stream = self.link.stream_of(&self.log);
        let hearing = &self.link.state.hearing;
        hearing.note(self.log.id, &stream, is_heard);
        let (position, event) = (self.reading.position(), LogEvent::Heard(is_heard));
        self.homes.read_log(of_log(&self.log, position, event));
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
}

/// Answers those whose messages are stored.
pub(super) fn answer(homes: &dyn Homes, log: &Log, stored: Vec<(u64, Waiter)>) {
    answer_in(homes, stored, |offset| log.epoch_of(offset));
}

/// Answers those whose messages are stored, in these epochs.
pub(super) fn answer_in(
    homes: &dyn Homes,
    stored: Vec<(u64, Waiter)>,
    epoch_of: impl Fn(u64) -> Option<Epoch>,
) {
    for (offset, waiter) in stored {
        match waiter {
            Waiter::Publisher(asker) => {
                // Without an epoch nobody could tell what the place means.
                let epoch = epoch_of(offset).ok_or(NotPublished::Unavailable);
                let position = epoch.map(|epoch| Position { epoch, offset });
                homes.answer_publisher(asker, position);
            }
            Waiter::Remover(id) => homes.answer_remover(id, true),
        }
    }
}
