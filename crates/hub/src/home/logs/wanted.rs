//! Channels that are read by themselves, because a node hears no more than its clients want.
//!
//! A home wants a channel from the first join or question on. It waits until all has come that is kept of the channel. When nobody has
//! subscribed, and nobody has asked for a while, the home wants the channel no more, and forgets what it has of it.

use super::super::Home;
use super::Source;
use super::progress::Progress;
use crate::Now;
use myriad_wheel::Tick;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A channel without subscribers is wanted for so long after its last use.
const LINGER_MS: u64 = 60_000;

/// What a home wants of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The channel.
    pub channel: Arc<str>,
    /// What it wants.
    pub wanting: Wanting,
}

/// What is wanted of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanting {
    /// To hear it, from the beginning of what is kept.
    Hear,
    /// Nothing more.
    Nothing,
    /// To be told when it has been read up to here: a subscriber has seen this offset.
    Confirm(u64),
}

/// A channel that is wanted.
#[derive(Debug, Default)]
struct Wanted {
    progress: Progress,
    /// When somebody asked or left last.
    used: Tick,
    /// There is a deadline for it.
    is_lingering: bool,
}

/// All channels of a home that are wanted.
#[derive(Debug, Default)]
pub(super) struct WantedChannels {
    channels: HashMap<Arc<str>, Wanted>,
    /// When channels are looked at that nobody may use any more.
    deadlines: VecDeque<(Tick, Arc<str>)>,
    wishes: VecDeque<Wish>,
}

impl WantedChannels {
    pub(super) fn progress_of(&self, channel: &str) -> Option<&Progress> {
        self.channels.get(channel).map(|wanted| &wanted.progress)
    }

    pub(super) fn progress_of_mut(&mut self, channel: &str) -> Option<&mut Progress> {
        self.channels
            .get_mut(channel)
            .map(|wanted| &mut wanted.progress)
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    fn wish(&mut self, channel: &Arc<str>, wanting: Wanting) {
        let channel = Arc::clone(channel);
        self.wishes.push_back(Wish { channel, wanting });
    }

    /// Somebody uses a channel, or has left it: it is looked at after a while.
    fn note_use(&mut self, channel: &str, now: Tick) {
        let Some((name, _)) = self.channels.get_key_value(channel) else {
            return;
        };
        let name = Arc::clone(name);
        if let Some(wanted) = self.channels.get_mut(channel) {
            wanted.used = now;
            if !wanted.is_lingering {
                wanted.is_lingering = true;
                self.deadlines.push_back((now.plus_ms(LINGER_MS), name));
            }
        }
    }

    /// The next channel to look at.
    fn take_due(&mut self, now: Tick) -> Option<Arc<str>> {
        let is_due = self.next_deadline().is_some_and(|deadline| deadline <= now);
        let due = is_due.then(|| self.deadlines.pop_front()).flatten();
        due.map(|(_, channel)| channel)
    }

    /// Whether a channel that is due was used since. Then it is looked at again.
    fn was_used(&mut self, channel: &Arc<str>, now: Tick) -> bool {
        let Some(wanted) = self.channels.get_mut(channel) else {
            return false;
        };
        let deadline = wanted.used.plus_ms(LINGER_MS);
        if deadline > now {
            self.deadlines.push_back((deadline, Arc::clone(channel)));
            return true;
        }
        wanted.is_lingering = false;
        false
    }
}

impl Home {
    /// What this home wants of the log next, where channels are read by themselves.
    pub fn poll_wish(&mut self) -> Option<Wish> {
        self.logs.wanted.as_mut()?.wishes.pop_front()
    }

    /// Somebody waits for a source: if it is a channel that is not wanted yet, it is from now on.
    pub(super) fn want(&mut self, source: &Source, now: Now) {
        let Source::Channel(channel) = source else {
            return;
        };
        let Some(wanted) = &mut self.logs.wanted else {
            return;
        };
        if !wanted.channels.contains_key(channel) {
            let one = Wanted::default();
            wanted.channels.insert(Arc::clone(channel), one);
            wanted.wish(channel, Wanting::Hear);
        }
        wanted.note_use(channel, now.tick());
    }

    /// Somebody asks about a channel, or has left it.
    pub(in super::super) fn note_channel_use(&mut self, channel: &str, now: Now) {
        if let Some(wanted) = &mut self.logs.wanted {
            wanted.note_use(channel, now.tick());
        }
    }

    /// A subscriber waits until a channel has been read up to an offset.
    pub(super) fn confirm(&mut self, channel: &Arc<str>, offset: u64) {
        if let Some(wanted) = &mut self.logs.wanted {
            wanted.wish(channel, Wanting::Confirm(offset));
        }
    }

    /// Forgets channels that nobody has subscribed to, and nobody has asked about for a while.
    pub(super) fn drop_unused(&mut self, now: Now) {
        while let Some(wanted) = &mut self.logs.wanted
            && let Some(channel) = wanted.take_due(now.tick())
        {
            if wanted.was_used(&channel, now.tick()) || self.is_subscribed(&channel) {
                continue;
            }
            self.drop_channel(&channel);
        }
    }

    /// Whether some shard has subscribed to a channel, or a client waits for it.
    fn is_subscribed(&self, channel: &Arc<str>) -> bool {
        let index = self.names.get(channel);
        let has_shards = index.is_some_and(|&index| !self.channels[index].subscribed.is_empty());
        let source = Source::Channel(Arc::clone(channel));
        has_shards || self.logs.waiting.has_clients(&source)
    }

    fn drop_channel(&mut self, channel: &Arc<str>) {
        let Some(wanted) = &mut self.logs.wanted else {
            return;
        };
        if wanted.channels.remove(channel).is_none() {
            return;
        }
        wanted.wish(channel, Wanting::Nothing);
        // Whoever still waits has given up.
        let source = Source::Channel(Arc::clone(channel));
        self.logs.waiting.drop_questions(&source);
        if let Some(&index) = self.names.get(channel) {
            self.flush_batch(index);
            self.forget(index);
        }
    }
}
