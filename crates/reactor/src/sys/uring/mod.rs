//! The io_uring driver.
//!
//! A thread owns as many rings as its connections need. Each ring has a table of direct descriptors, and RLIMIT_NOFILE
//! bounds each table, not their sum. A ring is made when the others are full. All rings signal the waker's eventfd,
//! and a wait sleeps on this eventfd alone.
//!
//! Multishot polls watch the sockets: 250 bytes of kernel memory a connection, where a multishot receive takes 350 to
//! 850. Readable sockets are received from in batches, and sends are made in batches too. No send or receive is
//! outstanding when a call returns, so the kernel never holds a borrowed buffer.
//!
//! The driver chooses slots, not the kernel, and never accepts more connections than there are free slots. With slots
//! chosen by the kernel, a full table would end a multishot accept with ENFILE and drop that client without an answer.

mod accept;
mod adopt;
mod close;
mod connect;
mod operations;
mod peers;
pub(super) mod probe;
mod queues;
mod receive;
mod ring;
mod send;
mod state;

use self::accept::Acceptor;
use self::connect::Outgoing;
use self::queues::QueueSizes;
use self::ring::Ring;
use self::send::Headers;
use self::state::State;
use super::slots::SlotFlag;
use super::{Setup, WAKE, Waker, descriptor_limit, table};
use crate::{Close, Completion, Completions, NotAdopted, Reactor, SendOp, Socket, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Maximum number of completions taken from one ring in one wait, so that a busy ring does not starve the others.
const COMPLETIONS_PER_RING_MAX: usize = 2048;
/// With more readable sockets than this, further completions stay in the kernel, where they cost nothing.
const READABLE_MAX: usize = 4096;
/// Ordinary descriptors kept free for other uses of the process.
const DESCRIPTORS_RESERVED: usize = 32;
/// Pause after the kernel refused submissions because it has no memory.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// The io_uring driver.
pub struct Uring {
    rings: Vec<Ring>,
    state: State,
    acceptor: Acceptor,
    outgoing: Outgoing,
    /// Message headers of gathered sends. The kernel reads them during a batch.
    headers: Headers,
    /// Tables with entries of the running batch.
    batch_tables: Vec<usize>,
    piece_size: receive::PieceSize,
    /// Requested since the last wait; see [`Uring::flush_shutdowns`].
    shutdowns: Vec<close::PendingShutdown>,
    waker: Waker,
    sockets_max: usize,
    /// Number of slots in a full-size table.
    table_size: usize,
    queue_sizes: QueueSizes,
    /// The table for new sockets.
    fill_table: usize,
    /// The first ring to look at in the next wait.
    next_ring: usize,
}

/// The outcome of looking at every ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PumpOutcome {
    /// No ring has pending completions.
    Idle,
    /// A bound was reached, and more completions are pending.
    MorePending,
    /// The kernel refuses submissions for now.
    Refused,
}

