//! Hears the channels of one log that this node's clients want.
//!
//! [`Choice`] says whether they come by themselves or with the whole log. [`Interest`] says what is to be asked, held back and told; this
//! does it. Any failure ends [`Hearer::follow`]. Then the log is opened anew, all channels are subscribed again, and what came meanwhile
//! is read.

mod answering;
mod pages;
mod schedule;
mod whole;

use self::answering::{Answer, Answering};
use self::schedule::{FENCE_TIMEOUT, Schedule};
use self::whole::Whole;
use super::beat::BeatKeeper;
use super::counts::StreamCounts;
use super::entries::{Clock, Entries, of_log};
use super::fault::Fault;
use super::fill_budget::FillShare;
use super::homes::Homes;
use super::link::{BrokerError, Link, Log, ReadUpTo};
use super::opening::{Backoff, Known, Leaving, Opening, in_time};
use super::reader::answer;
use super::servers::{FeedError, Heard, HeardMessage, Listener, SILENCE_MAX, Stored};
use super::settings::BrokerInterest;
use myriad_broker::{Anchor, Anchors, ChannelEvent, Choice, Interest, Previous, Source, Task};
use myriad_nats::raw::Sid;
use myriad_shard::{Epoch, LogEntry, LogEvent, Wanting, Wish};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};

/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(50);
/// Wishes that are taken at once, so that one fence serves many.
const WISHES_MAX: usize = 10_000;

/// How far a log has come since it was opened last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Open,
    /// A message or a beat has come.
    Heard,
    /// And last messages were asked for since, and answered.
    Live,
}

/// Hears one log.
pub(super) struct Hearer {
    link: Arc<Link>,
    homes: Arc<dyn Homes>,
    log: Arc<Log>,
    entries: Entries,
    wishes: UnboundedReceiver<Wish>,
    interest: Interest<Stored>,
    choice: Choice,
    /// The share of messages that homes have not been told yet.
    untold: Option<FillShare>,
    sids: HashMap<Arc<str>, Sid>,
    beat: BeatKeeper,
    epoch: Option<Epoch>,
    /// Where the epoch began here.
    began: u64,
    /// The last place that was heard of.
    position: u64,
    anchors: Anchors,
    opening: Opening,
    leaving: Leaving,
    was_live: bool,
    /// How far it has come since it was opened last.
    stage: Stage,
    counts: StreamCounts,
}

impl Hearer {
    /// # Panics
    /// There is one of this log already.
    pub(super) fn new(link: Arc<Link>, homes: Arc<dyn Homes>, log: Arc<Log>) -> Self {
        let stream = link.subjects.stream(&log.class);
        Self {
            counts: link.state.counts.of(&stream),
            beat: BeatKeeper::new(link.subjects.beat(&log.class), false),
            entries: Entries {
                link: Arc::clone(&link),
                homes: Arc::clone(&homes),
                log: Arc::clone(&log),
            },
            wishes: log.take_wishes().expect("a log is heard once"),
            interest: Interest::new(log.kept_min()),
            choice: match link.interest {
                BrokerInterest::Auto(policy) => Choice::adaptive(policy),
                BrokerInterest::Stream | BrokerInterest::Channel => Choice::fixed_to_channels(),
            },
            untold: None,
            sids: HashMap::new(),
            epoch: None,
            began: 0,
            position: 0,
            anchors: Anchors::default(),
            opening: Opening::default(),
            leaving: Leaving::default(),
            was_live: false,
            stage: Stage::Opening,
            link,
            homes,
            log,
        }
    }

