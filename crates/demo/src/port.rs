//! A port for the server.

use myriad_doctor::Ports;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Every port tried is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free port below {below} on 127.0.0.1; stop a server that listens there")]
pub struct NoFreePort {
    /// The first port outgoing connections may take.
    pub below: u16,
}

/// Ports tried before giving up.
const TRIES: u16 = 200;
/// Tried first, because people know it.
const FAVOURITE: u16 = 8000;

/// A free port on 127.0.0.1 below the range of outgoing connections.
///
/// One inside that range could be taken by one of the crowd's own connections: a listener there would lose
/// its port to a client, or a client its port to the listener. The port is found by binding it without
/// SO_REUSEPORT, since with it a second server of the same user would silently share one.
pub(crate) fn choose(ports: Ports) -> Result<SocketAddr, NoFreePort> {
    let below = ports.first;
    let start = if FAVOURITE < below {
        FAVOURITE
    } else {
        below.saturating_sub(TRIES).max(1_024)
    };
    (start..below)
        .take(usize::from(TRIES))
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .find(|address| TcpListener::bind(address).is_ok())
        .ok_or(NoFreePort { below })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_passed_over() {
        let ports = Ports {
            first: 32_768,
            last: 60_999,
            reserved: 0,
        };
        let first = choose(ports).unwrap();
        let _taken = TcpListener::bind(first).unwrap();
        let second = choose(ports).unwrap();
        assert!(second.port() > first.port() && second.port() < 32_768);
    }

    #[test]
    fn a_wide_range_of_outgoing_ports_leaves_little() {
        let ports = Ports {
            first: 1_100,
            last: 65_535,
            reserved: 0,
        };
        assert!((1_024..1_100).contains(&choose(ports).unwrap().port()));
        let ports = Ports {
            first: 1_024,
            last: 65_535,
            reserved: 0,
        };
        assert_eq!(choose(ports), Err(NoFreePort { below: 1_024 }));
    }
}
