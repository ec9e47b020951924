//! The drivers and the system calls they need: the only module of the workspace with unsafe code.
//!
//! Both drivers share these modules: [`tag`] packs an event's identity into 64 bits, [`slots`] keeps two bytes of state
//! per socket, [`readable`] is the queue of sockets to receive from, [`accept_throttle`] decides when to accept,
//! [`backlog`] counts waiting connections, [`outgoing`] makes client sockets, and [`deaf`] lets one vanish for its peer.

#![expect(
    unsafe_code,
    reason = "system calls that no safe wrapper makes; everything else in the workspace goes without"
)]

mod accept_throttle;
mod backlog;
mod deaf;
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
    /// io_uring with direct descriptors, on Linux 6.13 and later. Older kernels keep a closed direct descriptor
    /// open until every request armed before the close has ended.
    IoUring,
    /// epoll, on every Linux.
    Epoll,
}

/// Why a driver cannot be used here, as a sentence for the log.
#[derive(Clone, Debug)]
pub struct DriverUnavailable(pub String);

impl std::fmt::Display for DriverUnavailable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for DriverUnavailable {}

impl Driver {
    /// Its name in options, logs and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }

    /// The driver of that name; none where there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::IoUring, Self::Epoll]
            .into_iter()
            .find(|driver| driver.name() == name)
    }

    /// Tries io_uring: uses every flag and operation that the driver needs once.
    ///
    /// # Errors
    /// The kernel is too old, or a sysctl or a seccomp filter forbids io_uring.
    pub fn probe_io_uring() -> Result<(), DriverUnavailable> {
        // On a thread of its own: the kernel tears a ring down in the background and signals the thread that used
        // it, and the signal ends that thread's blocking system calls with EINTR.
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
    /// One system call. Callers with many messages should coalesce wake-ups.
    pub fn wake(&self) {
        if let Some(fd) = &self.0 {
            // A write fails only if the counter would overflow, and then the reactor is awake already.
            let _ = rustix::io::write(fd, &WAKE.to_ne_bytes());
        }
    }

    /// The eventfd's number, for [`unshare_descriptors`] to keep. None for [`Waker::silent`].
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The eventfd, or an error for [`Waker::silent`].
    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            Some(fd) => Ok(fd.as_fd()),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a real driver needs a waker with an eventfd",
            )),
        }
    }

    /// Reads and resets the eventfd's counter.
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
/// The kernel adds 1 to the same counter for each completion of a ring. There are never 2^32 completions between two
/// reads, so a counter of at least this value means that somebody called [`Waker::wake`].
const WAKE: u64 = 1 << 32;

/// The arguments of a real driver.
#[derive(Debug)]
pub struct Setup {
    /// Ends the driver's waits.
    pub waker: Waker,
    /// The sockets to accept from, at most 255. None for a driver that only connects.
    pub listeners: Vec<TcpListener>,
    /// Number of sockets to hold. io_uring makes more rings when they fill; epoll is bounded by its one table.
    pub sockets_max: usize,
    /// Number of reactors in this process, including this one. They share the user's locked memory (RLIMIT_MEMLOCK),
    /// which bounds io_uring's queues.
    pub reactors: usize,
    /// Whether the caller speaks first on the connections that it opens. Then the kernel acknowledges the peer's part of the TCP handshake
    /// together with the first bytes, which saves a segment and the peer a wait. A peer that speaks first would wait for that
    /// acknowledgement for 200 ms (`TCP_DELACK_MAX`).
    pub speaks_first: bool,
}

/// The segment size (TCP_MAXSEG) for a send buffer of this many bytes: half of the buffer.
///
/// A receiver acknowledges more than one segment at once, and less only after 40 ms. On loopback a segment has up to
/// 65,483 bytes, more than a small send buffer holds. So each bufferful would wait for that timer: a backpressured client
/// gets 2 MB/s without this bound, and 400 MB/s with it. Networks have smaller segments.
fn segment_bytes_max(send_buffer_bytes: u32) -> u32 {
    /// From the default segment size (RFC 9293, section 3.7.1) to the largest that the kernel takes (`MAX_TCP_WINDOW`).
    const ALLOWED: std::ops::RangeInclusive<u32> = 536..=32_767;
    (send_buffer_bytes / 2).clamp(*ALLOWED.start(), *ALLOWED.end())
}

/// Makes a listening socket for a driver: SO_REUSEADDR, TCP_NODELAY, non-blocking, close-on-exec.
///
/// `send_buffer_bytes` sets SO_SNDBUF and TCP_MAXSEG. It bounds the kernel memory of a stalled client; the kernel doubles
/// it for its own bookkeeping (socket(7)). Accepted sockets inherit these options.
/// `shared` sets SO_REUSEPORT, which lets every shard listen on the same port.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
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
