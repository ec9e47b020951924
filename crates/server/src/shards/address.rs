//! Where the shards listen: the proof that nobody else does, and the hold on it until they do.

use crate::error::ServerError;
use crate::machine;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;

/// Connections that may wait to be accepted; the kernel bounds it by `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// The listening address, ours alone until the last shard listens.
///
/// Shards share a port by SO_REUSEPORT, and so would, silently, a second server of the same user. Therefore the
/// address is bound once without it, which fails wherever anybody listens, whatever options they have.
/// Only then the option is set, which the kernel reads anew when a shard's listener binds. The socket itself never
/// listens, so that no client can be lost in its backlog.
#[derive(Debug)]
pub(crate) struct HeldAddress {
    address: SocketAddr,
    _socket: Socket,
}

impl HeldAddress {
    /// Takes the address; `flag` is the option it came from.
    ///
    /// # Errors
    /// It is in use, or not ours.
    pub(crate) fn take(address: SocketAddr, flag: &'static str) -> Result<Self, ServerError> {
        hold(address).map_err(|source| refusal(address, flag, source))
    }

    /// With the port that the kernel chose when port 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn hold(address: SocketAddr) -> io::Result<HeldAddress> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Connections of an earlier server in TIME_WAIT are no reason to refuse.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.set_reuse_port(true)?;
    let address = socket
        .local_addr()?
        .as_socket()
        .expect("bound as an IP socket");
    Ok(HeldAddress {
        address,
        _socket: socket,
    })
}

/// The error in words, with the option that can be changed.
pub(crate) fn refusal(address: SocketAddr, flag: &'static str, source: io::Error) -> ServerError {
    if source.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error()) {
        ServerError::AddressInUse { address, flag }
    } else {
        ServerError::Listen {
            address,
            flag,
            source,
        }
    }
}

/// The backlog to ask for. That the kernel gives less is said when the server starts, with the machine's other limits.
pub(crate) fn backlog() -> u32 {
    machine::backlog_max().map_or(BACKLOG, |most| most.min(BACKLOG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn shared_listener(address: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    }

    #[test]
    fn shards_can_listen_while_the_address_is_held() {
        let held = HeldAddress::take(anywhere(), "listen").unwrap();
        let first = shared_listener(held.address()).unwrap();
        let second = shared_listener(held.address()).unwrap();
        drop(held);
        assert_eq!(first.local_addr().unwrap(), second.local_addr().unwrap());
    }

    #[test]
    fn an_address_with_a_shared_listener_is_in_use() {
        let held = HeldAddress::take(anywhere(), "listen").unwrap();
        let address = held.address();
        let _listener = shared_listener(address).unwrap();
        drop(held);
        let error = HeldAddress::take(address, "listen").unwrap_err();
        let text = format!(
            "address {address} is in use by another program; stop it or choose another with --listen"
        );
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn an_address_that_is_not_ours_says_so() {
        let error =
            HeldAddress::take("192.0.2.1:8000".parse().unwrap(), "internal-listen").unwrap_err();
        assert!(matches!(error, ServerError::Listen { .. }), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("choose another with --internal-listen"),
            "{error}"
        );
    }
}
