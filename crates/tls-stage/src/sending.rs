//! From the caller to the sockets.

use crate::figures::Failure;
use crate::{
    AWAITS_WRITABLE, IS_BUFFERING, IS_HOLDING, IS_LEAVING, IS_WITHHELD, MARK, SENT_CLOSE_NOTIFY,
    Secured, Tls, WANTS_FIN, WANTS_WRITABLE,
};
use myriad_reactor::{Close, Completion, Parts, Reactor, SendOp, Sent, Socket};
use myriad_tls::PLAIN_MAX;
use myriad_wheel::Key;
use std::ops::Range;

/// `ENOTCONN`: the connection has ended, and takes nothing.
const ENOTCONN: i32 = 107;

/// What one operation of a batch is to the reactor below.
enum Plan {
    /// As it is: the connection has no TLS.
    Plain,
    Sealed {
        key: Key,
        socket: Socket,
        /// In the buffer of ciphertext.
        range: Range<usize>,
        /// Bytes of the operation that this settles, if they leave.
        taken: usize,
        /// Whether that is all of it.
        is_whole: bool,
        /// Bytes of it that the caller keeps if the record leaves in part: the last one, or none.
        withheld: usize,
    },
    /// It has no part in the batch: its outcome is known.
    Known(Sent),
}

impl Tls {
    /// Makes all sends of a batch.
    pub(crate) fn send<R: Reactor>(&mut self, sockets: &mut R, ops: &mut [SendOp<'_>]) {
        let plans: Vec<Plan> = ops.iter().map(|op| self.plan(op)).collect();
        let outgoing = std::mem::take(&mut self.outgoing);
        let below = ops.iter().zip(&plans).filter_map(|(op, plan)| match plan {
            Plan::Plain => Some(*op),
            Plan::Sealed { socket, range, .. } => {
                Some(SendOp::new(*socket, &outgoing[range.clone()]))
            }
            Plan::Known(_) => None,
        });
        let mut below: Vec<SendOp<'_>> = below.collect();
        sockets.send_batch(&mut below);
        let sent: Vec<Sent> = below.iter().map(|op| op.sent).collect();
        let mut sent = sent.into_iter();
        for (op, plan) in ops.iter_mut().zip(plans) {
            op.sent = match plan {
                Plan::Known(sent) => sent,
                Plan::Plain => sent.next().unwrap_or(Sent::Partly(0)),
                Plan::Sealed {
                    key,
                    range,
                    taken,
                    is_whole,
                    withheld,
                    ..
                } => match sent.next() {
                    Some(Sent::Failed(errno)) => Sent::Failed(errno),
                    Some(Sent::All) if is_whole => Sent::All,
                    Some(Sent::All) => Sent::Partly(taken),
                    Some(Sent::Partly(count)) => {
                        let rest = &outgoing[range.start + count..range.end];
                        self.keep(key, rest, withheld > 0, sockets);
                        match is_whole && withheld == 0 {
                            true => Sent::All,
                            false => Sent::Partly(taken - withheld),
                        }
                    }
                    None => Sent::Partly(0),
                },
            };
        }
        self.outgoing = outgoing;
        self.outgoing.clear();
    }

    /// Keeps ciphertext that the socket did not take. The caller keeps the last byte of its plaintext, if that is withheld.
    fn keep<R: Reactor>(&mut self, key: Key, rest: &[u8], is_withheld: bool, sockets: &mut R) {
        if let Some(secured) = self.secured.get_mut(key) {
            secured.connection.keep_output(rest);
            self.touched.push(key);
            if is_withheld {
                secured.set(IS_WITHHELD);
            }
            secured.await_writable(key, sockets);
        }
    }

    fn plan(&mut self, op: &SendOp<'_>) -> Plan {
        if op.socket.to_bits() & MARK == 0 {
            return Plan::Plain;
        }
        let found = self.of_socket(op.socket);
        let Some(secured) = found.and_then(|key| self.secured.get_mut(key)) else {
            return Plan::Known(Sent::Failed(ENOTCONN));
        };
        // Before its handshake has ended, or behind its failure, a client can read nothing: an answer to it is void.
        if secured.connection.is_handshaking() || secured.connection.is_over() {
            return Plan::Known(Sent::All);
        }
        let is_holding = secured.has(IS_HOLDING) && !secured.has(WANTS_FIN | IS_LEAVING);
        // Behind a record that has left in part nothing but its rest may follow.
        if !secured.connection.output().is_empty() && !is_holding {
            return Plan::Known(Sent::Partly(0));
        }
        let start = self.outgoing.len();
        let piece = gather(op.parts, &mut self.gathered);
        // Its first byte left with the record before.
        let gone = usize::from(secured.take(IS_WITHHELD)).min(piece.bytes.len());
        let plain = &piece.bytes[gone..];
        if plain.is_empty() {
            return Plan::Known(Sent::All);
        }
        if is_holding {
            secured.take(IS_HOLDING);
            secured.connection.move_output(&mut self.outgoing);
        }
        if !secured.connection.seal(plain, &mut self.outgoing) {
            self.outgoing.truncate(start);
            return Plan::Known(Sent::Failed(ENOTCONN));
        }
        Plan::Sealed {
            key: found.expect("just found"),
            socket: secured.below(),
            range: start..self.outgoing.len(),
            taken: piece.bytes.len(),
            is_whole: piece.is_whole,
            withheld: usize::from(!piece.ends_behind_first),
        }
    }

    /// Sends a `close_notify`, and ends our side behind it. A handshake that has not ended ends with it: its next message could not leave any
    /// more.
    pub(crate) fn shutdown(&mut self, key: Key) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        let was_handshaking = secured.connection.is_handshaking();
        if was_handshaking {
            secured.connection.end();
        }
        send_close_notify(secured);
        // Otherwise it leaves with the next wait.
        if secured.has(IS_BUFFERING | AWAITS_WRITABLE) {
            self.touched.push(key);
        }
        secured.set(WANTS_FIN);
        self.speaking.push(key);
        if was_handshaking {
            self.setup.figures.count_failure(Failure::Slow);
            self.leave_place(key);
        }
    }

