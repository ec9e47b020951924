//! Subscribers who have seen more of a channel than was read here: their homes are told when that was read.

use super::channel::Phase;
use super::{Asked, Interest};
use myriad_hub::LogEvent;
use std::sync::Arc;

impl<M> Interest<M> {
    /// A subscriber has seen this offset of a channel: its home wants to hear when the channel has been read up to there.
    pub fn confirm(&mut self, name: &Arc<str>, offset: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.note_in_order(self.in_order_to);
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

    /// Nobody can answer a question that may fail. Whoever waited for it waits no more.
    pub fn handle_dropped(&mut self, asked: &Asked) {
        for name in &asked.channels {
            if asked.at_least > 0 && self.confirming.get(name) == Some(&asked.at_least) {
                self.confirming.remove(name);
            }
        }
    }

    /// Asks how far a channel has come that subscribers wait for.
    pub(super) fn ask_if_confirming(&mut self, name: &Arc<str>) {
        if self.is_listening
            && let Some(&offset) = self.confirming.get(name)
        {
            self.ask_all([Arc::clone(name)], offset, true);
        }
    }

    /// Tells a home how far a channel has been read, if a subscriber waits for that.
    pub(super) fn tell_if_confirming(&mut self, name: &Arc<str>) {
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
}
