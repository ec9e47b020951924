//! Publications: reach, order, and what a server gets wrong, on both drivers.

use crate::support::{
    Admission, Client, NO_ANSWER, SHORT_SETTLE, Server, await_reading, broadcast, drivers,
    read_body, read_head, run,
};
use myriad_reserved_port::ReservedPort;
use myriad_swarm::{
    Ended, Endpoint, Origin, Outcome, PublishAnswer, PublishBody, PushReport, Target, Threshold,
};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;
use tungstenite::Message;

const CROWD: usize = 200;

fn upgrade_all(_: usize) -> Admission {
    Admission::Upgrade
}

#[test]
fn every_push_reaches_every_terminal() {
    for driver in drivers() {
        // Wrapped in something of the server's own: terminals look for the stamp and not for a format.
        let server = Server::start(CROWD, upgrade_all, |_, body, clients| {
            broadcast(clients, &format!("{{\"pub\":{{\"data\":\"{body}\"}}}}"));
            200
        });
        let mut config = server.config(driver, CROWD as u64, 3);
        config.thresholds = vec![
            Threshold::parse("reach>=1").unwrap(),
            Threshold::parse("errors<=0").unwrap(),
            Threshold::parse("messages==600").unwrap(),
        ];
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
        assert_eq!(report.pushes.len(), 3);
        for (push, sequence) in report.pushes.iter().zip(1..) {
            assert_eq!((push.origin, push.sequence), (Origin::Own, sequence));
            assert_eq!((push.expected, push.received), (200, 200));
            assert_eq!((push.reach, push.ended), (Some(1.0), Ended::Complete));
            let times = push.times;
            let ordered = [
                times.first_ms,
                times.p50_ms,
                times.p90_ms,
                times.p99_ms,
                times.p999_ms,
                times.last_ms,
            ];
            assert!(
                ordered.iter().all(Option::is_some) && ordered.is_sorted(),
                "{times:?}"
            );
            assert!(push.accepted_ms.is_some());
        }
        let messages = &report.messages;
        assert_eq!(
            (messages.count, messages.gaps, messages.duplicates),
            (600, 0, 0)
        );
        assert_eq!(
            (messages.late, messages.unmeasured, messages.unexpected),
            (0, 0, 0)
        );
        assert_eq!(report.setup.connected, 200);
        assert_eq!(report.crowd.open_at_end, 200);
    }
}

#[test]
fn lost_repeated_and_overtaken_publications_are_told_apart() {
    for driver in drivers() {
        let mut held = String::new();
        let server = Server::start(CROWD, upgrade_all, move |number, body, clients| {
            match number {
                // Five never get it.
                2 => broadcast(&mut clients[5..], body),
                // Four get the next one first.
                3 => {
                    held = body.to_owned();
                    broadcast(&mut clients[4..], body);
                }
                4 => {
                    broadcast(clients, body);
                    broadcast(&mut clients[..4], &held);
                    // Three get it again.
                    broadcast(&mut clients[10..13], body);
                }
                _ => broadcast(clients, body),
            }
            200
        });
        let mut config = server.config(driver, CROWD as u64, 4);
        config.settle = SHORT_SETTLE;
        config.thresholds = vec![Threshold::parse("gaps<=0").unwrap()];
        let report = run(&config);
        let messages = &report.messages;
        assert_eq!(
            (messages.gaps, messages.duplicates, messages.overtaken),
            (5, 3, 4),
            "{report:#?}"
        );
        assert_eq!(messages.count, 195 + 3 * 200 + 3);
        let reached: Vec<u64> = report.pushes.iter().map(|push| push.received).collect();
        assert_eq!(reached.iter().sum::<u64>(), 795, "repeats reach nobody");
        assert_eq!(report.fanout.as_ref().unwrap().reach_min, Some(0.975));
        assert_eq!(report.outcome, Outcome::ThresholdsFailed);
        assert_eq!(report.thresholds[0].value, Some(5.0));
    }
}

