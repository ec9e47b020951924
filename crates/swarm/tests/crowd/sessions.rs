//! Terminals with sessions of the Centrifuge protocol, against servers that keep it and servers that do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Admission, Client, Server, drivers, run};
use myriad_swarm::{Config, Driver, Outcome, Protocol, Report};
use myriad_wire::centrifuge::{
    ConnectResult, Decoder, Encoding, FrameWriter, PublicationFields, Push, Request,
    SubscribeResult,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tungstenite::protocol::CloseFrame;
use tungstenite::{Error, Message};

/// The answer to `connect` and to the `subscribe` of the one channel, in an epoch at offset 7.
const WELCOME: &str = concat!(
    r#"{"id":1,"connect":{"client":"c","version":"test","ping":25,"pong":true}}"#,
    "\n",
    r#"{"id":2,"subscribe":{"recoverable":true,"positioned":true,"epoch":"first","offset":7}}"#
);

/// What a client says.
fn read(client: &mut Client) -> String {
    match client.read() {
        Ok(message) => message.into_text().unwrap().as_str().to_owned(),
        Err(error) => format!("{error}"),
    }
}

fn say(client: &mut Client, text: &str) {
    // A client that has given up hears nothing.
    let _ = client.send(Message::text(text));
}

fn welcome(client: &mut Client) {
    let commands = read(client);
    let mut lines = commands.lines();
    assert_eq!(
        lines.next(),
        Some(r#"{"id":1,"connect":{"name":"myriad-swarm"}}"#)
    );
    assert_eq!(
        lines.next(),
        Some(r#"{"id":2,"subscribe":{"channel":"x"}}"#)
    );
    assert_eq!(lines.next(), None);
    say(client, WELCOME);
}

/// A push of one publication to the channel.
fn publication(offset: u64, data: &str) -> String {
    format!(r#"{{"push":{{"channel":"x","pub":{{"data":"{data}","offset":{offset}}}}}}}"#)
}

fn config(server: &Server, driver: Driver, connections: u64, pushes: u32) -> Config {
    let mut config = server.config(driver, connections, pushes);
    config.protocol = Protocol::CentrifugeJson;
    config
}

/// A run of three terminals that are greeted like this, and get one push as `script` sends it.
fn greeted(
    driver: Driver,
    greet: fn(&mut Client),
    script: impl FnMut(&str, &mut Client) + Send + 'static,
) -> Report {
    run(&greeting(driver, greet, script))
}

/// The same before it is run.
fn greeting(
    driver: Driver,
    greet: fn(&mut Client),
    mut script: impl FnMut(&str, &mut Client) + Send + 'static,
) -> Config {
    let server = Server::start(
        3,
        move |_| Admission::Greet(greet),
        move |_, body, clients| {
            for client in clients {
                script(body, client);
            }
            200
        },
    );
    config(&server, driver, 3, 1)
}

/// A run of three terminals of which none gets a session.
fn refused(driver: Driver, greet: fn(&mut Client)) -> Report {
    refused_within(driver, greet, Duration::from_secs(60))
}

/// The same where they wait for so long.
fn refused_within(driver: Driver, greet: fn(&mut Client), timeout: Duration) -> Report {
    let server = Server::start(1, move |_| Admission::Greet(greet), |_, _, _| 200);
    let mut config = config(&server, driver, 3, 1);
    config.handshake_timeout = timeout;
    let report = run(&config);
    assert_eq!(report.outcome, Outcome::NobodyConnected);
    assert_eq!(report.setup.connected, 0);
    report
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let pairs = pairs.iter();
    pairs
        .map(|&(kind, count)| (kind.to_owned(), count))
        .collect()
}

#[test]
fn several_messages_in_one_frame_are_all_heard() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |body, client| {
            let batch = [
                publication(8, body),
                "{}".to_owned(),
                publication(9, "somebody else's"),
                r#"{"push":{"channel":"x","join":{"info":{"user":"u","client":"d"}}}}"#.to_owned(),
            ];
            say(client, &batch.join("\n"));
            assert_eq!(read(client), "{}", "the ping is answered");
        });
        assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
        assert_eq!(report.pushes[0].received, 3);
        assert_eq!((report.messages.count, report.pings.answered), (6, 3));
        let session = report.session.unwrap();
        assert_eq!((session.gaps, session.duplicates), (0, 0));
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

#[test]
fn pings_are_answered_only_where_that_was_agreed() {
    fn reticent(client: &mut Client) {
        read(client);
        say(client, &WELCOME.replace(r#","pong":true"#, ""));
    }
    for driver in drivers() {
        let report = greeted(driver, reticent, |body, client| {
            say(client, "{}");
            say(client, &publication(8, body));
        });
        assert_eq!((report.pings.answered, report.messages.count), (0, 3));
    }
}

#[test]
fn the_same_in_protobuf() {
    fn welcome(client: &mut Client) {
        let message = client.read().unwrap().into_data();
        let commands: Vec<_> = Decoder::new(Encoding::Protobuf, &message)
            .map(Result::unwrap)
            .collect();
        assert!(
            matches!(&commands[0].request, Request::Connect(connect) if connect.token == "secret")
        );
        assert!(
            matches!(&commands[1].request, Request::Subscribe(subscribe) if subscribe.channel == "x")
        );
        let mut answer = Vec::new();
        let mut writer = FrameWriter::new(Encoding::Protobuf, &mut answer);
        let connected = ConnectResult {
            client: "c",
            version: "test",
            ping: 25,
            pong: true,
            ..ConnectResult::default()
        };
        let subs: [(&str, (SubscribeResult<'_>, std::iter::Empty<_>)); 0] = [];
        writer.connect(commands[0].id, &connected, subs.into_iter());
        let subscribed = SubscribeResult {
            recoverable: true,
            positioned: true,
            epoch: "first",
            offset: 7,
            ..SubscribeResult::default()
        };
        writer.subscribe(commands[1].id, &subscribed, std::iter::empty());
        client.send(Message::binary(answer)).unwrap();
    }
    for driver in drivers() {
        let server = Server::start(
            3,
            |_| Admission::Greet(welcome),
            |_, body, clients| {
                let mut message = Vec::new();
                let mut writer = FrameWriter::new(Encoding::Protobuf, &mut message);
                let mut fields = PublicationFields {
                    data: body.as_bytes(),
                    offset: 8,
                    ..PublicationFields::default()
                };
                writer.push("x", &Push::Publication(fields));
                fields.offset = 10;
                fields.data = b"\xff";
                writer.push("x", &Push::Publication(fields));
                writer.ping();
                for client in clients {
                    client.send(Message::binary(message.clone())).unwrap();
                    assert_eq!(client.read().unwrap().into_data()[..], [0], "a pong");
                }
                200
            },
        );
        let mut config = config(&server, driver, 3, 1);
        config.protocol = Protocol::CentrifugeProtobuf;
        config.tokens = vec!["secret".to_owned()];
        let report = run(&config);
        assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
        assert_eq!(report.pushes[0].received, 3);
        assert_eq!(report.session.unwrap().gaps, 3, "9 is missing at each");
    }
}

#[test]
fn offsets_tell_gaps_and_repeats_of_anybodys_publications() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |body, client| {
            for (offset, data) in [(8, "a"), (8, "a"), (12, "d"), (10, "b"), (13, body)] {
                say(client, &publication(offset, data));
            }
        });
        let session = report.session.unwrap();
        assert_eq!(
            (session.gaps, session.duplicates, session.overtaken),
            (6, 3, 3)
        );
        assert_eq!(report.messages.gaps, 0, "by its stamp nothing is missing");
        let sentence = report.went_wrong.unwrap();
        assert!(
            sentence.contains("9 offsets missing or repeated"),
            "{sentence}"
        );
    }
}

#[test]
fn publications_of_other_channels_are_unexpected() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |body, client| {
            say(client, &publication(1, "a").replace("\"x\"", "\"y\""));
            say(client, &publication(8, body));
        });
        assert_eq!(report.messages.unexpected, 3);
        assert_eq!(report.session.unwrap().gaps, 0);
    }
}

/// Lets those go that are gone, and gives the others a publication. Returns those that are still there.
fn publish_to_the_present(clients: &mut Vec<Client>, offset: u64, body: &str) {
    clients.retain_mut(|client| {
        client.get_ref().set_nonblocking(true).unwrap();
        let is_there =
            matches!(client.read(), Err(Error::Io(e)) if e.kind() == std::io::ErrorKind::WouldBlock);
        client.get_ref().set_nonblocking(false).unwrap();
        is_there && client.send(Message::text(publication(offset, body))).is_ok()
    });
}

/// Half of a crowd a second leaves and comes back; the server answers its recovery like this.
fn churning(driver: Driver, greet: fn(&mut Client)) -> Report {
    let server = Server::start(
        1,
        move |_| Admission::Greet(greet),
        |number, body, clients| {
            publish_to_the_present(clients, 7 + u64::from(number), body);
            200
        },
    );
    let mut config = config(&server, driver, 30, 150);
    config.publish.as_mut().unwrap().every = Duration::from_millis(10);
    config.churn_per_s = Some(0.5);
    config.retries = 2;
    run(&config)
}

/// The offset that a client recovers from, if it does.
fn recovers_from(commands: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(commands.lines().nth(1)?).ok()?;
    let subscribe = &value["subscribe"];
    assert_eq!(
        subscribe["recover"].as_bool(),
        subscribe["epoch"].is_string().then_some(true)
    );
    subscribe["offset"].as_u64()
}

#[test]
fn who_comes_back_asks_for_what_it_missed() {
    /// What was published meanwhile is not known here: all that comes after is a gap, which is what the test wants to see.
    fn recover(client: &mut Client) {
        let commands = read(client);
        match recovers_from(&commands) {
            None => say(client, WELCOME),
            Some(offset) => {
                let subscribe = format!(
                    r#"{{"recoverable":true,"positioned":true,"epoch":"first","offset":{offset},"recovered":true,"was_recovering":true,"publications":[{{"data":1,"offset":{}}},{{"data":2,"offset":{}}}]}}"#,
                    offset + 1,
                    offset + 2
                );
                say(
                    client,
                    &format!(
                        "{}\n{{\"id\":2,\"subscribe\":{subscribe}}}",
                        WELCOME.lines().next().unwrap()
                    ),
                );
            }
        }
    }
    for driver in drivers() {
        let report = churning(driver, recover);
        let session = report.session.unwrap();
        assert!(session.recovered > 0, "{session:?}");
        assert_eq!(session.unrecovered, 0);
        assert_eq!(session.recovered_publications, 2 * session.recovered);
        assert_eq!(report.churn.lost, 0);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }
}

#[test]
fn what_cannot_be_recovered_is_told_and_is_no_gap() {
    fn forget(client: &mut Client) {
        let commands = read(client);
        let welcome = match recovers_from(&commands) {
            None => WELCOME.to_owned(),
            // By the position that it gives, nothing has been published yet that this client could miss.
            Some(_) => WELCOME
                .replace(r#""offset":7"#, r#""was_recovering":true"#)
                .replace("positioned", "p"),
        };
        say(
            client,
            &welcome.replace(r#""epoch":"first""#, r#""epoch":"""#),
        );
    }
    fn remember_once(client: &mut Client) {
        let commands = read(client);
        match recovers_from(&commands) {
            None => say(client, WELCOME),
            Some(_) => say(
                client,
                &WELCOME.replace(r#""epoch":"first","offset":7"#, r#""was_recovering":true"#),
            ),
        }
    }
    for driver in drivers() {
        let report = churning(driver, remember_once);
        let session = report.session.unwrap();
        assert!(session.unrecovered > 0, "{session:?}");
        assert_eq!(
            (session.recovered, session.gaps, session.duplicates),
            (0, 0, 0)
        );
        assert!(report.went_wrong.unwrap().contains("not recovered"));
        // Who has no position does not ask for anything.
        let report = churning(driver, forget);
        let session = report.session.unwrap();
        assert_eq!((session.recovered, session.unrecovered), (0, 0));
        assert!(report.churn.reconnected > 0);
    }
}

#[test]
fn a_subscription_that_the_server_ends_for_now_begins_again_where_it_was() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |body, client| {
            say(client, &publication(8, "a"));
            say(
                client,
                r#"{"push":{"channel":"x","unsubscribe":{"code":2500,"reason":"insufficient state"}}}"#,
            );
            assert_eq!(
                read(client),
                r#"{"id":2,"subscribe":{"channel":"x","recover":true,"epoch":"first","offset":8}}"#
            );
            say(
                client,
                &format!(
                    r#"{{"id":2,"subscribe":{{"recoverable":true,"positioned":true,"epoch":"first","offset":8,"recovered":true,"publications":[{{"data":"{body}","offset":9}}]}}}}"#
                ),
            );
        });
        assert_eq!(report.pushes[0].received, 3);
        assert_eq!(report.session.unwrap().recovered, 3);
        assert_eq!(report.errors, counts(&[("unsubscribed_2500", 3)]));
        assert_eq!(
            report.server_said["unsubscribed_2500"],
            "\"2500 insufficient state: x\""
        );
    }
}

#[test]
fn a_subscription_that_the_server_ends_for_good_stays_ended() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |body, client| {
            say(
                client,
                r#"{"push":{"channel":"x","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}"#,
            );
            say(client, "{}");
            assert_eq!(read(client), "{}", "nothing but a pong");
            say(client, &publication(8, body));
        });
        assert_eq!(report.errors, counts(&[("unsubscribed_2000", 3)]));
    }
}

