//! What signals do to a server: the first drains it, the second ends it at once.

mod support;

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use support::{SIGINT, SIGTERM, Server};

/// With a drain that no test can wait for.
fn start() -> Server {
    Server::start(&["--drain", "1h"])
}

#[test]
fn an_idle_server_stops_at_the_first_signal() {
    for signal in [SIGINT, SIGTERM] {
        let server = start();
        server.signal(signal);
        let (status, _) = server.wait();
        assert_eq!((status.code(), status.signal()), (Some(0), None));
    }
}

/// Frames of the server's have no mask: the data stands in them as it is.
#[test]
fn who_is_left_is_told_what_is_published_after_the_signal() {
    for driver in ["io_uring", "epoll"] {
        let server = Server::start(&["--drain", "1h", "--driver", driver]);
        let mut clients = [(); 3].map(|()| server.upgrade("/raw?channel=c").0);
        server.signal(SIGTERM);
        server.wait_for_line("draining");
        let answer = server.post("/api/publish", r#"{"channel":"c","data":"told"}"#);
        assert!(answer.contains("offset"), "{answer}");
        for client in &mut clients {
            let mut told = Vec::new();
            while !told.ends_with(b"told") {
                let mut byte = [0];
                client.read_exact(&mut byte).expect("a frame");
                told.push(byte[0]);
            }
        }
        drop(clients);
        let (status, _) = server.wait();
        assert_eq!(status.code(), Some(0));
    }
}

/// They take nothing, and do not end their side.
#[test]
fn clients_that_stay_do_not_keep_the_server() {
    for driver in ["io_uring", "epoll"] {
        let server = Server::start(&["--drain", "300ms", "--driver", driver]);
        let clients = [(); 3].map(|()| server.upgrade("/raw?channel=c").0);
        server.signal(SIGTERM);
        let (status, _) = server.wait();
        assert_eq!(status.code(), Some(0));
        drop(clients);
    }
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    for signal in [SIGINT, SIGTERM] {
        let server = start();
        let clients = [(); 3].map(|()| {
            let (stream, answer) = server.upgrade("/raw?channel=c");
            assert_eq!(answer, "HTTP/1.1 101");
            stream
        });
        server.signal(SIGINT);
        server.wait_for_line("another signal ends the server at once");
        server.signal(signal);
        let (status, _) = server.wait();
        assert_eq!((status.code(), status.signal()), (Some(1), None));
        drop(clients);
    }
}
