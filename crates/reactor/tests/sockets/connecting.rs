//! Outgoing connections.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, token};
use myriad_reactor::{SendOp, Sent, listen};
use myriad_reserved_port::ReservedPort;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

on_both!(
    connects_and_talks,
    who_speaks_first_is_heard_and_who_stays_silent_is_accepted,
    connects_over_ipv6,
    connects_from_chosen_sources,
    chosen_ports_are_kept,
    a_refusal_is_reported_and_the_slot_comes_back,
    a_source_that_is_not_ours_is_an_error,
    a_source_of_another_family_is_an_error,
    a_full_reactor_refuses,
    closing_an_attempt_silences_it,
    thousands_in_one_turn,
);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = listen(([127, 0, 0, 1], 0).into(), 4096, None, false).unwrap();
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connected(events: &[Event]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, Event::Connected(_)))
        .count()
}

fn connects_and_talks<R: Real>() {
    let (listener, address) = listener();
    let mut world = World::<R>::connecting(8, address);
    let socket = world.reactor.connect(token(3), None, address).unwrap();
    world.until("connected", |events| {
        events.contains(&Event::Connected(token(3)))
    });
    world.reactor.register(socket, token(3));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"welcome").unwrap();
    assert_eq!(world.until_received(token(3), 7), b"welcome");
    let mut ops = [SendOp::new(socket, b"thanks")];
    world.reactor.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::All);
    let mut bytes = [0; 6];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"thanks");
    drop(stream);
    world.until("the end", |events| {
        events.contains(&Event::Finished(token(3)))
    });
    world.close(socket, token(3));
}

/// The end of the TCP handshake leaves with the first bytes, or after a while without any.
fn who_speaks_first_is_heard_and_who_stays_silent_is_accepted<R: Real>() {
    let (listener, address) = listener();
    let mut world = World::<R>::speaking_first(8, address);
    for says_something in [true, false] {
        let token = token(u32::from(says_something));
        let socket = world.reactor.connect(token, None, address).unwrap();
        world.until("connected", |events| {
            events.contains(&Event::Connected(token))
        });
        world.reactor.register(socket, token);
        if says_something {
            world
                .reactor
                .send_batch(&mut [SendOp::new(socket, b"hello")]);
        }
        let (mut stream, _) = listener.accept().unwrap();
        if says_something {
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
        }
        stream.write_all(b"welcome").unwrap();
        assert_eq!(world.until_received(token, 7), b"welcome");
        world.close(socket, token);
    }
}

fn connects_over_ipv6<R: Real>() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        eprintln!("skipped, no IPv6");
        return;
    };
    let address = listener.local_addr().unwrap();
    let mut world = World::<R>::connecting(8, address);
    world
        .reactor
        .connect(token(1), Some("[::1]:0".parse().unwrap()), address)
        .unwrap();
    world.until("connected", |events| connected(events) == 1);
    assert!(listener.accept().unwrap().1.ip().is_loopback());
}

fn connects_from_chosen_sources<R: Real>() {
    let (listener, address) = listener();
    let mut world = World::<R>::connecting(200, address);
    let sources: Vec<Ipv4Addr> = (1..=50)
        .map(|last| Ipv4Addr::new(127, 0, 9, last))
        .collect();
    for (index, source) in (0..).zip(&sources) {
        world
            .reactor
            .connect(token(index), Some((*source, 0).into()), address)
            .unwrap();
    }
    world.until("all connected", |events| connected(events) == sources.len());
    let mut seen: Vec<IpAddr> = sources
        .iter()
        .map(|_| listener.accept().unwrap().1.ip())
        .collect();
    seen.sort_unstable();
    let expected: Vec<IpAddr> = sources.into_iter().map(IpAddr::from).collect();
    assert_eq!(seen, expected);
}

