//! The epoll driver. It turns readiness into completions.
//!
//! Sockets are watched edge-triggered, the listener level-triggered. The slot of a socket is its descriptor's number,
//! in table 0.

use super::accept_throttle::{AcceptThrottle, is_shortage};
use super::outgoing::{self, ConnectStart};
use super::readable::ReadableQueue;
use super::slots::{SlotFlag, SlotTable};
use super::tag::{EventKind, Tag};
use super::{Setup, Waker, backlog, deaf, descriptor_limit, table};
use crate::{
    Close, Completion, Completions, NotAdopted, Parts, Reactor, SendOp, Sent, Socket, Token,
};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Events taken from the kernel in one wait.
const EVENTS_MAX: usize = 1024;
/// Maximum number of accepts in one wait, so that a burst of new connections does not delay the open ones.
const ACCEPTS_MAX: u32 = 256;
/// Descriptors kept free for other uses: files, name lookups, control connections.
const DESCRIPTORS_RESERVED: usize = 32;

/// The epoll driver.
pub struct Epoll {
    epoll: OwnedFd,
    waker: Waker,
    listeners: Vec<Listener>,
    throttle: AcceptThrottle,
    slots: SlotTable,
    readable: ReadableQueue,
    /// Completions that calls between two waits have produced.
    ready: Vec<Completion>,
    /// Closed at the next wait: until then the kernel does not reuse the number for another connection.
    pending_closes: Vec<OwnedFd>,
    events: Vec<epoll::Event>,
    open_count: usize,
    capacity: usize,
    speaks_first: bool,
}

struct Listener {
    socket: TcpListener,
    /// Whether it is in the epoll set.
    is_watched: bool,
}

