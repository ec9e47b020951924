//! `myriad arena` on small manifests of its own: Myriad as a contestant, and contestants that fail in each way there is.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set its stage has failed"
)]

use serde_json::Value;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

/// A crowd and a server at a time are enough for a small machine, and ports are not fought over.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const DEFAULTS: &str = r#"
[defaults]
kind = "websocket"
features = ["push", "echo"]
needs = []
needs_hint = "install it"
build = []
build_seconds_max = 20
environment = {}
processes = "one"
start_seconds_max = 30
stop_signal = "TERM"
stop_seconds_max = 10
descriptors_spare = 100
heap = { base_mb = 0, per_1000_connections_mb = 0 }
warm_up = { connections = 20, pushes = 3, echoes = 5, requests = 5 }
socket_paths = { push = "/raw?channel=arena", echo = "/echo" }
broadcast = { path = "/api/publish", body = "api" }
stats = { path = "/metrics", pattern = '(?m)^myriad_connections (\d+)' }
"#;

const SERVE: &str = r#"["{myriad}", "serve", "--dev", "--listen", "{host}:{port}", "--drain", "0s", "--driver", "epoll"]"#;

const SERVE_TLS: &str = r#"["{myriad}", "serve", "--dev", "--listen", "{host}:0", "--tls-listen", "{host}:{port}", "--tls-certificate", "{certificate}", "--tls-key", "{key}", "--drain", "0s", "--driver", "epoll"]"#;

/// Serves until ten connections are established, and is gone then.
const DIE: &str = r#"
"$1" serve --dev --listen "127.0.0.1:$PORT" --driver epoll &
established=$(printf ':%04X [0-9A-F]*:[0-9A-F]* 01' "$PORT")
until [ "$(grep -c "$established" /proc/net/tcp)" -ge 10 ]; do sleep 0.02; done
kill -9 $!
echo error: out of everything
exit 3
"#;

/// A folder with a manifest, gone after the test.
struct Arena {
    folder: PathBuf,
    port: u16,
}

