//! Limits on strangers: whoever does too much is refused, and nobody else is.

use crate::support::{
    Answer, Http, head, metric, on_both_drivers, options, publish_ok, start, until, with_file,
};
use myriad_server::{DriverChoice, Options};
use socket2::{Domain, Socket, Type};
use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);
const PATH: &str = "/raw?channel=c";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";

fn with(driver: DriverChoice, text: &str) -> Options {
    Options {
        // The kernel spreads the connections of an address over them.
        shards: Some(3),
        ..with_file(text, options(driver))
    }
}

/// A connection from 127.0.0.`host`.
fn connect(server: SocketAddr, host: u8) -> TcpStream {
    try_connect(server, host).expect("a listening server")
}

/// The same, where a server may reset it before it is known to be open.
fn try_connect(server: SocketAddr, host: u8) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let source = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket
        .bind(&source.into())
        .expect("an address of the loopback network");
    socket.connect(&server.into())?;
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("a socket option");
    Ok(socket.into())
}

/// What a server says to a request for a WebSocket.
#[derive(Debug)]
enum Said {
    Welcome(TcpStream),
    Refused(Answer),
    /// A reset, or an end without an answer.
    Nothing,
}

impl Said {
    fn status(&self) -> u16 {
        match self {
            Self::Welcome(_) => 101,
            Self::Refused(answer) => answer.status,
            Self::Nothing => 0,
        }
    }

    fn welcome(self) -> TcpStream {
        match self {
            Self::Welcome(stream) => stream,
            other => panic!("a WebSocket expected, not {other:?}"),
        }
    }
}

fn upgrade(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
}

/// Sends these bytes and reads the head of the answer.
fn say(mut stream: TcpStream, bytes: &[u8]) -> Said {
    if stream.write_all(bytes).is_err() {
        return Said::Nothing;
    }
    let mut head = Vec::new();
    // Byte by byte: what follows the head is the WebSocket's.
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return Said::Nothing,
        }
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Said::Welcome(stream);
    }
    Said::Refused(Answer::read(&mut head.chain(BufReader::new(stream))))
}

