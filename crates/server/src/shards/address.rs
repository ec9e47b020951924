//! Where the shards listen: the proof that nobody else does, and the hold on it until they do.

use crate::error::ServerError;
use crate::machine;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted; the kernel bounds it by `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// The listening address, ours alone until the last shard listens.
///
/// Shards share a port by SO_REUSEPORT, and so would, silently, a second server of the same user. So this socket is
/// bound without it, and kept until every shard listens: from there on the shards' listeners are in a later server's way.
/// SO_REUSEPORT is set only then; the kernel reads it anew when a shard's listener binds.
///
/// To bind is not enough. SO_REUSEADDR is needed to bind beside an earlier server's connections in TIME_WAIT, and two
/// sockets that both have it may be bound to one port until one of them listens. So the socket listens for a moment:
/// the kernel lets one of several do that, whatever their addresses, options and users are. Then it takes SO_REUSEADDR
/// back, so that nobody can bind beside it any more, and stops listening, so that no client is lost in its backlog.
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

/// How long an address that is in use is asked for again. The kernel closes the listeners of a killed server's rings some milliseconds
/// after the process has gone. Two servers that begin to listen at the same time may both be refused; one of them gets it by trying again
/// after a pause of its own.
const PATIENCE: Duration = Duration::from_secs(1);

fn hold(address: SocketAddr) -> io::Result<HeldAddress> {
    let deadline = Instant::now() + PATIENCE;
    let socket = loop {
        match bound(address) {
            Ok(socket) => break socket,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(random_pause());
            }
            Err(error) => return Err(error),
        }
    };
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

/// Bound, and nobody else is. A socket that fails is closed before the next attempt.
fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = bind(address)?;
    claim(&socket, address)?;
    Ok(socket)
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // A port of the kernel's choice has no earlier connections.
    socket.set_reuse_address(address.port() != 0)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Makes sure that no other socket is bound to the port, or will be.
fn claim(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.port() == 0 {
        // The kernel has chosen a port that nobody had, and without SO_REUSEADDR nobody can join us there.
        return Ok(());
    }
    socket.listen(1)?;
    socket.set_reuse_address(false)?;
    // It stays bound: the port was given, and not chosen by the kernel.
    socket.shutdown(Shutdown::Read)
}

/// 1 to 9 ms. Different for those who try at the same time, so that they do not do so again.
fn random_pause() -> Duration {
    let mut byte = [0];
    // Without randomness the pause is the same, and one more attempt does no harm.
    let _ = rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty());
    Duration::from_millis(1) + Duration::from_micros(u64::from(byte[0]) * 32)
}

/// The error in words, with the option that can be changed.
pub(crate) fn refusal(address: SocketAddr, flag: &'static str, source: io::Error) -> ServerError {
    explained(address, flag, source, machine::unprivileged_port())
}

/// `unprivileged` is the first port that needs no capability.
fn explained(
    address: SocketAddr,
    flag: &'static str,
    source: io::Error,
    unprivileged: u16,
) -> ServerError {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ADDRINUSE) => ServerError::AddressInUse { address, flag },
        Some(Errno::ACCESS) if (1..unprivileged).contains(&address.port()) => {
            ServerError::PrivilegedPort {
                address,
                flag,
                unprivileged,
            }
        }
        _ => ServerError::Listen {
            address,
            flag,
            source,
        },
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
    use std::sync::Barrier;

    fn anywhere() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn shared_listener(address: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
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

    /// As after `kill -9`: the listener outlives the server by some milliseconds.
    #[test]
    fn an_address_that_becomes_free_soon_is_waited_for() {
        let earlier = HeldAddress::take(anywhere(), "listen").unwrap();
        let address = earlier.address();
        let listener = shared_listener(address).unwrap();
        drop(earlier);
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| {
                begin.wait();
                HeldAddress::take(address, "listen").map(|held| held.address())
            });
            begin.wait();
            // Whichever comes first, the end of the listener or the first attempt: the address is got.
            std::thread::sleep(random_pause());
            drop(listener);
            assert_eq!(next.join().unwrap().unwrap(), address);
        });
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

    /// Takes the address in many threads at once; true for those who got it. Nobody lets go before all have tried.
    fn race(addresses: &[SocketAddr]) -> Vec<bool> {
        let barrier = Barrier::new(addresses.len());
        std::thread::scope(|scope| {
            let starts: Vec<_> = addresses
                .iter()
                .map(|address| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let held = HeldAddress::take(*address, "listen");
                        // As a server does before it lets go. No panic here: the others would wait for ever.
                        let listener = held
                            .as_ref()
                            .ok()
                            .map(|held| shared_listener(held.address()));
                        barrier.wait();
                        drop(held);
                        listener.is_some_and(|listener| {
                            listener
                                .expect("an address of our own")
                                .local_addr()
                                .is_ok()
                        })
                    })
                })
                .collect();
            let outcomes = starts.into_iter().map(|start| start.join());
            outcomes.map(|outcome| outcome.expect("no panic")).collect()
        })
    }

    #[test]
    fn of_servers_that_start_at_once_one_gets_the_address() {
        let port = HeldAddress::take(anywhere(), "listen")
            .unwrap()
            .address()
            .port();
        for round in 0..100 {
            // The wildcards of both families overlap with it, and with one another.
            let addresses = [
                "127.0.0.1",
                "127.0.0.1",
                "0.0.0.0",
                "127.0.0.1",
                "::",
                "127.0.0.1",
            ];
            let addresses = addresses.map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
            let winners = race(&addresses).into_iter().filter(|won| *won).count();
            assert_eq!(winners, 1, "round {round}");
        }
    }

    #[test]
    fn addresses_that_do_not_overlap_are_taken_at_once() {
        let port = HeldAddress::take(anywhere(), "listen")
            .unwrap()
            .address()
            .port();
        for _ in 0..20 {
            let addresses = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]];
            let addresses = addresses.map(|ip| SocketAddr::from((ip, port)));
            assert_eq!(race(&addresses), [true; 3]);
        }
    }

    #[test]
    fn a_port_of_the_kernels_choice_cannot_be_joined() {
        let held = HeldAddress::take(anywhere(), "listen").unwrap();
        let error = HeldAddress::take(held.address(), "listen").unwrap_err();
        assert!(matches!(error, ServerError::AddressInUse { .. }), "{error}");
    }

    #[test]
    fn a_port_that_needs_a_capability_says_which() {
        let refused = |port: u16| {
            let address = SocketAddr::from(([0, 0, 0, 0], port));
            explained(address, "tls-listen", Errno::ACCESS.into(), 1024).to_string()
        };
        let said = refused(443);
        assert!(said.contains("AmbientCapabilities="), "{said}");
        assert!(said.contains("a port below 1024 "), "{said}");
        // Something else forbids it, such as SELinux.
        let said = refused(1024);
        assert!(said.ends_with("choose another with --tls-listen"), "{said}");
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