impl Uring {
    /// Makes the reactor. Call it on the thread that will use it.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn new(setup: Setup) -> io::Result<Self> {
        Self::with_queues(setup, None)
    }

    /// The same with other queue sizes, for tests that must make queues overflow. Both are powers of two, and
    /// `completions` is at least `submissions`.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn with_queue_sizes(setup: Setup, submissions: u32, completions: u32) -> io::Result<Self> {
        let sizes = QueueSizes {
            submissions,
            completions,
        };
        Self::with_queues(setup, Some(sizes))
    }

    fn with_queues(setup: Setup, queue_sizes: Option<QueueSizes>) -> io::Result<Self> {
        let limit = descriptor_limit()?;
        let table_size = limit.min(Socket::SLOTS_MAX);
        // Each ring takes an ordinary descriptor.
        let rings_max = limit
            .saturating_sub(table::open_descriptors()? + DESCRIPTORS_RESERVED)
            .clamp(1, Socket::TABLES_MAX);
        let sockets_max = setup
            .sockets_max
            .clamp(1, rings_max.saturating_mul(table_size));
        let rings_wanted = sockets_max.div_ceil(table_size) * setup.reactors.max(1);
        let mut uring = Self {
            rings: Vec::new(),
            state: State::with_listeners(setup.listeners.len()),
            acceptor: Acceptor::new(setup.listeners),
            outgoing: Outgoing::new(setup.speaks_first),
            headers: Headers::default(),
            batch_tables: Vec::new(),
            piece_size: receive::PieceSize::default(),
            shutdowns: Vec::new(),
            waker: setup.waker,
            sockets_max,
            table_size,
            queue_sizes: queue_sizes.unwrap_or_else(|| QueueSizes::affordable(rings_wanted)),
            fill_table: 0,
            next_ring: 0,
        };
        uring.add_ring()?;
        Ok(uring)
    }

    /// Makes one more ring, unless the existing ones suffice for `sockets_max`.
    fn add_ring(&mut self) -> io::Result<()> {
        let held = self.rings.len() * self.table_size;
        let wanted = self.sockets_max.saturating_sub(held).min(self.table_size);
        if wanted == 0 {
            return Err(Errno::MFILE.into());
        }
        let size = u32::try_from(wanted).expect("a table has at most 2^20 slots");
        let ring = self.make_ring(size)?;
        self.rings.push(ring);
        Ok(())
    }

    /// Makes a ring, with shorter queues if there is no memory for long ones: other processes of the same user may have
    /// locked it.
    fn make_ring(&mut self, size: u32) -> io::Result<Ring> {
        loop {
            let eventfd = self.waker.fd()?;
            match Ring::new(self.rings.len(), size, eventfd, self.queue_sizes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                    self.queue_sizes = self.queue_sizes.smaller().ok_or(error)?;
                }
                made => return made,
            }
        }
    }

    /// The table for the next socket. Tables are filled one after the other, so none is made before it is needed.
    fn table_with_room(&mut self) -> io::Result<usize> {
        if self.rings[self.fill_table].free_count() > 0 {
            return Ok(self.fill_table);
        }
        self.fill_table = self.next_table_with_room()?;
        Ok(self.fill_table)
    }

    fn next_table_with_room(&mut self) -> io::Result<usize> {
        if let Some(table) = self.rings.iter().position(|ring| ring.free_count() > 0) {
            return Ok(table);
        }
        self.add_ring()?;
        Ok(self.rings.len() - 1)
    }

    fn has_room(&self) -> bool {
        self.rings.len() * self.table_size < self.sockets_max
            || self.rings.iter().any(|ring| ring.free_count() > 0)
    }

    /// The ring of an open socket. None if the socket was closed.
    fn ring_of(&mut self, socket: Socket) -> Option<&mut Ring> {
        self.rings
            .get_mut(socket.table())
            .filter(|ring| ring.slots.has(socket.slot(), SlotFlag::Open))
    }

    /// Submits to every ring and takes its completions, up to a bound.
    fn pump_all(&mut self) -> io::Result<PumpOutcome> {
        let mut result = PumpOutcome::Idle;
        let count = self.rings.len();
        for offset in 0..count {
            let table = (self.next_ring + offset) % count;
            if self.state.readable.len() >= READABLE_MAX {
                return Ok(PumpOutcome::MorePending);
            }
            match self.pump_one(table)? {
                PumpOutcome::Idle => {}
                other => result = other,
            }
        }
        self.next_ring = self.next_ring.wrapping_add(1);
        self.apply_effects();
        Ok(result)
    }

    fn pump_one(&mut self, table: usize) -> io::Result<PumpOutcome> {
        let ring = &mut self.rings[table];
        let mut count = ring.reap(&mut self.state);
        let mut pumps_without_completion = 0;
        while ring.needs_enter() {
            if count >= COMPLETIONS_PER_RING_MAX {
                return Ok(PumpOutcome::MorePending);
            }
            let reaped = ring.pump(&mut self.state)?;
            count += reaped;
            pumps_without_completion = if reaped == 0 {
                pumps_without_completion + 1
            } else {
                0
            };
            if pumps_without_completion > 16 {
                return Ok(PumpOutcome::Refused);
            }
        }
        Ok(PumpOutcome::Idle)
    }

    /// Applies the effects that completions have recorded in the state.
    fn apply_effects(&mut self) {
        while let Some(socket) = self.state.unfilled.pop() {
            self.rings[socket.table()].unreserve(socket.slot());
        }
        while let Some(failed) = self.state.failed_connects.pop() {
            self.rings[failed.socket.table()].cancel_and_close(failed.socket.slot(), failed.token);
        }
        while let Some(socket) = self.state.vacated.pop() {
            self.rings[socket.table()].vacate(socket.slot());
        }
        while let Some(lost) = self.state.unwatched.pop() {
            let ring = &mut self.rings[lost.socket.table()];
            let slot = lost.socket.slot();
            let is_wanted =
                ring.slots.has(slot, SlotFlag::Receiving) || ring.slots.has(slot, SlotFlag::Paused);
            if is_wanted && !ring.slots.has(lost.socket.slot(), SlotFlag::Watched) {
                ring.watch(lost.socket.slot(), lost.token);
            }
        }
    }

    /// Sleeps until a ring or a waker signals the eventfd, or until the timeout.
    fn sleep(&self, timeout: Option<Duration>) -> io::Result<()> {
        let fd = self.waker.fd()?;
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            timeout.as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Maximum time to sleep. Zero if there is something to report or to do, none for no limit.
    fn wait_timeout(&self, pumped: PumpOutcome, timeout: Option<Duration>) -> Option<Duration> {
        let busy = pumped == PumpOutcome::MorePending
            || !self.state.ready.is_empty()
            || !self.state.readable.is_empty()
            || self.acceptor.has_work(&self.state);
        if busy {
            return Some(Duration::ZERO);
        }
        let retry = self
            .acceptor
            .retry_at()
            .map(|at| at.saturating_duration_since(Instant::now()));
        let refused = (pumped == PumpOutcome::Refused).then_some(REFUSED_PAUSE);
        [timeout, retry, refused].into_iter().flatten().min()
    }

    /// Makes the slots of closed sockets usable again.
    fn reuse_vacated(&mut self) {
        let count: usize = self.rings.iter_mut().map(Ring::reuse_vacated).sum();
        if count > 0 {
            self.acceptor.slot_freed();
        }
    }
}

