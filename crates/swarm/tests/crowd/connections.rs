//! Connections: what fails while they are made, what ends them, and what keeps them.

#[expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tls;

use crate::support::{Admission, SHORT_SETTLE, Server, broadcast, drivers, run};
use myriad_reserved_port::ReservedPort;
use myriad_swarm::{Arrival, ArrivalStage, Ending, Interrupt, Outcome, Target};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;

fn upgrade_all(_: usize) -> Admission {
    Admission::Upgrade
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|&(kind, count)| (kind.to_owned(), count))
        .collect()
}

#[test]
fn refusals_are_counted_by_status_and_retried() {
    for driver in drivers() {
        let admit = |number| {
            if number % 4 == 3 && number < 100 {
                Admission::Refuse(503)
            } else {
                Admission::Upgrade
            }
        };
        let server = Server::start(100, admit, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 100, 1);
        config.retries = 1;
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_503", 25)]));
        assert_eq!((report.setup.connected, report.setup.given_up), (100, 0));
        assert_eq!(report.pushes[0].received, 100);
        assert!(
            report
                .warnings
                .iter()
                .any(|warning| warning.contains("503")),
            "{:?}",
            report.warnings
        );
    }
}

#[test]
fn without_retries_the_refused_are_given_up() {
    for driver in drivers() {
        let admit = |number| {
            if number < 60 {
                Admission::Upgrade
            } else {
                Admission::Refuse(404)
            }
        };
        let server = Server::start(60, admit, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let report = run(&server.config(driver, 100, 1));
        assert_eq!(report.errors, counts(&[("handshake_404", 40)]));
        assert_eq!((report.setup.connected, report.setup.given_up), (60, 40));
        assert_eq!(
            (report.pushes[0].expected, report.pushes[0].received),
            (60, 60)
        );
    }
}

#[test]
fn nobody_listening_ends_the_run_early() {
    for driver in drivers() {
        let nobody = ReservedPort::take().unwrap();
        let port = nobody.address();
        let server = Server::start(1, upgrade_all, |_, _, _| 200);
        let mut config = server.config(driver, 50, 1);
        config.targets = vec![Target::parse(&format!("ws://{port}/")).unwrap()];
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::NobodyConnected);
        assert_eq!(report.errors, counts(&[("refused", 50)]));
        assert!(report.pushes.is_empty());
    }
}

#[test]
fn a_server_that_never_answers_runs_into_the_handshake_timeout() {
    for driver in drivers() {
        let admit = |number| {
            if number < 10 {
                Admission::Ignore
            } else {
                Admission::Upgrade
            }
        };
        let server = Server::start(20, admit, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 30, 1);
        // Long enough for those that are answered.
        config.handshake_timeout = Duration::from_secs(4);
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_timeout", 10)]));
        assert_eq!(report.pushes[0].received, 20);
    }
}

#[test]
fn what_is_no_websocket_server_is_noticed() {
    for driver in drivers() {
        let server = Server::start(1, upgrade_all, |_, _, _| 200);
        let mut config = server.config(driver, 5, 1);
        // The publish side answers a GET with 200 and no upgrade.
        config.targets = vec![Target::parse(&format!("ws://{}/", server.http)).unwrap()];
        config.connecting_max = 1;
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_200", 5)]));
    }
}

#[test]
fn pings_are_answered_with_their_payload() {
    for driver in drivers() {
        let server = Server::start(100, upgrade_all, |number, body, clients| {
            for (index, client) in clients.iter_mut().enumerate() {
                client
                    .send(Message::Ping(format!("{number}/{index}").into()))
                    .unwrap();
                // Two at once: both must be answered, in order.
                client.send(Message::Ping("again".into())).unwrap();
            }
            for (index, client) in clients.iter_mut().enumerate() {
                assert_eq!(
                    client.read().unwrap(),
                    Message::Pong(format!("{number}/{index}").into())
                );
                assert_eq!(client.read().unwrap(), Message::Pong("again".into()));
            }
            broadcast(clients, body);
            200
        });
        let report = run(&server.config(driver, 100, 2));
        assert_eq!(report.pings.answered, 400);
        assert_eq!(report.messages.count, 200);
        assert!(report.errors.is_empty());
    }
}

