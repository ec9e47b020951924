//! One simulated client: sixteen bytes of plain data.

use crate::clock::{Nanos, Ticks};
use crate::measure::sequence::Sequence;
use myriad_reactor::{Socket, Token};

/// Where a terminal is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Not opened yet, or waiting to try again.
    Waiting,
    /// The connection is being established.
    Connecting,
    /// The upgrade request is under way.
    Upgrading,
    /// A WebSocket whose session is being made: commands are not answered yet.
    Joining,
    /// A WebSocket, with its session if there is to be one.
    Open,
    /// Open, and it neither reads nor sends.
    Stalled,
    /// Open, and nothing of the peer comes through any more but the end of the connection.
    Vanished,
    /// A close frame went out; the peer's end is awaited.
    Closing,
    /// The same, but on purpose and to be replaced.
    Leaving,
    /// Over, one way or another.
    Ended,
}

/// All that an idle terminal keeps.
///
/// Incomplete input and unsent output are stored elsewhere, and only while they exist. The socket is the reactor's own
/// id, which need not be a descriptor of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    /// [`Socket::to_bits`]; meaningful from `Connecting` to `Leaving`.
    socket: u32,
    /// When its phase began to wait: for the connection, the upgrade, or the peer's close. While open: when its
    /// unanswered heartbeat went out, or zero.
    pub waiting_since: Ticks,
    /// What it has seen of its first channel.
    pub sequence: Sequence,
    pub phase: Phase,
    /// Counts its connections, from 1 and over again after 255; the token's generation, so that a completion of a
    /// previous attempt is known as such.
    pub attempt: u8,
}

// The product of this crate is how little a terminal costs; four of them share a cache line.
const _: () = assert!(size_of::<Terminal>() == 16);

impl Terminal {
    /// One that was never opened.
    pub(crate) fn new() -> Self {
        Self {
            socket: 0,
            waiting_since: Ticks(0),
            sequence: Sequence::NONE,
            phase: Phase::Waiting,
            attempt: 0,
        }
    }

    pub(crate) fn socket(&self) -> Socket {
        Socket::from_bits(self.socket)
    }

    pub(crate) fn token(&self, index: u32) -> Token {
        Token {
            index,
            generation: self.attempt,
        }
    }

    /// Begins another connection.
    pub(crate) fn begin_attempt(&mut self) {
        assert_eq!(self.phase, Phase::Waiting);
        self.attempt = self.attempt.wrapping_add(1);
    }

    /// Connections before this one, as far as they are counted.
    pub(crate) fn attempts_before(&self) -> u8 {
        self.attempt.wrapping_sub(1)
    }

    /// Enters `Connecting` with the socket that is being connected.
    pub(crate) fn begin_connecting(&mut self, socket: Socket, now: Nanos) {
        self.socket = socket.to_bits();
        self.phase = Phase::Connecting;
        self.waiting_since = now.ticks();
    }

    /// Whether a socket belongs to it.
    pub(crate) fn holds_socket(&self) -> bool {
        matches!(
            self.phase,
            Phase::Connecting
                | Phase::Upgrading
                | Phase::Joining
                | Phase::Open
                | Phase::Stalled
                | Phase::Vanished
                | Phase::Closing
                | Phase::Leaving
        )
    }
}
