//! What web pages may read of refusals about streams: a page that is let in reads the status, the words, and how to go on.

use crate::support::{
    Answer, Http, head, metric, next, on_both_drivers, options, publish_ok, request, start, until,
    websocket, with_file,
};
use myriad_server::{Count, DriverChoice, Options, Span};
use std::net::SocketAddr;
use std::time::Duration;

const PAGE: &str = "Origin: https://good.test\r\n";
const OTHER_PAGE: &str = "Origin: https://evil.test\r\n";
const STREAM: &str = "/v1/stream/s";

fn with(driver: DriverChoice, text: &str) -> Options {
    let listed = "https://good.test".parse().expect("an origin");
    Options {
        allowed_origins: Some(vec![listed]),
        ..with_file(text, options(driver))
    }
}

/// A browser gives the page this answer, with the headers that it names here.
#[track_caller]
fn check_readable(answer: &Answer, status: u16, exposed: &[&str]) {
    assert_eq!(answer.status, status, "{answer:?}");
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!(allowed, Some("*"), "{answer:?}");
    let names = answer.header("access-control-expose-headers");
    let names = names.unwrap_or_default().to_ascii_lowercase();
    let names: Vec<_> = names.split(", ").collect();
    for name in exposed {
        assert!(answer.header(name).is_some(), "{name}: {answer:?}");
        assert!(names.contains(name), "{name}: {answer:?}");
    }
    if status >= 400 {
        check_error(answer);
    }
}

/// Errors about streams have one form, and nothing in them is run.
#[track_caller]
fn check_error(answer: &Answer) {
    let body: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    let text = |name: &str| {
        body["error"][name]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    };
    assert!(text("code") && text("message"), "{answer:?}");
    for (name, expected) in [
        ("content-type", "application/json"),
        ("content-security-policy", "sandbox"),
        ("x-content-type-options", "nosniff"),
        ("stream-durability", "memory"),
    ] {
        assert_eq!(answer.header(name), Some(expected), "{answer:?}");
    }
    let schemes = (answer.status == 401).then_some("Bearer, apikey");
    assert_eq!(answer.header("www-authenticate"), schemes, "{answer:?}");
}

/// A browser tells the page nothing of this answer.
#[track_caller]
fn check_unreadable(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!(allowed, None, "{answer:?}");
    check_error(answer);
}

fn read(address: SocketAddr, query: &str, headers: &str) -> Answer {
    request(address, "GET", &format!("{STREAM}{query}"), headers, "")
}

/// A connection with a request from the page, whose answer is to be read.
fn asked(address: SocketAddr, target: &str) -> Http {
    let mut http = Http::connect(address);
    http.send(head("GET", target, PAGE).as_bytes());
    http
}

