//! A port for the server.

use myriad_doctor::{Listening, Machine, Ports};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Every port tried is taken, or may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no free port on 127.0.0.1 that outgoing connections ({first} to {last}) leave alone; stop a server that listens on \
     one, or reserve one: sysctl -w net.ipv4.ip_local_reserved_ports=PORT (doctor --fix does)"
)]
pub struct NoFreePort {
    /// The first port outgoing connections may take.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

/// Ports tried before giving up.
const TRIES: usize = 200;
/// Tried first, because people know it.
const FAVOURITE: u16 = 8000;
/// Lower ones are for root.
const LOWEST: u16 = 1_024;

/// A free port on 127.0.0.1 that is not given to outgoing connections: outside their range, or reserved.
///
/// Any other could be taken by one of the crowd's own connections: a listener there would lose its port to a client, or
/// a client its port to the listener. The port is found by binding it without SO_REUSEPORT, since with it a second
/// server of the same user would silently share one.
///
/// `beside` is one that was chosen before, and is not bound yet.
pub(crate) fn choose(
    machine: &Machine,
    beside: Option<SocketAddr>,
) -> Result<SocketAddr, NoFreePort> {
    let Ports { first, last, .. } = machine.ports;
    (FAVOURITE..=u16::MAX)
        .chain((LOWEST..FAVOURITE).rev())
        .filter(|&port| !Listening::of(port, machine.ports, &machine.reserved_ports).can_be_taken)
        .take(TRIES)
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .find(|address| Some(*address) != beside && TcpListener::bind(address).is_ok())
        .ok_or(NoFreePort { first, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_doctor::{ConnectionCost, Probe};

    fn machine(first: u16, last: u16, reserved: &str) -> Machine {
        let cost = ConnectionCost::assumed("of a test");
        let mut machine = Probe::system().machine(cost).expect("a /proc");
        (machine.ports.first, machine.ports.last) = (first, last);
        machine.reserved_ports = reserved.into();
        machine
    }

    #[test]
    fn a_port_in_use_is_passed_over() {
        let machine = machine(32_768, 60_999, "");
        let first = choose(&machine, None).unwrap();
        let _taken = TcpListener::bind(first).unwrap();
        let second = choose(&machine, None).unwrap();
        assert!(second != first && second.port() < 32_768);
        let third = choose(&machine, Some(second)).unwrap();
        assert!(third != first && third != second);
    }

    #[test]
    fn what_outgoing_connections_leave_is_taken_wherever_it_is() {
        let below = choose(&machine(1_100, 65_535, ""), None).unwrap();
        assert!((1_024..1_100).contains(&below.port()), "{below}");
        let above = choose(&machine(1_024, 65_000, ""), None).unwrap();
        assert!(above.port() > 65_000, "{above}");
        // As doctor --fix leaves a machine: the widest range, and the listening port reserved.
        let reserved = choose(&machine(1_024, 65_535, "24100-24110"), None).unwrap();
        assert!((24_100..=24_110).contains(&reserved.port()), "{reserved}");
    }

    #[test]
    fn a_range_of_all_ports_leaves_none_and_the_error_says_what_to_do() {
        let error = choose(&machine(1_024, 65_535, ""), None).unwrap_err();
        assert_eq!(
            error,
            NoFreePort {
                first: 1_024,
                last: 65_535
            }
        );
        assert!(error.to_string().contains("ip_local_reserved_ports"));
    }
}
