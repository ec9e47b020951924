//! Descriptor tables: a thread's own, and what listeners look like.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, World, in_child_with_limit, token};
use myriad_reactor::{Epoll, Reactor, Setup, Waker, descriptor_limit, listen, unshare_descriptors};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

fn open_count() -> usize {
    std::fs::read_dir("/proc/thread-self/fd").unwrap().count() - 1
}

#[test]
fn an_unshared_table_holds_stdio_and_what_was_kept() {
    let kept = std::fs::File::open("/dev/zero").unwrap();
    let others: Vec<_> = (0..10)
        .map(|_| std::fs::File::open("/dev/null").unwrap())
        .collect();
    let kept_number = kept.as_raw_fd();
    let (count, byte) = std::thread::spawn(move || {
        unshare_descriptors(&[kept_number]).unwrap();
        let mut bytes = [1];
        let path = format!("/proc/thread-self/fd/{kept_number}");
        std::fs::File::open(path)
            .unwrap()
            .read_exact(&mut bytes)
            .unwrap();
        (open_count(), bytes[0])
    })
    .join()
    .unwrap();
    assert_eq!((count, byte), (4, 0));
    // Nothing was closed here.
    for file in &others {
        file.metadata().unwrap();
    }
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let limit = descriptor_limit().unwrap();
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert_eq!(now.current, now.maximum);
    assert_eq!(now.maximum, Some(limit as u64));
}

/// Two threads, each with a table of its own, hold more than one table does.
#[test]
fn epoll_threads_with_their_own_tables_each_have_the_limit() {
    in_child_with_limit(200, || {
        const EACH: usize = 150;
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let waker = Waker::new().unwrap();
                let listener = listen(([127, 0, 0, 1], 0).into(), 1024, None, false).unwrap();
                let address = listener.local_addr().unwrap();
                let (ready, is_ready) = std::sync::mpsc::channel();
                let stop = waker.clone();
                let thread = std::thread::spawn(move || {
                    unshare_descriptors(&[listener.as_raw_fd(), waker.descriptor().unwrap()])
                        .unwrap();
                    let setup = Setup {
                        waker,
                        listeners: vec![listener],
                        sockets_max: 1000,
                        reactors: 1,
                        speaks_first: false,
                    };
                    let mut reactor = Epoll::new(setup).unwrap();
                    assert!(reactor.capacity() >= EACH);
                    reactor.accept(true);
                    let mut completions = myriad_reactor::Completions::new();
                    let mut accepted = 0;
                    loop {
                        reactor.wait(None, &mut completions).unwrap();
                        for completion in &completions.list {
                            match completion {
                                myriad_reactor::Completion::Accepted { .. } => accepted += 1,
                                myriad_reactor::Completion::Woken => return accepted,
                                other => panic!("{other:?}"),
                            }
                        }
                        if accepted == EACH {
                            ready.send(()).unwrap();
                        }
                    }
                });
                (thread, is_ready, stop, address)
            })
            .collect();
        // The clients need tables as well: one per crowd.
        let crowds: Vec<_> = threads
            .iter()
            .map(|(_, _, _, address)| {
                let address = *address;
                let (done, is_done) = std::sync::mpsc::channel::<()>();
                let crowd = std::thread::spawn(move || {
                    unshare_descriptors(&[]).unwrap();
                    let streams: Vec<_> = (0..EACH)
                        .map(|_| TcpStream::connect(address).unwrap())
                        .collect();
                    let _ = is_done.recv();
                    drop(streams);
                });
                (crowd, done)
            })
            .collect();
        for (thread, is_ready, stop, _) in threads {
            is_ready.recv().unwrap();
            stop.wake();
            assert_eq!(thread.join().unwrap(), EACH);
        }
        for (crowd, done) in crowds {
            drop(done);
            crowd.join().unwrap();
        }
    });
}

#[test]
fn a_port_in_use_is_an_error_unless_shared() {
    let alone = listen(([127, 0, 0, 1], 0).into(), 16, None, false).unwrap();
    let address = alone.local_addr().unwrap();
    assert_eq!(
        listen(address, 16, None, false).unwrap_err().kind(),
        std::io::ErrorKind::AddrInUse
    );
    assert_eq!(
        listen(address, 16, None, true).unwrap_err().kind(),
        std::io::ErrorKind::AddrInUse
    );
    let shared = listen(([127, 0, 0, 1], 0).into(), 16, None, true).unwrap();
    listen(shared.local_addr().unwrap(), 16, None, true).unwrap();
}

#[test]
fn accepted_sockets_inherit_what_the_listener_has() {
    let mut world = World::<Epoll>::listening_with(8, Some(20_000));
    let (mut stream, socket) = world.pair(token(1));
    stream.write_all(b"x").unwrap();
    world.until_received(token(1), 1);
    let handle = world.reactor.transfer(socket, token(1)).unwrap();
    let handle = socket2::Socket::from(handle);
    assert!(handle.tcp_nodelay().unwrap());
    // Doubled by the kernel.
    assert_eq!(handle.send_buffer_size().unwrap(), 40_000);
    world.turn(Duration::ZERO);
    assert!(!world.events.contains(&Event::Finished(token(1))));
}
