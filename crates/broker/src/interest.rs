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
//!    Where it hears the whole log, nothing behind the fence is missing.
//! 5. The last message of a channel that goes quiet has no successor that would name it. So the node asks for the last messages of all
//!    its channels again from time to time: an *audit*.
//!
//! | what happens | tell it by |
//! | --- | --- |
//! | the node begins to listen, at first or again | [`Interest::handle_listening`] |
//! | homes want a channel, or do not | [`Interest::want`], [`Interest::forget`], [`Interest::confirm`] |
//! | the answer to [`Task::Fence`] | [`Interest::handle_fence`] |
//! | the answer to [`Task::Ask`] | [`Interest::handle_last_by_channel`] |
//! | the answer to [`Task::Fill`] | [`Interest::handle_filled`], or [`Interest::handle_unfilled`] |
//! | a message was republished | [`Interest::handle_message`] |
//! | the node does not listen any more | [`Interest::handle_deaf`] |
//! | a message came where a node hears the whole log | the same, with [`Previous::InOrder`], and then [`Interest::handle_in_order`], also for messages of other channels |
//! | messages are missing there | [`Interest::handle_hole`] |
//! | time for an audit, or for a second look | [`Interest::audit`], [`Interest::look_at_new`], [`Interest::look_again`] |
//!
//! After each of them, do all of [`Interest::poll_task`].

mod channel;
mod confirming;
mod denied;
mod fences;
mod fills;
mod hearing;
mod last_messages;
mod tasks;
mod telling;

pub use hearing::Previous;
pub use tasks::{Asked, ChannelEvent, Fill, Filled, LastByChannel, Life, Task};

use channel::{Channel, Phase};
use myriad_hub::{Epoch, LogEvent};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
    /// The last message that came in order since the node listens; 0: none did.
    in_order_to: u64,
    /// Channels that were denied something, while the log has no place at which that could be told. [`Interest::look_at_new`] takes them.
    put_off: Vec<Arc<str>>,
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
            in_order_to: 0,
            put_off: Vec::new(),
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

    /// Whether a channel is wanted.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.channels.contains_key(name)
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
        for channel in self.channels.values_mut() {
            channel.note_in_order(self.in_order_to);
        }
        self.in_order_to = 0;
        self.is_listening = false;
        self.life += 1;
        self.fencing = None;
        self.unfenced.clear();
        self.fresh.clear();
        self.settled.clear();
        self.put_off.clear();
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
}

#[cfg(test)]
mod tests;
