//! From the sockets to the caller.

use crate::connection::ConnectionFailed;
use crate::figures::{Failure, refusal};
use crate::words::{GONE_ANSWERED, GONE_EARLY, GONE_MEANWHILE, sentence};
use crate::{
    AWAITS_WRITABLE, END_REPORTED, IS_AWAY, IS_BUFFERING, IS_DUE, IS_LEAVING, IS_PAUSED, MARK,
    Secured, Tls, token_below,
};
use myriad_reactor::{Close, Completion, Completions, Reactor, Token};
use myriad_wheel::Key;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes that a connection may send ahead while its handshake waits for its turn. What comes later stays in the kernel.
const AHEAD_MAX: usize = 16 << 10;

/// The errno of a connection that its peer has broken off.
const ECONNRESET: i32 = 104;

/// Why a client that went away in its handshake may have done so. None for one that said nothing: balancers look at a port like that
/// every second.
fn gone(secured: &Secured) -> Option<&'static str> {
    if secured.has(IS_AWAY) {
        return Some(GONE_MEANWHILE);
    }
    let connection = &secured.connection;
    if !connection.is_fresh() {
        return Some(GONE_ANSWERED);
    }
    (!connection.input().is_empty()).then_some(GONE_EARLY)
}

impl Tls {
    /// Replaces what the reactor below reported with what the caller is to know.
    pub(crate) fn translate<R: Reactor>(&mut self, sockets: &mut R, out: &mut Completions) {
        if !self.has_work() && !out.list.iter().any(|completion| self.concerns(completion)) {
            return;
        }
        let mut below = std::mem::take(&mut self.below);
        std::mem::swap(&mut below, &mut out.list);
        for completion in below.drain(..) {
            self.handle(completion, sockets, out);
        }
        self.below = below;
        self.run_handshakes(sockets, out);
        self.admit(out);
        self.end_leaving(sockets);
        self.flush(sockets);
        self.report_buffered(out);
        out.list.append(&mut self.ready);
    }

    /// Whether something is to be done although nothing happens at the sockets.
    pub(crate) fn has_work(&self) -> bool {
        !self.due.is_empty()
            || !self.ready.is_empty()
            || !self.speaking.is_empty()
            || !self.touched.is_empty()
            || !self.line.is_empty()
            || !self.leaving.is_empty()
            || !self.away.is_empty()
    }

    fn concerns(&self, completion: &Completion) -> bool {
        match completion {
            Completion::Accepted { listener, .. } => *listener == self.setup.listener,
            Completion::Received { token, .. }
            | Completion::Finished { token }
            | Completion::Failed { token, .. }
            | Completion::Refused { token, .. }
            | Completion::Writable { token } => token.index & MARK != 0,
            Completion::AcceptPaused { .. }
            | Completion::Connected { .. }
            | Completion::ConnectFailed { .. }
            | Completion::Buffered { .. }
            | Completion::Woken => false,
        }
    }

    fn handle<R: Reactor>(
        &mut self,
        completion: Completion,
        sockets: &mut R,
        out: &mut Completions,
    ) {
        if !self.concerns(&completion) {
            return out.list.push(completion);
        }
        match completion {
            Completion::Accepted { socket, .. } => self.line.push_back(socket),
            Completion::Received { token, range } => {
                self.handle_received(token, range, sockets, out);
            }
            Completion::Finished { token } => self.handle_finished(token, out),
            Completion::Failed { token, errno } => self.handle_failed(token, errno, sockets, out),
            Completion::Writable { token } => self.handle_writable(token),
            _ => {}
        }
    }

