//! Client sockets, made by ordinary system calls.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, socket_with, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A TCP socket for `target`, bound to `source` when one is given, non-blocking and close-on-exec.
pub(super) fn open(
    source: Option<SocketAddr>,
    target: SocketAddr,
    speaks_first: bool,
) -> io::Result<OwnedFd> {
    let family = if target.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    if speaks_first {
        // The acknowledgement that ends the TCP handshake leaves with the first bytes. On loopback that is one segment of eight for a WebSocket
        // that opens, and the server finds a request where it finds a connection.
        sockopt::set_tcp_quickack(&socket, false)?;
    }
    if let Some(source) = source {
        if source.port() == 0 {
            choose_port_at_connect(&socket)?;
        }
        bind(&socket, &source)?;
    }
    Ok(socket)
}

/// Sets `IP_BIND_ADDRESS_NO_PORT`. Without it, `bind` to port 0 reserves a port of the source address for all
/// destinations: the address could make 28,000 connections in all instead of 28,000 to each destination.
fn choose_port_at_connect(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = libc::socklen_t::try_from(size_of_val(&on)).expect("an int's size is small");
    // The option is read at the IP level for both families (ip(7), since Linux 4.2).
    // SAFETY: `on` lives through the call, and `size` is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Refuses a source and a target of different address families.
pub(super) fn check_families(source: Option<SocketAddr>, target: SocketAddr) -> io::Result<()> {
    if source.is_some_and(|source| source.is_ipv4() != target.is_ipv4()) {
        return Err(Errno::AFNOSUPPORT.into());
    }
    Ok(())
}

/// The outcome of starting a non-blocking connect.
pub(super) enum ConnectStart {
    /// Established at once, as on loopback.
    Connected,
    /// In progress: writability reports the outcome.
    InProgress,
}

/// Starts a non-blocking connect.
pub(super) fn connect(socket: BorrowedFd<'_>, target: SocketAddr) -> Result<ConnectStart, Errno> {
    match rustix::net::connect(socket, &target) {
        Ok(()) => Ok(ConnectStart::Connected),
        // An interrupted connect also continues in the background (connect(2)).
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(ConnectStart::InProgress),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_first_delays_the_acknowledgement() {
        for speaks_first in [true, false] {
            let target = ([127, 0, 0, 1], 1).into();
            let socket = open(None, target, speaks_first).expect("a socket");
            let is_quick = sockopt::tcp_quickack(&socket).expect("an option");
            assert_eq!(is_quick, !speaks_first);
        }
    }
}
