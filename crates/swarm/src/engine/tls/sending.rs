//! From the terminals to the sockets.

use super::connection::ConnectionFailed;
use super::{Link, Stage, TlsReactor};
use myriad_reactor::{Parts, Reactor, SendOp, Sent, Socket, Token};
use std::ops::Range;

/// A send's part of a batch.
struct Sealed {
    socket: Socket,
    range: Range<usize>,
    is_plain: bool,
}

impl<R: Reactor + ?Sized> TlsReactor<R> {
    /// Makes all sends of a batch.
    pub(super) fn batch(&mut self, ops: &mut [SendOp<'_>]) {
        let sealed: Vec<_> = ops.iter_mut().map(|op| self.seal(op)).collect();
        let outgoing = std::mem::take(&mut self.outgoing);
        let inner = sealed.iter().flatten();
        let inner = inner.map(|it| SendOp::new(it.socket, &outgoing[it.range.clone()]));
        let mut inner: Vec<SendOp<'_>> = inner.collect();
        self.sockets.send_batch(&mut inner);
        let sent: Vec<Sent> = inner.iter().map(|op| op.sent).collect();
        let mut sent = sent.into_iter();
        for (op, sealed) in ops.iter_mut().zip(sealed) {
            let Some(sealed) = sealed else { continue };
            let sent = sent.next().expect("one for each that is sealed");
            let Sent::Partly(count) = sent else {
                op.sent = sent;
                continue;
            };
            if sealed.is_plain {
                op.sent = sent;
                continue;
            }
            let rest = &outgoing[sealed.range.start + count..sealed.range.end];
            let index = op.socket.to_bits();
            let generation = self.links[index as usize].generation();
            if let (Some(generation), Some(link)) = (generation, self.tls_of(op.socket)) {
                link.connection.keep_output(rest);
                let token = Token { index, generation };
                self.sockets.notify_writable(sealed.socket, token);
            }
        }
        self.outgoing = outgoing;
        self.outgoing.clear();
    }

    /// Sends a `close_notify`, where the peer still listens to it.
    pub(super) fn send_close_notify(&mut self, socket: Socket) {
        let mut close_notify = Vec::new();
        let Some(link) = self.tls_of(socket) else {
            return;
        };
        let is_holding = std::mem::take(&mut link.is_holding);
        // Behind ciphertext that is not sent it would be read as a part of it.
        let is_waiting = !link.connection.output().is_empty() && !is_holding;
        if link.stage == Stage::Handshaking || is_waiting {
            return;
        }
        if is_holding {
            close_notify = link.connection.take_output();
        }
        link.connection.close_notify(&mut close_notify);
        if !close_notify.is_empty() {
            let socket = self.inner(socket);
            self.sockets
                .send_batch(&mut [SendOp::new(socket, &close_notify)]);
        }
    }

    /// Encrypts one send into the batch. None if it has no part in it: its outcome is known.
    fn seal(&mut self, op: &mut SendOp<'_>) -> Option<Sealed> {
        let start = self.outgoing.len();
        let index = op.socket.to_bits();
        let (Link::Socket { socket, .. }, parts) = (&self.links[index as usize], op.parts) else {
            return self.seal_tls(op);
        };
        match parts {
            Parts::One(bytes) => self.outgoing.extend_from_slice(bytes),
            Parts::Many(slices) => {
                let slices = slices.iter();
                slices.for_each(|slice| self.outgoing.extend_from_slice(slice));
            }
        }
        Some(Sealed {
            socket: *socket,
            range: start..self.outgoing.len(),
            is_plain: true,
        })
    }

    fn seal_tls(&mut self, op: &mut SendOp<'_>) -> Option<Sealed> {
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let start = outgoing.len();
        let sealed = match self.tls_of(op.socket) {
            None => Err(Sent::Failed(libc::ENOTCONN)),
            Some(link) if link.stage == Stage::Handshaking => Err(Sent::Partly(0)),
            Some(link) if !link.connection.output().is_empty() && !link.is_holding => {
                Err(Sent::Partly(0))
            }
            Some(link) => {
                if std::mem::take(&mut link.is_holding) {
                    outgoing.append(&mut link.connection.take_output());
                }
                let encrypted = match op.parts {
                    Parts::One(bytes) => link.connection.encrypt(bytes, &mut outgoing),
                    Parts::Many(slices) => {
                        let slices = slices.iter().flat_map(|slice| slice.iter());
                        let whole: Vec<u8> = slices.copied().collect();
                        link.connection.encrypt(&whole, &mut outgoing)
                    }
                };
                let failed = |error: ConnectionFailed| Sent::Failed(error.kind().errno());
                encrypted.map_err(failed)
            }
        };
        match sealed {
            Ok(()) => {
                let socket = self.inner(op.socket);
                let range = start..outgoing.len();
                self.outgoing = outgoing;
                Some(Sealed {
                    socket,
                    range,
                    is_plain: false,
                })
            }
            Err(sent) => {
                outgoing.truncate(start);
                self.outgoing = outgoing;
                op.sent = sent;
                None
            }
        }
    }

    /// Sends what connections have as output, in one batch. What is not taken is kept.
    pub(super) fn speak(&mut self, indices: &[u32]) {
        let mut ops = Vec::with_capacity(indices.len());
        let mut tokens = Vec::with_capacity(indices.len());
        for &index in indices {
            let Link::Tls {
                socket,
                generation,
                key,
            } = self.links[index as usize]
            else {
                continue;
            };
            let output = self
                .secured
                .get(key)
                .map_or(&[][..], |link| link.connection.output());
            if !output.is_empty() {
                ops.push(SendOp::new(socket, output));
                tokens.push(Token { index, generation });
            }
        }
        self.sockets.send_batch(&mut ops);
        let sent: Vec<Sent> = ops.iter().map(|op| op.sent).collect();
        for (token, sent) in tokens.into_iter().zip(sent) {
            let Some(link) = self.tls(token) else {
                continue;
            };
            match sent {
                // A broken connection says so when it is read.
                Sent::All | Sent::Failed(_) => drop(link.connection.take_output()),
                Sent::Partly(count) => {
                    link.connection.note_sent(count);
                    let socket = self.inner(Socket::from_bits(token.index));
                    self.sockets.notify_writable(socket, token);
                }
            }
        }
    }

    /// Sends what the protocol has to say.
    pub(super) fn flush(&mut self) {
        if self.speaking.is_empty() {
            return;
        }
        let mut speaking = std::mem::take(&mut self.speaking);
        // A batch may hold one operation for each socket.
        speaking.sort_unstable();
        speaking.dedup();
        speaking.retain(|index| {
            let link = self.tls_of(Socket::from_bits(*index));
            link.is_some_and(|link| !link.is_holding)
        });
        self.speak(&speaking);
        speaking.clear();
        self.speaking = speaking;
    }

    /// Sends the ends of handshakes behind which the terminals have said nothing.
    pub(super) fn flush_held(&mut self) {
        let mut holding = std::mem::take(&mut self.holding);
        for index in holding.drain(..) {
            if let Some(link) = self.tls_of(Socket::from_bits(index))
                && std::mem::take(&mut link.is_holding)
            {
                self.speaking.push(index);
            }
        }
        self.holding = holding;
        self.flush();
    }
}
