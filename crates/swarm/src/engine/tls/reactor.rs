//! The calls and completions of a reactor.

use super::{Link, Stage, TlsReactor};
use myriad_reactor::{Close, Completions, NotAdopted, Reactor, SendOp, Socket, Token};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

impl<R: Reactor + ?Sized> Reactor for TlsReactor<R> {
    type Handle = R::Handle;

    fn accept(&mut self, accepting: bool) {
        self.sockets.accept(accepting);
    }

    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        let socket = self.sockets.connect(token, source, target)?;
        let index = token.index as usize;
        if self.links.len() <= index {
            self.links.resize_with(index + 1, || Link::None);
        }
        assert!(matches!(self.links[index], Link::None), "one socket each");
        self.links[index] = Link::Socket {
            socket,
            generation: token.generation,
            target: self.target_at(token.index, target),
        };
        Ok(Socket::from_bits(token.index))
    }

    fn register(&mut self, socket: Socket, token: Token) {
        match self.tls_of(socket) {
            None => self.sockets.register(self.inner(socket), token),
            Some(link) => {
                link.is_registered = true;
                if link.connection.has_early() {
                    self.resumed.push(token);
                }
            }
        }
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        self.sockets.pause(self.inner(socket), token);
    }

    fn resume(&mut self, socket: Socket, token: Token) {
        self.sockets.resume(self.inner(socket), token);
    }

    fn deafen(&mut self, socket: Socket) {
        self.sockets.deafen(self.inner(socket));
    }

    fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
        self.batch(ops);
    }

    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>) {
        let inner: Vec<Socket> = sockets.iter().map(|it| self.inner(*it)).collect();
        self.sockets.peer_addresses(&inner, addresses);
    }

    fn notify_writable(&mut self, socket: Socket, token: Token) {
        match self.tls_of(socket) {
            None => self.sockets.notify_writable(self.inner(socket), token),
            Some(link) => {
                link.is_writable_wanted = true;
                // Held output was not refused by the socket, so nothing has been asked for. Nobody waits for it: a send takes it along.
                debug_assert!(!link.is_holding, "only a refused send waits");
                // While output is kept, that has been asked for already.
                if link.connection.output().is_empty() {
                    self.sockets.notify_writable(self.inner(socket), token);
                }
            }
        }
    }

    fn shutdown(&mut self, socket: Socket) {
        self.send_close_notify(socket);
        self.sockets.shutdown(self.inner(socket));
    }

    fn close(&mut self, socket: Socket, token: Token, how: Close) {
        if how == Close::Orderly {
            self.send_close_notify(socket);
        }
        let inner = self.inner(socket);
        self.forget(socket.to_bits());
        self.sockets.close(inner, token, how);
    }

    /// Nobody could go on with the keys of this connection.
    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<Self::Handle> {
        self.close(socket, token, Close::Reset);
        Err(ErrorKind::Unsupported.into())
    }

    fn adopt(&mut self, handle: Self::Handle) -> Result<Socket, NotAdopted<Self::Handle>> {
        let error = ErrorKind::Unsupported.into();
        Err(NotAdopted { handle, error })
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()> {
        completions.list.clear();
        completions.buffer.clear();
        // One wait may have finished many large records at once; the next ones need no such room.
        completions.buffer.shrink_to(2 * Completions::BUFFER_BYTES);
        self.flush_held();
        let timeout = match self.resumed.is_empty() {
            true => timeout,
            false => Some(Duration::ZERO),
        };
        self.received.receives_max = completions.receives_max;
        self.sockets.wait(timeout, &mut self.received)?;
        completions.input_pending = self.received.input_pending;
        self.report_early(completions);
        let mut list = std::mem::take(&mut self.received.list);
        let mut bytes = std::mem::take(&mut self.received.buffer);
        for completion in list.drain(..) {
            self.handle(completion, &mut bytes, completions);
        }
        (self.received.list, self.received.buffer) = (list, bytes);
        self.flush();
        self.settle();
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.sockets.capacity()
    }

    fn is_handshaking(&self, socket: Socket) -> bool {
        let link = self.links.get(socket.to_bits() as usize);
        let link = link
            .and_then(Link::key)
            .and_then(|key| self.secured.get(key));
        link.is_some_and(|link| link.stage == Stage::Handshaking)
    }
}
