//! One virtual connection: the bytes on their way in both directions and how each direction ends.

use super::{Faults, Prng};
use crate::{Close, Parts, Sent};
use std::collections::VecDeque;

/// Linux's numbers. The simulation runs on any system, and tests compare its errnos with Linux's.
pub(super) mod errno {
    pub(crate) const ENOMEM: i32 = 12;
    pub(crate) const ENFILE: i32 = 23;
    pub(crate) const EMFILE: i32 = 24;
    pub(crate) const EPIPE: i32 = 32;
    pub(crate) const ECONNRESET: i32 = 104;
    pub(crate) const ENOBUFS: i32 = 105;
    pub(crate) const ETIMEDOUT: i32 = 110;
    pub(crate) const ECONNREFUSED: i32 = 111;
}

/// How the peer sees the server end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// FIN, after all the bytes.
    Fin,
    /// RST.
    Reset,
}

/// What follows the bytes of `inbound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputEnd {
    Open,
    Fin,
    /// RST or another failure.
    Broken(i32),
}

/// The peer's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Reading,
    /// Its receive window is shut.
    Stalled,
    /// It closed. Bytes that still reach it are answered with RST.
    Closed,
    /// It reset the connection or was reset: it neither sends nor receives.
    Dead,
}

#[derive(Debug)]
pub(super) struct Connection {
    /// Bytes from the peer that the server has not received.
    pub(super) inbound: VecDeque<u8>,
    pub(super) input_end: InputEnd,
    /// Bytes from the server that the peer has not received.
    outbound: VecDeque<u8>,
    /// What follows `outbound`, set when the server has ended its side.
    output_end: Option<PeerEnd>,
    kernel_bytes: usize,
    /// The errno of every further send.
    send_error: Option<i32>,
    peer: Peer,
    /// Bytes that the peer has received and the test has not read.
    pub(super) arrived: Vec<u8>,
    pub(super) arrived_end: Option<PeerEnd>,
    /// The server's side is closed: the kernel only delivers the remaining bytes.
    is_orphan: bool,
    /// Nothing of the peer gets through any more but its end.
    pub(super) is_deaf: bool,
}

impl Connection {
    pub(super) fn new(kernel_bytes: usize) -> Self {
        Self {
            inbound: VecDeque::new(),
            input_end: InputEnd::Open,
            outbound: VecDeque::new(),
            output_end: None,
            kernel_bytes,
            send_error: None,
            peer: Peer::Reading,
            arrived: Vec::new(),
            arrived_end: None,
            is_orphan: false,
            is_deaf: false,
        }
    }

    // The peer's side.

    /// False if the peer can no longer send, or the server's side is closed.
    pub(super) fn peer_write(&mut self, bytes: &[u8]) -> bool {
        if !self.peer_sends() {
            return false;
        }
        if self.is_orphan {
            // A closed socket answers input with RST, and the bytes it still holds are lost.
            self.outbound.clear();
            self.output_end = Some(PeerEnd::Reset);
            return false;
        }
        // The peer's kernel takes them, and sends them in vain.
        if !self.is_deaf {
            self.inbound.extend(bytes);
        }
        true
    }

    pub(super) fn peer_sends(&self) -> bool {
        self.input_end == InputEnd::Open
            && matches!(self.peer, Peer::Reading | Peer::Stalled)
            && self.arrived_end != Some(PeerEnd::Reset)
    }

    pub(super) fn peer_fin(&mut self) {
        if self.peer_sends() {
            self.input_end = InputEnd::Fin;
        }
    }

    pub(super) fn peer_close(&mut self) {
        self.peer_fin();
        if self.peer != Peer::Dead {
            self.peer = Peer::Closed;
        }
    }

    /// Breaks the connection. A random prefix of the peer's unread bytes still arrives.
    pub(super) fn peer_break(&mut self, errno: i32, prng: &mut Prng) {
        if self.peer == Peer::Dead || self.is_orphan {
            self.peer = Peer::Dead;
            self.outbound.clear();
            return;
        }
        self.inbound.truncate(prng.between(0, self.inbound.len()));
        self.input_end = InputEnd::Broken(errno);
        self.outbound.clear();
        self.peer = Peer::Dead;
    }

    pub(super) fn peer_stall(&mut self) {
        if self.peer == Peer::Reading {
            self.peer = Peer::Stalled;
        }
    }

    pub(super) fn peer_resume(&mut self) {
        if self.peer == Peer::Stalled {
            self.peer = Peer::Reading;
        }
    }

    // The network.

    /// Whether bytes or the end are on their way to the peer.
    pub(super) fn is_flowing(&self) -> bool {
        self.peer != Peer::Dead
            && (!self.outbound.is_empty()
                || self.output_end.is_some() && self.arrived_end.is_none())
    }

