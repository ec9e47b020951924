//! The node, its network and its crowd, and what must hold after every turn.

use crate::control::{ControlPlane, Door};
use crate::ledger::{Ledger, Replies};
use crate::node::Node;
use crate::notices::Application;
use crate::peer::{Peer, Scene};
use crate::plan::Plan;
use crate::reach::{Reach, close_read, status_read};
use crate::secured::{self, Net};
use crate::trace::Trace;
use crate::verdict::ns;
use myriad_reactor::Waker;
use myriad_reactor::sim::{PeerEnd, Prng, Sim, SimNet};
use myriad_shard::{CLOSE_REASONS, ClientIds, Count, Epoch, Mesh, Metrics, Now, Shard, Turn};
use myriad_tls_stage::TlsStage;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// One shard and whether it has left its loop.
pub(crate) struct Seat {
    pub(crate) shard: Shard<TlsStage<Sim>>,
    pub(crate) is_finished: bool,
    /// When its wait ends if nothing comes.
    pub(crate) wakes_at: Option<u64>,
}

impl Seat {
    /// Begins to wait.
    fn sleep(&mut self, now: Now) {
        let timeout = self.shard.timeout(now);
        self.wakes_at = timeout.map(|timeout| now.0 + ns(timeout));
    }
}

/// What peers that have left saw.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) deliveries: u64,
    pub(crate) received_bytes: u64,
    pub(crate) upgrades: u64,
    pub(crate) pings: u64,
}

/// What was done and checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) seeds: u64,
    pub(crate) steps: u64,
    /// After each the shard is swept.
    pub(crate) turns: u64,
    /// Moments at which nothing may be missing.
    pub(crate) quiets: u64,
    pub(crate) clients: u64,
    pub(crate) publications: u64,
    /// Publications that clients have read, each in its place and whole.
    pub(crate) deliveries: u64,
    pub(crate) received_bytes: u64,
}

impl Work {
    pub(crate) fn add(&mut self, more: &Self) {
        self.seeds += more.seeds;
        self.steps += more.steps;
        self.turns += more.turns;
        self.quiets += more.quiets;
        self.clients += more.clients;
        self.publications += more.publications;
        self.deliveries += more.deliveries;
        self.received_bytes += more.received_bytes;
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} seeds, {} steps", self.seeds, self.steps)?;
        writeln!(
            f,
            "{} turns, all parts of a shard swept after each",
            self.turns
        )?;
        writeln!(f, "{} quiet moments with nothing missing", self.quiets)?;
        writeln!(
            f,
            "{} clients, {} publications",
            self.clients, self.publications
        )?;
        writeln!(
            f,
            "{} deliveries, each in its place and whole",
            self.deliveries
        )?;
        write!(f, "{} bytes read by clients", self.received_bytes)
    }
}

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) net: Net,
    pub(crate) mesh: Mesh,
    pub(crate) seats: Vec<Seat>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) connected: usize,
    pub(crate) ledger: Ledger,
    /// What the application knows by notices.
    pub(crate) application: Application,
    pub(crate) replies: u64,
    pub(crate) control: Rc<RefCell<ControlPlane>>,
    pub(crate) prng: Prng,
    pub(crate) trace: Trace,
    pub(crate) former_peers: Tally,
    pub(crate) work: Work,
    pub(crate) reach: Reach,
    /// Of a drain.
    has_all_heard: bool,
}

/// Ticks that channels may wait for congested members, one after the other.
const PAUSES_MAX: usize = 1000;

impl World {
    pub(crate) fn new(plan: Plan, mut prng: Prng, is_printed: bool) -> Self {
        // Hits of an earlier world of this thread, which may have failed, are not ours.
        myriad_shard::take_reached().for_each(drop);
        secured::set_clock(plan.start);
        let net = SimNet::new(prng.bits(), plan.faults);
        let net = Net::new(net, plan.secured, Prng::new(!plan.start).fork());
        let wakers = (0..plan.shards).map(|_| Waker::silent()).collect();
        let (replies, epoch) = (Replies::default(), Epoch::new(plan.start));
        let mesh = Mesh::new(
            wakers,
            plan.limits,
            epoch,
            ClientIds::new(7),
            Box::new(replies.clone()),
        );
        let control = ControlPlane::new(net.clone(), plan.shards, prng.fork());
        let control = Rc::new(RefCell::new(control));
        let seat = |index| {
            let shard = Shard::new(
                index,
                net.reactor(plan.sockets_max),
                mesh.clone(),
                plan.settings.clone(),
                Box::new(Door {
                    plane: Rc::clone(&control),
                    shard: index,
                }),
                (prng.bits() >> u32::BITS) as u32,
                Now(plan.start),
            );
            Seat {
                shard,
                is_finished: false,
                wakes_at: None,
            }
        };
        let seats = (0..plan.shards).map(seat).collect();
        let mut trace = Trace::new(is_printed);
        // Namespaces have no order that runs share.
        let mut shown = plan.clone();
        shown.settings.namespaces = Arc::default();
        trace.line(plan.start, format_args!("{shown:?}"));
        Self {
            scene: Scene {
                now: plan.start,
                is_draining: false,
                draining_since: plan.start,
                plan: Rc::new(plan),
            },
            net,
            mesh,
            seats,
            peers: Vec::new(),
            connected: 0,
            ledger: Ledger::new(replies, epoch, &mut prng),
            application: Application::default(),
            replies: 0,
            control,
            prng,
            trace,
            former_peers: Tally::default(),
            work: Work::default(),
            reach: Reach::new(),
            has_all_heard: false,
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.scene.now)
    }

