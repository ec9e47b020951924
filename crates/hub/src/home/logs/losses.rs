//! What a log has lost: subscribers of its channels must not miss it in silence.

use super::super::{Home, HomeEffect};
use super::progress::Progress;
use super::{LogId, Source};
use crate::{Delivery, Now, Position};
use std::sync::Arc;

impl Home {
    pub(super) fn lose_source(&mut self, source: &Source, log: LogId, now: Now) {
        match source {
            Source::Log(log) => self.lose_channels(*log, now),
            Source::Channel(channel) => {
                let lost = self.read_position(log, channel).offset;
                self.note_forgotten_offset(log, channel, lost);
                self.lose_channel(channel, log, now);
            }
        }
    }

    /// All channels of a log have lost something. Their histories begin again here, and their subscribers have to subscribe anew.
    /// That happens when a log lost what this home had not read: it may take long where there are many channels.
    fn lose_channels(&mut self, log: LogId, now: Now) {
        // A log that this home does not read has no channels here.
        let Some(known) = self.logs.of_mut(&Source::Log(log)) else {
            return;
        };
        known.forgotten = known.forgotten.max(known.offset);
        let Progress { epoch, offset, .. } = *known;
        let epoch = epoch.unwrap_or(self.settings.epoch);
        let position = Position { epoch, offset };
        let indices: Vec<u32> = self.channels.indices().collect();
        for index in indices {
            if self.channels[index].log() == Some(log) {
                self.lose(index, position, now);
            }
        }
    }

    /// One channel of a log has lost something.
    pub(in crate::home) fn lose_channel(&mut self, channel: &str, log: LogId, now: Now) {
        if let Some(index) = self.find_or_open(channel, now) {
            self.lose(index, self.read_position(log, channel), now);
        }
    }

    fn lose(&mut self, index: u32, position: Position, now: Now) {
        self.flush_batch(index);
        // Its shards have left it by this, and say nothing more of it.
        let name = Arc::clone(&self.channels[index].name);
        self.note_channel_use(&name, now);
        let record = &mut self.channels[index];
        record.epoch = position.epoch;
        record.last_offset = position.offset;
        if let Some(history) = &mut record.history {
            let before = history.holding();
            history.begin_after(position.offset);
            self.budget.note(before, history.holding());
        }
        let shards = std::mem::take(&mut record.subscribed);
        if !shards.is_empty() {
            self.tell_of_nobody(index);
            let record = &mut self.channels[index];
            record.users.clear();
            // By this, these shards have left the channel.
            let delivery = Delivery::Lost(Arc::clone(&record.name));
            self.effects
                .push_back(HomeEffect::Deliver { delivery, shards });
            self.note_empty(index, now);
        }
        self.finish(index, now);
    }
}
