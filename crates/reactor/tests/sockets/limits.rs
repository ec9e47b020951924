//! Full tables, shortages, and more connections than one table holds.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{
    Event, Real, World, fill_descriptor_table, in_child_with_limit, on_both, token,
};
use myriad_reactor::{Reactor, SendOp, Sent, Socket, Uring};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

on_both!(
    a_full_reactor_pauses_and_nobody_at_the_door_is_lost,
    accepting_is_off_until_asked_for,
    a_shortage_of_descriptors_pauses_without_spinning,
    shutdown_works_in_a_full_descriptor_table,
    fills_to_the_last_slot_under_churn,
);

fn pauses(events: &[Event]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, Event::AcceptPaused(libc::EMFILE)))
        .count()
}

fn accepts(events: &[Event]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, Event::Accepted(_)))
        .count()
}

fn a_full_reactor_pauses_and_nobody_at_the_door_is_lost<R: Real>() {
    const SLOTS: usize = 50;
    let mut world = World::<R>::listening(SLOTS);
    assert_eq!(world.reactor.capacity(), SLOTS);
    let mut waiting: Vec<TcpStream> = (0..80)
        .map(|_| TcpStream::connect(world.address).unwrap())
        .collect();
    world.until("the pause", |events| pauses(events) > 0);
    assert_eq!((accepts(&world.events), pauses(&world.events)), (SLOTS, 1));

    // Each one that leaves lets one in, until everybody was served, in the order of arrival.
    for stream in &mut waiting {
        let socket = world.accepted();
        let mut ops = [SendOp::new(socket, b"served")];
        world.reactor.send_batch(&mut ops);
        assert_eq!(ops[0].sent, Sent::All);
        world.close(socket, token(0));
        let mut bytes = [0; 6];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"served");
    }
}

fn accepting_is_off_until_asked_for<R: Real>() {
    let mut world = World::<R>::listening(8);
    world.reactor.accept(false);
    let mut early = TcpStream::connect(world.address).unwrap();
    early.write_all(b"x").unwrap();
    for _ in 0..3 {
        world.turn(Duration::from_millis(5));
    }
    assert_eq!(world.events, []);
    world.reactor.accept(true);
    let socket = world.accepted();
    world.reactor.register(socket, token(1));
    world.until_received(token(1), 1);
    // Off again, after having been on.
    world.reactor.accept(false);
    world.turn(Duration::ZERO);
    world.events.clear();
    let _late = TcpStream::connect(world.address).unwrap();
    for _ in 0..3 {
        world.turn(Duration::from_millis(5));
    }
    assert_eq!(world.events, []);
}

/// epoll runs out of descriptors at an accept; io_uring where it needs one more ring.
fn a_shortage_of_descriptors_pauses_without_spinning<R: Real>() {
    in_child_with_limit(100, || {
        let mut world = World::<R>::listening(150);
        let mut client = World::<Uring>::connecting(150, world.address);
        let address = world.address;
        // 100 slots in the first table; connections beyond wait in the listener's queue.
        for index in 0..120 {
            client.reactor.connect(token(index), None, address).unwrap();
        }
        client.until("everybody at the door", |events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Connected(_)))
                .count()
                == 120
        });
        let hogs = fill_descriptor_table();
        world.until("the pause", |events| pauses(events) > 0);

        let started = Instant::now();
        let mut turns = 0;
        while started.elapsed() < Duration::from_millis(400) {
            world.turn(Duration::from_millis(200));
            turns += 1;
        }
        // Several retries have failed by now; a reactor that spins makes millions of turns.
        assert!(turns < 1000, "{turns} turns");
        assert_eq!(pauses(&world.events), 1, "reported once");

        let before = accepts(&world.events);
        drop(hogs);
        world.until("accepting again", |events| accepts(events) > before);
    });
}

/// Half a close needs no descriptor, although io_uring likes to have one for it; giving a socket away does.
fn shutdown_works_in_a_full_descriptor_table<R: Real>() {
    in_child_with_limit(400, || {
        let mut world = World::<R>::listening(200);
        let mut client = World::<Uring>::connecting(200, world.address);
        let address = world.address;
        for index in 0..150 {
            let socket = client.reactor.connect(token(index), None, address).unwrap();
            client.reactor.register(socket, token(index));
        }
        client.turn(Duration::ZERO);
        let sockets: Vec<Socket> = (0..150).map(|_| world.accepted()).collect();
        for (index, socket) in (0..).zip(&sockets) {
            world.reactor.register(*socket, token(index));
        }
        world.turn(Duration::ZERO);
        let hogs = fill_descriptor_table();
        sockets
            .iter()
            .for_each(|socket| world.reactor.shutdown(*socket));
        world.turn(Duration::ZERO);
        client.until("the end of everybody", |events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Finished(_)))
                .count()
                == 150
        });
        drop(hogs);
    });
}

