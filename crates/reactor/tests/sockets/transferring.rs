//! Giving a connection away.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, pattern, token};
use myriad_reactor::{SendOp, Sent};
use std::io::{Read, Write};
use std::net::TcpStream;

on_both!(
    an_ordinary_stream_goes_on_where_the_reactor_stopped,
    unread_bytes_stay_in_the_kernel,
    the_reactor_hears_nothing_afterwards,
    handles_are_nonblocking_and_close_on_exec,
    slots_come_back,
);

fn stream(fd: std::os::fd::OwnedFd) -> TcpStream {
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false).unwrap();
    stream
}

fn an_ordinary_stream_goes_on_where_the_reactor_stopped<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut near, socket) = world.pair(token(1));
    near.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    world.until_received(token(1), 18);
    let mut far = stream(world.reactor.transfer(socket, token(1)).unwrap());
    far.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    let mut answer = [0; 19];
    near.read_exact(&mut answer).unwrap();
    near.write_all(b"more").unwrap();
    let mut more = [0; 4];
    far.read_exact(&mut more).unwrap();
    assert_eq!(&more, b"more");
    assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
    drop(far);
    assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
}

fn unread_bytes_stay_in_the_kernel<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut near, socket) = world.pair(token(1));
    let sent = pattern(60_000);
    near.write_all(&sent).unwrap();
    world.until_received(token(1), 1);
    let mut far = stream(world.reactor.transfer(socket, token(1)).unwrap());
    let mut bytes = world.received(token(1));
    let mut rest = vec![0; sent.len() - bytes.len()];
    far.read_exact(&mut rest).unwrap();
    bytes.append(&mut rest);
    assert!(bytes == sent);
}

fn the_reactor_hears_nothing_afterwards<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut near, socket) = world.pair(token(1));
    let (mut other, _) = world.pair(token(2));
    world.reactor.notify_writable(socket, token(1));
    let far = world.reactor.transfer(socket, token(1)).unwrap();
    near.write_all(b"not for the reactor").unwrap();
    other.write_all(b"for it").unwrap();
    world.until_received(token(2), 6);
    assert_eq!(world.received(token(1)), b"");
    assert!(!world.events.contains(&Event::Writable(token(2))));
    drop(far);
}

fn handles_are_nonblocking_and_close_on_exec<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (_near, socket) = world.pair(token(1));
    let far = world.reactor.transfer(socket, token(1)).unwrap();
    assert!(
        rustix::fs::fcntl_getfl(&far)
            .unwrap()
            .contains(rustix::fs::OFlags::NONBLOCK)
    );
    assert!(
        rustix::io::fcntl_getfd(&far)
            .unwrap()
            .contains(rustix::io::FdFlags::CLOEXEC)
    );
}

fn slots_come_back<R: Real>() {
    let mut world = World::<R>::listening(2);
    for round in 0..50 {
        let (mut near, socket) = world.pair(token(round));
        let mut far = stream(world.reactor.transfer(socket, token(round)).unwrap());
        far.write_all(b"mine").unwrap();
        let mut bytes = [0; 4];
        near.read_exact(&mut bytes).unwrap();
        let (mut next, socket) = world.pair(token(1000 + round));
        let mut ops = [SendOp::new(socket, b"kept")];
        world.reactor.send_batch(&mut ops);
        assert_eq!(ops[0].sent, Sent::All);
        next.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"kept");
        world.close(socket, token(1000 + round));
    }
}