/// How a client is greeted, the kind of error that this is, and what is shown of it.
type Case = (fn(&mut Client), &'static str, &'static str);

#[test]
fn every_refusal_has_its_kind_and_its_words() {
    fn no_connect(client: &mut Client) {
        read(client);
        say(
            client,
            r#"{"id":1,"error":{"code":101,"message":"unauthorized"}}"#,
        );
    }
    fn no_channel(client: &mut Client) {
        read(client);
        let connect = WELCOME.lines().next().unwrap();
        say(client, connect);
        say(
            client,
            r#"{"id":2,"error":{"code":4294967295,"message":"\u001b[1m odd"}}"#,
        );
    }
    fn no_client(client: &mut Client) {
        read(client);
        let _ = client.close(Some(CloseFrame {
            code: 3500.into(),
            reason: "invalid token".into(),
        }));
    }
    fn disconnect(client: &mut Client) {
        read(client);
        say(
            client,
            r#"{"push":{"disconnect":{"code":3501,"reason":"bad request"}}}"#,
        );
    }
    fn end(client: &mut Client) {
        read(client);
        client.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    }
    let cases: [Case; 5] = [
        (no_connect, "connect_error_101", "\"101 unauthorized\""),
        (
            no_channel,
            "subscribe_error_65535",
            "\"4294967295 \\u{1b}[1m odd: x\"",
        ),
        (no_client, "session_closed_3500", "\"invalid token\""),
        (disconnect, "session_closed_3501", "\"bad request\""),
        (end, "session_ended", ""),
    ];
    for driver in drivers() {
        for (greet, kind, said) in cases {
            let report = refused(driver, greet);
            assert_eq!(report.errors, counts(&[(kind, 3)]));
            let words = report.server_said.get(kind);
            assert_eq!(words.map_or("", String::as_str), said, "{kind}");
            // A server that answers is a Centrifuge endpoint.
            let sentence = report.went_wrong.unwrap();
            let is_asked = sentence.ends_with("is this a Centrifuge endpoint?");
            let code = kind.rsplit('_').next().unwrap_or_default();
            let is_told = sentence.ends_with(&format!(" {code}."));
            assert_eq!(
                (is_asked, is_told),
                (said.is_empty(), !said.is_empty()),
                "{sentence}"
            );
        }
    }
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    for driver in drivers() {
        // Long enough for the upgrade.
        let timeout = Duration::from_secs(3);
        let report = refused_within(driver, |client| drop(read(client)), timeout);
        assert_eq!(report.errors, counts(&[("session_timeout", 3)]));
        // Neither does half an answer count.
        let half = |client: &mut Client| {
            read(client);
            say(client, WELCOME.lines().next().unwrap());
        };
        let report = refused_within(driver, half, timeout);
        assert_eq!(report.errors, counts(&[("session_timeout", 3)]));
    }
}

