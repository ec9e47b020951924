//! A port of loopback for a test that has to name it before anybody listens there, or where nobody may listen.
//!
//! A port that was free a moment ago may be an outgoing connection's now, of any program of the machine. So the port is held by a
//! socket that is bound to it and does not listen. The kernel then gives it to no connection and to no bind to port 0
//! (`__inet_hash_connect` skips every port that a `bind` has taken). A server may bind beside the holder and listen, because
//! both have SO_REUSEADDR, as the standard library, nginx, HAProxy and programs in Go set it. Before and after that, connections to the
//! port are refused.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

/// A port of 127.0.0.1, until this is dropped. Programs that a test starts do not inherit it.
#[derive(Debug)]
pub struct ReservedPort {
    address: SocketAddr,
    /// Bound, and never listening.
    _holder: Socket,
}

impl ReservedPort {
    /// Takes one that nobody has.
    ///
    /// # Errors
    /// All ports are taken, or the process may not open sockets.
    pub fn take() -> io::Result<Self> {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        holder.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        // Only now: with it, a bind succeeds beside another holder.
        holder.set_reuse_address(true)?;
        let address = holder
            .local_addr()?
            .as_socket()
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            address,
            _holder: holder,
        })
    }

    /// 127.0.0.1 with the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn nobody_listens_until_a_server_comes_and_after_it_has_gone() {
        let port = ReservedPort::take().expect("a port");
        let refused = || {
            let error = TcpStream::connect(port.address()).expect_err("nobody listens");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        };
        refused();
        for _ in 0..2 {
            let server = TcpListener::bind(port.address()).expect("a server may have it");
            let client = TcpStream::connect(port.address()).expect("it listens");
            let (accepted, _) = server.accept().expect("a client");
            // The server's end is closed first, so it stays in TIME_WAIT.
            drop(accepted);
            drop(client);
            drop(server);
            refused();
        }
    }

    #[test]
    fn a_bind_that_does_not_ask_for_this_port_never_gets_it() {
        let ports: Vec<_> = (0..50)
            .map(|_| ReservedPort::take().expect("a port"))
            .collect();
        let mut numbers: Vec<u16> = ports.iter().map(|port| port.address().port()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50, "each has its own");
        let plain = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let taken = plain.bind(&ports[0].address().into());
        let error = taken.expect_err("without SO_REUSEADDR nobody binds beside the holder");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
