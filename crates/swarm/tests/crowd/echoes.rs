//! Echoes over real sockets, on both drivers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Client, drivers, run};
use myriad_swarm::{
    Config, Destination, Driver, Echo, LiveStyle, Outcome, Report, Reporting, Target, Threshold,
    read_report, report_schema,
};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tungstenite::Message;

const CROWD: u64 = 20;

/// A server that has `answer` deal with each message of each client, on a thread for each.
fn serve(answer: impl Fn(&mut Client, Message) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let Ok(mut client) = tungstenite::accept(stream.unwrap()) else {
                    return;
                };
                while let Ok(message) = client.read() {
                    if message.is_text() || message.is_binary() {
                        answer(&mut client, message);
                    }
                }
            });
        }
    });
    address
}

/// 500 messages in a second.
fn config(server: SocketAddr, driver: Driver) -> Config {
    let target = Target::parse(&format!("ws://{server}/echo")).unwrap();
    let mut config = Config::new(vec![target], CROWD);
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config.duration = Some(Duration::from_millis(1500));
    config.retries = 0;
    let mut echo = Echo::new(500.0);
    echo.warmup = Duration::from_millis(500);
    config.echo = Some(echo);
    config
}

/// All that was sent came back or is lost, and no more fell due than in the second of [`config`].
fn check(report: &Report) {
    check_answers(report);
    let echo = report.echo.as_ref().unwrap();
    assert!(echo.sent + echo.unsent <= 500, "{echo:?}");
}

/// The same of a run of another length.
fn check_answers(report: &Report) {
    let echo = report.echo.as_ref().unwrap();
    assert_eq!(echo.sent, echo.received + echo.lost, "{report:#?}");
    assert_eq!(report.messages.gaps + report.messages.duplicates, 0);
}

#[test]
fn what_is_sent_comes_back() {
    for driver in drivers() {
        for bytes in [30, 64, 300_000] {
            let server = serve(|client, message| {
                assert!(message.is_text());
                let _ = client.send(message);
            });
            let mut config = config(server, driver);
            config.echo.as_mut().unwrap().payload_bytes = bytes;
            config.compression = bytes == 64;
            config.thresholds = vec![
                Threshold::parse("echo:lost<=0").unwrap(),
                Threshold::parse("echo:received>=1").unwrap(),
                Threshold::parse("errors<=0").unwrap(),
            ];
            let report = run(&config);
            check(&report);
            assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
            let echo = report.echo.unwrap();
            assert_eq!(echo.rate_per_s, 500.0);
            assert_eq!(report.messages.count, echo.received);
            assert_eq!(report.messages.payload_bytes, echo.received * bytes as u64);
            let times = echo.round_trip_ms;
            let ordered = [times.p50, times.p90, times.p99, times.p999, times.max];
            assert!(
                ordered.iter().all(Option::is_some) && ordered.is_sorted(),
                "{times:?}"
            );
        }
    }
}

#[test]
fn a_report_says_what_a_message_took_of_the_processors_at_both_ends() {
    for driver in drivers() {
        let server = serve(|client, message| {
            let _ = client.send(message);
        });
        let mut config = config(server, driver);
        let alone = run(&config).cpu.unwrap();
        assert!(alone.generator_cpu_us_per_message > Some(0.0), "{alone:?}");
        assert_eq!(
            (alone.server_cpu_s, alone.server_cpu_us_per_message),
            (None, None)
        );
        // This process is the server, too.
        config.reporting.server_pid = Some(std::process::id());
        let report = run(&config);
        let cpu = report.cpu.unwrap();
        assert_eq!(cpu.messages, report.messages.count, "{cpu:?}");
        assert!(cpu.span_s > 1.4 && cpu.generator_cpu_s > 0.0, "{cpu:?}");
        assert!(cpu.server_cpu_us_per_message.is_some(), "{cpu:?}");
    }
}

#[test]
fn answers_that_come_twice_or_changed_are_errors() {
    for driver in drivers() {
        let server = serve(|client, message| {
            let _ = client.send(message.clone());
            let _ = client.send(message);
        });
        let report = run(&config(server, driver));
        check(&report);
        let echo = report.echo.unwrap();
        assert_eq!((echo.received, echo.lost), (echo.sent, 0));
        // The second copy of the last ones may come after the run has ended.
        assert!(echo.errors > 0 && echo.errors <= echo.sent);
        assert_eq!(report.errors["echo_unknown"], echo.errors);

        let server = serve(|client, message| {
            let _ = client.send(Message::binary(message.into_data()));
        });
        let mut config = config(server, driver);
        config.settle = Duration::from_millis(300);
        let report = run(&config);
        check(&report);
        let echo = report.echo.unwrap();
        assert_eq!(echo.received, 0, "text must come back as text");
        assert!(report.errors["echo_wrong"] > 0);
        assert_eq!(echo.round_trip_ms.p99, None);
    }
}

