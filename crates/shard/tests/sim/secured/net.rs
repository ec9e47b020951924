//! The network as its users see it: for clients with TLS, with what seals and opens their records.

use super::client::{Client, Fault};
use super::{LISTENER, Secured, offer, toy};
use myriad_reactor::sim::{Faults, PeerEnd, PeerId, Prng, Sim, SimHandle, SimNet};
use myriad_tls_stage::{Carried, Connection, Failure, Figures, Step, TlsStage, Workers};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A simulated network, some of whose clients speak TLS. Clones are the same network.
#[derive(Clone)]
pub(crate) struct Net {
    sim: SimNet,
    tls: Option<Rc<Tls>>,
}

struct Tls {
    setup: Secured,
    prng: RefCell<Prng>,
    clients: RefCell<BTreeMap<PeerId, Client>>,
    /// Clients that have more to do than to wait for bytes.
    busy: RefCell<BTreeSet<PeerId>>,
    /// Clients that have left their scenario and broken a rule of TLS. They read on until the server's side ends.
    broken: RefCell<BTreeSet<PeerId>>,
    figures: RefCell<Vec<Arc<Figures>>>,
    /// Who signs, where that is slow.
    workers: Workers,
    /// Their threads are busy with something else.
    is_busy: Cell<bool>,
    reached: RefCell<BTreeMap<&'static str, u64>>,
    /// Faults are off, so everything leaves at once.
    is_calm: Cell<bool>,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl Net {
    pub(crate) fn new(sim: SimNet, setup: Option<Secured>, mut prng: Prng) -> Self {
        let tls = setup.map(|setup| {
            toy::seed(prng.fork());
            myriad_tls::limit_keys(setup.key_records_max);
            Rc::new(Tls {
                setup,
                prng: RefCell::new(prng),
                clients: RefCell::default(),
                busy: RefCell::default(),
                broken: RefCell::default(),
                figures: RefCell::default(),
                workers: Workers::without_threads(),
                is_busy: Cell::new(false),
                reached: RefCell::default(),
                is_calm: Cell::new(false),
            })
        });
        Self { sim, tls }
    }

    /// Another shard's reactor.
    pub(crate) fn reactor(&self, sockets_max: usize) -> TlsStage<Sim> {
        let sockets = self.sim.reactor(sockets_max);
        let Some(tls) = &self.tls else {
            return TlsStage::plain(sockets);
        };
        let (stage, figures) = tls.setup.stage(sockets, &tls.workers);
        tls.figures.borrow_mut().push(figures);
        stage
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        if let Some(tls) = &self.tls {
            let none = Faults {
                kernel_bytes: faults.kernel_bytes,
                ..Faults::NONE
            };
            tls.is_calm.set(faults == none);
        }
        self.sim.set_faults(faults);
    }

    pub(crate) fn connect(&self) -> PeerId {
        self.connect_with(None)
    }

    pub(crate) fn connect_from(&self, source: SocketAddr) -> PeerId {
        self.connect_with(Some(source))
    }

    fn connect_with(&self, source: Option<SocketAddr>) -> PeerId {
        let Some(tls) = self.tls.as_ref().filter(|tls| tls.draws_secured()) else {
            return self.sim.connect_to(0, source);
        };
        let peer = self.sim.connect_to(LISTENER, source);
        let client = tls.new_client();
        tls.clients.borrow_mut().insert(peer, client);
        peer
    }

    /// A client that the control plane has, and may hand to a shard. With TLS, its handshake has ended.
    pub(crate) fn connect_elsewhere(&self) -> (PeerId, Carried<SimHandle>) {
        let (peer, handle) = self.sim.connect_elsewhere();
        let Some(tls) = self.tls.as_ref().filter(|tls| tls.draws_secured()) else {
            return (peer, Carried::plain(handle));
        };
        let mut client = tls.new_client();
        let connection = tls.shake_hands(&mut client);
        tls.clients.borrow_mut().insert(peer, client);
        let tls = Some(Box::new(connection));
        (peer, Carried { handle, tls })
    }

    /// What `work` makes of a client with TLS. None for a client without.
    fn with<T>(&self, peer: PeerId, work: impl FnOnce(&Tls, &mut Client) -> T) -> Option<T> {
        let tls = self.tls.as_ref()?;
        let mut clients = tls.clients.borrow_mut();
        let client = clients.get_mut(&peer)?;
        let result = work(tls, client);
        if client.is_busy() {
            tls.busy.borrow_mut().insert(peer);
        }
        Some(result)
    }

    pub(crate) fn write(&self, peer: PeerId, bytes: &[u8]) -> bool {
        let secured = self.with(peer, |tls, client| {
            client.say(bytes, &mut tls.prng.borrow_mut(), &mut |what| {
                tls.note(what)
            });
            tls.flush(&self.sim, peer, client);
            true
        });
        secured.unwrap_or_else(|| self.sim.write(peer, bytes))
    }

    pub(crate) fn read(&self, peer: PeerId) -> Vec<u8> {
        let secured = self.with(peer, |tls, client| {
            tls.take(&self.sim, peer, client);
            if client.may_speak() && !tls.is_calm.get() && tls.prng.borrow_mut().one_in(100) {
                client.interject(&mut tls.prng.borrow_mut(), &mut |what| tls.note(what));
            }
            tls.flush(&self.sim, peer, client);
            std::mem::take(&mut client.plain)
        });
        secured.unwrap_or_else(|| self.sim.read(peer))
    }

    pub(crate) fn end(&self, peer: PeerId) -> Option<PeerEnd> {
        let end = self.sim.end(peer)?;
        self.with(peer, |tls, client| {
            tls.take(&self.sim, peer, client);
            if !client.is_gone {
                client.check_end(end, &mut |what| tls.note(what));
            }
            if client.wants_fin && client.is_shut_out() {
                client.wants_fin = false;
                client.give_up();
                self.sim.fin(peer);
            }
        });
        Some(end)
    }

    /// Clients whose handshakes are under way, or whose ciphertext has not left, go on. True if anything came or went.
    pub(crate) fn attend(&self) -> bool {
        let Some(tls) = &self.tls else { return false };
        let mut is_moving = tls.sign();
        for peer in tls.busy.take() {
            self.with(peer, |tls, client| {
                is_moving |= tls.take(&self.sim, peer, client);
                is_moving |= tls.flush(&self.sim, peer, client);
            });
        }
        for peer in tls.broken.take() {
            let goes_on = self.with(peer, |tls, client| {
                is_moving |= tls.take(&self.sim, peer, client);
                let end = self.sim.end(peer);
                if let Some(end) = end {
                    is_moving = true;
                    tls.take(&self.sim, peer, client);
                    client.check_end(end, &mut |what| tls.note(what));
                    client.is_gone = true;
                    self.sim.close(peer);
                }
                client.plain.clear();
                end.is_none()
            });
            if goes_on == Some(true) {
                tls.broken.borrow_mut().insert(peer);
            }
        }
        is_moving
    }

    // Leaving.

    pub(crate) fn fin(&self, peer: PeerId) {
        let secured = self.with(peer, |tls, client| {
            let draw = tls.prng.borrow_mut().below(4);
            let gives_up = draw == 0 || client.is_shut_out();
            if client.is_fresh() || client.is_handshaking() && gives_up {
                if client.is_handshaking() {
                    tls.note("tls: a client leaves in the middle of its handshake");
                }
                client.give_up();
                return self.sim.fin(peer);
            }
            client.sends_close_notify_first = draw > 0;
            client.wants_fin = true;
            tls.flush(&self.sim, peer, client);
        });
        if secured.is_none() {
            self.sim.fin(peer);
        }
    }

    /// The client leaves, and `how` tells the network. What it has sealed and not sent may be lost from any byte on.
    fn leave(&self, peer: PeerId, is_orderly: bool, how: impl FnOnce(&SimNet)) {
        if self.breaks_a_rule(peer) {
            return;
        }
        self.with(peer, |tls, client| {
            if client.is_handshaking() {
                tls.note("tls: a client leaves in the middle of its handshake");
            }
            if is_orderly && client.is_open() {
                let mut prng = tls.prng.borrow_mut();
                if prng.one_in(2) {
                    client.send_close_notify();
                }
                let rest = std::mem::take(&mut client.outgoing);
                if !rest.is_empty() && prng.one_in(4) {
                    tls.note("tls: a client closes in the middle of a record");
                    self.sim.write(peer, &rest[..prng.below(rest.len())]);
                } else if !rest.is_empty() {
                    self.sim.write(peer, &rest);
                }
            }
            client.outgoing.clear();
            client.is_gone = true;
        });
        how(&self.sim);
    }

    pub(crate) fn close(&self, peer: PeerId) {
        self.leave(peer, true, |sim| sim.close(peer));
    }

    pub(crate) fn reset(&self, peer: PeerId) {
        self.leave(peer, false, |sim| sim.reset(peer));
    }

    pub(crate) fn time_out(&self, peer: PeerId) {
        self.leave(peer, false, |sim| sim.time_out(peer));
    }

    /// A client with TLS reads until its handshake has ended, and if it has broken a rule.
    pub(crate) fn stall(&self, peer: PeerId) {
        let reads = self.with(peer, |_, client| {
            client.is_stalled = client.fault.is_none();
            client.is_handshaking() || !client.is_stalled
        });
        if reads != Some(true) {
            self.sim.stall(peer);
        }
    }

    pub(crate) fn resume(&self, peer: PeerId) {
        self.with(peer, |_, client| client.is_stalled = false);
        self.sim.resume(peer);
    }

    /// Some clients with TLS break a rule of it in place of leaving. Whoever leaves does not ask what becomes of it, so here it is checked:
    /// the right alert, and the end of this connection.
    fn breaks_a_rule(&self, peer: PeerId) -> bool {
        let has_ended = self.sim.end(peer).is_some();
        let is_broken = self.with(peer, |tls, client| {
            if tls.broken.borrow().contains(&peer) {
                return true;
            }
            let draws_it = tls.prng.borrow_mut().one_in(3);
            let breaks = draws_it && client.may_speak() && !has_ended;
            if breaks {
                let fault = *tls.prng.borrow_mut().pick(&Fault::ALL);
                tls.note(fault.sent());
                if std::mem::take(&mut client.is_stalled) {
                    self.sim.resume(peer);
                }
                client.break_a_rule(fault, &mut tls.prng.borrow_mut());
                tls.flush(&self.sim, peer, client);
                tls.broken.borrow_mut().insert(peer);
            }
            breaks
        });
        is_broken == Some(true)
    }

    // What is known of clients and shards.

    /// Whether the server could tell a client something: with TLS, once its handshake has ended at both ends.
    pub(crate) fn is_heard(&self, peer: PeerId) -> bool {
        self.with(peer, |_, client| client.is_heard) != Some(false)
    }

    /// Clients with TLS so far.
    pub(crate) fn secured_clients(&self) -> u64 {
        let clients = self.tls.as_ref().map(|tls| tls.clients.borrow().len());
        clients.unwrap_or(0) as u64
    }

    /// Whether signatures wait until this says something else.
    pub(crate) fn hold_signatures(&self, is_held: bool) {
        if let Some(tls) = &self.tls {
            tls.is_busy.set(is_held);
        }
    }

    /// Nobody may have a client's connection any more: its server's side may end anywhere.
    pub(crate) fn may_be_cut(&self, peer: PeerId) {
        self.with(peer, |_, client| client.may_be_cut = true);
    }

    /// Nothing is under way.
    pub(crate) fn note_quiet(&self) {
        if let Some(tls) = &self.tls {
            let clients = tls.clients.borrow();
            let broken = tls.broken.borrow();
            let waiting = broken.first().map(|peer| (peer, &clients[peer]));
            assert!(
                waiting.is_none(),
                "a rule is broken, and nothing ends: {waiting:?}"
            );
            drop(clients);
            tls.clients
                .borrow_mut()
                .values_mut()
                .for_each(Client::note_quiet);
        }
    }

    /// Connections that wait to be accepted, or for their handshake to begin.
    pub(crate) fn backlog(&self) -> usize {
        let waiting = self.sum(|figures| figures.waiting.load(Relaxed));
        if let Some(tls) = self.tls.as_ref().filter(|_| waiting > 0) {
            tls.note("tls: a client waits for its handshake to begin");
        }
        self.sim.backlog() + usize::try_from(waiting).expect("few")
    }

    fn sum(&self, figure: impl Fn(&Figures) -> u64) -> u64 {
        let figures = self.tls.iter().flat_map(|tls| tls.figures.borrow().clone());
        figures.map(|figures| figure(&figures)).sum()
    }

    /// The stages have no connections.
    pub(crate) fn check_end(&self) {
        assert_eq!(self.sum(|figures| figures.open.load(Relaxed)), 0);
        assert_eq!(self.sum(|figures| figures.under_way.load(Relaxed)), 0);
        assert_eq!(self.sum(|figures| figures.waiting.load(Relaxed)), 0);
        let of =
            |failure: Failure| self.sum(|figures| figures.failed[failure as usize].load(Relaxed));
        let faults = [
            Failure::Ours,
            Failure::Alert,
            Failure::NothingInCommon,
            Failure::NotTls,
        ];
        assert_eq!(faults.map(of), [0; 4], "handshakes without a fault");
    }

    /// What clients with TLS have come through.
    pub(crate) fn take_reached(&self) -> BTreeMap<&'static str, u64> {
        let mut reached = self
            .tls
            .as_ref()
            .map(|tls| tls.reached.take())
            .unwrap_or_default();
        let slow = self.sum(|figures| figures.failed[Failure::Slow as usize].load(Relaxed));
        *reached
            .entry("tls: a handshake loses its place")
            .or_default() += slow;
        reached
    }

