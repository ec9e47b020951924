//! The simulator's own behaviour: what a shard's tests rely on.

use super::*;
use crate::{Close, Completion, Completions, Parts, Reactor, SendOp, Sent, Socket, Token};
use std::io::IoSlice;

mod echo;

const TOKEN: Token = Token {
    index: 0,
    generation: 1,
};

fn token(index: u32) -> Token {
    Token {
        index,
        generation: 1,
    }
}

/// One reactor, its completions, and a peer accepted and registered with [`TOKEN`].
struct Fixture {
    net: SimNet,
    sim: Sim,
    completions: Completions,
    peer: PeerId,
    socket: Socket,
}

impl Fixture {
    fn new(faults: Faults) -> Self {
        let net = SimNet::new(1, faults);
        let mut sim = net.reactor(8);
        sim.accept(true);
        let peer = net.connect();
        let mut completions = Completions::new();
        let socket = loop {
            sim.wait(None, &mut completions).unwrap();
            if let [Completion::Accepted { socket, .. }] = completions.list[..] {
                break socket;
            }
        };
        sim.register(socket, TOKEN);
        Self {
            net,
            sim,
            completions,
            peer,
            socket,
        }
    }

    fn calm() -> Self {
        Self::new(Faults::NONE)
    }

    fn with_kernel_bytes(bytes: usize) -> Self {
        Self::new(Faults {
            kernel_bytes: (bytes, bytes),
            ..Faults::NONE
        })
    }

    fn wait(&mut self) -> &[Completion] {
        self.sim.wait(None, &mut self.completions).unwrap();
        &self.completions.list
    }

    fn send(&mut self, bytes: &[u8]) -> Sent {
        let mut ops = [SendOp::new(self.socket, bytes)];
        self.sim.send_batch(&mut ops);
        ops[0].sent
    }
}

#[test]
fn carries_bytes_and_ends_both_ways() {
    let mut fixture = Fixture::calm();
    assert!(fixture.net.write(fixture.peer, b"question"));
    fixture.net.fin(fixture.peer);
    assert_eq!(
        fixture.wait(),
        [
            Completion::Received {
                token: TOKEN,
                range: 0..8
            },
            Completion::Finished { token: TOKEN }
        ]
    );
    assert_eq!(&fixture.completions.buffer[..8], b"question");
    assert_eq!(
        fixture.net.leaked(),
        [fixture.peer],
        "reported, and still open"
    );

    let slices = [
        IoSlice::new(b"an"),
        IoSlice::new(b""),
        IoSlice::new(b"swer"),
    ];
    let mut op = SendOp::new(fixture.socket, b"");
    op.parts = Parts::Many(&slices);
    fixture.sim.send_batch(std::slice::from_mut(&mut op));
    assert_eq!(op.sent, Sent::All);
    fixture.sim.close(fixture.socket, TOKEN, Close::Orderly);
    assert_eq!(fixture.net.read(fixture.peer), b"answer");
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Fin));
    assert_eq!(
        (fixture.net.open_sockets(), fixture.net.leaked()),
        (0, vec![])
    );
}

#[test]
fn a_stalled_peer_fills_the_kernel_and_no_more() {
    let mut fixture = Fixture::with_kernel_bytes(10);
    fixture.net.stall(fixture.peer);
    assert_eq!(fixture.send(b"0123456"), Sent::All);
    assert_eq!(fixture.send(b"789abc"), Sent::Partly(3));
    assert_eq!(fixture.send(b"abc"), Sent::Partly(0));
    fixture.sim.notify_writable(fixture.socket, TOKEN);
    assert_eq!(fixture.wait(), []);
    assert_eq!(fixture.net.kernel_bytes(fixture.peer), 10);
    fixture.net.resume(fixture.peer);
    assert_eq!(fixture.wait(), [Completion::Writable { token: TOKEN }]);
    assert_eq!(fixture.wait(), [], "asked once, reported once");
    assert_eq!(fixture.net.read(fixture.peer), b"0123456789");
}

