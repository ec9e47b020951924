//! Handshakes that fail, and how connections end.

use super::*;
use std::io::Write as _;
use tokio_rustls::rustls::ServerConfig;

/// A connection to a server for a name, by an authority, with changes of its settings.
fn pair(
    (host, name): (&str, &str),
    authority: &Authority,
    change: (i32, fn(&mut ServerConfig)),
) -> Pair {
    let server = authority.server_until(name, &VERSIONS, change);
    let tls = trusting(Authority::ours());
    Pair::new(1, Faults::NONE, plan_of(host, tls), server)
}

fn unchanged(_: &mut ServerConfig) {}

#[test]
fn certificates_that_do_not_fit_are_told_apart() {
    let address = ("127.0.0.1", "127.0.0.1");
    let (ours, other) = (Authority::ours(), Authority::other());
    let mut unknown = pair(address, other, (2100, unchanged));
    assert_eq!(unknown.failure(), TlsFailure::UnknownIssuer);
    let said = unknown.example(TlsFailure::UnknownIssuer);
    assert!(
        said.contains("UnknownIssuer") && said.ends_with("(127.0.0.1:1)"),
        "{said}"
    );
    assert_eq!(
        unknown.net.end(unknown.peer()),
        Some(PeerEnd::Fin),
        "behind its alert"
    );

    let mut expired = pair(address, ours, (2001, unchanged));
    assert_eq!(expired.failure(), TlsFailure::Expired);

    let mut named = pair(("localhost", "b.example"), ours, (2100, unchanged));
    assert_eq!(named.failure(), TlsFailure::NameMismatch);
    let said = named.example(TlsFailure::NameMismatch);
    assert!(
        said.contains("localhost") && said.contains("b.example"),
        "{said}"
    );
}

#[test]
fn an_insecure_crowd_takes_any_certificate() {
    let server = Authority::other().server_until("b.example", &VERSIONS, (2001, unchanged));
    let tls = Tls {
        is_insecure: true,
        ..Tls::default()
    };
    let mut pair = Pair::new(2, Faults::NONE, plan_of("127.0.0.1", tls), server);
    pair.establish();
}

#[test]
fn an_alert_has_its_name() {
    let change = |config: &mut ServerConfig| config.alpn_protocols = vec![b"h2".to_vec()];
    let address = ("127.0.0.1", "127.0.0.1");
    let mut refused = pair(address, Authority::ours(), (2100, change));
    let failure = refused.failure();
    assert_eq!(
        Failure::Tls(failure).to_string(),
        "tls_alert_no_application_protocol"
    );
    assert!(Failure::Tls(failure).next_step().is_some());
}

/// A server that says this instead of a handshake, and ends the connection if it is to.
fn saying(bytes: &[u8], is_ending: bool) -> Pair {
    let mut pair = Pair::trusted(3, Faults::NONE, &TLS13);
    pair.server.tls = None;
    pair.turn_until(|pair| pair.server.peer.is_some());
    let peer = pair.peer();
    pair.net.write(peer, bytes);
    if is_ending {
        pair.net.fin(peer);
    }
    pair
}

#[test]
fn a_peer_without_tls_is_quoted() {
    let mut plain = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", false);
    assert_eq!(plain.failure(), TlsFailure::PlainText);
    let said = plain.example(TlsFailure::PlainText);
    assert_eq!(said, "HTTP/1.1 400 Bad Request\r\n\r\n");
    assert_eq!(
        saying(b"\x00\xff\xfe", false).failure(),
        TlsFailure::Invalid
    );
    let garbage = [22, 3, 3, 0, 5, 99, 0, 0, 1, 0];
    assert_eq!(saying(&garbage, false).failure(), TlsFailure::Invalid);
    assert_eq!(saying(b"", true).failure(), TlsFailure::Ended);
    assert_eq!(
        saying(&[22, 3, 3, 0, 100, 2], true).failure(),
        TlsFailure::Ended
    );
}

#[test]
fn a_reset_in_the_handshake_keeps_its_errno() {
    let mut pair = saying(b"", false);
    let peer = pair.peer();
    pair.net.reset(peer);
    pair.turn_until(|pair| !pair.ends.is_empty());
    let (token, errno) = (pair.token, libc::ECONNRESET);
    assert_eq!(pair.ends, [Completion::ConnectFailed { token, errno }]);
    assert_eq!(pair.net.open_sockets(), 0);
}

#[test]
fn a_handshake_under_way_is_seen_as_such() {
    let mut pair = saying(b"", false);
    pair.turn();
    assert!(pair.reactor.is_handshaking(pair.socket()));
    let (socket, token) = (pair.socket(), pair.token);
    pair.reactor.close(socket, token, Close::Reset);
    assert!(!pair.reactor.is_handshaking(socket));
    let mut pair = Pair::trusted(4, Faults::NONE, &TLS12);
    pair.establish();
    assert!(!pair.reactor.is_handshaking(pair.socket()));
}

