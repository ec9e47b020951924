//! A program with the commands the demonstration starts, for its tests: a server that is always healthy
//! and a crowd that reads its lines from a script instead of opening connections.
//!
//! `STAND_IN` says how they behave: nothing for a good run, `server-dies`, `crowd-dies`, `misses-one`,
//! or `hangs` (the crowd connects and then says nothing more). With `STAND_IN_PIDS` each writes its process
//! id to a file in that directory, and the crowd waits after connecting until a file `measured` is there: a
//! real one is still running when its memory is looked at. SIGTERM ends both, by default action.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let behaviour = std::env::var("STAND_IN").unwrap_or_default();
    match words.as_slice() {
        ["demo", "--attached-to", parent, "--", ..] => {
            let parent = parent.parse().expect("a process id");
            let error = myriad_demo::process::attach(parent, &arguments[4..]);
            panic!("could not become the child: {error}");
        }
        ["serve", "--dev", "--listen", address, ..] => serve(address, &behaviour),
        ["swarm", _target, "--connections", connections, ..] => swarm(connections, &behaviour),
        other => panic!("the stand-in was called with {other:?}"),
    }
}

fn note_process(name: &str) {
    if let Ok(directory) = std::env::var("STAND_IN_PIDS") {
        let path = Path::new(&directory).join(name);
        std::fs::write(path, std::process::id().to_string()).expect("the test made the directory");
    }
}

fn serve(address: &str, behaviour: &str) {
    if behaviour == "server-dies" {
        eprintln!("cannot listen on {address}: address in use");
        std::process::exit(1);
    }
    note_process("server");
    let listener = TcpListener::bind(address).expect("the demonstration chose a free port");
    eprintln!("listening on {address}");
    for stream in listener.incoming() {
        let mut stream = stream.expect("the test's own connection");
        let mut request = [0; 1024];
        let _ = stream.read(&mut request);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

fn swarm(connections: &str, behaviour: &str) {
    note_process("crowd");
    let connections: u64 = connections.parse().expect("a number");
    say(r#"{"event":"phase","phase":"connecting"}"#);
    if behaviour == "crowd-dies" {
        eprintln!("error: no route to the server");
        std::process::exit(3);
    }
    for tenth in 1..=10 {
        let connected = connections * tenth / 10;
        say(&format!(
            r#"{{"event":"progress","connected":{connected},"connections_wanted":{connections},"setup_rate_per_s":1000.0,"errors":{{}}}}"#
        ));
    }
    say(r#"{"event":"phase","phase":"connected"}"#);
    if behaviour == "hangs" {
        note_process("hanging");
        loop {
            std::thread::park();
        }
    }
    wait_until_measured();
    say(r#"{"event":"phase","phase":"pushing"}"#);
    for sequence in 1..=3 {
        let received = if behaviour == "misses-one" && sequence == 2 {
            connections - 1
        } else {
            connections
        };
        say(&format!(
            r#"{{"event":"push","sequence":{sequence},"expected":{connections},"received":{received},"reach":1.0,"first_ms":0.5,"p50_ms":5.0,"p90_ms":9.0,"p99_ms":9.9,"p999_ms":10.0,"last_ms":10.5}}"#
        ));
    }
    say(r#"{"event":"phase","phase":"draining"}"#);
    say(r#"{"event":"done"}"#);
}

fn wait_until_measured() {
    let Ok(directory) = std::env::var("STAND_IN_PIDS") else {
        return;
    };
    let measured = Path::new(&directory).join("measured");
    while !measured.exists() {
        std::thread::yield_now();
    }
}

/// A line, written through at once: standard output is a pipe here.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("the demonstration reads to the end");
}
