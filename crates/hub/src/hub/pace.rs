//! The pace of a channel that speaks faster than most of its members take. They get time to read before they count as slow.
//!
//! A burst of two mebibytes leaves within one turn, and no reader takes as much meanwhile. Without a pause, one client's burst
//! would end the connections of all subscribers. A member that falls behind while most others keep up gets no such time. Nor
//! do members of channels with another policy for slow consumers: those lose or recover what they miss, and the later that
//! begins the more it is.

use super::Hub;
use crate::SlowConsumer;
use crate::channel::{Backlog, Member};
use crate::marks::hit;
use myriad_wheel::Tick;

/// A member is congested while less than half of its connection's budget is left.
const CONGESTED_DIVISOR: u32 = 2;
/// What a paced channel may add to each queue between two pauses: a sixteenth of the budget.
const PAUSE_BURST_DIVISOR: u32 = 16;
/// The longest pause: 800 ms. A member that reads nothing has four seconds, and a channel whose members stall goes on with
/// 80 KiB/s and a budget of 1 MiB.
const PAUSE_TICKS_MAX: u8 = 16;

/// How fast a channel may deliver on this shard.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Members that the delivery under way found congested.
    congested: u32,
    /// Bytes delivered since the last pause, or since most members became congested.
    bytes: u32,
    /// The last pause; zero while most members keep up.
    pause_ticks: u8,
    /// The next delivery begins no earlier.
    resumes_at: Tick,
}

impl Hub {
    /// Something of a delivery was queued for a member, or had no room. Call it once for each member and delivery: it counts
    /// members.
    pub(super) fn note_congestion(&mut self, member: Member) {
        let room_min = (self.outbound_bytes_max / CONGESTED_DIVISOR) as usize;
        if self.outbound_room(member.connection) < room_min {
            let channel = self.subscriptions[member.subscription].channel;
            self.channels[channel].pace.congested += 1;
        }
    }

    /// A channel has finished a delivery of so many bytes. Where it found most members congested, each pause is twice as long
    /// as the one before. No member is waited for while too much waits.
    pub(super) fn update_pace(&mut self, channel: u32, bytes: usize) {
        let burst_max = self.outbound_bytes_max / PAUSE_BURST_DIVISOR;
        let record = &mut self.channels[channel];
        let ends_pauses = record.ends_pauses(self.outbound_bytes_max);
        let pace = &mut record.pace;
        let congested = std::mem::take(&mut pace.congested) as usize;
        let waits = record.slow_consumer == SlowConsumer::Disconnect && !ends_pauses;
        if 2 * congested <= record.members.len() || !waits {
            *pace = Pace::default();
            return;
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        pace.bytes = pace.bytes.saturating_add(bytes);
        if pace.bytes >= burst_max {
            hit!(DeliveriesPause);
            pace.bytes = 0;
            pace.pause_ticks = (2 * pace.pause_ticks).clamp(1, PAUSE_TICKS_MAX);
            let pause = u32::from(pace.pause_ticks);
            pace.resumes_at = Tick(self.turn_tick.0.saturating_add(pause));
        }
    }

    /// Lists a channel that has something to deliver: now, or when its pause ends.
    pub(super) fn list_delivering(&mut self, channel: u32) {
        let resumes_at = self.channels[channel].pace.resumes_at;
        if resumes_at <= self.turn_tick {
            self.delivering.push_back(channel);
        } else {
            self.paused.insert((resumes_at, channel));
        }
    }

    /// Too much waits in a channel: it waits for nobody any longer.
    pub(super) fn end_pause(&mut self, channel: u32) {
        let pace = std::mem::take(&mut self.channels[channel].pace);
        if self.paused.remove(&(pace.resumes_at, channel)) {
            self.delivering.push_back(channel);
        }
    }

    /// A turn begins: what is counted from its time begins at this tick.
    pub fn begin_turn(&mut self, tick: Tick) {
        self.turn_tick = tick;
    }

    /// A turn's deliveries begin: channels whose pause is over deliver again, and what clients may publish in a turn counts
    /// from zero.
    pub fn begin_deliveries(&mut self) {
        for channel in self.taken.drain(..) {
            if self.channels.key_of(channel).is_some() {
                self.channels[channel].taken = Backlog::default();
            }
        }
        while let Some(&(resumes_at, channel)) = self.paused.first()
            && resumes_at <= self.turn_tick
        {
            self.paused.pop_first();
            self.delivering.push_back(channel);
        }
    }

    /// When the first pause ends.
    pub(crate) fn next_resumption(&self) -> Option<Tick> {
        self.paused.first().map(|(resumes_at, _)| *resumes_at)
    }
}