on_both_drivers! {
    fn a_page_reads_why_it_may_not_read_a_stream(driver) {
        let server = start(with(driver, "[channel.without_namespace]\nhistory_size = 2\nhistory_ttl = \"1m\"\n"));
        let address = server.address();
        check_readable(&read(address, "", PAGE), 404, &[]);
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        let first = read(address, "", PAGE);
        check_readable(&first, 200, &["stream-next-offset"]);
        for number in 2..=4 {
            publish_ok(address, &format!(r#"{{"channel": "s", "data": {number}}}"#));
        }
        let missed = format!("?offset={}", first.header("stream-next-offset").expect("an offset"));
        let gone = read(address, &missed, PAGE);
        check_readable(&gone, 410, &["stream-next-offset"]);
        let next = gone.header("stream-next-offset").expect("an offset");
        check_readable(&read(address, &format!("?offset={next}"), PAGE), 200, &["stream-next-offset"]);
        for (query, headers) in [
            ("?offset=", ""),
            ("?offset=-1&live=never", ""),
            ("?live=sse", ""),
            ("?offset=%ff", ""),
            // The rules of all requests.
            ("/%zz", ""),
            ("", "Content-Length: 0\r\n"),
        ] {
            check_readable(&read(address, query, &format!("{PAGE}{headers}")), 400, &[]);
        }
        check_readable(&read(address, "", &format!("{PAGE}Expect: x\r\n")), 417, &[]);
        let body = request(address, "GET", STREAM, PAGE, "body");
        check_readable(&body, 400, &[]);
        check_readable(&read(address, "?token=none", PAGE), 401, &[]);
        // Other programs come from no page, and are told the same.
        check_readable(&read(address, &missed, ""), 410, &["stream-next-offset"]);
        for query in ["", "?live=sse", "?offset=-1&live=never", "/%zz"] {
            let status = if query == "/%zz" { 400 } else { 403 };
            check_unreadable(&read(address, query, OTHER_PAGE), status);
        }
    }

    fn nothing_in_a_stream_is_run(driver) {
        let server = start(with(driver, ""));
        let address = server.address();
        let html = "Content-Type: text/html\r\n";
        assert_eq!(request(address, "PUT", STREAM, html, "<script>alert(1)</script>").status, 201);
        let mut events = asked(address, &format!("{STREAM}?offset=-1&live=sse"));
        let events = events.answer();
        for answer in [request(address, "GET", STREAM, "", ""), request(address, "PUT", STREAM, html, ""), events] {
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("content-security-policy"), Some("sandbox"), "{answer:?}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
        }
    }

    fn a_page_reads_that_its_held_request_has_ended(driver) {
        let server = start(with(driver, ""));
        let address = server.address();
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        let mut poll = asked(address, &format!("{STREAM}?offset=now&live=long-poll"));
        until("it is held", || metric(address, "myriad_parked_polls") == 1);
        assert_eq!(request(address, "DELETE", STREAM, "", "").status, 204);
        check_readable(&poll.answer(), 404, &[]);
        assert!(poll.ended());
        // What comes behind a held request is bounded.
        publish_ok(address, r#"{"channel": "s", "data": 1}"#);
        let mut poll = asked(address, &format!("{STREAM}?offset=now&live=long-poll"));
        poll.send_anyway(&vec![b'x'; 70_000]);
        check_readable(&poll.answer(), 429, &[]);
    }

    fn a_page_reads_who_may_read_a_stream(driver) {
        let text = "anonymous = true\n[http_api]\ninsecure = true\n[channel.without_namespace]\nhistory_size = 2\nhistory_ttl = \"1m\"\n";
        let file = |text: &str| Options { dev: None, ..with(driver, text) };
        let server = start(file(text));
        let address = server.address();
        // The channel of another stream is private.
        let private = |headers| request(address, "GET", "/v1/stream/$s", headers, "");
        check_readable(&private(PAGE), 403, &[]);
        check_unreadable(&private(OTHER_PAGE), 403);
        let server = start(file(&text.replace("anonymous = true\n", "")));
        check_readable(&read(server.address(), "", PAGE), 401, &[]);
    }

    fn a_page_reads_when_it_may_come_back(driver) {
        let server = start(Options { max_connections: Some(Count(1)), ..with(driver, "") });
        let address = server.address();
        let client = websocket(address, "/raw?channel=c");
        check_readable(&read(address, "", PAGE), 503, &["retry-after"]);
        check_unreadable(&read(address, "", OTHER_PAGE), 403);
        drop(client);
        server.stop();
        let server = start(with(driver, "client.connection_limit_per_address = 1"));
        let address = server.address();
        let client = websocket(address, "/raw?channel=c");
        check_readable(&read(address, "", PAGE), 429, &["retry-after"]);
        drop(client);
    }

    fn a_page_reads_that_the_server_shuts_down(driver) {
        let server = start(Options {
            drain: Some(Span(Duration::from_secs(3))),
            shards: Some(1),
            ..with(driver, "")
        });
        let address = server.address();
        // With two clients, the drain has a second half after the first has been told.
        let mut clients = [websocket(address, "/raw?channel=c"), websocket(address, "/raw?channel=c")];
        server.stopper().drain();
        let answers = std::thread::scope(|scope| {
            let told = clients.each_mut().map(|client| scope.spawn(|| next(client)));
            until("the drain has begun", || told.iter().any(|one| one.is_finished()));
            [read(address, "", PAGE), read(address, "", OTHER_PAGE)]
        });
        check_readable(&answers[0], 503, &["retry-after"]);
        check_unreadable(&answers[1], 403);
        drop(clients);
        server.stop();
    }
}
