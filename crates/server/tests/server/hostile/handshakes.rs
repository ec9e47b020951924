//! Handshakes that are slow, and clients that do not wait for their end.

use super::{
    SWITCHING, Scene, UPGRADE, check_end, check_next, close_frame, end_our_side, masked,
    read_switching, read_to_end, refusal, send,
};
use crate::support::{on_both_drivers, options, until};
use myriad_server::{Options, Span};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

const SLOW: &str = "The request head did not come in time: send it whole right after connecting.";

on_both_drivers! {
    fn slow_handshakes_by_the_thousand_leave_in_time(driver) {
        const SLOW_CLIENTS: u64 = 1_000;
        const HALF: &str = "GET /raw?channel=x HTTP/1.1\r\nHost: he";
        let mut scene = Scene::start(Options {
            handshake_timeout: Some(Span(Duration::from_secs(3))),
            ..options(driver)
        });
        let mut slow: Vec<_> = (0..SLOW_CLIENTS)
            .map(|_| {
                let mut stream = scene.connect();
                send(&mut stream, HALF);
                stream
            })
            .collect();
        // The bystander is served beside them, and whoever knows what it wants gets in.
        scene.check_bystander();
        drop(scene.upgraded("/raw?channel=x"));
        for stream in &mut slow {
            check_end(stream, refusal("408 Request Timeout", SLOW));
        }
        assert_eq!(scene.closes("handshake_timeout"), SLOW_CLIENTS);
        assert_eq!(scene.refusals("handshake_timeout"), SLOW_CLIENTS);
        until("nothing is kept", || scene.metric("myriad_buffered_bytes") == 0);
        drop(slow);
        scene.check_settled();
    }

    fn a_head_in_drips_has_one_deadline_for_all_of_it(driver) {
        let mut scene = Scene::start(Options {
            handshake_timeout: Some(Span(Duration::from_millis(500))),
            ..options(driver)
        });
        let mut stream = scene.connect();
        // A short wait for an answer is the pause between two bytes.
        stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&piece[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // It ends by our patience only if the server's does not.
                    stream.write_all(b"G").expect("an open connection");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(String::from_utf8_lossy(&answer), refusal("408 Request Timeout", SLOW));
        assert_eq!(scene.closes("handshake_timeout"), 1);
        drop(stream);
        scene.check_settled();
    }

    fn frames_behind_the_request_are_answered_behind_the_101(driver) {
        let mut scene = Scene::start(options(driver));
        for path in ["/echo", "/raw?channel=nobody-was-here-before"] {
            let mut stream = scene.connect();
            let mut request = format!("GET {path} HTTP/1.1\r\n{UPGRADE}").into_bytes();
            for number in 0..100 {
                request.extend(masked(0x89, &[number]));
            }
            send(&mut stream, request);
            read_switching(&mut stream);
            for number in 0..100 {
                check_next(&mut stream, &[0x8a, 1, number]);
            }
            send(&mut stream, masked(0x88, b""));
            check_end(&mut stream, [0x88, 0]);
        }
        scene.check_settled();
    }

    fn what_is_no_frame_behind_the_request_is_told_so(driver) {
        let mut scene = Scene::start(options(driver));
        let sentence = "Reserved bits are set where no negotiated extension has a use for them: send them as 0.";
        for path in ["/echo", "/raw?channel=x"] {
            let mut stream = scene.connect();
            // A second request, in the belief that this is still HTTP.
            send(&mut stream, format!("GET {path} HTTP/1.1\r\n{UPGRADE}GET /healthz HTTP/1.1\r\n\r\n"));
            read_switching(&mut stream);
            check_end(&mut stream, close_frame(1002, sentence));
        }
        assert_eq!(scene.closes("protocol_error"), 2);
        scene.check_settled();
    }

    fn a_client_that_ends_its_side_gets_what_it_asked_for(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stream = scene.connect();
        let request = format!("GET /echo HTTP/1.1\r\n{UPGRADE}").into_bytes();
        send(&mut stream, [request, masked(0x81, b"last")].concat());
        end_our_side(&stream);
        let received = read_to_end(&mut stream);
        let text = String::from_utf8_lossy(&received);
        assert!(text.starts_with(SWITCHING) && received.ends_with(b"\r\n\r\n\x81\x04last"), "{text}");
        // The API, too.
        let body = r#"{"channel": "bystander", "data": "half-closed"}"#;
        let mut stream = scene.connect();
        let length = body.len();
        send(&mut stream, format!("POST /api/publish HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n{body}"));
        end_our_side(&stream);
        let answer = String::from_utf8(read_to_end(&mut stream)).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("{\"offset\":1,"), "{answer}");
        assert_eq!(crate::support::next_text(&mut scene.bystander), "half-closed");
        scene.check_settled();
    }

    fn a_client_that_ends_its_side_early_costs_nothing(driver) {
        let mut scene = Scene::start(options(driver));
        for part in ["", "G", "GET /raw?channel=x HTTP/1.1\r\nHost: he"] {
            let mut stream = scene.connect();
            send(&mut stream, part);
            end_our_side(&stream);
            check_end(&mut stream, "");
        }
        until("each is counted", || scene.closes("client") == 3);
        scene.check_settled();
    }
}