#[test]
fn what_is_no_message_ends_the_terminal() {
    for driver in drivers() {
        for garbage in [
            "garbage",
            "{\"id\":1",
            "",
            "{}\n\n{}",
            r#"{"id":1,"publish":{}}"#,
        ] {
            let report = greeted(driver, welcome, move |body, client| {
                say(client, garbage);
                say(client, &publication(8, body));
            });
            // An unknown reply is counted and nothing more.
            let is_reply = garbage.contains("publish");
            let kind = if is_reply {
                "reply_unknown"
            } else {
                "session_invalid"
            };
            assert_eq!(report.errors, counts(&[(kind, 3)]), "{garbage}");
            assert_eq!(report.churn.lost, if is_reply { 0 } else { 3 }, "{garbage}");
            assert!(report.server_said.contains_key(kind));
        }
        let report = refused(driver, |client| {
            read(client);
            say(client, r#"{"id":1,"publish":{}}"#);
        });
        assert_eq!(report.errors, counts(&[("session_invalid", 3)]));
    }
}

#[test]
fn a_server_that_does_not_agree_to_protobuf_is_no_such_server() {
    for driver in drivers() {
        let server = Server::start(1, |_| Admission::Upgrade, |_, _, _| 200);
        let mut config = config(&server, driver, 3, 1);
        config.protocol = Protocol::CentrifugeProtobuf;
        let report = run(&config);
        assert_eq!(report.errors, counts(&[("handshake_invalid", 3)]));
    }
}

#[test]
fn the_reason_of_a_close_is_shown() {
    for driver in drivers() {
        let report = greeted(driver, welcome, |_, client| {
            let _ = client.close(Some(CloseFrame {
                code: 3005.into(),
                reason: "connection expired".into(),
            }));
        });
        assert_eq!(report.closes, counts(&[("3005", 3)]));
        assert_eq!(report.server_said["close_3005"], "\"connection expired\"");
        assert_eq!(report.churn.lost, 3);
    }
}

#[test]
fn endless_batches_are_bounded() {
    for driver in drivers() {
        let mut config = greeting(driver, welcome, |body, client| {
            let many: Vec<String> = (0..20_000)
                .map(|n| publication(8 + n, &n.to_string()))
                .collect();
            say(client, &many.join("\n"));
            say(client, &vec!["{}"; 100_000].join("\n"));
            say(client, &vec![r#"{"id":9,"rpc":{}}"#; 50_000].join("\n"));
            assert_eq!(read(client), "{}", "one pong for all");
            say(client, &publication(20_008, body));
        });
        // All of it takes its time.
        config.settle = Duration::from_secs(60);
        let report = run(&config);
        assert_eq!(report.pushes[0].received, 3);
        assert_eq!((report.messages.count, report.pings.answered), (60_003, 3));
        assert_eq!(report.session.unwrap().gaps, 0);
        assert_eq!(report.errors, counts(&[("reply_unknown", 150_000)]));
        let report = greeted(driver, welcome, |_, client| {
            // The client may reset before it has taken all of it.
            let _ = client.send(Message::text("x".repeat((16 << 20) + 1)));
        });
        assert_eq!(report.errors, counts(&[("protocol", 3)]));
    }
}
