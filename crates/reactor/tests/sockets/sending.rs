//! Sends that the kernel takes whole, in part, or not at all.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, pattern, read_to_end, token};
use myriad_reactor::{Parts, SendOp, Sent};
use std::io::{IoSlice, Read};
use std::net::TcpStream;

on_both!(
    short_writes_resume_at_the_right_byte,
    gathered_short_writes_resume_at_the_right_byte,
    a_full_socket_takes_nothing_and_disturbs_nobody,
    batches_larger_than_the_queue,
    a_broken_connection_fails_alone,
    one_thread_many_gathered_sends,
    writable_is_reported_once_per_request,
    a_bufferful_is_more_than_one_segment,
);

/// Small enough that a megabyte never fits.
const SEND_BUFFER_BYTES: u32 = 16 * 1024;

fn short_writes_resume_at_the_right_byte<R: Real>() {
    let mut world = World::<R>::listening_with(8, Some(SEND_BUFFER_BYTES));
    let (stream, socket) = world.pair(token(1));
    let bytes = pattern(2_000_003);
    let reader = read_to_end(stream);
    world.send_all(socket, token(1), &bytes);
    world.close(socket, token(1));
    world.turn_until("the reader is done", || reader.is_finished());
    assert!(reader.join().unwrap().unwrap() == bytes);
}

fn gathered_short_writes_resume_at_the_right_byte<R: Real>() {
    let mut world = World::<R>::listening_with(8, Some(SEND_BUFFER_BYTES));
    let (stream, socket) = world.pair(token(1));
    let bytes = pattern(1_000_017);
    let reader = read_to_end(stream);
    let mut sent = 0;
    while sent < bytes.len() {
        // Slices of odd sizes, so that short writes end inside one.
        let slices: Vec<IoSlice<'_>> = bytes[sent..]
            .chunks(7_777)
            .take(60)
            .map(IoSlice::new)
            .collect();
        let asked: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut ops = [SendOp {
            socket,
            parts: Parts::Many(&slices),
            sent: Sent::All,
        }];
        world.reactor.send_batch(&mut ops);
        match ops[0].sent {
            Sent::All => sent += asked,
            Sent::Partly(count) => {
                assert!(count < asked);
                sent += count;
                world.until_writable(socket, token(1));
            }
            Sent::Failed(errno) => panic!("errno {errno}"),
        }
    }
    world.close(socket, token(1));
    world.turn_until("the reader is done", || reader.is_finished());
    assert!(reader.join().unwrap().unwrap() == bytes);
}

/// Else the peer's kernel would wait 40 ms before it acknowledges each; loopback's own segments are 65,483 bytes long.
fn a_bufferful_is_more_than_one_segment<R: Real>() {
    for (buffer, segment_max) in [(SEND_BUFFER_BYTES, 8 * 1024), (512, 536), (1 << 20, 32_767)] {
        let mut world = World::<R>::listening_with(8, Some(buffer));
        let (stream, _) = world.pair(token(1));
        // What the listener announced bounds both directions.
        let segment = socket2::SockRef::from(&stream).tcp_mss().unwrap();
        assert!(segment <= segment_max, "{segment} with {buffer}");
    }
}

/// Sends until the socket takes nothing more; returns what it took.
fn fill<R: Real>(world: &mut World<R>, socket: myriad_reactor::Socket, chunk: &[u8]) -> usize {
    let mut taken = 0;
    let mut full = 0;
    // What the peer's window takes frees room in the socket a moment later; twice nothing is full enough.
    while full < 2 {
        let mut ops = [SendOp::new(socket, chunk)];
        world.reactor.send_batch(&mut ops);
        match ops[0].sent {
            Sent::All => taken += chunk.len(),
            Sent::Partly(count) => {
                taken += count;
                full += usize::from(count == 0);
            }
            Sent::Failed(errno) => panic!("errno {errno}"),
        }
    }
    taken
}

