//! The last messages of channels: they are asked for when a channel is new, and in audits, and compared with what was told.

use super::channel::Phase;
use super::{Asked, Interest, LastByChannel, Life, Task};
use myriad_hub::LogEvent;
use std::sync::Arc;

/// Channels whose last messages are asked for at once.
const ASKED_MAX: usize = 900;

impl<M> Interest<M> {
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

    /// Whether [`Interest::look_again`] has something to look at.
    #[must_use]
    pub fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Messages that an audit found, and that have still not come, were lost on their way.
    pub fn look_again(&mut self) {
        for (name, place) in std::mem::take(&mut self.doubts) {
            let channel = self.channels.get(&name);
            // Where everything comes in order, what has not come yet is on its way.
            let comes = self.in_order_to > 0 && place > self.in_order_to;
            let is_missing =
                channel.is_some_and(|one| one.phase == Phase::Live && one.last < place);
            if is_missing && !comes {
                self.fill(&name, place);
            }
        }
    }

    pub(super) fn ask_all(
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

    pub(super) fn ask(&mut self, channels: Vec<Arc<str>>, at_least: u64, may_fail: bool) {
        self.tasks.push_back(Task::Ask(Asked {
            life: Life(self.life),
            channels,
            at_least,
            may_fail,
        }));
    }

    /// The last messages of channels are known, from a server that has got to [`Asked::at_least`].
    pub fn handle_last_by_channel(&mut self, asked: &Asked, answer: &LastByChannel) {
        if asked.life != Life(self.life) {
            return;
        }
        for name in &asked.channels {
            let place = answer.places.get(name).copied().unwrap_or(0);
            let Some(channel) = self.channels.get_mut(name) else {
                continue;
            };
            channel.note_in_order(self.in_order_to);
            // Servers drop what is too old each at its own time. What is gone on one of them is as good as gone.
            let is_old = place > channel.last && place < answer.first;
            let place = if is_old { 0 } else { place };
            match channel.phase {
                Phase::Asked if answer.watermark >= channel.fence => self.meet(name, place, answer),
                Phase::Live => self.check(name, place, answer),
                Phase::New | Phase::Asked | Phase::Filling => {}
            }
        }
    }

    /// A channel that was subscribed, or listened to anew, has its last message there (0: none).
    fn meet(&mut self, name: &Arc<str>, place: u64, answer: &LastByChannel) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if channel.is_denied {
            return self.meet_denied(name, place, answer);
        }
        if place > channel.last {
            return self.fill(name, place);
        }
        if place > 0 {
            // The log was looked at when it was opened. If it does not have the last message, somebody has deleted that one.
            channel.last = place;
        }
        channel.phase = Phase::Live;
        if channel.is_new {
            channel.read_to = answer.watermark;
            channel.is_empty = place == 0;
            self.begin(name);
            self.catch_up(name, answer.first.saturating_sub(1));
        } else {
            self.pass(name, place, answer);
            self.ask_if_confirming(name);
        }
        self.release(name);
    }

    /// A channel has nothing that was not told. If it is empty, something may have come and gone since it was read.
    fn pass(&mut self, name: &Arc<str>, place: u64, answer: &LastByChannel) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        let gone = answer.first.saturating_sub(1);
        let has_lost = place == 0 && gone > channel.read_to.max(channel.last);
        channel.is_empty = place == 0;
        channel.read_to = answer.watermark.max(channel.read_to).max(gone);
        if has_lost {
            self.tell(name, gone, LogEvent::Lost);
        }
        self.tell_if_confirming(name);
    }

    /// A channel that is followed has its last message there (0: none).
    fn check(&mut self, name: &Arc<str>, place: u64, answer: &LastByChannel) {
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
        if answer.watermark < channel.last {
            return;
        }
        if place < channel.last && place > 0 {
            return self.tasks.push_back(Task::Suspect);
        }
        self.pass(name, place, answer);
    }
}
