//! The hostile requests of `tests/hostile` on paths of which each plane reads some: whoever judges a request, its verdict is the same,
//! on a new connection and behind a request of either plane.

use super::cases::{self, Case, Last};
use super::corpus::{Servers, check_farewell};
use super::fronts;
use crate::support::{
    Answer, Http, head, on_both_drivers, options, publish_ok, request, start, with_file,
};
use myriad_server::{DriverChoice, Options};
use std::net::SocketAddr;

const STREAM: &str = "/v1/stream/s";
const UNIDIRECTIONAL: &str = "/connection/uni_http_stream";

/// With a stream to read, and with responses that go on.
fn served(driver: DriverChoice) -> Options {
    with_file("[uni_http_stream]\nenabled = true\n", options(driver))
}

/// The answers to a case behind `front`, which is answered 200.
fn behind(address: SocketAddr, front: &str, case: &Case) -> Vec<Answer> {
    // Nothing counts behind a request that is refused or ends the connection.
    let last = match case.last {
        Last::Open => head("GET", STREAM, "Connection: close\r\n"),
        _ => String::new(),
    };
    let mut http = Http::connect(address);
    http.send_anyway(&[front.as_bytes(), &case.bytes, last.as_bytes()].concat());
    let mut answers = Vec::new();
    while !http.ended() {
        let answer = http.answer();
        // Nothing is answered behind one that goes on.
        let goes_on = answer.header("transfer-encoding").is_some();
        answers.push(answer);
        if goes_on {
            break;
        }
    }
    if !front.is_empty() {
        assert_eq!(answers.remove(0).status, 200, "{}", case.name);
    }
    answers
}

fn statuses(answers: &[Answer]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// The accepted requests of a case.
fn requests(case: &Case) -> impl Iterator<Item = &[u8]> {
    let starts = [0].into_iter().chain(case.ends.iter().copied());
    starts
        .zip(&case.ends)
        .map(|(start, &end)| case.bytes[start..end].trim_ascii_start())
}

fn is_plain_get(request: &[u8]) -> bool {
    request.starts_with(b"GET ")
        && request.windows(4).position(|four| four == b"\r\n\r\n") == Some(request.len() - 4)
}

/// What is answered for the framing of a request, whatever it asks for.
fn is_of_framing(answer: &Answer) -> bool {
    [408, 413, 417, 431, 501, 505].contains(&answer.status)
}

/// Checks that each answer belongs to one request of the case. Errors of a read end the connection.
fn check_reads(case: &Case, answers: &[Answer]) {
    let name = &case.name;
    let mut left = answers.iter();
    for request in requests(case) {
        let answer = left.next().unwrap_or_else(|| panic!("{name}: {answers:?}"));
        assert!(!is_of_framing(answer), "{name}: {answer:?}");
        assert!(
            answer.status != 400 || !is_plain_get(request),
            "{name}: {answer:?}"
        );
        let connection = answer.header("connection").unwrap_or_default();
        if connection.ends_with("close") {
            assert_eq!(left.count(), 0, "{name}: {answers:?}");
            return;
        }
    }
    let last = left.next();
    assert_eq!(left.count(), 0, "{name}: {answers:?}");
    match (&case.last, last) {
        (Last::Closed, None) => {}
        (Last::Open, Some(answer)) => assert_eq!(answer.status, 200, "{name}"),
        (Last::Partial, Some(answer)) => check_farewell(name, answer),
        (Last::Refused { status, .. }, Some(answer)) => {
            assert_eq!(answer.status, *status, "{name}: {answer:?}");
            check_farewell(name, answer);
        }
        _ => panic!("{name}: {answers:?}"),
    }
}

/// Checks the one answer to a case on a path whose requests have a body that shards read.
fn check_body(case: &Case, answers: &[Answer]) {
    let name = &case.name;
    let [answer] = answers else {
        panic!("{name}: {answers:?}");
    };
    check_farewell(name, answer);
    let is_first = case.ends.is_empty();
    match &case.last {
        Last::Refused { status, label, .. } if is_first && label != "body" => {
            assert_eq!(answer.status, *status, "{name}: {answer:?}");
        }
        Last::Refused { .. } if is_first && case.bytes.starts_with(b"POST ") => {
            assert_eq!(answer.status, 400, "{name}: {answer:?}");
            // The framing was at fault, not what it framed.
            assert!(
                !answer.body.contains("connect request"),
                "{name}: {answer:?}"
            );
        }
        Last::Partial if is_first && name.starts_with("head") => {
            assert_eq!(answer.status, 408, "{name}: {answer:?}");
        }
        _ => assert!(
            [200, 400, 405, 408, 413, 417, 505].contains(&answer.status),
            "{name}: {answer:?}"
        ),
    }
}

/// The path of these is not the one that was put in.
fn has_other_path(case: &Case) -> bool {
    ["target-with-dots", "asterisk-form"].contains(&&*case.name)
}

on_both_drivers! {
    fn both_planes_judge_requests_about_streams_alike(driver) {
        let servers = Servers::start(&served(driver));
        for address in servers.both() {
            publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        }
        servers.follow_all(&cases::read_all(STREAM), |address, case| {
            let said = fronts().map(|front| behind(address, &front, case));
            check_reads(case, &said[0]);
            for other in &said[1..] {
                assert_eq!(statuses(other), statuses(&said[0]), "{}: {said:?}", case.name);
            }
        });
    }

    fn a_read_with_a_body_is_refused_at_each_address(driver) {
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = start(Options { internal_listen: internal, ..served(driver) });
        let internal = server.internal_address().expect("an internal address");
        publish_ok(internal, r#"{"channel": "s", "data": 1}"#);
        for address in [server.address(), internal] {
            let read = |body| request(address, "GET", STREAM, "", body).status;
            assert_eq!((read(""), read("body")), (200, 400));
        }
    }

    fn both_planes_judge_requests_with_a_first_message_alike(driver) {
        let servers = Servers::start(&served(driver));
        for address in servers.both() {
            publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        }
        servers.follow_all(&cases::read_all(UNIDIRECTIONAL), |address, case| {
            if has_other_path(case) {
                return;
            }
            let said = fronts().map(|front| behind(address, &front, case));
            check_body(case, &said[0]);
            for other in &said[1..] {
                assert_eq!(statuses(other), statuses(&said[0]), "{}: {said:?}", case.name);
            }
        });
    }
}
