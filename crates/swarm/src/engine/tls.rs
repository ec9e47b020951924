//! TLS under the terminals: a reactor around the socket reactor.
//!
//! Terminals know nothing of it. They send plaintext and receive plaintext; the socket reactor sees ciphertext. A connection
//! counts as connected when its TLS handshake is over, so that the time for connecting and the window of connections under way
//! hold for handshakes too. A thread without such targets runs on the socket reactor itself.
//!
//! What differs for callers:
//!
//! * a [`Socket`] is the index of its terminal. So a send finds its connection without a table;
//! * an errno below zero is a [`TlsFailure`], or [`ABRUPT_END`];
//! * the first example of each failure goes into the thread's account, in words.
//!
//! Ciphertext whose record is numbered has to be sent, whatever becomes of the socket meanwhile. So a send that the socket takes
//! in part counts as taken here, and the rest is kept. Until it is gone, further sends take nothing.

mod connection;
mod failure;
mod figures;
mod reactor;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;
mod tickets;

pub(crate) use failure::ABRUPT_END;
pub use failure::TlsFailure;
pub(crate) use figures::TlsFigures;
pub(crate) use tickets::Tickets;

use crate::engine::plan::{Part, Plan};
use crate::engine::shared::Shared;
use connection::Connection;
use figures::Handshake;
use myriad_reactor::{Completions, Reactor, Socket, Token};
use myriad_wheel::{Key, Slab};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio_rustls::rustls::ClientConfig;

/// What all connections share.
#[derive(Clone, Debug)]
pub(crate) struct TlsPlan {
    /// For clients that connect for the first time.
    pub first: Arc<ClientConfig>,
    /// For clients that connect again, which may resume a session.
    pub again: Arc<ClientConfig>,
    /// Whether tickets are kept for that.
    pub is_resuming: bool,
}

/// One thread's sockets, with TLS where the target wants it.
pub(crate) struct TlsReactor<R: Reactor + ?Sized> {
    plan: Arc<Plan>,
    part: Part,
    shared: Arc<Shared>,
    /// By index of the terminal.
    links: Vec<Link>,
    /// The rest of each connection with TLS. A slab, because a box made during a handshake would stand between its blocks: malloc could not
    /// give their memory back afterwards.
    secured: Slab<TlsLink>,
    /// What the sockets received.
    received: Completions,
    /// Ciphertext of one batch.
    outgoing: Vec<u8>,
    /// Connections with output of the protocol's own.
    speaking: Vec<u32>,
    /// Connections that hold the end of their handshake back.
    holding: Vec<u32>,
    /// Connections that were registered after something had come for them.
    resumed: Vec<Token>,
    /// Bytes of all incomplete records.
    incomplete_bytes: usize,
    /// Kinds of failures of which an example is kept.
    said: BTreeSet<TlsFailure>,
    handshakes: Vec<Handshake>,
    started: Instant,
    sockets: Box<R>,
}

/// What a terminal's socket is.
enum Link {
    None,
    /// Without TLS, or still being connected.
    Socket {
        socket: Socket,
        generation: u8,
        /// Where it is connected to.
        target: u32,
    },
    Tls {
        socket: Socket,
        generation: u8,
        key: Key,
    },
}

// A terminal with a plain target takes this much in a run that has targets with TLS too.
const _: () = assert!(size_of::<Link>() <= 16);

/// A connection with TLS.
#[derive(Default)]
struct TlsLink {
    connection: Connection,
    /// Microseconds since the thread's start, modulo 2^32.
    began: u32,
    stage: Stage,
    is_registered: bool,
    /// The caller is to be told when the socket takes bytes again.
    is_writable_wanted: bool,
    /// The output is the end of the handshake. It leaves with the first message of the terminal, which comes before the next wait in most
    /// protocols: one segment, and one acknowledgement, for both.
    is_holding: bool,
}

// What an idle client with TLS costs, beside 8 bytes of the slab (its generation, padded) and its `Link`.
const _: () = assert!(size_of::<TlsLink>() <= 240);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    Handshaking,
    Established,
    /// The end of its input was reported.
    #[default]
    Ended,
}

impl<R: Reactor + ?Sized> TlsReactor<R> {
    pub(crate) fn new(sockets: Box<R>, plan: Arc<Plan>, part: Part, shared: Arc<Shared>) -> Self {
        Self {
            links: Vec::new(),
            secured: Slab::new(),
            received: Completions::new(),
            outgoing: Vec::new(),
            speaking: Vec::new(),
            holding: Vec::new(),
            resumed: Vec::new(),
            incomplete_bytes: 0,
            said: BTreeSet::new(),
            handshakes: Vec::new(),
            started: Instant::now(),
            plan,
            part,
            shared,
            sockets,
        }
    }

    /// The link of a completion, unless it is about a previous connection.
    fn link(&mut self, token: Token) -> Option<&mut Link> {
        let link = self.links.get_mut(token.index as usize)?;
        (link.generation() == Some(token.generation)).then_some(link)
    }

    fn tls(&mut self, token: Token) -> Option<&mut TlsLink> {
        let key = self.link(token)?.key()?;
        self.secured.get_mut(key)
    }

    fn tls_of(&mut self, socket: Socket) -> Option<&mut TlsLink> {
        let key = self.links.get(socket.to_bits() as usize)?.key()?;
        self.secured.get_mut(key)
    }

    /// The socket reactor's own id.
    fn inner(&self, socket: Socket) -> Socket {
        let link = self.links.get(socket.to_bits() as usize);
        let found = link.and_then(Link::socket);
        found.expect("callers name sockets that they hold")
    }

    /// Microseconds, modulo 2^32: more than an hour, and no handshake takes that long.
    fn micros(&self) -> u32 {
        let micros = self.started.elapsed().as_micros();
        u32::try_from(micros & u128::from(u32::MAX)).expect("masked")
    }

    /// Brings the figures of handshakes into the account.
    fn settle(&mut self) {
        if self.handshakes.is_empty() {
            return;
        }
        let mut account = self.shared.account(self.part.thread as usize);
        for handshake in self.handshakes.drain(..) {
            account.tls.record(handshake);
        }
    }
}

impl Link {
    fn generation(&self) -> Option<u8> {
        match self {
            Self::None => None,
            Self::Socket { generation, .. } | Self::Tls { generation, .. } => Some(*generation),
        }
    }

    fn key(&self) -> Option<Key> {
        match self {
            Self::None | Self::Socket { .. } => None,
            Self::Tls { key, .. } => Some(*key),
        }
    }

    fn socket(&self) -> Option<Socket> {
        match self {
            Self::None => None,
            Self::Socket { socket, .. } | Self::Tls { socket, .. } => Some(*socket),
        }
    }
}
