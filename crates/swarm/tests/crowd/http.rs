//! Crowds that speak HTTP, over real sockets against a server whose every answer the test decides.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod flows;

use crate::support::http::{Held, HttpServer, Reply, chunk};
use crate::support::{drivers, run};
use myriad_swarm::{
    Config, ConfigError, Outcome, PollPosition, Protocol, PublishBody, Report, Scheme, Threshold,
    ThresholdRefused,
};
use std::time::Duration;

/// An answer with this body and these headers.
fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

fn assert_all_well(report: &Report, clients: u64, messages: u64) {
    assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
    assert_eq!(report.went_wrong, None, "{report:#?}");
    assert_eq!(report.setup.connected, clients);
    assert_eq!(report.messages.count, messages, "{report:#?}");
    assert_eq!((report.messages.missed, report.messages.gaps), (0, 0));
    assert_eq!(report.messages.duplicates, 0);
    let fanout = report.fanout.as_ref().unwrap();
    assert_eq!(fanout.reach_min, Some(1.0), "{report:#?}");
}

#[test]
fn polls_go_on_from_the_offset_that_they_are_told() {
    for driver in drivers() {
        let server = HttpServer::start(
            8,
            |asked| {
                assert!(
                    asked
                        .head
                        .starts_with("GET /v1/stream/x?live=long-poll&offset=")
                );
                Reply::Hold
            },
            |number, body, held| {
                for held in held.drain(..) {
                    let from = match number {
                        1 => "offset=now ".to_owned(),
                        _ => format!("offset=o{}&cursor=a%20b ", number - 1),
                    };
                    assert!(held.asked.head.contains(&from), "{}", held.asked.head);
                    let headers =
                        format!("Stream-Next-Offset: o{number}\r\nStream-Cursor: a b\r\n");
                    held.say(&answer(200, &headers, body));
                }
                204
            },
        );
        let path = "/v1/stream/x?live=long-poll&offset=now";
        let mut config = server.config(driver, Protocol::LongPoll, path, 8, 3);
        config.publish.as_mut().unwrap().body = PublishBody::Stream;
        let report = run(&config);
        assert_all_well(&report, 8, 24);
        let http = report.http.unwrap();
        assert_eq!((http.answers, http.timeouts, http.reopened), (24, 0, 0));
        assert!(http.requests == 32 && http.answers_per_s > 0.0);
        assert!(
            server.publications()[0]
                .head
                .contains("content-type: text/plain")
        );
    }
}

#[test]
fn polls_without_a_delivery_are_timed_and_judged() {
    let serve = || {
        HttpServer::start(
            4,
            |asked| match asked.number_on_connection {
                0 => Reply::Say(answer(204, "etag: \"1\"\r\nlast-modified: then\r\n", "")),
                1 => {
                    let head = asked.head.to_ascii_lowercase();
                    assert!(head.contains("if-none-match: \"1\"\r\n"), "{head}");
                    assert!(head.contains("if-modified-since: then\r\n"), "{head}");
                    Reply::Say(answer(200, "", ""))
                }
                2 => Reply::Say(answer(304, "", "")),
                _ => Reply::Hold,
            },
            |_, body, held| {
                held.drain(..)
                    .for_each(|held| held.say(&answer(200, "", body)));
                200
            },
        )
    };
    for driver in drivers() {
        let server = serve();
        let mut config = server.config(driver, Protocol::LongPoll, "/comet", 4, 1);
        config.expect_held = Some((Duration::ZERO, Duration::from_secs(20)));
        config.thresholds = vec![
            Threshold::parse("held:late==0").unwrap(),
            Threshold::parse("held:early==0").unwrap(),
            Threshold::parse("polls:timeouts==12").unwrap(),
        ];
        let report = run(&config);
        assert_all_well(&report, 4, 4);
        let http = report.http.as_ref().unwrap();
        assert_eq!((http.answers, http.timeouts), (16, 12));
        let held = http.held.as_ref().unwrap();
        assert!(held.longest_ms >= held.p50_ms && held.expected_ms == Some((0.0, 20_000.0)));

        let thresholds = config.thresholds;
        let server = serve();
        let mut config = server.config(driver, Protocol::LongPoll, "/comet", 4, 1);
        config.thresholds = thresholds;
        config.expect_held = Some((Duration::from_secs(60), Duration::from_secs(90)));
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::ThresholdsFailed);
        let http = report.http.unwrap();
        assert_eq!(http.held.unwrap().early, Some(12));
    }
}

