//! Which channels of a log a node hears, and whether something is missing in one of them.
//!
//! The log republishes each message that it stores. A node subscribes to the channels that its clients want. Such a message may be lost,
//! repeated or late, and a new subscription may miss what is stored right after it. So for each channel the node first finds out what
//! the log has, and later whether it has heard all of it:
//!
//! 1. It subscribes, and asks the log's leader for a *fence*: what is stored behind the fence comes.
//! 2. It asks for the last messages of its new channels, from a server of the log that has got to the fence.
//! 3. It reads what it lacks up to there (a *fill*). Meanwhile it holds back what comes.
//! 4. From then on each message names the one before it. If that is not the last one that was heard, the node fills the gap.
//! 5. The last message of a channel that goes quiet has no successor that would name it. So the node asks for the last messages of all
//!    its channels again from time to time: an *audit*.
//!
//! | what happens | tell it by |
//! | --- | --- |
//! | the node begins to listen, at first or again | [`Interest::handle_listening`] |
//! | homes want a channel, or do not | [`Interest::want`], [`Interest::forget`], [`Interest::confirm`] |
//! | the answer to [`Task::Fence`] | [`Interest::handle_fence`] |
//! | the answer to [`Task::Ask`] | [`Interest::handle_lasts`] |
//! | the answer to [`Task::Fill`] | [`Interest::handle_filled`], or [`Interest::handle_unfilled`] |
//! | a message was republished | [`Interest::handle_message`] |
//! | the node does not listen any more | [`Interest::handle_deaf`] |
//! | time for an audit, or for a second look | [`Interest::audit`], [`Interest::look_at_new`], [`Interest::look_again`] |
//!
//! After each of them, do all of [`Interest::poll_task`].

