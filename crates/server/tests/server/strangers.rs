//! What pages of strangers, and strangers themselves, are kept from: acting for a visitor, a development server, the metrics.

use crate::routes::upgrade;
use crate::support::{
    Answer, Http, get, head, on_both_drivers, options, request, start, with_file,
};
use myriad_server::{DriverChoice, Options};
use std::net::SocketAddr;

/// A server that is not for development, with every transport.
fn served(driver: DriverChoice) -> Options {
    let text = "anonymous = true\n[http_stream]\nenabled = true\n[sse]\nenabled = true\n[uni_sse]\nenabled = true\n\
                [uni_http_stream]\nenabled = true\n[uni_websocket]\nenabled = true\n\
                [channel.without_namespace]\nallow_subscribe_for_client = true\nallow_subscribe_for_anonymous = true\n\
                allow_publish_for_client = true\nallow_publish_for_anonymous = true\nhistory_size = 9\nhistory_ttl = \"9s\"\n";
    Options {
        dev: None,
        allowed_origins: None,
        ..with_file(text, options(driver))
    }
}

/// The first bytes of an answer that may go on.
fn asked(address: SocketAddr, method: &str, target: &str, headers: &str, body: &str) -> Answer {
    let mut http = Http::connect(address);
    let length = format!("{headers}Content-Length: {}\r\n", body.len());
    http.send(head(method, target, &length).as_bytes());
    http.send(body.as_bytes());
    http.answer()
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

const EVIL: &str = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";

/// The status of each way to connect, with these headers.
fn statuses(address: SocketAddr, headers: &str) -> Vec<(&'static str, u16)> {
    let connect = r#"{"id":1,"connect":{}}"#;
    let get = |path: &str, message: &str| format!("{path}?cf_connect={}", encoded(message));
    let mut statuses = Vec::new();
    for path in [
        "/raw?channel=c",
        "/connection/websocket",
        "/connection/uni_websocket",
    ] {
        statuses.push((path, upgrade(address, path, headers).status));
    }
    for (path, message) in [
        ("/connection/sse", connect),
        ("/connection/http_stream", connect),
        ("/connection/uni_sse", "{}"),
        ("/connection/uni_http_stream", "{}"),
        ("/emulation", "{}"),
    ] {
        let answer = asked(address, "POST", path, headers, message);
        statuses.push((path, answer.status));
    }
    for (path, message) in [("/connection/sse", connect), ("/connection/uni_sse", "{}")] {
        let target = get(path, message);
        let answer = asked(address, "GET", &target, headers, "");
        statuses.push((path, answer.status));
    }
    let stream = "/v1/stream/c";
    statuses.push((stream, request(address, "GET", stream, headers, "").status));
    statuses.push((
        stream,
        request(address, "POST", stream, headers, "[1]").status,
    ));
    statuses
}

on_both_drivers! {
    fn a_page_of_a_stranger_is_refused_by_every_transport(driver) {
        let closed = start(served(driver));
        for (path, status) in statuses(closed.address(), EVIL) {
            assert_eq!(status, 403, "{path}");
        }
        for headers in ["", "Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\n"] {
            for (path, status) in statuses(closed.address(), headers) {
                assert_ne!(status, 403, "{path} {headers}");
            }
        }
        let any = Some(vec!["*".parse().expect("an origin")]);
        let open = start(Options { allowed_origins: any, ..served(driver) });
        for (path, status) in statuses(open.address(), EVIL) {
            assert_ne!(status, 403, "{path}: * lets every page in");
        }
    }

    fn a_get_does_not_act(driver) {
        let server = start(served(driver));
        let address = server.address();
        // An image in a page: no Origin, and the browser says where it comes from. On a plain address of HTTP it does not.
        let publish = r#"{"id":3,"publish":{"channel":"c","data":"evil"}}"#;
        let subscribe = r#"{"id":2,"subscribe":{"channel":"c"}}"#;
        let rpc = r#"{"id":3,"rpc":{"method":"pay"}}"#;
        for headers in ["Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: image\r\n", "", "Sec-Fetch-Site: same-origin\r\n"] {
            for (behind, status) in [(publish, 405), (rpc, 405), (subscribe, 200)] {
                let message = format!("{{\"id\":1,\"connect\":{{}}}}\n{behind}");
                let target = format!("/connection/sse?cf_connect={}", encoded(&message));
                let answer = asked(address, "GET", &target, headers, "");
                assert_eq!(answer.status, status, "{behind} {headers}");
            }
        }
        let stored = request(address, "GET", "/v1/stream/c?offset=-1", "", "");
        assert!(!stored.body.contains("evil"), "{stored:?}");
    }

    fn a_development_server_answers_to_names_of_this_machine(driver) {
        let listed = Some(vec!["http://myriad.internal.test:*".parse().expect("an origin")]);
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let one = start(Options { allowed_origins: listed.clone(), ..options(driver) });
        let two = start(Options { allowed_origins: listed, internal_listen: internal, ..options(driver) });
        let apart = two.internal_address().expect("an address of the API");
        let ask = |address: SocketAddr, target: &str, host: &str| {
            let mut http = Http::connect(address);
            http.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
            http.answer()
        };
        for (address, targets) in [
            (one.address(), &["/", "/healthz", "/metrics", "/v1/stream/c", "/nothing"][..]),
            (two.address(), &["/v1/stream/c", "/healthz"]),
            (apart, &["/", "/healthz", "/metrics", "/v1/stream/c"]),
        ] {
            for target in targets {
                for host in ["evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"] {
                    let answer = ask(address, target, host);
                    assert_eq!(answer.status, 403, "{host} {target}: {answer:?}");
                    assert!(answer.body.contains("127.0.0.1"), "{answer:?}");
                }
                for host in ["localhost:8000", "127.0.0.1", "[::1]:1", "192.0.2.7:8000", "myriad.internal.test"] {
                    assert_ne!(ask(address, target, host).status, 403, "{host} {target}");
                }
            }
        }
        // A page whose name resolves to this machine is of the same host, for its browser.
        let rebound = "Origin: http://evil.example:8000\r\n";
        let request = head("POST", "/api/publish", &format!("{rebound}Content-Length: 2\r\n"));
        let mut http = Http::connect(one.address());
        http.send(request.replace("Host: localhost", "Host: evil.example:8000").as_bytes());
        http.send(b"{}");
        assert_eq!(http.answer().status, 403);
        // Where the API is open without --dev, names of other machines are for programs only.
        let open = start(with_file("[http_api]\ninsecure = true", served(driver)));
        for (headers, is_refused) in [(rebound, true), ("", false)] {
            let request = head("POST", "/api/publish", &format!("{headers}Content-Length: 2\r\n"));
            let mut http = Http::connect(open.address());
            http.send(request.replace("Host: localhost", "Host: evil.example:8000").as_bytes());
            http.send(b"{}");
            assert_eq!(http.answer().status == 403, is_refused, "{headers}");
        }
    }

    fn metrics_are_for_those_who_have_a_key_or_are_here(driver) {
        let text = "[[http_api.keys]]\nname = \"scraper\"\nkey = \"metrics-only\"\nmethods = [\"info\"]\n\
                    [[http_api.keys]]\nname = \"chat\"\nkey = \"publishes-only\"\nmethods = [\"publish\"]\n\
                    [[http_api.keys]]\nname = \"some\"\nkey = \"of-a-namespace\"\nnamespaces = [\"\"]\n";
        let server = start(with_file(text, served(driver)));
        let address = server.address();
        let status = |headers: &str| request(address, "GET", "/metrics", headers, "").status;
        assert_eq!(status(""), 200, "this machine asks for itself");
        for proxy in [
            "X-Forwarded-For: 198.51.100.7\r\n",
            "Forwarded: for=198.51.100.7\r\n",
            "Via: 1.1 proxy\r\n",
            "X-Real-IP: 198.51.100.7\r\n",
        ] {
            assert_eq!(status(proxy), 401, "{proxy}");
            assert_eq!(status(&format!("{proxy}X-API-Key: metrics-only\r\n")), 200, "{proxy}");
            assert_eq!(status(&format!("{proxy}Authorization: apikey metrics-only\r\n")), 200, "{proxy}");
            assert_eq!(status(&format!("{proxy}X-API-Key: wrong\r\n")), 401, "{proxy}");
            for key in ["publishes-only", "of-a-namespace"] {
                assert_eq!(status(&format!("{proxy}X-API-Key: {key}\r\n")), 403, "{key}");
            }
        }
        let mut rebound = Http::connect(address);
        rebound.send(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert_eq!(rebound.answer().status, 401);
        let public = Options { public_metrics: Some(true), ..served(driver) };
        let public = start(public);
        let stranger = "X-Forwarded-For: 198.51.100.7\r\n";
        assert_eq!(request(public.address(), "GET", "/metrics", stranger, "").status, 200);
    }

    fn the_clients_address_has_a_health_for_balancers(driver) {
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = start(Options { internal_listen: internal, ..served(driver) });
        let answer = get(server.address(), "/healthz");
        assert_eq!((answer.status, &*answer.body), (200, r#"{"status":"ok"}"#));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(get(server.address(), "/metrics").status, 404);
        let apart = server.internal_address().expect("an address of the API");
        assert_eq!(request(apart, "GET", "/metrics", "X-Forwarded-For: 198.51.100.7\r\n", "").status, 200);
        assert!(get(apart, "/healthz").body.contains("version"));
    }

    fn metrics_come_in_the_format_that_is_asked_for(driver) {
        let server = start(options(driver));
        let read = |accept: &str| request(server.address(), "GET", "/metrics", accept, "");
        let plain = read("Accept: text/plain;version=0.0.4\r\n");
        assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(plain.body.contains("\n# TYPE myriad_accepts_total counter\nmyriad_accepts_total "), "{}", plain.body);
        assert!(!plain.body.contains("# EOF") && !plain.body.contains("# UNIT"));
        let version = env!("CARGO_PKG_VERSION");
        // The program gives its commit to the server. There is no program here.
        let build = format!("\nmyriad_build_info{{version=\"{version}\",commit=\"unknown\"}} 1\n");
        assert!(plain.body.contains(&build));
        assert!(plain.body.contains("\nmyriad_config_last_reload_successful 1\n"));
        let open = read("");
        assert!(open.body.contains("# TYPE myriad_accepts counter") && open.body.ends_with("# EOF\n"));
    }

    fn a_head_may_have_many_lines_and_large_cookies(driver) {
        let server = start(served(driver));
        let with = |lines: usize, bytes: usize| {
            let cookie = format!("Cookie: c={}\r\n", "x".repeat(bytes));
            "X-Trace: 1\r\n".repeat(lines) + &cookie
        };
        for (lines, bytes, status) in [(100, 20 << 10, 101), (130, 0, 431), (0, 33 << 10, 431)] {
            let answer = upgrade(server.address(), "/raw?channel=c", &with(lines, bytes));
            assert_eq!(answer.status, status, "{lines} {bytes}");
            // The control plane judges alike.
            let answer = request(server.address(), "GET", "/healthz", &with(lines, bytes), "");
            assert_eq!(answer.status, if status == 101 { 200 } else { status }, "{lines} {bytes}");
        }
        let text = "head-bytes-max = \"4KiB\"\nhead-lines-max = 16";
        let server = start(with_file(text, served(driver)));
        for (lines, bytes, status) in [(10, 3 << 10, 101), (17, 0, 431), (0, 4 << 10, 431)] {
            let answer = upgrade(server.address(), "/raw?channel=c", &with(lines, bytes));
            assert_eq!(answer.status, status, "{lines} {bytes}");
        }
    }

    fn a_preflight_allows_what_a_page_wants_to_send(driver) {
        let listed = Some(vec!["https://app.example".parse().expect("an origin")]);
        let server = start(Options { allowed_origins: listed, ..served(driver) });
        let names = "authorization,cache-control,last-event-id,traceparent,x-requested-with";
        let headers = format!("Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: {names}\r\n");
        for path in ["/v1/stream/c", "/connection/sse", "/connection/http_stream", "/connection/uni_sse", "/emulation"] {
            let answer = request(server.address(), "OPTIONS", path, &headers, "");
            assert_eq!(answer.status, 204, "{path}");
            assert_eq!(answer.header("access-control-allow-headers"), Some(names), "{path}");
        }
    }
}
