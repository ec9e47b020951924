//! Bytes both ways: over any network, in any pieces, across changes of keys.

use super::*;
use crate::engine::tls::Stage;
use std::io::Write as _;
use tokio_rustls::rustls::pki_types::ServerName;

/// Bytes that tell where they belong.
fn pattern(count: usize, seed: u8) -> Vec<u8> {
    (0..count)
        .map(|at| u8::try_from(at % 251).unwrap() ^ seed)
        .collect()
}

#[test]
fn bytes_survive_any_network() {
    for seed in 0..60 {
        let mut prng = myriad_reactor::sim::Prng::new(seed);
        let mut faults = Faults::mixed(&mut prng);
        faults.connect_failure = myriad_reactor::sim::Chance::NEVER;
        for version in VERSIONS {
            let mut pair = Pair::trusted(seed, faults, version);
            pair.establish();
            pair.server.is_echoing = true;
            let mut said = Vec::new();
            for count in [1, 5, 300, 17_000, 40_000] {
                let bytes = pattern(count, u8::try_from(seed).unwrap());
                pair.send(&bytes);
                said.extend_from_slice(&bytes);
                if prng.one_in(2) {
                    pair.turn();
                }
            }
            pair.turn_until(|pair| pair.received.len() >= said.len());
            assert_eq!(pair.server.received, said, "seed {seed}");
            assert_eq!(pair.received, said, "seed {seed}");
        }
    }
}

#[test]
fn a_server_may_send_byte_by_byte() {
    for version in VERSIONS {
        let mut pair = Pair::trusted(1, Faults::NONE, version);
        pair.server.is_slow = true;
        pair.establish();
        let bytes = pattern(16_384, 7);
        pair.tls().writer().write_all(&bytes).unwrap();
        pair.turn_until(|pair| !pair.received.is_empty());
        assert_eq!(pair.received, bytes, "a record comes whole or not at all");
        pair.server.is_echoing = true;
        pair.send(b"and back");
        pair.turn_until(|pair| pair.received.len() == bytes.len() + 8);
        assert!(pair.received.ends_with(b"and back"));
    }
}

#[test]
fn an_idle_connection_keeps_no_buffers() {
    let mut pair = Pair::trusted(2, Faults::NONE, &TLS13);
    pair.establish();
    pair.server.is_echoing = true;
    pair.send(&pattern(50_000, 0));
    pair.turn_until(|pair| pair.received.len() == 50_000);
    let key = pair.reactor.links[0].key().expect("a connection with TLS");
    let link = pair
        .reactor
        .secured
        .get(key)
        .expect("a connection with TLS");
    assert_eq!(link.stage, Stage::Established);
    assert!(!link.connection.has_buffers());
    assert_eq!(pair.reactor.incomplete_bytes, 0);
}

#[test]
fn a_socket_that_takes_nothing_holds_the_sender_back() {
    let faults = Faults {
        kernel_bytes: (4096, 4096),
        ..Faults::NONE
    };
    let mut pair = Pair::trusted(3, faults, &TLS13);
    pair.establish();
    let peer = pair.peer();
    pair.net.stall(peer);
    pair.send(&pattern(30_000, 1));
    assert!(
        pair.unsent.is_empty(),
        "its records are numbered: they count as sent"
    );
    pair.send(&pattern(10, 2));
    assert_eq!(pair.unsent.len(), 10, "nothing more is taken");
    for _ in 0..10 {
        pair.turn();
    }
    assert_eq!(pair.unsent.len(), 10);
    pair.net.resume(peer);
    pair.turn_until(|pair| pair.server.received.len() == 30_010);
    assert!(pair.server.received.ends_with(&pattern(10, 2)));
}

