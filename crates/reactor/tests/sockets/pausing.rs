//! Readers that stall, and peers that vanish.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, pattern, token};
use myriad_reactor::{Close, SendOp, Sent};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

on_both!(
    a_paused_socket_keeps_its_input_until_it_is_resumed,
    a_peer_cannot_send_much_to_a_paused_socket,
    the_peers_end_resumes_a_paused_socket,
    the_peers_reset_resumes_a_paused_socket,
    a_socket_may_be_paused_while_its_end_is_on_the_way,
    what_was_paused_is_no_state_of_the_next_socket,
    a_deaf_socket_acknowledges_nothing_and_sees_the_end,
);

/// Bytes that this end has sent and the other side's kernel has not acknowledged.
fn unacknowledged(stream: &TcpStream) -> usize {
    let hexadecimal = |address: SocketAddr| match address {
        SocketAddr::V4(address) => {
            let ip = u32::from_le_bytes(address.ip().octets());
            format!("{ip:08X}:{:04X}", address.port())
        }
        SocketAddr::V6(_) => unreachable!("the tests speak IPv4"),
    };
    let local = hexadecimal(stream.local_addr().unwrap());
    // Connections of other programs to other addresses may have the same port here.
    let peer = hexadecimal(stream.peer_addr().unwrap());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table.lines().map(|line| line.split_whitespace());
    let queues = rows.find_map(|mut row| {
        let is_ours = row.nth(1)? == local && row.next()? == peer;
        is_ours.then(|| row.nth(1))?
    });
    let (sent, _) = queues.unwrap().split_once(':').unwrap();
    usize::from_str_radix(sent, 16).unwrap()
}

fn a_paused_socket_keeps_its_input_until_it_is_resumed<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    let (mut other, _) = world.pair(token(2));
    stream.write_all(b"a").unwrap();
    world.until_received(token(1), 1);
    for round in 0..3_u8 {
        world.reactor.pause(socket, token(1));
        stream.write_all(b"bc").unwrap();
        // Another socket's input shows that there were waits in which it could have come.
        other.write_all(b"x").unwrap();
        world.until_received(token(2), usize::from(round) + 1);
        world.turn(Duration::ZERO);
        let before = 1 + 2 * usize::from(round);
        assert_eq!(world.received(token(1)).len(), before);
        world.reactor.resume(socket, token(1));
        world.until_received(token(1), before + 2);
    }
    world.reactor.resume(socket, token(1));
    stream.write_all(b"d").unwrap();
    assert_eq!(world.until_received(token(1), 8), b"abcbcbcd");
}

fn a_peer_cannot_send_much_to_a_paused_socket<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    world.reactor.pause(socket, token(1));
    stream.set_nonblocking(true).unwrap();
    let bytes = pattern(1 << 20);
    let mut written = 0;
    while written < 64 << 20 {
        match stream.write(&bytes[written % bytes.len()..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        world.turn(Duration::ZERO);
    }
    assert!(written < 64 << 20, "the window is closed");
    assert!(world.received(token(1)).is_empty());
    // Sending to the peer is not held up.
    let mut ops = [SendOp::new(socket, b"x")];
    world.reactor.send_batch(&mut ops);
    assert_eq!(ops[0].sent, Sent::All);
    world.reactor.resume(socket, token(1));
    let received = world.until_received(token(1), written);
    let expected: Vec<u8> = bytes.iter().copied().cycle().take(written).collect();
    assert!(received == expected);
}

fn the_peers_end_resumes_a_paused_socket<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    world.reactor.pause(socket, token(1));
    stream.write_all(b"last words").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    world.until("the end", |events| {
        events.contains(&Event::Finished(token(1)))
    });
    assert_eq!(world.received(token(1)), b"last words");
    assert_eq!(world.ends(), 1);
}

fn the_peers_reset_resumes_a_paused_socket<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (stream, socket) = world.pair(token(1));
    world.reactor.pause(socket, token(1));
    // Closing with unread input resets.
    let mut ops = [SendOp::new(socket, b"x")];
    world.reactor.send_batch(&mut ops);
    let mut byte = [0];
    stream.peek(&mut byte).unwrap();
    drop(stream);
    world.until("the end", |events| {
        let is_failure =
            |event: &Event| matches!(event, Event::Failed(whose, _) if *whose == token(1));
        events.iter().any(is_failure)
    });
    assert_eq!(world.ends(), 1);
}

fn a_socket_may_be_paused_while_its_end_is_on_the_way<R: Real>() {
    let mut world = World::<R>::listening(8);
    for round in 0..20 {
        let (mut stream, socket) = world.pair(token(round));
        stream.write_all(b"end").unwrap();
        drop(stream);
        if round % 2 == 0 {
            world.turn(Duration::ZERO);
        }
        world.reactor.pause(socket, token(round));
        world.until("the end", |events| {
            events.contains(&Event::Finished(token(round)))
        });
        assert_eq!(world.received(token(round)), b"end");
        world.close(socket, token(round));
    }
}

fn what_was_paused_is_no_state_of_the_next_socket<R: Real>() {
    let mut world = World::<R>::listening(1);
    for round in 0..5 {
        let (mut stream, socket) = world.pair(token(round));
        stream.write_all(b"x").unwrap();
        world.until_received(token(round), 1);
        world.reactor.pause(socket, token(round));
        world.reactor.close(socket, token(round), Close::Orderly);
        world.turn(Duration::ZERO);
    }
}

fn a_deaf_socket_acknowledges_nothing_and_sees_the_end<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, socket) = world.pair(token(1));
    let (mut other, _) = world.pair(token(2));
    stream.write_all(b"heard").unwrap();
    world.until_received(token(1), 5);
    world.turn_until("it is acknowledged", || unacknowledged(&stream) == 0);
    world.reactor.deafen(socket);
    // A ring may attach the filter a little later. What is sent over loopback before then is heard before what another sends.
    let mut heard = b"heard".to_vec();
    loop {
        stream.write_all(b"?").unwrap();
        other.write_all(b"x").unwrap();
        let rounds = world.received(token(2)).len() + 1;
        world.until_received(token(2), rounds);
        world.turn(Duration::ZERO);
        if world.received(token(1)).len() == heard.len() {
            break;
        }
        heard.push(b'?');
    }
    stream.write_all(b"in vain").unwrap();
    assert!(unacknowledged(&stream) >= 8);
    // The peer gives up.
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(stream);
    world.until("the end", |events| {
        let is_end = |event: &Event| matches!(event, Event::Failed(whose, _) if *whose == token(1));
        events.iter().any(is_end)
    });
    assert_eq!(world.received(token(1)), heard);
    let mut rest = Vec::new();
    other.set_nonblocking(true).unwrap();
    assert_eq!(
        other.read_to_end(&mut rest).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}