    // The control plane's way to its connections, as the server's `ClientStream` goes it.

    /// What has come, as plaintext.
    pub(crate) fn handle_read(&self, carried: &mut Carried<SimHandle>) -> Vec<u8> {
        let bytes = self.sim.handle_read(&carried.handle);
        let (Some(tls), Some(connection)) = (&self.tls, &mut carried.tls) else {
            return bytes;
        };
        let (mut rest, mut plain) = (&bytes[..], Vec::new());
        while !rest.is_empty() && !connection.is_over() {
            let (piece, later) = rest.split_at(tls.prng.borrow_mut().between(1, rest.len()));
            let mut piece = piece.to_vec();
            let range = 0..piece.len();
            let received = connection.receive(&mut piece, range);
            plain.extend_from_slice(&piece[received.plain]);
            rest = later;
        }
        self.send_output(&carried.handle, connection);
        plain
    }

    pub(crate) fn handle_write(&self, carried: &mut Carried<SimHandle>, bytes: &[u8]) {
        let Some(connection) = &mut carried.tls else {
            return self.sim.handle_write(&carried.handle, bytes);
        };
        if connection.queue(bytes) {
            self.send_output(&carried.handle, connection);
            self.note("tls: the control plane answers");
        }
    }

    /// The control plane ends its side: nothing follows.
    pub(crate) fn send_close_notify(&self, carried: &mut Carried<SimHandle>) {
        if let Some(connection) = &mut carried.tls {
            connection.send_close_notify();
            self.send_output(&carried.handle, connection);
        }
    }