#[test]
fn an_orderly_close_outlives_a_stall() {
    let mut fixture = Fixture::calm();
    fixture.net.stall(fixture.peer);
    fixture.send(b"bye");
    fixture.sim.close(fixture.socket, TOKEN, Close::Orderly);
    fixture.wait();
    assert_eq!(fixture.net.end(fixture.peer), None);
    fixture.net.resume(fixture.peer);
    assert_eq!(fixture.net.read(fixture.peer), b"bye");
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Fin));
}

#[test]
fn a_reset_discards_what_the_kernel_held() {
    let mut fixture = Fixture::calm();
    fixture.net.stall(fixture.peer);
    fixture.send(b"never read");
    fixture.sim.close(fixture.socket, TOKEN, Close::Reset);
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Reset));
    assert_eq!(fixture.net.kernel_bytes(fixture.peer), 0);
}

#[test]
fn closing_with_unread_input_resets() {
    let mut fixture = Fixture::calm();
    fixture.net.write(fixture.peer, b"unread");
    fixture.sim.close(fixture.socket, TOKEN, Close::Orderly);
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Reset));
}

#[test]
fn writing_to_a_closed_server_resets() {
    let mut fixture = Fixture::calm();
    fixture.net.stall(fixture.peer);
    fixture.send(b"413");
    fixture.sim.close(fixture.socket, TOKEN, Close::Orderly);
    assert!(!fixture.net.write(fixture.peer, b"more of the body"));
    fixture.net.resume(fixture.peer);
    assert_eq!(
        fixture.net.read(fixture.peer),
        b"",
        "the reset ate the reply"
    );
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Reset));
}

#[test]
fn a_peers_reset_is_reported_once_and_fails_sends() {
    let mut fixture = Fixture::calm();
    fixture.net.reset(fixture.peer);
    assert_eq!(
        fixture.wait(),
        [Completion::Failed {
            token: TOKEN,
            errno: 104
        }]
    );
    assert_eq!(fixture.send(b"too late"), Sent::Failed(32));
    assert_eq!(fixture.wait(), []);
}

#[test]
fn sends_to_a_peer_that_closed_end_in_a_broken_pipe() {
    let mut fixture = Fixture::calm();
    fixture.net.close(fixture.peer);
    assert_eq!(fixture.wait(), [Completion::Finished { token: TOKEN }]);
    assert_eq!(fixture.send(b"into the void"), Sent::All);
    fixture.sim.notify_writable(fixture.socket, TOKEN);
    assert_eq!(fixture.wait(), [Completion::Writable { token: TOKEN }]);
    assert_eq!(fixture.send(b"again"), Sent::Failed(32));
}

#[test]
fn a_transfer_keeps_unread_bytes_and_a_dropped_handle_closes() {
    let mut fixture = Fixture::calm();
    fixture.net.write(fixture.peer, b"GET /metrics");
    let handle = fixture.sim.transfer(fixture.socket, TOKEN).unwrap();
    assert_eq!(
        (fixture.net.open_sockets(), fixture.net.open_handles()),
        (0, 1)
    );
    fixture.net.write(fixture.peer, b" HTTP/1.1");
    assert_eq!(fixture.wait(), []);
    assert_eq!(fixture.net.handle_read(&handle), b"GET /metrics HTTP/1.1");
    fixture.net.handle_write(&handle, b"200");
    drop(handle);
    assert_eq!(fixture.net.open_handles(), 0);
    assert_eq!(fixture.net.read(fixture.peer), b"200");
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Fin));
}

