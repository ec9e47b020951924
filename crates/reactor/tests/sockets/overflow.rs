//! Completion queues far too small for what happens: nothing may be lost.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, pattern, received, token};
use myriad_reactor::{Reactor, SendOp, Sent, Socket, Uring};
use std::io::{Read, Write};
use std::net::TcpStream;

const COUNT: u32 = 400;

/// A reactor, and both ends of its connections.
type Crowd = (World<Uring>, Vec<(TcpStream, Socket)>);

/// A crowd on a ring whose completion queue holds eight.
fn crowd() -> Option<Crowd> {
    if !Uring::is_available() {
        return None;
    }
    let make = |setup| Uring::with_queue_sizes(setup, 8, 8);
    let mut world = World::listening_by(COUNT as usize + 1, None, make);
    let pairs = (0..COUNT).map(|index| world.pair(token(index))).collect();
    Some((world, pairs))
}

#[test]
fn polls_that_end_by_overflow_are_armed_again() {
    let Some((mut world, pairs)) = crowd() else {
        return;
    };
    for round in 1..=5 {
        // All at once, while nobody takes completions.
        for (mut stream, _) in pairs.iter().map(|(stream, socket)| (stream, socket)) {
            stream.write_all(b"ping").unwrap();
        }
        world.until("everybody heard", |events| {
            let bytes: usize = events
                .iter()
                .map(|event| {
                    if let Event::Received(_, bytes) = event {
                        bytes.len()
                    } else {
                        0
                    }
                })
                .sum();
            bytes == 4 * round * COUNT as usize
        });
    }
    for index in 0..COUNT {
        assert_eq!(
            received(&world.events, token(index)),
            b"pingpingpingpingping"
        );
    }
}

#[test]
fn failed_sends_are_reported_although_they_overflow() {
    let Some((mut world, mut pairs)) = crowd() else {
        return;
    };
    for (stream, _) in &pairs {
        socket2::SockRef::from(stream)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    }
    let sockets: Vec<_> = pairs.iter().map(|(_, socket)| *socket).collect();
    // Every other one goes.
    let mut index = 0;
    pairs.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    world.until("the resets", |events| {
        events
            .iter()
            .filter(|event| matches!(event, Event::Failed(..)))
            .count()
            == COUNT as usize / 2
    });
    let mut ops: Vec<_> = sockets
        .iter()
        .map(|socket| SendOp::new(*socket, b"pong"))
        .collect();
    world.reactor.send_batch(&mut ops);
    for (index, op) in ops.iter().enumerate() {
        let expected = if index % 2 == 0 {
            Sent::Failed(libc::EPIPE)
        } else {
            Sent::All
        };
        assert_eq!(op.sent, expected, "send {index}");
    }
    for (stream, _) in &mut pairs {
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"pong");
    }
}

#[test]
fn closes_and_accepts_survive_overflow() {
    let Some((mut world, pairs)) = crowd() else {
        return;
    };
    for (index, (mut stream, socket)) in (0..).zip(pairs) {
        stream.write_all(&pattern(10)).unwrap();
        world.close(socket, token(index));
    }
    for index in 0..COUNT {
        let (mut stream, socket) = world.pair(token(1000 + index));
        stream.write_all(b"next").unwrap();
        world.until_received(token(1000 + index), 4);
        world.close(socket, token(1000 + index));
    }
}
