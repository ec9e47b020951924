//! Both planes read a request the same way: what one refuses, the other refuses with the same status.
//!
//! Where two readers of one stream disagree, a stranger can hide a request inside another.

use crate::support::{Http, head, metric, on_both_drivers, options, start};
use myriad_server::Options;
use std::net::SocketAddr;

/// Heads that only differ in what is checked for every request. `{line}` stands for `METHOD TARGET VERSION`.
const HEADS: [(&str, u16); 26] = [
    ("{line}\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nhost: b\r\n\r\n", 400),
    ("{line}\r\nHost: a b\r\n\r\n", 400),
    ("{line}\r\nHost: a/b\r\n\r\n", 400),
    ("{line}\r\nHost: a:port\r\n\r\n", 400),
    ("{line}\r\nHost: user@a\r\n\r\n", 400),
    ("{line}\r\nHost: [::1\r\n\r\n", 400),
    ("{line}\nHost: a\r\n\r\n", 400),
    ("{line}\r\nHost: a\n\r\n", 400),
    ("{line}\r\nHost: a\r\n\n", 400),
    ("{line}\r\nHost : a\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\n folded\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nx: \0\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nx: \rb\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nno colon\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400),
    ("{line}\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400),
    (
        "{line}\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        400,
    ),
    (
        "{line}\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    (
        "{line}\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        400,
    ),
    ("{line}\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (
        "{line}\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        501,
    ),
    (
        "{line}\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        501,
    ),
    ("{line} \r\nHost: a\r\n\r\n", 400),
    ("{line}#fragment HTTP/1.1\r\nHost: a\r\n\r\n", 400),
];

/// The head for one target; the fragment is put behind the target instead of the version.
fn written(template: &str, target: &str) -> String {
    let line = if template.contains('#') {
        format!("GET {target}")
    } else {
        format!("GET {target} HTTP/1.1")
    };
    template.replace("{line}", &line)
}

#[track_caller]
fn check_verdict(http: &mut Http, request: &str, expected: u16) {
    http.send_anyway(request.as_bytes());
    let answer = http.answer();
    assert_eq!(answer.status, expected, "{request:?}: {answer:?}");
    assert_eq!(answer.header("connection"), Some("close"), "{request:?}");
    assert!(http.ended(), "{request:?}");
}

/// On a new connection, and behind a good request.
fn check_control_plane(address: SocketAddr, request: &str, expected: u16) {
    check_verdict(&mut Http::connect(address), request, expected);
    let mut http = Http::connect(address);
    http.send(head("GET", "/healthz", "").as_bytes());
    assert_eq!(http.answer().status, 200);
    check_verdict(&mut http, request, expected);
    // Sent together.
    let mut http = Http::connect(address);
    http.send(head("GET", "/healthz", "").as_bytes());
    http.send_anyway(request.as_bytes());
    assert_eq!(http.answer().status, 200);
    assert_eq!(http.answer().status, expected, "{request:?}");
}

on_both_drivers! {
    fn both_planes_refuse_the_same_heads(driver) {
        let shared = start(options(driver));
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let apart = start(Options { internal_listen: internal, ..options(driver) });
        let internal = apart.internal_address().expect("an internal address");
        for (template, expected) in HEADS {
            for target in ["/healthz", "/nothing", "/api/publish", "http://a/healthz"] {
                let request = written(template, target);
                check_control_plane(shared.address(), &request, expected);
                check_control_plane(internal, &request, expected);
            }
            // Streams are the shards' own, on both servers.
            let request = written(template, "/raw?channel=c");
            check_verdict(&mut Http::connect(shared.address()), &request, expected);
            check_verdict(&mut Http::connect(apart.address()), &request, expected);
        }
    }

    fn both_planes_refuse_a_target_of_another_host(driver) {
        let server = start(options(driver));
        for path in ["/healthz", "/metrics", "/nothing"] {
            for target in ["http://evil", "http://a:8001", "http://a@evil", "http://"] {
                let request = format!("GET {target}{path} HTTP/1.1\r\nHost: a\r\n\r\n");
                check_control_plane(server.address(), &request, 400);
            }
        }
        // With --dev pages of the server's own host are let in, and the target says which host that is.
        let request = "GET http://evil/raw?channel=c HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\n\r\n";
        check_verdict(&mut Http::connect(server.address()), request, 400);
        let refused = "myriad_upgrades_refused_total{reason=\"host\"}";
        assert!(metric(server.address(), refused) > 0, "{refused}");
    }

    fn what_old_clients_and_proxies_send_is_served(driver) {
        let server = start(options(driver));
        for request in [
            "GET /healthz HTTP/1.0\r\n\r\n",
            "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "GET http://anything:80/healthz HTTP/1.1\r\nHost: anything\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost:\r\n\r\n",
            "\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        ] {
            let mut http = Http::connect(server.address());
            http.send(request.as_bytes());
            assert_eq!(http.answer().status, 200, "{request:?}");
        }
        let mut http = Http::connect(server.address());
        http.send(b"HEAD /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(http.all().starts_with("HTTP/1.1 200 "));
    }

    fn ten_thousand_requests_sent_together_are_answered(driver) {
        const REQUESTS: usize = 10_000;
        let server = start(options(driver));
        let mut http = Http::connect(server.address());
        let mut sender = http.sender();
        let sender = std::thread::spawn(move || {
            let requests = head("GET", "/healthz", "").repeat(REQUESTS);
            std::io::Write::write_all(&mut sender, requests.as_bytes()).expect("an open connection");
        });
        for _ in 0..REQUESTS {
            assert_eq!(http.answer().status, 200);
        }
        sender.join().expect("a sender without panic");
    }

    fn chunks_that_two_readers_may_read_differently_are_refused(driver) {
        let server = start(options(driver));
        let head = head("POST", "/api/publish", "Transfer-Encoding: chunked\r\n");
        let long = format!("1;{}\r\n", "x".repeat(5_000));
        for body in ["1;\0\r\n{\r\n0\r\n\r\n", "1\n{\n0\n\n", "0x1\r\n{\r\n0\r\n\r\n", "1\r\n{}\r\n0\r\n\r\n", "0\r\na b: c\r\n\r\n", &long] {
            let mut http = Http::connect(server.address());
            http.send(format!("{head}{body}").as_bytes());
            let answer = http.answer();
            assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
            assert!(answer.body.contains("\"code\":\"body\""), "{body:?}: {answer:?}");
            assert_eq!(answer.header("connection"), Some("close"), "{body:?}");
            assert!(http.ended());
        }
    }
}