    /// The last words of a connection that is closed, as far as the socket takes them.
    pub(crate) fn say_last<R: Reactor>(&mut self, key: Key, sockets: &mut R) {
        let Some(secured) = self.secured.get_mut(key) else {
            return;
        };
        send_close_notify(secured);
        let output = secured.connection.output();
        if output.is_empty() || secured.has(AWAITS_WRITABLE) {
            return;
        }
        let mut ops = [SendOp::new(secured.below(), output)];
        sockets.send_batch(&mut ops);
        let taken = match ops[0].sent {
            Sent::All | Sent::Failed(_) => output.len(),
            Sent::Partly(count) => count,
        };
        secured.connection.note_sent(taken);
    }

    /// Sends the ends of handshakes behind which the caller has said nothing, and all other output.
    pub(crate) fn flush_held<R: Reactor>(&mut self, sockets: &mut R) {
        let mut holding = std::mem::take(&mut self.holding);
        for key in holding.drain(..) {
            if let Some(secured) = self.secured.get_mut(key)
                && secured.take(IS_HOLDING)
            {
                self.speaking.push(key);
            }
        }
        self.holding = holding;
        self.flush(sockets);
    }

    /// Sends what connections have as output, in one batch, and what is to follow it.
    pub(crate) fn flush<R: Reactor>(&mut self, sockets: &mut R) {
        if self.speaking.is_empty() {
            return;
        }
        let mut speaking = std::mem::take(&mut self.speaking);
        // A batch may hold one operation for each socket.
        speaking.sort_unstable_by_key(|key| (key.index, key.generation));
        speaking.dedup();
        let is_ready = |secured: &Secured| !secured.has(AWAITS_WRITABLE | IS_HOLDING);
        speaking.retain(|key| self.secured.get(*key).is_some_and(is_ready));
        let mut ops: Vec<SendOp<'_>> = Vec::with_capacity(speaking.len());
        for key in &speaking {
            let secured = self.secured.get(*key).expect("retained");
            if !secured.connection.output().is_empty() {
                ops.push(SendOp::new(secured.below(), secured.connection.output()));
            }
        }
        sockets.send_batch(&mut ops);
        let sent: Vec<Sent> = ops.iter().map(|op| op.sent).collect();
        let mut sent = sent.into_iter();
        for key in speaking.drain(..) {
            let secured = self.secured.get_mut(key).expect("retained");
            let length = secured.connection.output().len();
            if secured.has(IS_BUFFERING) {
                self.touched.push(key);
            }
            if length > 0 {
                match sent.next().unwrap_or(Sent::Partly(0)) {
                    // A broken connection says so when it is read.
                    Sent::All | Sent::Failed(_) => secured.connection.note_sent(length),
                    Sent::Partly(count) => {
                        secured.connection.note_sent(count);
                        self.touched.push(key);
                        secured.await_writable(key, sockets);
                        continue;
                    }
                }
            }
            if secured.has(IS_LEAVING) {
                self.close(key, Close::Orderly, sockets);
                continue;
            }
            if secured.take(WANTS_FIN) {
                sockets.shutdown(secured.below());
            }
            if secured.take(WANTS_WRITABLE) {
                let token = secured.token();
                self.ready.push(Completion::Writable { token });
            }
        }
        self.speaking = speaking;
    }
}

fn send_close_notify(secured: &mut Secured) {
    if !secured.has(SENT_CLOSE_NOTIFY) {
        secured.set(SENT_CLOSE_NOTIFY);
        secured.connection.send_close_notify();
    }
}

/// The first bytes of a send.
struct Piece<'a> {
    bytes: &'a [u8],
    /// Whether that is all of them.
    is_whole: bool,
    /// Whether the last byte is the first of its slice. It may be all that the peer gets of a message, and a caller drops messages of
    /// which it has all bytes. So this byte counts as sent with the others: if it were withheld, it would be missing at the front of what
    /// comes instead.
    ends_behind_first: bool,
}

/// Puts the first bytes of a send together: a full record at most. So no more than that waits for a socket in sealed form.
fn gather<'a>(parts: Parts<'a>, gathered: &'a mut Vec<u8>) -> Piece<'a> {
    match parts {
        Parts::One(bytes) => {
            let count = bytes.len().min(PLAIN_MAX);
            Piece {
                bytes: &bytes[..count],
                is_whole: count == bytes.len(),
                ends_behind_first: count == 1,
            }
        }
        Parts::Many(slices) => {
            gathered.clear();
            let whole: usize = slices.iter().map(|slice| slice.len()).sum();
            let mut ends_behind_first = false;
            for slice in slices {
                let count = slice.len().min(PLAIN_MAX - gathered.len());
                if count > 0 {
                    gathered.extend_from_slice(&slice[..count]);
                    ends_behind_first = count == 1;
                }
            }
            Piece {
                is_whole: gathered.len() == whole,
                bytes: gathered,
                ends_behind_first,
            }
        }
    }
}
