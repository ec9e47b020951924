//! Taking a connection in.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, in_child_with_limit, on_both, pattern, token};
use myriad_reactor::{SendOp, Sent, Token};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

on_both!(
    an_adopted_connection_is_like_an_accepted_one,
    input_from_before_arrives_with_its_end,
    a_reset_from_before_is_reported,
    a_full_reactor_gives_the_connection_back,
    a_slot_is_adopted_into_right_after_its_close,
    it_goes_back_and_forth,
    it_works_while_accepting_is_off,
    nothing_is_left_open,
);

/// A connection that a reactor has given away: the test's end, and the handle.
fn transferred<R: Real>(world: &mut World<R>, token: Token) -> (TcpStream, OwnedFd) {
    let (near, socket) = world.pair(token);
    (near, world.reactor.transfer(socket, token).unwrap())
}

fn an_adopted_connection_is_like_an_accepted_one<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(8));
    let (mut near, handle) = transferred(&mut first, token(1));
    let socket = second.reactor.adopt(handle).unwrap();
    let mut addresses = Vec::new();
    second.reactor.peer_addresses(&[socket], &mut addresses);
    assert_eq!(addresses, [Some(near.local_addr().unwrap())]);
    second.reactor.register(socket, token(2));
    near.write_all(b"question").unwrap();
    assert_eq!(second.until_received(token(2), 8), b"question");
    let sent = pattern(8 << 20);
    let reader = crate::support::read_to_end(near.try_clone().unwrap());
    second.send_all(socket, token(2), &sent);
    second.close(socket, token(2));
    second.turn_until("the peer's end", || reader.is_finished());
    assert!(reader.join().unwrap().unwrap() == sent);
    drop(near);
    first.turn(std::time::Duration::ZERO);
    assert_eq!(first.events, []);
}

fn input_from_before_arrives_with_its_end<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(8));
    let (mut near, handle) = transferred(&mut first, token(1));
    let sent = pattern(60_000);
    near.write_all(&sent).unwrap();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let socket = second.reactor.adopt(handle).unwrap();
    second.reactor.register(socket, token(2));
    second.until("the end", |events| {
        events.contains(&Event::Finished(token(2)))
    });
    assert!(second.received(token(2)) == sent);
    second.close(socket, token(2));
}

fn a_reset_from_before_is_reported<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(8));
    let (near, handle) = transferred(&mut first, token(1));
    socket2::SockRef::from(&near)
        .set_linger(Some(std::time::Duration::ZERO))
        .unwrap();
    drop(near);
    let socket = second.reactor.adopt(handle).unwrap();
    second.reactor.register(socket, token(2));
    second.until("the failure", |events| {
        events
            .iter()
            .any(|event| matches!(event, Event::Failed(whose, _) if *whose == token(2)))
    });
    second.close(socket, token(2));
}

fn a_full_reactor_gives_the_connection_back<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(1));
    let (_near, held) = transferred(&mut first, token(1));
    let held = second.reactor.adopt(held).unwrap();
    second.reactor.register(held, token(1));
    let (mut near, handle) = transferred(&mut first, token(2));
    let refused = second.reactor.adopt(handle).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(libc::EMFILE));
    TcpStream::from(refused.handle).write_all(b"full").unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "full");
    // A close makes room.
    second.close(held, token(1));
    second.turn(std::time::Duration::ZERO);
    second.turn(std::time::Duration::ZERO);
    let (_near, handle) = transferred(&mut first, token(3));
    second.reactor.adopt(handle).unwrap();
}

/// io_uring fills a slot at once and closes one in the order of its queue.
fn a_slot_is_adopted_into_right_after_its_close<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(64), World::<R>::listening(16));
    for round in 0..50 {
        let (mut near, handle) = transferred(&mut first, token(round));
        let socket = second.reactor.adopt(handle).unwrap();
        // Without a poll nothing has to end before the slot is vacant.
        second.close(socket, token(round));
        second.turn(std::time::Duration::ZERO);
        let (mut next, handle) = transferred(&mut first, token(100 + round));
        let socket = second.reactor.adopt(handle).unwrap();
        second.turn(std::time::Duration::ZERO);
        let mut ops = [SendOp::new(socket, b"mine")];
        second.reactor.send_batch(&mut ops);
        assert_eq!(ops[0].sent, Sent::All);
        let mut bytes = [0; 4];
        next.read_exact(&mut bytes).unwrap();
        assert_eq!(near.read(&mut bytes).unwrap(), 0);
        second.close(socket, token(100 + round));
    }
}

fn it_goes_back_and_forth<R: Real>() {
    let mut worlds = [World::<R>::listening(4), World::<R>::listening(4)];
    let (mut near, mut socket) = worlds[0].pair(token(0));
    for round in 0..100_u32 {
        let (from, to) = (round as usize % 2, (round as usize + 1) % 2);
        // The input comes before, between or after.
        let byte = [u8::try_from(round).unwrap()];
        if round % 3 == 0 {
            near.write_all(&byte).unwrap();
        }
        let handle = worlds[from].reactor.transfer(socket, token(round)).unwrap();
        if round % 3 == 1 {
            near.write_all(&byte).unwrap();
        }
        socket = worlds[to].reactor.adopt(handle).unwrap();
        worlds[to].reactor.register(socket, token(round + 1));
        if round % 3 == 2 {
            near.write_all(&byte).unwrap();
        }
        assert_eq!(worlds[to].until_received(token(round + 1), 1), byte);
    }
}

fn it_works_while_accepting_is_off<R: Real>() {
    let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(8));
    second.reactor.accept(false);
    let (mut near, handle) = transferred(&mut first, token(1));
    let socket = second.reactor.adopt(handle).unwrap();
    second.reactor.register(socket, token(2));
    near.write_all(b"in").unwrap();
    assert_eq!(second.until_received(token(2), 2), b"in");
}

fn nothing_is_left_open<R: Real>() {
    // A process of its own: descriptors are the process's.
    in_child_with_limit(256, || {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (mut first, mut second) = (World::<R>::listening(8), World::<R>::listening(8));
        let before = open();
        for round in 0..100 {
            let (mut near, handle) = transferred(&mut first, token(round));
            let socket = second.reactor.adopt(handle).unwrap();
            second.reactor.register(socket, token(round));
            near.write_all(b"x").unwrap();
            second.until_received(token(round), 1);
            second.close(socket, token(round));
            second.turn(std::time::Duration::ZERO);
            assert_eq!(near.read(&mut [0]).unwrap(), 0);
        }
        second.turn(std::time::Duration::ZERO);
        assert_eq!(open(), before);
    });
}