impl Epoll {
    /// Makes the reactor. Call it on the thread that will use it.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn new(setup: Setup) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = epoll::EventData::new_u64(Tag::plain(EventKind::Wake, 0).to_bits());
        epoll::add(&epoll, setup.waker.fd()?, wake, epoll::EventFlags::IN)?;
        for listener in &setup.listeners {
            listener.set_nonblocking(true)?;
        }
        let listeners = setup.listeners.into_iter().map(|socket| Listener {
            socket,
            is_watched: false,
        });
        let available =
            descriptor_limit()?.saturating_sub(table::open_descriptors()? + DESCRIPTORS_RESERVED);
        Ok(Self {
            epoll,
            waker: setup.waker,
            listeners: listeners.collect(),
            throttle: AcceptThrottle::new(),
            slots: SlotTable::default(),
            readable: ReadableQueue::default(),
            ready: Vec::new(),
            pending_closes: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            open_count: 0,
            capacity: setup.sockets_max.min(available).min(Socket::SLOTS_MAX),
            speaks_first: setup.speaks_first,
        })
    }

    /// Adds a descriptor to the slots.
    ///
    /// # Errors
    /// A descriptor above a million has no slot.
    fn insert(&mut self, fd: OwnedFd) -> Result<Socket, NotAdopted<OwnedFd>> {
        let Some(slot) = u32::try_from(fd.as_raw_fd())
            .ok()
            .filter(|&slot| (slot as usize) < Socket::SLOTS_MAX)
        else {
            return Err(NotAdopted {
                handle: fd,
                error: Errno::MFILE.into(),
            });
        };
        let _ = fd.into_raw_fd();
        self.slots.open(slot);
        self.open_count += 1;
        Ok(Socket::new(0, slot))
    }

    /// Removes a descriptor from the slots.
    fn remove(&mut self, slot: u32) -> Option<OwnedFd> {
        if !self.slots.close(slot) {
            return None;
        }
        self.open_count -= 1;
        self.throttle.slot_freed();
        // SAFETY: the slot was open, so the descriptor is ours, and the slot was just closed, so nobody else takes it.
        Some(unsafe { OwnedFd::from_raw_fd(raw(slot)) })
    }

    fn watch(&mut self, slot: u32, kind: EventKind, token: Token) -> Result<(), Errno> {
        let mut interest = epoll::EventFlags::ET | epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        if self.slots.has(slot, SlotFlag::WantsWritable) || kind == EventKind::Connect {
            interest |= epoll::EventFlags::OUT;
        }
        let data = epoll::EventData::new_u64(Tag::new(kind, slot, token).to_bits());
        if self.slots.has(slot, SlotFlag::Watched) {
            epoll::modify(&self.epoll, borrow(slot), data, interest)
        } else {
            epoll::add(&self.epoll, borrow(slot), data, interest)?;
            self.slots.set(slot, SlotFlag::Watched);
            Ok(())
        }
    }

    /// Reports that the connection broke, or that the kernel has no memory to watch it.
    fn report_failure(&mut self, slot: u32, token: Token, errno: Errno) {
        if self.slots.take(slot, SlotFlag::Receiving) {
            self.ready.push(Completion::Failed {
                token,
                errno: errno.raw_os_error(),
            });
        }
    }

    /// Adds the listeners to the epoll set or removes them, as the throttle decides.
    fn update_listening(&mut self) -> io::Result<()> {
        if self.listeners.is_empty() {
            return Ok(());
        }
        if self.throttle.may_accept() && self.open_count >= self.capacity {
            self.ready.extend(self.throttle.pause_full());
        }
        let wanted = self.throttle.may_accept();
        for (number, listener) in (0..).zip(&mut self.listeners) {
            if wanted && !listener.is_watched {
                let tag = Tag::plain(EventKind::Listener, number);
                let data = epoll::EventData::new_u64(tag.to_bits());
                match epoll::add(&self.epoll, &listener.socket, data, epoll::EventFlags::IN) {
                    Ok(()) => listener.is_watched = true,
                    Err(errno) => self
                        .ready
                        .extend(self.throttle.pause(errno.raw_os_error(), Instant::now())),
                }
            } else if !wanted && listener.is_watched {
                epoll::delete(&self.epoll, &listener.socket)?;
                listener.is_watched = false;
            }
        }
        Ok(())
    }

    fn accept_some(&mut self, number: u32, list: &mut Vec<Completion>) {
        let listener = self.listeners.get(number as usize);
        let waiting = listener
            .map(|listener| backlog::pending_connections(&listener.socket).unwrap_or(ACCEPTS_MAX));
        let (Some(waiting), Ok(number)) = (waiting, u8::try_from(number)) else {
            return;
        };
        for _ in 0..waiting.min(ACCEPTS_MAX) {
            if !self.throttle.may_accept() {
                return;
            }
            if self.open_count >= self.capacity {
                list.extend(self.throttle.pause_full());
                return;
            }
            let listener = &self.listeners[usize::from(number)].socket;
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    self.throttle.accepted();
                    // Without a slot the connection is dropped here.
                    if let Ok(socket) = self.insert(fd) {
                        list.push(Completion::Accepted {
                            socket,
                            listener: number,
                        });
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(errno) if is_shortage(errno.raw_os_error()) => {
                    list.extend(self.throttle.pause(errno.raw_os_error(), Instant::now()));
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Maximum time to sleep.
    fn wait_timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.ready.is_empty() || !self.readable.is_empty() {
            return Some(Duration::ZERO);
        }
        let retry = self
            .throttle
            .retry_at()
            .map(|at| at.saturating_duration_since(Instant::now()));
        [timeout, retry].into_iter().flatten().min()
    }

    /// Sleeps until something happens. A wait that a signal ends says nothing about the sockets: the process may have been stopped for
    /// long, and input has come meanwhile. So it is followed by one that does not sleep.
    fn wait_for_events(
        &self,
        events: &mut Vec<epoll::Event>,
        timeout: Option<Timespec>,
    ) -> io::Result<()> {
        for timeout in [timeout, Some(timespec(Duration::ZERO))] {
            let room = rustix::buffer::spare_capacity(events);
            match epoll::wait(&self.epoll, room, timeout.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn handle_event(&mut self, event: epoll::Event, list: &mut Vec<Completion>) {
        let tag = Tag::from_bits(event.data.u64());
        let flags = event.flags;
        match tag.kind() {
            EventKind::Wake => {
                if self.waker.take() > 0 {
                    list.push(Completion::Woken);
                }
            }
            EventKind::Listener => self.accept_some(tag.index(), list),
            EventKind::Connect => self.finish_connect(tag, list),
            _ => self.handle_socket(tag, flags, list),
        }
    }

    fn handle_socket(&mut self, tag: Tag, flags: epoll::EventFlags, list: &mut Vec<Completion>) {
        let (slot, token) = (tag.slot(), tag.token());
        let ended = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if flags.intersects(ended) {
            self.slots.resume(slot);
            if self.slots.has(slot, SlotFlag::Receiving) {
                self.slots.set(slot, SlotFlag::Ended);
            }
        }
        if flags.intersects(ended | epoll::EventFlags::IN) {
            self.readable
                .push(&mut self.slots, Socket::new(0, slot), token);
        }
        if flags
            .intersects(epoll::EventFlags::OUT | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
            && self.slots.take(slot, SlotFlag::WantsWritable)
        {
            list.push(Completion::Writable { token });
            // Stop watching for writability: each edge costs a wake-up, and few sockets are ever backpressured.
            if let Err(errno) = self.watch(slot, EventKind::Readable, token) {
                self.report_failure(slot, token, errno);
            }
        }
    }

    fn finish_connect(&mut self, tag: Tag, list: &mut Vec<Completion>) {
        let (slot, token) = (tag.slot(), tag.token());
        if !self.slots.take(slot, SlotFlag::Connecting) {
            return;
        }
        let outcome = sockopt::socket_error(borrow(slot)).and_then(|outcome| outcome);
        match outcome {
            Ok(()) => list.push(Completion::Connected { token }),
            Err(errno) => {
                drop(self.remove(slot));
                list.push(Completion::ConnectFailed {
                    token,
                    errno: errno.raw_os_error(),
                });
            }
        }
    }

    /// Receives from readable sockets, oldest first, while the buffer has room for a whole piece. True if some sockets
    /// were not read.
    fn receive(&mut self, completions: &mut Completions) -> bool {
        let mut filled = 0;
        // A socket that is queued again during this pass is read in the next wait.
        for nth in 0..self.readable.len() {
            if nth >= completions.receives_max {
                return true;
            }
            let end = filled + Completions::RECEIVE_BYTES_MAX;
            if end > completions.buffer.len() {
                return true;
            }
            let Some(readable) = self.readable.pop() else {
                return false;
            };
            if !readable.claim(&mut self.slots) {
                continue;
            }
            let (slot, token) = (readable.socket.slot(), readable.token);
            match rustix::net::recv(
                borrow(slot),
                &mut completions.buffer[filled..end],
                RecvFlags::DONTWAIT,
            ) {
                Ok((0, _)) => {
                    self.slots.take(slot, SlotFlag::Receiving);
                    completions.list.push(Completion::Finished { token });
                }
                Ok((count, _)) => {
                    completions.list.push(Completion::Received {
                        token,
                        range: filled..filled + count,
                    });
                    filled += count;
                    // A short count means that the socket is drained, and later input is a new edge. After the
                    // peer's end there is no further edge, so read on until the end itself.
                    if filled == end || self.slots.has(slot, SlotFlag::Ended) {
                        self.readable.push(&mut self.slots, readable.socket, token);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => self.report_failure(slot, token, errno),
            }
        }
        false
    }
}

impl Reactor for Epoll {
    /// Non-blocking and close-on-exec.
    type Handle = OwnedFd;

    fn accept(&mut self, accepting: bool) {
        self.throttle.set_wanted(accepting);
    }

    fn connect(
        &mut self,
        token: Token,
        source: Option<SocketAddr>,
        target: SocketAddr,
    ) -> io::Result<Socket> {
        if self.open_count >= self.capacity {
            return Err(Errno::MFILE.into());
        }
        outgoing::check_families(source, target)?;
        let fd = outgoing::open(source, target, self.speaks_first)?;
        let socket = self.insert(fd).map_err(|refused| refused.error)?;
        let slot = socket.slot();
        let started = outgoing::connect(borrow(slot), target).and_then(|started| {
            if matches!(started, ConnectStart::InProgress) {
                self.slots.set(slot, SlotFlag::Connecting);
                self.watch(slot, EventKind::Connect, token)?;
            }
            Ok(started)
        });
        match started {
            Ok(ConnectStart::Connected) => self.ready.push(Completion::Connected { token }),
            Ok(ConnectStart::InProgress) => {}
            Err(errno) => {
                self.close(socket, token, Close::Orderly);
                self.ready.push(Completion::ConnectFailed {
                    token,
                    errno: errno.raw_os_error(),
                });
            }
        }
        Ok(socket)
    }

    fn register(&mut self, socket: Socket, token: Token) {
        let slot = socket.slot();
        if !self.slots.has(slot, SlotFlag::Open) {
            return;
        }
        self.slots.set(slot, SlotFlag::Receiving);
        if let Err(errno) = self.watch(slot, EventKind::Readable, token) {
            self.report_failure(slot, token, errno);
        }
    }

    fn pause(&mut self, socket: Socket, _token: Token) {
        self.slots.pause(socket.slot());
    }

    fn resume(&mut self, socket: Socket, token: Token) {
        // The edges of what came meanwhile have passed.
        if self.slots.resume(socket.slot()) {
            self.readable.push(&mut self.slots, socket, token);
        }
    }

    fn deafen(&mut self, socket: Socket) {
        let slot = socket.slot();
        if self.slots.has(slot, SlotFlag::Open) {
            deaf::attach(borrow(slot));
        }
    }

    fn send_batch(&mut self, ops: &mut [SendOp<'_>]) {
        for op in ops {
            let fd = borrow(op.socket.slot());
            let (result, length) = match op.parts {
                Parts::One(bytes) => (send(fd, bytes), bytes.len()),
                Parts::Many(slices) => {
                    let length = slices.iter().map(|slice| slice.len()).sum();
                    let result = rustix::net::sendmsg(
                        fd,
                        slices,
                        &mut SendAncillaryBuffer::default(),
                        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                    );
                    (result, length)
                }
            };
            op.sent = match result {
                Ok(count) if count == length => Sent::All,
                Ok(count) => Sent::Partly(count),
                Err(errno) if is_transient(errno) => Sent::Partly(0),
                Err(errno) => Sent::Failed(errno.raw_os_error()),
            };
        }
    }

    fn peer_addresses(&mut self, sockets: &[Socket], addresses: &mut Vec<Option<SocketAddr>>) {
        addresses.extend(sockets.iter().map(|socket| {
            let address = rustix::net::getpeername(borrow(socket.slot())).ok()??;
            SocketAddr::try_from(address).ok()
        }));
    }

    fn notify_writable(&mut self, socket: Socket, token: Token) {
        let slot = socket.slot();
        if !self.slots.has(slot, SlotFlag::Open) {
            return;
        }
        self.slots.set(slot, SlotFlag::WantsWritable);
        if let Err(errno) = self.watch(slot, EventKind::Readable, token) {
            self.report_failure(slot, token, errno);
        }
    }

    fn shutdown(&mut self, socket: Socket) {
        // An error means that the connection is already broken, and a receive reports that.
        let _ = rustix::net::shutdown(borrow(socket.slot()), Shutdown::Write);
    }

    fn close(&mut self, socket: Socket, _token: Token, how: Close) {
        let Some(fd) = self.remove(socket.slot()) else {
            return;
        };
        if how == Close::Reset {
            // Fails only for a socket that is not TCP. Then it closes in order.
            let _ = sockopt::set_socket_linger(&fd, Some(Duration::ZERO));
        }
        self.pending_closes.push(fd);
    }

    fn transfer(&mut self, socket: Socket, _token: Token) -> io::Result<OwnedFd> {
        let watched = self.slots.has(socket.slot(), SlotFlag::Watched);
        let fd = self.remove(socket.slot()).ok_or(Errno::BADF)?;
        if watched {
            epoll::delete(&self.epoll, &fd)?;
        }
        Ok(fd)
    }

    fn adopt(&mut self, handle: OwnedFd) -> Result<Socket, NotAdopted<OwnedFd>> {
        if self.open_count >= self.capacity {
            return Err(NotAdopted {
                handle,
                error: Errno::MFILE.into(),
            });
        }
        self.insert(handle)
    }

    fn wait(&mut self, timeout: Option<Duration>, completions: &mut Completions) -> io::Result<()> {
        completions.list.clear();
        completions.buffer.resize(Completions::BUFFER_BYTES, 0);
        self.pending_closes.clear();
        self.throttle.refresh(Instant::now());
        self.update_listening()?;
        let timeout = self.wait_timeout(timeout).map(timespec);
        completions.list.append(&mut self.ready);

        let mut events = std::mem::take(&mut self.events);
        events.clear();
        self.wait_for_events(&mut events, timeout)?;
        for &event in &events {
            self.handle_event(event, &mut completions.list);
        }
        // A full batch: the kernel may have more.
        let events_pending = events.len() == events.capacity();
        self.events = events;
        completions.input_pending = self.receive(completions) || events_pending;
        completions.list.append(&mut self.ready);
        Ok(())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            open_count,
            capacity,
            throttle,
            ..
        } = self;
        formatter
            .debug_struct("Epoll")
            .field("open_count", open_count)
            .field("capacity", capacity)
            .field("throttle", throttle)
            .finish_non_exhaustive()
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        let open: Vec<u32> = self.slots.iter_open().collect();
        for slot in open {
            drop(self.remove(slot));
        }
    }
}

fn raw(slot: u32) -> RawFd {
    RawFd::try_from(slot).expect("a slot is a descriptor's number")
}

fn borrow<'a>(slot: u32) -> BorrowedFd<'a> {
    // SAFETY: slots are non-negative numbers, never -1; whether one is still open is checked where it
    // matters, and the kernel answers EBADF otherwise.
    unsafe { BorrowedFd::borrow_raw(raw(slot)) }
}

fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// Errors after which the same send may succeed later.
fn is_transient(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM
    )
}

/// The timeout for epoll, at most as many milliseconds as fit an int.
fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(Duration::from_millis(i32::MAX as u64));
    Timespec {
        tv_sec: duration.as_secs().cast_signed(),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
