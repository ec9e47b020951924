//! A crowd on several agents, over a real nats-server: as a crowd alone, without one of its agents, without its controller, and
//! among strangers.

mod support;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use support::{Server, myriad};

/// The version of nats-server that is tested.
const NATS: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fleet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The nats-server of the system, or one that Go builds once; none where neither is there.
fn nats_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PROGRAM.get_or_init(|| {
        let bin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-2.15.2");
        let built = bin.join("nats-server");
        if built.exists() {
            return Some(built);
        }
        let install = Command::new("go")
            .args(["install", NATS])
            .env("GOBIN", &bin)
            .status();
        match install {
            Ok(status) => {
                assert!(status.success(), "go install {NATS}");
                Some(built)
            }
            Err(error) => {
                eprintln!("Go is not installed ({error}), so fleets are not tested");
                None
            }
        }
    });
    found.as_deref()
}

/// A process whose lines of standard error are read. It is killed at the end of the test.
struct Running {
    process: Child,
    lines: Receiver<String>,
    /// What was read so far, for a test that fails.
    said: Vec<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a program");
        let stderr = BufReader::new(process.stderr.take().expect("piped"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process,
            lines,
            said: Vec::new(),
        }
    }

    fn wait_for(&mut self, words: &str) {
        let begun = Instant::now();
        loop {
            match self
                .lines
                .recv_timeout(PATIENCE.saturating_sub(begun.elapsed()))
            {
                Ok(line) => {
                    let found = line.contains(words);
                    self.said.push(line);
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("it never said '{words}': {:#?}", self.said)
                }
            }
        }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A nats-server with one user.
struct Nats {
    process: Running,
    address: String,
}

impl Nats {
    fn start() -> Option<Self> {
        Self::start_with(&["--user", "ann", "--pass", "s3cret"])
    }

    fn start_with(more: &[&str]) -> Option<Self> {
        let program = nats_program()?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let port = address.port().to_string();
        let mut process = Running::start(
            Command::new(program)
                .args(["--addr", "127.0.0.1", "--port", &port])
                .args(more),
        );
        process.wait_for("Server is ready");
        Some(Self {
            process,
            address: address.to_string(),
        })
    }

    fn url(&self) -> String {
        format!("nats://ann:s3cret@{}", self.address)
    }

    /// Stops the server, or lets it go on.
    fn signal(&self, signal: &str) {
        let id = self.process.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill").success());
    }

    /// Agents of these names, which wait for a controller.
    fn agents(&self, names: &[&str]) -> Vec<Running> {
        self.agents_at(&self.url(), names)
    }

    fn agents_at(&self, url: &str, names: &[&str]) -> Vec<Running> {
        let start = |name: &&str| {
            Running::start(&mut myriad(&[
                "swarm", "agent", "--nats", url, "--name", name,
            ]))
        };
        let mut agents: Vec<Running> = names.iter().map(start).collect();
        agents
            .iter_mut()
            .for_each(|it| it.wait_for("waits for a controller"));
        agents
    }

    /// A stranger's connection, as the user that everybody is.
    fn stranger(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        stream
            .write_all(b"CONNECT {\"verbose\":false,\"user\":\"ann\",\"pass\":\"s3cret\"}\r\n")
            .expect("it is open");
        BufReader::new(stream)
    }
}

fn publish(stranger: &mut BufReader<TcpStream>, subject: &str, payload: &str) {
    let reply = "nobody";
    let message = format!("PUB {subject} {reply} {}\r\n{payload}\r\n", payload.len());
    stranger
        .get_mut()
        .write_all(message.as_bytes())
        .expect("it is open");
}

/// The id of an agent, as it says it to everybody.
fn id_of_agent(stranger: &mut BufReader<TcpStream>) -> String {
    stranger
        .get_mut()
        .write_all(b"SUB myriad.swarm.hello 1\r\n")
        .expect("it is open");
    let mut lines = stranger.lines();
    let hello = lines.find_map(|line| {
        let line = line.expect("a line");
        line.starts_with("{\"id\"").then_some(line)
    });
    let hello: Value = serde_json::from_str(&hello.expect("an agent")).expect("JSON");
    hello["id"].as_str().expect("an id").to_owned()
}

/// Writes a scenario of listeners and pushes.
fn scenario(name: &str, server: &Server, terminals: u32, pushes: &str) -> String {
    let path = folder().join(name);
    let address = &server.address;
    let text = format!(
        "[terminals]\ncount = {terminals}\ntargets = [\"ws://{address}/raw?channel=news\"]\n\
         [hold]\nwarmup = \"200ms\"\nsettle = \"5s\"\n\
         [publish]\nurls = [\"http://{address}/api/publish\"]\n{pushes}"
    );
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// The command of a controller whose report is standard output.
fn controller(nats: &Nats, scenario: &str, more: &[&str]) -> Command {
    let url = nats.url();
    let mut command = myriad(&["swarm", scenario, "--nats", &url, "--json", "-"]);
    command.args(more).stdout(Stdio::piped());
    command
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// What a run counted that is the same however many machines it is on.
fn counts(report: &Value) -> Vec<Value> {
    let mut counts = vec![
        report["outcome"].clone(),
        report["setup"]["connected"].clone(),
        report["messages"]["count"].clone(),
        report["messages"]["missed"].clone(),
        report["messages"]["gaps"].clone(),
        report["messages"]["duplicates"].clone(),
        report["errors"].clone(),
    ];
    for push in report["pushes"].as_array().expect("pushes") {
        counts.push(push["expected"].clone());
        counts.push(push["received"].clone());
        counts.push(push["ended"].clone());
    }
    counts
}

/// Each terminal on one agent.
fn check_terminals(report: &Value, terminals: u64) {
    let mut next = 0;
    for agent in report["fleet"]["agents"].as_array().expect("agents") {
        assert_eq!(agent["first_terminal"], next, "{agent}");
        next += agent["terminals"].as_u64().expect("a count");
    }
    assert_eq!(next, terminals);
}

#[test]
fn four_agents_count_what_one_machine_does_whatever_strangers_say() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let pushes = "pushes = 6\nevery = \"150ms\"\n";
    let file = scenario("sum.toml", &server, 402, pushes);
    let alone = myriad(&["swarm", &file, "--json", "-", "--live", "off"]);
    let alone = report(&{ alone }.output().expect("a program"));
    let _agents = nats.agents(&["a", "b", "c", "d"]);
    let mut stranger = nats.stranger();
    let id = id_of_agent(&mut stranger);
    let run = "0123456789abcdef";
    let hello = "{\"id\":\"00000000deadbeef\",\"name\":\"\\u001b[31mx\",\"version\":\"0\",\
                 \"capacity\":{\"processors\":9,\"memory_bytes\":1,\"descriptors\":1,\"ports\":1,\"io_uring\":true}}";
    for (subject, payload) in [
        (
            format!("myriad.swarm.agent.{id}"),
            "\u{0}garbage".to_owned(),
        ),
        (format!("myriad.swarm.agent.{id}"), "[".repeat(10_000)),
        (
            format!("myriad.swarm.agent.{id}"),
            format!("{{\"ask\":\"release\",\"run\":\"{run}\"}}"),
        ),
        (
            format!("myriad.swarm.agent.{id}"),
            "{\"ask\":\"claim\",\"run\":\"a.b.>\",\"controller\":\"x\",\"version\":\"0.1.0\"}"
                .to_owned(),
        ),
        ("myriad.swarm.hello".to_owned(), "{}".to_owned()),
        ("myriad.swarm.hello".to_owned(), hello.to_owned()),
    ] {
        publish(&mut stranger, &subject, &payload);
    }
    let fleet = controller(&nats, &file, &["--agents", "4", "--live", "off"]);
    let fleet = report(&{ fleet }.output().expect("a program"));
    assert_eq!(counts(&fleet), counts(&alone), "{fleet:#}");
    assert_eq!(fleet["pushes"][0]["received"], 402);
    check_terminals(&fleet, 402);
    for (agent, name) in fleet["fleet"]["agents"]
        .as_array()
        .expect("agents")
        .iter()
        .zip(["a", "b", "c", "d"])
    {
        assert_eq!(agent["name"], name);
        assert_eq!(agent["lost_s"], Value::Null);
        // All are on one machine.
        let (offset, error) = (&agent["clock_offset_ms"], &agent["clock_error_ms"]);
        let (offset, error) = (
            offset.as_f64().expect("a time"),
            error.as_f64().expect("a time"),
        );
        assert!(offset.abs() <= error + 1.0, "{agent}");
        assert!(error < 50.0, "{agent}");
    }
    let last = fleet["pushes"][0]["last_ms"].as_f64().expect("a time");
    assert!(last > 0.0 && last < 5_000.0, "{fleet:#}");
}

#[test]
fn groups_and_their_messages_are_divided_and_nothing_is_lost() {
    let Some(nats) = Nats::start() else { return };
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let config = scenarios.join("servers/im.toml").display().to_string();
    let server = Server::start(&["--config", &config]);
    let _agents = nats.agents(&["a", "b", "c"]);
    let file = scenarios.join("im-full-link.toml").display().to_string();
    let mut controller = controller(&nats, &file, &["--agents", "3", "--live", "off"]);
    let address = format!("variables.server={}", server.address);
    for change in [
        address.as_str(),
        "variables.connections=90",
        "variables.groups=9",
        "variables.ws-rate=100/s",
        "variables.http-rate=50/s",
        "variables.question-rate=20/s",
        "hold.duration=4s",
        "thresholds=[\"setup:connected==90\", \"lost==0\", \"errors==0\", \"flows:missing==0\", \"flows:duplicated==0\", \"flows:out-of-order==0\", \"flows:unexpected==0\"]",
    ] {
        controller.args(["--set", change]);
    }
    let output = controller.output().expect("a program");
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    check_terminals(&report, 90);
    let flows = report["flows"].as_array().expect("flows");
    for flow in flows {
        assert!(flow["sent"].as_u64() >= Some(30), "{flow}");
        assert_eq!(flow["sent"], flow["complete"], "{flow}");
    }
    // Ten members in each group, and 100 messages a second in two seconds.
    let sent = flows[0]["sent"].as_u64().expect("a count");
    assert_eq!(flows[0]["received"].as_u64(), Some(10 * sent));
    assert!((150..=250).contains(&sent), "{report:#}");
}

#[test]
fn the_permissions_of_the_page_are_enough() {
    let page = include_str!("../../../docs/fleet.md");
    let (_, accounts) = page.split_once("```text\n").expect("the accounts");
    let (accounts, _) = accounts.split_once("```").expect("their end");
    let file = folder().join("accounts.conf");
    std::fs::write(&file, accounts.replace("\"...\"", "\"s3cret\"")).expect("a file");
    let Some(nats) = Nats::start_with(&["--config", &file.display().to_string()]) else {
        return;
    };
    let server = Server::start(&["--drain", "1s"]);
    let file = scenario(
        "accounts.toml",
        &server,
        30,
        "pushes = 2\nevery = \"100ms\"\n",
    );
    let url = |user: &str| format!("nats://{user}:s3cret@{}", nats.address);
    let _agents = nats.agents_at(&url("agent"), &["a", "b"]);
    let more = ["--agents", "2", "--live", "off", "--json", "-"];
    let mut controller = myriad(&["swarm", &file, "--nats", &url("controller")]);
    let output = controller.args(more).output().expect("a program");
    let report = report(&output);
    assert_eq!(report["outcome"], "finished", "{report:#}");
    assert_eq!(report["messages"]["count"], 60, "{report:#}");
}

/// How long a NATS server is silent: longer than a push may settle, and shorter than agents are waited for.
const SILENCE: Duration = Duration::from_millis(1500);

#[test]
fn what_agents_could_not_tell_in_the_settle_time_is_not_missed() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let pushes = "pushes = 40\nevery = \"100ms\"\n";
    let file = scenario("settle.toml", &server, 50, pushes);
    let _agents = nats.agents(&["a", "b"]);
    let changes = [
        "--agents",
        "2",
        "--live",
        "json",
        "--set",
        "hold.settle=700ms",
    ];
    let mut controller = myriad(&["swarm", &file, "--nats", &nats.url()]);
    controller
        .args(changes)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut controller = controller.spawn().expect("a program");
    let mut lines = BufReader::new(controller.stdout.take().expect("piped")).lines();
    let pushed = lines.find(|line| {
        line.as_ref()
            .expect("a line")
            .contains("\"event\":\"push\"")
    });
    assert!(pushed.is_some(), "no push was measured");
    // Pushes go on meanwhile, and reach the clients: only what agents tell waits.
    nats.signal("-STOP");
    std::thread::sleep(SILENCE);
    nats.signal("-CONT");
    let events =
        lines.map(|line| -> Value { serde_json::from_str(&line.expect("a line")).expect("JSON") });
    let pushes: Vec<Value> = events.filter(|event| event["event"] == "push").collect();
    let _ = controller.wait();
    assert_eq!(pushes.len(), 39);
    for push in pushes {
        assert_eq!(
            (&push["received"], &push["missed"]),
            (&50.into(), &0.into()),
            "{push}"
        );
    }
}

#[test]
fn an_agent_that_is_killed_is_named_with_its_terminals() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let pushes = "pushes = 60\nevery = \"200ms\"\n";
    let file = scenario("killed.toml", &server, 400, pushes);
    let mut agents = nats.agents(&["a", "b", "c", "d"]);
    let mut controller = controller(&nats, &file, &["--agents", "4", "--live", "plain"]);
    let mut running = Running::start(&mut controller);
    agents[2].wait_for("c has 100 terminals");
    running.wait_for("400");
    agents[2].kill();
    let mut stdout = running.process.stdout.take().expect("piped");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut text).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("a report");
    assert_eq!(report["outcome"], "finished", "{report:#}");
    let agents = report["fleet"]["agents"].as_array().expect("agents");
    let lost: Vec<&Value> = agents
        .iter()
        .filter(|agent| !agent["lost_s"].is_null())
        .collect();
    assert_eq!(lost.len(), 1, "{report:#}");
    assert_eq!(
        (&lost[0]["name"], &lost[0]["first_terminal"]),
        (&"c".into(), &200.into())
    );
    let wrong = report["went_wrong"].as_str().expect("a sentence");
    assert!(
        wrong.contains("agent c was lost at") && wrong.contains("terminals 200 to 299"),
        "{wrong}"
    );
    // The others went on, and nobody else is missing anything.
    let pushes = report["pushes"].as_array().expect("pushes");
    let last = pushes.last().expect("a push");
    assert_eq!(
        (&last["expected"], &last["received"]),
        (&300.into(), &300.into()),
        "{report:#}"
    );
    assert_eq!(report["messages"]["missed"], 0, "{report:#}");
}

