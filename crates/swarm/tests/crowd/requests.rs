//! Requests beside the crowd, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{Admission, Server, broadcast, drivers, run};
use myriad_swarm::{Config, Endpoint, Report, Requests, Threshold};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// An HTTP server whose n-th answer, from 0, is what `script` makes of the body; none ends the connection.
fn serve(script: impl Fn(u32, &str) -> Option<(u16, String)> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut input = Vec::new();
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                input.push(byte[0]);
                let Some(head) = input.windows(4).position(|four| four == b"\r\n\r\n") else {
                    continue;
                };
                // The body is 64 bytes in every request here.
                if input.len() < head + 4 + 64 {
                    continue;
                }
                let body = String::from_utf8(input.split_off(head + 4)).unwrap();
                input.clear();
                let answer = script(number, &body);
                number += 1;
                let Some((status, body)) = answer else { break };
                let length = body.len();
                let text = format!("HTTP/1.1 {status} S\r\ncontent-length: {length}\r\n\r\n{body}");
                if stream.write_all(text.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// 200 requests a second to the URLs in turn, until the crowd's push is over.
fn config(crowd: &Server, servers: &[SocketAddr]) -> Config {
    let mut config = crowd.config(drivers()[0], 1, 1);
    config.settle = Duration::from_secs(20);
    let endpoint = |address| Endpoint::parse(&format!("http://{address}/request")).unwrap();
    let mut requests = Requests::new(servers.iter().map(endpoint).collect(), 200.0);
    requests.connections = 1;
    requests.warmup = Duration::ZERO;
    config.requests = Some(requests);
    config
}

/// A crowd whose only push is answered when so many requests have been.
fn crowd(answered: Receiver<()>, enough: usize) -> Server {
    Server::start(
        1,
        |_| Admission::Upgrade,
        move |_, body, clients| {
            assert_eq!(answered.iter().take(enough).count(), enough);
            broadcast(clients, body);
            200
        },
    )
}

fn check(report: &Report) {
    let request = report.request.as_ref().unwrap();
    assert_eq!(request.sent, request.received + request.lost, "{report:#?}");
    assert!(report.echo.is_none());
}

#[test]
fn what_is_asked_is_answered_by_every_url_in_turn() {
    let (answer, answered) = channel();
    let echo = move |answer: Sender<()>| {
        serve(move |_, body: &str| {
            // The run is over when nobody counts any more.
            let _ = answer.send(());
            Some((200, body.to_owned()))
        })
    };
    let (one, two) = (echo(answer.clone()), echo(answer));
    let crowd = crowd(answered, 40);
    let mut config = config(&crowd, &[one, two]);
    config.thresholds = vec![
        Threshold::parse("request:lost<=0").unwrap(),
        Threshold::parse("request:received>=40").unwrap(),
    ];
    let report = run(&config);
    check(&report);
    assert!(report.thresholds.iter().all(|t| t.passed), "{report:#?}");
    assert!(report.errors.is_empty());
    assert!(report.request.unwrap().round_trip_ms.p99.is_some());
}

#[test]
fn wrong_and_missing_answers_are_told_apart_and_named() {
    let (answer, answered) = channel();
    let server = serve(move |number, body| {
        let _ = answer.send(());
        match number % 4 {
            0 => Some((200, body.to_owned())),
            1 => Some((503, "full".to_owned())),
            2 => Some((200, format!("{body}{}", "x".repeat(100_000)))),
            _ => None,
        }
    });
    let report = run(&config(&crowd(answered, 20), &[server]));
    check(&report);
    let request = report.request.as_ref().unwrap();
    assert!(request.received > 0 && request.errors > 0);
    let errors = &report.errors;
    assert_eq!(
        request.errors,
        errors["request_503"] + errors["request_wrong"]
    );
    assert_eq!(request.lost, request.errors + errors["request_unanswered"]);
    let url = format!("http://{server}/request");
    assert!(report.warnings.iter().any(|warning| warning.contains(&url)));
}
