//! What `serve --log debug` says of single connections and publications.

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use support::{SIGTERM, Server};

/// More connections than a second has lines for, even if they take several seconds.
const BURST: usize = 1_500;

/// A server of one shard. It sends no pings, whose time within their interval nobody knows.
fn start(level: &str) -> Server {
    Server::start(&[
        "--shards",
        "1",
        "--max-connections",
        "3k",
        "--drain",
        "0s",
        "--ping-interval",
        "0",
        "--log",
        level,
    ])
}

/// Stops it, and gives what it said since it was ready.
fn stop(server: Server) -> Vec<String> {
    server.signal(SIGTERM);
    let (status, lines) = server.wait();
    assert!(status.success(), "{lines:#?}");
    lines
}

fn publish(server: &Server, body: &str) -> String {
    let mut stream = server.connect();
    let request = format!(
        "POST /api/publish HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it is open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Reads until the peer has ended the connection too.
fn close(mut stream: TcpStream) {
    stream.shutdown(Shutdown::Write).expect("it is open");
    let _ = stream.read_to_end(&mut Vec::new());
}

fn talk(server: &Server) {
    let (stream, answer) = server.upgrade("/raw?channel=news&channel=odd%0Aname");
    assert!(answer.contains("101"), "{answer}");
    let answer = publish(
        server,
        r#"{"channel": "odd\nname", "data": "twelve bytes"}"#,
    );
    assert!(answer.contains("200 OK"), "{answer}");
    close(stream);
    let (stream, answer) = server.upgrade("/raw");
    assert!(answer.contains("400"), "{answer}");
    close(stream);
}

#[test]
fn a_connection_shows_from_accept_to_close() {
    let server = start("debug");
    talk(&server);
    let lines = stop(server);
    let upgraded = lines
        .iter()
        .find(|line| line.contains("upgraded: /raw, 2 channels, compression off"))
        .unwrap_or_else(|| panic!("{lines:#?}"));
    let name = upgraded
        .split_whitespace()
        .find(|word| word.starts_with("0:"))
        .expect("a connection has a name");
    for words in [
        format!("connection {name} accepted"),
        format!("connection {name} closed: client"),
        // What a client of `/raw` gets, without the quotes of JSON.
        r#"published to "odd\nname": offset 1, 12 bytes"#.into(),
        "refused: 400 channel".into(),
        "closed: refused".into(),
        "closed: handed_over".into(),
    ] {
        let found = lines.iter().filter(|line| line.contains(&words)).count();
        assert_eq!(found, 1, "{words}: {lines:#?}");
    }
}

/// A client of the Centrifuge protocol, as JSON.
struct Client(BufReader<TcpStream>);

impl Client {
    fn open(server: &Server) -> Self {
        let (stream, answer) = server.upgrade("/connection/websocket");
        assert!(answer.contains("101"), "{answer}");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).expect("the rest of the head");
        }
        Self(reader)
    }

    /// Sends a message, masked with zeros, and gives the content of the next frame.
    fn ask(&mut self, message: &str) -> String {
        let length = u8::try_from(message.len()).expect("a short message");
        assert!(length < 126, "a short message");
        let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
        frame.extend_from_slice(message.as_bytes());
        self.0.get_mut().write_all(&frame).expect("it is open");
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let mut length = usize::from(head[1]);
        if length == 126 {
            let mut long = [0; 2];
            self.0.read_exact(&mut long).expect("a length");
            length = usize::from(u16::from_be_bytes(long));
        }
        let mut content = vec![0; length];
        self.0.read_exact(&mut content).expect("a whole frame");
        String::from_utf8_lossy(&content).into_owned()
    }
}

const CONNECT: &str = r#"{"id":1,"connect":{}}"#;

fn one_line_with<'a>(lines: &'a [String], words: &str) -> &'a str {
    let found: Vec<_> = lines.iter().filter(|line| line.contains(words)).collect();
    assert_eq!(found.len(), 1, "{words}: {lines:#?}");
    found[0]
}

