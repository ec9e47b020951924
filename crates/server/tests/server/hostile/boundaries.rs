//! Connections that change their plane or their transport from one request to the next: each request ends on its exact byte, and the
//! next one is judged as if it came alone.

use super::{UPGRADE, masked};
use crate::support::{Http, head, metric, on_both_drivers, options, publish_ok, start, with_file};
use myriad_server::{DriverChoice, Options};
use std::net::SocketAddr;

const PUBLICATION: &str = r#"{"channel": "other", "data": "x"}"#;
/// Looks like a request, and is the body of another one.
const SMUGGLED: &str = "GET /v1/stream/smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// What becomes of a connection behind an answer.
enum Then {
    /// It takes the next request.
    Kept,
    /// It ends.
    End,
    /// It is a WebSocket.
    WebSocket,
}

struct Step {
    name: &'static str,
    bytes: Vec<u8>,
    status: u16,
    then: Then,
}

fn step(name: &'static str, text: String, status: u16, then: Then) -> Step {
    Step {
        name,
        bytes: text.into_bytes(),
        status,
        then,
    }
}

fn with_length(path: &str, body: &str) -> String {
    let length = format!("Content-Length: {}\r\n", body.len());
    head("POST", path, &length) + body
}

fn in_chunks(path: &str, body: &str) -> String {
    let (front, back) = body.split_at(7);
    head("POST", path, "Transfer-Encoding: chunked\r\n")
        + &format!(
            "7\r\n{front}\r\n{:x};a=b\r\n{back}\r\n0\r\nc: d\r\n\r\n",
            back.len()
        )
}

/// Requests that another one may follow. Shards answer the first two, and the control plane the others.
fn kept() -> Vec<Step> {
    let kept = |name, text, status| step(name, text, status, Then::Kept);
    let read = |query: &str| head("GET", &format!("/v1/stream/s{query}"), "");
    vec![
        kept("read", read(""), 200),
        kept("poll", read("?offset=-1&live=long-poll"), 200),
        kept("health", head("GET", "/healthz", ""), 200),
        kept("preflight", head("OPTIONS", "/v1/stream/s", ""), 204),
        kept("publish", with_length("/api/publish", PUBLICATION), 200),
        kept("chunks", in_chunks("/api/publish", PUBLICATION), 200),
        kept("commands", with_length("/emulation", SMUGGLED), 400),
        kept("unread", with_length("/nothing", SMUGGLED), 404),
        kept("unread chunks", in_chunks("/nothing", SMUGGLED), 404),
        kept("unread append", with_length("/v1/stream/s", SMUGGLED), 400),
    ]
}

/// Requests that none follows.
fn last() -> Vec<Step> {
    let mut echo = format!("GET /echo HTTP/1.1\r\n{UPGRADE}").into_bytes();
    echo.extend(masked(0x81, b"hi"));
    let both = "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n";
    let ends = |name, text, status| step(name, text, status, Then::End);
    vec![
        Step {
            bytes: echo,
            ..step("echo", String::new(), 101, Then::WebSocket)
        },
        ends(
            "first message",
            with_length("/connection/uni_http_stream", SMUGGLED) + SMUGGLED,
            400,
        ),
        ends(
            "first message in chunks",
            in_chunks("/connection/uni_http_stream", SMUGGLED) + SMUGGLED,
            400,
        ),
        ends(
            "two lengths",
            head("POST", "/api/publish", both) + "0\r\n\r\n" + SMUGGLED,
            400,
        ),
        ends(
            "two lengths of a read",
            head("GET", "/v1/stream/s", both) + "0\r\n\r\n" + SMUGGLED,
            400,
        ),
        ends(
            "read with a body",
            head("GET", "/v1/stream/s", "Content-Length: 4\r\n") + "body" + SMUGGLED,
            400,
        ),
        ends(
            "bare line feed",
            head("GET", "/v1/stream/s", "").replacen("\r\n", "\n", 1),
            400,
        ),
    ]
}

