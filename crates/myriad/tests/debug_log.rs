//! What `serve --log debug` says of single connections and publications.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use support::{SIGTERM, Server};

/// More connections than a second has lines for, even if they take several seconds.
const BURST: usize = 1_500;

/// A server of one shard.
fn start(level: &str) -> Server {
    Server::start(&[
        "--shards",
        "1",
        "--max-connections",
        "3k",
        "--drain",
        "0s",
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

#[test]
fn without_debug_nothing_is_said() {
    let server = start("info");
    talk(&server);
    for line in stop(server) {
        for words in ["connection 0:", "published", "suppressed"] {
            assert!(!line.contains(words), "{line}");
        }
    }
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
