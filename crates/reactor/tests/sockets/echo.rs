//! Bytes in, bytes out.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, pattern, received, token};
use myriad_reactor::{Parts, SendOp, Sent};
use std::io::{IoSlice, Read, Write};

on_both!(
    echoes,
    receives_a_long_message_in_order,
    receives_what_comes_in_pieces,
    sends_gathered_parts,
    serves_many_in_one_batch,
    bytes_sent_before_registering_arrive,
);

fn echoes<R: Real>() {
    let mut world = World::<R>::listening(16);
    let (mut stream, socket) = world.pair(token(5));
    stream.write_all(b"hello").unwrap();
    let bytes = world.until_received(token(5), 5);
    let mut ops = [SendOp::new(socket, &bytes)];
    world.reactor.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::All);
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
}

fn receives_a_long_message_in_order<R: Real>() {
    let mut world = World::<R>::listening(16);
    let (mut stream, _) = world.pair(token(1));
    let sent = pattern(3_000_000);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stream.write_all(&copy));
    let bytes = world.until_received(token(1), sent.len());
    writer.join().unwrap().unwrap();
    assert!(bytes == sent);
}

fn receives_what_comes_in_pieces<R: Real>() {
    let mut world = World::<R>::listening(16);
    let (mut stream, _) = world.pair(token(1));
    let sent = pattern(40);
    for (count, byte) in sent.iter().enumerate() {
        stream.write_all(&[*byte]).unwrap();
        let bytes = world.until_received(token(1), count + 1);
        assert_eq!(bytes, sent[..=count]);
    }
}

fn sends_gathered_parts<R: Real>() {
    let mut world = World::<R>::listening(16);
    let (stream, socket) = world.pair(token(1));
    let (other, other_socket) = world.pair(token(2));
    let parts: Vec<Vec<u8>> = (0..64).map(|part| pattern(part * 3)).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut ops = [
        SendOp {
            socket,
            parts: Parts::Many(&slices),
            sent: Sent::All,
        },
        SendOp {
            socket: other_socket,
            parts: Parts::Many(&slices[..2]),
            sent: Sent::All,
        },
    ];
    world.reactor.send_batch(&mut ops);
    assert_eq!([ops[0].sent, ops[1].sent], [Sent::All, Sent::All]);
    for (mut stream, count) in [(&stream, 64), (&other, 2)] {
        let expected = parts[..count].concat();
        let mut bytes = vec![0; expected.len()];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, expected);
    }
}

fn serves_many_in_one_batch<R: Real>() {
    const COUNT: u32 = 700;
    let mut world = World::<R>::listening(2000);
    let pairs: Vec<_> = (0..COUNT).map(|index| world.pair(token(index))).collect();
    let messages: Vec<String> = (0..COUNT).map(|index| format!("to {index:04}")).collect();
    let mut ops: Vec<_> = pairs
        .iter()
        .zip(&messages)
        .map(|((_, socket), message)| SendOp::new(*socket, message.as_bytes()))
        .collect();
    world.reactor.send_batch(&mut ops);
    assert!(ops.iter().all(|op| op.sent == Sent::All));
    for ((stream, _), message) in pairs.iter().zip(&messages) {
        let mut bytes = [0; 7];
        { stream }.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, message.as_bytes());
        { stream }.write_all(&bytes).unwrap();
    }
    world.until("every echo", |events| {
        events
            .iter()
            .filter(|event| matches!(event, Event::Received(..)))
            .count()
            >= COUNT as usize
    });
    for (index, message) in (0..COUNT).zip(&messages) {
        assert_eq!(received(&world.events, token(index)), message.as_bytes());
    }
}

fn bytes_sent_before_registering_arrive<R: Real>() {
    let mut world = World::<R>::listening(16);
    let mut stream = std::net::TcpStream::connect(world.address).unwrap();
    stream.write_all(b"early").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let socket = world.accepted();
    world.reactor.register(socket, token(9));
    world.until("the end", |events| {
        events.contains(&Event::Finished(token(9)))
    });
    assert_eq!(
        world.events,
        [
            Event::Received(token(9), b"early".to_vec()),
            Event::Finished(token(9))
        ]
    );
}
