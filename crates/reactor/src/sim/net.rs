//! The simulated network as the test sees it: peers, and what the servers have left open.

use super::connection::{Connection, errno};
use super::prng::mix;
use super::{Faults, PeerEnd, Prng, Sim};
use crate::Close;
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The test's identifier of a virtual peer and of its connection. A net never reuses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(super) usize);

/// A transferred connection. Its new owner reads and writes it through the [`SimNet`].
///
/// Dropping it closes the connection, as dropping a descriptor would.
#[derive(Debug)]
#[must_use = "dropping it closes the connection"]
pub struct SimHandle {
    pub(super) peer: PeerId,
    /// Shared with the net. A count of one tells it that the handle was dropped.
    _alive: Arc<()>,
}

impl SimHandle {
    /// Whose connection it is.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }
}

/// An outgoing connection that a [`Sim`] has established. The test plays its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialed {
    /// The test's end of it.
    pub peer: PeerId,
    /// As given to [`crate::Reactor::connect`].
    pub source: Option<SocketAddr>,
    /// As given to [`crate::Reactor::connect`].
    pub target: SocketAddr,
}

/// Who holds the server's side of a connection.
#[derive(Debug)]
pub(super) enum Owner {
    Backlog,
    Socket { shard: usize, slot: u32 },
    Handle(Arc<()>),
    Nobody,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    pub(super) owner: Owner,
    /// Where the peer connected to.
    pub(super) listener: u8,
    /// The end of input was reported, and the socket is still open.
    pub(super) is_end_reported: bool,
    /// Where the peer connected from.
    pub(super) source: Option<SocketAddr>,
    /// Source and target, for outgoing connections.
    pub(super) dialed: Option<Dialed>,
}

/// One shard's part of the world.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) backlog: VecDeque<PeerId>,
    /// Slots whose socket may have an event.
    pub(super) ready: BTreeSet<u32>,
    pub(super) is_dropped: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) prng: Prng,
    pub(super) faults: Faults,
    pub(super) links: Vec<Link>,
    pub(super) ports: Vec<Port>,
    /// Connections with bytes or an end on the way to the peer.
    flowing: BTreeSet<PeerId>,
    transferred: BTreeSet<PeerId>,
    dialed: Vec<Dialed>,
    fingerprint: u64,
}

impl World {
    pub(super) fn link(&mut self, peer: PeerId) -> &mut Link {
        &mut self.links[peer.0]
    }

    pub(super) fn new_link(&mut self, owner: Owner) -> PeerId {
        let (least, most) = self.faults.kernel_bytes;
        let kernel_bytes = self.prng.between(least, most);
        let connection = Connection::new(kernel_bytes);
        self.links.push(Link {
            connection,
            owner,
            listener: 0,
            is_end_reported: false,
            source: None,
            dialed: None,
        });
        PeerId(self.links.len() - 1)
    }

    /// Adds an event to the digest of [`SimNet::fingerprint`].
    pub(super) fn record(&mut self, what: &str, numbers: [usize; 2]) {
        for byte in what.bytes() {
            self.fingerprint = mix(self.fingerprint ^ u64::from(byte));
        }
        for number in numbers {
            self.fingerprint = mix(self.fingerprint ^ number as u64);
        }
    }

    /// Call after every change of a connection: queues it for delivery and its socket for events.
    pub(super) fn mark_ready(&mut self, peer: PeerId) {
        let link = &self.links[peer.0];
        if link.connection.is_flowing() {
            self.flowing.insert(peer);
        }
        if let Owner::Socket { shard, slot } = link.owner {
            self.ports[shard].ready.insert(slot);
        }
    }

    /// Takes the connection away from its owner.
    pub(super) fn take_from_owner(&mut self, peer: PeerId) {
        let link = &mut self.links[peer.0];
        link.is_end_reported = false;
        if let Owner::Socket { shard, slot } = std::mem::replace(&mut link.owner, Owner::Nobody) {
            self.ports[shard].ready.remove(&slot);
        }
    }

    /// Closes the server's side.
    pub(super) fn close(&mut self, peer: PeerId, how: Close) {
        self.take_from_owner(peer);
        let link = &mut self.links[peer.0];
        link.connection.server_close(how, &mut self.prng);
        self.mark_ready(peer);
    }

