//! Connections that drop, all at once or one by one, and clients that come back; clients that stall or vanish.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Admission, Client, Server, drivers, run};
use myriad_swarm::{Config, Driver, Incident, Outcome, Report, Threshold};
use std::net::Shutdown;
use std::time::Duration;
use tungstenite::Message;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;

const CROWD: u64 = 60;
const HALF: u64 = CROWD / 2;

/// Before an attempt each client waits for a random part of this.
const LONG_BACKOFF: Duration = Duration::from_millis(1500);

/// Gives the message to whoever is still there.
fn serve(clients: &mut Vec<Client>, text: &str) -> u16 {
    clients.retain_mut(|client| client.send(Message::text(text)).is_ok());
    200
}

/// A push every 5 ms, and a storm that drops half of the crowd after a tenth of a second.
fn config(server: &Server, driver: Driver) -> Config {
    let mut config = server.config(driver, CROWD, 1);
    let publish = config.publish.as_mut().unwrap();
    publish.pushes = None;
    publish.every = Duration::from_millis(5);
    config.duration = Some(Duration::from_secs(5));
    config.incidents = vec![Incident::storm("50%@100ms").unwrap()];
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_millis(100));
    config
}

fn stormy(driver: Driver, admit: fn(usize) -> Admission, change: impl Fn(&mut Config)) -> Report {
    let server = Server::start(1, admit, |_, body, clients| serve(clients, body));
    let mut config = config(&server, driver);
    change(&mut config);
    run(&config)
}

#[test]
fn all_who_dropped_come_back_and_what_they_missed_is_no_gap() {
    for driver in drivers() {
        for close in [myriad_swarm::Ending::Reset, myriad_swarm::Ending::Orderly] {
            let report = stormy(
                driver,
                |_| Admission::Upgrade,
                |config| {
                    config.ending = close;
                    // Somebody is away for a while.
                    config.comeback.backoff = (LONG_BACKOFF, LONG_BACKOFF);
                    let thresholds = [
                        "storm:back<1m",
                        "comeback:missing==0",
                        "reach==1",
                        "lost==0",
                    ];
                    config.thresholds = thresholds
                        .map(|text| Threshold::parse(text).unwrap())
                        .to_vec();
                },
            );
            assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
            let comeback = report.comeback.as_ref().unwrap();
            assert_eq!((comeback.gone, comeback.back), (HALF, HALF));
            assert_eq!((comeback.attempts, comeback.given_up), (HALF, 0));
            assert!(
                comeback.errors.is_empty() && comeback.missed > 0,
                "{comeback:?}"
            );
            let [storm] = &comeback.storms[..] else {
                panic!("{comeback:?}");
            };
            assert_eq!((storm.dropped, storm.back), (HALF, HALF));
            // The histogram of times has three digits.
            let slowest = comeback.slowest_ms.map(|slowest| slowest * 0.99);
            assert!(storm.all_back_ms >= slowest, "{comeback:?}");
            assert_eq!((report.messages.gaps, report.messages.duplicates), (0, 0));
            for push in &report.pushes {
                assert_eq!(push.received, push.expected, "{push:?}");
            }
            assert!(report.pushes.iter().any(|push| push.expected < CROWD));
            assert_eq!(report.setup.connected, CROWD);
            assert_eq!(report.crowd.open_at_end, CROWD);
            assert_eq!(report.went_wrong, None);
        }
    }
}

#[test]
fn attempts_that_a_server_refuses_are_counted_apart_and_repeated() {
    for driver in drivers() {
        let admit = |number| match number {
            60..70 => Admission::Refuse(503),
            _ => Admission::Upgrade,
        };
        let report = stormy(driver, admit, |_| ());
        let comeback = report.comeback.as_ref().unwrap();
        assert_eq!((comeback.back, comeback.attempts), (HALF, HALF + 10));
        assert_eq!(comeback.errors.get("handshake_503"), Some(&10));
        assert_eq!((report.setup.given_up, report.churn.lost), (0, 0));
    }
}

#[test]
fn who_gives_up_fails_the_run_where_that_is_asked() {
    for driver in drivers() {
        let admit = |number| match number {
            0..60 => Admission::Upgrade,
            _ => Admission::Refuse(503),
        };
        let report = stormy(driver, admit, |config| {
            config.comeback.attempts = Some(3);
            config.thresholds = vec![Threshold::parse("storm:back<1m").unwrap()];
        });
        assert_eq!(report.outcome, Outcome::ThresholdsFailed);
        let comeback = report.comeback.as_ref().unwrap();
        assert_eq!((comeback.back, comeback.given_up), (0, HALF));
        assert_eq!(comeback.attempts, 3 * HALF);
        assert_eq!(comeback.storms[0].all_back_ms, Some(f64::INFINITY));
        let said = report.went_wrong.unwrap();
        assert!(
            said.contains("30 of 30 clients did not come back"),
            "{said}"
        );
        assert_eq!(report.crowd.open_at_end, HALF);
    }
}