fn a_full_socket_takes_nothing_and_disturbs_nobody<R: Real>() {
    let mut world = World::<R>::listening_with(600, Some(SEND_BUFFER_BYTES));
    let pairs: Vec<(TcpStream, _)> = (0..500).map(|index| world.pair(token(index))).collect();
    let stalled = 250;
    fill(&mut world, pairs[stalled].1, &pattern(100_000));
    let message = pattern(333);
    // The kernel may find room for some bytes after all, a moment later; for a megabyte it never does.
    let hopeless = pattern(1_000_000);
    for _ in 0..3 {
        let mut ops: Vec<_> = pairs
            .iter()
            .map(|(_, socket)| SendOp::new(*socket, &message))
            .collect();
        ops[stalled].parts = Parts::One(&hopeless);
        world.reactor.send_batch(&mut ops);
        for (index, op) in ops.iter().enumerate() {
            if index == stalled {
                assert!(matches!(op.sent, Sent::Partly(_)));
            } else {
                assert_eq!(op.sent, Sent::All);
            }
        }
    }
    let expected = message.repeat(3);
    for (index, (stream, _)) in pairs.iter().enumerate() {
        if index != stalled {
            let mut bytes = vec![0; expected.len()];
            { stream }.read_exact(&mut bytes).unwrap();
            assert!(bytes == expected);
        }
    }
}

fn batches_larger_than_the_queue<R: Real>() {
    const ROUNDS: usize = 20;
    let mut world = World::<R>::listening(2000);
    let pairs: Vec<(TcpStream, _)> = (0..1500).map(|index| world.pair(token(index))).collect();
    for round in 0..ROUNDS {
        let message = round.to_le_bytes();
        let mut ops: Vec<_> = pairs
            .iter()
            .map(|(_, socket)| SendOp::new(*socket, &message))
            .collect();
        world.reactor.send_batch(&mut ops);
        assert!(ops.iter().all(|op| op.sent == Sent::All));
    }
    let expected: Vec<u8> = (0..ROUNDS).flat_map(usize::to_le_bytes).collect();
    for (stream, _) in &pairs {
        let mut bytes = vec![0; expected.len()];
        { stream }.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
}

fn a_broken_connection_fails_alone<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (dead, dead_socket) = world.pair(token(1));
    let (mut alive, alive_socket) = world.pair(token(2));
    socket2::SockRef::from(&dead)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(dead);
    world.until("the reset", |events| {
        events
            .iter()
            .any(|event| matches!(event, Event::Failed(..)))
    });
    assert_eq!(world.events, [Event::Failed(token(1), libc::ECONNRESET)]);
    let mut ops = [
        SendOp::new(dead_socket, b"nobody"),
        SendOp::new(alive_socket, b"somebody"),
    ];
    world.reactor.send_batch(&mut ops);
    assert_eq!(
        [ops[0].sent, ops[1].sent],
        [Sent::Failed(libc::EPIPE), Sent::All]
    );
    let mut bytes = [0; 8];
    alive.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"somebody");
}

/// More gathered sends in one batch than there are message headers.
fn one_thread_many_gathered_sends<R: Real>() {
    let mut world = World::<R>::listening(1000);
    let pairs: Vec<(TcpStream, _)> = (0..700).map(|index| world.pair(token(index))).collect();
    let names: Vec<String> = (0..700).map(|index| format!("{index:05}")).collect();
    let slices: Vec<[IoSlice<'_>; 3]> = names
        .iter()
        .map(|name| {
            [
                IoSlice::new(b"<"),
                IoSlice::new(name.as_bytes()),
                IoSlice::new(b">"),
            ]
        })
        .collect();
    let mut ops: Vec<_> = pairs
        .iter()
        .zip(&slices)
        .map(|((_, socket), slices)| SendOp {
            socket: *socket,
            parts: Parts::Many(slices),
            sent: Sent::All,
        })
        .collect();
    world.reactor.send_batch(&mut ops);
    assert!(ops.iter().all(|op| op.sent == Sent::All));
    for ((stream, _), name) in pairs.iter().zip(&names) {
        let mut bytes = [0; 7];
        { stream }.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, format!("<{name}>").as_bytes());
    }
}

fn writable_is_reported_once_per_request<R: Real>() {
    let mut world = World::<R>::listening_with(8, Some(SEND_BUFFER_BYTES));
    let (mut stream, socket) = world.pair(token(1));
    world.until_writable(socket, token(1));
    let taken = fill(&mut world, socket, &pattern(200_000));
    world.events.clear();
    world.reactor.notify_writable(socket, token(1));
    world.reactor.notify_writable(socket, token(1));
    let mut bytes = vec![0; taken];
    stream.read_exact(&mut bytes).unwrap();
    world.until("writable", |events| {
        events.contains(&Event::Writable(token(1)))
    });
    // Everything the loop can still bring is brought by a message after it.
    std::io::Write::write_all(&mut stream, b"after").unwrap();
    world.until_received(token(1), 5);
    let count = world
        .events
        .iter()
        .filter(|event| **event == Event::Writable(token(1)))
        .count();
    assert_eq!(count, 1);
}