    /// Delivers bytes, and then the end, to the peer.
    pub(super) fn flow(&mut self, faults: &Faults, prng: &mut Prng) {
        match self.peer {
            Peer::Dead => return,
            Peer::Stalled if !self.outbound.is_empty() => return,
            Peer::Closed if !self.outbound.is_empty() => {
                self.outbound.clear();
                self.peer = Peer::Dead;
                // RST after FIN. Linux keeps it for the next send; a receive still ends with FIN.
                self.send_error = Some(errno::EPIPE);
                return;
            }
            Peer::Closed | Peer::Reading | Peer::Stalled => {}
        }
        let count = if faults.delayed_delivery.happens(prng) {
            prng.between(0, self.outbound.len())
        } else {
            self.outbound.len()
        };
        self.arrived.extend(self.outbound.drain(..count));
        if self.outbound.is_empty() && !faults.delayed_delivery.happens(prng) {
            self.arrived_end = self.arrived_end.or(self.output_end);
            if self.arrived_end == Some(PeerEnd::Reset) {
                self.peer = Peer::Dead;
            }
        }
    }

    // The server's side.

    /// The outcome of a send, decided by the state of the connection and at random.
    pub(super) fn send(&mut self, parts: Parts<'_>, faults: &Faults, prng: &mut Prng) -> Sent {
        let length = length_of(parts);
        if let Some(errno) = self.send_error {
            return Sent::Failed(errno);
        }
        if let InputEnd::Broken(errno) = self.input_end {
            // Until the RST arrives, the kernel accepts bytes that the peer will never receive.
            if prng.one_in(2) {
                return Sent::All;
            }
            self.send_error = Some(errno::EPIPE);
            return Sent::Failed(errno);
        }
        let mut count = length.min(self.room());
        if faults.short_send.happens(prng) && count > 1 {
            count = prng.between(1, count - 1);
        }
        if faults.refused_send.happens(prng) {
            count = 0;
        }
        self.outbound.extend(bytes_of(parts).take(count));
        if count == length {
            Sent::All
        } else {
            Sent::Partly(count)
        }
    }

    fn room(&self) -> usize {
        self.kernel_bytes - self.outbound.len()
    }

    /// Whether a poll for writing would report the socket: it has room, or a send would report an error.
    pub(super) fn is_writable(&self) -> bool {
        self.room() > 0
            || self.send_error.is_some()
            || matches!(self.input_end, InputEnd::Broken(_))
    }

    pub(super) fn has_input(&self) -> bool {
        !self.inbound.is_empty() || self.input_end != InputEnd::Open
    }

    /// The errno of the end of the input, or none for FIN. Sends fail from now on if it broke.
    pub(super) fn take_input_end(&mut self, prng: &mut Prng) -> Option<i32> {
        assert!(self.inbound.is_empty());
        match self.input_end {
            InputEnd::Open => unreachable!("the caller has asked `has_input`"),
            InputEnd::Fin => None,
            // A send that failed has consumed the socket's error, and a receive then finds the end of the input.
            InputEnd::Broken(_) if self.send_error.is_some() && prng.one_in(2) => None,
            InputEnd::Broken(errno) => {
                self.send_error = Some(errno::EPIPE);
                Some(errno)
            }
        }
    }

    pub(super) fn server_shutdown(&mut self) {
        assert_eq!(self.output_end, None);
        self.output_end = Some(PeerEnd::Fin);
    }

    pub(super) fn server_close(&mut self, how: Close, prng: &mut Prng) {
        assert!(!self.is_orphan);
        self.is_orphan = true;
        if how == Close::Reset {
            self.outbound.clear();
            self.output_end = Some(PeerEnd::Reset);
        } else if !self.inbound.is_empty() {
            // Closing with unread input sends RST. The peer may never receive the bytes still on their way.
            self.outbound.truncate(prng.between(0, self.outbound.len()));
            self.output_end = Some(PeerEnd::Reset);
        } else {
            self.output_end = Some(PeerEnd::Fin);
        }
        self.inbound.clear();
        if self.peer == Peer::Dead {
            self.outbound.clear();
        }
    }

    /// Writes without a limit. For the owner of a transferred connection.
    pub(super) fn server_write(&mut self, bytes: &[u8]) {
        if self.peer != Peer::Dead {
            self.outbound.extend(bytes);
        }
    }

    pub(super) fn refuse(&mut self) {
        self.is_orphan = true;
        self.output_end = Some(PeerEnd::Reset);
        self.arrived_end = Some(PeerEnd::Reset);
        self.peer = Peer::Dead;
    }

    /// Bytes in the kernel that the peer has not received.
    pub(super) fn outbound_len(&self) -> usize {
        self.outbound.len()
    }
}

pub(super) fn length_of(parts: Parts<'_>) -> usize {
    match parts {
        Parts::One(bytes) => bytes.len(),
        Parts::Many(slices) => slices.iter().map(|slice| slice.len()).sum(),
    }
}

fn bytes_of(parts: Parts<'_>) -> impl Iterator<Item = u8> {
    let (one, many) = match parts {
        Parts::One(bytes) => (bytes, &[][..]),
        Parts::Many(slices) => (&[][..], slices),
    };
    one.iter()
        .chain(many.iter().flat_map(|slice| slice.iter()))
        .copied()
}
