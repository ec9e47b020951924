//! Streams of events: how they open, that they stay alive, and when they end.

use super::Bearer;
use crate::connection::{Connection, Phase, Transport};
use crate::hub::Hub;
use crate::marks::hit;
use crate::streams::{Variant, comment, end_of_events};
use crate::time::ticks;
use crate::timers::{Due, after};
use crate::{NEVER, Now};
use myriad_wheel::Tick;

/// Clients of streams of events come back after this time at least, ms ...
const RETRY_MS_MIN: u32 = 1_000;
/// ... and up to this much later.
const RETRY_MS_SPAN: u32 = 2_000;

impl Hub {
    /// When the client of the next stream of events is to come back after its end, ms: clients that lose a server together come
    /// back spread over two seconds.
    pub fn next_retry_ms(&mut self) -> u32 {
        RETRY_MS_MIN + (self.next_phase() >> 16) * RETRY_MS_SPAN / (1 << 16)
    }

    /// Opens a stream of events, for whoever has shown a token. Its head is queued. Nothing is delivered to it before
    /// [`Hub::begin_delivering`].
    pub fn open_events(&mut self, index: u32, variant: Variant, bearer: Option<Bearer>, now: Now) {
        self.note_bearer(index, bearer);
        let connection = &mut self.connections[index];
        connection.set_reader(Transport::Events, variant);
        connection.set(Connection::AWAITS_PONG, false);
        connection.phase = Phase::Open;
        connection.opened = now.tick();
        self.connections[index].ping_at = self.first_ping(index, now.tick());
        self.rearm_events(index, now.tick());
        self.readers.events += 1;
    }

    /// A comment for a stream of events.
    #[must_use]
    pub fn events_comment(&self, index: u32) -> Vec<u8> {
        comment(self.connections[index].variant().is_chunked())
    }

    /// The last bytes of a stream of events.
    #[must_use]
    pub fn events_end(&self, index: u32) -> Vec<u8> {
        end_of_events(self.connections[index].variant().is_chunked())
    }

    pub(crate) fn handle_reader_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        let connection = &mut self.connections[index];
        if connection.transport() == Transport::LongPoll {
            if connection.ping_at > now {
                let deadline = connection.ping_at;
                self.wheel.arm(&mut self.connections, index, deadline);
                return None;
            }
            hit!(PollOver);
            return Some(Due::PollOver);
        }
        let max = ticks(self.readers.settings.events_max);
        if max > 0 && after(connection.opened, max) <= now {
            hit!(EventsOver);
            return Some(Due::EventsOver);
        }
        if self.bearer_expiry(index) <= now {
            hit!(EventsExpired);
            return Some(Due::EventsExpired);
        }
        let mut due = None;
        if self.timing.ping_interval > 0 && self.connections[index].ping_at <= now {
            self.connections[index].ping_at = self.next_ping(index, now);
            due = Some(Due::Ping);
        }
        self.rearm_events(index, now);
        due
    }

    /// Arms a stream of events for its next comment or its end.
    pub(crate) fn rearm_events(&mut self, index: u32, now: Tick) {
        let connection = &self.connections[index];
        let ping = (self.timing.ping_interval > 0).then_some(connection.ping_at);
        let max = ticks(self.readers.settings.events_max);
        let end = (max > 0).then(|| after(connection.opened, max));
        let expiry = Some(self.bearer_expiry(index)).filter(|&expiry| expiry != NEVER);
        match ping.into_iter().chain(end).chain(expiry).min() {
            Some(deadline) => {
                let deadline = deadline.max(after(now, 1));
                self.wheel.arm(&mut self.connections, index, deadline);
            }
            None => self.wheel.disarm(&mut self.connections, index),
        }
        self.watch_progress(index);
    }
}