#[test]
fn own_heartbeats_are_sent_and_their_answers_timed() {
    for driver in drivers() {
        let server = Server::start(20, upgrade_all, |_, body, clients| {
            // Each as soon as its ping is there: one that comes after the next ping answers nothing.
            std::thread::scope(|scope| {
                for client in clients.iter_mut() {
                    scope.spawn(|| {
                        // Reading answers it.
                        assert!(client.read().unwrap().is_ping());
                        client.flush().unwrap();
                    });
                }
            });
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 20, 1);
        config.heartbeat = Some(Duration::from_secs(4));
        let report = run(&config);
        assert!(report.pings.heartbeats_sent >= 20);
        assert!(report.pings.heartbeats_answered >= 20, "{:?}", report.pings);
        assert!(report.pings.p50_ms.is_some());
    }
}

#[test]
fn the_ways_a_server_ends_connections_are_told_apart() {
    for driver in drivers() {
        let server = Server::start(40, upgrade_all, |_, body, clients| {
            for (index, client) in clients.iter_mut().take(7).enumerate() {
                let code = if index < 5 {
                    CloseCode::Away
                } else {
                    CloseCode::Library(4001)
                };
                client
                    .close(Some(CloseFrame {
                        code,
                        reason: "later".into(),
                    }))
                    .unwrap();
                // The answer carries the same code; the connection is the server's to end.
                let Message::Close(Some(answer)) = client.read().unwrap() else {
                    panic!("no close frame")
                };
                assert_eq!(answer.code, code);
            }
            for client in clients.iter().skip(7).take(3) {
                client.get_ref().shutdown(Shutdown::Both).unwrap();
            }
            // The frame breaks the protocol: it is masked.
            std::io::Write::write_all(clients[10].get_mut(), &[0x81, 0x80, 1, 2, 3, 4]).unwrap();
            clients.drain(..10);
            broadcast(&mut clients[1..], body);
            200
        });
        let mut config = server.config(driver, 40, 1);
        config.settle = SHORT_SETTLE;
        let report = run(&config);
        assert_eq!(report.closes, counts(&[("1001", 5), ("4001", 2)]));
        assert_eq!(report.errors, counts(&[("lost_end", 3), ("protocol", 1)]));
        assert_eq!(
            (report.pushes[0].expected, report.pushes[0].received),
            (40, 29)
        );
        assert_eq!(report.crowd.open_at_end, 29);
    }
}

#[test]
fn an_orderly_crowd_sends_close_notify() {
    for driver in drivers() {
        let (farewell, heard) = std::sync::mpsc::channel();
        let server = Server::start(20, upgrade_all, move |_, body, clients| {
            broadcast(clients, body);
            for mut client in clients.drain(..) {
                let farewell = farewell.clone();
                std::thread::spawn(move || {
                    let last = client.read().unwrap();
                    // Sends the answer and ends the connection.
                    while client.read().is_ok() {}
                    farewell.send(last).unwrap();
                });
            }
            200
        });
        let mut config = server.config(driver, 20, 1);
        config.ending = Ending::Orderly;
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::Finished);
        for _ in 0..20 {
            let Message::Close(Some(frame)) = heard.recv().unwrap() else {
                panic!("no close frame")
            };
            assert_eq!(frame.code, CloseCode::Normal);
        }
        assert!(
            report.closes.is_empty(),
            "an answer to our own close is no close of the server's"
        );
    }
}

#[test]
fn an_interrupted_run_reports_what_it_has() {
    for driver in drivers() {
        let interrupt = Interrupt::new();
        let from_server = interrupt.clone();
        let server = Server::start(30, upgrade_all, move |number, body, clients| {
            if number == 3 {
                from_server.make();
            }
            broadcast(clients, body);
            // All have read the first push before anything can end the run.
            if number == 1 {
                for client in clients.iter_mut() {
                    client.send(Message::Ping("read".into())).unwrap();
                    while !client.read().unwrap().is_pong() {}
                }
            }
            200
        });
        let mut config = server.config(driver, 30, 1);
        let publish = config.publish.as_mut().unwrap();
        publish.pushes = None;
        publish.every = Duration::from_millis(100);
        let report = myriad_swarm::run(&config, &interrupt).unwrap();
        assert_eq!(report.outcome, Outcome::Interrupted);
        assert_eq!(report.setup.connected, 30);
        assert!(report.pushes.len() >= 2, "{report:#?}");
        assert_eq!(report.pushes[0].received, 30);
        let reach = report.fanout.as_ref().and_then(|fanout| fanout.reach_min);
        assert_eq!(
            reach,
            Some(1.0),
            "what was cut short is held against nobody"
        );
    }
}

