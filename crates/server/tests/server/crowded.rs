//! Strangers who take as many connections of the control plane as they can.

use crate::support::{Http, get, head, metric, on_both_drivers, options, request, start, until};
use myriad_server::Options;
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

/// More than the control plane has places.
const HELD: usize = 1_200;
/// Times that a stranger opens more while others are served, and how many each time.
const ROUNDS: usize = 20;
const OPENED_AT_A_TIME: usize = 30;

/// What keeps a connection busy without a key: half a request behind an answer, half a head, half a body, none of an
/// answer taken.
const BEGINNINGS: [&str; 4] = [
    "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nG",
    "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHo",
    "POST /api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: guess\r\nContent-Length: 1000\r\n\r\n{",
    "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\nG",
];

fn connect_from(source: IpAddr, server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from((source, 0)).into())
        .expect("an address of the loopback network");
    socket.connect(&server.into()).expect("a listening server");
    socket.into()
}

/// A stranger who holds as many connections as the control plane has places, and goes on opening.
struct Attack<S> {
    server: SocketAddr,
    sources: S,
    opened: u32,
    held: VecDeque<TcpStream>,
}

impl<S: Fn(u32) -> IpAddr> Attack<S> {
    fn open(&mut self, count: usize) {
        for _ in 0..count {
            let mut stream = connect_from((self.sources)(self.opened), self.server);
            let beginning = BEGINNINGS[self.opened as usize % BEGINNINGS.len()];
            // The server may have let it go already.
            let _ = stream.write_all(beginning.as_bytes());
            self.opened += 1;
            self.held.push_back(stream);
            if self.held.len() > HELD {
                self.held.pop_front();
            }
        }
    }
}

fn serves_all_while_attacked(options: Options, sources: impl Fn(u32) -> IpAddr) {
    let server = start(Options {
        dev: None,
        anonymous: Some(true),
        ..options
    });
    let address = server.address();
    let key = format!(
        "X-API-Key: {}\r\n",
        server.api_key().expect("a generated key")
    );
    let body = r#"{"channel": "c", "data": 1}"#;
    // A publisher that keeps its connection, as publishers do.
    let mut kept = Http::connect(address);
    let length = format!("{key}Content-Length: {}\r\n", body.len());
    let kept_request = head("POST", "/api/publish", &length) + body;
    kept.send(kept_request.as_bytes());
    assert_eq!(kept.answer().status, 200);
    let mut attack = Attack {
        server: address,
        sources,
        opened: 0,
        held: VecDeque::new(),
    };
    // Not faster than they are handed over, so that all of them arrive.
    for opened in (0..HELD).step_by(OPENED_AT_A_TIME) {
        attack.open(OPENED_AT_A_TIME);
        until("all have arrived", || {
            metric(address, "myriad_hand_overs_total") >= opened as u64
        });
    }
    for _ in 0..ROUNDS {
        attack.open(OPENED_AT_A_TIME);
        for path in ["/healthz", "/metrics"] {
            let answer = get(address, path);
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        }
        let published = request(address, "POST", "/api/publish", &key, body);
        assert_eq!(published.status, 200, "{published:?}");
        kept.send(kept_request.as_bytes());
        assert_eq!(kept.answer().status, 200);
    }
    drop(attack);
    until("the evicted were counted", || {
        metric(
            address,
            "myriad_api_evictions_total{reason=\"slow_request\"}",
        ) > 0
    });
}

on_both_drivers! {
    fn a_stranger_with_one_address_keeps_nobody_out(driver) {
        serves_all_while_attacked(options(driver), |_| Ipv4Addr::LOCALHOST.into());
    }

    fn strangers_with_many_addresses_keep_nobody_out(driver) {
        serves_all_while_attacked(options(driver), |number| {
            let [_, a, b, c] = (number * 251).to_be_bytes();
            Ipv4Addr::new(127, a | 1, b, c.clamp(1, 254)).into()
        });
    }

    fn kept_connections_make_room_for_newcomers(driver) {
        let server = start(options(driver));
        let mut kept = Vec::new();
        for _ in 0..HELD {
            let mut http = Http::connect(server.address());
            http.send(head("GET", "/healthz", "").as_bytes());
            assert_eq!(http.answer().status, 200);
            kept.push(http);
        }
        assert!(metric(server.address(), "myriad_api_evictions_total{reason=\"idle\"}") > 0);
        assert!(metric(server.address(), "myriad_api_connections") < 1_024);
        // The first ones are gone, the last ones are there.
        assert!(kept[0].ended());
        let last = kept.last_mut().expect("many");
        last.send(head("GET", "/healthz", "").as_bytes());
        assert_eq!(last.answer().status, 200);
        drop(kept);
        until("they are gone", || metric(server.address(), "myriad_api_connections") == 1);
    }
}
