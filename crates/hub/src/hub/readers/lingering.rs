//! Channels that are kept for a while when their last reader has gone.

use crate::Now;
use crate::channel::Membership;
use crate::hub::Hub;
use crate::marks::hit;
use crate::timers::after;
use myriad_wheel::Tick;
use std::sync::Arc;

/// Ticks that a channel without members is kept after it was read: 2 s. Those whose poll was answered on a connection that ended
/// ask again by then.
const LINGER_TICKS: u32 = 40;
/// Channels that may be kept without members.
const LINGERING_MAX: usize = 4096;

impl Hub {
    /// A channel has lost its last member: it is removed, or kept for a while if it was read as a stream and has lost nothing.
    pub(in crate::hub) fn note_empty(
        &mut self,
        channel: u32,
        emptied_channels: &mut Vec<Arc<str>>,
    ) {
        let record = &mut self.channels[channel];
        let is_joined = matches!(record.membership, Membership::Joined { .. });
        let lingers = record.stream.is_some() && is_joined && !record.is_lost;
        if !lingers || self.readers.lingering.len() >= LINGERING_MAX {
            emptied_channels.push(self.remove_channel(channel));
            return;
        }
        let until = after(self.turn_tick, LINGER_TICKS);
        record.lingers_until = Some(until);
        self.readers.lingering.push_back((until, channel));
        hit!(ChannelLingers);
    }

    /// Removes the channels that were kept without members for long enough; all of them at an end.
    pub fn end_lingering(&mut self, now: Now, is_end: bool, emptied_channels: &mut Vec<Arc<str>>) {
        while let Some(&(until, channel)) = self.readers.lingering.front()
            && (is_end || until <= now.tick())
        {
            self.readers.lingering.pop_front();
            // It may have members again, or be another channel.
            let is_same = self.channels.key_of(channel).is_some()
                && self.channels[channel].lingers_until == Some(until);
            if !is_same {
                continue;
            }
            self.channels[channel].lingers_until = None;
            let record = &self.channels[channel];
            if !record.has_members() && record.deliveries.is_empty() {
                emptied_channels.push(self.remove_channel(channel));
            }
        }
    }

    /// When the first channel without members is to be removed.
    pub(crate) fn next_linger_end(&self) -> Option<Tick> {
        self.readers.lingering.front().map(|(until, _)| *until)
    }
}
