//! `myriad swarm find-max` against servers whose limit is known.

mod support;

use myriad_swarm::{
    Config, Endpoint, Growth, Interrupt, Language, Search, SearchOutcome, SearchReport, Threshold,
    find_max,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;
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

/// A search of a crowd that may be as late as it likes: the machine is busy with other tests.
fn patient(scenario: PathBuf) -> Search {
    Search {
        scenario,
        sets: Vec::new(),
        key: "terminals.count".to_owned(),
        from: None,
        most: None,
        growth: Growth::Factor(2.0),
        precision: 0.05,
        repeats: 3,
        pause: Duration::from_millis(10),
        late_max: Duration::MAX,
        json: None,
        html: None,
        language: Language::English,
        command: None,
    }
}

/// Searches with a threshold.
fn found(search: &Search, threshold: &str, metrics: Option<&str>) -> SearchReport {
    let over = |mut config: Config| {
        let threshold = Threshold::parse(threshold).expect("a threshold");
        config.thresholds = vec![threshold];
        let endpoint = |url| Endpoint::parse(url).expect("a URL");
        config.reporting.server_metrics = metrics.map(endpoint);
        config
    };
    find_max(search, over, &Interrupt::new()).expect("a report")
}

#[test]
fn the_most_connections_of_a_server_are_found_exactly() {
    let server = Server::start(&["--max-connections", "130", "--drain", "1s"]);
    let metrics = format!("http://{}/metrics", server.address);
    let mut search = patient(scenario("connections.toml", &server.address, ""));
    search.precision = 0.001;
    for watch in [None, Some(metrics.as_str())] {
        let report = found(&search, "errors==0", watch);
        assert_eq!(report.outcome, SearchOutcome::Found, "{report:#?}");
        let knee = report.knee.expect("a knee");
        // A request for metrics is a connection of the server's too.
        assert!((128.0..=130.0).contains(&knee.value), "{}", knee.value);
        assert_eq!((knee.trials, knee.held), (4, 4));
        assert_eq!(knee.report.setup.connected as f64, knee.value);
        let words = "terminals.count is at most";
        assert!(report.summary.starts_with(words), "{}", report.summary);
    }
}

#[test]
fn a_rate_is_searched_up_to_the_largest_that_is_allowed() {
    let server = Server::start(&["--drain", "1s"]);
    let more = "[echo]\nrate = \"40/s\"\n";
    let file = scenario("rate.toml", &server.address, more);
    let page = file.with_extension("html");
    let search = Search {
        key: "echo.rate".to_owned(),
        most: Some(100.0),
        repeats: 1,
        html: Some(page.clone()),
        ..patient(file)
    };
    let report = found(&search, "echo:lost==0", None);
    assert_eq!(report.outcome, SearchOutcome::Limit, "{report:#?}");
    assert_eq!(report.knee.map(|knee| knee.value), Some(100.0));
    let json = serde_json::to_value(&report.trials).expect("JSON");
    let trials = json.as_array().expect("trials").iter();
    let purposes: Vec<&str> = trials
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