impl Arena {
    fn new(name: &str, contestants: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("arena-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("arena.toml"),
            format!("{DEFAULTS}{contestants}"),
        )
        .unwrap();
        // Below the range of outgoing connections: the crowd must not take it meanwhile.
        let port = (20_000..32_000)
            .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
            .unwrap();
        Self { folder, port }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
        command
            .args([
                "arena",
                "--rounds",
                "1",
                "--idle",
                "0s",
                "--connections",
                "40",
            ])
            .args(["--pushes", "2", "--port", &self.port.to_string(), "--arena"])
            .arg(&self.folder)
            .args(["--echo-connections", "30", "--echo-rate", "200/s"])
            .args(["--echo-duration", "1s", "--request-rate", "50/s"])
            .args(["--request-duration", "1s", "--json"])
            .arg(self.path("report.json"))
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, with a page and a Markdown file: their paths.
    fn run_with_pages(&self, arguments: &[&str]) -> (Output, PathBuf, PathBuf) {
        let (html, markdown) = (self.path("a.html"), self.path("a.md"));
        let mut command = self.command(arguments);
        command.arg("--html").arg(&html);
        command.arg("--markdown").arg(&markdown);
        (command.output().unwrap(), html, markdown)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn report(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.path("report.json")).unwrap()).unwrap()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// An entry that starts in the manifest's own folder.
fn contestant(name: &str, start: &str, more: &str) -> String {
    format!(
        "\n[[contestant]]\nname = \"{name}\"\ntitle = \"<{name}>\"\nlanguage = \"c\"\nversion = \"1\"\nfolder = \".\"\n\
         start = {start}\n{more}\n"
    )
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A difference of two readings is above zero, or `null` where the crowd was too small to measure; never missing.
fn check_difference(figures: &Value, name: &str) {
    let value = figures.get(name).expect("the figure is named");
    assert!(
        value.is_null() || value.as_f64() > Some(0.0),
        "{name}: {value}"
    );
}

#[test]
fn a_contestant_that_does_everything_has_every_figure() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new("whole", &contestant("good", SERVE, ""));
    let (output, html, markdown) = arena.run_with_pages(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let report = arena.report();
    let good = &report["contestants"][0];
    assert_eq!(good["name"], "good");
    assert_eq!(good["ok"], true, "{}", good["reason"]);
    assert_eq!(good["connections_held"], 40.0);
    assert_eq!(good["errors"], 0.0);
    for figure in [
        "user_base_bytes",
        "user_bytes",
        "rss_base_bytes",
        "setup_per_s",
        "push_first_ms",
        "push_p50_ms",
        "push_p99_ms",
        "push_last_ms",
        "crowd_down_s",
        "echo_per_s",
        "echo_p50_ms",
        "echo_p99_ms",
    ] {
        assert!(
            good[figure].as_f64().is_some_and(|value| value > 0.0),
            "{figure}: {}",
            good[figure]
        );
    }
    assert!(good["push_first_ms"].as_f64() <= good["push_last_ms"].as_f64());
    assert!(good["echo_p50_ms"].as_f64() <= good["echo_p99_ms"].as_f64());
    check_difference(good, "user_bytes_per_connection");
    check_difference(good, "cpu_s_per_million_deliveries");
    assert_eq!(good["over_rounds"]["setup_per_s"]["ratio_to_best"], 1.0);
    assert_eq!(
        good["arrivals"].as_array().unwrap().last().unwrap()["share"],
        1.0
    );
    assert!(report["machine"]["cores"].as_u64() > Some(0));
    assert_eq!(report["settings"]["echo_connections"], 30);
    assert_eq!(report["settings"]["echo_rate_per_s"], 200.0);
    assert_eq!(report["settings"]["echo_duration_s"], 1.0);
    assert_eq!(report["settings"]["request_connections"], 64);
    assert_eq!(report["settings"]["request_rate_per_s"], 50.0);
    assert_eq!(report["settings"]["request_duration_s"], 1.0);

    assert!(text(&html).contains("&lt;good&gt;") && !text(&html).contains("<good>"));
    assert!(text(&markdown).contains("| \\<good\\> | 1 |"));
    assert!(text(&html).contains("<h2>Echo</h2>") && text(&markdown).contains("### Echo\n"));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("good") && table.contains("×1.00"), "{table}");
    for phase in [
        "build",
        "good: warm-up",
        "crowd up",
        "pushes",
        "crowd down",
        "echo warm-up",
        "good: echo\n",
    ] {
        assert!(said.contains(phase), "{phase}: {said}");
    }
}

#[test]
fn a_crowd_that_is_held_over_http_has_every_figure_of_its_transport() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let held = r#"
[contestant.held]
long-poll = { path = "/v1/stream/arena?offset=now&live=long-poll", stats = { path = "/metrics", pattern = '(?m)^myriad_parked_polls (\d+)' } }
sse = { path = "/v1/stream/arena?offset=now&live=sse" }
broadcast = { path = "/v1/stream/arena", body = "stream" }
create = "/v1/stream/arena"
"#;
    let other = contestant("other", SERVE, "");
    let arena = Arena::new("held", &(contestant("good", SERVE, held) + &other));
    for (transport, polls) in [("long-poll", true), ("sse", false)] {
        let output = arena.run(&["--held", transport]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report = arena.report();
        assert_eq!(report["settings"]["held"], transport);
        assert_eq!(report["contestants"].as_array().map(Vec::len), Some(1));
        let good = &report["contestants"][0];
        assert_eq!(good["connections_held"], 40.0, "{good}");
        assert_eq!(good["errors"], 0.0, "{good}");
        for figure in [
            "setup_per_s",
            "push_first_ms",
            "push_last_ms",
            "crowd_down_s",
        ] {
            assert!(good[figure].as_f64() > Some(0.0), "{figure}: {good}");
        }
        assert_eq!(good["poll_answers_per_s"].as_f64() > Some(0.0), polls);
        assert!(good.get("echo_per_s").is_none(), "{good}");
    }
}

/// One contestant for each way to fail, and one that does not.
fn failing() -> String {
    let dies = "[\"sh\", \"die.sh\", \"{myriad}\"]";
    [
        contestant(
            "unbuildable",
            SERVE,
            "build = [[\"sh\", \"-c\", \"echo error: no such thing >&2; exit 7\"]]",
        ),
        contestant("toolless", SERVE, "needs = [\"no-such-tool\"]"),
        contestant("unstartable", "[\"./nothing-there\"]", ""),
        contestant(
            "ends",
            "[\"sh\", \"-c\", \"echo error: no licence; exit 4\"]",
            "",
        ),
        contestant("mute", "[\"sleep\", \"1000\"]", "start_seconds_max = 1"),
        contestant(
            "deaf",
            SERVE,
            "broadcast = { path = \"/nowhere\", body = \"api\" }",
        ),
        contestant(
            "wordless",
            SERVE,
            "stats = { path = \"/healthz\", pattern = 'none of (\\d+)' }",
        ),
        contestant(
            "dies",
            dies,
            "warm_up = { connections = 0, pushes = 0, echoes = 0, requests = 0 }",
        ),
        contestant(
            "echoless",
            SERVE,
            "socket_paths = { push = \"/raw?channel=arena\", echo = \"/nowhere\" }",
        ),
        contestant(
            "requestless",
            SERVE,
            "features = [\"push\", \"request\"]\nwarm_up = { connections = 0, pushes = 0, echoes = 0, requests = 0 }",
        ),
        contestant("silent", SERVE, "features = [\"push\"]"),
        contestant("good", SERVE, ""),
    ]
    .concat()
}

#[test]
fn whoever_fails_has_a_row_that_says_why_and_the_others_go_on() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new("failures", &failing());
    std::fs::write(arena.path("die.sh"), DIE).unwrap();
    let output = arena.run(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report = arena.report();
    let rows = report["contestants"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    for (name, reason) in [
        ("unbuildable", "exit status: 7): error: no such thing"),
        ("toolless", "not on PATH: no-such-tool; install it"),
        ("unstartable", "nothing-there"),
        ("ends", "exit status: 4): error: no licence"),
        ("mute", "GET /metrics on port"),
        ("deaf", "pushes: push 1 reached 0 of 40 (publish_404"),
        ("wordless", "without a number of connections"),
        (
            "dies",
            "the server ended (exit status: 3): error: out of everything",
        ),
        ("echoless", "echo warm-up: the crowd ended (exit status: 1)"),
        (
            "requestless",
            "requests were answered with what they carried (request_404",
        ),
    ] {
        let row = row(name);
        assert_eq!(row["ok"], false, "{name}");
        assert!(
            row["reason"].as_str().unwrap().contains(reason),
            "{name}: {}",
            row["reason"]
        );
    }
    // What came before the failure stays, and what nobody offers is no failure.
    assert_eq!(row("echoless")["connections_held"], 40.0);
    let requestless = row("requestless");
    assert!(requestless["push_last_ms"].is_number());
    assert!(requestless["errors_by_kind"]["request_404"].as_u64() > Some(0));
    assert!(requestless["request_per_s"].as_f64() == Some(0.0));
    assert!(requestless["request_p50_ms"].is_null());
    let silent = row("silent");
    assert_eq!(silent["ok"], true, "{}", silent["reason"]);
    assert_eq!(silent["notes"][0], "it offers no echo");
    assert_eq!(silent["notes"][1], "it offers no request");
    assert!(silent["request_per_s"].is_null());
    assert!(silent["echo_per_s"].is_null() && row("good")["echo_per_s"].is_number());
    assert_eq!(
        rows.last().unwrap()["ok"],
        true,
        "{}",
        rows.last().unwrap()["reason"]
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("mute FAILED: start: GET /metrics"),
        "{table}"
    );
}

#[test]
fn the_largest_crowd_is_found_and_what_stopped_the_next_is_said() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let full = SERVE.replace("\"epoll\"]", "\"epoll\", \"--max-connections\", \"20\"]");
    let contestants = contestant("full", &full, "") + &contestant("good", SERVE, "");
    let arena = Arena::new("largest", &contestants);
    let (output, html, markdown) = arena.run_with_pages(&["--rounds", "0", "--largest=40"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let report = arena.report();
    assert_eq!(report["settings"]["largest_max"], 40);
    let [full, good] = [0, 1].map(|place| report["contestants"][place]["largest"].clone());
    assert_eq!(full["connections"], 20);
    assert_eq!(full["processes"], 1);
    let stopped_by = full["stopped_by"].as_str().unwrap();
    assert!(
        stopped_by.starts_with("30 connections: crowd up: only 20 of 30 connected (handshake_503 "),
        "{stopped_by}"
    );
    assert_eq!(good["connections"], 40);
    assert!(good["stopped_by"].is_null());
    for largest in [full, good] {
        for figure in ["setup_per_s", "user_bytes", "push_first_ms", "push_last_ms"] {
            assert!(largest[figure].as_f64() > Some(0.0), "{figure}: {largest}");
        }
        check_difference(&largest, "cpu_s_per_million_deliveries");
    }
    // The largest of all first.
    let tried = [
        "good, 40 connections: crowd up",
        "full, 30 connections: FAILED",
    ];
    assert!(tried.iter().all(|words| said.contains(words)), "{said}");
    assert!(!said.contains("good, 30 connections"), "{said}");

    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("Largest crowd\n"), "{table}");
    assert!(
        table.contains("full: a larger crowd: 30 connections"),
        "{table}"
    );
    assert!(text(&markdown).contains("| \\<full\\> | 1 | 20 | 1 | "));
    assert!(text(&html).contains("<h2>Largest crowd</h2>"));
}

#[test]
fn the_crowd_of_the_rounds_is_the_least_of_largest_ones() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let full = SERVE.replace("\"epoll\"]", "\"epoll\", \"--max-connections\", \"40\"]");
    let contestants = contestant("full", &full, "features = [\"push\"]");
    let arena = Arena::new("least", &contestants);
    let output = arena.run(&["--largest=60"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let row = &arena.report()["contestants"][0];
    assert_eq!(row["connections_held"], 40.0);
    assert_eq!(row["largest"]["connections"], 40);
    assert_eq!(row["largest"]["push_last_ms"], row["push_last_ms"]);
    let stopped_by = row["largest"]["stopped_by"].as_str().unwrap();
    assert!(stopped_by.starts_with("45 connections: "), "{stopped_by}");
}

#[test]
fn bad_arguments_say_what_there_is() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new("arguments", &contestant("good", SERVE, ""));
    for (arguments, hint) in [
        (&["--only", "god"][..], "there are good"),
        (&["--arena", "/nowhere"], "--arena DIR"),
        (&["--connections", "3"], "at least 8"),
        (&["--rounds", "0"], "--largest"),
        (&["--largest=3"], "at least 8"),
        (&["--echo-connections", "0"], "at least 1"),
        (&["--echo-rate", "0.5"], "from 1/s"),
        (&["--echo-duration", "2h"], "from 1s to 1h"),
        (&["--request-connections", "0"], "--request-connections"),
        (&["--request-rate", "0.5"], "from 1/s"),
        (&["--request-duration", "2h"], "from 1s to 1h"),
        (&["--html", "/nowhere/x.html"], "/nowhere/x.html"),
        (&["--held", "udp"], "long-poll or sse"),
        (&["--held", "sse", "--only", "good"], "with --held sse"),
        (&["--held", "sse"], "no contestant"),
        (
            &["--tls", "--only", "good"],
            "`good` takes no part with --tls: its entry in arena.toml is for runs without --tls and --held; nobody",
        ),
        (&["--tls"], "--list` shows who"),
        (&["--tls", "--held", "sse"], "cannot be used with"),
    ] {
        let output = arena.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(104), "{arguments:?}: {said}");
        assert!(said.contains(hint), "{arguments:?}: {said}");
    }
    let list = arena.run(&["--list"]);
    assert!(list.status.success());
    let listed = String::from_utf8_lossy(&list.stdout);
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words, ["good", "c", "websocket", "plain", "<good>"]);
}

#[test]
fn a_crowd_with_tls_is_measured_like_one_without() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let tls = "features = [\"push\", \"echo\", \"tls\"]\n";
    let entries = contestant("good", SERVE, &format!("{tls}start_tls = {SERVE_TLS}"))
        // It takes the variables for nothing, and speaks plain HTTP at the port.
        + &contestant("deaf", SERVE, &format!("{tls}start_seconds_max = 1"))
        + &contestant("plain", SERVE, "");
    let arena = Arena::new("tls", &entries);
    let list = arena.run(&["--list"]);
    let listed = String::from_utf8_lossy(&list.stdout).into_owned();
    let runs = |name: &str| {
        let mut lines = listed.lines();
        lines
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(runs("good").contains("plain tls"), "{listed}");
    assert!(!runs("plain").contains("tls"), "{listed}");

    let (output, _, markdown) = arena.run_with_pages(&["--tls"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let report = arena.report();
    assert_eq!(report["settings"]["tls"], true);
    let rows = report["contestants"].as_array().unwrap();
    let [good, deaf] = &rows[..] else {
        panic!("two take part: {rows:?}");
    };
    assert_eq!(good["ok"], true, "{said}");
    for key in ["setup_per_s", "push_last_ms", "echo_per_s"] {
        assert!(good[key].as_f64() > Some(0.0), "{key}: {good}");
    }
    check_difference(good, "user_bytes_per_connection");
    let reason = deaf["reason"].as_str().unwrap();
    assert!(reason.contains("unanswered after 1 s"), "{reason}");
    for shown in [
        text(&markdown),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    ] {
        assert!(shown.contains("TLS: connections"), "{shown}");
    }

    let only = arena.run(&["--tls", "--only", "plain"]);
    let said = String::from_utf8_lossy(&only.stderr);
    assert_eq!(only.status.code(), Some(104), "{said}");
    assert!(said.contains("these do: good, deaf"), "{said}");
}