#[test]
fn a_server_that_sends_close_notify_has_finished() {
    for version in VERSIONS {
        let mut pair = Pair::trusted(5, Faults::NONE, version);
        pair.establish();
        pair.tls().writer().write_all(b"last").unwrap();
        pair.tls().send_close_notify();
        pair.turn_until(|pair| !pair.ends.is_empty());
        let token = pair.token;
        assert_eq!(pair.ends, [Completion::Finished { token }]);
        assert_eq!(pair.received, b"last");
        // It may still be told something, and its FIN is no second end.
        pair.send(b"answer");
        let peer = pair.peer();
        pair.net.fin(peer);
        pair.turn_until(|pair| pair.server.received == b"answer");
        assert_eq!(pair.ends.len(), 1);
        let (socket, token) = (pair.socket(), pair.token);
        pair.reactor.close(socket, token, Close::Orderly);
        assert_eq!(pair.net.open_sockets(), 0);
    }
}

#[test]
fn an_end_of_tcp_alone_is_told_from_a_record_that_was_cut() {
    let mut abrupt = Pair::trusted(6, Faults::NONE, &TLS13);
    abrupt.establish();
    let peer = abrupt.peer();
    abrupt.net.fin(peer);
    abrupt.turn_until(|pair| !pair.ends.is_empty());
    let (token, errno) = (abrupt.token, ABRUPT_END);
    assert_eq!(abrupt.ends, [Completion::Failed { token, errno }]);

    let mut cut = Pair::trusted(7, Faults::NONE, &TLS13);
    cut.establish();
    cut.tls().writer().write_all(&[b'x'; 1000]).unwrap();
    let mut bytes = Vec::new();
    while cut.tls().wants_write() {
        cut.tls().write_tls(&mut bytes).unwrap();
    }
    let peer = cut.peer();
    cut.net.write(peer, &bytes[..bytes.len() - 1]);
    cut.net.fin(peer);
    assert_eq!(cut.failure(), TlsFailure::Truncated);
    assert!(
        !cut.received.contains(&b'x'),
        "what cannot be verified is not read"
    );
}

#[test]
fn what_somebody_changed_on_the_way_is_not_read() {
    for version in VERSIONS {
        let mut pair = Pair::trusted(8, Faults::NONE, version);
        pair.establish();
        pair.turn();
        pair.tls().writer().write_all(b"true").unwrap();
        let mut bytes = Vec::new();
        while pair.tls().wants_write() {
            pair.tls().write_tls(&mut bytes).unwrap();
        }
        *bytes.last_mut().unwrap() ^= 1;
        let peer = pair.peer();
        pair.net.write(peer, &bytes);
        assert_eq!(pair.failure(), TlsFailure::Invalid);
        assert_eq!(pair.received, b"");
    }
}

#[test]
fn an_orderly_close_sends_close_notify_and_a_reset_does_not() {
    for (how, end) in [
        (Close::Orderly, PeerEnd::Fin),
        (Close::Reset, PeerEnd::Reset),
    ] {
        let mut pair = Pair::trusted(9, Faults::NONE, &TLS13);
        pair.establish();
        pair.turn();
        let (socket, token, peer) = (pair.socket(), pair.token, pair.peer());
        pair.reactor.close(socket, token, how);
        pair.socket = None;
        pair.turn_until(|pair| pair.net.end(peer).is_some());
        pair.turn();
        assert_eq!(pair.net.end(peer), Some(end));
        let state = pair.tls().process_new_packets().unwrap();
        assert_eq!(state.peer_has_closed(), how == Close::Orderly);
    }
}

#[test]
fn half_of_a_connection_may_be_closed() {
    let mut pair = Pair::trusted(10, Faults::NONE, &TLS13);
    pair.establish();
    pair.send(b"all");
    let socket = pair.socket();
    pair.reactor.shutdown(socket);
    pair.turn_until(|pair| pair.server.received == b"all");
    let state = pair.tls().process_new_packets().unwrap();
    assert!(state.peer_has_closed());
    pair.tls().writer().write_all(b"heard").unwrap();
    pair.turn_until(|pair| pair.received == b"heard");
}

#[test]
fn records_that_are_never_finished_have_a_bound() {
    let authority = Authority::ours();
    let plan = plan_of("127.0.0.1", trusting(authority));
    let mut plan = Arc::into_inner(plan).unwrap();
    plan.partial_bytes_max = 1000;
    let server = authority.server("127.0.0.1", &[&TLS13]);
    let mut pair = Pair::new(11, Faults::NONE, Arc::new(plan), server);
    pair.establish();
    pair.turn();
    pair.server.tls = None;
    let peer = pair.peer();
    pair.net.write(peer, &[23, 3, 3, 0x40, 0]);
    pair.turn();
    pair.net.write(peer, &[0; 900]);
    pair.turn();
    assert_eq!(pair.ends, []);
    pair.net.write(peer, &[0; 100]);
    assert_eq!(pair.failure(), TlsFailure::Unfinished);
}