impl Reactor for Uring {
    /// Non-blocking and close-on-exec.
    type Handle = OwnedFd;

    fn accept(&mut self, accepting: bool) {
        self.acceptor.set_wanted(accepting);
    }

    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        self.start_connect(token, source, target)
    }

    fn register(&mut self, socket: Socket, token: Token) {
        let slot = socket.slot();
        if let Some(ring) = self.ring_of(socket)
            && !ring.slots.has(slot, SlotFlag::Watched)
        {
            ring.slots.set(slot, SlotFlag::Receiving);
            ring.watch(slot, token);
        }
    }

    fn pause(&mut self, socket: Socket, _token: Token) {
        if let Some(ring) = self.ring_of(socket) {
            ring.slots.pause(socket.slot());
        }
    }

    fn resume(&mut self, socket: Socket, token: Token) {
        let Some(ring) = self.rings.get_mut(socket.table()) else {
            return;
        };
        // Polls for what came meanwhile have fired.
        if ring.slots.resume(socket.slot()) {
            let readable = &mut self.state.readable;
            readable.push(&mut ring.slots, socket, token);
        }
    }

    fn deafen(&mut self, socket: Socket) {
        if let Some(ring) = self.ring_of(socket) {
            ring.deafen(socket.slot());
        }
    }

    fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
        self.send_ops(ops);
    }

    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>) {
        self.read_peer_addresses(sockets, addresses);
    }

    fn notify_writable(&mut self, socket: Socket, token: Token) {
        let slot = socket.slot();
        if let Some(ring) = self.ring_of(socket)
            && !ring.slots.has(slot, SlotFlag::WantsWritable)
        {
            ring.slots.set(slot, SlotFlag::WantsWritable);
            ring.watch_writable(slot, token);
        }
    }

    fn shutdown(&mut self, socket: Socket) {
        self.queue_shutdown(socket);
    }

    fn close(&mut self, socket: Socket, token: Token, how: Close) {
        self.close_socket(socket, token, how);
    }

    fn transfer(&mut self, socket: Socket, token: Token) -> io::Result<OwnedFd> {
        self.transfer_socket(socket, token)
    }

    fn adopt(&mut self, handle: OwnedFd) -> Result<Socket, NotAdopted<OwnedFd>> {
        match self.adopt_descriptor(&handle) {
            Ok(socket) => Ok(socket),
            Err(error) => Err(NotAdopted { handle, error }),
        }
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()> {
        completions.list.clear();
        completions.buffer.resize(Completions::BUFFER_BYTES, 0);
        self.flush_shutdowns();
        self.update_listening();
        // Accepts of connections that are known to wait share the kernel entry with everything else that is queued.
        let accepting = self.queue_accepts().is_some();
        let mut pumped = self.pump_all()?;
        self.outgoing.reclaim(&mut self.rings);

        let wait_timeout = self.wait_timeout(pumped, timeout);
        let sleeps = wait_timeout != Some(Duration::ZERO);
        if sleeps {
            self.sleep(wait_timeout)?;
        }
        // Reset the counter before looking at the rings: a later signal ends the next sleep.
        if self.waker.take() >= WAKE {
            self.state.ready.push(Completion::Woken);
        }
        if sleeps {
            pumped = self.pump_all()?;
        }
        if !accepting {
            self.accept_some();
        }
        self.finish_accepts();
        completions.input_pending = self.receive_some(completions) || pumped != PumpOutcome::Idle;
        self.apply_effects();
        self.reuse_vacated();
        completions.list.append(&mut self.state.ready);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.sockets_max
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Uring")
            .field("rings", &self.rings.len())
            .field("sockets_max", &self.sockets_max)
            .field("table_size", &self.table_size)
            .finish_non_exhaustive()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // The kernel tears rings down in the background. Until then an armed poll would keep the listener's port in
        // use.
        self.acceptor.set_wanted(false);
        self.update_listening();
        let _ = self.pump_all();
    }
}