    /// Sends what the socket takes of the output: up to any byte of a record, while faults are on.
    fn send_output(&self, handle: &SimHandle, connection: &mut Connection) {
        let mut count = connection.output().len();
        if let Some(tls) = self.tls.as_ref().filter(|tls| !tls.is_calm.get()) {
            let mut prng = tls.prng.borrow_mut();
            if count > 0 && prng.one_in(3) {
                count = prng.below(count);
                tls.note("tls: the control plane's socket takes a record in part");
            }
        }
        self.sim.handle_write(handle, &connection.output()[..count]);
        connection.note_sent(count);
    }

    /// The control plane goes on with what its socket did not take. True if nothing is left: the connection can be closed.
    pub(crate) fn send_rest(&self, carried: &mut Carried<SimHandle>) -> bool {
        let Some(connection) = &mut carried.tls else {
            return true;
        };
        self.send_output(&carried.handle, connection);
        connection.output().is_empty()
    }

    /// The same at once, whatever the socket takes.
    pub(crate) fn send_all(&self, carried: &mut Carried<SimHandle>) {
        if let Some(connection) = &mut carried.tls {
            self.sim.handle_write(&carried.handle, connection.output());
            connection.note_sent(connection.output().len());
        }
    }

    /// Notes where a connection is when it changes its owner.
    pub(crate) fn note_carried(
        &self,
        carried: &Carried<SimHandle>,
        whole: &'static str,
        middle: &'static str,
        unsent: &'static str,
    ) {
        if let Some(connection) = &carried.tls {
            self.note(if connection.input().is_empty() {
                whole
            } else {
                middle
            });
            if !connection.output().is_empty() {
                self.note(unsent);
            }
        }
    }

