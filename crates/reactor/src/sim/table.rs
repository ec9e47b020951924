//! The sockets of one simulated reactor, and the checks of how the caller uses them.

use super::connection::length_of;
use super::{PeerId, Prng};
use crate::{GATHER_PARTS_MAX, Parts, SendOp, Socket, Token};
use std::collections::BTreeMap;

/// The state of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// [`crate::Completion::Connected`] was not reported yet.
    Connecting(Token),
    /// Connected, with the token it must be registered with.
    Connected(Token),
    /// Not registered yet.
    Accepted,
    Receiving(Token),
    /// The peer's FIN was reported.
    Finished(Token),
    /// A failure was reported.
    Failed(Token),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) peer: PeerId,
    pub(super) phase: Phase,
    /// The token for [`crate::Completion::Writable`], if that was requested.
    pub(super) writable_wanted: Option<Token>,
    /// FIN was sent: another send is the caller's mistake.
    pub(super) is_shut_down: bool,
    /// The last batch with an operation for this socket.
    pub(super) batch: u64,
    /// The caller does not want its bytes for now.
    pub(super) is_paused: bool,
}

/// Panics because the caller broke the reactor's contract, and names the socket.
fn misuse(socket: Socket, what: &str) -> ! {
    panic!("{socket:?}: {what}");
}

#[derive(Debug)]
pub(super) struct Table {
    shard: usize,
    entries: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    /// Slots closed since the last wait. They are reused after the next one at the earliest.
    closed: Vec<u32>,
    /// The caller's records that own a socket.
    records: BTreeMap<u32, Socket>,
}

impl Table {
    pub(super) fn new(shard: usize, sockets_max: usize) -> Self {
        assert!(sockets_max <= Socket::SLOTS_MAX);
        let vacant = (0..).take(sockets_max).collect();
        Self {
            shard,
            entries: (0..sockets_max).map(|_| None).collect(),
            vacant,
            closed: Vec::new(),
            records: BTreeMap::new(),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.vacant.is_empty()
    }

    /// Gives a connection a socket; none when the table is full.
    pub(super) fn open(&mut self, peer: PeerId, phase: Phase, prng: &mut Prng) -> Option<Socket> {
        if self.vacant.is_empty() {
            return None;
        }
        // Often reuse the slot closed last: a caller that forgot the close would still use it.
        let index = if prng.one_in(2) {
            self.vacant.len() - 1
        } else {
            prng.below(self.vacant.len())
        };
        let slot = self.vacant.swap_remove(index);
        self.entries[slot as usize] = Some(Entry {
            peer,
            phase,
            writable_wanted: None,
            is_shut_down: false,
            batch: 0,
            is_paused: false,
        });
        let socket = Socket::new(self.shard, slot);
        if let Phase::Connecting(token) = phase {
            self.bind_record(socket, token);
        }
        Some(socket)
    }

    pub(super) fn socket(&self, slot: u32) -> Socket {
        Socket::new(self.shard, slot)
    }

    /// The open socket with this identifier.
    ///
    /// # Panics
    /// When the caller has no such socket.
    pub(super) fn entry(&mut self, socket: Socket) -> &mut Entry {
        if socket.table() != self.shard {
            misuse(socket, "belongs to another reactor");
        }
        match self.entries.get_mut(socket.slot() as usize) {
            Some(Some(entry)) => entry,
            _ => misuse(socket, "used after its end"),
        }
    }

    /// Checks one send of a batch, and returns the peer it goes to.
    pub(super) fn check_send(&mut self, op: &SendOp<'_>, batch: u64) -> PeerId {
        let socket = op.socket;
        let entry = self.entry(socket);
        assert!(entry.batch != batch, "{socket:?}: two sends in one batch");
        assert!(!entry.is_shut_down, "{socket:?}: a send after shutdown");
        let is_connecting = matches!(entry.phase, Phase::Connecting(_));
        assert!(!is_connecting, "{socket:?}: a send before it is connected");
        assert!(length_of(op.parts) > 0, "{socket:?}: a send of nothing");
        if let Parts::Many(slices) = op.parts {
            assert!(
                slices.len() <= GATHER_PARTS_MAX,
                "{socket:?}: too many parts"
            );
        }
        entry.batch = batch;
        entry.peer
    }

    pub(super) fn register(&mut self, socket: Socket, token: Token) -> PeerId {
        let entry = self.entry(socket);
        let peer = entry.peer;
        match entry.phase {
            Phase::Accepted => {
                entry.phase = Phase::Receiving(token);
                self.bind_record(socket, token);
            }
            Phase::Connected(expected) if expected == token => {
                entry.phase = Phase::Receiving(token)
            }
            Phase::Connected(_) => {
                misuse(socket, "registered with another token than connected with")
            }
            Phase::Connecting(_) => misuse(socket, "registered before it was connected"),
            Phase::Receiving(_) | Phase::Finished(_) | Phase::Failed(_) => {
                misuse(socket, "registered twice")
            }
        }
        peer
    }

    fn bind_record(&mut self, socket: Socket, token: Token) {
        if let Some(other) = self.records.insert(token.index, socket) {
            misuse(
                socket,
                &format!("record {} already owns {other:?}", token.index),
            );
        }
    }

    /// The open socket, used with the token it was registered with.
    pub(super) fn entry_of(&mut self, socket: Socket, token: Token) -> &mut Entry {
        let entry = self.entry(socket);
        match entry.phase {
            Phase::Connecting(own)
            | Phase::Connected(own)
            | Phase::Receiving(own)
            | Phase::Finished(own)
            | Phase::Failed(own)
                if own != token =>
            {
                misuse(
                    socket,
                    &format!("used with {token:?}, registered with {own:?}"),
                )
            }
            _ => entry,
        }
    }

    /// Removes an open socket. Its slot stays unused until [`Table::reuse_closed`].
    pub(super) fn close(&mut self, socket: Socket, token: Token) -> Entry {
        let phase = self.entry_of(socket, token).phase;
        if phase != Phase::Accepted {
            self.records.remove(&token.index);
        }
        self.closed.push(socket.slot());
        self.entries[socket.slot() as usize]
            .take()
            .expect("found above")
    }

    pub(super) fn reuse_closed(&mut self) {
        self.vacant.append(&mut self.closed);
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry> + '_ {
        self.records.clear();
        self.entries.iter_mut().filter_map(Option::take)
    }
}