    pub(crate) fn log(&mut self, line: std::fmt::Arguments<'_>) {
        self.trace.line(self.scene.now, line);
    }

    pub(crate) fn sum(&self, figure: impl Fn(&Metrics) -> &Count) -> u64 {
        self.mesh
            .metrics()
            .iter()
            .map(|metrics| figure(metrics).value())
            .sum()
    }

    pub(crate) fn closes(&self) -> u64 {
        (0..CLOSE_REASONS.len())
            .map(|reason| self.sum(|metrics| &metrics.closes[reason]))
            .sum()
    }

    /// Connections that came to shards: accepted, or handed back.
    pub(crate) fn came(&self) -> u64 {
        self.sum(|metrics| &metrics.accepts) + self.sum(|metrics| &metrics.handed_back)
    }

    /// Connections that count against the limit.
    fn counted_connections(&self) -> usize {
        let counted = |seat: &Seat| seat.shard.connection_count() - seat.shard.holdings().surplus;
        self.seats.iter().map(counted).sum()
    }

    /// Whether messages are under way between shards, or to them.
    pub(crate) fn has_messages(&self) -> bool {
        let has_put_off = |seat: &Seat| seat.shard.has_put_off();
        self.seats.iter().any(has_put_off)
            || (0..self.seats.len()).any(|shard| self.mesh.has_messages(shard))
    }

    /// Whether the node drains, and nobody is left to hear a publication.
    pub(crate) fn is_unheard(&self) -> bool {
        let mut seats = self.seats.iter();
        self.scene.is_draining && seats.all(|seat| seat.shard.holdings().subscriptions == 0)
    }

    /// Whether every shard knows that it drains: the inbox of each was empty at some time since.
    pub(crate) fn is_drain_known(&mut self) -> bool {
        self.has_all_heard |= self.scene.is_draining && !self.has_messages();
        self.has_all_heard
    }