    pub(crate) fn note(&self, what: &'static str) {
        if let Some(tls) = &self.tls {
            tls.note(what);
        }
    }

    // As they are.

    pub(crate) fn open_handles(&self) -> usize {
        self.sim.open_handles()
    }

    pub(crate) fn open_sockets(&self) -> usize {
        self.sim.open_sockets()
    }

    pub(crate) fn leaked(&self) -> Vec<PeerId> {
        self.sim.leaked()
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.sim.fingerprint()
    }
}

impl Tls {
    fn note(&self, what: &'static str) {
        *self.reached.borrow_mut().entry(what).or_default() += 1;
    }

    /// Threads make signatures that wait. True if they made one.
    fn sign(&self) -> bool {
        let mut has_signed = false;
        while self.workers.waiting() > 0 && !self.is_busy.get() {
            if !self.is_calm.get() && self.prng.borrow_mut().one_in(2) {
                break;
            }
            self.note("tls: a thread signs");
            has_signed |= self.workers.make_step();
        }
        has_signed
    }

    fn new_client(&self) -> Client {
        Client::new(self.setup.key_records_max, &mut self.prng.borrow_mut())
    }

    fn draws_secured(&self) -> bool {
        !self.prng.borrow_mut().one_in(self.setup.plain)
    }

