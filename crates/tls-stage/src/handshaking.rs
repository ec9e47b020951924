//! Handshakes, a bounded number of steps in each wait.

use crate::connection::{ConnectionFailed, Step};
use crate::figures::{Failure, refusal};
use crate::words::sentence;
use crate::workers::{Desk, Done};
use crate::{Away, IS_AWAY, IS_DUE, IS_HOLDING, IS_PAUSED, Offer, Tls, token_below};
use myriad_reactor::{Completion, Completions, Reactor, Refusal};
use myriad_wheel::Key;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Steps of one wait. The longest of them, which makes keys and a signature, takes some 100 us on one core.
const STEPS_MAX: usize = 16;

/// Steps of one wait whose caller has deliveries under way.
const STEPS_BESIDE_DELIVERIES: usize = 4;

impl Tls {
    /// Makes steps of those handshakes that have waited longest.
    pub(crate) fn run_handshakes<R: Reactor>(&mut self, sockets: &mut R, out: &mut Completions) {
        self.take_done(sockets, out);
        let steps = match out.receives_max {
            usize::MAX => STEPS_MAX,
            _ => STEPS_BESIDE_DELIVERIES,
        };
        for _ in 0..steps {
            match self.due.pop_front() {
                Some(key) => self.run_step(key, sockets, out),
                None => break,
            }
        }
        // Who waits for us is not silent.
        out.input_pending |= !self.due.is_empty();
    }

    fn run_step<R: Reactor>(&mut self, key: Key, sockets: &mut R, out: &mut Completions) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        secured.take(IS_DUE);
        if !secured.connection.is_handshaking() {
            return;
        }
        let offer = self.setup.offer.load_full();
        if offer.signs_slowly && self.send_away(key, &offer) {
            return;
        }
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        let result = secured.connection.step(&offer);
        self.finish_step(key, result, sockets, out);
    }

    /// Gives the next step of a connection to another thread. False if it has to be made here.
    fn send_away(&mut self, key: Key, offer: &Arc<Offer>) -> bool {
        let (Some(desk), Some(secured)) = (&self.desk, self.secured.get_mut(key)) else {
            return false;
        };
        // All other steps take less than the way to another thread. The end of a handshake waits behind nobody's beginning.
        if !secured.connection.may_sign() {
            return false;
        }
        let connection = Box::new(std::mem::take(&mut secured.connection));
        let buffered_bytes = connection.buffered_bytes();
        let ticket = desk.ask(key, connection, Arc::clone(offer));
        let since = (self.setup.clock)();
        secured.set(IS_AWAY);
        let away = Away {
            ticket,
            since,
            buffered_bytes,
        };
        self.away.insert(key.index, away);
        self.touched.push(key);
        self.note_away();
        true
    }

    /// The handshake of a connection is over, so nobody needs its next step.
    pub(crate) fn cancel_step(&mut self, key: Key) {
        let secured = self.secured.get_mut(key);
        if !secured.is_some_and(|secured| secured.take(IS_AWAY)) {
            return;
        }
        self.touched.push(key);
        if let (Some(away), Some(desk)) = (self.away.remove(&key.index), &self.desk) {
            desk.cancel(away.ticket);
        }
        self.note_away();
    }

    fn note_away(&self) {
        let signing = &self.setup.figures.signing;
        signing.store(self.away.len() as u64, Relaxed);
    }

    /// How long the handshake of a connection has waited for other threads.
    pub(crate) fn waited(&self, key: Key) -> Duration {
        let waited_ms = self.secured.get(key).map_or(0, |it| it.waited_ms);
        let away = self.secured.get(key).filter(|it| it.has(IS_AWAY));
        let away = away.and_then(|_| self.away.get(&key.index));
        let now = (self.setup.clock)();
        let waits = away.map_or(Duration::ZERO, |away| now.saturating_sub(away.since));
        Duration::from_millis(u64::from(waited_ms)) + waits
    }

    /// Takes back the connections whose step another thread has made.
    fn take_done<R: Reactor>(&mut self, sockets: &mut R, out: &mut Completions) {
        while let Some(done) = self.desk.as_ref().and_then(Desk::take) {
            let Done {
                key,
                mut connection,
                result,
            } = done;
            let waited = self.waited(key);
            let Some(secured) = self.secured.get_mut(key) else {
                // It was closed meanwhile.
                continue;
            };
            // Its handshake has ended meanwhile.
            if !secured.take(IS_AWAY) {
                continue;
            }
            self.away.remove(&key.index);
            secured.waited_ms = u32::try_from(waited.as_millis()).unwrap_or(u32::MAX);
            connection.add_input(secured.connection.input());
            secured.connection = connection.take_out();
            self.note_away();
            self.finish_step(key, result, sockets, out);
        }
    }

    fn finish_step<R: Reactor>(
        &mut self,
        key: Key,
        result: Result<Step, ConnectionFailed>,
        sockets: &mut R,
        out: &mut Completions,
    ) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        self.touched.push(key);
        let has_output = !secured.connection.output().is_empty();
        if has_output {
            self.speaking.push(key);
        }
        match result {
            Ok(Step::Starved) => {}
            Ok(Step::Taken) => self.greet(key, out),
            Ok(Step::Established { is_resumed }) => {
                let is_legacy = secured.note_open();
                if has_output {
                    secured.set(IS_HOLDING);
                    self.holding.push(key);
                }
                self.setup.figures.count_established(is_resumed, is_legacy);
                self.leave_place(key);
                self.open(key, 0..0, out);
            }
            Ok(Step::Answered) => {
                self.setup.figures.count_challenge();
                self.end_handshake(key, None, out);
            }
            Err(failed) => {
                let failure = Failure::of(&failed);
                self.setup.figures.count_failure(failure);
                let why = refusal(failure.label(), sentence(&failed));
                self.end_handshake(key, Some(why), out);
            }
        }
        self.resume(key, sockets);
    }

    /// Nothing comes behind this handshake but what is in the output.
    fn end_handshake(&mut self, key: Key, why: Option<Box<Refusal>>, out: &mut Completions) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        let token = secured.token();
        self.leave_place(key);
        out.list.push(Completion::Refused { token, why });
    }

    /// Reads on from a connection whose input had become long while it waited for its turn.
    fn resume<R: Reactor>(&mut self, key: Key, sockets: &mut R) {
        if let Some(secured) = self.secured.get_mut(key)
            && !secured.has(IS_DUE)
            && secured.take(IS_PAUSED)
        {
            sockets.resume(secured.below(), token_below(key));
        }
    }
}