#[test]
fn a_paced_crowd_keeps_its_schedule() {
    for driver in drivers() {
        let server = Server::start(100, upgrade_all, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 100, 1);
        config.arrival = Arrival::Rate(200.0);
        let begun = Instant::now();
        let report = run(&config);
        assert_eq!(report.setup.connected, 100);
        // The last of a hundred is due after 99 intervals; later is possible, earlier is not.
        assert!(
            begun.elapsed() >= Duration::from_millis(98 * 5),
            "{report:#?}"
        );
    }
}

#[test]
fn stages_are_kept_and_a_crowd_can_come_at_once() {
    for driver in drivers() {
        let server = Server::start(100, upgrade_all, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 100, 1);
        let stages = ["200ms:20", "0s:50%", "100ms:50%", "200ms:100"];
        let stages = stages.map(|text| ArrivalStage::parse(text).unwrap());
        config.arrival = Arrival::Stages(stages.to_vec());
        let begun = Instant::now();
        let report = run(&config);
        assert_eq!(report.setup.connected, 100);
        assert!(begun.elapsed() >= Duration::from_millis(490), "{report:#?}");
        let arrival = "200ms to 20, 0ns to 50%, 100ms to 50%, 200ms to 100";
        assert_eq!(report.settings.arrival.as_deref(), Some(arrival));

        let server = Server::start(100, upgrade_all, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 100, 1);
        config.connecting_max = 1;
        config.arrival = Arrival::AtOnce;
        let report = run(&config);
        assert_eq!(
            (report.setup.connected, report.setup.window_min),
            (100, 100)
        );
        assert_eq!(report.settings.connecting_max, 100);
    }
}

#[test]
fn a_server_that_upgrades_slowly_is_asked_by_fewer_at_once() {
    const CROWD: u64 = 150;
    for driver in drivers() {
        // It upgrades one after the other; the kernel accepts them all.
        let slowly = |_| {
            std::thread::sleep(Duration::from_millis(4));
            Admission::Upgrade
        };
        let server = Server::start(0, slowly, |_, _, _| 200);
        let mut config = server.config(driver, CROWD, 1);
        config.threads = Some(1);
        // All at once would take half a second, and are given a fifth of that.
        config.connecting_max = 100;
        config.handshake_timeout = Duration::from_millis(100);
        config.settle = SHORT_SETTLE;
        config.retries = 100;
        let report = run(&config);
        let setup = &report.setup;
        assert_eq!((setup.connected, setup.given_up), (CROWD, 0));
        assert!((16..=50).contains(&setup.window_min), "{setup:?}");
        assert!(report.errors.contains_key("handshake_timeout"), "{setup:?}");
        let is_said = |warning: &String| warning.contains("connections timed out, so that");
        assert!(report.warnings.iter().any(is_said), "{:?}", report.warnings);
    }
}

#[test]
fn a_port_that_accepts_and_never_answers_is_asked_about() {
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::Ignore, |_, _, _| 200);
        let mut config = server.config(driver, 7, 1);
        config.handshake_timeout = Duration::from_millis(200);
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::NobodyConnected);
        assert_eq!(
            report.went_wrong.as_deref(),
            Some("7 connected, none upgraded: is this a WebSocket server?")
        );
        let warning = warning_of(&report, "handshake_timeout");
        assert!(warning.contains("answers no upgrade"), "{warning}");
        // No word on slow servers or the window: this one is silent. A busy machine may be warned of.
        let is_other = |it: &&String| **it != warning && !it.contains("no processor left");
        let others = report.warnings.iter().filter(is_other);
        assert_eq!(others.collect::<Vec<_>>(), ["only 0 of 7 connected"]);
    }
}