#[test]
fn connections_that_the_server_ends_are_replaced() {
    for driver in drivers() {
        let server = HttpServer::start(
            5,
            |asked| match (asked.connection < 5, asked.number_on_connection) {
                // Announced, then with a body that only the end of the connection ends, then at any time.
                (true, _) if asked.connection == 0 => {
                    Reply::SayAndEnd("HTTP/1.1 200 OK\r\n\r\n".to_owned())
                }
                (true, 0) => Reply::Say(answer(204, "", "")),
                (true, 1) => Reply::SayAndEnd(answer(204, "connection: close\r\n", "")),
                (false, 0) => Reply::Say(answer(204, "", "")),
                (false, 1) if asked.connection < 10 => Reply::End,
                _ => Reply::Hold,
            },
            |_, body, held| {
                held.drain(..)
                    .for_each(|held| held.say(&answer(200, "", body)));
                200
            },
        );
        let config = server.config(driver, Protocol::LongPoll, "/comet", 5, 2);
        let report = run(&config);
        assert_all_well(&report, 5, 10);
        assert_eq!(report.http.unwrap().reopened, 10);
        assert!(report.warnings.iter().any(|warning| {
            warning.starts_with("the server ended 10 connections behind an answer")
        }));
    }
}

#[test]
fn events_come_in_chunks_and_without_and_streams_are_opened_again() {
    for driver in drivers() {
        for is_chunked in [true, false] {
            let server = HttpServer::start(
                6,
                move |asked| {
                    let head = asked.head.to_ascii_lowercase();
                    assert!(head.contains("accept: text/event-stream\r\n"), "{head}");
                    let is_second = head.contains("last-event-id: 1\r\n");
                    assert_eq!(is_second, asked.connection >= 6, "{head}");
                    Reply::SayAndHold(format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{}\r\n{}",
                        if is_chunked {
                            "transfer-encoding: chunked\r\n"
                        } else {
                            ""
                        },
                        piece(is_chunked, ": welcome\n\nretry: 1\n\n")
                    ))
                },
                move |number, body, held| {
                    let event = format!("id: {number}\ndata: {body}\n\n");
                    held.iter()
                        .for_each(|held| held.say(&piece(is_chunked, &event)));
                    if number == 1 {
                        // Those that come again are held in their place.
                        held.drain(..).for_each(Held::end);
                    }
                    200
                },
            );
            let config = server.config(driver, Protocol::Sse, "/events", 6, 2);
            let report = run(&config);
            assert_all_well(&report, 6, 12);
            let http = report.http.unwrap();
            assert_eq!((http.heartbeats, http.reopened), (12, 6));
            assert_eq!((http.held, http.answers), (None, 0));
        }
    }
}

fn piece(is_chunked: bool, text: &str) -> String {
    match is_chunked {
        true => chunk(text),
        false => text.to_owned(),
    }
}

