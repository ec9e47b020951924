//! The scenario that `swarm init` writes, and each ready one, at a small size against a server.

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;
use support::{Server, myriad};

fn ready(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    folder.join(name).display().to_string()
}

/// Runs a scenario with changes, and returns its report.
fn report(server: &Server, file: &str, changes: &[&str]) -> serde_json::Value {
    let address = format!("variables.server={}", server.address);
    let mut command = myriad(&[
        "swarm", file, "--live", "off", "--json", "-", "--set", &address,
    ]);
    for change in changes {
        command.args(["--set", change]);
    }
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file}: {said}");
    serde_json::from_slice(&output.stdout).expect("a report")
}

/// Where a test may write.
fn folder() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scenarios-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_first_scenario_is_written_once_and_runs_as_it_is() {
    let file = folder().join("first.toml").display().to_string();
    let _ = std::fs::remove_file(&file);
    let init = || {
        myriad(&["swarm", "init", &file])
            .output()
            .expect("a program")
    };
    assert!(init().status.success());
    let again = init();
    assert_eq!(again.status.code(), Some(104));
    assert!(
        text(&again).contains("exists; give another name"),
        "{}",
        text(&again)
    );

    let server = Server::start(&[]);
    let changes = ["terminals.count=50", "publish.every=100ms"];
    let report = report(&server, &file, &changes);
    assert_eq!(report["setup"]["connected"], 50);
    assert_eq!(report["pushes"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["thresholds"].as_array().map(Vec::len), Some(3));
}

#[test]
fn the_schema_is_json() {
    let output = myriad(&["swarm", "schema"]).output().expect("a program");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(schema["properties"]["terminals"].is_object());
}

#[test]
fn a_mistake_is_shown_with_its_line_and_nothing_starts() {
    let file = folder().join("wrong.toml");
    let wrong = "[terminals]\ntargets = [\"ws://127.0.0.1:1/\"]\ncount = \"12q\"\n";
    std::fs::write(&file, wrong).expect("a file");
    let file = file.display().to_string();
    let output = myriad(&["swarm", &file]).output().expect("a program");
    assert_eq!(output.status.code(), Some(104));
    let said = text(&output);
    assert!(
        said.starts_with(&format!("error: {file}:3:9: terminals.count: ")),
        "{said}"
    );
    assert!(
        said.contains("\n 3 | count = \"12q\"\n   |         ^^^^^"),
        "{said}"
    );

    let option = myriad(&["swarm", &file, "--echo", "5"])
        .output()
        .expect("a program");
    assert!(
        text(&option).contains("--echo does not go beside a scenario"),
        "{}",
        text(&option)
    );
    let set = myriad(&["swarm", "ws://127.0.0.1:1/", "--set", "a=b"]).output();
    assert_eq!(set.expect("a program").status.code(), Some(104));
}

#[test]
fn broadcast() {
    let server = Server::start(&[]);
    let changes = ["variables.connections=200", "publish.every=200ms"];
    let report = report(&server, &ready("broadcast.toml"), &changes);
    assert_eq!(report["setup"]["connected"], 200);
}

#[test]
fn idle_heartbeat() {
    let server = Server::start(&[]);
    let changes = [
        "variables.connections=100",
        "hold.duration=2s",
        "heartbeat.every=500ms",
    ];
    let report = report(&server, &ready("idle-heartbeat.toml"), &changes);
    assert!(report["pings"]["heartbeats_answered"].as_u64() >= Some(200));
}

#[test]
fn reconnect_storm() {
    for driver in ["generator.driver=epoll", "generator.driver=auto"] {
        let server = Server::start(&[]);
        let changes = [
            driver,
            "variables.connections=100",
            "storm=[{ at = \"1s\", share = \"50%\" }]",
            "reconnect.backoff=200ms..2s",
            // Something is to be missed by then.
            "hold.warmup=200ms",
            "hold.duration=4s",
            "publish.every=50ms",
        ];
        let report = report(&server, &ready("reconnect-storm.toml"), &changes);
        assert_eq!(report["comeback"]["storms"][0]["dropped"], 50);
        assert_eq!(report["comeback"]["back"], 50);
        assert!(report["session"]["recovered_publications"].as_u64() > Some(0));
    }
}

#[test]
fn comet() {
    let server = Server::start(&["--poll-timeout", "1s..2s"]);
    let mut curl = std::process::Command::new("curl");
    let stream = format!("http://{}/v1/stream/quiet", server.address);
    curl.args([
        "-sf",
        "-X",
        "PUT",
        "-H",
        "Content-Type: text/plain",
        &stream,
    ]);
    assert!(curl.status().expect("curl").success());
    // On a machine that is busy with other tests, 100 ms are soon over.
    let changes = [
        "variables.connections=100",
        "terminals.expect-held=1s..2s",
        "hold.duration=5s",
        "thresholds=[\"errors==0\", \"lost==0\", \"held:early==0\"]",
    ];
    let report = report(&server, &ready("comet.toml"), &changes);
    assert!(report["http"]["timeouts"].as_u64() >= Some(100));
}

#[test]
fn requests() {
    let server = Server::start(&[]);
    let changes = ["terminals.count=20", "echo.rate=500", "hold.duration=3s"];
    let report = report(&server, &ready("requests.toml"), &changes);
    assert!(report["echo"]["received"].as_u64() >= Some(400));
}
