//! Starting, being full, draining.

use crate::support::{
    Http, get, head, next_text, on_both_drivers, options, publish, start, until, websocket,
};
use myriad_reserved_port::ReservedPort;
use myriad_server::{Count, Machine, Options, Server, ServerError, Span};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::Message;
use tungstenite::protocol::frame::coding::CloseCode;

fn start_fails(options: Options) -> ServerError {
    Server::start(
        options
            .resolve(&Machine::here())
            .expect("a good configuration"),
    )
    .expect_err("must not start")
}

on_both_drivers! {
    fn a_second_server_on_the_port_is_refused(driver) {
        let server = start(options(driver));
        let error = start_fails(Options { listen: Some(server.address()), ..options(driver) });
        assert!(matches!(error, ServerError::AddressInUse { flag: "listen", .. }), "{error}");
        assert!(error.to_string().contains(&server.address().to_string()), "{error}");
        let error = start_fails(Options { internal_listen: Some(server.address()), ..options(driver) });
        assert!(matches!(error, ServerError::AddressInUse { flag: "internal-listen", .. }), "{error}");
        // The first one did not notice.
        assert_eq!(get(server.address(), "/healthz").status, 200);
    }

    fn a_stopped_servers_port_is_free_at_once(driver) {
        let port = ReservedPort::take().expect("a port");
        let address = port.address();
        let first = start(Options { listen: Some(address), ..options(driver) });
        let mut client = websocket(address, "/raw?channel=c");
        let client = std::thread::spawn(move || client.read());
        first.stop();
        let told = client.join().expect("a client without panic");
        assert!(
            matches!(&told, Ok(Message::Close(Some(frame))) if frame.code == CloseCode::Away),
            "{told:?}"
        );
        // Connections of the first are in TIME_WAIT on our side.
        let second = start(Options { listen: Some(address), ..options(driver) });
        assert_eq!(get(second.address(), "/healthz").status, 200);
    }

    fn draining_says_so_first_and_closes_all(driver) {
        const CLIENTS: usize = 20;
        let server = start(Options { drain: Some(Span(Duration::from_millis(500))), ..options(driver) });
        let address = server.address();
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| websocket(address, "/raw?channel=c")).collect();
        let mut api = Http::connect(address);
        api.send(head("GET", "/healthz", "").as_bytes());
        assert_eq!(api.answer().status, 200);
        server.stopper().drain();
        // The word is taken before anything is closed, so that the kept connection still answers.
        until("health fails", || {
            api.send(head("GET", "/healthz", "").as_bytes());
            let answer = api.answer();
            answer.status == 503 && answer.body.contains("draining")
        });
        for client in &mut clients {
            let close = loop {
                match client.read().expect("a close frame before the end") {
                    Message::Close(frame) => break frame,
                    other => assert!(matches!(other, Message::Ping(_)), "{other:?}"),
                }
            };
            assert_eq!(close.expect("a code").code, CloseCode::Away);
        }
        // A client that stays would be waited for, within limits.
        drop((clients, api));
        server.stop();
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }

    fn an_idle_server_stops_at_once(driver) {
        let server = start(Options { drain: Some(Span(Duration::from_hours(1))), ..options(driver) });
        // One that came and went, and one of the control plane's, which does not count.
        drop(websocket(server.address(), "/raw?channel=c"));
        let mut api = Http::connect(server.address());
        api.send(head("GET", "/healthz", "").as_bytes());
        assert_eq!(api.answer().status, 200);
        let address = server.address();
        let stopping = std::thread::spawn(move || server.stop());
        until("the server stops", || stopping.is_finished());
        stopping.join().expect("a drained server");
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    }

    fn a_drain_ends_with_the_last_client(driver) {
        let server = start(Options { drain: Some(Span(Duration::from_hours(1))), ..options(driver) });
        let clients: Vec<_> = (0..20).map(|_| websocket(server.address(), "/raw?channel=c")).collect();
        let stopping = std::thread::spawn(move || server.stop());
        // They would be closed one each three minutes.
        drop(clients);
        until("the server stops", || stopping.is_finished());
        stopping.join().expect("a drained server");
    }

    fn a_full_server_says_when_to_come_back(driver) {
        let server = start(Options { max_connections: Some(Count(3)), ..options(driver) });
        let address = server.address();
        let clients: Vec<_> = (0..3).map(|_| websocket(address, "/raw?channel=c")).collect();
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let mut http = Http::connect(address);
        http.send(head("GET", "/raw?channel=c", upgrade).as_bytes());
        let answer = http.answer();
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
        // Being full of clients does not blind the operator.
        assert_eq!(get(address, "/healthz").status, 200);
        drop(clients);
        until("a place is free again", || {
            let mut http = Http::connect(address);
            http.send(head("GET", "/raw?channel=c", upgrade).as_bytes());
            http.answer().status == 101
        });
    }

    fn time_is_announced(driver) {
        let announce = Some(vec!["time=20ms".parse().expect("an announcement")]);
        let server = start(Options { announce, ..options(driver) });
        let mut client = websocket(server.address(), "/raw?channel=time");
        let read = |text: String| {
            let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert!(value["time"].as_str().expect("a text").ends_with('Z'));
            value["unix_ms"].as_u64().expect("a number")
        };
        // One that is late may be followed by the next within the same millisecond.
        let times = [0; 10].map(|_| read(next_text(&mut client)));
        assert!(times.is_sorted(), "{times:?}");
        // If each came twice, five would differ.
        assert!(BTreeSet::from(times).len() > 5, "{times:?}");
    }

    fn strangers_are_not_let_in_unless_asked_for(driver) {
        let server = start(Options { dev: None, ..options(driver) });
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let mut http = Http::connect(server.address());
        http.send(head("GET", "/raw?channel=c", upgrade).as_bytes());
        let answer = http.answer();
        assert_eq!(answer.status, 401);
        assert!(answer.body.contains("--anonymous"), "{}", answer.body);
        assert_eq!(publish(server.address(), "{}").status, 401);
    }
}
