//! Connections that begin at a shard and belong to the control plane.

use crate::support::{
    Http, get, head, metric, next_text, on_both_drivers, options, publish, publish_ok, start,
    until, websocket,
};
use myriad_server::Options;
use std::net::SocketAddr;

const BODY: &str = r#"{"channel": "c", "data": "split"}"#;

fn publish_request() -> String {
    head(
        "POST",
        "/api/publish",
        &format!("Content-Length: {}\r\n", BODY.len()),
    ) + BODY
}

on_both_drivers! {
    fn nothing_is_lost_wherever_the_request_is_split(driver) {
        let server = start(options(driver));
        let mut client = websocket(server.address(), "/raw?channel=c");
        let request = publish_request();
        // All splits in parallel: each connection waits for its second half while others go through.
        let mut halves: Vec<_> = (1..request.len())
            .map(|at| {
                let mut http = Http::connect(server.address());
                http.send(&request.as_bytes()[..at]);
                (http, &request.as_bytes()[at..])
            })
            .collect();
        for (http, rest) in &mut halves {
            http.send(rest);
        }
        for (http, _) in &mut halves {
            let answer = http.answer();
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        for _ in &halves {
            assert_eq!(next_text(&mut client), "split");
        }
    }

    fn a_connection_is_kept_for_further_requests(driver) {
        let server = start(options(driver));
        let mut http = Http::connect(server.address());
        for _ in 0..3 {
            http.send(publish_request().as_bytes());
            assert_eq!(http.answer().status, 200);
        }
        // The shard counts after it has handed over, which may be after the answer.
        until("the one hand-over is counted", || {
            http.send(head("GET", "/metrics", "").as_bytes());
            http.answer().body.contains("\nmyriad_hand_overs_total 1\n")
        });
    }

    fn requests_sent_together_are_answered_in_order(driver) {
        let server = start(options(driver));
        let mut http = Http::connect(server.address());
        let requests = head("GET", "/healthz", "") + &publish_request() + &head("GET", "/nothing", "");
        http.send(requests.as_bytes());
        let statuses = [http.answer().status, http.answer().status, http.answer().status];
        assert_eq!(statuses, [200, 200, 404]);
    }

    fn an_address_for_clients_alone_lets_pages_read_streams_and_says_where_the_rest_goes(driver) {
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = start(Options { internal_listen: internal, ..options(driver) });
        let asks = "Access-Control-Request-Method: GET\r\n\
                    Access-Control-Request-Headers: authorization\r\n";
        let mut http = Http::connect(server.address());
        http.send(head("OPTIONS", "/v1/stream/news", asks).as_bytes());
        let answer = http.answer();
        assert_eq!((answer.status, answer.header("access-control-allow-methods")), (204, Some("GET, OPTIONS")));
        assert!(answer.header("access-control-allow-headers").is_some_and(|sent| sent.contains("authorization")));
        for method in ["PUT", "POST", "DELETE"] {
            let mut http = Http::connect(server.address());
            http.send(head(method, "/v1/stream/news", "Content-Length: 0\r\n").as_bytes());
            let answer = http.answer();
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, OPTIONS")), "{method}");
            assert!(answer.body.contains("internal-listen"), "{}", answer.body);
        }
    }

    fn a_second_address_takes_the_api_off_the_first(driver) {
        let internal = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = start(Options { internal_listen: internal, ..options(driver) });
        let internal = server.internal_address().expect("an internal address");
        let mut client = websocket(server.address(), "/raw?channel=c");
        assert_eq!(publish(server.address(), BODY).status, 404);
        assert_eq!(get(server.address(), "/metrics").status, 404);
        publish_ok(internal, BODY);
        assert_eq!(next_text(&mut client), "split");
        assert_eq!(metric(internal, "myriad_hand_overs_total"), 0);
        // There are no streams there, on a kept connection neither.
        let mut http = Http::connect(internal);
        http.send(head("GET", "/raw?channel=c", "").as_bytes());
        let answer = http.answer();
        assert_eq!((answer.status, answer.header("upgrade")), (426, Some("websocket")));
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        http.send(head("GET", "/raw?channel=c", upgrade).as_bytes());
        let answer = http.answer();
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("address that clients use"), "{}", answer.body);
        assert_eq!(metric(internal, "myriad_hand_backs_total"), 0);
    }
}