#[test]
fn an_adopted_connection_brings_its_bytes_and_its_end() {
    let mut fixture = Fixture::calm();
    let mut other = fixture.net.reactor(1);
    let handle = fixture.sim.transfer(fixture.socket, TOKEN).unwrap();
    fixture.net.write(fixture.peer, b"for another");
    fixture.net.fin(fixture.peer);
    let socket = other.adopt(handle).unwrap();
    assert_eq!(
        (fixture.net.open_sockets(), fixture.net.open_handles()),
        (1, 0)
    );
    other.register(socket, token(9));
    other.wait(None, &mut fixture.completions).unwrap();
    assert_eq!(
        fixture.completions.list,
        [
            Completion::Received {
                token: token(9),
                range: 0..11
            },
            Completion::Finished { token: token(9) },
        ]
    );
    other.close(socket, token(9), Close::Orderly);
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Fin));
    assert_eq!(fixture.net.leaked(), []);
}

#[test]
fn a_full_table_gives_an_adopted_connection_back() {
    let mut fixture = Fixture::calm();
    let mut other = fixture.net.reactor(1);
    let peers = [fixture.peer, fixture.net.connect()];
    let [Completion::Accepted { socket, .. }] = *fixture.wait() else {
        panic!("{:?}", fixture.completions.list)
    };
    fixture.sim.register(socket, token(1));
    let first = fixture.sim.transfer(fixture.socket, TOKEN).unwrap();
    let second = fixture.sim.transfer(socket, token(1)).unwrap();
    other.adopt(first).unwrap();
    let refused = other.adopt(second).unwrap_err();
    assert_eq!(refused.error.raw_os_error(), Some(24));
    assert_eq!(refused.handle.peer(), peers[1]);
    fixture.net.handle_write(&refused.handle, b"full");
    drop(refused);
    assert_eq!(fixture.net.open_handles(), 0);
    assert_eq!(fixture.net.read(peers[1]), b"full");
}

#[test]
fn a_full_table_pauses_accepting_until_a_socket_is_free() {
    let net = SimNet::new(1, Faults::NONE);
    let mut sim = net.reactor(1);
    let mut completions = Completions::new();
    net.connect();
    net.connect();
    sim.wait(None, &mut completions).unwrap();
    assert_eq!(completions.list, [], "not accepting yet");
    sim.accept(true);
    sim.wait(None, &mut completions).unwrap();
    let [
        Completion::Accepted { socket, .. },
        Completion::AcceptPaused { errno: 24 },
    ] = completions.list[..]
    else {
        panic!("{:?}", completions.list)
    };
    sim.wait(None, &mut completions).unwrap();
    assert_eq!(completions.list, [], "a pause is reported once");
    sim.close(socket, TOKEN, Close::Orderly);
    sim.wait(None, &mut completions).unwrap();
    assert_eq!(
        completions.list[0],
        Completion::Accepted {
            socket,
            listener: 0
        }
    );
    assert_eq!(net.backlog(), 0);
}