#[test]
fn io_uring_closes_what_it_cannot_give_away() {
    if !Uring::is_available() {
        return;
    }
    in_child_with_limit(100, || {
        let mut world = World::<Uring>::listening(8);
        let (mut stream, socket) = world.pair(token(1));
        let hogs = fill_descriptor_table();
        let error = world.reactor.transfer(socket, token(1)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
        drop(hogs);
        let (_stream, socket) = world.pair(token(2));
        world.reactor.transfer(socket, token(2)).unwrap();
    });
}

/// Sockets come and go while the reactor is full or nearly so; every client gets its own answer.
fn fills_to_the_last_slot_under_churn<R: Real>() {
    const SLOTS: usize = 20;
    let mut world = World::<R>::listening(SLOTS);
    let address = world.address;
    let clients = std::thread::spawn(move || {
        let threads: Vec<_> = (0..4_u8)
            .map(|thread| {
                std::thread::spawn(move || {
                    for round in 0..200_u8 {
                        let mut streams: Vec<_> = (0..8)
                            .map(|_| TcpStream::connect(address).unwrap())
                            .collect();
                        for stream in &mut streams {
                            stream.write_all(&[thread, round]).unwrap();
                        }
                        for mut stream in streams {
                            let mut answer = Vec::new();
                            stream.read_to_end(&mut answer).unwrap();
                            assert_eq!(answer, [thread, round]);
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    let mut next = 0;
    let mut sockets: HashMap<u32, Socket> = HashMap::new();
    let mut heard: HashMap<u32, Vec<u8>> = HashMap::new();
    while !clients.is_finished() {
        world.turn(Duration::from_millis(10));
        for event in std::mem::take(&mut world.events) {
            match event {
                Event::Accepted(socket) => {
                    next += 1;
                    world.reactor.register(socket, token(next));
                    assert!(sockets.insert(next, socket).is_none());
                    assert!(sockets.len() <= SLOTS);
                }
                Event::Received(whose, bytes) => {
                    let whole = heard.entry(whose.index).or_default();
                    whole.extend(bytes);
                    if whole.len() == 2 {
                        let socket = sockets.remove(&whose.index).unwrap();
                        let mut ops = [SendOp::new(socket, whole)];
                        world.reactor.send_batch(&mut ops);
                        assert_eq!(ops[0].sent, Sent::All);
                        world.close(socket, whose);
                    }
                }
                Event::AcceptPaused(errno) => assert_eq!(errno, libc::EMFILE),
                other => panic!("{other:?}"),
            }
        }
    }
    clients.join().unwrap();
    assert_eq!(next, 4 * 200 * 8);
}

/// One thread, a limit of 300 descriptors, 2,000 connections at both ends.
#[test]
fn io_uring_holds_more_connections_than_a_table() {
    if !Uring::is_available() {
        return;
    }
    in_child_with_limit(300, || {
        const COUNT: u32 = 2_000;
        let mut server = World::<Uring>::listening(COUNT as usize);
        let mut client = World::<Uring>::connecting(COUNT as usize, server.address);
        assert_eq!(server.reactor.capacity(), COUNT as usize);
        let mut accepted = Vec::new();
        for index in 0..COUNT {
            let source = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(index % 5).unwrap());
            let address = server.address;
            let socket = client
                .reactor
                .connect(token(index), Some((source, 0).into()), address)
                .unwrap();
            client.reactor.register(socket, token(index));
            if index % 500 == 499 {
                client.turn(Duration::ZERO);
                server.until("accepts", |events| accepts(events) > index as usize);
            }
        }
        for event in server.events.drain(..) {
            if let Event::Accepted(socket) = event {
                server
                    .reactor
                    .register(socket, token(u32::try_from(accepted.len()).unwrap()));
                accepted.push(socket);
            }
        }
        assert_eq!(accepted.len(), COUNT as usize);
        assert_eq!(
            accepted
                .iter()
                .collect::<std::collections::HashSet<_>>()
                .len(),
            COUNT as usize
        );

        client.events.clear();
        let mut ops: Vec<_> = accepted
            .iter()
            .map(|socket| SendOp::new(*socket, b"to all"))
            .collect();
        server.reactor.send_batch(&mut ops);
        assert!(ops.iter().all(|op| op.sent == Sent::All));
        client.until("a push to everybody", |events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Received(_, bytes) if bytes == b"to all"))
                .count()
                == COUNT as usize
        });

        // Everybody leaves and the slots serve again.
        for (index, socket) in (0..).zip(&accepted) {
            server.close(*socket, token(index));
        }
        server.turn(Duration::ZERO);
        client.until("the end of everybody", |events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Finished(_)))
                .count()
                == COUNT as usize
        });
        let (mut stream, _) = server.pair(token(7));
        stream.write_all(b"again").unwrap();
        server.until_received(token(7), 5);
    });
}