#[test]
fn a_stream_of_lines_begins_with_a_body() {
    for driver in drivers() {
        let server = HttpServer::start(
            3,
            |asked| {
                assert!(
                    asked
                        .head
                        .starts_with("POST /connection/http_stream HTTP/1.1\r\n")
                );
                assert_eq!(asked.body, r#"{"connect":{"subs":{"x":{}}}}"#);
                let connected = chunk("{\"connect\":{\"client\":\"1\"}}\n{}\n");
                Reply::SayAndHold(format!(
                    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{connected}"
                ))
            },
            |_, body, held| {
                let push = format!("{{\"push\":{{\"pub\":{{\"data\":\"{body}\"}}}}}}\n{{}}\n");
                held.iter().for_each(|held| held.say(&chunk(&push)));
                200
            },
        );
        let path = "/connection/http_stream";
        let mut config = server.config(driver, Protocol::HttpStream, path, 3, 4);
        config.request_body = Some(r#"{"connect":{"subs":{"x":{}}}}"#.to_owned());
        let report = run(&config);
        // The answer to `connect` is a message too, and no publication of the run.
        assert_all_well(&report, 3, 3 + 12);
        assert_eq!(report.http.unwrap().heartbeats, 3 + 12);
    }
}

#[test]
fn a_server_that_refuses_is_quoted_in_full() {
    for driver in drivers() {
        for (protocol, status, location) in [
            (Protocol::LongPoll, 404, ""),
            (Protocol::Sse, 404, ""),
            (Protocol::LongPoll, 301, "Location: /elsewhere\r\n"),
            (Protocol::HttpStream, 503, ""),
        ] {
            let refusal = answer(status, location, "There is no such thing.");
            let said = refusal.clone();
            let server = HttpServer::start(
                1,
                move |_| Reply::Say(said.clone()),
                |_, _, _| unreachable!("nobody is there"),
            );
            let mut config = server.config(driver, protocol, "/none", 5, 1);
            config.publish = None;
            config.duration = Some(Duration::from_secs(30));
            let report = run(&config);
            assert_eq!(report.outcome, Outcome::NobodyConnected, "{report:#?}");
            assert_eq!((report.setup.connected, report.setup.given_up), (0, 5));
            let kind = format!("answer_{status}");
            assert_eq!(report.errors[&kind], 5);
            let quoted = refusal.replace("\r\n", "\\r\\n");
            assert_eq!(report.server_said[&kind], format!("\"{quoted}\""));
            let wrong = report.went_wrong.unwrap();
            assert!(
                wrong.ends_with(&format!("the server answered the request with {status}.")),
                "{wrong}"
            );
            assert!(report.warnings.iter().any(|text| text.starts_with(&kind)));
        }
    }
}

#[test]
fn a_poll_that_is_refused_at_first_is_tried_again() {
    let server = HttpServer::start(
        2,
        |asked| match asked.connection {
            0 | 1 => Reply::Say(answer(503, "", "full")),
            _ => Reply::Hold,
        },
        |_, body, held| {
            held.drain(..)
                .for_each(|held| held.say(&answer(200, "", body)));
            200
        },
    );
    let mut config = server.config(drivers()[0], Protocol::LongPoll, "/comet", 2, 2);
    config.retries = 1;
    let report = run(&config);
    assert_eq!((report.setup.connected, report.churn.lost), (2, 0));
    assert_eq!(report.errors["answer_503"], 2);
    assert_eq!(report.messages.count, 4);
}

#[test]
fn what_breaks_later_is_lost() {
    let server = HttpServer::start(
        3,
        |asked| match asked.number_on_connection {
            0 => Reply::Hold,
            // Held too, so that the second push waits for them.
            _ if asked.connection == 0 => Reply::SayAndHold(answer(500, "", "oh")),
            _ if asked.connection == 1 => Reply::SayAndHold("nonsense\r\n\r\n".to_owned()),
            _ => Reply::Hold,
        },
        |number, body, held| {
            for held in held.drain(..) {
                if number == 1 || held.asked.connection == 2 {
                    held.say(&answer(200, "", body));
                }
            }
            200
        },
    );
    let config = server.config(drivers()[0], Protocol::LongPoll, "/comet", 3, 2);
    let report = run(&config);
    assert_eq!((report.setup.connected, report.messages.count), (3, 4));
    assert_eq!(report.churn.lost, 2, "{report:#?}");
    assert_eq!(report.errors["answer_500"], 1);
    assert_eq!(report.errors["answer_invalid"], 1);
}

#[test]
fn each_channel_has_its_stream() {
    let server = HttpServer::start(
        4,
        |asked| {
            let path = asked.head.split(' ').nth(1).unwrap().to_owned();
            assert!(path == "/v1/stream/a-1?offset=now" || path == "/v1/stream/a-2?offset=now");
            Reply::Hold
        },
        |_, body, held| {
            // The stamp names the channel: the first, or the second.
            let channel = match body.contains("/0000/") {
                true => "/a-1?",
                false => "/a-2?",
            };
            let (readers, others): (Vec<Held>, Vec<Held>) = std::mem::take(held)
                .into_iter()
                .partition(|held| held.asked.head.contains(channel));
            *held = others;
            readers
                .iter()
                .for_each(|held| held.say(&answer(200, "", body)));
            204
        },
    );
    let path = "/v1/stream/{channel}?offset=now";
    let mut config = server.config(drivers()[0], Protocol::LongPoll, path, 4, 1);
    config.channels = vec!["a".to_owned()];
    config.channel_count = Some(2);
    config.poll_position = PollPosition::Same;
    let publish = config.publish.as_mut().unwrap();
    publish.body = PublishBody::Stream;
    publish.content_type = "application/json".to_owned();
    publish.endpoints = vec![server.endpoint("/v1/stream/{channel}")];
    let report = run(&config);
    assert_all_well(&report, 4, 4);
    assert_eq!(report.pushes.len(), 2);
    let publications = server.publications();
    assert!(publications[0].head.starts_with("POST /v1/stream/a-1 HTTP"));
    assert!(publications[0].body.starts_with("\"myriad/"));
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let config = |protocol, url: &str| {
        let target = myriad_swarm::Target::parse(url).unwrap();
        let mut config = Config::new(vec![target], 1);
        config.protocol = protocol;
        config.driver = Some(drivers()[0]);
        config
    };
    let error = |config: &Config| match myriad_swarm::run(config, &myriad_swarm::Interrupt::new()) {
        Err(myriad_swarm::RunError::Config(error)) => error,
        other => panic!("{other:?}"),
    };
    let (http, ws) = ("http://127.0.0.1:1/x", "ws://127.0.0.1:1/x");
    assert_eq!(
        error(&config(Protocol::Raw, http)),
        ConfigError::Scheme(Protocol::Raw, http.to_owned(), Scheme::Http)
    );
    assert_eq!(
        error(&config(Protocol::Sse, ws)),
        ConfigError::Scheme(Protocol::Sse, ws.to_owned(), Scheme::WebSocket)
    );
    let mut beating = config(Protocol::Sse, http);
    beating.heartbeat = Some(Duration::from_secs(1));
    assert_eq!(error(&beating), ConfigError::NeedsWebSocket("--heartbeat"));
    let mut held = config(Protocol::Sse, http);
    held.expect_held = Some((Duration::ZERO, Duration::ZERO));
    assert_eq!(error(&held), ConfigError::NeedsPolls("--expect-held"));
    let mut body = config(Protocol::Raw, ws);
    body.request_body = Some("x".to_owned());
    assert_eq!(error(&body), ConfigError::NeedsHttp("--request-body"));
    let place = "http://127.0.0.1:1/{channel}";
    assert_eq!(
        error(&config(Protocol::Sse, place)),
        ConfigError::ChannelPlace(place.to_owned(), 0)
    );
    let mut judged = config(Protocol::LongPoll, http);
    judged.thresholds = vec![Threshold::parse("held:early==0").unwrap()];
    assert!(matches!(
        error(&judged),
        ConfigError::Threshold(_, ThresholdRefused::Unmeasured("--expect-held"))
    ));
}
