//! A crowd on several agents, over a real nats-server: as a crowd alone, without one of its agents, without its controller, and
//! among strangers.

mod support;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use support::nats::{Nats, Running, slow_way};
use support::{Server, myriad};

fn folder() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fleet-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
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
    for figure in ["cpu_share_max", "machine_cpu_share_max"] {
        let agents = fleet["fleet"]["agents"].as_array().expect("agents");
        let of_agents = agents.iter().filter_map(|agent| agent[figure].as_f64());
        let busiest = of_agents.fold(0.0, f64::max);
        assert_eq!(fleet["crowd"][figure].as_f64(), Some(busiest), "{fleet:#}");
    }
    for (agent, name) in fleet["fleet"]["agents"]
        .as_array()
        .expect("agents")
        .iter()
        .zip(["a", "b", "c", "d"])
    {
        assert_eq!(agent["name"], name);
        assert_eq!(agent["lost_s"], Value::Null);
        // All are on one machine, so however long an exchange took, the offset is within its error.
        let (offset, error) = (&agent["clock_offset_ms"], &agent["clock_error_ms"]);
        let (offset, error) = (
            offset.as_f64().expect("a time"),
            error.as_f64().expect("a time"),
        );
        assert!(offset.abs() <= error + 1.0, "{agent}");
    }
    assert!(
        fleet["pushes"][0]["last_ms"].as_f64() > Some(0.0),
        "{fleet:#}"
    );
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
        assert!(flow["sent"].as_u64() > Some(0), "{flow}");
        assert_eq!(flow["sent"], flow["complete"], "{flow}");
    }
    // Ten members in each group, and at most 100 messages a second in two seconds: each is sent by one agent.
    let sent = flows[0]["sent"].as_u64().expect("a count");
    assert_eq!(flows[0]["received"].as_u64(), Some(10 * sent));
    assert!(sent <= 250, "{report:#}");
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

/// How often that is tried. A busy machine may deliver a push later than it may settle, or cost an agent; a controller that takes
/// what it was not told for missing does so each time.
const TRIES: usize = 4;

#[test]
fn what_agents_could_not_tell_in_the_settle_time_is_not_missed() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let pushes = "pushes = 40\nevery = \"100ms\"\n";
    let file = scenario("settle.toml", &server, 50, pushes);
    let _agents = nats.agents(&["a", "b"]);
    let mut wrong = Vec::new();
    for _ in 0..TRIES {
        let pushes = pushes_around_a_silence(&nats, &file);
        assert!(pushes.len() <= 39, "{pushes:#?}");
        let is_whole = |push: &Value| push["received"] == 50 && push["missed"] == 0;
        if pushes.len() == 39 && pushes.iter().all(is_whole) {
            return;
        }
        wrong = pushes;
    }
    panic!("{wrong:#?}");
}

/// The pushes of a run that were measured after the first one. Then the NATS server is silent for a while.
fn pushes_around_a_silence(nats: &Nats, file: &str) -> Vec<Value> {
    let changes = [
        "--agents",
        "2",
        "--live",
        "json",
        "--set",
        "hold.settle=1200ms",
    ];
    let mut controller = myriad(&["swarm", file, "--nats", &nats.url()]);
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
    nats.process.signal("-STOP");
    std::thread::sleep(SILENCE);
    nats.process.signal("-CONT");
    let events =
        lines.map(|line| -> Value { serde_json::from_str(&line.expect("a line")).expect("JSON") });
    let pushes = events.filter(|event| event["event"] == "push").collect();
    let _ = controller.wait();
    pushes
}

#[test]
fn agents_far_away_are_heard_while_clocks_are_compared() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    // An exchange takes 400 ms, and sixteen of them longer than anybody may be silent.
    let way = slow_way(&nats.address, Duration::from_millis(200));
    let mut agents = nats.agents_at(&format!("nats://ann:s3cret@{way}"), &["a", "b"]);
    // They are compared before the run, and again 10 s after an agent was found.
    let pushes = "pushes = 40\nevery = \"200ms\"\n";
    let file = scenario("far.toml", &server, 40, pushes);
    let mut controller = controller(&nats, &file, &["--agents", "2", "--live", "off"]);
    let report = report(&controller.output().expect("a program"));
    assert_eq!(report["outcome"], "finished", "{report:#}");
    assert_eq!(report["messages"]["missed"], 0, "{report:#}");
    for agent in report["fleet"]["agents"].as_array().expect("agents") {
        assert_eq!(agent["lost_s"], Value::Null, "{agent}");
        assert!(agent["clock_error_ms"].as_f64() >= Some(200.0), "{agent}");
    }
    for agent in &mut agents {
        agent.wait_for("waits for a controller");
        assert!(
            !agent.said.join("\n").contains("is gone"),
            "{:?}",
            agent.said
        );
    }
}

#[test]
fn an_agent_that_did_not_run_does_not_take_its_controller_for_gone() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let file = scenario("stopped.toml", &server, 20, "pushes = 1\n");
    let mut agents = nats.agents(&["a"]);
    let more = ["--agents", "2", "--live", "plain"];
    let mut running = Running::start(&mut controller(&nats, &file, &more));
    agents[0].wait_for("a works for");
    agents[0].signal("-STOP");
    // Longer than a controller may be silent. This one says all the time that it waits for another agent.
    std::thread::sleep(Duration::from_secs(6));
    agents[0].signal("-CONT");
    agents.extend(nats.agents(&["b"]));
    let report = running.report();
    assert_eq!(report["outcome"], "finished", "{report:#}");
    assert_eq!(report["pushes"][0]["received"], 20, "{report:#}");
    agents[0].wait_for("waits for a controller");
    let said = agents[0].said.join("\n");
    assert!(!said.contains("is gone"), "{said}");
}

