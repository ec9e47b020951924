//! The scenario that `swarm init` writes, and each ready one, at a small size against a server.

mod support;

use myriad_reserved_port::ReservedPort;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Server, myriad};

fn ready(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    folder.join(name).display().to_string()
}

/// Runs a scenario with changes, and returns its report.
fn report(server: &Server, file: &str, changes: &[&str]) -> serde_json::Value {
    report_of(&server.address, file, changes)
}

/// The same against a server of another kind.
fn report_of(address: &str, file: &str, changes: &[&str]) -> serde_json::Value {
    report_with(address, file, changes, &[])
}

/// The same with more arguments of the command line.
fn report_with(
    address: &str,
    file: &str,
    changes: &[&str],
    arguments: &[&str],
) -> serde_json::Value {
    let address = format!("variables.server={address}");
    let mut command = myriad(&[
        "swarm", file, "--live", "off", "--json", "-", "--set", &address,
    ]);
    command.args(arguments);
    for change in changes {
        command.args(["--set", change]);
    }
    let output = command.output().expect("a program");
    // Broken thresholds come first: a list of failed tests shows one line of a message.
    let said = String::from_utf8_lossy(&output.stderr);
    let broken: Vec<_> = said.lines().filter(|line| line.contains("FAIL")).collect();
    assert!(output.status.success(), "{file}: {broken:?}\n{said}");
    serde_json::from_slice(&output.stdout).expect("a report")
}

/// Where a test may write.
fn folder() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scenarios-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// `scenarios/im-full-link.toml` at a small size: whatever it is asked to reach, it must reach on a busy machine too.
const SMALL_IM: [&str; 8] = [
    "variables.connections=60",
    "variables.groups=6",
    "variables.ws-rate=100/s",
    "variables.http-rate=50/s",
    "variables.question-rate=20/s",
    "heartbeat.every=3s",
    "hold.duration=4s",
    "thresholds=[\"setup:connected==60\", \"lost==0\", \"errors==0\", \"flows:missing==0\", \"flows:duplicated==0\", \"flows:out-of-order==0\", \"flows:unexpected==0\", \"flows:refused==0\"]",
];

/// An nginx in front of a server, with the config of `deploy/`. It is killed at the end of the test.
struct Nginx {
    process: Child,
    address: String,
    _port: ReservedPort,
}

impl Nginx {
    /// None where nginx is not installed.
    fn start(server: &Server) -> Option<Self> {
        let programs = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"];
        let program = programs.iter().find(|path| Path::new(path).exists())?;
        let folder = folder();
        let port = ReservedPort::take().expect("a port");
        let address = port.address().to_string();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nginx.conf");
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()));
        let config = std::fs::read_to_string(deploy)
            .expect("a config")
            .replace("user www-data;", "")
            .replace("/run/nginx.pid", &format!("{}/nginx.pid", folder.display()))
            .replace("/var/log/nginx/error.log", "stderr")
            .replace("worker_rlimit_nofile 210000;", "")
            .replace("worker_connections 200000;", "worker_connections 400;")
            .replace("http {", &format!("http {{ {}", paths.join(" ")))
            .replace("127.0.0.1:8000", &server.address)
            .replace("listen 80;", &format!("listen {address};"));
        let file = folder.join("nginx.conf");
        std::fs::write(&file, config).expect("a file");
        let process = Command::new(program)
            .args(["-e", "stderr", "-g", "daemon off;", "-c"])
            .arg(file)
            .spawn()
            .expect("nginx");
        let begun = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nginx listens");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self {
            process,
            address,
            _port: port,
        })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it only if it is asked to end.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.process.wait();
    }
}

/// The server of `scenarios/im-full-link.toml`.
fn im_server() -> Server {
    Server::start(&["--config", &ready("servers/im.toml")])
}

fn check_im(report: &serde_json::Value) {
    let flows = report["flows"].as_array().expect("flows");
    assert_eq!(flows.len(), 4);
    for flow in flows {
        assert!(flow["sent"].as_u64() > Some(0), "{flow}");
        assert_eq!(flow["sent"], flow["complete"], "{flow}");
    }
    // Ten members in each group.
    let sent = flows[0]["sent"].as_u64().expect("a count");
    assert_eq!(flows[0]["received"].as_u64(), Some(10 * sent));
    assert!(report["pings"]["heartbeats_answered"].as_u64() > Some(0));
}

#[test]
fn im_full_link() {
    let server = im_server();
    let report = report(&server, &ready("im-full-link.toml"), &SMALL_IM);
    check_im(&report);
}

#[test]
fn im_sessions() {
    let server = im_server();
    for protocol in ["centrifuge-json", "centrifuge-protobuf"] {
        let protocol = format!("terminals.protocol={protocol}");
        let changes = [&SMALL_IM[..], &[&protocol]].concat();
        let report = report(&server, &ready("im-sessions.toml"), &changes);
        check_im(&report);
    }
}