#[test]
fn a_paused_listener_resumes_by_itself() {
    let net = SimNet::new(
        3,
        Faults {
            accept_pause: Chance(900),
            ..Faults::NONE
        },
    );
    let mut sim = net.reactor(64);
    sim.accept(true);
    for _ in 0..10 {
        net.connect();
    }
    let mut completions = Completions::new();
    let (mut accepted, mut pauses) = (0, 0);
    while accepted < 10 {
        sim.wait(None, &mut completions).unwrap();
        for completion in &completions.list {
            match completion {
                Completion::Accepted { .. } => accepted += 1,
                Completion::AcceptPaused { .. } => pauses += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(pauses > 10);
}

#[test]
fn outgoing_connections_are_answered_by_the_test() {
    let net = SimNet::new(1, Faults::NONE);
    let mut sim = net.reactor(2);
    let target = "127.0.0.1:80".parse().unwrap();
    let socket = sim.connect(token(5), None, target).unwrap();
    let mut completions = Completions::new();
    sim.wait(None, &mut completions).unwrap();
    assert_eq!(
        completions.list,
        [Completion::Connected { token: token(5) }]
    );
    sim.register(socket, token(5));
    let [
        Dialed {
            peer,
            source: None,
            target: dialed,
        },
    ] = net.dialed()[..]
    else {
        panic!()
    };
    assert_eq!(dialed, target);
    net.write(peer, b"hello");
    sim.wait(None, &mut completions).unwrap();
    assert_eq!(
        completions.list,
        [Completion::Received {
            token: token(5),
            range: 0..5
        }]
    );

    net.set_faults(Faults {
        connect_failure: Chance(1000),
        ..Faults::NONE
    });
    sim.connect(token(6), None, target).unwrap();
    assert_eq!(
        sim.connect(token(7), None, target)
            .unwrap_err()
            .raw_os_error(),
        Some(24)
    );
    sim.wait(None, &mut completions).unwrap();
    assert!(matches!(
        completions.list[..],
        [Completion::ConnectFailed {
            token: Token { index: 6, .. },
            ..
        }]
    ));
    assert_eq!(net.open_sockets(), 1);
}

#[test]
fn a_dropped_reactor_resets_its_connections_and_backlog() {
    let mut fixture = Fixture::calm();
    fixture.sim.accept(false);
    let waiting = fixture.net.connect();
    drop(fixture.sim);
    assert_eq!(fixture.net.end(fixture.peer), Some(PeerEnd::Reset));
    assert_eq!(fixture.net.end(waiting), Some(PeerEnd::Reset));
    let refused = fixture.net.connect();
    assert_eq!(fixture.net.end(refused), Some(PeerEnd::Reset));
    assert_eq!(fixture.net.open_sockets(), 0);
}

#[test]
fn late_completions_carry_the_old_token_and_then_stop() {
    let mut fixture = Fixture::new(Faults {
        late_completion: Chance(1000),
        ..Faults::NONE
    });
    fixture.sim.close(fixture.socket, TOKEN, Close::Reset);
    let mut late = fixture.wait().to_vec();
    late.extend_from_slice(fixture.wait());
    assert!(late.len() <= 1);
    assert_eq!(fixture.wait(), []);
}

mod misuse {
    use super::*;

    #[test]
    #[should_panic(expected = "used after its end")]
    fn a_closed_socket() {
        let mut fixture = Fixture::calm();
        fixture.sim.close(fixture.socket, TOKEN, Close::Orderly);
        fixture.send(b"x");
    }

    #[test]
    #[should_panic(expected = "registered twice")]
    fn registering_twice() {
        let mut fixture = Fixture::calm();
        fixture.sim.register(fixture.socket, token(1));
    }

    #[test]
    #[should_panic(expected = "already owns")]
    fn one_record_for_two_sockets() {
        let mut fixture = Fixture::calm();
        fixture.net.connect();
        let [Completion::Accepted { socket, .. }] = fixture.wait()[..] else {
            panic!()
        };
        fixture.sim.register(socket, TOKEN);
    }

    #[test]
    #[should_panic(expected = "two sends in one batch")]
    fn two_sends_in_one_batch() {
        let mut fixture = Fixture::calm();
        let op = SendOp::new(fixture.socket, b"x");
        fixture.sim.send_batch(&mut [op, op]);
    }

    #[test]
    #[should_panic(expected = "notify_writable twice")]
    fn asking_twice() {
        let mut fixture = Fixture::calm();
        fixture.sim.notify_writable(fixture.socket, TOKEN);
        fixture.sim.notify_writable(fixture.socket, TOKEN);
    }

    #[test]
    #[should_panic(expected = "registered with")]
    fn another_connections_token() {
        let mut fixture = Fixture::calm();
        fixture.sim.close(fixture.socket, token(1), Close::Orderly);
    }

    #[test]
    #[should_panic(expected = "a send after shutdown")]
    fn sending_after_shutdown() {
        let mut fixture = Fixture::calm();
        fixture.sim.shutdown(fixture.socket);
        fixture.send(b"x");
    }

    #[test]
    #[should_panic(expected = "another reactor")]
    fn another_reactors_socket() {
        let fixture = Fixture::calm();
        fixture.net.reactor(8).shutdown(fixture.socket);
    }
}