#[test]
fn commands_show_what_was_published_and_what_was_refused() {
    let server = start("debug");
    let mut client = Client::open(&server);
    let connected = client.ask(CONNECT);
    let (_, id) = connected.split_once(r#""client":""#).expect("a client");
    let (id, _) = id.split_once('"').expect("a whole id");
    let answer = client.ask(r#"{"id":2,"publish":{"channel":"odd\nname","data":"twelve bytes"}}"#);
    assert!(!answer.contains("error"), "{answer}");
    let answer = client.ask(r#"{"id":3,"subscribe":{"channel":"nope:a"}}"#);
    assert!(answer.contains("102"), "{answer}");
    let answer = client.ask(r#"{"id":4,"history":{"channel":"news","since":{"epoch":"other"}}}"#);
    assert!(answer.contains("112"), "{answer}");
    let closed = client.ask(r#"{"id":5,"refresh":{"token":"t"}}"#);
    assert!(closed.ends_with("invalid token"), "{closed}");
    close(client.0.into_inner());
    let lines = stop(server);
    for words in [
        format!(r#"published to "odd\nname": offset 1, 12 bytes, by client {id}"#),
        format!(
            r#": subscribe "nope:a" refused: 102 the channel's namespace is not configured ([[channel.namespaces]]) (client {id}, anonymous)"#
        ),
        format!(" connected: client {id}, anonymous"),
        format!(": history refused: 112 unrecoverable position (client {id}, anonymous)"),
        format!(
            ": refresh refused: 3500 the token does not have three parts with dots between them (client {id}, anonymous)"
        ),
    ] {
        one_line_with(&lines, &words);
    }
    one_line_with(&lines, "closed: invalid_token");
}

#[test]
fn an_anonymous_client_that_may_not_connect_is_named_with_the_cause() {
    let server = Server::start(&["--anonymous=false", "--drain", "0s", "--log", "debug"]);
    let mut client = Client::open(&server);
    let closed = client.ask(CONNECT);
    assert!(closed.ends_with("bad request"), "{closed}");
    close(client.0.into_inner());
    let lines = stop(server);
    one_line_with(
        &lines,
        "connect refused: 3501 anonymous clients may not connect: show a token, start the server with --anonymous",
    );
    one_line_with(&lines, "closed: bad_request");
}

#[test]
fn without_debug_only_refusals_are_said() {
    let server = start("info");
    for _ in 0..20 {
        let (stream, answer) = server.upgrade("/raw");
        assert!(answer.contains("400"), "{answer}");
        close(stream);
    }
    let mut client = Client::open(&server);
    client.ask(CONNECT);
    client.ask(r#"{"id":2,"publish":{"channel":"news","data":1}}"#);
    client.ask(r#"{"id":3,"subscribe":{"channel":"nope:a"}}"#);
    drop(client);
    let lines = stop(server);
    for line in &lines {
        for words in [" accepted", "upgraded", "published", "suppressed", "closed"] {
            assert!(!line.contains(words), "{line}");
        }
    }
    let told = lines.iter().filter(|line| {
        line.contains("WARN") && line.contains(" refused: 400 channel (from 127.0.0.1)")
    });
    let more = lines.iter().filter_map(|line| {
        let (_, count) = line.split_once("refused (channel) ")?;
        count.split_whitespace().next()?.parse::<usize>().ok()
    });
    // Each has a line or is counted, even if they took several seconds.
    assert_eq!(told.count() + more.sum::<usize>(), 20, "{lines:#?}");
    one_line_with(
        &lines,
        r#": subscribe "nope:a" refused: 102 the channel's namespace is not configured"#,
    );
}

/// A server whose variables say what clients may do.
fn start_with(level: &str, variables: &[(&str, &str)]) -> Server {
    let mut command = support::myriad(&[]);
    command.envs(variables.iter().copied());
    Server::start_with(command, &["--shards", "1", "--drain", "0s", "--log", level])
}

#[test]
fn a_refused_command_names_the_option_that_is_missing() {
    let variables = [
        (
            "MYRIAD_CHANNEL_WITHOUT_NAMESPACE_ALLOW_SUBSCRIBE_FOR_CLIENT",
            "true",
        ),
        (
            "MYRIAD_CHANNEL_WITHOUT_NAMESPACE_ALLOW_PUBLISH_FOR_ANONYMOUS",
            "true",
        ),
        (
            "MYRIAD_CHANNEL_WITHOUT_NAMESPACE_PUBLICATION_DATA_FORMAT",
            "json_object",
        ),
    ];
    for level in ["info", "debug"] {
        let server = start_with(level, &variables);
        let mut client = Client::open(&server);
        client.ask(CONNECT);
        for (command, code) in [
            (r#"{"id":2,"subscribe":{"channel":"a"}}"#, "103"),
            (r#"{"id":3,"publish":{"channel":"a","data":{}}}"#, "103"),
            (r#"{"id":4,"publish":{"channel":"a","data":7}}"#, "107"),
            (r#"{"id":5,"history":{"channel":"a"}}"#, "108"),
            (r#"{"id":6,"presence":{"channel":"a"}}"#, "108"),
            (r#"{"id":7,"subscribe":{"channel":"$a"}}"#, "103"),
            (r#"{"id":8,"rpc":{"method":"m"}}"#, "108"),
        ] {
            let answer = client.ask(command);
            assert!(answer.contains(code), "{answer}");
        }
        drop(client);
        let lines = stop(server);
        for words in [
            r#"subscribe "a" refused: 103 the client is anonymous, and its namespace lacks allow_subscribe_for_anonymous"#,
            r#"publish "a" refused: 103 its namespace does not allow it to this client: allow_publish_for_client, or allow_publish_for_subscriber"#,
            r#"publish "a" refused: 107 the data is no JSON object (publication_data_format = "json_object")"#,
            r#"history "a" refused: 108 its namespace keeps no history (history_size, history_ttl)"#,
            r#"presence "a" refused: 108 its namespace has no members to read (presence)"#,
            r#"subscribe "$a" refused: 103 the channel is private ($)"#,
            r#"rpc refused: 108 it cannot be carried out: "not available""#,
        ] {
            let line = one_line_with(&lines, words);
            let names_module = line.contains("DEBUG myriad::connections: connection ");
            assert_eq!(names_module, level == "debug", "{line}");
        }
    }
}

#[test]
fn the_debug_log_says_who_connected_and_subscribed() {
    let server = start("debug");
    let mut client = Client::open(&server);
    let connected = client.ask(CONNECT);
    let (_, id) = connected.split_once(r#""client":""#).expect("a client");
    let (id, _) = id.split_once('"').expect("a whole id");
    client.ask(r#"{"id":2,"subscribe":{"channel":"odd\nname"}}"#);
    close(client.0.into_inner());
    let lines = stop(server);
    for words in [
        format!(" connected: client {id}, anonymous"),
        format!(r#" subscribed to "odd\nname" (client {id})"#),
        format!(" closed: client (client {id}, anonymous)"),
    ] {
        one_line_with(&lines, &words);
    }
}

#[test]
fn what_the_server_ends_is_said_and_counted_at_the_end() {
    let server = start("info");
    let mut client = Client::open(&server);
    client.ask(CONNECT);
    // Text that is not UTF-8.
    let mut stream = client.0.into_inner();
    stream
        .write_all(&[0x81, 0x81, 0, 0, 0, 0, 0xff])
        .expect("it is open");
    close(stream);
    close(server.upgrade("/raw?channel=a").0);
    let lines = stop(server);
    let line = one_line_with(&lines, " closed: invalid_payload (client ");
    assert!(
        line.contains("INFO") && line.contains(", anonymous)"),
        "{line}"
    );
    one_line_with(
        &lines,
        "2 connections ended in this run: 1 invalid_payload, 1 client",
    );
}

#[test]
fn lines_can_be_json() {
    let server = Server::start(&[
        "--log-format",
        "json",
        "--log",
        "warn,refusals=info",
        "--drain",
        "0s",
    ]);
    close(server.upgrade("/raw").0);
    let lines = stop(server);
    let line = one_line_with(&lines, "refused: 400 channel");
    assert!(
        line.starts_with('{') && line.contains(r#""level":"WARN""#),
        "{line}"
    );
    assert!(line.contains(r#""target":"myriad::refusals""#), "{line}");
}

/// Each event has its line or is counted, however long the burst takes.
#[test]
fn what_a_burst_has_no_lines_for_is_counted() {
    let server = start("debug");
    // With their ends, 2 events each.
    for _ in 0..BURST {
        drop(server.connect());
    }
    // The events of all of them have been noted when a later one is answered.
    talk(&server);
    let lines = stop(server);
    let shown = lines
        .iter()
        .filter(|line| line.ends_with(" accepted") && !line.contains("suppressed"))
        .count();
    let suppressed: usize = lines
        .iter()
        .filter_map(|line| {
            let (_, kinds) = line.split_once("suppressed: ")?;
            let kind = kinds.split(", ").find(|kind| kind.ends_with(" accepted"))?;
            let number = kind.split_whitespace().next()?.replace(',', "");
            number.parse::<usize>().ok()
        })
        .sum();
    // Those of `talk` are three.
    assert_eq!(shown + suppressed, BURST + 3, "{lines:#?}");
    assert!(suppressed > 0, "{lines:#?}");
}