    /// Opens what has come. True if anything has.
    fn take(&self, sim: &SimNet, peer: PeerId, client: &mut Client) -> bool {
        let bytes = sim.read(peer);
        if bytes.is_empty() || client.is_gone {
            return false;
        }
        let has_opened = client.take(&bytes, &mut self.prng.borrow_mut(), &mut |what| {
            self.note(what)
        });
        if has_opened && client.is_stalled {
            sim.stall(peer);
        }
        true
    }

    /// Sends ciphertext, up to any byte of it, and then FIN if the client has ended its side. True if anything left.
    fn flush(&self, sim: &SimNet, peer: PeerId, client: &mut Client) -> bool {
        if client.is_gone {
            return false;
        }
        let mut prng = self.prng.borrow_mut();
        if client.wants_fin && client.is_open() && !client.has_ended_its_side {
            client.has_ended_its_side = true;
            if client.sends_close_notify_first {
                client.send_last_close_notify();
            }
        }
        let mut count = client.outgoing.len();
        if count > 0 && !self.is_calm.get() && prng.one_in(4) {
            count = prng.between(0, count);
            self.note("tls: a record leaves in part");
        }
        let bytes: Vec<u8> = client.outgoing.drain(..count).collect();
        if !bytes.is_empty() {
            sim.write(peer, &bytes);
        }
        let has_ended = client.has_ended_its_side && client.outgoing.is_empty();
        if client.wants_fin && has_ended {
            client.wants_fin = false;
            // A `close_notify` says as much.
            if client.has_sent_close_notify && prng.one_in(3) {
                self.note("tls: a client sends close_notify without FIN");
            } else {
                self.note(match client.has_sent_close_notify {
                    true => "tls: a client sends close_notify and FIN",
                    false => "tls: a client sends FIN without close_notify",
                });
                sim.fin(peer);
            }
            return true;
        }
        !bytes.is_empty()
    }

    /// The handshake of a connection that no shard has had.
    fn shake_hands(&self, client: &mut Client) -> Connection {
        let offer = offer();
        let mut connection = Connection::default();
        let mut prng = self.prng.borrow_mut();
        client.say(&[], &mut prng, &mut |what| self.note(what));
        loop {
            connection.add_input(&std::mem::take(&mut client.outgoing));
            while connection.has_step() {
                let step = connection
                    .step(&offer)
                    .expect("a handshake without a fault");
                if matches!(step, Step::Established { .. }) {
                    client.take(connection.output(), &mut prng, &mut |what| self.note(what));
                    connection.note_sent(connection.output().len());
                    return connection;
                }
            }
            client.take(connection.output(), &mut prng, &mut |what| self.note(what));
            connection.note_sent(connection.output().len());
        }
    }
}
