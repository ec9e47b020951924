//! What connections keep in memory for their records. The caller counts it, and says who may keep how much.
//!
//! Input waits here until its record is whole, or until a handshake has its turn, and output until the socket takes it. Any stranger can send
//! half a record. So this belongs in the budgets of those who have a request or a message to keep in part.

use crate::{IS_AWAY, IS_BUFFERING, IS_HOLDING, IS_LEAVING, Tls, TlsStage};
use myriad_reactor::{Completion, Completions, Reactor};
use myriad_wheel::Key;

impl Tls {
    /// The buffers of a connection may have changed.
    pub(crate) fn touch(&mut self, key: Key) {
        self.touched.push(key);
    }

    /// Tells the caller what connections keep whose buffers may have changed.
    pub(crate) fn report_buffered(&mut self, out: &mut Completions) {
        if self.touched.is_empty() {
            return;
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable_by_key(|key| (key.index, key.generation));
        touched.dedup();
        for key in touched.drain(..) {
            let bytes = self.buffered_of(key);
            let Some(secured) = self.secured.get_mut(key) else {
                continue;
            };
            // Those that keep nothing, as nearly all do, are nothing new.
            let was_buffering = secured.take(IS_BUFFERING);
            if bytes > 0 {
                secured.set(IS_BUFFERING);
            }
            if bytes > 0 || was_buffering {
                let token = secured.token();
                out.list.push(Completion::Buffered { token, bytes });
            }
        }
        self.touched = touched;
    }

    /// What a connection of the caller keeps. One that is leaving is not the caller's any more, and has a `close_notify` to keep. The end of
    /// a handshake that is held does not count: it leaves with the next wait, at the latest.
    fn buffered_of(&self, key: Key) -> usize {
        let secured = self.secured.get(key);
        let secured = secured.filter(|it| !it.has(IS_LEAVING));
        let here = secured.map_or(0, |it| match it.has(IS_HOLDING) {
            true => it.connection.input_bytes(),
            false => it.connection.buffered_bytes(),
        });
        let away = secured.filter(|it| it.has(IS_AWAY));
        let away = away.and_then(|_| self.away.get(&key.index));
        here + away.map_or(0, |away| away.buffered_bytes)
    }
}

impl<R: Reactor> TlsStage<R> {
    /// What all connections of the caller keep, by a look at each: for checks.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let sum = |tls: &Tls| {
            let keys = tls.secured.indices();
            let keys = keys.filter_map(|index| tls.secured.key_of(index));
            keys.map(|key| tls.buffered_of(key)).sum()
        };
        self.tls.as_deref().map_or(0, sum)
    }
}
