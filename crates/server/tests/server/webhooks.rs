//! Webhooks: what an application is told of a real server.

#[path = "../../src/webhooks/receiver.rs"]
#[allow(dead_code, reason = "the unit tests need all of it")]
mod receiver;

use crate::support::{next_text, on_both_drivers, options, start, until, websocket};
use myriad_reserved_port::ReservedPort;
use myriad_server::{DriverChoice, Options, WebhooksTable};
use receiver::{Act, Receiver};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use tungstenite::Message;

/// Options of a server that tells a URL everything at once.
fn telling(driver: DriverChoice, url: &str) -> Options {
    let text = format!(
        "vacated_delay = 0\n[[endpoints]]\nname = \"app\"\nurl = \"{url}\"\nsecret = \"sesame\"\nbatch_delay = 0"
    );
    let table: WebhooksTable = toml::from_str(&text).expect("a table");
    Options {
        webhooks: Some(table),
        ..options(driver)
    }
}

/// What an application keeps of the batches.
#[derive(Default)]
struct Application {
    events: Vec<Value>,
    server: Value,
    sequence: u64,
}

impl Application {
    fn read(&mut self, request: &receiver::Request) {
        let batch = &request.body;
        assert_eq!(batch["dropped"], 0);
        self.sequence += 1;
        assert_eq!(batch["sequence"], self.sequence);
        if self.server.is_null() {
            self.server = batch["server"].clone();
        }
        assert_eq!(batch["server"], self.server);
        self.events.extend(request.events().iter().cloned());
    }

    /// Reads until it has so many events, and takes them.
    fn next(&mut self, receiver: &Receiver, count: usize) -> Vec<Value> {
        while self.events.len() < count {
            self.read(&receiver.next());
        }
        assert_eq!(self.events.len(), count, "{:?}", self.events);
        std::mem::take(&mut self.events)
    }
}

/// The types of events, with their channel or how their client ended; sorted, because shards have no common order.
fn summary(events: &[Value]) -> Vec<String> {
    let mut lines: Vec<String> = events
        .iter()
        .map(|event| {
            let kind = event["type"].as_str().expect("a type");
            let detail = match kind {
                "client_connected" => &event["protocol"],
                "client_disconnected" => &event["cause"],
                _ => &event["channel"],
            };
            format!("{kind} {}", detail.as_str().expect("text"))
        })
        .collect();
    lines.sort();
    lines
}

