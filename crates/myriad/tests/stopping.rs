//! What signals do to a server: the first drains it, the second ends it at once.

mod support;

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