#[test]
fn a_server_that_does_not_answer_or_goes_away_is_no_reason_to_wait_for_ever() {
    for driver in drivers() {
        let mut silent = config(serve(|_, _| {}), driver);
        silent.settle = Duration::from_millis(300);
        silent.thresholds = vec![Threshold::parse("echo:p99<1h").unwrap()];
        let report = run(&silent);
        check(&report);
        assert_eq!(report.echo.unwrap().received, 0);
        assert_eq!(report.outcome, Outcome::ThresholdsFailed);

        // Garbage instead of a frame ends the connection; the settle time is an hour, and nobody waits for it.
        let server = serve(|client, _| {
            let _ = client.get_mut().write_all(&[0xff; 64]);
        });
        let mut broken = config(server, driver);
        broken.settle = Duration::from_secs(3600);
        let report = run(&broken);
        check(&report);
        let broken = report.errors["protocol"];
        assert!((1..=CROWD).contains(&broken));
        assert!(report.echo.unwrap().lost >= broken);
    }
}

#[test]
fn a_crowd_that_is_replaced_meanwhile_loses_nothing() {
    for driver in drivers() {
        let server = serve(|client, message| {
            let _ = client.send(message);
        });
        let mut config = config(server, driver);
        config.churn_per_s = Some(1.0);
        let report = run(&config);
        check(&report);
        assert!(report.churn.churned > 0);
        let echo = report.echo.unwrap();
        assert_eq!((echo.lost, echo.errors), (0, 0));
    }
}

#[test]
fn a_run_without_echoes_has_no_figures_of_them() {
    let server = serve(|_, _| {});
    let mut config = config(server, drivers()[0]);
    config.echo = None;
    config.duration = Some(Duration::from_millis(100));
    let report = run(&config);
    assert!(report.echo.is_none());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["echo"], serde_json::Value::Null);
}

#[test]
fn a_threshold_that_fails_may_end_the_run() {
    let server = serve(|client, message| {
        let _ = client.send(message);
    });
    let mut config = config(server, drivers()[0]);
    config.duration = Some(Duration::from_secs(600));
    let threshold = |text| Threshold::parse(text).unwrap();
    config.thresholds = vec![
        threshold("echo:count>=1m"),
        threshold("echo: p(95) < 0.001").aborting_after(Duration::ZERO),
        threshold("errors:count<10"),
    ];
    let report = run(&config);
    check_answers(&report);
    assert_eq!(report.outcome, Outcome::ThresholdsFailed);
    assert!(report.elapsed_s < 300.0, "{} s", report.elapsed_s);
    let aborted = report.thresholds.iter().map(|it| (it.aborted, it.passed));
    assert_eq!(
        aborted.collect::<Vec<_>>(),
        [(false, false), (true, false), (false, true)]
    );
    let wrong = report.went_wrong.unwrap();
    assert!(
        wrong.contains("because echo: p(95) < 0.001 failed"),
        "{wrong}"
    );
}

#[test]
fn a_run_is_shown_over_time() {
    let server = serve(|client, message| {
        let _ = client.send(message);
    });
    let folder = std::env::temp_dir().join(format!("swarm-series-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut config = config(server, Driver::Epoll);
    config.reporting = Reporting {
        html: Some(folder.join("report.html")),
        samples: Some(folder.join("samples.ndjson")),
        hlog: Some(folder.join("times.hlog")),
        server_pid: Some(std::process::id()),
        ..Reporting::default()
    };
    config.json = Some(Destination::File(folder.join("report.json")));
    config.hgrm = Some(Destination::File(folder.join("times.hgrm")));
    let report = run(&config);
    let series = &report.series;
    let echoes = series.samples.iter().filter_map(|it| it.times.get("echo"));
    let answered = report.echo.as_ref().unwrap().received;
    assert_eq!(echoes.map(|times| times.count).sum::<u64>(), answered);
    let heat = series.heat.iter().find(|heat| heat.of == "echo").unwrap();
    assert_eq!(heat.counts.iter().flatten().sum::<u64>(), answered);
    assert!(series.samples.iter().any(|it| it.server.is_some()));
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.ends_with("</html>\n") && page.contains("<rect class=\"heat\""));
    let samples = std::fs::read_to_string(folder.join("samples.ndjson")).unwrap();
    assert!(samples.lines().count() >= 2);
    assert!(samples.lines().all(|line| line.starts_with("{\"from_s\":")));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&report_schema()).unwrap();
    let written: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    jsonschema::validate(&schema, &written).unwrap();
    assert_eq!(
        read_report(&folder.join("report.json")).unwrap().run_id,
        report.run_id
    );
    let total = format!("Total count    = {answered:12}]");
    assert!(
        read("times.hgrm").contains(&total),
        "a run without pushes has its echoes there"
    );
    assert!(read("times.hlog").contains("\nTag=echo,"));
    std::fs::remove_dir_all(folder).unwrap();
}