use myriad_hub::{Epoch, LogEvent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Channels whose last messages are asked for at once.
const ASKED_MAX: usize = 900;
/// Messages of one channel that are held back while it is filled.
const HELD_MAX: usize = 256;
/// Bytes of messages that are held back in all channels.
const HELD_BYTES_MAX: usize = 64 << 20;
/// What such a message takes beside its own bytes.
const HELD_OVERHEAD: usize = 512;

/// Counts how often the node began to listen. Answers to questions of an earlier life are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u64);

/// A question for the last messages of channels.
#[derive(Clone, Debug)]
pub struct Asked {
    /// In which life it was asked.
    pub life: Life,
    /// Which channels.
    pub channels: Vec<Arc<str>>,
    /// Only a server that has everything up to here may answer.
    pub at_least: u64,
    /// Nothing waits for the answer, so the question is dropped if nobody answers.
    pub may_fail: bool,
}

/// What a channel lacks.
#[derive(Clone, Debug)]
pub struct Fill {
    /// In which life it was asked for.
    pub life: Life,
    /// The channel.
    pub channel: Arc<str>,
    /// The first place of what is to be read.
    pub from: u64,
    /// The last place: a message stands there, or has gone for a later one.
    pub to: u64,
    /// Of the channel's time since it was wanted.
    serial: u64,
}

/// What was read for a [`Fill`].
#[derive(Debug)]
pub struct Filled<M> {
    /// The messages of the channel from [`Fill::from`] on, by their places.
    pub messages: Vec<(u64, M)>,
    /// The log's first entry, asked for after they were read: what came before it may have gone.
    pub first: u64,
    /// Messages between [`Fill::from`] and the first of these may have gone unread.
    pub is_cut: bool,
    /// The first of them took the place of all before it: that is how a history is removed.
    pub begins_with_rollup: bool,
}

impl<M> Filled<M> {
    fn begin(&self) -> Option<u64> {
        self.messages.first().map(|(sequence, _)| *sequence)
    }

    /// Whether the log had no need to drop one of these, or of those before them, for a newer one.
    fn is_whole(&self, kept_min: usize) -> bool {
        !self.is_cut && self.messages.len() < kept_min
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum Task<M> {
    /// Subscribe to a channel.
    Subscribe(Arc<str>),
    /// End the subscription.
    Unsubscribe(Arc<str>),
    /// Ask the log's leader how far the log goes, behind all subscriptions.
    Fence,
    /// Ask for last messages.
    Ask(Asked),
    /// Read a channel's messages.
    Fill(Fill),
    /// Tell the channel's home.
    Tell {
        /// The channel.
        channel: Arc<str>,
        /// The place in the log.
        offset: u64,
        /// What it is told.
        said: Said<M>,
    },
    /// The log does not have what was heard of it. Open it anew.
    Suspect,
}

/// What a home is told.
#[derive(Debug)]
pub enum Said<M> {
    /// A message.
    Message(M),
    /// Something else.
    Event(LogEvent),
}

/// The places of a channel's last message, and how far its server has got.
#[derive(Clone, Debug)]
pub struct LastOnes {
    /// All that was stored up to here is counted.
    pub watermark: u64,
    /// The log's first entry when this was asked.
    pub first: u64,
    /// The place of the last message of each channel that has one.
    pub places: BTreeMap<Arc<str>, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for a fence.
    New,
    /// Its last message is asked for.
    Asked,
    /// What it lacks is read.
    Filling,
    /// What comes is told at once.
    Live,
}

#[derive(Debug)]
struct Held<M> {
    sequence: u64,
    previous: u64,
    bytes: usize,
    message: M,
}

/// A channel that is wanted.
#[derive(Debug)]
struct Channel<M> {
    /// Tells this channel from the same one before it was forgotten.
    serial: u64,
    phase: Phase,
    /// Its home has not been told that it has caught up.
    is_new: bool,
    /// All of its messages up to [`Channel::read_to`] are known to have gone.
    is_empty: bool,
    /// More came than could be held back.
    is_overfull: bool,
    /// The last message that was told; 0: none.
    last: u64,
    /// Everything up to here was told.
    read_to: u64,
    /// What is stored behind this place is heard: who has not got there cannot say what the channel lacks.
    fence: u64,
    /// What came while it was filled.
    held: Vec<Held<M>>,
}

impl<M> Channel<M> {
    fn new(serial: u64) -> Self {
        Self {
            serial,
            phase: Phase::New,
            is_new: true,
            is_empty: false,
            is_overfull: false,
            last: 0,
            read_to: 0,
            fence: 0,
            held: Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        self.held.iter().map(|one| one.bytes).sum()
    }
}

/// What a message is, by its place and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Repeated,
    Next,
    /// Something before it is missing.
    Gap,
}

/// The channels of one log that a node wants.
#[derive(Debug)]
pub struct Interest<M> {
    /// None before the log was opened.
    epoch: Option<Epoch>,
    is_listening: bool,
    life: u64,
    /// Of the last channel that was wanted.
    serial: u64,
    /// Messages of a channel that the log keeps at least. A channel with fewer has lost none for a newer one.
    kept_min: usize,
    channels: BTreeMap<Arc<str>, Channel<M>>,
    /// Channels that were subscribed since the last fence was asked for.
    unfenced: Vec<(Arc<str>, u64)>,
    /// Channels that wait for the answer to a fence; none if no fence is asked for.
    fencing: Option<Vec<(Arc<str>, u64)>>,
    /// Channels whose fence came since [`Interest::look_at_new`] was called last, and those whose fence had come by then.
    fresh: Vec<Arc<str>>,
    settled: Vec<Arc<str>>,
    /// Channels whose last message had not come at an audit, and its place. [`Interest::look_again`] takes them.
    doubts: BTreeMap<Arc<str>, u64>,
    /// Channels of which subscribers have seen more than was read here: up to which offset. Their homes are told when that was read.
    confirming: BTreeMap<Arc<str>, u64>,
    held_bytes: usize,
    tasks: VecDeque<Task<M>>,
}

impl<M> Interest<M> {
    /// No channel is wanted. The log keeps so many messages of a channel at least.
    #[must_use]
    pub fn new(kept_min: usize) -> Self {
        Self {
            epoch: None,
            is_listening: false,
            life: 0,
            serial: 0,
            kept_min,
            channels: BTreeMap::new(),
            unfenced: Vec::new(),
            fencing: None,
            fresh: Vec::new(),
            settled: Vec::new(),
            doubts: BTreeMap::new(),
            confirming: BTreeMap::new(),
            held_bytes: 0,
            tasks: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub fn poll_task(&mut self) -> Option<Task<M>> {
        self.tasks.pop_front()
    }

    /// Channels that are wanted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Channels that are not told what comes at once: they lack something.
    #[must_use]
    pub fn behind(&self) -> usize {
        let behind = self.channels.values();
        behind.filter(|one| one.phase != Phase::Live).count()
    }

    /// The node begins to listen, at first or again: nothing is subscribed yet. The log has this epoch.
    pub fn handle_listening(&mut self, epoch: Epoch) {
        self.handle_deaf();
        self.is_listening = true;
        let is_other = self.epoch.is_some_and(|known| known != epoch);
        self.epoch = Some(epoch);
        self.held_bytes = 0;
        let names: Vec<Arc<str>> = self.channels.keys().map(Arc::clone).collect();
        for name in names {
            if is_other {
                self.begin_anew(&name, epoch);
            }
            if let Some(channel) = self.channels.get_mut(&name) {
                channel.phase = Phase::New;
                channel.is_overfull = false;
                channel.held.clear();
            }
            self.subscribe(name);
        }
        // Also without a channel: the answer shows that the servers let this node ask.
        self.fencing = Some(std::mem::take(&mut self.unfenced));
        self.tasks.push_back(Task::Fence);
    }

    /// The node does not listen any more. What homes want meanwhile is done when it listens again.
    pub fn handle_deaf(&mut self) {
        self.is_listening = false;
        self.life += 1;
        self.fencing = None;
        self.unfenced.clear();
        self.fresh.clear();
        self.settled.clear();
        self.doubts.clear();
        self.tasks.retain(|task| matches!(task, Task::Tell { .. }));
    }

    /// What a channel was told means nothing any more.
    fn begin_anew(&mut self, name: &Arc<str>, epoch: Epoch) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        *channel = Channel::new(channel.serial);
        self.tell(name, 0, LogEvent::Began(epoch));
    }

    /// A home wants a channel: it is told that the channel begins, what is there, and that it has caught up.
    pub fn want(&mut self, name: &Arc<str>) {
        if self.channels.contains_key(name) {
            return;
        }
        self.serial += 1;
        let channel = Channel::new(self.serial);
        self.channels.insert(Arc::clone(name), channel);
        if self.is_listening {
            self.subscribe(Arc::clone(name));
            self.fence();
        }
    }

    /// Nobody wants a channel any more.
    pub fn forget(&mut self, name: &str) {
        let Some((name, channel)) = self.channels.remove_entry(name) else {
            return;
        };
        self.held_bytes -= channel.held_bytes();
        self.doubts.remove(&name);
        self.confirming.remove(&name);
        if self.is_listening {
            self.tasks.push_back(Task::Unsubscribe(name));
        }
    }

    /// A subscriber has seen this offset of a channel: its home wants to hear when the channel has been read up to there.
    pub fn confirm(&mut self, name: &Arc<str>, offset: u64) {
        let Some(channel) = self.channels.get(name) else {
            return;
        };
        if channel.phase == Phase::Live && channel.read_to >= offset {
            let offset = channel.read_to;
            return self.tell(name, offset, LogEvent::Passed);
        }
        let (is_live, known) = (channel.phase == Phase::Live, self.confirming.get(name));
        // One question serves all who have seen no more than that.
        if known.is_none_or(|known| *known < offset) {
            self.confirming.insert(Arc::clone(name), offset);
            if is_live {
                self.ask_if_confirming(name);
            }
        }
    }

    /// Asks how far a channel has come that subscribers wait for.
    fn ask_if_confirming(&mut self, name: &Arc<str>) {
        if self.is_listening
            && let Some(&offset) = self.confirming.get(name)
        {
            self.ask_all([Arc::clone(name)], offset, true);
        }
    }

    /// Nobody can answer a question that may fail. Whoever waited for it waits no more.
    pub fn handle_dropped(&mut self, asked: &Asked) {
        for name in &asked.channels {
            if asked.at_least > 0 && self.confirming.get(name) == Some(&asked.at_least) {
                self.confirming.remove(name);
            }
        }
    }

    fn subscribe(&mut self, name: Arc<str>) {
        self.tasks.push_back(Task::Subscribe(Arc::clone(&name)));
        self.await_fence(name);
    }

    fn await_fence(&mut self, name: Arc<str>) {
        if let Some(channel) = self.channels.get(&name) {
            self.unfenced.push((name, channel.serial));
        }
    }

    /// One fence at a time: it serves all that was subscribed before.
    fn fence(&mut self) {
        if self.fencing.is_none() && !self.unfenced.is_empty() && self.is_listening {
            self.fencing = Some(std::mem::take(&mut self.unfenced));
            self.tasks.push_back(Task::Fence);
        }
    }

    /// The log went up to here when all subscriptions before the fence were known.
    pub fn handle_fence(&mut self, last: u64) {
        let Some(fenced) = self.fencing.take() else {
            return;
        };
        let is_first = fenced.is_empty();
        let mut asked = Vec::with_capacity(fenced.len());
        for (name, serial) in fenced {
            if let Some(channel) = self.channels.get_mut(&name)
                && channel.phase == Phase::New
                && channel.serial == serial
            {
                channel.phase = Phase::Asked;
                channel.fence = last;
                self.fresh.push(Arc::clone(&name));
                asked.push(name);
            }
        }
        if is_first {
            self.ask(Vec::new(), last, false);
        }
        self.ask_all(asked, last, false);
        self.fence();
    }

    /// Asks again about channels that are new. The servers of a cluster may have told each other of a subscription after they had
    /// answered for its fence: then what was stored in between did not come. To be called after some seconds, again and again.
    pub fn look_at_new(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let settled = std::mem::replace(&mut self.settled, fresh);
        if self.is_listening {
            self.ask_all(settled, 0, true);
        }
    }

    /// Whether [`Interest::look_again`] has something to look at.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    fn ask_all(
        &mut self,
        names: impl IntoIterator<Item = Arc<str>>,
        at_least: u64,
        may_fail: bool,
    ) {
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let channels = names.by_ref().take(ASKED_MAX).collect();
            self.ask(channels, at_least, may_fail);
        }
    }

    fn ask(&mut self, channels: Vec<Arc<str>>, at_least: u64, may_fail: bool) {
        self.tasks.push_back(Task::Ask(Asked {
            life: Life(self.life),
            channels,
            at_least,
            may_fail,
        }));
    }

    /// The last messages of channels are known, from a server that has got to [`Asked::at_least`].
    pub fn handle_lasts(&mut self, asked: &Asked, lasts: &LastOnes) {
        if asked.life != Life(self.life) {
            return;
        }
        for name in &asked.channels {
            let place = lasts.places.get(name).copied().unwrap_or(0);
            let Some(channel) = self.channels.get(name) else {
                continue;
            };
            match channel.phase {
                Phase::Asked if lasts.watermark >= channel.fence => self.meet(name, place, lasts),
                Phase::Live => self.check(name, place, lasts),
                Phase::New | Phase::Asked | Phase::Filling => {}
            }
        }
    }

    /// A channel that was subscribed, or listened to anew, has its last message there (0: none).
    fn meet(&mut self, name: &Arc<str>, place: u64, lasts: &LastOnes) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if place > channel.last {
            return self.fill(name, place);
        }
        if place > 0 {
            // The log was looked at when it was opened. If it does not have the last message, somebody has deleted that one.
            channel.last = place;
        }
        channel.phase = Phase::Live;
        if channel.is_new {
            channel.read_to = lasts.watermark;
            channel.is_empty = place == 0;
            self.begin(name);
            self.catch_up(name, lasts.first.saturating_sub(1));
        } else {
            self.pass(name, place, lasts);
            self.ask_if_confirming(name);
        }
        self.release(name);
    }

    /// A channel has nothing that was not told. If it is empty, something may have come and gone since it was read.
    fn pass(&mut self, name: &Arc<str>, place: u64, lasts: &LastOnes) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        let gone = lasts.first.saturating_sub(1);
        let has_lost = place == 0 && gone > channel.read_to.max(channel.last);
        channel.is_empty = place == 0;
        channel.read_to = lasts.watermark.max(channel.read_to).max(gone);
        if has_lost {
            self.tell(name, gone, LogEvent::Lost);
        }
        self.tell_if_confirming(name);
    }

    /// A channel that is followed has its last message there (0: none).
    fn check(&mut self, name: &Arc<str>, place: u64, lasts: &LastOnes) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if place > channel.last {
            // It may be on its way, unless somebody waits for it.
            if self.confirming.contains_key(name) {
                self.fill(name, place);
            } else {
                self.doubts.insert(Arc::clone(name), place);
            }
            return;
        }
        // A server that is behind says nothing about what came since.
        if lasts.watermark < channel.last {
            return;
        }
        if place < channel.last && place > 0 {
            return self.tasks.push_back(Task::Suspect);
        }
        self.pass(name, place, lasts);
    }

    /// Tells a home how far a channel has been read, if a subscriber waits for that.
    fn tell_if_confirming(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get(name) else {
            return;
        };
        let offset = channel.read_to;
        if self
            .confirming
            .get(name)
            .is_some_and(|awaited| *awaited <= offset)
        {
            self.confirming.remove(name);
            self.tell(name, offset, LogEvent::Passed);
        }
    }

    /// Reads what a channel lacks, from the last message that it has on: if that is still there, nothing behind it has gone.
    fn fill(&mut self, name: &Arc<str>, to: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.phase = Phase::Filling;
        self.doubts.remove(name);
        self.tasks.push_back(Task::Fill(Fill {
            life: Life(self.life),
            channel: Arc::clone(name),
            from: channel.last.max(1),
            to,
            serial: channel.serial,
        }));
    }

    /// What a channel lacked was read.
    pub fn handle_filled(&mut self, fill: &Fill, filled: Filled<M>) {
        let name = &fill.channel;
        if fill.life != Life(self.life) {
            return;
        }
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if channel.phase != Phase::Filling || channel.serial != fill.serial {
            return;
        }
        let begin = filled.begin().unwrap_or(fill.to);
        // What may be missing in front of what was read.
        let missing = if filled.is_whole(self.kept_min) {
            filled.first.saturating_sub(1)
        } else {
            begin - 1
        };
        let (is_new, known) = (channel.is_new, channel.last.max(channel.read_to));
        let has_lost = !is_new && !is_joined(channel, &filled, self.kept_min);
        // A loss needs an offset behind what is known. If none is free in front of what was read, the last known message itself has gone,
        // and the first one that was read is lost with it.
        let lost = (begin - 1).max(known + 1);
        channel.is_empty = false;
        if is_new {
            self.begin(name);
        } else if has_lost {
            self.tell(name, lost, LogEvent::Lost);
        }
        for (sequence, message) in filled.messages {
            if has_lost && sequence <= lost {
                self.pass_over(name, sequence);
            } else {
                self.tell_message(name, sequence, message);
            }
        }
        if is_new {
            self.catch_up(name, missing);
        }
        if let Some(channel) = self.channels.get_mut(name) {
            channel.phase = Phase::Live;
            channel.read_to = channel.read_to.max(fill.to);
        }
        self.tell_if_confirming(name);
        self.ask_if_confirming(name);
        self.release(name);
    }

    /// A message is part of a loss that was told.
    fn pass_over(&mut self, name: &Arc<str>, sequence: u64) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.last = sequence.max(channel.last);
            channel.read_to = sequence.max(channel.read_to);
        }
    }

    /// What a channel lacked could not be read: it may have gone meanwhile. The channel waits for another fence, and is asked about anew.
    pub fn handle_unfilled(&mut self, fill: &Fill) {
        let name = &fill.channel;
        if fill.life != Life(self.life) {
            return;
        }
        if let Some(channel) = self.channels.get_mut(name)
            && channel.phase == Phase::Filling
            && channel.serial == fill.serial
        {
            self.renew(name);
        }
    }

    /// A channel waits for another fence.
    fn renew(&mut self, name: &Arc<str>) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.phase = Phase::New;
            self.await_fence(Arc::clone(name));
            self.fence();
        }
    }

    /// A message was republished, with the place of the one before it in its channel (0: none is known).
    pub fn handle_message(
        &mut self,
        name: &str,
        sequence: u64,
        previous: u64,
        message: M,
        bytes: usize,
    ) {
        let Some((name, channel)) = self.channels.get_key_value(name) else {
            return;
        };
        let name = Arc::clone(name);
        let held = Held {
            sequence,
            previous,
            bytes: bytes + HELD_OVERHEAD,
            message,
        };
        if channel.phase == Phase::Live {
            self.hear(&name, held);
        } else {
            self.hold(&name, held);
        }
    }

    /// Keeps what comes for a channel that is filled.
    fn hold(&mut self, name: &Arc<str>, one: Held<M>) {
        let is_full = self.held_bytes + one.bytes > HELD_BYTES_MAX;
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if is_full || channel.held.len() >= HELD_MAX {
            channel.is_overfull = true;
            return;
        }
        self.held_bytes += one.bytes;
        channel.held.push(one);
    }

    /// A message of a channel that is followed.
    fn hear(&mut self, name: &Arc<str>, one: Held<M>) {
        let Some(channel) = self.channels.get(name) else {
            return;
        };
        match verdict(channel, one.sequence, one.previous) {
            Verdict::Repeated => {}
            Verdict::Next => {
                self.tell_message(name, one.sequence, one.message);
                self.tell_if_confirming(name);
            }
            Verdict::Gap => {
                let to = one.sequence;
                self.hold(name, one);
                self.fill(name, to);
            }
        }
    }

    /// What was held back is told, up to the next gap.
    fn release(&mut self, name: &Arc<str>) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        self.held_bytes -= channel.held_bytes();
        let mut held = std::mem::take(&mut channel.held);
        // What was republished late comes out of order.
        held.sort_by_key(|one| one.sequence);
        for one in held {
            let is_live = self
                .channels
                .get(name)
                .is_some_and(|one| one.phase == Phase::Live);
            if is_live {
                self.hear(name, one);
            } else {
                self.hold(name, one);
            }
        }
        if let Some(channel) = self.channels.get_mut(name)
            && channel.is_overfull
            && channel.phase == Phase::Live
        {
            channel.is_overfull = false;
            self.renew(name);
        }
    }

    /// Looks whether the last messages of all channels have come.
    pub fn audit(&mut self) {
        if !self.is_listening {
            return;
        }
        let live = self.channels.iter();
        let live = live.filter(|(_, channel)| channel.phase == Phase::Live);
        let names: Vec<Arc<str>> = live.map(|(name, _)| Arc::clone(name)).collect();
        self.ask_all(names, 0, true);
    }

    /// Messages that an audit found, and that have still not come, were lost on their way.
    pub fn look_again(&mut self) {
        for (name, place) in std::mem::take(&mut self.doubts) {
            let channel = self.channels.get(&name);
            if channel.is_some_and(|one| one.phase == Phase::Live && one.last < place) {
                self.fill(&name, place);
            }
        }
    }

    fn begin(&mut self, name: &Arc<str>) {
        if let Some(epoch) = self.epoch {
            self.tell(name, 0, LogEvent::Began(epoch));
        }
    }

    /// A channel's home has all that the log has of it. What has an offset up to `floor` may be missing.
    fn catch_up(&mut self, name: &Arc<str>, floor: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.is_new = false;
        let offset = channel.read_to.max(floor);
        channel.read_to = offset;
        self.confirming.remove(name);
        self.tell(name, offset, LogEvent::CaughtUp { floor });
        self.tell(name, offset, LogEvent::Whole);
    }

    fn tell_message(&mut self, name: &Arc<str>, sequence: u64, message: M) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if sequence <= channel.last {
            return;
        }
        channel.last = sequence;
        channel.read_to = sequence.max(channel.read_to);
        channel.is_empty = false;
        self.push_told(name, sequence, Said::Message(message));
    }

    fn tell(&mut self, name: &Arc<str>, offset: u64, event: LogEvent) {
        self.push_told(name, offset, Said::Event(event));
    }

    fn push_told(&mut self, name: &Arc<str>, offset: u64, said: Said<M>) {
        let channel = Arc::clone(name);
        self.tasks.push_back(Task::Tell {
            channel,
            offset,
            said,
        });
    }
}

/// Whether nothing is missing between what a channel has and what was read for it, from its last message on.
fn is_joined<M>(channel: &Channel<M>, filled: &Filled<M>, kept_min: usize) -> bool {
    let Some(begin) = filled.begin() else {
        return false;
    };
    let (last, first) = (channel.last, filled.first);
    if begin == last {
        // While it is there, nothing behind it is too old.
        return first <= begin;
    }
    let known = last.max(channel.read_to);
    if filled.begins_with_rollup {
        return begin <= known + 1;
    }
    // If the last message is not too old, and did not have to go for others, somebody has removed it, or the log has lost it.
    let was_to_go = last == 0 || channel.is_empty || first > last;
    was_to_go && filled.is_whole(kept_min) && first <= known + 1
}

/// Whether a message is the next one of its channel.
fn verdict<M>(channel: &Channel<M>, sequence: u64, previous: u64) -> Verdict {
    // What stands before the place up to which all was told, and was not told, has gone meanwhile.
    if sequence <= channel.last.max(channel.read_to) {
        Verdict::Repeated
    } else if previous == channel.last || (previous == 0 && channel.is_empty) {
        Verdict::Next
    } else {
        Verdict::Gap
    }
}

#[cfg(test)]
mod tests;