/// The one warning about a kind of error.
fn warning_of(report: &myriad_swarm::Report, kind: &str) -> String {
    let beginning = format!("{kind}: ");
    let mut warnings = report.warnings.iter();
    let found = warnings.find(|warning| warning.starts_with(&beginning));
    found
        .unwrap_or_else(|| panic!("{:?}", report.warnings))
        .clone()
}

#[test]
fn what_the_server_said_to_a_refused_upgrade_is_shown() {
    const FORBIDDEN: &str = "HTTP/1.1 403 No\r\ncontent-length: 15\r\n\r\nNot \u{1b}[1m for you";
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::Say(FORBIDDEN), |_, _, _| 200);
        let report = run(&server.config(driver, 7, 1));
        assert_eq!(report.errors, counts(&[("handshake_403", 7)]));
        let said = &report.server_said["handshake_403"];
        assert!(said.starts_with("\"Not \\u{1b}[1m for"), "{said}");
        let warning = warning_of(&report, "handshake_403");
        assert!(
            warning.contains("--header") && warning.contains(said),
            "{warning}"
        );
    }
}

#[test]
fn a_subprotocol_that_nobody_offered_is_no_handshake() {
    for driver in drivers() {
        let server = Server::start(3, |_| Admission::Subprotocol("chat"), |_, _, _| 200);
        let mut config = server.config(driver, 3, 1);
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_invalid", 3)]));
        let said = &report.server_said["handshake_invalid"];
        assert!(said.contains("101 Switching Protocols"), "{said}");
        let header = |value: &str| ("Sec-WebSocket-Protocol".to_owned(), value.to_owned());
        config.headers = vec![header("mqtt, chat")];
        config.settle = SHORT_SETTLE;
        let report = run(&config);
        assert_eq!(report.setup.connected, 3, "{:?}", report.errors);
    }
}

#[test]
fn a_refusal_of_any_length_is_kept_by_its_first_bytes() {
    const ENDLESS: &str = concat!(
        "HTTP/1.1 500 Oh\r\n\r\n",
        "0123456789012345678901234567890123456789012345678901234567890123456789",
        "0123456789012345678901234567890123456789012345678901234567890123456789",
        "0123456789012345678901234567890123456789012345678901234567890123456789"
    );
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::Say(ENDLESS), |_, _, _| 200);
        let report = run(&server.config(driver, 3, 1));
        assert_eq!(report.errors, counts(&[("handshake_500", 3)]));
        assert_eq!(report.server_said["handshake_500"].len(), 200 + 2);
    }
}

#[test]
fn a_body_that_never_comes_holds_up_one_client_alone() {
    const PROMISED: &str = "HTTP/1.1 418 Tea\r\ncontent-length: 100\r\n\r\nhalf";
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::Say(PROMISED), |_, _, _| 200);
        let mut config = server.config(driver, 5, 1);
        config.threads = Some(1);
        // Long enough for the heads.
        config.handshake_timeout = Duration::from_secs(4);
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_418", 5)]));
        assert_eq!(report.server_said["handshake_418"], "\"half\"");
    }
}

#[test]
fn a_server_that_ends_the_connection_in_the_handshake_gets_a_hint() {
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::End, |_, _, _| 200);
        let report = run(&server.config(driver, 3, 1));
        assert_eq!(report.errors, counts(&[("handshake_ended", 3)]));
        assert!(warning_of(&report, "handshake_ended").contains("WebSocket port"));
    }
}

#[test]
fn a_source_address_that_is_not_ours_is_refused_at_once() {
    let server = Server::start(1, upgrade_all, |_, _, _| 200);
    let mut config = server.config(drivers()[0], 3, 1);
    let ranges = myriad_swarm::SourceRanges::parse("127.0.0.1,192.0.2.7").unwrap();
    config.sources = myriad_swarm::SourceChoice::Ranges(ranges);
    let error = myriad_swarm::run(&config, &Interrupt::new()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("192.0.2.7 is not an address of this machine"),
        "{text}"
    );
}
