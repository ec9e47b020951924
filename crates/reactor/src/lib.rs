//! Completions over sockets: io_uring, epoll and simulated, behind one interface.
//!
//! A [`Reactor`] belongs to one thread. The caller names each of its records with a [`Token`]; the
//! reactor names each socket with a [`Socket`]. Calls fall into three families:
//!
//! * **in**: [`Reactor::accept`], [`Reactor::connect`], [`Reactor::register`],
//!   [`Reactor::notify_writable`] ask for completions;
//! * **through**: [`Reactor::send_batch`] acts before it returns, so that nothing borrowed outlives it;
//! * **out**: [`Reactor::wait`] fills a [`Completions`] with what happened.
//!
//! The contract of every driver, real or simulated:
//!
//! 1. After [`Reactor::register`], everything the peer sends arrives as [`Completion::Received`], in
//!    order, until [`Completion::Finished`] (the peer's FIN) or [`Completion::Failed`], which come at
//!    most once and are last.
//! 2. After [`Reactor::close`] or [`Reactor::transfer`] the caller may reuse its record at once, with
//!    another generation. A late completion may still carry the old token: compare generations.
//! 3. Nothing blocks but [`Reactor::wait`], and that only until its timeout or a [`Waker::wake`].
//! 4. Running out of descriptors or kernel memory pauses accepting ([`Completion::AcceptPaused`]); it
//!    never spins and never ends the reactor. Accepting resumes by itself.

mod completion;
mod sys;
mod token;

pub mod sim;

pub use completion::{Completion, Completions};
pub use sys::{
    Driver, DriverUnavailable, Setup, Waker, descriptor_limit, epoll::Epoll, listen,
    unshare_descriptors, uring::Uring,
};
pub use token::{Socket, Token};

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

/// The bytes of one send: one slice, or several gathered into one write.
#[derive(Clone, Copy, Debug)]
pub enum Parts<'a> {
    /// One contiguous slice.
    One(&'a [u8]),
    /// Several slices, sent in order as if they were one. At most [`GATHER_PARTS_MAX`].
    Many(&'a [IoSlice<'a>]),
}

/// Slices in one gathered send; more is refused by the kernel (`UIO_MAXIOV` is 1024, this stays far below).
pub const GATHER_PARTS_MAX: usize = 64;

/// What the kernel took of one [`SendOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it. The value every operation starts with.
    All,
    /// That many bytes, fewer than asked; zero when the socket is full.
    Partly(usize),
    /// Nothing, and nothing more will be: the connection is broken. The errno.
    Failed(i32),
}

/// One send of a batch.
///
/// A batch holds at most one operation per socket: around a short write, two could interleave.
#[derive(Clone, Copy, Debug)]
pub struct SendOp<'a> {
    /// Where to.
    pub socket: Socket,
    /// What.
    pub parts: Parts<'a>,
    /// How it went; meaningful once [`Reactor::send_batch`] has returned.
    pub sent: Sent,
}

impl<'a> SendOp<'a> {
    /// A send of one slice, not yet made.
    #[must_use]
    pub fn new(socket: Socket, bytes: &'a [u8]) -> Self {
        Self {
            socket,
            parts: Parts::One(bytes),
            sent: Sent::All,
        }
    }
}

/// How a socket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// `close(2)`: unsent bytes are still delivered by the kernel, then FIN (RST if unread input waits).
    Orderly,
    /// RST at once: the kernel's buffers come back now. For peers that stopped reading.
    Reset,
}

/// One thread's sockets. See the crate's documentation for the contract.
pub trait Reactor {
    /// An accepted connection on its way to another owner: a descriptor, or a virtual peer.
    type Handle;

    /// Turns accepting from this reactor's listener on or off. Off at the start.
    fn accept(&mut self, accepting: bool);

    /// Opens a connection; the outcome arrives as [`Completion::Connected`] or [`Completion::ConnectFailed`].
    ///
    /// `source` binds the near end first, with port 0 chosen by the kernel at connect time
    /// (`IP_BIND_ADDRESS_NO_PORT`). The token is the one [`Reactor::register`] is given later; after
    /// `ConnectFailed` the socket is already closed.
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

    /// Makes all the sends, in kernel entries of hundreds, and writes each outcome into its operation.
    fn send_batch(&mut self, ops: &mut [SendOp<'_>]);

    /// Asks for one [`Completion::Writable`] when the socket can take bytes again.
    fn notify_writable(&mut self, socket: Socket, token: Token);

    /// Sends FIN after the bytes already taken; receiving goes on.
    fn shutdown(&mut self, socket: Socket);

    /// Ends a socket. Its [`Socket`] may name another connection from the next [`Reactor::wait`] on.
    fn close(&mut self, socket: Socket, token: Token, how: Close);

    /// Stops receiving and gives the socket away. No byte is lost: what was not delivered stays in the kernel.
    ///
    /// # Errors
    /// No descriptor could be installed; the socket is closed.
    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<Self::Handle>;

    /// Submits what is pending, waits at most `timeout` for something to happen (`None`: without end),
    /// and replaces the content of `completions`.
    ///
    /// # Errors
    /// Only what makes the reactor unusable.
    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()>;

    /// Sockets this reactor can hold at once.
    fn capacity(&self) -> usize;
}
