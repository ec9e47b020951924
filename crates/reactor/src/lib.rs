//! Completions over sockets: io_uring, epoll and simulated, behind one interface.
//!
//! A [`Reactor`] belongs to one thread. The caller names each of its records with a [`Token`]; the
//! reactor names each socket with a [`Socket`]. Calls fall into three families:
//!
//! * **in**: [`Reactor::accept`], [`Reactor::connect`], [`Reactor::register`],
//!   [`Reactor::notify_writable`] ask for completions; [`Reactor::pause`] and [`Reactor::resume`] hold those of one socket up;
//!   [`Reactor::adopt`] takes in what another owner had;
//! * **through**: [`Reactor::send_batch`] and [`Reactor::peer_addresses`] act before they return, so that nothing
//!   borrowed outlives them;
//! * **out**: [`Reactor::wait`] fills a [`Completions`] with what happened.
//!
//! The contract of every driver, real or simulated:
//!
//! 1. After [`Reactor::register`], everything the peer sends arrives as [`Completion::Received`], in
//!    order, until [`Completion::Finished`] (the peer's FIN) or [`Completion::Failed`], which come at
//!    most once and are last. [`Reactor::pause`] holds that up, and loses nothing.
//! 2. After [`Reactor::close`] or [`Reactor::transfer`] the caller may reuse its record at once, with
//!    another generation. A late completion may still carry the old token: compare generations.
//! 3. Nothing blocks but [`Reactor::wait`], and that only until its timeout or a [`Waker::wake`].
//! 4. Running out of descriptors or kernel memory pauses accepting ([`Completion::AcceptPaused`]); it
//!    never spins and never ends the reactor. Accepting resumes by itself.

mod completion;
mod sys;
mod token;

pub mod sim;

pub use completion::{Completion, Completions, Refusal};
pub use sys::{
    Driver, DriverUnavailable, Setup, Waker, descriptor_limit, epoll::Epoll, listen,
    unshare_descriptors, uring::Uring,
};
pub use token::{Socket, Token};

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The bytes of one send: one slice, or several gathered into one write.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// One contiguous slice.
    One(&'a [u8]),
    /// Several slices, sent in order as if they were one. At most [`GATHER_PARTS_MAX`].
    Many(&'a [IoSlice<'a>]),
}

/// Maximum number of slices in one gathered send, far below the kernel's own limit (`UIO_MAXIOV`, 1024).
pub const GATHER_PARTS_MAX: usize = 64;

/// How many bytes of a [`SendOp`] the kernel took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All bytes. Every operation starts with this value.
    All,
    /// This many bytes, fewer than asked. Zero if the socket is full.
    Partly(usize),
    /// None: the connection is broken, and every later send fails too. The errno.
    Failed(i32),
}

/// One send of a batch.
///
/// A batch holds at most one operation per socket. Two could interleave if the first one is short.
#[derive(Clone, Copy, Debug)]
pub struct SendOp<'a> {
    /// The socket to send to.
    pub socket: Socket,
    /// The bytes to send.
    pub parts: Parts<'a>,
    /// The outcome, valid after [`Reactor::send_batch`] has returned.
    pub sent: Sent,
}

impl<'a> SendOp<'a> {
    /// A send of one slice, to put into a batch.
    #[must_use]
    pub fn new(socket: Socket, bytes: &'a [u8]) -> Self {
        Self {
            socket,
            parts: Parts::One(bytes),
            sent: Sent::All,
        }
    }
}

/// A connection that [`Reactor::adopt`] did not take.
#[derive(Debug)]
pub struct NotAdopted<H> {
    /// The connection, as it was given.
    pub handle: H,
    /// Why.
    pub error: io::Error,
}

/// How to close a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// `close(2)`: the kernel still delivers unsent bytes, then sends FIN. It sends RST instead if there is unread input.
    Orderly,
    /// Sends RST and frees the kernel's buffers at once. For peers that stopped reading.
    Reset,
}

/// One thread's sockets. See the crate's documentation for the contract.
pub trait Reactor {
    /// A connection between two owners: a descriptor, or a virtual peer. [`Reactor::transfer`] gives one, and
    /// [`Reactor::adopt`] takes one.
    type Handle;

    /// Turns accepting from this reactor's listeners on or off. Off at the start.
    fn accept(&mut self, accepting: bool);

    /// Opens a connection; the outcome arrives as [`Completion::Connected`] or [`Completion::ConnectFailed`].
    ///
    /// If `source` is given, the socket is bound to it first. With port 0 the kernel chooses the port at connect time
    /// (`IP_BIND_ADDRESS_NO_PORT`). Pass the same token to [`Reactor::register`] later. After `ConnectFailed` the
    /// socket is already closed.
    ///
    /// # Errors
    /// The socket could not be made (`EMFILE` when the reactor is full).
    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket>;