#[test]
fn agents_outlive_their_controller_and_work_for_one_at_a_time() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let long = scenario("long.toml", &server, 40, "every = \"1s\"\npushes = 1000\n");
    let mut agents = nats.agents(&["a", "b"]);
    let mut first = Running::start(&mut controller(
        &nats,
        &long,
        &["--agents", "2", "--live", "plain"],
    ));
    agents[0].wait_for("a has 20 terminals");
    let short = scenario("short.toml", &server, 40, "pushes = 1\n");
    let mut second = controller(&nats, &short, &["--agents", "2", "--live", "off"]);
    let refused = second
        .args(["--agents-wait", "2s"])
        .output()
        .expect("a program");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("0 of 2 agents were free") && said.contains("agent a works for"),
        "{said}"
    );
    first.kill();
    for agent in &mut agents {
        agent.wait_for("is gone");
        agent.wait_for("waits for a controller");
    }
    let again = controller(&nats, &short, &["--agents", "2", "--live", "off"]);
    let again = report(&{ again }.output().expect("a program"));
    assert_eq!(again["outcome"], "finished", "{again:#}");
    assert_eq!(again["pushes"][0]["received"], 40);
}

#[test]
fn what_a_fleet_cannot_do_is_said_before_it_begins() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let file = scenario(
        "bad.toml",
        &server,
        10,
        "pushes = 1\n[churn]\nrate = \"1%/s\"\n",
    );
    let output = controller(&nats, &file, &["--agents", "2"])
        .output()
        .expect("a program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(104), "{said}");
    assert!(
        said.contains("a fleet has no `churn` together with `publish`"),
        "{said}"
    );
    let file = scenario("good.toml", &server, 10, "pushes = 1\n");
    for (url, code, sentence) in [
        (
            format!("nats://ann:wr0ng@{}", nats.address),
            1,
            "does not let us in",
        ),
        (
            "nats://ann:wr0ng@127.0.0.1:1".to_owned(),
            1,
            "start a nats-server there",
        ),
        (
            "nats://ann:wr0ng@127.0.0.1:port".to_owned(),
            104,
            "nats://127.0.0.1:port is no address of a NATS server; write nats://HOST:PORT",
        ),
    ] {
        let output = myriad(&["swarm", &file, "--nats", &url]).output();
        let output = output.expect("a program");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(sentence) && !said.contains("wr0ng"), "{said}");
        let is_started = said.contains("start a nats-server");
        assert_eq!(is_started, sentence.starts_with("start"), "{said}");
    }
    let url = nats.url();
    let output = myriad(&["swarm", "ws://127.0.0.1:1/", "--nats", &url])
        .output()
        .expect("a program");
    assert_eq!(output.status.code(), Some(104), "{output:?}");
}
