//! Connections that the control plane has served, and whose next request is for a shard.

use crate::support::{
    Http, Running, head, metric, next, next_text, on_both_drivers, options, publish_ok, start,
    until, websocket, with_file,
};
use myriad_server::{Count, DriverChoice, Options, Span};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use tungstenite::Message;

const PATH: &str = "/raw?channel=c";
const PUBLICATION: &str = r#"{"channel": "c", "data": "after"}"#;

fn health() -> String {
    head("GET", "/healthz", "")
}

fn upgrade(path: &str) -> String {
    let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    head("GET", path, headers)
}

/// A connection that the control plane has answered a request on.
fn kept(address: SocketAddr) -> Http {
    let mut http = Http::connect(address);
    http.send(health().as_bytes());
    assert_eq!(http.answer().status, 200);
    http
}

/// The connections of shards, and of the control plane beside the one that asks.
fn open(address: SocketAddr) -> (u64, u64) {
    let of_shards = metric(address, "myriad_connections");
    (of_shards, metric(address, "myriad_api_connections") - 1)
}

on_both_drivers! {
    fn a_websocket_opens_behind_requests_to_the_api(driver) {
        let server = start(options(driver));
        let address = server.address();
        let mut http = kept(address);
        for _ in 0..3 {
            let length = format!("Content-Length: {}\r\n", PUBLICATION.len());
            http.send((head("POST", "/api/publish", &length) + PUBLICATION).as_bytes());
            assert_eq!(http.answer().status, 200);
        }
        let mut client = http.upgrade(PATH);
        publish_ok(address, PUBLICATION);
        assert_eq!(next_text(&mut client), "after");
        assert_eq!(metric(address, "myriad_hand_backs_total"), 1);
        until("it is with a shard", || open(address) == (1, 0));
        client.close(None).expect("an open connection");
        assert!(matches!(next(&mut client), Message::Close(_)));
    }

    fn a_stream_is_written_and_read_on_one_connection(driver) {
        let server = start(options(driver));
        let address = server.address();
        let mut http = Http::connect(address);
        let write = |method: &str, body: &str| {
            let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
            head(method, "/v1/stream/s", &headers) + body
        };
        http.send(write("PUT", "").as_bytes());
        let created = http.answer();
        assert_eq!((created.status, created.header("connection")), (201, None));
        for round in 1..=3 {
            // All of it in one segment: the reads are for a shard, and the writes come back.
            let tail = head("GET", "/v1/stream/s?offset=now&live=long-poll&cursor=1", "");
            let all = write("POST", &round.to_string()) + &head("GET", "/v1/stream/s", "") + &tail;
            http.send(all.as_bytes());
            assert_eq!(http.answer().status, 204);
            let read = http.answer();
            let expected: Vec<String> = (1..=round).map(|number| number.to_string()).collect();
            assert_eq!(read.body, format!("[{}]", expected.join(",")));
            until("it waits", || metric(address, "myriad_parked_polls") == 1);
            publish_ok(address, r#"{"channel": "s", "data": "live"}"#);
            assert_eq!(http.answer().body, r#"["live"]"#);
            http.send(write("DELETE", "").as_bytes());
            assert_eq!(http.answer().status, 204);
            http.send(write("PUT", &format!("[{}]", expected.join(","))).as_bytes());
            assert_eq!(http.answer().status, 201);
        }
        assert_eq!(metric(address, "myriad_hand_backs_total"), 3);
    }

    fn a_read_with_a_key_of_the_api_needs_no_other_connection(driver) {
        let text = "http_api = { key = \"k\" }\n[channel.without_namespace]\nhistory_size = 9\nhistory_ttl = \"1m\"\n";
        let server = start(with_file(text, Options { dev: None, ..options(driver) }));
        let mut http = Http::connect(server.address());
        let keyed = "X-API-Key: k\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n";
        http.send(head("PUT", "/v1/stream/s", keyed).as_bytes());
        assert_eq!(http.answer().status, 201);
        for _ in 0..3 {
            http.send(head("GET", "/v1/stream/s", "X-API-Key: k\r\n").as_bytes());
            assert_eq!(http.answer().status, 200);
        }
    }

    fn the_head_may_come_in_single_bytes(driver) {
        let server = start(options(driver));
        let address = server.address();
        let mut http = kept(address);
        for byte in upgrade(PATH).bytes() {
            http.send(&[byte]);
        }
        assert_eq!(http.answer().status, 101);
        until("it is with a shard", || open(address) == (1, 0));
    }

    fn requests_and_frames_may_come_in_one_segment(driver) {
        let server = start(options(driver));
        let address = server.address();
        // A body that nobody reads, and one that somebody reads.
        let length = format!("Content-Length: {}\r\n", PUBLICATION.len());
        let all = head("POST", "/nothing", "Content-Length: 4\r\n") + "GET "
            + &head("POST", "/api/publish", &length) + PUBLICATION
            + &upgrade("/echo");
        let frame = b"\x81\x82\0\0\0\0hi";
        let mut http = Http::connect(address);
        http.send(&[all.as_bytes(), frame].concat());
        let statuses = [http.answer().status, http.answer().status, http.answer().status];
        assert_eq!(statuses, [404, 200, 101]);
        http.send(b"\x81\x82\0\0\0\0ho");
        assert_eq!(http.bytes(8), b"\x81\x02hi\x81\x02ho");
    }

    fn what_a_shard_refuses_is_refused_as_on_a_new_connection(driver) {
        let server = start(options(driver));
        let address = server.address();
        let upgrade_elsewhere = upgrade("/elsewhere");
        let malformed = "GET /raw HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned();
        for (request, status) in [
            (head("GET", PATH, ""), 426),
            (head("POST", PATH, "Content-Length: 1\r\n") + "x", 405),
            (upgrade("/raw"), 400),
            (upgrade_elsewhere, 404),
            (malformed, 400),
        ] {
            let mut fresh = Http::connect(address);
            fresh.send(request.as_bytes());
            let on_new = fresh.answer();
            let mut http = kept(address);
            http.send(request.as_bytes());
            let on_kept = http.answer();
            assert_eq!((on_new.status, on_kept.status), (status, status), "{request}");
            assert!(http.ended(), "{request}");
        }
    }

    fn a_connection_is_refused_on_a_full_server_and_served_again_later(driver) {
        let server = start(Options { max_connections: Some(Count(2)), ..options(driver) });
        let address = server.address();
        let (first, second) = (websocket(address, PATH), kept(address).upgrade(PATH));
        let mut http = kept(address);
        http.send(upgrade(PATH).as_bytes());
        let answer = http.answer();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
        assert!(http.ended());
        drop(first);
        until("its place is free", || metric(address, "myriad_connections") == 1);
        let third = kept(address).upgrade(PATH);
        drop((second, third));
        until("both have gone", || metric(address, "myriad_connections") == 0);
    }

    fn a_shard_that_drains_refuses_what_comes_back(driver) {
        let server = start(Options {
            drain: Some(Span(Duration::from_secs(3))),
            ..options(driver)
        });
        let address = server.address();
        // With two clients, the drain has a second half after the first has been told.
        let mut clients = [websocket(address, PATH), websocket(address, PATH)];
        let mut held: Vec<_> = (0..4).map(|_| kept(address)).collect();
        server.stopper().drain();
        let closed = std::thread::scope(|scope| {
            let closes = clients.each_mut().map(|client| scope.spawn(|| next(client)));
            let first = until_any(&closes);
            for http in &mut held {
                http.send(upgrade(PATH).as_bytes());
                let answer = http.answer();
                assert_eq!(answer.status, 503);
                assert!(answer.body.contains("shutting down"), "{}", answer.body);
                assert!(http.ended());
            }
            first
        });
        assert!(closed);
        drop(clients);
        server.stop();
    }

    fn places_of_the_control_plane_come_back(driver) {
        // More than it has places.
        const HELD: usize = 1_100;
        const UPGRADED: usize = 100;
        let server = start(options(driver));
        let address = server.address();
        let mut held: Vec<_> = (0..HELD).map(|_| kept(address)).collect();
        let full = metric(address, "myriad_api_connections");
        let clients: Vec<_> = held.drain(HELD - UPGRADED..).map(|http| http.upgrade(PATH)).collect();
        until("their places are free", || {
            metric(address, "myriad_api_connections") <= full - UPGRADED as u64 + 1
        });
        until("they are with the shards", || metric(address, "myriad_connections") == UPGRADED as u64);
        drop((held, clients));
        until("all have gone", || open(address) == (0, 0));
    }

    fn a_thousand_connections_leave_nothing_behind(driver) {
        let name = match driver {
            DriverChoice::Epoll => "epoll",
            _ => "io_uring",
        };
        let test = format!("hand_back::a_thousand_connections_leave_nothing_behind::{name}");
        in_own_process(&test, || thousand(driver));
    }
}

/// Whether one of these threads has ended; waits for it.
fn until_any<T>(threads: &[std::thread::ScopedJoinHandle<'_, T>]) -> bool {
    until("one has ended", || {
        threads
            .iter()
            .any(std::thread::ScopedJoinHandle::is_finished)
    });
    true
}

/// Descriptors are the process's, and other tests open some meanwhile.
fn in_own_process(test: &str, body: impl FnOnce()) {
    const CHILD: &str = "MYRIAD_SERVER_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1");
    let output = command.output().expect("another process");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "another test ran: {said}");
}

fn thousand(driver: DriverChoice) {
    const CLIENTS: u64 = 1_000;
    // No more than there are permits, so that one that is lost is missed in the next round.
    let server = start(Options {
        max_connections: Some(Count(CLIENTS)),
        shards: Some(2),
        ..options(driver)
    });
    let address = server.address();
    round(&server, CLIENTS);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("our own").count();
    let before = descriptors();
    for rounds in 2..=3 {
        round(&server, CLIENTS);
        assert_eq!(metric(address, "myriad_hand_backs_total"), rounds * CLIENTS);
    }
    assert_eq!(metric(address, "myriad_hand_backs_refused_total"), 0);
    until("all descriptors are closed", || descriptors() <= before);
}

fn round(server: &Running, count: u64) {
    // The control plane has fewer places than that.
    const HALVES: u64 = 2;
    let address = server.address();
    let mut clients = Vec::new();
    for _ in 0..HALVES {
        let kept: Vec<_> = (0..count / HALVES).map(|_| kept(address)).collect();
        clients.extend(kept.into_iter().map(|http| http.upgrade(PATH)));
    }
    // The last place is given back, and the last request for metrics counted out, after the answers.
    until("all are with the shards", || open(address) == (count, 0));
    drop(clients);
    until("all have gone", || open(address) == (0, 0));
}