#[test]
fn a_handshake_ends_with_the_first_message_or_the_next_wait_or_the_close() {
    let established = || {
        let mut pair = Pair::trusted(8, Faults::NONE, &TLS13);
        pair.connect_terminal();
        assert!(pair.tls().is_handshaking(), "the end of it is held back");
        pair
    };
    let mut pair = established();
    pair.send(b"first");
    pair.server.turn(&pair.net);
    assert_eq!(pair.server.received, b"first");

    let mut pair = established();
    pair.turn();
    assert!(!pair.tls().is_handshaking());

    let mut pair = established();
    let (socket, token) = (pair.socket(), pair.token);
    pair.reactor.close(socket, token, Close::Orderly);
    pair.server.turn(&pair.net);
    assert!(!pair.tls().is_handshaking());
    let state = pair.tls().process_new_packets().unwrap();
    assert!(state.peer_has_closed());
}

#[test]
fn a_server_may_change_its_keys_and_ask_for_ours() {
    let mut pair = Pair::trusted(4, Faults::NONE, &TLS13);
    pair.establish();
    pair.server.is_echoing = true;
    let mut expected = Vec::new();
    for round in 0..20 {
        pair.tls().refresh_traffic_keys().unwrap();
        let bytes = pattern(500, round);
        pair.send(&bytes);
        expected.extend_from_slice(&bytes);
        pair.turn_until(|pair| pair.received.len() == expected.len());
    }
    assert_eq!(pair.received, expected);
}

#[test]
fn a_gathered_send_is_one_text() {
    let mut pair = Pair::trusted(5, Faults::NONE, &TLS13);
    pair.establish();
    let slices = [b"one ", b"two "].map(|bytes| std::io::IoSlice::new(bytes));
    let mut ops = [SendOp {
        socket: pair.socket(),
        parts: myriad_reactor::Parts::Many(&slices),
        sent: Sent::All,
    }];
    pair.reactor.send_batch(&mut ops);
    pair.turn_until(|pair| pair.server.received.len() == 8);
    assert_eq!(pair.server.received, b"one two ");
}

#[test]
fn who_comes_back_resumes_and_who_is_new_does_not() {
    let authority = Authority::ours();
    for version in VERSIONS {
        let server = authority.server("127.0.0.1", &[version]);
        let tls = Tls {
            is_resuming: true,
            ..trusting(authority)
        };
        let mut pair = Pair::new(6, Faults::NONE, plan_of("127.0.0.1", tls), server);
        for (resumed, connections) in [(0, 1), (1, 2)] {
            pair.establish();
            // Tickets come behind the handshake.
            pair.server.is_echoing = true;
            pair.received.clear();
            pair.send(b"ticket");
            pair.turn_until(|pair| pair.received == b"ticket");
            let (socket, token) = (pair.socket(), pair.token);
            pair.reactor.close(socket, token, Close::Reset);
            let figures = pair.shared.account(0).tls.clone();
            assert_eq!(
                (figures.handshakes, figures.resumed),
                (connections, resumed)
            );
            assert_eq!(figures.times.len(), connections);
            let tls12 = if std::ptr::eq(version, &TLS12) {
                connections
            } else {
                0
            };
            assert_eq!(figures.tls12, tls12);
            pair.connect();
        }
        let TlsPlan { first, .. } = pair.reactor.plan.tls.clone().unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        assert!(super::super::Connection::new(first, name).is_ok());
    }
}

#[test]
fn targets_without_tls_pass_through() {
    let authority = Authority::ours();
    let mut config = Config::new(
        vec![
            Target::parse("ws://127.0.0.1:1/").unwrap(),
            Target::parse("wss://127.0.0.1:1/").unwrap(),
        ],
        1,
    );
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    config.tls = trusting(authority);
    let plan = Arc::new(config.prepare().unwrap().plan);
    let server = authority.server("127.0.0.1", &VERSIONS);
    let mut pair = Pair::new(7, Faults::NONE, plan, server);
    pair.server.tls = None;
    pair.establish();
    pair.send(b"plain");
    pair.turn();
    let peer = pair.peer();
    assert_eq!(pair.net.read(peer), b"plain");
    pair.net.write(peer, b"and back");
    pair.net.fin(peer);
    pair.turn_until(|pair| !pair.ends.is_empty());
    assert_eq!(pair.received, b"and back");
    let token = pair.token;
    assert_eq!(pair.ends, [Completion::Finished { token }]);
    assert_eq!(pair.shared.account(0).tls.handshakes, 0);
}