#[test]
fn im_full_link_through_nginx() {
    let mut server = im_server();
    let Some(nginx) = Nginx::start(&server) else {
        eprintln!("nginx is not installed, so this is not tested");
        return;
    };
    server.address.clone_from(&nginx.address);
    let report = report(&server, &ready("im-full-link.toml"), &SMALL_IM);
    check_im(&report);
}

/// Creates a stream of JSON.
fn create_stream(server: &Server, name: &str) {
    let stream = format!("http://{}/v1/stream/{name}", server.address);
    let mut curl = Command::new("curl");
    curl.args(["-sf", "-X", "PUT", "-H", "Content-Type: application/json"]);
    assert!(curl.arg(stream).status().expect("curl").success());
}

#[test]
fn chat_over_http() {
    let server = Server::start(&[]);
    (0..4).for_each(|room| create_stream(&server, &format!("room-{room}")));
    let lines = format!(
        "terminals.targets=[\"http://{}/connection/uni_http_stream\"]",
        server.address
    );
    let lines_of_publications = [
        "terminals.protocol=http-stream",
        "terminals.request-body={\"subs\":{\"{channel}\":{}}}",
        "flows.posts.stamp-json=/pub/data/id",
        &lines,
    ];
    for changes in [
        &["terminals.protocol=sse"][..],
        &["terminals.protocol=long-poll", "variables.live=long-poll"],
        &lines_of_publications,
    ] {
        let small = [
            "variables.connections=40",
            "variables.groups=4",
            "variables.rate=100/s",
            "hold.duration=4s",
            "thresholds=[\"setup:connected==40\", \"lost==0\", \"errors==0\", \"flows:missing==0\", \"flows:duplicated==0\", \"flows:out-of-order==0\", \"flows:unexpected==0\", \"flows:refused==0\"]",
        ];
        let report = report(
            &server,
            &ready("chat-over-http.toml"),
            &[&small, changes].concat(),
        );
        let posts = &report["flows"][0];
        let sent = posts["sent"].as_u64().expect("a count");
        assert!(sent > 0, "{posts}");
        assert_eq!(posts["complete"].as_u64(), Some(sent), "{posts}");
        assert_eq!(posts["received"].as_u64(), Some(10 * sent), "{posts}");
    }
}

