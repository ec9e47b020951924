//! How connections end, from either side.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, pattern, token};
use myriad_reactor::{Close, SendOp, Sent};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

on_both!(
    closing_sends_fin_although_a_receive_is_armed,
    closing_without_registering_sends_fin,
    closing_delivers_what_was_sent_before,
    reset_sends_rst,
    reset_drops_what_the_peer_does_not_read,
    shutdown_is_half_a_close,
    shutdown_and_close_in_one_turn,
    the_peers_fin_is_reported_once_and_sending_goes_on,
    the_peers_reset_is_reported_once,
    closing_while_backpressured_asks_for_no_more,
    a_reused_slot_never_speaks_for_its_former_socket,
    a_mass_close_frees_every_slot,
    dropping_the_reactor_closes_everything,
);

fn expect_end(stream: &mut TcpStream) {
    // Unlike `read`, this goes on when a signal interrupts it, and so does the end of a ring.
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
}

fn expect_reset(stream: &mut TcpStream) {
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

/// Turns on another thread's behalf while a blocking read waits for what the turns bring about.
fn beside<R: Real, T: Send>(world: &mut World<R>, blocking: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let handle = scope.spawn(blocking);
        world.turn_until("the other side is done", || handle.is_finished());
        handle.join().unwrap()
    })
}

fn closing_sends_fin_although_a_receive_is_armed<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    // Armed for certain: it has received.
    stream.write_all(b"x").unwrap();
    world.until_received(token(1), 1);
    world.close(socket, token(1));
    beside(&mut world, || expect_end(&mut stream));
    assert_eq!(world.events, [Event::Received(token(1), b"x".to_vec())]);
}

fn closing_without_registering_sends_fin<R: Real>() {
    let mut world = World::<R>::listening(8);
    let mut stream = TcpStream::connect(world.address).unwrap();
    let socket = world.accepted();
    world.close(socket, token(1));
    beside(&mut world, || expect_end(&mut stream));
}

fn closing_delivers_what_was_sent_before<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    let bytes = pattern(20_000);
    let mut ops = [SendOp::new(socket, &bytes)];
    world.reactor.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::All);
    world.close(socket, token(1));
    let read = beside(&mut world, || {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    });
    assert!(read == bytes);
}

fn reset_sends_rst<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    world.reactor.close(socket, token(1), Close::Reset);
    beside(&mut world, || expect_reset(&mut stream));
}

fn reset_drops_what_the_peer_does_not_read<R: Real>() {
    let mut world = World::<R>::listening_with(8, Some(64 * 1024));
    let (mut stream, socket) = world.pair(token(1));
    let bytes = pattern(8_000_000);
    let mut ops = [SendOp::new(socket, &bytes)];
    world.reactor.send_batch(&mut ops);
    assert!(matches!(ops[0].sent, Sent::Partly(_)));
    world.reactor.close(socket, token(1), Close::Reset);
    beside(&mut world, || expect_reset(&mut stream));
}

fn shutdown_is_half_a_close<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    let mut ops = [SendOp::new(socket, b"last words")];
    world.reactor.send_batch(&mut ops);
    world.reactor.shutdown(socket);
    let read = beside(&mut world, || {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    });
    assert_eq!(read, b"last words");
    stream.write_all(b"still heard").unwrap();
    assert_eq!(world.until_received(token(1), 11), b"still heard");
    stream.shutdown(Shutdown::Write).unwrap();
    world.until("the end", |events| {
        events.contains(&Event::Finished(token(1)))
    });
    world.close(socket, token(1));
}

fn shutdown_and_close_in_one_turn<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    world.reactor.shutdown(socket);
    world.close(socket, token(1));
    beside(&mut world, || expect_end(&mut stream));
}

fn the_peers_fin_is_reported_once_and_sending_goes_on<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    let (mut other, _) = world.pair(token(2));
    stream.write_all(b"bye").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    world.until("the end", |events| {
        events.contains(&Event::Finished(token(1)))
    });
    let mut ops = [SendOp::new(socket, b"answer")];
    world.reactor.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::All);
    // Closed for reading and writing now, which the kernel signals again.
    world.reactor.shutdown(socket);
    beside(&mut world, || {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    });
    other.write_all(b"later").unwrap();
    world.until_received(token(2), 5);
    assert_eq!(world.ends(), 1);
    assert_eq!(world.received(token(1)), b"bye");
}

fn the_peers_reset_is_reported_once<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (stream, socket) = world.pair(token(1));
    let (mut other, _) = world.pair(token(2));
    socket2::SockRef::from(&stream)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(stream);
    world.until("the reset", |events| {
        events.contains(&Event::Failed(token(1), libc::ECONNRESET))
    });
    world.reactor.notify_writable(socket, token(1));
    other.write_all(b"later").unwrap();
    world.until_received(token(2), 5);
    assert_eq!(world.ends(), 1);
    world.close(socket, token(1));
}

fn closing_while_backpressured_asks_for_no_more<R: Real>() {
    let mut world = World::<R>::listening_with(8, Some(16 * 1024));
    let (mut stream, socket) = world.pair(token(1));
    let bytes = pattern(4_000_000);
    let mut ops = [SendOp::new(socket, &bytes)];
    world.reactor.send_batch(&mut ops);
    let Sent::Partly(count) = ops[0].sent else {
        panic!("it all fit")
    };
    world.reactor.notify_writable(socket, token(1));
    world.turn(std::time::Duration::ZERO);
    world.close(socket, token(1));
    let read = beside(&mut world, || {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    });
    assert!(read == bytes[..count]);
    let (mut next, _) = world.pair(token(2));
    next.write_all(b"next").unwrap();
    world.until_received(token(2), 4);
    assert!(!world.events.contains(&Event::Writable(token(2))));
}

fn a_reused_slot_never_speaks_for_its_former_socket<R: Real>() {
    let mut world = World::<R>::listening(1);
    for round in 0..300_u32 {
        let (old, new) = (token(2 * round), token(2 * round + 1));
        let (mut stream, socket) = world.pair(old);
        stream.write_all(&vec![b'o'; 30_000]).unwrap();
        world.until_received(old, 1);
        // More waits: in the kernel, and in the driver's queue.
        world.close(socket, old);
        let (mut stream, socket) = world.pair(new);
        stream.write_all(&[b'n'; 2_000]).unwrap();
        assert_eq!(world.until_received(new, 2_000), [b'n'; 2_000]);
        assert!(world.received(old).iter().all(|byte| *byte == b'o'));
        world.close(socket, new);
        world.events.clear();
    }
}

fn a_mass_close_frees_every_slot<R: Real>() {
    const COUNT: u32 = 900;
    let mut world = World::<R>::listening(COUNT as usize);
    for _ in 0..3 {
        let pairs: Vec<_> = (0..COUNT).map(|index| world.pair(token(index))).collect();
        for (index, (_, socket)) in (0..).zip(&pairs) {
            world.close(*socket, token(index));
        }
        beside(&mut world, || {
            pairs
                .into_iter()
                .for_each(|(mut stream, _)| expect_end(&mut stream))
        });
        // Full for a moment, which is told.
        world
            .events
            .retain(|event| *event != Event::AcceptPaused(libc::EMFILE));
        assert_eq!(world.events, []);
    }
}

fn dropping_the_reactor_closes_everything<R: Real>() {
    let mut world = World::<R>::listening(100);
    let mut pairs: Vec<_> = (0..100).map(|index| world.pair(token(index))).collect();
    drop(world);
    for (stream, _) in &mut pairs {
        expect_end(stream);
    }
}
