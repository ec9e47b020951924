//! Waits end: by a wake-up, by a timeout, by work.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, on_both, token};
use myriad_reactor::{Completion, Completions, Driver, Epoll, Setup, Socket, Uring, Waker};
use std::net::TcpStream;
use std::time::{Duration, Instant};

on_both!(
    a_wake_from_another_thread_ends_an_endless_wait,
    a_wake_before_the_wait_counts,
    many_wakes_are_reported_once,
    traffic_is_not_a_wake,
    timeouts_end_a_wait,
    wakes_are_never_lost,
    input_left_for_later_is_reported,
    a_wait_reads_from_no_more_sockets_than_it_may,
);

fn a_wake_from_another_thread_ends_an_endless_wait<R: Real>() {
    let mut world = World::<R>::listening(8);
    let waker = world.waker.clone();
    let (entered, enter) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        enter.recv().unwrap();
        waker.wake();
    });
    entered.send(()).unwrap();
    let mut completions = Completions::new();
    while completions.list.is_empty() {
        world.reactor.wait(None, &mut completions).unwrap();
    }
    assert_eq!(completions.list, [Completion::Woken]);
    thread.join().unwrap();
}

fn a_wake_before_the_wait_counts<R: Real>() {
    let mut world = World::<R>::listening(8);
    world.waker.wake();
    world.reactor.wait(None, &mut Completions::new()).unwrap();
}

fn many_wakes_are_reported_once<R: Real>() {
    let mut world = World::<R>::listening(8);
    for _ in 0..1000 {
        world.waker.wake();
    }
    world.until("woken", |events| events.contains(&Event::Woken));
    world.turn(Duration::ZERO);
    assert_eq!(world.events, [Event::Woken]);
}

fn traffic_is_not_a_wake<R: Real>() {
    let mut world = World::<R>::listening(8);
    let (mut stream, _) = world.pair(token(1));
    for count in 1..100 {
        std::io::Write::write_all(&mut stream, b"x").unwrap();
        world.until_received(token(1), count);
    }
    assert!(!world.events.contains(&Event::Woken));
}

fn timeouts_end_a_wait<R: Real>() {
    let mut world = World::<R>::listening(8);
    let mut completions = Completions::new();
    for timeout in [0, 1, 7, 30].map(Duration::from_millis) {
        let started = Instant::now();
        world.reactor.wait(Some(timeout), &mut completions).unwrap();
        assert!(started.elapsed() >= timeout);
        assert_eq!(completions.list, []);
    }
}

/// Each wake asks for an answer before the next one comes, so one that is lost stops everything.
fn wakes_are_never_lost<R: Real>() {
    const COUNT: usize = 5_000;
    let mut world = World::<R>::listening(8);
    let waker = world.waker.clone();
    let (answer, answers) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        for _ in 0..COUNT {
            waker.wake();
            answers.recv().unwrap();
        }
    });
    let mut completions = Completions::new();
    let mut woken = 0;
    while woken < COUNT {
        world.reactor.wait(None, &mut completions).unwrap();
        if completions.list.contains(&Completion::Woken) {
            woken += 1;
            answer.send(()).unwrap();
        }
    }
    thread.join().unwrap();
}

/// A byte from each of so many peers, which waits in the kernel.
fn with_input_of<R: Real>(count: u32) -> (World<R>, Vec<(TcpStream, Socket)>) {
    let mut world = World::<R>::listening(count as usize + 2);
    let mut pairs: Vec<_> = (0..count).map(|index| world.pair(token(index))).collect();
    world.turn(Duration::ZERO);
    for (stream, _) in &mut pairs {
        std::io::Write::write_all(stream, b"x").unwrap();
    }
    (world, pairs)
}

/// All of it waits in the kernel before the first wait, more than the buffer has room for. Whoever has had a turn is no
/// proof that somebody was left: one that always has more would keep the others' deadlines from being judged.
fn input_left_for_later_is_reported<R: Real>() {
    const COUNT: u32 = 1200;
    let (mut world, _pairs) = with_input_of::<R>(COUNT);
    let mut completions = Completions::new();
    let (mut heard, mut reported) = (0, false);
    while heard < COUNT {
        let patience = Some(Duration::from_secs(60));
        world.reactor.wait(patience, &mut completions).unwrap();
        for completion in &completions.list {
            heard += u32::from(matches!(completion, Completion::Received { .. }));
        }
        assert!(completions.input_pending || heard == COUNT || heard == 0);
        reported |= completions.input_pending;
    }
    assert!(reported, "not even this buffer has room for all of them");
    let (mut stream, _) = world.pair(token(COUNT));
    world.turn(Duration::ZERO);
    std::io::Write::write_all(&mut stream, &[7; 8 * Completions::RECEIVE_BYTES_MAX]).unwrap();
    let mut bytes = 0;
    while bytes < 8 * Completions::RECEIVE_BYTES_MAX {
        let patience = Some(Duration::from_secs(60));
        world.reactor.wait(patience, &mut completions).unwrap();
        assert!(
            !completions.input_pending,
            "the only one that spoke had a turn"
        );
        for completion in &completions.list {
            if let Completion::Received { range, .. } = completion {
                bytes += range.len();
            }
        }
    }
}

fn a_wait_reads_from_no_more_sockets_than_it_may<R: Real>() {
    const COUNT: u32 = 10;
    let (mut world, _pairs) = with_input_of::<R>(COUNT);
    let mut completions = Completions::new();
    completions.receives_max = 3;
    let mut heard = Vec::new();
    while heard.len() < COUNT as usize {
        let patience = Some(Duration::from_secs(60));
        world.reactor.wait(patience, &mut completions).unwrap();
        let received = completions.list.iter().filter_map(|completion| {
            let Completion::Received { token, .. } = completion else {
                return None;
            };
            Some(token.index)
        });
        let before = heard.len();
        heard.extend(received);
        assert!(heard.len() - before <= 3);
        assert!(
            completions.input_pending || heard.len() == COUNT as usize || heard.len() == before
        );
    }
    heard.sort_unstable();
    assert_eq!(heard, (0..COUNT).collect::<Vec<_>>());
}

/// A simulation's waker has no eventfd, so no real driver can sleep on it.
#[test]
fn silent_wakers_are_refused() {
    let setup = || Setup {
        waker: Waker::silent(),
        listeners: Vec::new(),
        sockets_max: 1,
        reactors: 1,
        speaks_first: false,
    };
    assert!(Epoll::new(setup()).is_err());
    if Driver::probe_io_uring().is_ok() {
        assert!(Uring::new(setup()).is_err());
    }
    Waker::silent().wake();
}