/// A program that prints its port, and ends with its standard input.
struct Program {
    process: Child,
    address: String,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a program");
        let output = process.stdout.take().expect("it is piped");
        let mut port = String::new();
        let read = BufReader::new(output).read_line(&mut port);
        assert!(read.expect("its output") > 0, "it prints its port");
        let address = format!("127.0.0.1:{}", port.trim());
        Self { process, address }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

#[test]
fn im_over_tcp() {
    let mut command = Command::new("python3");
    command.args([&ready("servers/chat.py"), "length:4:big:rest:0"]);
    let chat = Program::start(&mut command);
    for driver in ["generator.driver=epoll", "generator.driver=auto"] {
        let changes = [
            driver,
            "variables.connections=60",
            "variables.groups=6",
            "variables.chat-rate=100/s",
            "variables.question-rate=50/s",
            "heartbeat.every=3s",
            "hold.duration=4s",
            "thresholds=[\"setup:connected==60\", \"lost==0\", \"errors==0\", \"flows:missing==0\", \"flows:duplicated==0\", \"flows:out-of-order==0\", \"flows:unexpected==0\"]",
        ];
        let report = report_of(&chat.address, &ready("im-over-tcp.toml"), &changes);
        let said = &report["flows"][0];
        let sent = said["sent"].as_u64().expect("a count");
        assert!(sent > 0, "{said}");
        assert_eq!(said["received"].as_u64(), Some(10 * sent), "{said}");
        assert!(report["pings"]["heartbeats_answered"].as_u64() > Some(0));
    }
}

#[test]
fn api_users() {
    let mut command = Command::new("node");
    // Connections end, though never when a request could be on its way: what was posted then is not sent again.
    command.args([&ready("servers/api.mjs"), "--last", "5"]);
    let api = Program::start(&mut command);
    for driver in ["generator.driver=epoll", "generator.driver=auto"] {
        let changes = [
            driver,
            "variables.connections=60",
            "variables.read-think=exp(300ms)",
            "variables.add-think=200ms..1s",
            "variables.health-rate=50/s",
            "hold.duration=4s",
            "thresholds=[\"setup:connected==60\", \"lost==0\", \"errors==0\", \"flows:refused==0\", \"flows:unanswered==0\", \"flows:p99<5s\"]",
        ];
        let report = report_of(&api.address, &ready("api-users.toml"), &changes);
        for flow in report["flows"].as_array().expect("flows") {
            assert!(flow["sent"].as_u64() >= Some(50), "{flow}");
            assert_eq!(flow["sent"], flow["received"], "{flow}");
        }
        assert!(report["http"]["reopened"].as_u64() >= Some(20));
    }
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
fn another_number_of_clients_goes_for_everything_that_names_it() {
    let server = Server::start(&[]);
    let address = format!("server={}", server.address);
    let output = myriad(&["swarm", &ready("broadcast.toml"), "--connections", "40"])
        .args(["--var", &address, "-e", "connections=7", "--live", "off"])
        .args(["--set", "publish.every=200ms", "--json", "-"])
        .output()
        .expect("a program");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["setup"]["connected"], 40);
    let first = &report["thresholds"][0]["expression"];
    assert_eq!(first, "setup:connected>=40");

    let left = ["--connections", "40", "--threshold", "setup:connected>=50"];
    let output = myriad(&["swarm", &ready("broadcast.toml")])
        .args(left)
        .output()
        .expect("a program");
    assert_eq!(output.status.code(), Some(104));
    let said = text(&output);
    assert!(
        said.contains("--threshold 'setup:connected>=50': no run with 40 clients can hold it"),
        "{said}"
    );
    let nameless = myriad(&["swarm", &ready("broadcast.toml"), "--var", "40"]).output();
    let said = text(&nameless.expect("a program"));
    assert!(said.contains("write NAME=VALUE with a variable"), "{said}");
}

#[test]
fn idle_heartbeat() {
    let server = Server::start(&[]);
    let changes = [
        "variables.connections=100",
        "hold.duration=4s",
        "heartbeat.every=3s",
    ];
    let report = report(&server, &ready("idle-heartbeat.toml"), &changes);
    assert!(report["pings"]["heartbeats_answered"].as_u64() > Some(0));
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
fn slow_readers() {
    for driver in ["generator.driver=epoll", "generator.driver=auto"] {
        // Queues that are full in 1.3 s, before the stall timeout. A busy machine pauses the crowd for less.
        let server = Server::start(&["--outbound-bytes-max", "1MiB", "--stall-timeout", "3s"]);
        let changes = [
            driver,
            "variables.connections=40",
            "stall.share=4",
            "stall.after=500ms",
            // The kernel takes up to 4 MiB of a client first, which are 5 s.
            "hold.duration=12s",
            "publish.every=20ms",
            "thresholds=[\"reach>=100%\", \"gaps==0\", \"lost==0\", \"errors==0\", \"stall:stalled==4\", \"stall:ended==4\"]",
        ];
        let report = report(&server, &ready("slow-readers.toml"), &changes);
        let stall = &report["stall"];
        assert_eq!(stall["resumed"], 0);
        assert!(stall["missing"].as_u64() > Some(0), "{stall}");
        let ends = stall["ends"].as_object().expect("an object");
        let named = |name: &String| name.starts_with("close_") || name == "reset";
        assert!(ends.keys().all(named), "{stall}");
        assert_eq!(report["crowd"]["open_at_end"], 36);
    }
}

#[test]
fn vanish() {
    // Each mostly waits.
    std::thread::scope(|scope| {
        for driver in ["generator.driver=epoll", "generator.driver=auto"] {
            scope.spawn(move || vanish_with(driver));
        }
    });
}

fn vanish_with(driver: &str) {
    let server = Server::start(&["--ping-interval", "5s", "--pong-timeout", "4s"]);
    let metrics = format!("http://{}/metrics", server.address);
    let changes = [
        driver,
        "variables.connections=40",
        "vanish.share=4",
        "vanish.after=1500ms",
        // The server needs 11 s. On a busy machine it needs longer.
        "hold.duration=25s",
    ];
    let counted = ["--server-metrics", &metrics];
    let report = report_with(&server.address, &ready("vanish.toml"), &changes, &counted);
    let vanish = &report["vanish"];
    assert_eq!(vanish["vanished"], 4);
    assert_eq!(vanish["held_by_server"], 0, "{vanish}");
    assert_eq!(report["crowd"]["open_at_end"], 36);
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
    assert!(report["http"]["timeouts"].as_u64() > Some(0));
}

#[test]
fn requests() {
    let server = Server::start(&[]);
    let changes = [
        "terminals.count=20",
        "echo.rate=500",
        "hold.duration=3s",
        // No bounds on times and on what is unsent: a busy machine breaks them.
        "thresholds=[\"echo:lost==0\", \"echo:errors==0\", \"lost==0\"]",
    ];
    let report = report(&server, &ready("requests.toml"), &changes);
    // Of 1,500 that are due.
    assert!(report["echo"]["received"].as_u64() > Some(300));
}