#[test]
fn stamps_that_a_server_makes_up_hide_no_push_and_are_no_gaps() {
    for driver in drivers() {
        let server = Server::start(CROWD, upgrade_all, |_, body, clients| {
            // `myriad/RRRR/SSSS/QQQQQQQQ/` with another sequence: none at all, the next one, the largest, and larger ones.
            let made_up = |sequence: u32| format!("{}{sequence:08x}/", &body[..17]);
            let sequence = u32::from_str_radix(&body[17..25], 16).unwrap();
            broadcast(clients, &made_up(0));
            broadcast(clients, body);
            for sequence in [sequence + 1, 0xff_ffff, 0x100_0000, u32::MAX] {
                broadcast(clients, &made_up(sequence));
            }
            // The next push begins with this answer. Until then, all have read the stamp that will be its own.
            await_reading(clients);
            200
        });
        let report = run(&server.config(driver, CROWD as u64, 3));
        let own = |push: &&PushReport| push.origin == Origin::Own;
        let received = report.pushes.iter().filter(own).map(|push| push.received);
        assert_eq!(received.collect::<Vec<u64>>(), [200, 200, 200]);
        let messages = &report.messages;
        assert_eq!(
            (messages.gaps, messages.missed, messages.duplicates),
            (0, 0, 0)
        );
        // The next one and the largest, which might be pushes.
        assert_eq!(messages.unexpected, 1200, "{messages:?}");
    }
}

#[test]
fn a_loss_at_the_start_is_a_gap() {
    for driver in drivers() {
        let server = Server::start(20, upgrade_all, |number, body, clients| {
            match number {
                1 => broadcast(&mut clients[5..], body),
                // Nobody misses what was refused.
                2 => return 503,
                _ => broadcast(clients, body),
            }
            200
        });
        let mut config = server.config(driver, 20, 4);
        config.settle = SHORT_SETTLE;
        let report = run(&config);
        let messages = &report.messages;
        assert_eq!((messages.gaps, messages.duplicates), (5, 0), "{report:#?}");
    }
}

#[test]
fn frames_may_come_in_any_pieces() {
    for driver in drivers() {
        let server = Server::start(50, upgrade_all, |_, body, clients| {
            let whole = text_frame(body.as_bytes());
            for (index, client) in clients.iter_mut().enumerate() {
                let stream = client.get_mut();
                stream.set_nodelay(true).unwrap();
                if index % 2 == 0 {
                    for byte in &whole {
                        stream.write_all(&[*byte]).unwrap();
                    }
                } else {
                    // Fragments, and a ping between them.
                    let (first, last) = body.as_bytes().split_at(9);
                    let mut bytes = [&[0x01, 9], first, &[0x89, 1, b'!']].concat();
                    bytes.extend([0x80, u8::try_from(last.len()).unwrap()]);
                    bytes.extend_from_slice(last);
                    // And the beginning of one that never ends.
                    bytes.extend([0x81, 100, b'.']);
                    stream.write_all(&bytes).unwrap();
                }
            }
            200
        });
        let report = run(&server.config(driver, 50, 1));
        assert_eq!(report.pushes[0].received, 50, "{report:#?}");
        assert_eq!(report.messages.count, 50);
        assert_eq!(report.pings.answered, 25);
        assert!(report.errors.is_empty());
    }
}

fn text_frame(payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("test payloads are short");
    assert!(length < 126);
    [&[0x81, length], payload].concat()
}