#[test]
fn a_client_that_the_server_ended_comes_back_where_that_is_asked() {
    for driver in drivers() {
        for is_asked in [true, false] {
            let server = Server::start(
                1,
                |_| Admission::Upgrade,
                |number, body, clients| {
                    let status = serve(clients, body);
                    if number == 3 {
                        clients[0].get_ref().shutdown(Shutdown::Both).unwrap();
                        clients.remove(0);
                    }
                    status
                },
            );
            let mut config = config(&server, driver);
            config.incidents.clear();
            config.comeback.when_lost = is_asked;
            let report = run(&config);
            let back = report.comeback.as_ref().map(|comeback| comeback.back);
            assert_eq!((report.churn.lost, back), (1, is_asked.then_some(1)));
            assert_eq!(report.crowd.open_at_end, CROWD - u64::from(!is_asked));
            assert_eq!(report.messages.gaps, 0);
        }
    }
}

/// Twenty clients, some of whom stall. The script is called before each push.
fn stalled(driver: Driver, stall: &str, script: fn(u32, &mut Vec<Client>)) -> Report {
    let server = Server::start(
        0,
        |_| Admission::Upgrade,
        move |number, body, clients| {
            script(number, clients);
            serve(clients, body)
        },
    );
    let mut config = server.config(driver, 20, 1);
    let publish = config.publish.as_mut().unwrap();
    publish.pushes = None;
    publish.every = Duration::from_millis(20);
    config.duration = Some(Duration::from_secs(5));
    config.incidents = vec![Incident::stall(stall).unwrap()];
    config.thresholds = ["reach==1", "missed==0", "gaps==0", "lost==0", "errors==0"]
        .map(|text| Threshold::parse(text).unwrap())
        .to_vec();
    run(&config)
}

#[test]
fn who_stalls_is_no_part_of_the_reach_and_reads_all_of_it_later() {
    for driver in drivers() {
        let report = stalled(driver, "25%@300ms..2s", |_, _| ());
        assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
        let stall = report.stall.as_ref().unwrap();
        assert_eq!((stall.stalled, stall.resumed, stall.ended), (5, 5, 0));
        assert!(stall.expected > 0, "{stall:?}");
        assert_eq!((stall.received, stall.missing), (stall.expected, 0));
        assert!(report.pushes.iter().any(|push| push.expected == 15));
        assert_eq!(report.pushes.last().unwrap().expected, 20);
        assert_eq!(report.crowd.open_at_end, 20);
        assert_eq!(report.went_wrong, None);
    }
}

#[test]
fn how_a_server_ends_those_that_stall_is_counted_apart() {
    for driver in drivers() {
        let report = stalled(driver, "20", |number, clients| {
            // All of them have stalled long ago, and the server ends each: half with a close frame, half without.
            if number == 50 {
                let half = clients.split_off(10);
                for mut client in clients.drain(..) {
                    let frame = CloseFrame {
                        code: CloseCode::from(3008),
                        reason: "slow".into(),
                    };
                    client.close(Some(frame)).unwrap();
                    let _ = client.flush();
                    client.get_ref().shutdown(Shutdown::Write).unwrap();
                }
                for client in half {
                    client.get_ref().shutdown(Shutdown::Write).unwrap();
                }
            }
        });
        let stall = report.stall.as_ref().unwrap();
        assert_eq!((stall.stalled, stall.resumed), (20, 0), "{report:#?}");
        assert_eq!(stall.ended, 20, "{stall:?}");
        assert_eq!(stall.ends.get("close_3008"), Some(&10), "{stall:?}");
        assert_eq!(stall.stalling, 0);
        assert_eq!(report.churn.lost, 0);
        assert!(report.closes.is_empty() && report.errors.is_empty());
    }
}

#[test]
fn who_vanishes_is_missed_by_nobody_but_its_server() {
    for driver in drivers() {
        let server = Server::start(
            0,
            |_| Admission::Upgrade,
            |number, body, clients| {
                // A server that gives up on those that do not answer resets them: to the others it makes no difference here.
                if number == 50 {
                    for client in clients.drain(..) {
                        let socket = socket2::SockRef::from(client.get_ref());
                        socket.set_linger(Some(Duration::ZERO)).unwrap();
                    }
                }
                serve(clients, body)
            },
        );
        let mut config = server.config(driver, 10, 1);
        let publish = config.publish.as_mut().unwrap();
        publish.pushes = None;
        publish.every = Duration::from_millis(20);
        config.duration = Some(Duration::from_secs(4));
        config.incidents = vec![Incident::vanish("100%").unwrap()];
        let report = run(&config);
        let vanish = report.vanish.as_ref().unwrap();
        assert_eq!((vanish.vanished, vanish.ends_seen), (10, 10), "{report:#?}");
        assert!(vanish.ends_slowest_ms > Some(0.0));
        assert_eq!(vanish.held_by_server, None);
        assert_eq!((report.churn.lost, report.messages.missed), (0, 0));
        assert!(report.errors.is_empty());
    }
}