    /// Starts receiving from an accepted or connected socket.
    fn register(&mut self, socket: Socket, token: Token);

    /// Stops receiving from a registered socket. The peer's bytes stay in the kernel, and once its buffer is full the peer
    /// cannot send any more: this side is a reader that stalls.
    ///
    /// Input that was received already may still come with this wait's completions. When the peer ends or breaks the
    /// connection, receiving goes on by itself: all bytes before the end, then the end.
    fn pause(&mut self, socket: Socket, token: Token);

    /// Goes on receiving from a paused socket. It does nothing for any other.
    fn resume(&mut self, socket: Socket, token: Token);

    /// Lets nothing of the peer through any more but the end of the connection (FIN or RST). TCP does not acknowledge the rest:
    /// for the peer this side has vanished without a word.
    ///
    /// It cannot be taken back. What came before stays to be received, unless the socket is paused.
    fn deafen(&mut self, socket: Socket);

    /// Makes all sends before it returns, hundreds in one system call, and writes each outcome into its operation.
    fn send_batch(&mut self, ops: &mut [SendOp<'_>]);

    /// Appends the peer's address for each of these accepted sockets. None where the kernel does not tell, because the
    /// connection has broken.
    ///
    /// It takes a look into the kernel, so ask only where an address is needed, and for many sockets at once.
    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>);

    /// Asks for one [`Completion::Writable`] when the socket can take bytes again.
    fn notify_writable(&mut self, socket: Socket, token: Token);

    /// Sends FIN after the bytes that the kernel has already taken. Receiving continues.
    fn shutdown(&mut self, socket: Socket);

    /// Closes a socket. From the next [`Reactor::wait`] on, its [`Socket`] may name another connection.
    fn close(&mut self, socket: Socket, token: Token, how: Close);

    /// Stops receiving and gives the socket to the caller. No byte is lost: unread input stays in the kernel.
    ///
    /// # Errors
    /// No descriptor could be installed; the socket is closed.
    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<Self::Handle>;

    /// Takes in an established connection that somebody else has owned so far: the other direction of
    /// [`Reactor::transfer`], from any thread and any process.
    ///
    /// The socket that it returns is like one that [`Completion::Accepted`] reported. Give it a record and call
    /// [`Reactor::register`], or close it. What the kernel holds of the peer's input then arrives, and its end too if
    /// that has come already.
    ///
    /// * The handle must be the only one. Nobody else may read from the socket, write to it or watch it: a copy of the
    ///   descriptor would also keep the connection open after a close.
    /// * Options of the socket stay as they are. Those that accepted sockets inherit from the listener are the former
    ///   owner's business.
    /// * It acts before it returns, whether this reactor accepts or not. It counts as one of [`Reactor::capacity`], like
    ///   an accepted connection.
    /// * A real driver keeps no ordinary descriptor beyond what an accepted socket has: io_uring puts the socket into a
    ///   ring's table and closes the descriptor; with epoll the descriptor itself goes on. So it must be a descriptor of
    ///   this thread's table.
    ///
    /// # Errors
    /// The reactor is full (`EMFILE`), or the kernel refused. The connection comes back as it was, so that its peer can
    /// be told.
    fn adopt(&mut self, handle: Self::Handle) -> Result<Socket, NotAdopted<Self::Handle>>;

    /// Submits pending requests, waits for a completion for at most `timeout` (`None`: without limit), and replaces
    /// the content of `completions`.
    ///
    /// # Errors
    /// The reactor is unusable. No other failure is reported here.
    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()>;

    /// The number of sockets that this reactor can hold at once.
    fn capacity(&self) -> usize;

    /// The user whom the peer's certificate names. None without a certificate, and with all drivers here, which have nothing above TCP.
    fn certificate_user(&self, _socket: Socket) -> Option<Arc<str>> {
        None
    }

    /// Whether a socket that is being connected has its TCP connection already, and is about to agree with its peer on what lies
    /// above. No driver here has anything above TCP; a reactor that is built on one may.
    fn is_handshaking(&self, _socket: Socket) -> bool {
        false
    }

    /// For how long a peer has waited for this side since its socket was accepted, before the caller could hear of it: deadlines of the
    /// peer are so much later. Zero with all drivers here, which have nothing above TCP.
    fn held_up(&self, _socket: Socket) -> Duration {
        Duration::ZERO
    }

    /// Whether the reactor has connections that its caller does not: closed in order before their last bytes have left, or accepted
    /// and not reported yet. Whoever drops it breaks them off. A kernel goes on with its own after that, so no driver here has any; a
    /// reactor that is built on one may.
    fn has_others(&self) -> bool {
        false
    }

    /// Resets the connections of [`Reactor::has_others`].
    fn reset_others(&mut self) {}
}
