//! TLS between a reactor's sockets and whoever serves them: a [`Reactor`] around a [`Reactor`].
//!
//! The caller sees plaintext, and the sockets see records. Connections without TLS pass through as they are: their sockets, tokens and
//! bytes are those of the reactor below, so they cost a look at one bit. A stage without a TLS listener costs not even that.
//!
//! A connection with TLS has a record in a slab: 216 bytes of keys and some 30 more. The highest bit of its [`Socket`] and of the token
//! that the reactor below knows is set; the rest is its place in the slab.
//!
//! * **Admission**: a connection that was accepted waits in a line until one of `handshakes_max` places is free. Only then is it reported
//!   as accepted, so its owner's deadline for a request covers its own handshake and no other's.
//! * **Turns**: a wait makes a bounded number of steps of handshakes (a step takes one record, and the longest costs some 100 us). What
//!   is left goes on in the next wait, so those who are connected wait for no storm.
//! * **Behind the handshake** a record is opened where it was received, and sealed into one buffer for the whole batch.
//! * **A record is sealed once**: the bytes of it that a socket does not take stay with the connection. Until they have left it takes no
//!   further plaintext, and the last byte of their plaintext counts as not sent, unless it is the first of its slice. A caller whose queue
//!   is empty may close: the peer gets everything, as long as the stage lives ([`Reactor::has_others`]).
//!
//! A connection that changes its owner takes its record state along ([`Carried`]).

#![forbid(unsafe_code)]

mod admission;
mod buffered;
mod carried;
mod challenge;
mod connection;
mod figures;
mod greeting;
mod handshaking;
mod leaving;
mod reactor;
mod receiving;
mod sending;
#[cfg(test)]
mod tests;
mod words;
mod workers;

pub use carried::Carried;
pub use challenge::CHALLENGE;
pub use connection::{Connection, ConnectionFailed, Received, Step, note_certificate};
pub use figures::{Failure, Figures};
pub use workers::Workers;

use admission::Begun;
use arc_swap::ArcSwap;
use myriad_reactor::{Completion, Reactor, Socket, Token, Waker};
use myriad_wheel::{Key, Slab};
use rustls::ServerConfig;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use workers::{Desk, Ticket};

/// Marks sockets and tokens of connections with TLS.
const MARK: u32 = 1 << 31;

/// What a stage with TLS is made from.
#[derive(Debug)]
pub struct Setup {
    /// The reactor's listener whose connections begin with a handshake.
    pub listener: u8,
    /// For handshakes that begin. It may be replaced while the stage runs.
    pub offer: Arc<ArcSwap<Offer>>,
    /// Who makes the handshakes of an offer that signs slowly, and how this stage's thread is woken when one is made. Without them the
    /// stage makes all of them.
    pub workers: Option<(Workers, Waker)>,
    /// Where the stage counts.
    pub figures: Arc<Figures>,
    /// Handshakes under way at once: each costs some 5 KB.
    pub handshakes_max: usize,
    /// Time since some moment in the past. It never goes back.
    pub clock: fn() -> Duration,
}

/// Reads the user out of a certificate (DER) that was verified before.
pub type ReadUser = fn(&[u8]) -> Option<Arc<str>>;

/// What a client is offered.
#[derive(Debug)]
pub struct Offer {
    /// It needs what [`myriad_tls::Handshake::new`] asks for.
    pub config: Arc<ServerConfig>,
    /// For an authority that asks whether a name is ours (RFC 8737); none if no authority is asked for certificates. It needs the same as
    /// `config`, and [`CHALLENGE`] as its only protocol.
    pub challenge: Option<Arc<ServerConfig>>,
    /// How certificates of clients name users, if they do.
    pub read_user: Option<ReadUser>,
    /// Whether a signature takes longer than everything else in a handshake together, as those of RSA and P-384 do.
    pub signs_slowly: bool,
}

/// A reactor whose connections may have TLS.
pub struct TlsStage<R: Reactor> {
    sockets: R,
    /// None if no listener has TLS.
    tls: Option<Box<Tls>>,
}

/// What all connections with TLS of a stage share.
struct Tls {
    setup: Setup,
    /// The way to those who make slow handshakes.
    desk: Option<Desk>,
    /// Connections whose next step one of them makes, by their places in the slab.
    away: HashMap<u32, Away>,
    secured: Slab<Secured>,
    /// Sockets that were accepted and wait for a place.
    line: VecDeque<Socket>,
    /// Connections whose handshake has begun, in that order. They may stay for a while when it is over.
    begun: VecDeque<Begun>,
    /// Handshakes under way.
    handshakes: usize,
    /// Connections whose next step is due: a whole record of their handshake has come.
    due: VecDeque<Key>,
    /// Connections with output, or whose end is to be sent.
    speaking: Vec<Key>,
    /// Connections whose buffers may have changed since the caller heard of them.
    touched: Vec<Key>,
    /// Connections whose end of the handshake is held back (`IS_HOLDING`).
    holding: Vec<Key>,
    /// Connections that the caller has closed before their last record had left, and since when.
    leaving: VecDeque<(Key, Duration)>,
    /// Completions that calls between two waits have produced.
    ready: Vec<Completion>,
    /// Those of the reactor below, while they are translated.
    below: Vec<Completion>,
    /// Ciphertext of one batch.
    outgoing: Vec<u8>,
    /// The slices of one send, put together.
    gathered: Vec<u8>,
}