    /// Hears for ever.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let begun = Instant::now();
            let ended = self.follow().await;
            self.log.note_fault();
            self.tell_heard(false);
            self.interest.handle_deaf();
            // Homes are told of what is left when the log is open again. Until then others may need the share.
            drop(self.untold.take());
            self.counts.caught_up.set(0);
            // Another source is no fault: the log is opened again at once.
            if let Err(fault) = ended {
                self.leaving.handle_fault(&fault, &self.link, &self.log);
                self.handle_fault(&fault);
                self.rest(backoff.after(begun.elapsed())).await;
            }
        }
    }

    fn handle_fault(&mut self, fault: &Fault) {
        let name = self.link.stream_of(&self.log);
        let is_refused = matches!(fault, Fault::Stream(BrokerError::Stream { .. }));
        // Without a leader nobody can open it, however it is to be heard.
        let says_something = is_refused || matches!(self.stage, Stage::Open | Stage::Heard);
        let changes = says_something && self.choice.handle_failed_opening(is_refused);
        let next = match self.choice.source() {
            Source::Whole if changes => {
                "this node tries to hear all of it, and single channels again in ten minutes"
            }
            Source::Channels if changes => "this node tries single channels again",
            _ => "it is opened again",
        };
        tracing::warn!("stream {name} cannot be heard: {fault}; {next}");
    }

    /// Waits, and notes what homes want meanwhile.
    async fn rest(&mut self, duration: Duration) {
        let over = Instant::now() + duration;
        while let Ok(Some(wish)) = timeout_at(over, self.wishes.recv()).await {
            self.take_wishes(wish);
        }
        sleep_until(over).await;
    }

    /// Opens the log and hears it, until it is to be heard in another way, or something fails.
    async fn follow(&mut self) -> Result<(), Fault> {
        let (link, log) = (Arc::clone(&self.link), Arc::clone(&self.log));
        let source = self.choice.source();
        self.begin(source);
        let opening = async {
            let opened = self.open().await?;
            self.stage = Stage::Open;
            Ok((opened, self.listen(source).await?))
        };
        let ((clock, epoch), mut listener) = in_time(opening).await?;
        self.leaving.note_opened();
        listener.subscribe(&self.beat.subject);
        self.sids.clear();
        self.interest.handle_listening(epoch);
        let jitter = Duration::from_millis((link.random)().unwrap_or(0) % 2_000);
        let mut schedule = Schedule::new(jitter);
        let mut answering = Answering::new(Arc::clone(&link), Arc::clone(&log));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.do_tasks(&mut *listener, &mut answering, &mut schedule, clock)
                .await?;
            if self.choice.source() != source {
                return Ok(());
            }
            tokio::select! {
                // In an order that is always the same: ticks come by time, wishes and answers by what was asked for.
                biased;
                _ = ticks.tick() => {
                    if self.is_late(&schedule) || listener.is_silent() {
                        // What waits here is no silence: this node may have had no time for it.
                        while let Some(heard) = listener.next_now()? {
                            self.handle_heard(heard, epoch, clock, &mut schedule)?;
                        }
                        if listener.is_silent() {
                            return Err(FeedError::Silent(SILENCE_MAX.as_secs()).into());
                        }
                    }
                    self.tick(epoch, &mut schedule).await?;
                }
                Some(wish) = self.wishes.recv() => self.take_wishes(wish),
                answer = answering.next() => self.handle_answer(answer?, &mut schedule),
                heard = listener.next() => self.handle_heard(heard?, epoch, clock, &mut schedule)?,
            }
        }
    }

    /// The log is about to be opened.
    fn begin(&mut self, source: Source) {
        self.stage = Stage::Opening;
        self.choice.handle_opened();
        self.log.note_source(source);
        let is_by_channel = source == Source::Channels;
        self.counts.by_channel.set(is_by_channel.into());
    }

    /// Begins to hear the log behind the mark, or with it.
    async fn listen(&self, source: Source) -> Result<Box<dyn Listener>, FeedError> {
        let servers = &self.link.servers;
        match source {
            Source::Channels => servers.listen(&self.log).await,
            Source::Whole => {
                let feed = servers.follow(&self.log, self.position).await?;
                Ok(Box::new(Whole::new(feed, self.position)))
            }
        }
    }

    /// Opens the stream, and writes a beat at its end.
    async fn open(&mut self) -> Result<(Clock, Epoch), Fault> {
        let known = Known {
            epoch: self.epoch,
            position: self.position,
            anchors: self.anchors.newest_first(),
        };
        let (link, log) = (&self.link, &self.log);
        let before = Instant::now();
        let opening = self.opening.open(link, log, &mut self.beat, &known);
        let mark = opening.await?;
        if known.epoch != Some(mark.epoch) {
            self.epoch = Some(mark.epoch);
            self.began = 0;
            self.position = 0;
            self.anchors = Anchors::default();
        }
        self.counts.opened.inc();
        self.note_stored(mark.sequence, mark.stored_ns, true);
        self.note_position();
        Ok((Clock::of(&mark, before), mark.epoch))
    }

    /// Homes hear whether this node hears the log.
    fn tell_heard(&self, is_heard: bool) {
        let stream = self.link.stream_of(&self.log);
        let hearing = &self.link.state.hearing;
        hearing.note(self.log.id, &stream, is_heard);
        let event = LogEvent::Heard(is_heard);
        self.homes.read_log(of_log(&self.log, self.position, event));
    }

    fn note_stored(&mut self, sequence: u64, stored_ns: i128, is_beat: bool) {
        if sequence > self.position {
            self.position = sequence;
            let anchor = Anchor {
                sequence,
                stored_ns,
            };
            self.anchors.note(anchor, is_beat);
        }
    }

    /// Publishers whose publications have come are answered.
    fn note_position(&self) {
        let position = self.position;
        let shown = i64::try_from(position).unwrap_or(i64::MAX);
        self.counts.position.set(shown);
        let read = ReadUpTo {
            epoch: self.epoch,
            position,
        };
        let answered = self.log.note_read(read, self.began);
        answer(&*self.homes, &self.log, answered);
    }

    fn note_live(&mut self) {
        self.counts.caught_up.set(1);
        if !self.was_live {
            self.was_live = true;
            self.link.state.live.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Does what is due by time.
    async fn tick(&mut self, epoch: Epoch, schedule: &mut Schedule) -> Result<(), Fault> {
        let now = Instant::now();
        if self.log.is_suspect() {
            return Err(Fault::Changed);
        }
        if let Some(fault) = schedule.late_fence(now) {
            return Err(fault);
        }
        self.opening.check(&self.link, &self.log).await?;
        if schedule.take_audit(now) {
            self.interest.audit();
        }
        if schedule.take_second_look(now) {
            self.interest.look_again();
        }
        if schedule.take_new_channels(now) {
            self.interest.look_at_new();
        }
        if schedule.take_count(now) {
            self.count();
        }
        let (link, log) = (&self.link, &self.log);
        self.beat
            .keep(link, log, epoch, true, schedule.jitter)
            .await
    }

    /// Whether something should have come by now.
    fn is_late(&self, schedule: &Schedule) -> bool {
        schedule.late_fence(Instant::now()).is_some() || self.beat.is_silent()
    }

    fn count(&self) {
        let shown = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.counts.wanted.set(shown(self.interest.len()));
        self.counts.behind.set(shown(self.interest.behind()));
    }

    /// Takes what homes want, as far as it has come.
    fn take_wishes(&mut self, first: Wish) {
        self.handle_wish(first);
        for _ in 0..WISHES_MAX {
            let Ok(wish) = self.wishes.try_recv() else {
                return;
            };
            self.handle_wish(wish);
        }
    }

    fn handle_wish(&mut self, wish: Wish) {
        let Wish { channel, wanting } = wish;
        match wanting {
            Wanting::Hear => {
                self.log.note_heard(&channel, true);
                self.interest.want(&channel);
            }
            Wanting::Nothing => {
                self.log.note_heard(&channel, false);
                self.interest.forget(&channel);
            }
            Wanting::Confirm(offset) => self.interest.confirm(&channel, offset),
        }
    }

    fn handle_answer(&mut self, answer: Answer, schedule: &mut Schedule) {
        match answer {
            Answer::Last(asked, last) => {
                self.interest.handle_last_by_channel(&asked, &last);
                if !asked.may_fail {
                    // The servers let this node subscribe, and ask.
                    self.note_live();
                }
                if self.stage == Stage::Heard {
                    self.stage = Stage::Live;
                    if self.choice.is_fallback() {
                        let name = self.link.stream_of(&self.log);
                        tracing::info!("this node hears all of stream {name}");
                    }
                    self.choice.handle_live();
                }
                if self.interest.has_doubts() {
                    schedule.look_again();
                }
            }
            Answer::Dropped(asked) => self.interest.handle_dropped(&asked),
            Answer::Filled {
                fill,
                filled: Some(filled),
                share,
            } => {
                self.interest.handle_filled(&fill, filled);
                self.untold = Some(share);
            }
            Answer::Filled {
                fill, filled: None, ..
            } => self.interest.handle_unfilled(&fill),
        }
    }

    fn handle_heard(
        &mut self,
        heard: Heard,
        epoch: Epoch,
        clock: Clock,
        schedule: &mut Schedule,
    ) -> Result<(), Fault> {
        match heard {
            Heard::Fence(place) => {
                if schedule.end_fence() {
                    // What was subscribed before it is heard, and so are beats.
                    self.log.note_followed();
                    self.tell_heard(true);
                    // A new leader answers before it has applied all that it has: it may not have got to our mark yet.
                    self.interest.handle_fence(place.max(self.position));
                }
                Ok(())
            }
            Heard::Hole => {
                self.choice.handle_hole();
                self.interest.handle_hole();
                Ok(())
            }
            Heard::Message(message) => {
                if self.stage == Stage::Open {
                    self.stage = Stage::Heard;
                }
                self.handle_message(message, epoch, clock, schedule)
            }
        }
    }

    fn handle_message(
        &mut self,
        message: HeardMessage,
        epoch: Epoch,
        clock: Clock,
        schedule: &mut Schedule,
    ) -> Result<(), Fault> {
        let HeardMessage {
            mut stored,
            previous,
        } = message;
        let Stored {
            sequence,
            stored_ns,
            ..
        } = stored;
        let (anchors, newest) = (&self.anchors, self.anchors.newest());
        // What was stored before the log was opened is all of one stream.
        if stored_ns > clock.stored_ns
            && self
                .opening
                .note_pause(&self.log, || anchors.newest_first(), newest, stored_ns)
        {
            // A leader that has gone may not have sent the last ones.
            schedule.hasten_audit();
        }
        let is_beat = *stored.subject == *self.beat.subject;
        let is_new = sequence > self.position;
        self.note_stored(sequence, stored_ns, is_beat);
        let mut is_wanted = false;
        if is_beat {
            let said = self
                .beat
                .hear(&self.link, sequence, &stored.payload, is_new);
            if is_new && said.is_some_and(|said| said != epoch) {
                // Somebody found a loss that we had no part in. Everything up to here is of the epoch before.
                return Err(Fault::Changed);
            }
            if is_new && said.is_some() {
                let event = LogEvent::Beat(clock.age_max(stored_ns));
                self.homes.read_log(of_log(&self.log, sequence, event));
            }
        } else if let Some(channel) = self.entries.channel_of(&stored.subject) {
            is_wanted = self.interest.wants(&channel);
            if is_wanted {
                if previous == Previous::InOrder {
                    stored.detach();
                }
                let bytes = stored.payload.len();
                self.interest
                    .handle_message(&channel, sequence, previous, stored, bytes);
            }
        }
        if previous == Previous::InOrder {
            self.interest.handle_in_order(sequence);
        }
        self.measure(sequence, stored_ns, is_wanted);
        Ok(())
    }

    /// Counts a message. At the end of a window, chooses how to hear the log.
    fn measure(&mut self, sequence: u64, stored_ns: i128, is_wanted: bool) {
        if is_wanted {
            self.counts.heard.inc();
        }
        let measured = self.choice.handle_message(sequence, stored_ns, is_wanted);
        let Some(measured) = measured else {
            return;
        };
        self.log.note_rate(measured.rate());
        let rate = self.link.rate();
        if let Some(change) = self.choice.handle_window(&measured, rate) {
            let name = self.link.stream_of(&self.log);
            let percent = measured.wanted * 100 / measured.messages;
            tracing::info!(
                "this node now hears {change} (all streams have {rate} messages a second, and its clients want {percent}% of stream {name})"
            );
        }
    }

    /// Does all that is to be done.
    async fn do_tasks(
        &mut self,
        listener: &mut dyn Listener,
        answering: &mut Answering,
        schedule: &mut Schedule,
        clock: Clock,
    ) -> Result<(), Fault> {
        while let Some(task) = self.interest.poll_task() {
            match task {
                Task::Subscribe(channel) => {
                    let subject = self.link.subjects.stored(&self.log.class, &channel);
                    if let Some(sid) = listener.subscribe(&subject) {
                        self.sids.insert(channel, sid);
                    }
                }
                Task::Unsubscribe(channel) => {
                    if let Some(sid) = self.sids.remove(&channel) {
                        listener.unsubscribe(sid);
                    }
                }
                Task::Fence => {
                    let patience = match self.choice.source() {
                        // Its consumer has to be made first.
                        Source::Whole => SILENCE_MAX,
                        Source::Channels => FENCE_TIMEOUT,
                    };
                    schedule.begin_fence(patience, self.interest.len());
                    listener.ask_fence();
                }
                Task::Ask(asked) => answering.ask(asked),
                Task::Fill(fill) => {
                    self.counts.filled.inc();
                    answering.fill(fill);
                }
                Task::Tell {
                    channel,
                    offset,
                    event,
                } => self.tell(channel, offset, event, clock).await,
                Task::Suspect => return Err(Fault::Suspect),
            }
        }
        drop(self.untold.take());
        self.note_position();
        Ok(())
    }

    /// Tells a channel's home.
    async fn tell(
        &self,
        channel: Arc<str>,
        offset: u64,
        event: ChannelEvent<Stored>,
        clock: Clock,
    ) {
        let event = match event {
            ChannelEvent::Log(event) => event,
            ChannelEvent::Message(stored) => {
                let age = clock.age(stored.stored_ns);
                let name = channel.to_string();
                self.entries.event_of(name, &stored, age).await
            }
        };
        if matches!(event, LogEvent::Lost | LogEvent::LostIn(_)) {
            self.counts.losses.inc();
        }
        let log = self.log.id;
        self.homes.read_log(LogEntry {
            log,
            channel: Some(channel),
            offset,
            event,
        });
    }
}

impl From<answering::NoAnswer> for Fault {
    fn from(answering::NoAnswer(seconds): answering::NoAnswer) -> Self {
        Self::Slow(seconds)
    }
}
