//! Connections between an answer and the next request.

use crate::Now;
use crate::connection::Connection;
use crate::hub::{Hub, SubscriptionId};
use crate::marks::hit;
use crate::time::ticks;
use crate::timers::{Due, after};
use myriad_wheel::{NONE, Tick};

impl Hub {
    /// The request of a connection was answered: it waits for the next one.
    pub fn end_answer(&mut self, index: u32, now: Now) {
        self.forget_reader(index);
        let first = self.first_subscription(index);
        if first != NONE {
            self.set_waiting(SubscriptionId(first));
        }
        let deadline = after(now.tick(), ticks(self.readers.settings.keep_alive));
        let connection = &mut self.connections[index];
        connection.set_answered();
        connection.ping_at = deadline;
        self.wheel.arm(&mut self.connections, index, deadline);
        self.watch_progress(index);
    }

    /// All of an answer is written. The time in which the next request has to come begins now.
    pub fn begin_keep_alive(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), ticks(self.readers.settings.keep_alive));
        let connection = &mut self.connections[index];
        debug_assert!(connection.is_kept_alive() && !connection.has_outbound());
        if connection.ping_at != deadline {
            connection.ping_at = deadline;
            self.wheel.arm(&mut self.connections, index, deadline);
        }
    }

    /// A connection was opened that has read a stream before, elsewhere. Its next request has to be whole as soon as that of a new one.
    pub fn begin_next_request(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), self.timing.handshake);
        let connection = &mut self.connections[index];
        connection.set_answered();
        connection.ping_at = deadline;
    }

    /// The next request on a connection has begun to come. It has to be whole in time.
    pub fn begin_next_head(&mut self, index: u32, now: Now) {
        let deadline = after(now.tick(), self.timing.handshake);
        let connection = &mut self.connections[index];
        debug_assert!(connection.is_kept_alive());
        if connection.ping_at > deadline {
            connection.ping_at = deadline;
            self.wheel.arm(&mut self.connections, index, deadline);
        }
    }

    /// The next request on a connection is whole, or belongs to another transport.
    pub fn end_keep_alive(&mut self, index: u32) {
        self.connections[index].set(Connection::KEPT_ALIVE, false);
    }

    /// The head of the next request is whole, and it opens a stream with a message in its body: that has as long to come as a head.
    /// The timer still stood at the end of the time in which a next request may begin.
    pub fn begin_next_body(&mut self, index: u32, now: Now) {
        self.connections[index].opened = now.tick();
        self.arm_handshake(index);
    }

    pub(crate) fn handle_kept_alive_deadline(&mut self, index: u32, now: Tick) -> Option<Due> {
        let connection = &self.connections[index];
        let mut deadline = connection.ping_at;
        if connection.has_outbound() {
            // Its client has not read the answer yet. The time for the next request begins when the answer has left.
            hit!(AnswerOutlastsKeepAlive if deadline <= now);
            deadline = deadline.max(after(now, ticks(self.readers.settings.keep_alive)));
        }
        if deadline > now {
            self.wheel.arm(&mut self.connections, index, deadline);
            return None;
        }
        let has_begun = connection.input != NONE;
        if !self.is_late(index, deadline, now) {
            return None;
        }
        if has_begun {
            return Some(Due::HandshakeTimeout);
        }
        hit!(KeepAliveOver);
        Some(Due::KeepAliveOver)
    }
}