    pub(super) fn transfer(&mut self, peer: PeerId) -> SimHandle {
        let alive = Arc::new(());
        self.take_from_owner(peer);
        self.link(peer).owner = Owner::Handle(alive.clone());
        self.transferred.insert(peer);
        SimHandle {
            peer,
            _alive: alive,
        }
    }

    /// A socket takes the connection over from its handle.
    pub(super) fn adopt(&mut self, handle: SimHandle, owner: Owner) {
        let peer = handle.peer;
        let link = self.link(peer);
        assert!(
            matches!(link.owner, Owner::Handle(_)),
            "{peer:?}: adopted, but its handle is not its owner"
        );
        link.owner = owner;
        self.transferred.remove(&peer);
    }

    pub(super) fn establish(&mut self, peer: PeerId) {
        let dialed = self.link(peer).dialed.expect("an outgoing connection");
        self.dialed.push(dialed);
    }

    /// Delivers to the peers.
    pub(super) fn flow(&mut self) {
        self.close_dropped_handles();
        for peer in std::mem::take(&mut self.flowing) {
            self.links[peer.0]
                .connection
                .flow(&self.faults, &mut self.prng);
            self.mark_ready(peer);
        }
    }

    fn close_dropped_handles(&mut self) {
        for peer in std::mem::take(&mut self.transferred) {
            let Owner::Handle(alive) = &self.links[peer.0].owner else {
                continue;
            };
            if Arc::strong_count(alive) > 1 {
                self.transferred.insert(peer);
            } else {
                self.close(peer, Close::Orderly);
            }
        }
    }
}

/// A network of virtual connections; clones are the same network.
///
/// Peers are driven by the calls here; the servers by the [`Sim`] reactors made with [`SimNet::reactor`].
/// Bytes travel to the peers during any reactor's `wait` and in [`SimNet::read`].
#[derive(Clone, Debug)]
pub struct SimNet {
    world: Rc<RefCell<World>>,
}

