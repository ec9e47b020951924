//! The hostile requests of `tests/hostile` against the whole server: each connection is followed to its end, and the answers on it
//! are counted. More answers than requests would be a smuggled request, fewer a swallowed one.

use super::SHORT_TIMEOUT;
use super::cases::{self, Case, Last};
use crate::support::{Answer, Http, Running, head, on_both_drivers, options, start};
use myriad_server::Options;
use std::net::SocketAddr;

/// What a refusal of a request's framing is answered with.
const REFUSALS: [u16; 7] = [400, 408, 413, 417, 431, 501, 505];

/// All answers until the server's end of the connection. A reset in place of the end is a failure.
fn answers(address: SocketAddr, bytes: &[u8]) -> Vec<Answer> {
    let mut http = Http::connect(address);
    http.send_anyway(bytes);
    let mut answers = Vec::new();
    while !http.ended() {
        answers.push(http.answer());
    }
    answers
}

/// The connection ends behind this answer.
#[track_caller]
pub(super) fn check_farewell(name: &str, answer: &Answer) {
    let connection = answer.header("connection").unwrap_or_default();
    assert!(connection.ends_with("close"), "{name}: {answer:?}");
}

#[track_caller]
fn check_refusal(name: &str, answer: &Answer, status: u16, label: Option<&str>) {
    assert_eq!(answer.status, status, "{name}: {answer:?}");
    check_farewell(name, answer);
    if let Some(label) = label {
        let code = format!("\"code\":\"{label}\"");
        assert!(answer.body.contains(&code), "{name}: {answer:?}");
    }
}

/// Follows a case where connections are kept from one request to the next. `in_front` is a request that is answered 200, or nothing.
fn check_kept(address: SocketAddr, case: &Case, in_front: &str, has_labels: bool) {
    let name = &case.name;
    let last = head("GET", "/healthz", "Connection: close\r\n");
    let behind = match case.last {
        Last::Open => last.as_bytes(),
        _ => b"",
    };
    let sent = [in_front.as_bytes(), &case.bytes, behind].concat();
    let mut answers = answers(address, &sent);
    if !in_front.is_empty() {
        assert_eq!(answers.remove(0).status, 200, "{name}");
    }
    let rest = answers.split_off(case.ends.len().min(answers.len()));
    assert_eq!(answers.len(), case.ends.len(), "{name}: {answers:?}");
    for answer in &answers {
        assert!(!REFUSALS.contains(&answer.status), "{name}: {answer:?}");
    }
    match (&case.last, &rest[..]) {
        (Last::Open, [answer]) => assert_eq!(answer.status, 200, "{name}"),
        (Last::Closed, []) => {}
        // Whoever needs no body answers without, and ends the connection.
        (Last::Partial, [answer]) => check_farewell(name, answer),
        (Last::Refused { label, .. }, [answer]) if label == "body" => check_farewell(name, answer),
        (Last::Refused { status, label, .. }, [answer]) => {
            let label = has_labels.then_some(&**label);
            check_refusal(name, answer, *status, label);
        }
        _ => panic!("{name}: {rest:?}"),
    }
}

/// Follows the first request of a case on a path of WebSockets, whose connections are never kept.
fn check_single(address: SocketAddr, case: &Case) {
    let name = &case.name;
    // The path of these is not the one that was put in.
    if ["target-with-dots", "asterisk-form"].contains(&&**name) {
        return;
    }
    let answers = answers(address, &case.bytes);
    let [answer] = &answers[..] else {
        panic!("{name}: {answers:?}");
    };
    match &case.last {
        Last::Refused { status, label, .. } if case.ends.is_empty() && label != "body" => {
            check_refusal(name, answer, *status, None);
        }
        Last::Partial if case.ends.is_empty() && name.starts_with("head") => {
            check_refusal(name, answer, 408, None);
        }
        _ => {
            assert!(
                [405, 426, 505].contains(&answer.status),
                "{name}: {answer:?}"
            );
            check_refusal(name, answer, answer.status, None);
        }
    }
}

/// Follows a case whose body is broken to where bodies are read.
fn check_body(address: SocketAddr, case: &Case) {
    let answers = answers(address, &case.bytes);
    let answer = answers.last().expect("an answer");
    assert_eq!(
        answers.len(),
        case.ends.len() + 1,
        "{}: {answers:?}",
        case.name
    );
    check_refusal(&case.name, answer, 400, Some("body"));
}

/// Two servers with different deadlines for a request. Cases that wait for the deadline go to `hasty`, all others to `patient`: a busy
/// machine might miss a short one.
pub(super) struct Servers {
    pub(super) patient: Running,
    pub(super) hasty: Running,
}

impl Servers {
    pub(super) fn start(options: &Options) -> Self {
        Self {
            patient: start(options.clone()),
            hasty: start(Options {
                handshake_timeout: Some(SHORT_TIMEOUT),
                ..options.clone()
            }),
        }
    }

    pub(super) fn both(&self) -> [SocketAddr; 2] {
        [self.patient.address(), self.hasty.address()]
    }

    /// Follows all cases. Those that wait for a deadline wait together.
    pub(super) fn follow_all(&self, cases: &[Case], follow: impl Fn(SocketAddr, &Case) + Sync) {
        let [patient, hasty] = self.both();
        let (slow, quick): (Vec<_>, Vec<_>) =
            cases.iter().partition(|case| case.last == Last::Partial);
        std::thread::scope(|scope| {
            for case in slow {
                scope.spawn(|| follow(hasty, case));
            }
            quick.into_iter().for_each(|case| follow(patient, case));
        });
    }
}

on_both_drivers! {
    fn the_control_plane_reads_hostile_requests_as_their_cases_say(driver) {
        let servers = Servers::start(&options(driver));
        let first = head("GET", "/healthz", "");
        // The first request of a connection is judged by a shard, the others by the control plane alone.
        servers.follow_all(&cases::read_all("/healthz"), |address, case| {
            check_kept(address, case, &first, true);
            check_kept(address, case, "", !case.ends.is_empty());
        });
        for case in cases::read_all("/api/publish") {
            if matches!(&case.last, Last::Refused { label, .. } if label == "body") {
                check_body(servers.patient.address(), &case);
            }
        }
    }

    fn shards_read_hostile_requests_as_their_cases_say(driver) {
        Servers::start(&options(driver)).follow_all(&cases::read_all("/raw"), check_single);
    }
}