fn chosen_ports_are_kept<R: Real>() {
    let (listener, address) = listener();
    let free = TcpListener::bind("127.0.8.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut world = World::<R>::connecting(8, address);
    world
        .reactor
        .connect(token(1), Some(free), address)
        .unwrap();
    world.until("connected", |events| connected(events) == 1);
    assert_eq!(listener.accept().unwrap().1, free);
}

fn a_refusal_is_reported_and_the_slot_comes_back<R: Real>() {
    let nobody = ReservedPort::take().unwrap();
    let address = nobody.address();
    let mut world = World::<R>::connecting(1, address);
    for round in 0..40 {
        // The slot is free again from the wait after on.
        world.reactor.connect(token(round), None, address).unwrap();
        let refused = Event::ConnectFailed(token(round), libc::ECONNREFUSED);
        world.until("refused", |events| events.contains(&refused));
        world.turn(std::time::Duration::ZERO);
    }
    assert_eq!(world.events.len(), 40);
}

fn a_source_that_is_not_ours_is_an_error<R: Real>() {
    let (listener, address) = listener();
    let mut world = World::<R>::connecting(1, address);
    for _ in 0..3 {
        // From a block reserved for documentation (RFC 5737).
        let result = world
            .reactor
            .connect(token(1), Some(([192, 0, 2, 7], 0).into()), address);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
    world.reactor.connect(token(2), None, address).unwrap();
    world.until("connected", |events| connected(events) == 1);
    assert_eq!(listener.accept().unwrap().1.ip(), Ipv4Addr::LOCALHOST);
}

fn a_source_of_another_family_is_an_error<R: Real>() {
    let (_listener, address) = listener();
    let mut world = World::<R>::connecting(2, address);
    for source in ["[::1]:0", "[::2]:9"] {
        let result = world
            .reactor
            .connect(token(1), Some(source.parse().unwrap()), address);
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EAFNOSUPPORT));
    }
}

fn a_full_reactor_refuses<R: Real>() {
    let (_listener, address) = listener();
    let mut world = World::<R>::connecting(3, address);
    assert_eq!(world.reactor.capacity(), 3);
    let sockets: Vec<_> = (0..3)
        .map(|index| world.reactor.connect(token(index), None, address).unwrap())
        .collect();
    let error = world.reactor.connect(token(9), None, address).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    world.until("all connected", |events| connected(events) == 3);
    world.close(sockets[1], token(1));
    world.turn(std::time::Duration::ZERO);
    world.reactor.connect(token(9), None, address).unwrap();
    world.until("the fourth", |events| connected(events) == 4);
}

/// A listener whose queue is full answers no SYN, so that an attempt stays under way.
fn closing_an_attempt_silences_it<R: Real>() {
    let listener = listen(([127, 0, 0, 1], 0).into(), 0, None, false).unwrap();
    let address = listener.local_addr().unwrap();
    let mut world = World::<R>::connecting(64, address);
    let sockets: Vec<_> = (0..16)
        .map(|index| world.reactor.connect(token(index), None, address).unwrap())
        .collect();
    world.until("the first is in", |events| connected(events) >= 1);
    for (index, socket) in (0..).zip(&sockets) {
        world.close(*socket, token(index));
    }
    let before = world.events.len();
    let (_other, other_address) = self::listener();
    world
        .reactor
        .connect(token(99), None, other_address)
        .unwrap();
    world.until("another target", |events| {
        events.contains(&Event::Connected(token(99)))
    });
    assert_eq!(world.events[before..], [Event::Connected(token(99))]);
}

fn thousands_in_one_turn<R: Real>() {
    const COUNT: u32 = 3_000;
    let mut server = World::<R>::listening(COUNT as usize + 1);
    let mut client = World::<R>::connecting(COUNT as usize, server.address);
    let address = server.address;
    for index in 0..COUNT {
        let source = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(index % 8).unwrap());
        client
            .reactor
            .connect(token(index), Some((source, 0).into()), address)
            .unwrap();
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while connected(&client.events) + server.events.len() < 2 * COUNT as usize {
        assert!(std::time::Instant::now() < deadline);
        client.turn(std::time::Duration::from_millis(1));
        server.turn(std::time::Duration::from_millis(1));
    }
    assert!(
        server
            .events
            .iter()
            .all(|event| matches!(event, Event::Accepted(_)))
    );
}
