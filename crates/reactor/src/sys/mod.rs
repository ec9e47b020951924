//! The drivers and the system calls they need: the only module of the workspace with unsafe code.
//!
//! What both drivers share lives beside them: the packing of names ([`tag`]), a state word per slot
//! ([`slots`]), the queue of sockets to receive from ([`readable`]), when to accept ([`accept_throttle`]) and whom
//! ([`backlog`]), and
//! how an outgoing socket is made ([`outgoing`]).

#![expect(
    unsafe_code,
    reason = "system calls that no safe wrapper makes; everything else in the workspace goes without"
)]

mod accept_throttle;
mod backlog;
mod outgoing;
mod readable;
mod slots;
mod table;
mod tag;

pub(crate) mod epoll;
pub(crate) mod uring;

pub use table::{descriptor_limit, unshare_descriptors};

use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A real driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring with direct descriptors, Linux 6.13 and later: older kernels keep a closed direct descriptor
    /// open until every request armed before the close has ended.
    IoUring,
    /// epoll, everywhere.
    Epoll,
}

/// Why a driver cannot be used here, in words for a log line.
#[derive(Clone, Debug)]
pub struct DriverUnavailable(pub String);

impl std::fmt::Display for DriverUnavailable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for DriverUnavailable {}

impl Driver {
    /// Tries io_uring with every flag and operation the driver needs, by really using them once.
    ///
    /// # Errors
    /// What is missing: the kernel's version, a sysctl, a seccomp filter.
    pub fn probe_io_uring() -> Result<(), DriverUnavailable> {
        // On a thread of its own, because the kernel takes a ring down in the background and signals the
        // thread that used it, whose blocking system calls then end with EINTR.
        let probe = std::thread::Builder::new().spawn(uring::probe::probe);
        let outcome = probe.map(std::thread::JoinHandle::join);
        match outcome {
            Ok(Ok(result)) => result.map_err(DriverUnavailable),
            Ok(Err(_)) => Err(DriverUnavailable("the io_uring probe broke down".into())),
            Err(error) => Err(DriverUnavailable(format!(
                "no thread to probe io_uring on: {error}"
            ))),
        }
    }
}

/// Ends a [`crate::Reactor::wait`] from another thread.
///
/// Make every waker before any thread calls [`unshare_descriptors`]: a descriptor opened afterwards is
/// invisible to the others.
#[derive(Clone, Debug)]
pub struct Waker(Option<Arc<OwnedFd>>);

impl Waker {
    /// A waker on an eventfd.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Some(Arc::new(fd))))
    }

    /// A waker that wakes nobody, for simulations on one thread.
    #[must_use]
    pub fn silent() -> Self {
        Self(None)
    }

    /// Makes the current or next wait return, with [`crate::Completion::Woken`].
    ///
    /// One system call; callers with many things to say should coalesce.
    pub fn wake(&self) {
        if let Some(fd) = &self.0 {
            // Only a counter about to overflow refuses, and then the reactor is awake already.
            let _ = rustix::io::write(fd, &WAKE.to_ne_bytes());
        }
    }

    /// The eventfd's number, for [`unshare_descriptors`] to keep; none when silent.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The eventfd, unless silent.
    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            Some(fd) => Ok(fd.as_fd()),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a real driver needs a waker with an eventfd",
            )),
        }
    }

    /// Takes the eventfd's count since the last call, 0 when nobody signalled.
    fn take(&self) -> u64 {
        let mut count = [0; 8];
        match self.0.as_ref().map(|fd| rustix::io::read(fd, &mut count)) {
            Some(Ok(8)) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

/// What [`Waker::wake`] adds to the eventfd's counter.
///
/// The kernel adds 1 for each completion on a ring the eventfd is registered with, so the part of the
/// counter above this tells a wake-up from completions: there are never 2^32 of those between two reads.
const WAKE: u64 = 1 << 32;

/// What a real driver is made from.
#[derive(Debug)]
pub struct Setup {
    /// Ends its waits.
    pub waker: Waker,
    /// Where it accepts; none for a crowd of clients.
    pub listener: Option<TcpListener>,
    /// Sockets it must be able to hold. io_uring makes rings as they fill; epoll is bounded by its one table.
    pub sockets_max: usize,
    /// Reactors of this process, this one included. They share what its user may lock in memory (RLIMIT_MEMLOCK),
    /// which bounds io_uring's queues.
    pub reactors: usize,
}

/// The largest segment (TCP_MAXSEG) beside a send buffer of so many bytes: half of it.
///
/// A receiver acknowledges at once what is more than one segment, and less only after 40 ms. On loopback a segment has
/// up to 65,483 bytes, more than a small send buffer lets out, so that each bufferful waited for that timer: 2 MB/s to a
/// client that is behind, where 400 MB/s go with this bound. Networks have smaller segments anyway.
fn segment_bytes_max(send_buffer_bytes: u32) -> u32 {
    /// What every path carries (RFC 9293, section 3.7.1), and what the kernel takes (`MAX_TCP_WINDOW`).
    const ALLOWED: std::ops::RangeInclusive<u32> = 536..=32_767;
    (send_buffer_bytes / 2).clamp(*ALLOWED.start(), *ALLOWED.end())
}

/// A listening socket as the drivers want it: SO_REUSEADDR, TCP_NODELAY (inherited by accepted sockets),
/// SO_SNDBUF when given (inherited too: bounds what a stalled client parks in the kernel) and with it TCP_MAXSEG,
/// non-blocking, close-on-exec.
///
/// `shared` sets SO_REUSEPORT, so that every shard can have one on the same port.
/// The kernel doubles `send_buffer_bytes` for its own bookkeeping (socket(7)).
///
/// # Errors
/// The address is in use or not ours.
pub fn listen(
    address: SocketAddr,
    backlog: u32,
    send_buffer_bytes: Option<u32>,
    shared: bool,
) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
        socket.set_tcp_mss(segment_bytes_max(bytes))?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}
