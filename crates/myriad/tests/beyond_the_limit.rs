//! 60,000 connections through a hard limit of 20,000 descriptors, by server and crowd alike, on both drivers.

mod support;

use std::process::Command;
use std::sync::Mutex;
use support::Server;

const CONNECTIONS: u64 = 60_000;
const DESCRIPTORS: u32 = 20_000;

/// One crowd at a time: two would need twice the memory, and starve each other on a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `myriad` with those arguments, soft and hard limit lowered; the shell becomes the program.
fn limited(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" \"$@\"");
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