on_both_drivers! {
    fn an_application_is_told_who_comes_and_goes(driver) {
        let receiver = Receiver::start();
        let mut application = Application::default();
        let server = start(telling(driver, &receiver.url()));
        let mut raw = websocket(server.address(), "/raw?channel=news");
        let events = application.next(&receiver, 2);
        assert_eq!(summary(&events), ["channel_occupied news", "client_connected raw"]);
        // A second subscriber of the channel is another client, and no event of the channel.
        let mut client = websocket(server.address(), "/connection/websocket");
        let commands = "{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":\"news\"}}";
        client.send(Message::text(commands)).expect("an open connection");
        let reply: Value = serde_json::from_str(next_text(&mut client).lines().next().expect("a reply")).expect("JSON");
        let events = application.next(&receiver, 1);
        assert_eq!(summary(&events), ["client_connected json"]);
        assert_eq!(events[0]["client"], reply["connect"]["client"]);
        assert_eq!(events[0]["user"], Value::Null);
        raw.close(None).expect("an open connection");
        let events = application.next(&receiver, 1);
        assert_eq!(summary(&events), ["client_disconnected client"]);
        assert_eq!(events[0]["code"], 1000);
        // The end of the server is the end of what is left, and all of it is told.
        server.stop();
        for request in receiver.rest() {
            application.read(&request);
        }
        let events = application.events;
        assert_eq!(summary(&events), ["channel_vacated news", "client_disconnected drain"]);
        let end = events.iter().find(|event| event["type"] == "client_disconnected");
        let end = end.expect("the client's end");
        assert_eq!((&end["code"], &end["reason"]), (&json!(3001), &json!("shutdown")));
    }

    fn a_batch_names_the_node_as_info_does(driver) {
        let receiver = Receiver::start();
        let server = start(telling(driver, &receiver.url()));
        let _raw = websocket(server.address(), "/raw?channel=news");
        let batch = receiver.next().body;
        let answer = crate::support::request(server.address(), "POST", "/api/info", "", "{}");
        let info: Value = serde_json::from_str(&answer.body).expect("JSON");
        let uid = info["result"]["nodes"][0]["uid"].as_str().expect("a name");
        assert_eq!(batch["server"], uid);
        assert_eq!(batch["id"], format!("{uid}-1"));
        server.stop();
    }

    fn a_receiver_that_is_away_is_told_later(driver) {
        let port = ReservedPort::take().expect("a port");
        let address = port.address();
        let server = start(telling(driver, &format!("http://{address}/hook")));
        let failed = "myriad_webhook_requests_total{endpoint=\"app\",outcome=\"unreachable\"}";
        for _ in 0..3 {
            let mut raw = websocket(server.address(), "/raw?channel=news");
            raw.close(None).expect("an open connection");
            drop(raw);
            until("its end is noted", || crate::support::metric(server.address(), "myriad_connections") == 0);
        }
        until("a request fails", || crate::support::metric(server.address(), failed) > 0);
        let receiver = Receiver::on(TcpListener::bind(address).expect("our port"));
        receiver.then([Act::Answer(500), Act::Close]);
        let (mut told, mut ids) = (Vec::new(), Vec::new());
        while told.len() < 12 {
            let request = receiver.next();
            // A batch that was answered with an error comes again.
            if !ids.contains(&request.body["id"]) {
                ids.push(request.body["id"].clone());
                told.extend(request.events().iter().cloned());
            }
        }
        let of_channel = told.iter().filter(|event| event["channel"] == "news");
        let of_channel: Vec<_> = of_channel.map(|event| event["type"].as_str().expect("a type")).collect();
        assert_eq!(of_channel, ["channel_occupied", "channel_vacated"].repeat(3));
        server.stop();
    }

    fn a_receiver_that_never_comes_back_does_not_hold_up_the_end(driver) {
        let receiver = Receiver::start();
        receiver.then(std::iter::repeat_n(Act::Hang, 100));
        let server = start(telling(driver, &receiver.url()));
        let _raw = websocket(server.address(), "/raw?channel=news");
        receiver.next();
        server.stop();
    }
}

/// The example is what the page says.
#[test]
fn the_example_receives_what_is_signed_and_nothing_else() {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/webhooks/receiver.py"
    );
    let mut example = Command::new("python3")
        .args([script, "0"])
        .env("MYRIAD_SECRET", "sesame")
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3, which the other tests need too");
    let mut lines = BufReader::new(example.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let port: u16 = line()
        .strip_prefix("listening on ")
        .and_then(|port| port.parse().ok())
        .expect("its port");
    let address = ([127, 0, 0, 1], port).into();
    let forged = crate::support::request(
        address,
        "POST",
        "/",
        "X-Myriad-Signature: t=1700000000,v1=00\r\n",
        "{\"id\":\"1\",\"dropped\":0,\"events\":[{\"type\":\"forged\"}]}",
    );
    assert_eq!(forged.status, 401);
    let server = start(telling(
        DriverChoice::Auto,
        &format!("http://127.0.0.1:{port}/"),
    ));
    let _raw = websocket(server.address(), "/raw?channel=news");
    let told = [line(), line()].map(|line| serde_json::from_str(&line).expect("JSON"));
    assert_eq!(
        summary(&told),
        ["channel_occupied news", "client_connected raw"]
    );
    server.stop();
    example.kill().expect("our own process");
    example.wait().expect("its end");
}
