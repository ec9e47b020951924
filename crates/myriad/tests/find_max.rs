//! `myriad swarm find-max` against servers whose limit is known.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{Server, myriad};

/// Writes a scenario of a crowd that holds for a moment.
fn scenario(name: &str, server: &str, more: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("find-max-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    let text = format!(
        "[terminals]\ncount = 20\ntargets = [\"ws://{server}/echo\"]\n[arrival]\nretries = 0\n\
         [hold]\nduration = \"300ms\"\nwarmup = \"10ms\"\nsettle = \"2s\"\n{more}"
    );
    std::fs::write(&path, text).expect("a file");
    path
}

fn search(scenario: &Path, more: &[&str]) -> (Output, Value) {
    let path = scenario.display().to_string();
    let output = myriad(&["swarm", "find-max", &path, "--json", "-", "--pause", "10ms"])
        .args(more)
        .output()
        .expect("a program");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, report)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_most_connections_of_a_server_are_found_exactly() {
    let server = Server::start(&["--max-connections", "130", "--drain", "1s"]);
    let metrics = format!("http://{}/metrics", server.address);
    let file = scenario("connections.toml", &server.address, "");
    for watch in [&[][..], &["--server-metrics", &metrics]] {
        let limits = ["--threshold", "errors==0", "--precision", "0.1%"];
        let (output, report) = search(&file, &[&limits[..], watch].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(report["outcome"], "found", "{report:#}");
        let knee = &report["knee"];
        // A request for metrics is a connection of the server's too.
        let value = knee["value"].as_f64().expect("a value");
        assert!((128.0..=130.0).contains(&value), "{}", said(&output));
        assert_eq!((&knee["trials"], &knee["held"]), (&4.into(), &4.into()));
        assert_eq!(knee["report"]["setup"]["connected"].as_f64(), Some(value));
        assert!(said(&output).contains("terminals.count is at most"));
    }
}

#[test]
fn a_rate_is_searched_up_to_the_largest_that_is_allowed() {
    let server = Server::start(&["--drain", "1s"]);
    let more = "[echo]\nrate = \"40/s\"\n";
    let file = scenario("rate.toml", &server.address, more);
    let page = file.with_extension("html");
    let page_at = page.display().to_string();
    let limits = ["--key", "echo.rate", "--max", "100/s", "--repeats", "1"];
    let more = ["--threshold", "echo:lost==0", "--html", &page_at];
    let (output, report) = search(&file, &[&limits[..], &more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(report["outcome"], "limit", "{report:#}");
    assert_eq!(
        (&report["unit"], &report["knee"]["value"]),
        (&"per_s".into(), &100.0.into())
    );
    let purposes: Vec<&str> = report["trials"]
        .as_array()
        .expect("trials")
        .iter()
        .filter_map(|trial| trial["purpose"].as_str())
        .collect();
    assert_eq!(purposes, ["grow", "grow", "grow", "repeat"]);
    assert!(
        std::fs::read_to_string(page)
            .expect("a page")
            .contains("echo.rate 100/s")
    );
}

#[test]
fn what_never_holds_and_who_is_not_there_end_a_search() {
    let server = Server::start(&["--drain", "1s"]);
    let file = scenario("never.toml", &server.address, "");
    let (output, report) = search(&file, &["--threshold", "setup:p99<0", "--from", "2"]);
    assert_eq!(output.status.code(), Some(99), "{}", said(&output));
    assert_eq!(report["outcome"], "never_held");
    let file = scenario("nobody.toml", "127.0.0.1:1", "");
    let (output, report) = search(&file, &["--threshold", "errors==0"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(report["outcome"], "nobody_connected");
}

#[test]
fn a_search_that_cannot_begin_says_why() {
    let file = scenario("bad.toml", "127.0.0.1:1", "");
    for (more, words) in [
        (&[][..], "give --threshold"),
        (
            &["--key", "echo.rate", "--threshold", "lost==0"],
            "has no echo.rate; give --from",
        ),
        (
            &["--key", "hold.settle", "--threshold", "lost==0"],
            "no count and no rate",
        ),
        (
            &["--max", "3", "--threshold", "lost==0"],
            "--max is out of range",
        ),
        (
            &["--set", "terminals.cuont=3", "--threshold", "lost==0"],
            "terminals.cuont",
        ),
    ] {
        let (output, _) = search(&file, more);
        assert_eq!(output.status.code(), Some(104), "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }
}