/// A request for a WebSocket from 127.0.0.`host`.
fn ask(server: SocketAddr, host: u8, headers: &str) -> Said {
    match try_connect(server, host) {
        Ok(stream) => say(stream, upgrade(PATH, headers).as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Said::Nothing,
        Err(error) => panic!("a listening server: {error}"),
    }
}

fn limited(server: SocketAddr, limit: &str) -> u64 {
    metric(
        server,
        &format!("myriad_limited_total{{limit=\"{limit}\"}}"),
    )
}

/// A client of the Centrifuge protocol in JSON.
struct Client(WebSocket<TcpStream>);

impl Client {
    fn new(server: SocketAddr, headers: &str) -> Self {
        let path = "/connection/websocket";
        let stream = say(connect(server, 1), upgrade(path, headers).as_bytes()).welcome();
        Self(WebSocket::from_raw_socket(stream, Role::Client, None))
    }

    fn connected(server: SocketAddr, headers: &str) -> Self {
        let mut client = Self::new(server, headers);
        let reply = client.send(r#"{"id":1,"connect":{}}"#);
        assert!(reply.contains(r#""connect":{"#), "{reply}");
        client
    }

    /// Sends a command, and returns the next message.
    fn send(&mut self, command: &str) -> String {
        self.0
            .send(Message::text(command))
            .expect("an open connection");
        self.next()
    }

    fn next(&mut self) -> String {
        loop {
            match self.0.read().expect("a message") {
                Message::Text(text) => return text.to_string(),
                Message::Close(Some(CloseFrame { code, reason })) => {
                    return format!("closed {} {reason}", u16::from(code));
                }
                _ => {}
            }
        }
    }
}

on_both_drivers! {
    fn an_attack_from_one_address_leaves_the_others_alone(driver) {
        const OPEN_MAX: usize = 5;
        let server = start(with(driver, "client.connection_limit_per_address = 5"));
        let address = server.address();
        let mut held: Vec<_> = (0..OPEN_MAX).map(|_| ask(address, 2, "").welcome()).collect();
        let refused = ask(address, 2, "");
        let Said::Refused(answer) = refused else {
            panic!("an answer expected, not {refused:?}");
        };
        assert_eq!((answer.status, answer.header("retry-after")), (429, Some("5")));
        assert!(answer.body.contains("from this address"), "{}", answer.body);
        // Past the first answers there are resets, and it gets nowhere.
        let statuses: Vec<_> = (0..200).map(|_| ask(address, 2, "").status()).collect();
        assert!(statuses.iter().all(|status| [429, 0].contains(status)), "{statuses:?}");
        assert!(statuses.contains(&0), "{statuses:?}");
        let others: Vec<_> = (0..OPEN_MAX).map(|_| ask(address, 3, "").welcome()).collect();
        assert_eq!(limited(address, "connections_per_address"), 201);
        // Whoever closes one may open another.
        held.pop();
        until("a place is free", || ask(address, 2, "").status() == 101);
        drop((held, others));
        until("nobody is counted who has nothing open", || {
            metric(address, "myriad_connections") == 0 && metric(address, "myriad_counted_addresses") <= 1
        });
    }

    fn an_address_may_begin_so_many_connections(driver) {
        let text = "[client]\nconnection_rate_limit_per_address = \"3/h\"\nunlimited_addresses = [\"127.0.0.1\"]";
        let server = start(with(driver, text));
        let address = server.address();
        let statuses = |host: u8| -> Vec<u16> { (0..5).map(|_| ask(address, host, "").status()).collect() };
        assert_eq!(statuses(2), [101, 101, 101, 429, 429]);
        assert_eq!(statuses(3), [101, 101, 101, 429, 429]);
        assert_eq!(statuses(1), [101; 5]);
        assert_eq!(limited(address, "connection_rate_per_address"), 4);
        assert_eq!(metric(address, "myriad_counted_addresses"), 2);
    }

    fn all_together_may_begin_so_many_connections(driver) {
        let server = start(with(driver, "client.connection_rate_limit = \"2/h\""));
        let address = server.address();
        assert_eq!(say(connect(address, 1), upgrade("/raw", "").as_bytes()).status(), 400, "costs nothing");
        let statuses: Vec<_> = (2..5).map(|host| ask(address, host, "").status()).collect();
        assert_eq!(statuses, [101, 101, 503]);
        assert_eq!(limited(address, "connection_rate"), 1);
        assert_eq!(metric(address, "myriad_counted_addresses"), 0, "nobody looks at addresses");
    }

    fn connections_begin_no_faster_than_they_may(driver) {
        const RATE: u64 = 400;
        let server = start(with(driver, &format!("client.connection_rate_limit = \"{RATE}/s\"")));
        let (address, begun) = (server.address(), Instant::now());
        let (mut welcome, mut refused) = (0, 0);
        while welcome < 2 * RATE {
            match ask(address, 1, "").status() {
                101 => welcome += 1,
                503 => refused += 1,
                status => panic!("status {status}"),
            }
        }
        // As many as may begin at once, and then the rate. A machine that is busy only takes longer.
        let most = RATE as f64 * (1.0 + 1.02 * begun.elapsed().as_secs_f64());
        assert!(welcome as f64 <= most, "{welcome} of at most {most}");
        assert_eq!(limited(address, "connection_rate"), refused);
    }

    fn a_proxy_names_its_clients_by_the_proxy_protocol(driver) {
        let text = "trusted-proxies = [\"127.0.0.2\"]\nproxy-protocol = true\n\
                    [client]\nconnection_limit_per_address = 1";
        let server = start(with(driver, text));
        let address = server.address();
        let from = |client: &str| {
            let header = format!("PROXY TCP4 {client} 127.0.0.1 5 80\r\n");
            say(connect(address, 2), (header + &upgrade(PATH, "")).as_bytes())
        };
        let held = from("192.0.2.1").welcome();
        assert_eq!(from("192.0.2.1").status(), 429);
        let other = from("192.0.2.2").welcome();
        drop(held);
        until("its place is free", || from("192.0.2.1").status() == 101);
        // Version 2, in pieces.
        let addresses = [192, 0, 2, 9, 127, 0, 0, 1, 0, 5, 0, 80];
        let mut bytes = [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat();
        bytes.extend_from_slice(upgrade(PATH, "").as_bytes());
        let mut stream = connect(address, 2);
        stream.set_nodelay(true).expect("a socket option");
        let (pieces, last) = bytes.split_at(bytes.len() - 1);
        for byte in pieces {
            stream.write_all(&[*byte]).expect("an open connection");
        }
        let ninth = say(stream, last).welcome();
        assert_eq!(from("192.0.2.9").status(), 429);
        // A proxy that asks for itself is not counted; its requests pass.
        for _ in 0..3 {
            let health = b"PROXY UNKNOWN\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(say(connect(address, 2), health).status(), 200);
        }
        // Without a header, and with one from elsewhere.
        assert_eq!(ask(address, 2, "").status(), 400);
        let line = "PROXY TCP4 192.0.2.7 127.0.0.1 5 80\r\n".to_owned() + &upgrade(PATH, "");
        assert_eq!(say(connect(address, 3), line.as_bytes()).status(), 400);
        assert_eq!(ask(address, 4, "").status(), 101);
        let reason = "myriad_upgrades_refused_total{reason=\"proxy_protocol\"}";
        assert_eq!(metric(address, reason), 1);
        drop((other, ninth));
    }

    fn a_proxy_names_its_clients_by_a_header(driver) {
        let text = "trusted-proxies = [\"127.0.0.2\", \"10.0.0.0/8\"]\n[client]\nconnection_limit_per_address = 1";
        let server = start(with(driver, text));
        let address = server.address();
        let from = |host: u8, list: &str| ask(address, host, &format!("X-Forwarded-For: {list}\r\n"));
        let held = from(2, "192.0.2.1").welcome();
        // What a client writes itself does not count, and neither do the proxies between.
        assert_eq!(from(2, "198.51.100.1, 192.0.2.1").status(), 429);
        assert_eq!(from(2, "192.0.2.1, 10.1.2.3").status(), 429);
        assert_eq!(ask(address, 2, "Forwarded: for=192.0.2.1\r\n").status(), 101, "another header");
        let other = from(2, "192.0.2.2").welcome();
        let unnamed: Vec<_> = (0..3).map(|_| ask(address, 2, "").welcome()).collect();
        // Nobody else may name clients.
        let direct = from(3, "192.0.2.3").welcome();
        assert_eq!(from(3, "192.0.2.4").status(), 429);
        drop(held);
        until("its place is free", || from(2, "192.0.2.1").status() == 101);
        drop((other, unnamed, direct));
    }

    fn a_connection_that_comes_back_from_the_api_counts_once(driver) {
        let text = "[client]\nconnection_limit_per_address = 2\nconnection_rate_limit_per_address = \"3/h\"";
        let server = start(with(driver, text));
        let address = server.address();
        let kept = |host: u8| {
            let stream = connect(address, host);
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            (&stream).write_all(HEALTH).expect("an open connection");
            assert_eq!(Answer::read(&mut reader).status, 200);
            assert!(reader.buffer().is_empty());
            stream
        };
        let back = |stream: TcpStream| say(stream, upgrade(PATH, "").as_bytes());
        // Connections of the API are not open ones of an address, but they have begun.
        let [one, two, three] = [kept(2), kept(2), kept(2)];
        let one = back(one).welcome();
        let two = back(two).welcome();
        let refused = back(three);
        assert_eq!(refused.status(), 429, "two are open");
        drop(one);
        until("a place is free, and the rate is spent", || {
            ask(address, 2, "");
            limited(address, "connection_rate_per_address") > 0 && metric(address, "myriad_connections") == 1
        });
        // Whoever was over the rate has not paid for it by a request to the API.
        assert_eq!(back(kept(2)).status(), 429);
        drop(two);
        until("nothing is left open", || metric(address, "myriad_connections") == 0);
    }

    fn reads_and_appends_that_take_turns_count_once(driver) {
        let text = "trusted-proxies = [\"127.0.0.3\"]\n[client]\nconnection_rate_limit = \"3/h\"\nconnection_rate_limit_per_address = \"2/h\"";
        let server = start(with(driver, text));
        let address = server.address();
        let ask_all = |host: u8, requests: &[String]| -> Vec<u16> {
            let stream = connect(address, host);
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            let mut status = |request: &String| {
                (&stream).write_all(request.as_bytes()).expect("an open connection");
                Answer::read(&mut reader).status
            };
            requests.iter().map(&mut status).collect()
        };
        let turns = |headers: &str| {
            let append = format!("Content-Type: application/json\r\nContent-Length: 1\r\n{headers}");
            let append = head("POST", "/v1/stream/s", &append) + "1";
            let pair = [append, head("GET", "/v1/stream/s", headers)];
            std::iter::repeat_n(pair, 5).flatten().collect::<Vec<_>>()
        };
        ask_all(9, &[head("PUT", "/v1/stream/s", "Content-Type: application/json\r\nContent-Length: 0\r\n")]);
        let answered = [204, 200].repeat(5);
        assert_eq!(ask_all(2, &turns("")), answered);
        // A proxy that names its clients may carry requests of several on one connection: each of them counts.
        let of = |client: &str| turns(&format!("X-Forwarded-For: {client}\r\n"));
        assert_eq!(ask_all(3, &of("192.0.2.1")), answered);
        let second = [&of("192.0.2.1")[..], &of("192.0.2.2")].concat();
        assert_eq!(ask_all(3, &second), [&answered[..], &answered].concat());
        assert_eq!(limited(address, "connection_rate"), 0);
        assert_eq!(limited(address, "connection_rate_per_address"), 0);
        // All three have been spent, and so have both of this client.
        assert_eq!(ask_all(2, &turns("")[1..2]), [503]);
        assert_eq!(ask_all(3, &of("192.0.2.1")[1..2]), [429]);
    }

    fn a_proxy_that_keeps_connections_of_readers_names_the_client_of_each_read(driver) {
        let text = "trusted-proxies = [\"127.0.0.2\"]\n[client]\nconnection_limit_per_address = 1";
        let server = start(with(driver, text));
        let address = server.address();
        let put = head("PUT", "/v1/stream/s", "Content-Type: application/json\r\nContent-Length: 0\r\n");
        let stream = connect(address, 9);
        (&stream).write_all(put.as_bytes()).expect("an open connection");
        assert_eq!(Answer::read(&mut BufReader::new(stream)).status, 201);
        let upgrades = |client: &str| ask(address, 2, &format!("X-Forwarded-For: {client}\r\n"));
        let stream = connect(address, 2);
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        let mut reads = |client: &str| {
            let read = head("GET", "/v1/stream/s", &format!("X-Forwarded-For: {client}\r\n"));
            (&stream).write_all(read.as_bytes()).expect("an open connection");
            Answer::read(&mut reader).status
        };
        assert_eq!(reads("192.0.2.1"), 200);
        // Between two requests the connection is nobody's.
        let held = [upgrades("192.0.2.1").welcome(), upgrades("192.0.2.2").welcome()];
        assert_eq!([reads("192.0.2.3"), reads("192.0.2.2")], [200, 429]);
        drop(held);
    }

    fn a_proxy_that_reuses_connections_names_the_client_of_each_request(driver) {
        let text = "trusted-proxies = [\"127.0.0.2\"]\n[client]\nconnection_limit_per_address = 1";
        let server = start(with(driver, text));
        let address = server.address();
        let from = |client: &str| {
            let mut stream = connect(address, 2);
            let health = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            stream.write_all(health).expect("an open connection");
            assert_eq!(Answer::read(&mut reader).status, 200);
            say(stream, upgrade(PATH, &format!("X-Forwarded-For: {client}\r\n")).as_bytes())
        };
        let held = [from("192.0.2.1").welcome(), from("192.0.2.2").welcome()];
        assert_eq!(from("192.0.2.2").status(), 429);
        assert_eq!(ask(address, 2, "X-Forwarded-For: 192.0.2.1\r\n").status(), 429);
        drop(held);
        until("its place is free", || from("192.0.2.2").status() == 101);
    }

    fn a_connection_that_comes_back_keeps_the_address_of_the_proxy_protocol(driver) {
        let text = "trusted-proxies = [\"127.0.0.2\"]\nproxy-protocol = true\n\
                    [client]\nconnection_limit_per_address = 1";
        let server = start(with(driver, text));
        let address = server.address();
        let from = |line: &str| {
            let mut stream = connect(address, 2);
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            stream.write_all(&[line.as_bytes(), HEALTH].concat()).expect("an open connection");
            assert_eq!(Answer::read(&mut reader).status, 200);
            say(stream, upgrade(PATH, "").as_bytes())
        };
        let one = "PROXY TCP4 192.0.2.1 127.0.0.1 5 80\r\n";
        let held = from(one).welcome();
        let refused = from(one);
        let Said::Refused(answer) = refused else {
            panic!("an answer expected, not {refused:?}");
        };
        assert_eq!(answer.status, 429);
        let others = [
            from("PROXY TCP6 2001:db8::1 ::1 5 80\r\n").welcome(),
            from("PROXY UNKNOWN\r\n").welcome(),
            from("PROXY UNKNOWN\r\n").welcome(),
        ];
        assert_eq!(from("PROXY TCP6 2001:db8::2 ::1 5 80\r\n").status(), 429, "one network");
        drop((held, others));
        until("its place is free", || from(one).status() == 101);
    }

    fn a_user_may_have_so_many_connections(driver) {
        let text = "[client]\nuser_connection_limit = 2\nuser_id_http_header = \"X-User\"";
        let server = start(with(driver, text));
        let address = server.address();
        let mut held: Vec<_> = (0..2).map(|_| Client::connected(address, "X-User: 42\r\n")).collect();
        let mut third = Client::new(address, "X-User: 42\r\n");
        let said = third.send(r#"{"id":1,"connect":{}}"#);
        assert!(said.starts_with("closed 3504"), "{said}");
        assert_eq!(limited(address, "connections_per_user"), 1);
        let other = Client::connected(address, "X-User: 43\r\n");
        let anonymous: Vec<_> = (0..3).map(|_| Client::connected(address, "")).collect();
        held.pop();
        until("its place is free", || {
            let mut client = Client::new(address, "X-User: 42\r\n");
            client.send(r#"{"id":1,"connect":{}}"#).contains(r#""connect":{"#)
        });
        drop((other, anonymous));
    }

    fn a_client_that_goes_on_after_its_commands_are_refused_is_closed(driver) {
        let server = start(with(driver, "client.rate_limits.commands = \"3/h\""));
        let address = server.address();
        let mut client = Client::connected(address, "");
        let mut said = |id: u32| client.send(&format!(r#"{{"id":{id},"presence":{{"channel":"c"}}}}"#));
        for id in 2..5 {
            let reply = said(id);
            assert!(!reply.contains(r#""code":111"#), "{reply}");
        }
        for id in 5..8 {
            let reply = said(id);
            assert!(reply.contains(r#""code":111"#) && reply.contains(r#""temporary":true"#), "{reply}");
        }
        let last = said(8);
        assert!(last.starts_with("closed 3013"), "{last}");
        assert_eq!(limited(address, "commands"), 4);
        // Another client has a rate of its own.
        let reply = Client::connected(address, "").send(r#"{"id":2,"presence":{"channel":"c"}}"#);
        assert!(!reply.contains(r#""code":111"#), "{reply}");
    }

    fn publications_and_subscriptions_have_rates(driver) {
        let text = "[client.rate_limits]\npublishes = \"2/h\"\npublishes_per_channel = \"3/h\"\nsubscribes = \"1/h\"";
        let server = start(with(driver, text));
        let address = server.address();
        let publish = |client: &mut Client, id: u32| {
            let reply = client.send(&format!(r#"{{"id":{id},"publish":{{"channel":"c","data":1}}}}"#));
            reply.contains(r#""code":111"#)
        };
        let mut one = Client::connected(address, "");
        let mut two = Client::connected(address, "");
        assert_eq!([2, 3, 4].map(|id| publish(&mut one, id)), [false, false, true]);
        assert_eq!([2, 3, 4].map(|id| publish(&mut two, id)), [false, true, true]);
        assert_eq!((limited(address, "publishes"), limited(address, "publishes_per_channel")), (2, 1));
        let reply = one.send(r#"{"id":5,"subscribe":{"channel":"a"}}"#);
        assert!(reply.contains(r#""subscribe":{"#), "{reply}");
        let reply = one.send(r#"{"id":6,"subscribe":{"channel":"b"}}"#);
        assert!(reply.contains(r#""code":111"#), "{reply}");
        assert_eq!(limited(address, "subscribes"), 1);
    }

    fn a_reader_keeps_its_rate_where_its_connection_changes_hands(driver) {
        let text = "[http_api]\nkey = \"k\"\n[client.rate_limits]\nreads = \"2/h\"";
        let server = start(with(driver, text));
        let address = server.address();
        let stream = "/v1/stream/s";
        let mut http = Http::connect(address);
        let mut ask = |method: &str, headers: &str| {
            http.send(head(method, stream, headers).as_bytes());
            http.answer()
        };
        let keyed = "X-API-Key: k\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n";
        for _ in 0..2 {
            // This is for the control plane, and the connection comes back.
            assert!(matches!(ask("PUT", keyed).status, 200 | 201));
            assert_eq!(ask("GET", "").status, 200);
        }
        assert_eq!(ask("PUT", keyed).status, 200);
        let refused = ask("GET", "");
        assert_eq!((refused.status, refused.header("connection")), (429, Some("keep-alive")));
        assert!(refused.body.contains("\"code\":\"reads\""), "{}", refused.body);
        // The application is not limited.
        assert_eq!(ask("GET", "X-API-Key: k\r\n").status, 200);
        assert_eq!(ask("GET", "").status, 429);
        let last = ask("GET", "");
        assert_eq!((last.status, last.header("connection")), (429, Some("close")));
        assert_eq!(limited(address, "reads"), 3);
        until("it is counted", || metric(address, "myriad_closes_total{reason=\"too_many_requests\"}") == 1);
    }

    fn clients_of_a_proxy_have_rates_of_their_own(driver) {
        let text = "trusted-proxies = [\"127.0.0.1\"]\n[client.rate_limits]\nreads = \"1/h\"";
        let server = start(with(driver, text));
        let address = server.address();
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        let mut http = Http::connect(address);
        let mut read = |client: &str| {
            let headers = format!("X-Forwarded-For: {client}\r\n");
            http.send(head("GET", "/v1/stream/s", &headers).as_bytes());
            http.answer().status
        };
        let (one, other) = ("192.0.2.1", "192.0.2.2");
        assert_eq!([one, one, other, other].map(&mut read), [200, 429, 200, 429]);
    }

    fn limits_change_at_a_reload(driver) {
        let server = start(with(driver, ""));
        let address = server.address();
        let before: Vec<_> = (0..3).map(|_| ask(address, 2, "").welcome()).collect();
        let limited = with(driver, "client.connection_limit_per_address = 1");
        server.reloader().reload(limited).expect("good options");
        // Who was there before is not counted. A shard takes its settings when it wakes.
        let mut held = Vec::new();
        until("the limit holds", || match ask(address, 2, "") {
            Said::Welcome(stream) => {
                held.push(stream);
                false
            }
            _ => true,
        });
        server.reloader().reload(with(driver, "")).expect("good options");
        until("no limit holds", || ask(address, 2, "").status() == 101);
        drop((before, held));
        until("all have gone", || metric(address, "myriad_connections") == 0);
    }
}
