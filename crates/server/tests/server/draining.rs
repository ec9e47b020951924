//! A server that drains: whoever is left hears what is published, by every transport, and nobody puts off the end.

use crate::support::{
    Http, api, get, head, metric, next, on_both_drivers, options, publish, start, until, websocket,
    with_file,
};
use myriad_server::{DriverChoice, Options, Span};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tungstenite::{Message, WebSocket};

const CONNECT: &str = r#"{"id":1,"connect":{"subs":{"c":{}}}}"#;
const REQUEST: &str = r#"{"subs":{"c":{}}}"#;

/// Every transport, and a drain that no test can wait for: after the grace of 2 s one client is closed, and the next one minutes later.
fn slowly_draining(driver: DriverChoice) -> Options {
    let text = "[http_stream]\nenabled = true\n[sse]\nenabled = true\n[uni_sse]\nenabled = true\n\
                [uni_http_stream]\nenabled = true\n[uni_websocket]\nenabled = true\n\
                [channel.without_namespace]\nallow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
                history_size = 9\nhistory_ttl = \"60s\"\n";
    Options {
        drain: Some(Span(Duration::from_hours(1))),
        shards: Some(1),
        ..with_file(text, options(driver))
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Somebody who is told of publications in channel `c`.
struct Listener {
    transport: &'static str,
    http: Http,
}

impl Listener {
    fn ask(address: SocketAddr, transport: &'static str, request: &str) -> Self {
        let mut http = Http::connect(address);
        http.send(request.as_bytes());
        Self { transport, http }
    }

    fn get(address: SocketAddr, transport: &'static str, target: &str) -> Self {
        Self::ask(address, transport, &head("GET", target, ""))
    }

    fn post(address: SocketAddr, transport: &'static str, target: &str, body: &str) -> Self {
        let length = format!("Content-Length: {}\r\n", body.len());
        Self::ask(address, transport, &(head("POST", target, &length) + body))
    }

    fn upgrade(address: SocketAddr, transport: &'static str, target: &str) -> Self {
        let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        Self::ask(address, transport, &head("GET", target, headers))
    }

    /// One for each transport that needs no frame of the client's.
    fn of_each(address: SocketAddr) -> Vec<Self> {
        let first = |path: &str, message: &str| format!("{path}?cf_connect={}", encoded(message));
        let read = |live: &str| format!("/v1/stream/c?offset=now&live={live}");
        vec![
            Self::upgrade(address, "raw", "/raw?channel=c"),
            Self::upgrade(
                address,
                "uni_websocket",
                &first("/connection/uni_websocket", REQUEST),
            ),
            Self::get(address, "uni_sse", &first("/connection/uni_sse", REQUEST)),
            Self::get(address, "sse", &first("/connection/sse", CONNECT)),
            Self::post(
                address,
                "uni_http_stream",
                "/connection/uni_http_stream",
                REQUEST,
            ),
            Self::post(address, "http_stream", "/connection/http_stream", CONNECT),
            Self::get(address, "events", &read("sse")),
            Self::get(address, "poll", &read("long-poll")),
        ]
    }

    /// Reads until it has come. Its bytes stand together, whatever frames or chunks are around them.
    fn hear(&mut self, data: &str) {
        let mut heard = Vec::new();
        while !heard.ends_with(data.as_bytes()) {
            heard.extend(self.http.bytes(1));
        }
    }
}

/// A client of the Centrifuge protocol over WebSocket that has connected.
fn connected(address: SocketAddr) -> WebSocket<TcpStream> {
    let mut client = websocket(address, "/connection/websocket");
    let message = Message::text(r#"{"id":1,"connect":{}}"#);
    client.send(message).expect("an open connection");
    let answer = next(&mut client).into_text().expect("a text");
    assert!(answer.contains("\"client\""), "{answer}");
    client
}

fn publication(number: u32) -> String {
    format!("{{\"channel\":\"c\",\"data\":{{\"number\":{number}}}}}")
}

fn number(number: u32) -> String {
    format!("{{\"number\":{number}}}")
}

on_both_drivers! {
    fn who_is_left_hears_what_is_published_while_the_server_drains(driver) {
        let server = start(slowly_draining(driver));
        let address = server.address();
        // The first to be closed, because it was the first to come.
        let mut first = websocket(address, "/raw?channel=first");
        // Readers find a stream.
        assert_eq!(publish(address, &publication(0)).status, 200);
        let mut listeners = Listener::of_each(address);
        let mut client = connected(address);
        client.send(Message::text(r#"{"id":2,"subscribe":{"channel":"c"}}"#)).expect("an open connection");
        // It has subscribed to nothing: nobody is told anything by it.
        let idle = connected(address);
        let all = listeners.len() as u64 + 2;
        until("all have subscribed", || metric(address, "myriad_subscriptions") == all);
        until("the reader waits", || metric(address, "myriad_parked_polls") == 1);
        server.stopper().drain();
        until("health fails", || get(address, "/healthz").status == 503);

        assert_eq!(publish(address, &publication(1)).status, 200);
        listeners.iter_mut().for_each(|listener| listener.hear(&number(1)));
        listeners.retain(|listener| listener.transport != "poll");
        let closed = next(&mut first);
        assert!(matches!(closed, Message::Close(Some(_))), "{closed:?}");
        // Closes have begun, and newcomers are sent away.
        let newcomer = Listener::upgrade(address, "raw", "/raw?channel=c").http.answer();
        assert_eq!(newcomer.status, 503);
        assert_eq!(publish(address, &publication(2)).status, 200);
        listeners.iter_mut().for_each(|listener| listener.hear(&number(2)));
        let mut told = String::new();
        while !told.contains(&number(2)) {
            told += next(&mut client).into_text().expect("a text").as_str();
        }
        assert!(told.contains(&number(1)), "{told}");
        // The other methods, too: who is left is asked about, and may be sent away.
        assert!(api(address, "channels", "{}")["result"]["channels"]["c"].is_object());
        assert!(api(address, "disconnect", r#"{"user":"nobody"}"#)["result"].is_object());

        drop((first, listeners, client));
        until("nobody listens", || metric(address, "myriad_subscriptions") == 0);
        let refused = publish(address, &publication(3));
        assert_eq!(refused.status, 503);
        assert!(refused.header("retry-after").is_some());
        assert!(refused.body.contains("nobody is left to hear it"), "{}", refused.body);
        drop(idle);
        server.stop();
    }

    fn who_neither_reads_nor_ends_puts_off_no_end(driver) {
        let server = start(Options {
            drain: Some(Span(Duration::from_millis(300))),
            ..options(driver)
        });
        let address = server.address();
        let clients: Vec<_> = (0..20).map(|_| websocket(address, "/raw?channel=c")).collect();
        // More than their sockets hold.
        let data = "x".repeat(900_000);
        for _ in 0..2 {
            publish(address, &format!("{{\"channel\":\"c\",\"data\":\"{data}\"}}"));
        }
        let mut silent = TcpStream::connect(address).expect("a listening server");
        silent.write_all(b"GET /raw?chan").expect("an open connection");
        let stopping = std::thread::spawn(move || server.stop());
        until("the server stops", || stopping.is_finished());
        stopping.join().expect("a drained server");
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
        drop((clients, silent));
    }
}
