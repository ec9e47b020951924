//! The drivers and the system calls they need: the only module of the workspace with unsafe code.

pub(crate) mod epoll;
pub(crate) mod uring;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

/// A real driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// io_uring with direct descriptors, Linux 6.8 and later.
    IoUring,
    /// epoll, everywhere.
    Epoll,
}

/// Why a driver cannot be used here, in words for a log line.
#[derive(Clone, Debug)]
pub struct DriverUnavailable(pub String);

impl Driver {
    /// Tries io_uring with every flag and operation the driver needs, by really using them once.
    ///
    /// # Errors
    /// What is missing: the kernel's version, a sysctl, a seccomp filter.
    pub fn probe_io_uring() -> Result<(), DriverUnavailable> {
        unimplemented!()
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
        unimplemented!()
    }

    /// A waker that wakes nobody, for simulations on one thread.
    #[must_use]
    pub fn silent() -> Self {
        Self(None)
    }

    /// Makes the current or next wait return, with [`crate::Completion::Woken`].
    pub fn wake(&self) {
        unimplemented!()
    }
}

/// What a real driver is made from.
#[derive(Debug)]
pub struct Setup {
    /// Ends its waits.
    pub waker: Waker,
    /// Where it accepts; none for a crowd of clients.
    pub listener: Option<TcpListener>,
    /// Sockets it must be able to hold. io_uring makes rings as they fill; epoll is bounded by its one table.
    pub sockets_max: usize,
}

/// Raises the soft RLIMIT_NOFILE to the hard one and returns it: the slots of one descriptor table.
///
/// # Errors
/// `getrlimit` or `setrlimit` failed.
pub fn descriptor_limit() -> io::Result<usize> {
    unimplemented!()
}

/// Gives the calling thread a descriptor table of its own (`unshare(CLONE_FILES)`), with only stdio and `keep` in it.
///
/// # Errors
/// The kernel refused.
pub fn unshare_descriptors(keep: &[RawFd]) -> io::Result<()> {
    let _ = keep;
    unimplemented!()
}

/// A listening socket as the drivers want it: SO_REUSEADDR, TCP_NODELAY (inherited by accepted sockets),
/// SO_SNDBUF when given (inherited too: bounds what a stalled client parks in the kernel), non-blocking, close-on-exec.
///
/// `shared` sets SO_REUSEPORT, so that every shard can have one on the same port.
///
/// # Errors
/// The address is in use or not ours.
pub fn listen(address: SocketAddr, backlog: u32, send_buffer_bytes: Option<u32>, shared: bool) -> io::Result<TcpListener> {
    let _ = (address, backlog, send_buffer_bytes, shared);
    unimplemented!()
}
