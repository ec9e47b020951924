//! 60,000 connections through a hard limit of 20,000 descriptors, by server and crowd alike, on both drivers.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

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

struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(driver: &str) -> Self {
        let mut process = limited(&[
            "serve",
            "--dev",
            "--listen",
            "127.0.0.1:0",
            "--driver",
            driver,
            "--max-connections",
            "61k",
            "--drain",
            "1s",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
        let stderr = process.stderr.take().expect("piped");
        let mut lines = BufReader::new(stderr).lines();
        let address = lines
            .find_map(|line| {
                let line = line.expect("text");
                let rest = line.strip_prefix("listening on ")?;
                Some(rest.split_whitespace().next()?.to_owned())
            })
            .expect("the server says where it listens");
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn hard_limit(&self) -> u32 {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.process.id()))
            .expect("a process of ours");
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"))
            .expect("a line of limits");
        let hard = line.split_whitespace().nth(4).expect("a hard limit");
        hard.parse().expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn holds_three_times_its_descriptors(driver: &str) {
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let server = Server::start(driver);
    assert_eq!(server.hard_limit(), DESCRIPTORS);
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
