//! The events that [`crate::Reactor::wait`] reports.

use crate::{Socket, Token};
use std::ops::Range;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A connection was accepted. Give it a record and call [`crate::Reactor::register`], or close it.
    Accepted {
        /// The new socket.
        socket: Socket,
        /// Which of the reactor's listeners took it, from 0.
        listener: u8,
    },
    /// Accepting is paused and will resume by itself. The errno is `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`.
    AcceptPaused {
        /// The errno of the failed accept, or `EMFILE` when the reactor's own tables are full.
        errno: i32,
    },
    /// An outgoing connection is established.
    Connected {
        /// As given to [`crate::Reactor::connect`].
        token: Token,
    },
    /// An outgoing connection failed; its socket is closed.
    ConnectFailed {
        /// As given to [`crate::Reactor::connect`].
        token: Token,
        /// The reason.
        errno: i32,
    },
    /// Bytes from the peer: a range of [`Completions::buffer`], never empty.
    Received {
        /// The record of the connection.
        token: Token,
        /// The bytes' position in the buffer.
        range: Range<usize>,
    },
    /// The peer sent FIN. Nothing more will be received.
    Finished {
        /// The record of the connection.
        token: Token,
    },
    /// The connection broke (reset, timed out, unreachable). Nothing more will be received: close it.
    Failed {
        /// The record of the connection.
        token: Token,
        /// The reason.
        errno: i32,
    },
    /// What lies between the socket and the caller cannot go on with this peer, and has told it so. End our side and linger, so that the
    /// answer arrives. Nothing more will be received but the end.
    ///
    /// No driver reports this: their sockets have nothing above TCP.
    Refused {
        /// The record of the connection.
        token: Token,
        /// Why, for the operator's log. None if nothing is wrong: the peer has its answer.
        why: Option<Box<Refusal>>,
    },
    /// What lies between the socket and the caller keeps so many bytes of memory for this connection now: input that the caller cannot
    /// get yet, and output that the socket has not taken. Until the first of these it is nothing. They belong in the caller's budgets,
    /// and go when the caller closes the connection.
    ///
    /// No driver reports this: what they keep is the kernel's.
    Buffered {
        /// The record of the connection.
        token: Token,
        /// In all.
        bytes: usize,
    },
    /// The socket can take bytes again, as [`crate::Reactor::notify_writable`] asked.
    Writable {
        /// The record of the connection.
        token: Token,
    },
    /// [`crate::Waker::wake`] was called since the last wait.
    Woken,
}

/// Why a stage between a socket and the caller, such as TLS, gave up on a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind: one of a fixed set.
    pub label: &'static str,
    /// A sentence for the log, bounded. Names that the peer wrote are cut, and quoted with escapes.
    pub words: String,
}

/// The completions of one [`crate::Reactor::wait`], and the shard's one receive buffer, to which they point.
#[derive(Debug)]
pub struct Completions {
    /// The completions of each connection are in order.
    pub list: Vec<Completion>,
    /// All connections of the shard share this buffer. It is valid until the next wait, and mutable, because frames
    /// are unmasked in place.
    pub buffer: Vec<u8>,
    /// True if some readable sockets were not read: silence is no proof of a dead peer.
    pub input_pending: bool,
    /// How many sockets the next wait reads from, at most: for a caller who has something more urgent to do than to read. The
    /// simulated driver, which reads from few sockets at a time, does not look at it.
    pub receives_max: usize,
}

impl Completions {
    /// Bytes of the shared receive buffer.
    pub const BUFFER_BYTES: usize = 512 * 1024;
    /// Maximum number of bytes in one [`Completion::Received`].
    pub const RECEIVE_BYTES_MAX: usize = 4096;

    /// No completions, and an allocated buffer.
    #[must_use]
    pub fn new() -> Self {
        Self {
            list: Vec::with_capacity(1024),
            buffer: vec![0; Self::BUFFER_BYTES],
            input_pending: false,
            receives_max: usize::MAX,
        }
    }
}

impl Completions {
    /// Reports bytes of the buffer as received, in pieces of the size that a driver gives.
    pub fn report_received(&mut self, token: Token, range: Range<usize>) {
        for start in range.clone().step_by(Self::RECEIVE_BYTES_MAX) {
            let range = start..range.end.min(start + Self::RECEIVE_BYTES_MAX);
            self.list.push(Completion::Received { token, range });
        }
    }
}

impl Default for Completions {
    fn default() -> Self {
        Self::new()
    }
}