/// A connection whose next step another thread makes.
struct Away {
    ticket: Ticket,
    since: Duration,
    /// What it took along.
    buffered_bytes: usize,
}

/// A connection with TLS.
#[derive(Default)]
struct Secured {
    connection: Connection,
    socket: u32,
    /// The caller's, once it has registered.
    token_index: u32,
    /// Milliseconds for which its handshake has waited for other threads.
    waited_ms: u32,
    flags: u16,
    token_generation: u8,
}

/// The caller wants to be told when the socket takes bytes again.
const WANTS_WRITABLE: u16 = 1;
/// Our end of the connection is to be closed once the output has left.
const WANTS_FIN: u16 = 2;
/// Our `close_notify` is in the output, or none can be sent.
const SENT_CLOSE_NOTIFY: u16 = 4;
/// The caller knows that nothing more comes from the peer.
const END_REPORTED: u16 = 8;
/// It has a place among the handshakes.
const HAS_PLACE: u16 = 16;
/// It is in the list of connections whose next step is due.
const IS_DUE: u16 = 32;
/// A header of the PROXY protocol has been read.
const HAS_GREETED: u16 = 64;
/// It counts as open, with TLS 1.3 or 1.2.
const IS_COUNTED: u16 = 128;
/// With TLS 1.2.
const IS_LEGACY: u16 = 256;
/// The socket is not read from.
const IS_PAUSED: u16 = 512;
/// The last byte of plaintext that was sealed is still the caller's: it counts as sent once its record has left.
const IS_WITHHELD: u16 = 1024;
/// The reactor below will tell when the socket takes bytes again. It may be asked once until then.
const AWAITS_WRITABLE: u16 = 2048;
/// The caller has closed it, and its last record has not left.
const IS_LEAVING: u16 = 4096;
/// Another thread has the connection, and makes the next step of its handshake. What comes meanwhile is kept here.
const IS_AWAY: u16 = 8192;
/// The output is the end of our handshake: the tickets, and with TLS 1.2 our Finished. It waits for the first answer, until the next wait. A
/// request that came with the client's Finished is answered before that, so one segment carries both.
const IS_HOLDING: u16 = 16384;
/// The caller has heard that there is something in its buffers.
const IS_BUFFERING: u16 = 32768;

// With the slab's generation an idle connection takes 248 bytes.
const _: () = assert!(size_of::<Secured>() <= 240);

impl<R: Reactor> TlsStage<R> {
    /// A stage through which everything passes as it is.
    pub fn plain(sockets: R) -> Self {
        Self { sockets, tls: None }
    }

    /// A stage one of whose listeners has TLS.
    pub fn new(sockets: R, mut setup: Setup) -> Self {
        let workers = setup.workers.take();
        Self {
            sockets,
            tls: Some(Box::new(Tls {
                setup,
                desk: workers.map(|(workers, waker)| Desk::new(workers, waker)),
                away: HashMap::new(),
                secured: Slab::new(),
                line: VecDeque::new(),
                begun: VecDeque::new(),
                handshakes: 0,
                due: VecDeque::new(),
                speaking: Vec::new(),
                touched: Vec::new(),
                holding: Vec::new(),
                leaving: VecDeque::new(),
                ready: Vec::new(),
                below: Vec::new(),
                outgoing: Vec::new(),
                gathered: Vec::new(),
            })),
        }
    }
}

/// The connection with TLS of a socket that the caller names.
fn find(tls: &mut Option<Box<Tls>>, socket: Socket) -> Option<(&mut Tls, Key)> {
    let tls = tls.as_deref_mut()?;
    let key = tls.of_socket(socket)?;
    Some((tls, key))
}

impl Tls {
    /// The connection of a socket that the caller names.
    fn of_socket(&self, socket: Socket) -> Option<Key> {
        let bits = socket.to_bits();
        (bits & MARK != 0)
            .then(|| self.secured.key_of(bits & !MARK))
            .flatten()
    }

    /// The connection of a completion from below, unless it is about an earlier one.
    fn of_token(&self, token: Token) -> Option<Key> {
        let key = self.secured.key_of(token.index & !MARK)?;
        (generation_of(key) == token.generation).then_some(key)
    }
}

/// The low bits of the generation, which tokens have.
fn generation_of(key: Key) -> u8 {
    key.generation.to_le_bytes()[0]
}

/// What the reactor below calls a connection.
fn token_below(key: Key) -> Token {
    Token {
        index: key.index | MARK,
        generation: generation_of(key),
    }
}

impl Secured {
    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    /// Takes a flag away, and tells whether it was there.
    fn take(&mut self, flag: u16) -> bool {
        let had = self.has(flag);
        self.flags &= !flag;
        had
    }

    /// The caller's token.
    fn token(&self) -> Token {
        Token {
            index: self.token_index,
            generation: self.token_generation,
        }
    }

    fn below(&self) -> Socket {
        Socket::from_bits(self.socket)
    }

    /// Counts as open from now on. Answers whether with TLS 1.2.
    fn note_open(&mut self) -> bool {
        let is_legacy = self.connection.is_legacy();
        self.set(IS_COUNTED | if is_legacy { IS_LEGACY } else { 0 });
        is_legacy
    }

    fn await_writable<R: Reactor>(&mut self, key: Key, sockets: &mut R) {
        if !self.has(AWAITS_WRITABLE) {
            self.set(AWAITS_WRITABLE);
            sockets.notify_writable(self.below(), token_below(key));
        }
    }
}
