//! Everything at once, by chance: both ends on reactors, few slots, connections that stream, stall, half
//! close, reset and come again. What arrives must be what was sent, under the right name.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that unwraps nothing fails"
)]

use crate::support::{Event, Real, World, on_both};
use myriad_reactor::{Close, Parts, Reactor, SendOp, Sent, Socket, Token, Uring};
use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::time::Duration;

on_both!(streams_stay_apart_while_sockets_come_and_go);

const SLOTS: usize = 24;
const CONNECTIONS: u32 = 1_500;

/// xorshift64*: small, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// The byte at a place of a connection's stream: of the connection and of the place.
fn byte_at(stream: u32, offset: usize) -> u8 {
    let mixed = (u64::from(stream) << 32 | offset as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

fn stretch(stream: u32, from: usize, length: usize) -> Vec<u8> {
    (from..from + length)
        .map(|offset| byte_at(stream, offset))
        .collect()
}

/// What one end knows of a connection.
struct End {
    socket: Socket,
    stream: u32,
    /// The server learns the stream's number from its first bytes; the client knows it.
    learns: bool,
    sent: usize,
    received: usize,
    outbound: VecDeque<u8>,
    asked_writable: bool,
    finished: bool,
}

impl End {
    fn new(socket: Socket, stream: Option<u32>) -> Self {
        let (stream, learns) = (stream.unwrap_or(0), stream.is_none());
        Self {
            socket,
            stream,
            learns,
            sent: 0,
            received: 0,
            outbound: VecDeque::new(),
            asked_writable: false,
            finished: false,
        }
    }
}

/// Sends what is queued on every end that is not waiting for room.
fn flush<R: Reactor>(reactor: &mut R, ends: &mut HashMap<u32, End>) {
    let mut due: Vec<(Token, &mut End)> = ends
        .iter_mut()
        .filter(|(_, end)| !end.asked_writable && !end.outbound.is_empty())
        .map(|(name, end)| (name_token(*name), end))
        .collect();
    let slices: Vec<[IoSlice<'_>; 2]> = due
        .iter()
        .map(|(_, end)| {
            let (first, second) = end.outbound.as_slices();
            [IoSlice::new(first), IoSlice::new(second)]
        })
        .collect();
    let mut ops: Vec<SendOp<'_>> = due
        .iter()
        .zip(&slices)
        .map(|((_, end), slices)| SendOp {
            socket: end.socket,
            parts: Parts::Many(slices),
            sent: Sent::All,
        })
        .collect();
    reactor.send_batch(&mut ops);
    let outcomes: Vec<Sent> = ops.iter().map(|op| op.sent).collect();
    for ((token, end), sent) in due.iter_mut().zip(outcomes) {
        match sent {
            Sent::All => end.outbound.clear(),
            Sent::Partly(count) => {
                end.outbound.drain(..count);
                end.asked_writable = true;
                reactor.notify_writable(end.socket, *token);
            }
            // The completion of its end is on the way.
            Sent::Failed(_) => end.outbound.clear(),
        }
    }
}

/// A record's number is its index and generation at once: indices are used again, generations differ.
fn name_token(name: u32) -> Token {
    Token {
        index: name % 64,
        generation: u8::try_from(name / 64 % 256).unwrap(),
    }
}

struct Names {
    next: u32,
    by_token: HashMap<(u32, u8), u32>,
}

impl Names {
    fn new() -> Self {
        Self {
            next: 0,
            by_token: HashMap::new(),
        }
    }

    fn make(&mut self) -> u32 {
        let name = self.next;
        self.next += 1;
        let token = name_token(name);
        self.by_token.insert((token.index, token.generation), name);
        name
    }

    fn of(&self, token: Token) -> u32 {
        self.by_token[&(token.index, token.generation)]
    }
}

fn streams_stay_apart_while_sockets_come_and_go<R: Real>() {
    for seed in 1..=4 {
        Churn::<R>::new(seed).run();
    }
}

struct Churn<R> {
    chance: Chance,
    server: World<R>,
    server_ends: HashMap<u32, End>,
    server_names: Names,
    client: World<R>,
    client_ends: HashMap<u32, End>,
    client_names: Names,
    opened: u32,
    echoed_bytes: usize,
}

impl<R: Real> Churn<R> {
    fn new(seed: u64) -> Self {
        let server = World::<R>::listening_with(SLOTS, Some(16 * 1024));
        let client = World::<R>::connecting(SLOTS, server.address);
        Self {
            chance: Chance(seed),
            server,
            server_ends: HashMap::new(),
            server_names: Names::new(),
            client,
            client_ends: HashMap::new(),
            client_names: Names::new(),
            opened: 0,
            echoed_bytes: 0,
        }
    }

    fn run(mut self) {
        let mut idle = 0;
        while self.opened < CONNECTIONS
            || !self.client_ends.is_empty()
            || !self.server_ends.is_empty()
        {
            self.open_some();
            self.act_as_clients();
            flush(&mut self.client.reactor, &mut self.client_ends);
            self.client.turn(Duration::ZERO);
            self.hear_clients();
            self.server.turn(Duration::from_millis(1));
            let before = self.echoed_bytes;
            self.hear_server();
            flush(&mut self.server.reactor, &mut self.server_ends);
            idle = if before == self.echoed_bytes {
                idle + 1
            } else {
                0
            };
            assert!(
                idle < 100_000,
                "stuck with {} and {}",
                self.client_ends.len(),
                self.server_ends.len()
            );
        }
        assert!(self.echoed_bytes > 1_000_000);
        self.expect_all_slots_back();
    }

    fn open_some(&mut self) {
        while self.client_ends.len() < SLOTS && self.opened < CONNECTIONS {
            let name = self.client_names.make();
            let target = self.client.address;
            // Slots of this turn's closes come back in the next one.
            let Ok(socket) = self.client.reactor.connect(name_token(name), None, target) else {
                return;
            };
            self.client_ends.insert(name, End::new(socket, Some(name)));
            self.opened += 1;
        }
    }

    /// Each connected client may send, stop, or leave in one of the ways there are.
    fn act_as_clients(&mut self) {
        let names: Vec<u32> = self.client_ends.keys().copied().collect();
        for name in names {
            let end = self.client_ends.get_mut(&name).unwrap();
            if end.sent == 0 {
                continue;
            }
            match self.chance.below(40) {
                0..20 => {
                    let length = usize::try_from(1 + self.chance.below(9_000)).unwrap();
                    end.outbound.extend(stretch(end.stream, end.sent, length));
                    end.sent += length;
                }
                20 => self.client.reactor.shutdown(end.socket),
                21 => self.leave(name, Close::Reset),
                22 => self.leave(name, Close::Orderly),
                _ => {}
            }
        }
    }

    fn leave(&mut self, name: u32, how: Close) {
        let end = self.client_ends.remove(&name).unwrap();
        self.client.reactor.close(end.socket, name_token(name), how);
    }

    fn hear_clients(&mut self) {
        for event in std::mem::take(&mut self.client.events) {
            let (token, bytes) = match event {
                Event::Connected(token) => {
                    let name = self.client_names.of(token);
                    let end = self.client_ends.get_mut(&name).unwrap();
                    self.client.reactor.register(end.socket, token);
                    // The stream begins with its number.
                    end.outbound.extend(name.to_le_bytes());
                    end.sent = 4;
                    continue;
                }
                Event::Received(token, bytes) => (token, bytes),
                Event::Writable(token) => {
                    if let Some(end) = self.client_ends.get_mut(&self.client_names.of(token)) {
                        end.asked_writable = false;
                    }
                    continue;
                }
                Event::Finished(token) | Event::Failed(token, _) => {
                    let name = self.client_names.of(token);
                    if self.client_ends.contains_key(&name) {
                        self.leave(name, Close::Orderly);
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let name = self.client_names.of(token);
            if let Some(end) = self.client_ends.get_mut(&name) {
                check(end, &bytes);
                self.echoed_bytes += bytes.len();
            }
        }
    }

    fn hear_server(&mut self) {
        for event in std::mem::take(&mut self.server.events) {
            match event {
                Event::Accepted(socket) => {
                    let name = self.server_names.make();
                    assert!(self.server_ends.len() < SLOTS);
                    self.server_ends.insert(name, End::new(socket, None));
                    self.server.reactor.register(socket, name_token(name));
                }
                Event::AcceptPaused(errno) => assert_eq!(errno, libc::EMFILE),
                Event::Received(token, bytes) => {
                    let Some(end) = self.server_ends.get_mut(&self.server_names.of(token)) else {
                        continue;
                    };
                    assert!(!end.finished, "bytes after the end");
                    check(end, &bytes);
                    end.outbound.extend(bytes);
                }
                Event::Writable(token) => {
                    if let Some(end) = self.server_ends.get_mut(&self.server_names.of(token)) {
                        end.asked_writable = false;
                    }
                }
                Event::Finished(token) | Event::Failed(token, _) => {
                    let name = self.server_names.of(token);
                    if let Some(end) = self.server_ends.get_mut(&name) {
                        assert!(
                            !std::mem::replace(&mut end.finished, true),
                            "reported twice"
                        );
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        self.close_finished();
    }

    /// The server leaves when everything is echoed, or now and then for no reason.
    fn close_finished(&mut self) {
        let names: Vec<u32> = self.server_ends.keys().copied().collect();
        for name in names {
            let end = &self.server_ends[&name];
            let whim = self.chance.below(500) == 0;
            if whim || end.finished && end.outbound.is_empty() {
                let how = if whim { Close::Reset } else { Close::Orderly };
                self.server.reactor.close(end.socket, name_token(name), how);
                self.server_ends.remove(&name);
            }
        }
    }

    fn expect_all_slots_back(mut self) {
        self.client.turn(Duration::ZERO);
        self.server.turn(Duration::ZERO);
        for index in 0..u32::try_from(SLOTS).unwrap() {
            let target = self.client.address;
            self.client
                .reactor
                .connect(crate::support::token(1_000 + index), None, target)
                .unwrap();
        }
        self.client.turn(Duration::ZERO);
        self.server.until("every slot again", |events| {
            events
                .iter()
                .filter(|event| matches!(event, Event::Accepted(_)))
                .count()
                == SLOTS
        });
    }
}

/// Received bytes continue the connection's own stream.
fn check(end: &mut End, bytes: &[u8]) {
    for byte in bytes {
        if end.received < 4 && end.learns {
            end.stream |= u32::from(*byte) << (8 * end.received);
        }
        let expected = match end.received {
            offset @ 0..4 => end.stream.to_le_bytes()[offset],
            offset => byte_at(end.stream, offset),
        };
        assert_eq!(*byte, expected, "stream {} at {}", end.stream, end.received);
        end.received += 1;
    }
}

/// The same on a ring whose queues overflow all the time.
#[test]
fn io_uring_with_tiny_queues() {
    if !Uring::is_available() {
        return;
    }
    let mut churn = Churn::<Uring>::new(9);
    churn.server = World::listening_by(SLOTS, Some(16 * 1024), |setup| {
        Uring::with_queue_sizes(setup, 8, 8)
    });
    churn.client = World::connecting(SLOTS, churn.server.address);
    churn.run();
}