impl SimNet {
    /// A network without reactors and peers.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        let world = World {
            prng: Prng::new(seed),
            faults,
            links: Vec::new(),
            ports: Vec::new(),
            flowing: BTreeSet::new(),
            transferred: BTreeSet::new(),
            dialed: Vec::new(),
            fingerprint: 0,
        };
        Self {
            world: Rc::new(RefCell::new(world)),
        }
    }

    fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Another shard's reactor, with a listener of its own and room for `sockets_max` sockets.
    #[must_use]
    pub fn reactor(&self, sockets_max: usize) -> Sim {
        let mut world = self.world();
        world.ports.push(Port::default());
        Sim::new(self.world.clone(), world.ports.len() - 1, sockets_max)
    }

    /// Changes the faults from now on. [`Faults::NONE`] lets everything arrive.
    pub fn set_faults(&self, faults: Faults) {
        self.world().faults = faults;
    }

    /// A client connects to a listener chosen at random. Without a listener it is reset at once.
    pub fn connect(&self) -> PeerId {
        let mut world = self.world();
        let world = &mut *world;
        let open: Vec<usize> = (0..world.ports.len())
            .filter(|&shard| !world.ports[shard].is_dropped)
            .collect();
        let peer = world.new_link(Owner::Backlog);
        if open.is_empty() {
            world.link(peer).connection.refuse();
            world.link(peer).owner = Owner::Nobody;
        } else {
            let shard = *world.prng.pick(&open);
            world.ports[shard].backlog.push_back(peer);
        }
        peer
    }

    /// As [`SimNet::connect`], from this address.
    pub fn connect_from(&self, source: SocketAddr) -> PeerId {
        self.connect_to(0, Some(source))
    }

    /// As [`SimNet::connect`], to the reactor's listener of this number, and from this address if there is one.
    pub fn connect_to(&self, listener: u8, source: Option<SocketAddr>) -> PeerId {
        let peer = self.connect();
        let mut world = self.world();
        let link = world.link(peer);
        (link.listener, link.source) = (listener, source);
        peer
    }

    /// A client connects to somebody who has no reactor, and may have its connection adopted by one.
    pub fn connect_elsewhere(&self) -> (PeerId, SimHandle) {
        let mut world = self.world();
        let peer = world.new_link(Owner::Nobody);
        let handle = world.transfer(peer);
        (peer, handle)
    }

    /// The peer sends. False if the bytes are lost: the peer can no longer send, or the server's side is closed.
    pub fn write(&self, peer: PeerId, bytes: &[u8]) -> bool {
        let mut world = self.world();
        let is_sent = world.link(peer).connection.peer_write(bytes);
        world.mark_ready(peer);
        is_sent
    }

    /// Takes the bytes that the peer has received since the last call.
    pub fn read(&self, peer: PeerId) -> Vec<u8> {
        self.flow(peer);
        std::mem::take(&mut self.world().link(peer).connection.arrived)
    }

    /// How the server ended the connection. None until all bytes before the end have arrived.
    #[must_use]
    pub fn end(&self, peer: PeerId) -> Option<PeerEnd> {
        self.flow(peer);
        self.world().link(peer).connection.arrived_end
    }

    fn flow(&self, peer: PeerId) {
        let mut world = self.world();
        let world = &mut *world;
        if world.links[peer.0].connection.is_flowing() {
            world.links[peer.0]
                .connection
                .flow(&world.faults, &mut world.prng);
            world.mark_ready(peer);
        }
    }

    fn change(&self, peer: PeerId, change: impl FnOnce(&mut Connection, &mut Prng)) {
        let mut world = self.world();
        let world = &mut *world;
        change(&mut world.links[peer.0].connection, &mut world.prng);
        world.mark_ready(peer);
    }

    /// The peer stops reading: the kernel's buffers fill, then sends are short, then they send nothing.
    pub fn stall(&self, peer: PeerId) {
        self.change(peer, |connection, _| connection.peer_stall());
    }

    /// The peer reads again.
    pub fn resume(&self, peer: PeerId) {
        self.change(peer, |connection, _| connection.peer_resume());
    }

    /// The peer sends FIN after its bytes, and continues to read.
    pub fn fin(&self, peer: PeerId) {
        self.change(peer, |connection, _| connection.peer_fin());
    }

    /// The peer closes: it sends FIN after its bytes, and answers all further bytes with RST.
    pub fn close(&self, peer: PeerId) {
        self.change(peer, |connection, _| connection.peer_close());
    }

    /// The peer sends RST. A random prefix of its unread bytes still arrives.
    pub fn reset(&self, peer: PeerId) {
        self.change(peer, |connection, prng| {
            connection.peer_break(errno::ECONNRESET, prng)
        });
    }

    /// The network path to the peer breaks, and the kernel reports a timeout.
    pub fn time_out(&self, peer: PeerId) {
        self.change(peer, |connection, prng| {
            connection.peer_break(errno::ETIMEDOUT, prng)
        });
    }

    /// The outgoing connections established since the last call.
    #[must_use]
    pub fn dialed(&self) -> Vec<Dialed> {
        std::mem::take(&mut self.world().dialed)
    }

    /// The new owner of a transferred connection reads the peer's bytes.
    #[must_use]
    pub fn handle_read(&self, handle: &SimHandle) -> Vec<u8> {
        self.world()
            .link(handle.peer)
            .connection
            .inbound
            .drain(..)
            .collect()
    }

    /// The new owner of a transferred connection writes to the peer.
    pub fn handle_write(&self, handle: &SimHandle, bytes: &[u8]) {
        self.change(handle.peer, |connection, _| connection.server_write(bytes));
    }

    /// Number of connections that wait to be accepted.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.world()
            .ports
            .iter()
            .map(|port| port.backlog.len())
            .sum()
    }

    /// Number of sockets that the reactors' callers hold open, including those that are still connecting.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.world()
            .links
            .iter()
            .filter(|link| matches!(link.owner, Owner::Socket { .. }))
            .count()
    }

    /// Number of transferred connections whose handle was not dropped.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        let mut world = self.world();
        world.close_dropped_handles();
        world.transferred.len()
    }

    /// Sockets that are still open although the end of their input was reported.
    ///
    /// That is allowed for a while, to finish a reply or to linger. At the end of a test it is a leak.
    #[must_use]
    pub fn leaked(&self) -> Vec<PeerId> {
        let world = self.world();
        (0..world.links.len())
            .filter(|&peer| world.links[peer].is_end_reported)
            .map(PeerId)
            .collect()
    }

    /// Bytes in the kernel that the peer has not received.
    #[must_use]
    pub fn kernel_bytes(&self, peer: PeerId) -> usize {
        self.world().link(peer).connection.outbound_len()
    }

    /// A digest of all events so far: equal for equal seeds and equal calls.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.world().fingerprint
    }
}