/// Reads the answer to a step; false if the connection ends behind it.
#[track_caller]
fn check_step(http: &mut Http, step: &Step, what: &str) -> bool {
    let answer = http.answer();
    assert_eq!(answer.status, step.status, "{what}: {answer:?}");
    match step.then {
        Then::Kept => true,
        Then::End => {
            assert_eq!(answer.header("connection"), Some("close"), "{what}");
            assert!(http.ended(), "{what}");
            false
        }
        Then::WebSocket => {
            assert_eq!(http.bytes(4), b"\x81\x02hi", "{what}");
            http.send(&masked(0x81, b"ho"));
            assert_eq!(http.bytes(4), b"\x81\x02ho", "{what}");
            false
        }
    }
}

/// One request behind another. `early` bytes of the second come with the first, and the rest when that is answered.
fn check_pair(address: SocketAddr, one: &Step, other: &Step, early: usize) {
    let what = format!(
        "{} and {}, of which {early} bytes come early",
        one.name, other.name
    );
    let (front, back) = other.bytes.split_at(early);
    let mut http = Http::connect(address);
    http.send(&[&one.bytes[..], front].concat());
    assert!(check_step(&mut http, one, &what));
    http.send_anyway(back);
    if check_step(&mut http, other, &what) {
        http.send_anyway(head("GET", "/healthz", "Connection: close\r\n").as_bytes());
        // Who answers without the body need not wait for the rest of it.
        let is_cut = early > 0 && early < other.bytes.len();
        if other.name.starts_with("unread") && is_cut && http.ended() {
            return;
        }
        assert!(!http.ended(), "{what}");
        assert_eq!(http.answer().status, 200, "{what}");
        assert!(http.ended(), "{what}");
    }
}

/// Where the second request is cut: in front of it, in its first line, around the end of its head, and behind it.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let head_bytes = end.map_or(bytes.len(), |at| at + 4);
    let mut cuts = vec![
        0,
        1,
        5,
        head_bytes - 1,
        head_bytes,
        head_bytes + 1,
        bytes.len(),
    ];
    cuts.retain(|&cut| cut <= bytes.len());
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

fn served(driver: DriverChoice) -> Options {
    let text = "[uni_http_stream]\nenabled = true\n[http_stream]\nenabled = true\n";
    with_file(text, options(driver))
}

on_both_drivers! {
    fn a_request_of_another_transport_is_judged_from_its_first_byte(driver) {
        let server = start(served(driver));
        let address = server.address();
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        for one in kept() {
            for other in kept().iter().chain(&last()) {
                for early in cuts(&other.bytes) {
                    check_pair(address, &one, other, early);
                }
            }
        }
        let smuggled = metric(address, "myriad_upgrades_refused_total{reason=\"stream\"}");
        assert_eq!(smuggled, 0, "nobody asked for the stream in a body");
    }

    fn requests_that_change_planes_many_times_are_answered_in_their_order(driver) {
        let server = start(served(driver));
        let address = server.address();
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        let read = head("GET", "/v1/stream/s", "");
        let publish = in_chunks("/api/publish", PUBLICATION);
        let echo = format!("GET /echo HTTP/1.1\r\n{UPGRADE}");
        // One whose body is read: what answers without it may end the connection if the body comes late.
        let commands = with_length("/emulation", SMUGGLED);
        let sent = [read.repeat(3), publish.repeat(3), commands, echo].concat();
        let sent = [sent.as_bytes(), &masked(0x81, b"hi")].concat();
        let statuses = [200, 200, 200, 200, 200, 200, 400, 101];
        for size in [1, 2, 3, 17, 64, sent.len()] {
            let mut http = Http::connect(address);
            for piece in sent.chunks(size) {
                http.send(piece);
            }
            let said = statuses.map(|_| http.answer().status);
            assert_eq!(said, statuses, "in pieces of {size}");
            assert_eq!(http.bytes(4), b"\x81\x02hi");
        }
    }
}
