//! The simulated driver: it does with a shard's calls what a kernel would do.

use super::connection::errno;
use super::events::{LateCompletion, LateCompletionKind};
use super::net::{Dialed, Owner, World};
use super::table::{Phase, Table};
use super::{PeerId, SimHandle};
use crate::{Close, Completions, NotAdopted, Reactor, SendOp, Sent, Socket, Token};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Whether the listener accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    Off,
    On,
    /// Paused for this many waits.
    Paused(usize),
    /// Paused until a socket is closed.
    Full,
}

/// A shard's reactor in a [`super::SimNet`]. Dropping it resets its connections and its backlog.
#[derive(Debug)]
pub struct Sim {
    pub(super) world: Rc<RefCell<World>>,
    pub(super) shard: usize,
    pub(super) table: Table,
    pub(super) accepting: Accepting,
    pub(super) late: VecDeque<LateCompletion>,
    batches: u64,
    /// Bytes that the last wait wrote into the buffer.
    pub(super) filled: usize,
}

impl Sim {
    pub(super) fn new(world: Rc<RefCell<World>>, shard: usize, sockets_max: usize) -> Self {
        Self {
            world,
            shard,
            table: Table::new(shard, sockets_max),
            accepting: Accepting::Off,
            late: VecDeque::new(),
            batches: 0,
            filled: 0,
        }
    }
}

impl Reactor for Sim {
    type Handle = SimHandle;