#[test]
fn large_messages_are_measured_too() {
    for driver in drivers() {
        let server = Server::start(20, upgrade_all, |_, body, clients| {
            assert_eq!(body.len(), 300_000);
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 20, 2);
        config.publish.as_mut().unwrap().payload_bytes = 300_000;
        let report = run(&config);
        assert_eq!(
            report
                .pushes
                .iter()
                .map(|push| push.received)
                .collect::<Vec<_>>(),
            [20, 20]
        );
        assert_eq!(report.messages.payload_bytes, 2 * 20 * 300_000);
    }
}

#[test]
fn publications_of_others_are_measured_from_their_first_arrival() {
    for driver in drivers() {
        let server = Server::start(CROWD, upgrade_all, |_, body, clients| {
            broadcast(clients, "12:00:01");
            broadcast(clients, "12:00:02");
            // A greeting that differs for everybody is no publication.
            for (index, client) in clients.iter_mut().enumerate() {
                client
                    .send(Message::text(format!("you are {index}")))
                    .unwrap();
            }
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, CROWD as u64, 1);
        // The greetings are measured until nothing more comes, which is after the push.
        config.duration = Some(Duration::from_secs(6));
        let report = run(&config);
        let (own, foreign): (Vec<_>, Vec<_>) = report
            .pushes
            .iter()
            .partition(|push| push.origin == Origin::Own);
        assert_eq!(own.len(), 1, "{report:#?}");
        assert_eq!(foreign.len(), 2, "{report:#?}");
        for push in foreign {
            assert_eq!(
                (push.expected, push.received, push.channel.as_deref()),
                (200, 200, None)
            );
            assert_eq!(
                push.times.first_ms,
                Some(0.0),
                "the first arrival is where the clock begins"
            );
            assert_eq!(push.accepted_ms, None);
        }
        assert_eq!(
            report.fanout.as_ref().unwrap().origin,
            Origin::Own,
            "own figures are the better ones"
        );
    }
}

#[test]
fn each_channel_has_its_own_publications_and_subscribers() {
    for driver in drivers() {
        // Clients of either target are told apart by the order of requests in the body alone, so the server
        // delivers to everybody: half of what it sends goes to terminals that did not ask for it.
        let server = Server::start(100, upgrade_all, |_, body, clients| {
            let request: BTreeMap<String, String> = serde_json::from_str(body).unwrap();
            assert!(["a", "b"].contains(&request["channel"].as_str()));
            broadcast(clients, &request["data"]);
            200
        });
        let mut config = server.config(driver, 100, 2);
        let url = |channels: &str| format!("ws://{}/raw?{channels}", server.websocket);
        // The last push goes to the channel that all have: when it is complete, all have read what came before.
        config.targets = vec![
            Target::parse(&url("channel=a&channel=b")).unwrap(),
            Target::parse(&url("channel=b")).unwrap(),
        ];
        config.publish.as_mut().unwrap().body = PublishBody::Api;
        let report = run(&config);
        let mut expected: Vec<_> = report
            .pushes
            .iter()
            .map(|push| (push.channel.clone().unwrap(), push.sequence, push.received))
            .collect();
        expected.sort();
        let own = |channel: &str, sequence, received| (channel.to_owned(), sequence, received);
        assert_eq!(
            expected,
            [
                own("a", 1, 50),
                own("a", 2, 50),
                own("b", 1, 100),
                own("b", 2, 100)
            ]
        );
        assert_eq!(report.messages.unexpected, 100);
        assert_eq!((report.messages.gaps, report.messages.duplicates), (0, 0));
    }
}

#[test]
fn a_refused_publication_is_an_error_and_not_a_loss() {
    for driver in drivers() {
        let server = Server::start(10, upgrade_all, |number, body, clients| {
            if number == 1 {
                return 401;
            }
            broadcast(clients, body);
            200
        });
        let mut config = server.config(driver, 10, 2);
        config.thresholds = ["fanout:last<1h", "fanout:first<1h", "accepted<1h"]
            .map(|expression| Threshold::parse(expression).unwrap())
            .to_vec();
        let report = run(&config);
        for verdict in &report.thresholds {
            assert!(!verdict.passed, "{verdict:?}");
            assert_eq!(verdict.value, Some(f64::INFINITY));
        }
        assert_eq!(
            report.errors,
            BTreeMap::from([("publish_401".to_owned(), 1)])
        );
        assert_eq!(
            (report.pushes[0].ended, report.pushes[0].reach),
            (Ended::Refused, None)
        );
        assert_eq!(
            (report.pushes[1].ended, report.pushes[1].reach),
            (Ended::Complete, Some(1.0))
        );
        assert!(
            report
                .warnings
                .iter()
                .any(|warning| warning.contains("--api-key")),
            "{:?}",
            report.warnings
        );
        assert_eq!(report.messages.gaps, 0);
    }
}

#[test]
fn a_publication_that_was_not_answered_is_not_called_refused() {
    for driver in drivers() {
        let server = Server::start(10, upgrade_all, |number, body, clients| {
            broadcast(clients, body);
            if number == 1 { NO_ANSWER } else { 200 }
        });
        let report = run(&server.config(driver, 10, 2));
        assert_eq!(
            report.errors,
            BTreeMap::from([("publish_unanswered".to_owned(), 1)])
        );
        let seen: Vec<_> = report
            .pushes
            .iter()
            .map(|push| (push.received, push.reach, push.answer))
            .collect();
        let (unanswered, accepted) = (PublishAnswer::Unanswered, PublishAnswer::Accepted);
        assert_eq!(
            seen,
            [
                (10, Some(1.0), Some(unanswered)),
                (10, Some(1.0), Some(accepted))
            ]
        );
    }
}

#[test]
fn a_push_that_met_the_end_of_an_idle_connection_is_made_again() {
    for driver in drivers() {
        let server = Server::start(10, upgrade_all, |number, body, clients| {
            if number == 2 {
                return 408;
            }
            broadcast(clients, body);
            200
        });
        let report = run(&server.config(driver, 10, 2));
        assert_eq!(report.errors, BTreeMap::new());
        let seen: Vec<_> = report
            .pushes
            .iter()
            .map(|push| (push.received, push.answer))
            .collect();
        assert_eq!(seen, [(10, Some(PublishAnswer::Accepted)); 2]);
        assert_eq!(server.requests.lock().unwrap().len(), 3);
    }
}

#[test]
fn the_clock_of_a_push_starts_when_it_is_due() {
    for driver in drivers() {
        let server = Server::start(10, upgrade_all, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        // Nobody answers a thousand a second to the microsecond: what is late is charged for it.
        let report = run(&server.config(driver, 10, 50));
        let first = report.pushes[0].published_s;
        for (push, place) in report.pushes.iter().zip(0..) {
            let due = first + 0.001 * f64::from(place);
            assert!((push.published_s - due).abs() < 1e-6, "{push:?}");
        }
        assert_eq!(report.pushes.len(), 50);
    }
}

#[test]
fn reports_are_written_where_they_are_wanted() {
    let folder = std::env::temp_dir().join(format!("myriad-swarm-reports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let server = Server::start(
        20,
        upgrade_all,
        |_, body: &str, clients: &mut Vec<Client>| {
            broadcast(clients, body);
            200
        },
    );
    let mut config = server.config(drivers()[0], 20, 2);
    config.json = Some(folder.join("report.json").into());
    config.hgrm = Some(folder.join("report.hgrm").into());
    run(&config);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap();
    assert_eq!(json["outcome"], "finished");
    assert_eq!(json["pushes"][1]["received"], 20);
    assert_eq!(json["fanout"]["reach_min"], 1.0);
    assert_eq!(json["setup"]["connected"], 20);
    let hgrm = std::fs::read_to_string(folder.join("report.hgrm")).unwrap();
    assert!(hgrm.contains("Total count    =           40]"), "{hgrm}");

    config.json = Some(folder.join("missing").join("report.json").into());
    let error = myriad_swarm::run(&config, &myriad_swarm::Interrupt::new()).unwrap_err();
    assert!(error.to_string().contains("report.json"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_push_goes_to_all_urls_at_once_and_is_one_push() {
    for driver in drivers() {
        let start = |refused| {
            Server::start(10, upgrade_all, move |number, body, clients| {
                if number == refused {
                    return 503;
                }
                broadcast(clients, body);
                200
            })
        };
        let (one, two) = (start(0), start(2));
        let mut config = one.config(driver, 20, 3);
        config.settle = SHORT_SETTLE;
        let other = two.config(driver, 20, 3);
        config.targets.extend(other.targets);
        let endpoints = &mut config.publish.as_mut().expect("it publishes").endpoints;
        endpoints.extend(other.publish.expect("it publishes").endpoints);
        let url = endpoints[1].url.clone();
        let report = run(&config);
        let seen: Vec<_> = report
            .pushes
            .iter()
            .map(|push| (push.expected, push.received, push.accepted_ms.is_some()))
            .collect();
        assert_eq!(seen, [(20, 20, true), (20, 10, true), (20, 20, true)]);
        assert_eq!(
            report.errors,
            BTreeMap::from([("publish_503".to_owned(), 1)])
        );
        assert!(
            report
                .warnings
                .iter()
                .any(|w| w.contains(&url) && w.contains("503")),
            "{:?}",
            report.warnings
        );
        assert_eq!(report.settings.publish_urls.len(), 2);
    }
}

#[test]
fn an_output_that_cannot_be_opened_ends_the_run_before_it_begins() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let mut config = myriad_swarm::Config::new(vec![Target::parse(&url).unwrap()], 1);
    config.hgrm = Some(std::path::PathBuf::from("/no/such/folder/x.hgrm").into());
    let error = myriad_swarm::run(&config, &myriad_swarm::Interrupt::new()).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_publish_hook_gets_the_pushes_and_no_other_request() {
    for driver in drivers() {
        let server = Server::start(5, upgrade_all, |_, body, clients| {
            broadcast(clients, body);
            200
        });
        run(&server.config(driver, 5, 2));
        let requests = server.requests.lock().unwrap();
        assert_eq!(requests[..], ["POST /publish HTTP/1.1"; 2]);
    }
}

#[test]
fn spread_pushes_to_several_channels_do_not_wait_for_each_others_answers() {
    const CHANNELS: usize = 8;
    const ROUNDS: u32 = 2;
    for driver in drivers() {
        let server = Server::start(1, upgrade_all, |_, _, _| 200);
        let hook = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/publish", hook.local_addr().unwrap());
        // Of each round nobody is answered before all have asked.
        std::thread::spawn(move || {
            let mut streams: Vec<_> = (0..CHANNELS).map(|_| hook.accept().unwrap().0).collect();
            for _ in 0..ROUNDS {
                for stream in &mut streams {
                    let head = read_head(stream).unwrap();
                    read_body(stream, &head);
                }
                for stream in &mut streams {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(answer).unwrap();
                }
            }
        });
        let mut config = server.config(driver, 1, ROUNDS);
        // Nobody gets the pushes: what counts is who took them.
        config.settle = SHORT_SETTLE;
        let channels: Vec<_> = (0..CHANNELS).map(|n| format!("channel=c{n}")).collect();
        let target = format!("ws://{}/raw?{}", server.websocket, channels.join("&"));
        config.targets = vec![Target::parse(&target).unwrap()];
        let publish = config.publish.as_mut().unwrap();
        publish.body = PublishBody::Api;
        publish.is_spread = true;
        publish.endpoints = vec![Endpoint::parse(&url).unwrap()];
        let report = run(&config);
        let answers: Vec<_> = report.pushes.iter().map(|push| push.answer).collect();
        assert_eq!(answers, [Some(PublishAnswer::Accepted); 2 * CHANNELS]);
    }
}

#[test]
fn a_run_too_short_for_one_push_is_refused() {
    let server = Server::start(1, upgrade_all, |_, _, _| 200);
    for pushes in [None, Some(3)] {
        let mut config = server.config(drivers()[0], 1, 1);
        let publish = config.publish.as_mut().unwrap();
        publish.pushes = pushes;
        publish.warmup = Duration::from_secs(2);
        config.duration = Some(Duration::from_secs(1));
        let error = myriad_swarm::run(&config, &myriad_swarm::Interrupt::new()).unwrap_err();
        assert!(error.to_string().contains("--warmup"), "{error}");
    }
}

#[test]
fn a_server_that_dies_in_the_middle_is_said_first() {
    for driver in drivers() {
        let server = Server::start(20, upgrade_all, |number, body, clients| {
            broadcast(clients, body);
            if number == 2 {
                // Answered only when the crowd has seen all of it, because a complete push ends the run.
                for client in &mut *clients {
                    client.get_mut().shutdown(Shutdown::Write).unwrap();
                    while client.read().is_ok() {}
                }
                clients.clear();
            }
            200
        });
        let mut config = server.config(driver, 20, 2);
        config.thresholds = ["lost==0", "missed==0", "errors==0"]
            .map(|condition| Threshold::parse(condition).unwrap())
            .into();
        let report = run(&config);
        assert_eq!(report.churn.lost, 20);
        let sentence = report.went_wrong.expect("something did");
        assert!(
            sentence.contains("all 20 connections were lost"),
            "{sentence}"
        );
        let passed: Vec<bool> = report.thresholds.iter().map(|v| v.passed).collect();
        assert_eq!(passed, [false, true, false], "{:?}", report.thresholds);
    }
}

#[test]
fn what_was_expected_and_did_not_come_is_missed_and_no_gap() {
    for driver in drivers() {
        let server = Server::start(20, upgrade_all, |_, body, clients| {
            broadcast(&mut clients[..15], body);
            200
        });
        let mut config = server.config(driver, 20, 1);
        config.settle = SHORT_SETTLE;
        config.thresholds = vec![Threshold::parse("missed<=4").unwrap()];
        let report = run(&config);
        assert_eq!((report.messages.missed, report.messages.gaps), (5, 0));
        assert_eq!(report.pushes[0].missed, 5);
        assert_eq!(report.outcome, Outcome::ThresholdsFailed);
        let sentence = report.went_wrong.expect("something did");
        assert_eq!(
            sentence,
            "Not everything went well: 5 deliveries are missing."
        );
    }
}

#[test]
fn a_publish_url_where_nobody_listens_is_no_refusal_of_the_server() {
    for driver in drivers() {
        let server = Server::start(3, upgrade_all, |_, _, _| 200);
        let mut config = server.config(driver, 3, 1);
        let nobody = ReservedPort::take().unwrap();
        let url = format!("http://{}/", nobody.address());
        config.publish.as_mut().unwrap().endpoints =
            vec![myriad_swarm::Endpoint::parse(&url).unwrap()];
        config.thresholds = vec![Threshold::parse("lost==0").unwrap()];
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::LoadFailed, "no push was taken");
        assert_eq!(report.pushes[0].answer, Some(PublishAnswer::Unreached));
        assert_eq!(report.pushes[0].ended, Ended::Unreached);
        assert!(
            report.errors.contains_key("publish_unreached"),
            "{:?}",
            report.errors
        );
        let sentence = report.went_wrong.expect("something did");
        assert_eq!(sentence, "Not everything went well: 1 of 1 push failed.");
        let said = report.warnings.join("\n");
        assert!(
            said.contains("nobody listens on") && !said.contains("refused"),
            "{said}"
        );
    }
}

#[test]
fn a_publish_url_whose_answer_never_ends_is_read_for_a_bounded_part_of_it() {
    // More than socket buffers hold, and less than would come in a second.
    const BYTES_MAX: usize = 64 << 20;
    for driver in drivers() {
        let server = Server::start(3, upgrade_all, |_, _, _| 200);
        let hook = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", hook.local_addr().unwrap());
        let answering = std::thread::spawn(move || {
            let mut most = 0;
            for _ in 0..2 {
                let (mut stream, _) = hook.accept().unwrap();
                let head = read_head(&mut stream).unwrap();
                read_body(&mut stream, &head);
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                let mut written = 0;
                while written < BYTES_MAX && stream.write_all(&[b'x'; 1 << 16]).is_ok() {
                    written += 1 << 16;
                }
                most = written.max(most);
            }
            most
        });
        let mut config = server.config(driver, 3, 2);
        config.settle = SHORT_SETTLE;
        config.publish.as_mut().unwrap().endpoints = vec![Endpoint::parse(&url).unwrap()];
        let report = run(&config);
        assert!(answering.join().unwrap() < BYTES_MAX);
        for push in &report.pushes {
            assert_eq!(push.answer, Some(PublishAnswer::Accepted), "{report:#?}");
        }
        assert_eq!(report.errors, BTreeMap::new());
    }
}
