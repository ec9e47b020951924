//! Changes nothing. The sweep that tests and the simulator run after each turn: what must hold of a shard's parts together.

use crate::input::Input;
use crate::shard::Shard;
use myriad_hub::{Phase, SessionState, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::{NONE, Timed};
use std::collections::HashSet;

impl<R: Reactor> Shard<R> {
    /// Asserts that the shard's parts agree with each other, between two turns. Costs a pass over all of them: for
    /// tests.
    ///
    /// # Panics
    /// They do not: a bug in the shard or its hub.
    pub fn check(&self) {
        self.hub.check();
        assert!(
            self.turn_end.pending_closes.is_empty(),
            "a turn makes its closes"
        );
        assert!(
            self.turn_end.pending_handovers.is_empty(),
            "a turn makes its handovers"
        );
        assert!(
            self.turn_end.emptied_channels.is_empty(),
            "a turn sends its leaves"
        );
        assert!(
            self.messages.received.is_empty(),
            "a turn handles its messages"
        );
        let (mut inputs, mut buffered_bytes, mut surplus) = (HashSet::new(), 0, 0);
        for index in self.hub.connection_indices() {
            let connection = self.hub.connection(index);
            surplus += usize::from(connection.is_surplus());
            buffered_bytes += self.hub.outbound(index).map_or(0, |outbound| {
                usize::try_from(outbound.cost()).expect("bounded by the outbound budget")
            });
            if connection.input != NONE {
                assert!(
                    inputs.insert(connection.input),
                    "a partial input has one owner"
                );
                buffered_bytes += self.inputs.at(connection.input).cost();
            }
            self.check_phase(index);
        }
        assert_eq!(
            inputs.len(),
            self.inputs.len(),
            "every partial input has an owner"
        );
        buffered_bytes += self.sessions.held_bytes() + self.inputs.buffered_below();
        self.inputs.check_below(&self.hub);
        let buffered_bytes =
            buffered_bytes as u64 + self.hub.filter_bytes() + self.hub.held_bytes();
        assert_eq!(buffered_bytes, self.hub.buffered_bytes());
        assert_eq!(surplus, self.admission.surplus.len());
    }

    /// A connection holds only what its phase allows, and a deadline will end every phase that must not last.
    fn check_phase(&self, index: u32) {
        let connection = self.hub.connection(index);
        let none = Input::None;
        let input = match connection.input {
            NONE => &none,
            kept => self.inputs.at(kept),
        };
        let allowed = match connection.phase {
            Phase::Handshake => matches!(input, Input::None | Input::Head(_) | Input::Body(_)),
            Phase::Joining if self.reads.is_reading(index) => {
                matches!(input, Input::None | Input::Head(_))
            }
            Phase::Joining => matches!(input, Input::Joining { .. }),
            Phase::Open if connection.transport() == Transport::LongPoll => {
                matches!(input, Input::None | Input::Head(_))
            }
            Phase::Open => matches!(input, Input::None | Input::Frames(_)),
            Phase::Closing => matches!(input, Input::None),
        };
        assert!(allowed, "{:?} with {input:?}", connection.phase);
        assert!(
            !connection.is_surplus()
                || matches!(connection.phase, Phase::Handshake | Phase::Closing),
            "let in beyond the limit"
        );
        let lasts = connection.phase == Phase::Open
            && self.settings.ping_interval.is_zero()
            && (self.settings.idle_timeout.is_zero() || !connection.transport().answers_pings());
        let is_armed = connection.timer().is_armed();
        let may_stall = !self.settings.stall_timeout.is_zero();
        let is_stalled = connection.awaits_writable() && connection.has_outbound();
        if connection.phase == Phase::Open && may_stall {
            assert!(is_armed || !is_stalled, "nobody would end it");
        }
        // The timer of one that was stalled fires once without effect.
        let is_right = |lasts: bool| is_armed != lasts || is_armed && may_stall;
        if connection.phase == Phase::Open && connection.transport().reads_streams() {
            let lasts = connection.transport() == Transport::Events
                && self.settings.ping_interval.is_zero()
                && self.settings.readers.events_max.is_zero()
                && !self.hub.events_expire(index);
            assert!(is_right(lasts), "{:?}", connection.transport());
            return;
        }
        if !connection.has_session() {
            assert!(is_right(lasts), "{:?}", connection.phase);
            return;
        }
        // A client that has connected may still have the timer that would have ended it as stale.
        let is_connected = self.hub.session(index).state == SessionState::Connected;
        assert!(is_armed || lasts && is_connected, "{:?}", connection.phase);
    }
}
