//! Who is at the other end.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, token};
use myriad_reactor::{Setup, Socket, listen};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};

on_both!(
    each_socket_has_its_peers_address,
    ipv4_clients_of_an_ipv6_listener_have_mapped_addresses,
    a_broken_connection_has_no_other_address,
);

fn addresses_of<R: Real>(world: &mut World<R>, sockets: &[Socket]) -> Vec<Option<SocketAddr>> {
    let mut addresses = vec![None];
    world.reactor.peer_addresses(sockets, &mut addresses);
    assert_eq!(addresses.remove(0), None, "what was there stays");
    addresses
}

fn each_socket_has_its_peers_address<R: Real>() {
    let mut world = World::<R>::listening(64);
    // More than a submission queue of this size takes at once.
    let pairs: Vec<_> = (0..40).map(|index| world.pair(token(index))).collect();
    let sockets: Vec<_> = pairs.iter().map(|(_, socket)| *socket).collect();
    let locals: Vec<_> = pairs
        .iter()
        .map(|(near, _)| Some(near.local_addr().unwrap()))
        .collect();
    assert_eq!(addresses_of(&mut world, &sockets), locals);
    assert_eq!(addresses_of(&mut world, &[]), []);
}

/// A listener of the IPv6 loopback with IPv4 allowed; none where the machine has no IPv6.
fn dual() -> Option<TcpListener> {
    listen((Ipv6Addr::UNSPECIFIED, 0).into(), 16, None, false).ok()
}

fn ipv4_clients_of_an_ipv6_listener_have_mapped_addresses<R: Real>() {
    let Some(listener) = dual() else {
        eprintln!("skipped, no IPv6");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    let mut world = World::<R>::listening_by(8, None, |setup| {
        R::make(Setup {
            listeners: vec![listener],
            ..setup
        })
    });
    for target in ["127.0.0.1", "::1"] {
        let Ok(near) = TcpStream::connect((target, port)) else {
            eprintln!("skipped, no {target}");
            continue;
        };
        let socket = world.accepted();
        let address = addresses_of(&mut world, &[socket])[0].unwrap();
        let local = near.local_addr().unwrap();
        assert!(address.is_ipv6(), "{address}");
        assert_eq!(address.ip().to_canonical(), local.ip());
        assert_eq!(address.port(), local.port());
    }
}

fn a_broken_connection_has_no_other_address<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (near, broken) = world.pair(token(1));
    let address = near.local_addr().unwrap();
    let (other, whole) = world.pair(token(2));
    socket2::SockRef::from(&near)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(near);
    world.until("reset", |events| {
        events
            .iter()
            .any(|event| matches!(event, Event::Failed(..)))
    });
    let addresses = addresses_of(&mut world, &[broken, whole]);
    // io_uring's way of asking still tells it.
    assert!(addresses[0].is_none_or(|known| known == address));
    assert_eq!(addresses[1], Some(other.local_addr().unwrap()));
}
