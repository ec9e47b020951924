//! The calls of a reactor.

use crate::admission::LINE_INTERVAL;
use crate::{
    Carried, Connection, END_REPORTED, MARK, Secured, Tls, TlsStage, WANTS_WRITABLE, find,
    token_below,
};
use myriad_reactor::{Close, Completion, Completions, NotAdopted, Reactor, SendOp, Socket, Token};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

impl<R: Reactor> TlsStage<R> {
    /// What the reactor below calls a socket.
    fn below(&self, socket: Socket) -> Socket {
        let tls = self.tls.as_deref();
        let secured = tls.and_then(|tls| tls.secured.get(tls.of_socket(socket)?));
        secured.map_or(socket, Secured::below)
    }

    /// What the reactor below calls a connection.
    fn named(&self, socket: Socket, token: Token) -> (Socket, Token) {
        let key = self.tls.as_deref().and_then(|tls| tls.of_socket(socket));
        (self.below(socket), key.map_or(token, token_below))
    }
}

impl<R: Reactor> Reactor for TlsStage<R> {
    type Handle = Carried<R::Handle>;

    fn accept(&mut self, accepting: bool) {
        self.sockets.accept(accepting);
        if let Some(tls) = self.tls.as_deref_mut().filter(|_| !accepting) {
            // The caller does not know them: for it they are not accepted.
            tls.reset_line(&mut self.sockets);
        }
    }

    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        self.sockets.connect(token, source, target)
    }

    fn register(&mut self, socket: Socket, token: Token) {
        let (below, named) = self.named(socket, token);
        if let Some((tls, key)) = find(&mut self.tls, socket)
            && let Some(secured) = tls.secured.get_mut(key)
        {
            secured.token_index = token.index;
            secured.token_generation = token.generation;
            // Its owner before this one has read the peer's `close_notify`, and nothing else may come from the socket.
            if secured.connection.is_read_closed() && !secured.has(END_REPORTED) {
                secured.set(END_REPORTED);
                tls.ready.push(Completion::Finished { token });
            }
        }
        self.sockets.register(below, named);
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        let (socket, token) = self.named(socket, token);
        self.sockets.pause(socket, token);
    }

    fn resume(&mut self, socket: Socket, token: Token) {
        let (socket, token) = self.named(socket, token);
        self.sockets.resume(socket, token);
    }

    fn deafen(&mut self, socket: Socket) {
        self.sockets.deafen(self.below(socket));
    }

    fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
        match &mut self.tls {
            Some(tls) if ops.iter().any(|op| op.socket.to_bits() & MARK != 0) => {
                tls.send(&mut self.sockets, ops);
            }
            _ => self.sockets.send_batch(ops),
        }
    }

    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>) {
        if self.tls.is_none() {
            return self.sockets.peer_addresses(sockets, addresses);
        }
        let below: Vec<Socket> = sockets.iter().map(|socket| self.below(*socket)).collect();
        self.sockets.peer_addresses(&below, addresses);
    }

    fn notify_writable(&mut self, socket: Socket, token: Token) {
        if let Some((tls, key)) = find(&mut self.tls, socket)
            && let Some(secured) = tls.secured.get_mut(key)
        {
            secured.set(WANTS_WRITABLE);
            return secured.await_writable(key, &mut self.sockets);
        }
        self.sockets.notify_writable(socket, token);
    }

    fn shutdown(&mut self, socket: Socket) {
        match find(&mut self.tls, socket) {
            Some((tls, key)) => tls.shutdown(key),
            None => self.sockets.shutdown(socket),
        }
    }

    fn close(&mut self, socket: Socket, token: Token, how: Close) {
        match (find(&mut self.tls, socket), how) {
            (Some((tls, key)), Close::Orderly) => tls.leave(key, &mut self.sockets),
            (Some((tls, key)), Close::Reset) => tls.close(key, how, &mut self.sockets),
            (None, _) => self.sockets.close(socket, token, how),
        }
    }

    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<Self::Handle> {
        let (below, named) = self.named(socket, token);
        let removed = find(&mut self.tls, socket).map(|(tls, key)| tls.remove(key));
        let handle = self.sockets.transfer(below, named)?;
        Ok(Carried {
            handle,
            tls: removed.map(|secured| Box::new(secured.connection)),
        })
    }

    fn adopt(&mut self, carried: Self::Handle) -> Result<Socket, NotAdopted<Self::Handle>> {
        if carried.tls.is_some() && self.tls.is_none() {
            return Err(NotAdopted {
                handle: carried,
                error: ErrorKind::Unsupported.into(),
            });
        }
        let Carried { handle, tls } = carried;
        match (self.sockets.adopt(handle), tls, &mut self.tls) {
            (Ok(socket), Some(mut connection), Some(ours)) => {
                Ok(ours.take_in(socket, connection.take_out()))
            }
            (Ok(socket), ..) => Ok(socket),
            (Err(NotAdopted { handle, error }), tls, _) => Err(NotAdopted {
                handle: Carried { handle, tls },
                error,
            }),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.sockets.wait(timeout, completions);
        };
        tls.flush_held(&mut self.sockets);
        // What was opened behind the buffer's end is over.
        completions.buffer.truncate(Completions::BUFFER_BYTES);
        completions.buffer.shrink_to(2 * Completions::BUFFER_BYTES);
        let timeout = tls.timeout(timeout);
        self.sockets.wait(timeout, completions)?;
        tls.translate(&mut self.sockets, completions);
        Ok(())
    }

    fn certificate_user(&self, socket: Socket) -> Option<Arc<str>> {
        let tls = self.tls.as_deref()?;
        let secured = tls.secured.get(tls.of_socket(socket)?)?;
        secured.connection.user().cloned()
    }

    fn held_up(&self, socket: Socket) -> Duration {
        let tls = self.tls.as_deref();
        let found = tls.and_then(|tls| Some((tls, tls.of_socket(socket)?)));
        found.map_or(Duration::ZERO, |(tls, key)| tls.waited(key))
    }

    fn capacity(&self) -> usize {
        self.sockets.capacity()
    }

    fn has_others(&self) -> bool {
        let own = self.tls.as_deref().is_some_and(Tls::has_others);
        own || self.sockets.has_others()
    }

    fn reset_others(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.reset_line(&mut self.sockets);
            tls.reset_leaving(&mut self.sockets);
        }
        self.sockets.reset_others();
    }
}

impl Tls {
    /// How long a wait may be.
    fn timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        let is_busy = !self.due.is_empty()
            || !self.ready.is_empty()
            || !self.touched.is_empty()
            || !self.line.is_empty() && self.has_place();
        if is_busy {
            return Some(Duration::ZERO);
        }
        let waits = !self.line.is_empty() || !self.leaving.is_empty();
        let line = waits.then_some(LINE_INTERVAL);
        [timeout, line].into_iter().flatten().min()
    }

    /// Gives a connection that had another owner a record.
    fn take_in(&mut self, socket: Socket, connection: Connection) -> Socket {
        let has_output = !connection.output().is_empty();
        let is_buffering = connection.buffered_bytes() > 0;
        let mut secured = Secured {
            connection,
            socket: socket.to_bits(),
            ..Secured::default()
        };
        self.setup.figures.count_open(secured.note_open());
        let key = self.secured.insert(secured);
        if has_output {
            self.speaking.push(key);
        }
        if is_buffering {
            self.touch(key);
        }
        Socket::from_bits(key.index | MARK)
    }
}