    /// When the first of the shards' waits ends if nothing comes.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let seats = self.seats.iter().filter(|seat| !seat.is_finished);
        seats.filter_map(|seat| seat.wakes_at).min()
    }

    // Turns.

    /// Lets each shard turn, one after the other. True if any would be awake.
    pub(crate) fn turn_all(&mut self) -> bool {
        let mut is_awake = false;
        for index in 0..self.seats.len() {
            is_awake |= self.turn(index);
        }
        is_awake
    }

    /// Lets a shard turn if it would be awake: something came, or is left to do, or is due. True when it was.
    ///
    /// A shard that sleeps although it should not is a bug that would stay hidden if it were turned all the same.
    pub(crate) fn turn(&mut self, index: usize) -> bool {
        if self.seats[index].is_finished {
            return false;
        }
        let now = self.now();
        let before = self.net.fingerprint();
        secured::set_clock(now.0);
        let shard = &mut self.seats[index].shard;
        shard.wait(now).expect("the simulated reactor always works");
        let is_awake = self.net.fingerprint() != before
            || shard.has_completions()
            || shard.timeout(now) == Some(Duration::ZERO)
            || self.seats[index].wakes_at.is_some_and(|at| at <= now.0);
        if is_awake {
            self.turn_now(index);
        }
        is_awake
    }

    pub(crate) fn turn_now(&mut self, index: usize) {
        let now = self.now();
        secured::set_clock(now.0);
        let counted = self.counted_connections();
        let surplus = self.seats[index].shard.holdings().surplus;
        let accepts = self.came();
        let turn = self.seats[index].shard.turn(now);
        self.work.turns += 1;
        self.seats[index].is_finished = turn == Turn::Finished;
        if turn == Turn::Finished {
            self.control.borrow_mut().end_shard(index);
        }
        self.seats[index].sleep(now);
        self.log(format_args!("shard {index}: {turn:?}"));
        self.replies += self.ledger.take_replies() as u64;
        self.check_turn(index);
        self.application.read(&self.mesh, index);
        self.note_limits(index);
        let accepted = self.came() - accepts;
        let is_more = self.seats[index].shard.holdings().surplus > surplus;
        if is_more && !self.scene.plan.limits_strangers {
            assert!(
                counted as u64 + accepted > self.scene.plan.limits.connections_max,
                "full with {counted} connections"
            );
        }
        self.exchange(false);
    }

    fn check_turn(&self, index: usize) {
        let shard = &self.seats[index].shard;
        shard.check();
        let limits = self.scene.plan.limits;
        assert!(self.sum(|metrics| &metrics.buffered_bytes) <= limits.buffered_bytes_max);
        assert!(self.mesh.publication_bytes() <= limits.publication_bytes_max);
        assert!(self.counted_connections() as u64 <= limits.connections_max);
        let open = self.came().checked_sub(self.closes());
        let open = open.expect("each connection is closed once");
        assert!(open <= self.sum(|metrics| &metrics.connections));
    }

    fn note_limits(&mut self, index: usize) {
        let plan = &self.scene.plan;
        let held = self.seats[index].shard.connection_count();
        if held == plan.sockets_max {
            self.reach.note("node: a table is full");
        }
        if self.counted_connections() as u64 == plan.limits.connections_max {
            self.reach.note("node: the limit of connections is reached");
        }
    }

    fn attend_control(&mut self) -> bool {
        let peers = &self.peers;
        let request_of = |id| {
            let peer = peers.iter().find(|peer| peer.id == id && !peer.is_gone())?;
            Some(peer.request.clone())
        };
        let mut control = self.control.borrow_mut();
        let is_handing_back = control.hand_back(&self.mesh);
        control.attend(&self.net, request_of) || is_handing_back
    }

    /// Peers read, and write if `writes`. True when anything came or went.
    pub(crate) fn exchange_with_peers(&mut self, writes: bool) -> bool {
        let mut is_moving = false;
        for peer in &mut self.peers {
            if peer.is_broken {
                continue;
            }
            let was = (peer.status, peer.close_received, peer.end);
            is_moving |= peer.receive(&self.net, &self.scene, &self.ledger, &mut self.prng);
            if writes && !peer.manners.is_slow_writer {
                is_moving |= peer.write_all(&self.net, self.scene.now);
            }
            let is = (peer.status, peer.close_received, peer.end);
            note_change(&mut self.reach, was, is);
            if is != was {
                let number = peer.number;
                self.trace
                    .line(self.scene.now, format_args!("peer {number}: {is:?}"));
            }
        }
        self.remove_former_peers();
        is_moving
    }

    /// Removes peers that have left, and keeps their totals.
    fn remove_former_peers(&mut self) {
        let (former_peers, ledger) = (&mut self.former_peers, &self.ledger);
        self.peers.retain(|peer| {
            if peer.is_gone() {
                peer.check_tiny(false, ledger);
                former_peers.deliveries += peer.deliveries;
                former_peers.received_bytes += peer.decoder.total();
                former_peers.upgrades += u64::from(peer.status == Some(101));
                former_peers.pings += peer.pings;
            }
            !peer.is_gone()
        });
    }

    // Quiet.

    /// What the stages below the shards keep is counted, to the byte.
    fn check_buffers(&mut self) {
        for seat in self.seats.iter().filter(|seat| !seat.is_finished) {
            let counted = seat.shard.holdings().buffered_below;
            assert_eq!(counted, seat.shard.reactor().buffered_bytes());
            if counted > 0 {
                self.reach.note("tls: a budget counts the part of a record");
            }
        }
    }

    /// As [`Node::settle`], also for channels that wait for their members; then nothing may be missing.
    pub(crate) fn check_quiet(&mut self) {
        self.settle();
        let is_finished = self.seats.iter().any(|seat| seat.is_finished);
        if !is_finished {
            let mut pauses = 0;
            while self.mesh.publication_bytes() > 0 && pauses < PAUSES_MAX {
                self.walk(Duration::from_millis(50));
                pauses += 1;
            }
            assert_eq!(
                self.mesh.publication_bytes(),
                0,
                "all is delivered, whoever is stalled"
            );
        }
        self.check_buffers();
        self.ledger.note_known();
        let is_accepted = self.net.backlog() == 0;
        for peer in &self.peers {
            peer.check_quiet(&self.scene.plan, is_accepted, &self.ledger);
        }
        self.work.quiets += 1;
        self.log(format_args!("quiet"));
    }
}

impl Node for World {
    /// Peers take large payloads in small pieces.
    const ROUNDS_MAX: usize = 200_000;

    fn world(&mut self) -> &mut World {
        self
    }

    fn exchange(&mut self, writes: bool) -> bool {
        let is_moving = self.attend_control() | self.net.attend();
        self.exchange_with_peers(writes) || is_moving
    }

    fn advance(&mut self, duration: Duration) {
        self.scene.now += ns(duration);
        self.log(format_args!("later by {duration:?}"));
    }
}

/// What a peer knows of its connection's end: status, close code and how the bytes ended.
type Known = (Option<u16>, Option<Option<u16>>, Option<PeerEnd>);

fn note_change(reach: &mut Reach, was: Known, is: Known) {
    if let (None, Some(status)) = (was.0, is.0) {
        reach.note(status_read(status));
    }
    if let (None, Some(code)) = (was.1, is.1) {
        reach.note(close_read(code.unwrap_or(0)));
    }
    match (was.2, is.2) {
        (None, Some(PeerEnd::Fin)) => reach.note("a client reads FIN"),
        (None, Some(PeerEnd::Reset)) => reach.note("a client reads RST"),
        _ => {}
    }
}
