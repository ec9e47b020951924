//! Where `myriad swarm` writes what, and how it ends.

mod support;

use std::path::PathBuf;
use std::process::Output;
use support::{Server, myriad};

fn start() -> Server {
    Server::start(&["--drain", "1s"])
}

/// A crowd of ten and one push, to its end.
fn swarm(server: &Server, more: &[&str]) -> Output {
    let target = format!("ws://{}/raw?channel=x", server.address);
    let hook = format!("http://{}/api/publish", server.address);
    let mut arguments = vec!["swarm", &target, "-c", "10", "--publish", &hook];
    arguments.extend(["--pushes", "1", "--warmup", "10ms"]);
    arguments.extend(more);
    myriad(&arguments).output().expect("a program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn json_on_standard_output_is_alone_there() {
    let server = start();
    for style in ["auto", "plain", "off"] {
        let output = swarm(&server, &["--json", "-", "--live", style]);
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("one JSON value");
        assert_eq!(report["pushes"][0]["received"], 10);
        assert!(text(&output.stderr).contains("10 of 10"), "{output:?}");
    }
}

#[test]
fn two_reports_do_not_share_standard_output() {
    for pair in [
        ["--json", "-", "--hgrm", "-"],
        ["--json", "-", "--live", "json"],
    ] {
        let mut arguments = vec!["swarm", "ws://127.0.0.1:1/"];
        arguments.extend(pair);
        let output = myriad(&arguments).output().expect("a program");
        assert_eq!(output.status.code(), Some(104), "{output:?}");
        assert!(
            text(&output.stderr).contains("standard output"),
            "{output:?}"
        );
    }
}

#[test]
fn an_address_of_figures_that_somebody_has_is_an_error_before_anything_starts() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = swarm(&start(), &["--metrics-listen", &address]);
    assert_eq!(output.status.code(), Some(104), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains(&format!("--metrics-listen {address}")) && said.contains("another port"),
        "{said}"
    );
    assert!(!said.contains("connected"), "{said}");
}

#[test]
fn what_is_not_shown_meanwhile_is_still_reported() {
    let output = swarm(&start(), &["--live", "off"]);
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    assert!(
        table.contains("10 of 10") && table.contains("100.00%"),
        "{table}"
    );
}

#[test]
fn a_run_without_a_load_ends_well_and_says_what_it_measured() {
    let server = start();
    let target = format!("ws://{}/raw?channel=x", server.address);
    let output = myriad(&["swarm", &target, "-c", "10", "-d", "200ms"])
        .output()
        .expect("a program");
    assert!(output.status.success(), "{output:?}");
    let table = text(&output.stdout);
    for wanted in [
        "10 of 10",
        "Only connecting was measured",
        "--echo RATE",
        "--publish URL",
    ] {
        assert!(table.contains(wanted), "{wanted}: {table}");
    }
}