    fn handle_received<R: Reactor>(
        &mut self,
        token: Token,
        range: Range<usize>,
        sockets: &mut R,
        out: &mut Completions,
    ) {
        let Some(key) = self.of_token(token) else {
            return;
        };
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        if secured.connection.is_over() || secured.has(END_REPORTED | IS_LEAVING) {
            return;
        }
        if !secured.connection.is_handshaking() {
            return self.open(key, range, out);
        }
        secured.connection.add_input(&out.buffer[range]);
        self.touched.push(key);
        if !secured.has(IS_AWAY) {
            self.greet(key, out);
        }
        if let Some(secured) = self.secured.get_mut(key)
            && secured.has(IS_DUE | IS_AWAY)
            && secured.connection.input().len() > AHEAD_MAX
            && !secured.has(IS_PAUSED)
        {
            secured.set(IS_PAUSED);
            sockets.pause(secured.below(), token_below(key));
        }
    }

    /// Opens records in a range of the buffer, behind those that have waited, and reports their plaintext.
    pub(crate) fn open(&mut self, key: Key, range: Range<usize>, out: &mut Completions) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        let received = secured.connection.receive(&mut out.buffer, range);
        // Most records come whole, and leave nothing.
        if secured.has(IS_BUFFERING) || secured.connection.buffered_bytes() > 0 {
            self.touched.push(key);
        }
        let token = secured.token();
        if !secured.connection.output().is_empty() {
            self.speaking.push(key);
        }
        out.report_received(token, received.plain);
        if received.is_closed && !secured.has(END_REPORTED) {
            secured.set(END_REPORTED);
            out.list.push(Completion::Finished { token });
        }
        match received.failed {
            None => {}
            // The peer has gone, and listens to nothing.
            Some(ConnectionFailed::Alert(_)) => {
                self.setup.figures.broken.fetch_add(1, Relaxed);
                if !secured.has(END_REPORTED) {
                    secured.set(END_REPORTED);
                    let errno = ECONNRESET;
                    out.list.push(Completion::Failed { token, errno });
                }
            }
            Some(failed) => {
                self.setup.figures.broken.fetch_add(1, Relaxed);
                let why = Some(refusal("broken", sentence(&failed)));
                out.list.push(Completion::Refused { token, why });
            }
        }
    }

    fn handle_writable(&mut self, token: Token) {
        if let Some(key) = self.of_token(token)
            && let Some(secured) = self.secured.get_mut(key)
        {
            secured.take(AWAITS_WRITABLE);
            self.speaking.push(key);
        }
    }

    /// The peer's FIN. Whoever did not send a `close_notify` before may have been cut off by somebody else: frames and bodies say where they
    /// end.
    fn handle_finished(&mut self, token: Token, out: &mut Completions) {
        let Some((token, is_reported)) = self.end_input(token, out) else {
            return;
        };
        if !is_reported {
            out.list.push(Completion::Finished { token });
        }
    }

    fn handle_failed<R: Reactor>(
        &mut self,
        token: Token,
        errno: i32,
        sockets: &mut R,
        out: &mut Completions,
    ) {
        if let Some(key) = self.of_token(token)
            && self.secured.get(key).is_some_and(|it| it.has(IS_LEAVING))
        {
            return self.close(key, Close::Reset, sockets);
        }
        let Some((token, is_reported)) = self.end_input(token, out) else {
            return;
        };
        if !is_reported {
            out.list.push(Completion::Failed { token, errno });
        }
    }

    /// Nothing more comes from a peer. Answers the caller's token, and whether it knows.
    fn end_input(&mut self, token: Token, out: &mut Completions) -> Option<(Token, bool)> {
        let key = self.of_token(token)?;
        let secured = self.secured.get_mut(key)?;
        let was_handshaking = secured.connection.is_handshaking();
        let is_reported = secured.has(END_REPORTED | IS_LEAVING);
        let token = secured.token();
        if was_handshaking {
            let words = gone(secured);
            secured.connection.end();
            self.touched.push(key);
            self.setup.figures.count_failure(Failure::Gone);
            if let Some(words) = words.filter(|_| !is_reported) {
                let why = Some(refusal(Failure::Gone.label(), words.to_owned()));
                out.list.push(Completion::Refused { token, why });
            }
        }
        secured.set(END_REPORTED);
        if was_handshaking {
            self.leave_place(key);
        }
        Some((token, is_reported))
    }
}
