//! The whole demonstration with stand-ins for the server and the crowd (`examples/stand_in.rs`).
//!
//! Each case runs in a process of its own: the demonstration installs signal handlers, chooses a port and
//! tells its children how to behave through the environment.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set its stage has failed"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Generous: only a broken test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One demonstration at a time: between choosing a port and taking it another one could choose the same.
static TURN: Mutex<()> = Mutex::new(());

/// A directory for one case, gone with the value.
struct Place(
    PathBuf,
    #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>,
);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("myriad-demo-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path, TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn json(&self) -> PathBuf {
        self.0.join("demo.json")
    }

    /// The id a stand-in left here, once it has.
    fn process(&self, name: &str) -> u32 {
        until(|| {
            std::fs::read_to_string(self.0.join(name))
                .ok()?
                .parse()
                .ok()
        })
    }

    fn demo(&self, behaviour: &str) -> Child {
        self.command(behaviour, &self.json()).spawn().unwrap()
    }

    fn command(&self, behaviour: &str, json: &Path) -> Command {
        let mut command = Command::new(example("play"));
        command
            .arg(example("stand_in"))
            .arg(json)
            .env("STAND_IN", behaviour)
            .env("STAND_IN_PIDS", &self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn played(&self, behaviour: &str) -> (Output, String) {
        let output = self.demo(behaviour).wait_with_output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (output, said)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An example of this package; cargo builds them before its tests, beside them.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/deps/TEST");
    profile.join("examples").join(name)
}

/// Looks again and again until there is something.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain");
        // A loop without a pause would take the processor from the threads that it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Gone, or a zombie that only its new parent can take away.
fn gone(process: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return true;
    };
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn a_good_run_ends_with_a_table_and_a_file() {
    let place = Place::new("good");
    let (output, said) = place.played("");
    assert!(output.status.success(), "{said}");
    for expected in [
        "Opening 5,000 connections.",
        "$ myriad swarm 'ws://127.0.0.1:",
        "500 of 5,000 connected",
        "push 3 reached 5,000 of 5,000, the last after 10.5 ms",
        "  WebSocket connections open   5,000\n",
        "  pushes reached               all of them, 3 times\n",
    ] {
        assert!(said.contains(expected), "no {expected:?} in:\n{said}");
    }
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.json()).unwrap()).unwrap();
    assert_eq!(report["connections"], 5_000);
    assert_eq!(report["pushes"].as_array().unwrap().len(), 3);
    assert_eq!(report["pushes"][2]["last_ms"], 10.5);
    assert_eq!(report["verdict"], "reached_all");
    assert!(report["machine"]["memory"]["total_bytes"].as_u64().unwrap() > 0);
    assert!(gone(place.process("server")) && gone(place.process("crowd")));
}

#[test]
fn one_connection_missed_is_told_and_is_a_failure() {
    let place = Place::new("misses");
    let (output, said) = place.played("misses-one");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("Push 2 reached 4,999 of 5,000 connections; 1 did not get it."),
        "{said}"
    );
    assert!(said.contains("NOT all of them"), "{said}");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_starts() {
    let place = Place::new("no-folder");
    let output = place
        .command("", &place.0.join("missing/demo.json"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("missing/demo.json cannot be written"),
        "{errors}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
    assert!(!place.0.join("server").exists(), "a server was started");
}

#[test]
fn a_file_of_an_earlier_run_is_kept_by_one_that_fails_and_replaced_by_one_that_ends() {
    let place = Place::new("earlier");
    let earlier = "of an earlier run ".repeat(100_000);
    std::fs::write(place.json(), &earlier).unwrap();
    place.played("server-dies");
    assert_eq!(std::fs::read_to_string(place.json()).unwrap(), earlier);
    let (output, said) = place.played("");
    assert!(output.status.success(), "{said}");
    let replaced = std::fs::read(place.json()).unwrap();
    assert!(serde_json::from_slice::<serde_json::Value>(&replaced).is_ok());
}

#[test]
fn a_server_that_dies_is_quoted() {
    let place = Place::new("server");
    let (output, said) = place.played("server-dies");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the server ended early (exit status: 1)"),
        "{said}"
    );
    assert!(said.contains("address in use"), "{said}");
}

#[test]
fn a_crowd_that_dies_is_quoted_and_the_server_stopped() {
    let place = Place::new("crowd");
    let (output, said) = place.played("crowd-dies");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the crowd ended early (exit status: 3)"),
        "{said}"
    );
    assert!(said.contains("no route to the server"), "{said}");
    assert!(gone(place.process("server")));
}

#[test]
fn a_signal_stops_both_children() {
    let place = Place::new("signal");
    let mut demo = place.demo("hangs");
    place.process("hanging");
    signal(&demo, rustix::process::Signal::INT);
    let status = demo.wait().unwrap();
    assert_eq!(status.code(), Some(105), "{status}");
    assert!(gone(place.process("server")) && gone(place.process("crowd")));
}

#[test]
fn even_a_killed_demonstration_leaves_nobody_behind() {
    let place = Place::new("killed");
    let mut demo = place.demo("hangs");
    place.process("hanging");
    signal(&demo, rustix::process::Signal::KILL);
    demo.wait().unwrap();
    for name in ["server", "crowd"] {
        let process = place.process(name);
        until(|| gone(process).then_some(()));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}
