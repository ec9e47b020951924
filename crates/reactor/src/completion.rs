//! What happened, as [`crate::Reactor::wait`] reports it.

use crate::{Socket, Token};
use std::ops::Range;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The listener gave a connection. Give it a record and call [`crate::Reactor::register`], or close it.
    Accepted {
        /// The new socket.
        socket: Socket,
    },
    /// Accepting pauses and resumes by itself; the errno says why (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`).
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
        /// Why.
        errno: i32,
    },
    /// Bytes from the peer: a range of [`Completions::buffer`], never empty.
    Received {
        /// Whose.
        token: Token,
        /// Where in the buffer.
        range: Range<usize>,
    },
    /// The peer sent FIN. Nothing more will be received.
    Finished {
        /// Whose.
        token: Token,
    },
    /// The connection broke: reset, timed out, unreachable. Nothing more will be received; close it.
    Failed {
        /// Whose.
        token: Token,
        /// Why.
        errno: i32,
    },
    /// The socket takes bytes again; asked for with [`crate::Reactor::notify_writable`].
    Writable {
        /// Whose.
        token: Token,
    },
    /// Somebody called [`crate::Waker::wake`] since the last wait.
    Woken,
}

/// The completions of one [`crate::Reactor::wait`], and the one receive buffer of the shard they point into.
#[derive(Debug)]
pub struct Completions {
    /// In the order they happened, per connection.
    pub list: Vec<Completion>,
    /// Shared by all connections of the shard; valid until the next wait. Mutable, so that frames can be
    /// unmasked in place.
    pub buffer: Vec<u8>,
    /// Some that may have something to say had no turn in this wait: of those that seem silent, some are not.
    pub input_pending: bool,
}

impl Completions {
    /// Bytes of the shared receive buffer.
    pub const BUFFER_BYTES: usize = 512 * 1024;
    /// Bytes one receive can bring: a piece of the buffer.
    pub const RECEIVE_BYTES_MAX: usize = 4096;

    /// Empty, with its buffer allocated.
    #[must_use]
    pub fn new() -> Self {
        Self {
            list: Vec::with_capacity(1024),
            buffer: vec![0; Self::BUFFER_BYTES],
            input_pending: false,
        }
    }
}

impl Default for Completions {
    fn default() -> Self {
        Self::new()
    }
}