#[test]
fn a_controller_that_did_not_run_does_not_take_its_agents_for_lost() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let pushes = "pushes = 20\nevery = \"100ms\"\n";
    let file = scenario("paused.toml", &server, 20, pushes);
    let _agents = nats.agents(&["a", "b"]);
    let more = ["--agents", "2", "--live", "plain"];
    let mut running = Running::start(&mut controller(&nats, &file, &more));
    running.wait_for("push 1");
    running.signal("-STOP");
    // Longer than the 3 s for which an agent may be silent. A controller may be silent for 5 s: the rest is for a busy machine.
    std::thread::sleep(Duration::from_millis(3_300));
    running.signal("-CONT");
    let report = running.report();
    for agent in report["fleet"]["agents"].as_array().expect("agents") {
        assert_eq!(agent["lost_s"], Value::Null, "{report:#}");
    }
    assert_eq!(report["outcome"], "finished", "{report:#}");
    assert_eq!(report["messages"]["missed"], 0, "{report:#}");
}

#[test]
fn figures_that_fit_into_no_message_end_the_run_with_that_reason() {
    let file = folder().join("small.conf");
    std::fs::write(&file, "max_payload: 6000\n").expect("a file");
    let file = file.display().to_string();
    let user = ["--user", "ann", "--pass", "s3cret", "--config", &file];
    let Some(nats) = Nats::start_with(&user) else {
        return;
    };
    let server = Server::start(&["--drain", "1s"]);
    // Agents tell of each channel how many are open.
    let text = format!(
        "[terminals]\ncount = 20\ntargets = [\"ws://{}/raw\"]\nchannels = [\"news\"]\nchannel-count = 4000\n\
         [hold]\nduration = \"60s\"\n",
        server.address
    );
    let file = folder().join("many.toml");
    std::fs::write(&file, text).expect("a file");
    let file = file.display().to_string();
    let mut agents = nats.agents(&["a"]);
    let mut controller = controller(&nats, &file, &["--live", "off"]);
    let output = controller.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("agent a: its figures have") && said.contains("raise max_payload"),
        "{said}"
    );
    agents[0].wait_for("its figures have");
    agents[0].wait_for("waits for a controller");
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
    let report = running.report();
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
fn what_a_killed_agent_was_to_send_is_unsent_and_a_threshold_may_demand_that_it_stays() {
    let Some(nats) = Nats::start() else { return };
    let server = Server::start(&["--drain", "1s"]);
    let text = format!(
        "thresholds = [\"agents:lost==0\"]\n[terminals]\ncount = 40\ntargets = [\"ws://{}/echo\"]\n\
         [hold]\nduration = \"10s\"\nwarmup = \"2s\"\n[generator]\nthreads = 1\n[echo]\nrate = \"100/s\"\n",
        server.address
    );
    let file = folder().join("unsent.toml");
    std::fs::write(&file, text).expect("a file");
    let file = file.display().to_string();
    let mut agents = nats.agents(&["a", "b"]);
    let more = ["--agents", "2", "--live", "plain"];
    let mut running = Running::start(&mut controller(&nats, &file, &more));
    agents[1].wait_for("b has 20 terminals");
    running.wait_for("40");
    agents[1].kill();
    let (code, report) = running.end_with_report();
    assert_eq!(code, Some(99), "{report:#}");
    let verdict = &report["thresholds"][0];
    assert_eq!(
        (&verdict["value"], &verdict["passed"]),
        (&1.0.into(), &false.into())
    );
    let count = |name: &str| report["echo"][name].as_u64().expect("a count");
    // Whenever it was lost: together they are to send what the rate says in eight seconds.
    assert!(count("unsent") > 0, "{report:#}");
    assert_eq!(count("sent") + count("unsent"), 800, "{report:#}");
}

#[test]
fn a_run_whose_nats_server_is_gone_for_good_ends_as_an_interrupted_one() {
    let server = Server::start(&["--drain", "1s"]);
    let file = scenario("gone.toml", &server, 40, "every = \"1s\"\npushes = 1000\n");
    for is_interrupted in [false, true] {
        let Some(mut nats) = Nats::start() else {
            return;
        };
        let mut agents = nats.agents(&["a", "b"]);
        let more = ["--agents", "2", "--live", "plain"];
        let mut running = Running::start(&mut controller(&nats, &file, &more));
        agents[0].wait_for("a has 20 terminals");
        running.wait_for("40");
        nats.process.kill();
        if is_interrupted {
            running.signal("-INT");
        }
        let (code, report) = running.end_with_report();
        assert_eq!(code, Some(105), "{report:#}");
        assert_eq!(report["outcome"], "interrupted", "{report:#}");
        for agent in report["fleet"]["agents"].as_array().expect("agents") {
            let is_lost = !agent["lost_s"].is_null();
            assert!(is_lost || is_interrupted, "{report:#}");
        }
    }
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
