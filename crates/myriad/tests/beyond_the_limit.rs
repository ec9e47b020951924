//! Low hard limits of descriptors, on both drivers: 60,000 connections through one of 20,000, by server and crowd alike, and an API that
//! is crowded through one of a few hundred.

mod support;

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Mutex;
use support::{SIGTERM, Server};

const CONNECTIONS: u64 = 60_000;
const DESCRIPTORS: u32 = 20_000;

/// One crowd at a time: two would need twice the memory, and starve each other on a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `myriad` with those arguments, soft and hard limit lowered.
fn limited(arguments: &[&str]) -> Command {
    limited_to(DESCRIPTORS, arguments)
}

/// The shell becomes the program.
fn limited_to(descriptors: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    command
        .arg("-c")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_myriad"))
        .args(arguments);
    command
}

fn hard_limit(server: &Server) -> u32 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id()))
        .expect("a process of ours");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a line of limits");
    let hard = line.split_whitespace().nth(4).expect("a hard limit");
    hard.parse().expect("a number")
}

fn holds_three_times_its_descriptors(driver: &str) {
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = [
        "--driver",
        driver,
        "--max-connections",
        "61k",
        "--drain",
        "1s",
    ];
    let server = Server::start_with(limited(&[]), &options);
    assert_eq!(hard_limit(&server), DESCRIPTORS);
    let target = format!("ws://{}/raw?channel=x", server.address);
    let publish = format!("http://{}/api/publish", server.address);
    let crowd = limited(&[
        "swarm",
        &target,
        "--connections",
        &CONNECTIONS.to_string(),
        "--driver",
        driver,
        "--publish",
        &publish,
        "--pushes",
        "2",
        "--every",
        "1s",
        "--live",
        "json",
        "--threshold",
        "reach>=1",
        "--threshold",
        "gaps<=0",
    ])
    .output()
    .expect("a shell");
    let shown = String::from_utf8_lossy(&crowd.stdout);
    let said = String::from_utf8_lossy(&crowd.stderr);
    assert!(crowd.status.success(), "{driver}: {said}");
    let pushes: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains("\"event\":\"push\""))
        .collect();
    assert_eq!(pushes.len(), 2, "{shown}");
    for push in pushes {
        assert!(
            push.contains(&format!("\"received\":{CONNECTIONS},")),
            "{push}"
        );
    }
}

#[test]
fn io_uring_holds_three_times_its_descriptors() {
    holds_three_times_its_descriptors("io_uring");
}

#[test]
fn epoll_holds_three_times_its_descriptors() {
    holds_three_times_its_descriptors("epoll");
}

/// The status of an answer, such as 200; none if the connection ends without one.
fn status(server: &Server, request: &str) -> Option<u16> {
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1)?.parse().ok()
}

/// A stranger holds more connections with half a request than the server has descriptors.
fn serves_all_while_a_stranger_takes_descriptors(driver: &str, descriptors: u32) {
    let options = ["--driver", driver, "--max-connections", "100"];
    let more = ["--shards", "2", "--api-key", "k"];
    let server = Server::start_with(limited_to(descriptors, &[]), &[options, more].concat());
    assert_eq!(hard_limit(&server), descriptors);
    let beginning = "POST /api/info HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{";
    let mut held = Vec::new();
    for round in 1..=3 {
        for _ in 0..descriptors / 2 {
            let mut stream = server.connect();
            // It may have been ended already.
            let _ = stream.write_all(beginning.as_bytes());
            held.push(stream);
        }
        server.wait_until("they were handed over", |server| {
            let taken = server.metric("myriad_hand_overs_total");
            taken + server.metric("myriad_hand_overs_refused_total")
                >= f64::from(round * descriptors / 2)
        });
        for _ in 0..10 {
            let health = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            assert_eq!(status(&server, health), Some(200), "{driver}");
            let body = r#"{"channel":"c","data":1}"#;
            let publish = format!(
                "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nX-API-Key: k\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            assert_eq!(status(&server, &publish), Some(200), "{driver}");
        }
    }
    drop(held);
    server.signal(SIGTERM);
    let (_, lines) = server.wait();
    let is_lost = |line: &&String| line.contains("was dropped");
    assert_eq!(lines.iter().find(is_lost), None, "{driver}");
}

#[test]
fn a_crowded_api_answers_with_few_descriptors_on_io_uring() {
    serves_all_while_a_stranger_takes_descriptors("io_uring", 200);
}

#[test]
fn a_crowded_api_answers_with_few_descriptors_on_epoll() {
    serves_all_while_a_stranger_takes_descriptors("epoll", 600);
}

#[test]
fn too_few_descriptors_for_the_api_are_said() {
    for driver in ["io_uring", "epoll"] {
        let options = [
            "--driver",
            driver,
            "--max-connections",
            "100",
            "--shards",
            "2",
        ];
        let arguments = [&["serve", "--dev", "--listen", "127.0.0.1:0"], &options[..]].concat();
        let ended = limited_to(120, &arguments).output().expect("a shell");
        assert_eq!(ended.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("RLIMIT_NOFILE"), "{driver}: {said}");
        assert!(said.contains("LimitNOFILE="), "{driver}: {said}");
    }
}