#[test]
fn a_write_that_fails_at_the_end_does_not_cost_the_report() {
    let output = swarm(&start(), &["--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains("10 of 10"), "{output:?}");
    assert!(text(&output.stderr).contains("/dev/full"), "{output:?}");
}

#[test]
fn a_path_that_cannot_be_written_is_an_error_at_once() {
    let server = start();
    let path = PathBuf::from("/no/such/folder/report.json");
    let output = swarm(
        &server,
        &["--live", "plain", "--json", &path.display().to_string()],
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = text(&output.stderr);
    assert!(errors.contains("/no/such/folder/report.json"), "{errors}");
    assert!(
        !errors.contains("connected"),
        "nobody connected before: {errors}"
    );
}

/// The crowd knows the server's refusal by its words.
#[test]
fn a_server_that_lets_nobody_in_is_told_to_start_with_anonymous() {
    let server = Server::start(&["--dev=false", "--drain", "1s"]);
    let output = swarm(&server, &["--retries", "0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.contains("handshake_401: start the server with --anonymous, which lets clients in"),
        "{said}"
    );
}

#[test]
fn a_threshold_on_what_is_not_measured_is_an_error_at_once() {
    let output = myriad(&["swarm", "ws://127.0.0.1:1/"])
        .args(["--threshold", "echo:p99<5ms"])
        .output()
        .expect("a program");
    assert_eq!(output.status.code(), Some(104), "{output:?}");
    let errors = text(&output.stderr);
    assert!(
        errors.contains("'echo:p99<5ms'") && errors.contains("give --echo"),
        "{errors}"
    );
}

/// The report of a crowd with sessions against a real server, with pushes.
fn sessions(server: &Server, more: &[&str]) -> serde_json::Value {
    let hook = format!("http://{}/api/publish", server.address);
    listeners(server, &[&["--publish", &hook][..], more].concat())
}

/// The same without pushes.
fn listeners(server: &Server, more: &[&str]) -> serde_json::Value {
    let target = format!("ws://{}/connection/websocket", server.address);
    let mut arguments = vec!["swarm", &target, "--json", "-", "--live", "off"];
    if !more.contains(&"--recover-from") {
        arguments.extend(["--warmup", "10ms"]);
    }
    arguments.extend(more);
    let output = myriad(&arguments).output().expect("a program");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[test]
fn sessions_hear_every_publication_with_its_offset() {
    for driver in ["epoll", "io_uring"] {
        let server = Server::start(&["--drain", "1s", "--driver", driver, "--ping-interval", "3s"]);
        for protocol in ["centrifuge-json", "centrifuge-protobuf"] {
            let options = ["-c", "60", "--channel", "a", "--channel", "b b"];
            // Longer than until some were pinged.
            let pushes = ["--pushes", "10", "--every", "400ms"];
            let more = [
                &options[..],
                &pushes,
                &["--protocol", protocol, "--driver", driver],
            ];
            let report = sessions(&server, &more.concat());
            assert_eq!(report["outcome"], "finished", "{report:#}");
            assert_eq!(report["setup"]["connected"], 60);
            assert_eq!(report["messages"]["count"], 60 * 2 * 10);
            let session = &report["session"];
            assert_eq!(
                (&session["gaps"], &session["duplicates"]),
                (&0.into(), &0.into())
            );
            assert!(report["pings"]["answered"].as_u64() > Some(0), "{report:#}");
            assert_eq!(
                (&report["errors"], &report["closes"]),
                (&serde_json::json!({}), &serde_json::json!({}))
            );
        }
    }
}

#[test]
fn rooms_that_lose_and_regain_members_miss_nothing() {
    let server = start();
    for (protocol, driver) in [
        ("centrifuge-json", "io_uring"),
        ("centrifuge-protobuf", "epoll"),
    ] {
        let options = [
            "-c",
            "100",
            "--channel",
            "room",
            "--channels",
            "10",
            "--churn",
            "50%/s",
        ];
        let pushes = ["--pushes", "40", "--every", "50ms"];
        let more = [
            &options[..],
            &pushes,
            &["--protocol", protocol, "--driver", driver],
        ];
        let report = sessions(&server, &more.concat());
        assert_eq!(report["outcome"], "finished", "{report:#}");
        let session = &report["session"];
        assert!(session["recovered"].as_u64() > Some(0), "{report:#}");
        for figure in ["gaps", "duplicates", "overtaken", "unrecovered"] {
            assert_eq!(session[figure], 0, "{figure}: {report:#}");
        }
        let messages = &report["messages"];
        for figure in ["missed", "gaps", "duplicates", "unexpected"] {
            assert_eq!(messages[figure], 0, "{figure}: {report:#}");
        }
    }
}

#[test]
fn what_clients_publish_is_accepted_and_reaches_their_rooms() {
    let server = start();
    for (protocol, driver) in [
        ("centrifuge-json", "epoll"),
        ("centrifuge-protobuf", "io_uring"),
    ] {
        let rooms = ["-c", "60", "--channel", "room", "--channels", "6"];
        let load = ["--client-publish", "200/s", "--duration", "2s"];
        let kind = ["--protocol", protocol, "--driver", driver];
        let limits = ["--threshold", "client-publish:lost==0"];
        let missed = ["--threshold", "delivery:missed==0"];
        let more = [&rooms[..], &load, &kind, &limits, &missed].concat();
        let report = listeners(&server, &more);
        assert_eq!(report["outcome"], "finished", "{report:#}");
        assert_eq!(report["errors"], serde_json::json!({}), "{report:#}");
        let published = &report["client_publish"];
        let accepted = published["received"].as_u64().expect("a count");
        assert!(accepted > 0, "{report:#}");
        assert_eq!(published["sent"], accepted);
        let delivery = &published["delivery"];
        assert_eq!(delivery["expected"], accepted * 10, "{report:#}");
        assert_eq!(delivery["received"], accepted * 10);
        assert_eq!(report["messages"]["count"], accepted * 10);
        for times in [&published["round_trip_ms"], &delivery["delivery_ms"]] {
            assert!(times["p99"].as_f64() > Some(0.0), "{report:#}");
        }
        assert_eq!(report["session"]["gaps"], 0);
    }
}

#[test]
fn publications_that_the_server_refuses_are_lost_and_say_why() {
    let server = start();
    // Commands are at most 64 KiB: the server ends the connection of who sends more.
    let load = ["-c", "4", "--channel", "x", "--client-publish", "20/s"];
    let size = ["--duration", "1s", "--client-publish-size", "100KiB"];
    let kind = ["--protocol", "centrifuge-json", "--settle", "2s"];
    let report = listeners(&server, &[&load[..], &size, &kind].concat());
    let published = &report["client_publish"];
    assert_eq!(published["received"], 0, "{report:#}");
    assert_eq!(published["lost"], published["sent"], "{report:#}");
    assert!(
        report["went_wrong"]
            .as_str()
            .expect("a sentence")
            .contains("lost"),
        "{report:#}"
    );
}

#[test]
fn clients_begin_where_they_are_told_to() {
    let server = start();
    let first = sessions(
        &server,
        &[
            "-c",
            "1",
            "--channel",
            "x",
            "--pushes",
            "20",
            "--every",
            "10ms",
            "--protocol",
            "centrifuge-json",
        ],
    );
    assert_eq!(first["outcome"], "finished");
    let body = r#"{"channel":"x","data":"last"}"#;
    let answer = server.post("/api/publish", body);
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
    let (epoch, offset) = (&answer["result"]["epoch"], &answer["result"]["offset"]);
    assert_eq!(offset, 21, "{answer}");
    let position = format!("{}:1", epoch.as_str().expect("an epoch"));
    for protocol in ["centrifuge-json", "centrifuge-protobuf"] {
        let kind = ["--protocol", protocol, "--duration", "100ms"];
        let from = ["-c", "50", "--channel", "x", "--recover-from", &position];
        let report = listeners(&server, &[&kind[..], &from].concat());
        let session = &report["session"];
        assert_eq!(session["recovered"], 50, "{report:#}");
        assert_eq!(session["recovered_publications"], 50 * 20);
        assert_eq!(
            (&session["unrecovered"], &session["gaps"]),
            (&0.into(), &0.into())
        );
    }
    // Of a position that nobody remembers nothing is recovered, and the report says so.
    let kind = ["--protocol", "centrifuge-json", "--duration", "100ms"];
    let from = ["-c", "5", "--channel", "x", "--recover-from", "nowhere:1"];
    let report = listeners(&server, &[&kind[..], &from].concat());
    assert_eq!(report["session"]["unrecovered"], 5, "{report:#}");
    assert!(report["went_wrong"].is_string());
}

#[test]
fn a_session_that_the_server_refuses_says_why() {
    let server = start();
    let more = [
        "-c",
        "5",
        "--channel",
        "a",
        "--token",
        "no.such.token",
        "--retries",
        "0",
    ];
    let more = [
        &more[..],
        &["--protocol", "centrifuge-json", "--pushes", "1"],
    ]
    .concat();
    let report = sessions(&server, &more);
    assert_eq!(report["outcome"], "nobody_connected");
    assert_eq!(report["errors"]["session_closed_3500"], 5, "{report:#}");
    assert_eq!(
        report["server_said"]["session_closed_3500"],
        "\"invalid token\""
    );
}

#[test]
fn a_path_that_wants_a_protocol_and_one_that_echoes_nothing_are_explained() {
    let server = start();
    let crowd = |path: &str, duration: &str| {
        let target = format!("ws://{}{path}", server.address);
        let mut arguments = vec!["swarm", &target, "-c", "10", "--duration", duration];
        arguments.extend(["--echo", "100/s", "--warmup", "10ms", "--settle", "100ms"]);
        let output = myriad(&arguments).output().expect("a program");
        // No echo came back: the load came to nothing.
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stdout)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    // Each echo is a message that is no command.
    let table = crowd("/connection/websocket", "5s");
    assert!(
        table.contains("closed every connection with 3501: it wants commands of the Centrifuge"),
        "{table}"
    );
    let table = crowd("/raw?channel=x", "2s");
    assert!(
        table.contains("none came back: does the server send messages back at this path?"),
        "{table}"
    );
}
