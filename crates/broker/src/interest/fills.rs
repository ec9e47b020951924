//! Fills: what a channel lacks is read, or its home is told that something is missing.

use super::channel::{Channel, Phase};
use super::denied::has_denied;
use super::{Fill, Filled, Interest, Life, Task};
use myriad_hub::LogEvent;
use std::sync::Arc;

impl<M> Interest<M> {
    /// Reads what a channel lacks, from the last message that it has on: if that is still there, nothing behind it has gone.
    pub(super) fn fill(&mut self, name: &Arc<str>, to: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.note_in_order(self.in_order_to);
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
    pub fn handle_filled(&mut self, fill: &Fill, mut filled: Filled<M>) {
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
        if !channel.is_new {
            // Servers drop what is too old each at its own time.
            let known = channel.last.max(channel.read_to);
            let is_old =
                |place: u64| place > channel.last && place <= known && place < filled.first;
            let all = filled.messages.len();
            filled.messages.retain(|(place, _)| !is_old(*place));
            if filled.messages.is_empty() && all > 0 {
                return self.be_live(name, fill.to);
            }
            if has_denied(channel, &filled) {
                return self.deny(name);
            }
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
        self.be_live(name, fill.to);
    }

    /// A channel has everything up to a place.
    fn be_live(&mut self, name: &Arc<str>, read_to: u64) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.phase = Phase::Live;
            channel.read_to = channel.read_to.max(read_to);
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
