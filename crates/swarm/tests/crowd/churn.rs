//! Terminals that leave and are replaced: nobody's loss, and no gap.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Admission, Client, Server, drivers, run};
use myriad_swarm::{Driver, Ending, Outcome, Report, Threshold};
use tungstenite::{Error, Message};

const CROWD: usize = 60;
const PUSHES: u32 = 150;

/// Gives whoever is still there the message, answers close frames, and lets those go that are gone.
fn serve(clients: &mut Vec<Client>, text: &str) {
    clients.retain_mut(|client| {
        client.get_ref().set_nonblocking(true).unwrap();
        loop {
            match client.read() {
                Ok(Message::Close(_)) => {
                    let _ = client.flush();
                    return false;
                }
                Ok(_) => {}
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        client.get_ref().set_nonblocking(false).unwrap();
        client.send(Message::text(text)).is_ok()
    });
}

/// Half of the crowd a second leaves, while a push is made every 10 ms.
fn churning(driver: Driver, ending: Ending, channels: &str) -> Report {
    let server = Server::start(
        1,
        |_| Admission::Upgrade,
        |_, body, clients| {
            serve(clients, body);
            200
        },
    );
    let mut config = server.config(driver, CROWD as u64, PUSHES);
    config.targets = vec![
        myriad_swarm::Target::parse(&format!("ws://{}/{channels}", server.websocket)).unwrap(),
    ];
    config.publish.as_mut().unwrap().every = std::time::Duration::from_millis(10);
    config.churn_per_s = Some(0.5);
    config.ending = ending;
    config.retries = 2;
    config.thresholds = vec![
        Threshold::parse("lost==0").unwrap(),
        Threshold::parse("churned>0").unwrap(),
        Threshold::parse("reach==1").unwrap(),
        Threshold::parse("gaps==0").unwrap(),
    ];
    run(&config)
}

#[test]
fn who_leaves_is_replaced_and_every_push_reaches_everybody_else() {
    for driver in drivers() {
        for ending in [Ending::Reset, Ending::Orderly] {
            let report = churning(driver, ending, "raw?channel=x");
            assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
            let churn = &report.churn;
            assert_eq!((churn.lost, churn.given_up), (0, 0));
            assert!(churn.churned > 0 && churn.reconnected > 0, "{churn:?}");
            assert!(churn.reconnected <= churn.churned);
            assert!(report.errors.is_empty(), "{:?}", report.errors);
            assert!(report.closes.is_empty(), "{:?}", report.closes);
            // The crowd's own figures are those of its beginning.
            assert_eq!(report.setup.connected, CROWD as u64);
            let on_the_way = churn.churned - churn.reconnected;
            assert_eq!(report.crowd.open_at_end, CROWD as u64 - on_the_way);
            for push in &report.pushes {
                assert_eq!(push.received, push.expected, "{push:?}");
                assert!(push.expected + push.churned <= CROWD as u64, "{push:?}");
            }
            let messages = &report.messages;
            assert_eq!(
                (messages.gaps, messages.duplicates, messages.unexpected),
                (0, 0, 0)
            );
            let received: u64 = report.pushes.iter().map(|push| push.received).sum();
            assert_eq!(messages.count, received + messages.replayed + messages.late);
        }
    }
}

#[test]
fn a_server_that_takes_no_replacement_is_told_apart_from_one_that_loses_connections() {
    for driver in drivers() {
        let admit = |number| {
            if number < CROWD {
                Admission::Upgrade
            } else {
                Admission::Refuse(503)
            }
        };
        let server = Server::start(1, admit, |_, body, clients| {
            serve(clients, body);
            200
        });
        let mut config = server.config(driver, CROWD as u64, PUSHES);
        config.publish.as_mut().unwrap().every = std::time::Duration::from_millis(10);
        config.churn_per_s = Some(0.5);
        let report = run(&config);
        let churn = &report.churn;
        assert!(churn.churned > 0, "{churn:?}");
        assert_eq!((churn.reconnected, churn.lost), (0, 0));
        assert_eq!(report.errors.get("handshake_503"), Some(&churn.given_up));
        assert_eq!(report.setup.given_up, 0, "the crowd was whole at first");
        assert!(
            report
                .warnings
                .iter()
                .any(|warning| warning.contains("could not be replaced")),
            "{:?}",
            report.warnings
        );
    }
}
