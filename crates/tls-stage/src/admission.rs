//! Who may make a handshake now, and who waits for that.

use crate::figures::{Failure, refusal};
use crate::{HAS_PLACE, IS_AWAY, IS_COUNTED, IS_DUE, IS_LEGACY, MARK, Secured, Tls};
use myriad_reactor::{Close, Completion, Completions, Reactor, Socket, Token};
use myriad_wheel::Key;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// While others wait for a place, a handshake loses its own after this time, unless its next step is due. A client needs two round trips,
/// and a bad network takes a second for each.
const PATIENCE: Duration = Duration::from_secs(3);

/// A connection whose handshake has begun.
pub(crate) struct Begun {
    key: Key,
    /// When its time began.
    since: Duration,
    /// What it had waited for other threads before that.
    waited_ms: u32,
}

/// The token of a socket that nobody has registered.
const NOBODY: Token = Token {
    index: u32::MAX,
    generation: 0,
};

/// How often the line is looked at while nothing else happens.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_millis(250);

impl Tls {
    /// Reports connections of the line as accepted, as many as there are places for.
    pub(crate) fn admit(&mut self, out: &mut Completions) {
        if !self.line.is_empty() {
            self.make_places(out);
        }
        while self.has_place()
            && let Some(socket) = self.line.pop_front()
        {
            let mut secured = Secured {
                socket: socket.to_bits(),
                ..Secured::default()
            };
            secured.set(HAS_PLACE);
            let key = self.secured.insert(secured);
            self.handshakes += 1;
            self.begun.push_back(Begun {
                key,
                since: (self.setup.clock)(),
                waited_ms: 0,
            });
            out.list.push(Completion::Accepted {
                socket: Socket::from_bits(key.index | MARK),
                listener: self.setup.listener,
            });
        }
        self.forget_ended();
        let figures = &self.setup.figures;
        figures.under_way.store(self.handshakes as u64, Relaxed);
        figures.waiting.store(self.line.len() as u64, Relaxed);
    }

    /// Ends the line: nobody in it gets a place.
    pub(crate) fn reset_line<R: Reactor>(&mut self, sockets: &mut R) {
        for socket in self.line.drain(..) {
            sockets.close(socket, NOBODY, Close::Reset);
        }
        self.setup.figures.waiting.store(0, Relaxed);
    }

    pub(crate) fn has_place(&self) -> bool {
        self.handshakes < self.setup.handshakes_max.max(1)
    }

    /// Ends handshakes that have lasted too long, and whose next record has not come.
    fn make_places(&mut self, out: &mut Completions) {
        let now = (self.setup.clock)();
        while !self.has_place()
            && let Some(begun) = self.begun.pop_front()
        {
            let key = begun.key;
            let secured = self.secured.get_mut(key);
            let Some(secured) = secured.filter(|secured| secured.has(HAS_PLACE)) else {
                continue;
            };
            if now.saturating_sub(begun.since) < PATIENCE {
                return self.begun.push_front(begun);
            }
            // It waits for us, or did so: the time for its answer begins anew.
            if secured.has(IS_DUE | IS_AWAY) || secured.waited_ms > begun.waited_ms {
                self.begun.push_back(Begun {
                    key,
                    since: now,
                    waited_ms: secured.waited_ms,
                });
                continue;
            }
            secured.connection.end();
            self.touched.push(key);
            let token = secured.token();
            self.leave_place(key);
            self.setup.figures.count_failure(Failure::Slow);
            let words = "the client was silent, and others waited for its place";
            let why = Some(refusal(Failure::Slow.label(), words.to_owned()));
            out.list.push(Completion::Refused { token, why });
        }
    }

    /// Keeps the list of those that have begun in proportion to those that are not done.
    fn forget_ended(&mut self) {
        const SLACK: usize = 64;
        if self.begun.len() > 2 * self.handshakes + SLACK {
            let secured = &self.secured;
            let has_place = |key| secured.get(key).is_some_and(|it| it.has(HAS_PLACE));
            self.begun.retain(|begun| has_place(begun.key));
        }
    }

    /// The handshake of a connection is over, or the connection.
    pub(crate) fn leave_place(&mut self, key: Key) {
        self.cancel_step(key);
        let secured = self.secured.get_mut(key);
        if secured.is_some_and(|secured| secured.take(HAS_PLACE)) {
            self.handshakes -= 1;
            // Nothing may happen at the sockets for long.
            let under_way = &self.setup.figures.under_way;
            under_way.store(self.handshakes as u64, Relaxed);
        }
    }

    /// Takes a connection out: it is closed, or changes its owner. The caller names one that is there.
    pub(crate) fn remove(&mut self, key: Key) -> Secured {
        self.leave_place(key);
        let secured = self.secured.get_mut(key);
        let connection = secured.expect("it is there").connection.take_out();
        let secured = Secured {
            connection,
            ..self.secured.remove(key.index)
        };
        if secured.has(IS_COUNTED) {
            self.setup.figures.count_closed(secured.has(IS_LEGACY));
        }
        secured
    }
}