    fn accept(&mut self, accepting: bool) {
        self.accepting = match (accepting, self.accepting) {
            (false, _) => Accepting::Off,
            (true, Accepting::Off) => Accepting::On,
            (true, current) => current,
        };
    }

    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        if self.table.is_full() {
            return Err(io::Error::from_raw_os_error(errno::EMFILE));
        }
        let peer = world.new_link(Owner::Nobody);
        let socket = self
            .table
            .open(peer, Phase::Connecting(token), &mut world.prng)
            .expect("not full");
        let link = world.link(peer);
        link.dialed = Some(Dialed {
            peer,
            source,
            target,
        });
        link.owner = Owner::Socket {
            shard: self.shard,
            slot: socket.slot(),
        };
        world.mark_ready(peer);
        Ok(socket)
    }

    fn register(&mut self, socket: Socket, token: Token) {
        let peer = self.table.register(socket, token);
        self.world.borrow_mut().mark_ready(peer);
    }

    fn pause(&mut self, socket: Socket, token: Token) {
        let entry = self.table.entry_of(socket, token);
        assert!(
            !matches!(entry.phase, Phase::Connecting(_) | Phase::Connected(_)),
            "{socket:?}: paused before it is registered"
        );
        entry.is_paused = true;
    }

    fn resume(&mut self, socket: Socket, token: Token) {
        let entry = self.table.entry_of(socket, token);
        entry.is_paused = false;
        let peer = entry.peer;
        self.world.borrow_mut().mark_ready(peer);
    }

    fn deafen(&mut self, socket: Socket) {
        let peer = self.table.entry(socket).peer;
        self.world.borrow_mut().link(peer).connection.is_deaf = true;
    }

    fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        self.batches += 1;
        for op in ops {
            let peer = self.table.check_send(op, self.batches);
            op.sent = world.links[peer.0]
                .connection
                .send(op.parts, &world.faults, &mut world.prng);
            let outcome = match op.sent {
                Sent::All => usize::MAX,
                Sent::Partly(count) => count,
                Sent::Failed(_) => usize::MAX - 1,
            };
            world.record("sent", [peer.0, outcome]);
            world.mark_ready(peer);
        }
    }

    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>) {
        let world = self.world.borrow();
        addresses.extend(sockets.iter().map(|&socket| {
            let peer = self.table.entry(socket).peer;
            world.links[peer.0].source
        }));
    }

    fn notify_writable(&mut self, socket: Socket, token: Token) {
        let entry = self.table.entry_of(socket, token);
        // After a failure the completion would never come.
        let may_ask = matches!(entry.phase, Phase::Receiving(_) | Phase::Finished(_));
        assert!(
            may_ask,
            "{socket:?}: notify_writable while {:?}",
            entry.phase
        );
        assert_eq!(
            entry.writable_wanted, None,
            "{socket:?}: notify_writable twice"
        );
        entry.writable_wanted = Some(token);
        let peer = entry.peer;
        self.world.borrow_mut().mark_ready(peer);
    }

    fn shutdown(&mut self, socket: Socket) {
        let entry = self.table.entry(socket);
        assert!(!entry.is_shut_down, "{socket:?}: shutdown twice");
        assert!(
            !matches!(entry.phase, Phase::Connecting(_)),
            "{socket:?}: shutdown before it is connected"
        );
        entry.is_shut_down = true;
        let peer = entry.peer;
        let mut world = self.world.borrow_mut();
        world.link(peer).connection.server_shutdown();
        world.record("shutdown", [self.shard, peer.0]);
        world.mark_ready(peer);
    }

    fn close(&mut self, socket: Socket, token: Token, how: Close) {
        let entry = self.table.close(socket, token);
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        self.queue_late_completion(&mut world, &entry, &LateCompletionKind::ALL);
        world.record("closed", [self.shard, entry.peer.0]);
        world.close(entry.peer, how);
    }

    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<SimHandle> {
        let entry = self.table.close(socket, token);
        assert!(
            !entry.is_shut_down,
            "{socket:?}: transferred after shutdown"
        );
        assert!(
            !matches!(entry.phase, Phase::Connecting(_)),
            "{socket:?}: transferred before it is connected"
        );
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let world = &mut *world;
        // The new owner must receive every byte and the end, so no late completion may carry them.
        self.queue_late_completion(world, &entry, &[LateCompletionKind::Writable]);
        world.record("transferred", [self.shard, entry.peer.0]);
        if world.faults.transfer_failure.happens(&mut world.prng) {
            world.close(entry.peer, Close::Orderly);
            return Err(io::Error::from_raw_os_error(errno::EMFILE));
        }
        Ok(world.transfer(entry.peer))
    }

    fn adopt(&mut self, handle: SimHandle) -> Result<Socket, NotAdopted<SimHandle>> {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        let world = &mut *world;
        let peer = handle.peer;
        let is_refused = world.faults.transfer_failure.happens(&mut world.prng);
        let socket = (!is_refused)
            .then(|| self.table.open(peer, Phase::Accepted, &mut world.prng))
            .flatten();
        world.record("adopted", [self.shard, peer.0]);
        let Some(socket) = socket else {
            let error = io::Error::from_raw_os_error(errno::EMFILE);
            return Err(NotAdopted { handle, error });
        };
        world.adopt(
            handle,
            Owner::Socket {
                shard: self.shard,
                slot: socket.slot(),
            },
        );
        Ok(socket)
    }

    /// Never blocks, whatever the timeout: time belongs to the test.
    fn wait(
        &mut self,
        _timeout: Option<Duration>,
        completions: &mut Completions,
    ) -> io::Result<()> {
        let world = self.world.clone();
        let mut world = world.borrow_mut();
        completions.list.clear();
        self.filled = self.run_events(&mut world, completions);
        completions.input_pending = !world.ports[self.shard].ready.is_empty();
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.table.capacity()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // A test that panics inside a call leaves the world borrowed. A second panic here would hide its message.
        let Ok(mut world) = self.world.try_borrow_mut() else {
            return;
        };
        let port = &mut world.ports[self.shard];
        port.is_dropped = true;
        let backlog = std::mem::take(&mut port.backlog);
        let peers: Vec<PeerId> = self
            .table
            .take_all()
            .map(|entry| entry.peer)
            .chain(backlog)
            .collect();
        for peer in peers {
            world.close(peer, Close::Reset);
        }
    }
}
