//! Request heads that are too long, broken, or never end.

use super::{Scene, check_end, read_to_end, refusal, send};
use crate::support::{on_both_drivers, options, until};
use std::io::Write;

const TOO_LONG: &str =
    "The request head is too long for this server: send shorter headers or fewer cookies.";
const TOO_MANY: &str = "The request has too many headers for this server: send fewer.";
const LINE: &str = "The request line is malformed: send METHOD, one space, a target without spaces, one space, HTTP/1.1.";
const NAME: &str = "A header name is malformed: send a name of letters, digits and hyphens with a colon right after it.";
const VALUE: &str = "A header value contains a control character: remove or encode it.";
const VERSION: &str = "The HTTP version is not supported: send HTTP/1.1 without TLS here.";
const CONNECT: &str =
    "This server is no proxy and opens no tunnels: send another method than CONNECT.";
const EXPECTATION: &str =
    "The expectation is not supported: send Expect: 100-continue, or no Expect.";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
const BAD: &str = "400 Bad Request";

on_both_drivers! {
    fn every_broken_head_has_its_status_and_its_sentence(driver) {
        let mut scene = Scene::start(options(driver));
        let line = "GET /raw?channel=x HTTP/1.1\r\n";
        let cases = [
            (format!("{line}X: {}\r\n\r\n", "y".repeat(33_000)), TOO_LARGE, TOO_LONG, "head_too_long"),
            (format!("{line}X: {}", "y".repeat(33_000)), TOO_LARGE, TOO_LONG, "head_too_long"),
            (format!("GET /{}", "y".repeat(33_000)), TOO_LARGE, TOO_LONG, "head_too_long"),
            (format!("{line}{}\r\n", "A: b\r\n".repeat(129)), TOO_LARGE, TOO_MANY, "too_many_headers"),
            ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".into(), BAD, LINE, "malformed_head"),
            ("GET  / HTTP/1.1\r\n\r\n".into(), BAD, LINE, "malformed_head"),
            ("GET / HTTP/2.0\r\n\r\n".into(), "505 HTTP Version Not Supported", VERSION, "http_version"),
            ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".into(), "501 Not Implemented", CONNECT, "connect"),
            (format!("{line}Host: a\r\nExpect: x\r\n\r\n"), "417 Expectation Failed", EXPECTATION, "expectation"),
            (format!("{line}Bad Name: x\r\n\r\n"), BAD, NAME, "malformed_head"),
            (format!("{line}no colon\r\n\r\n"), BAD, NAME, "malformed_head"),
            (format!("{line}Nul: \0\r\n\r\n"), BAD, VALUE, "malformed_head"),
        ];
        for (head, status, sentence, _) in &cases {
            let mut stream = scene.connect();
            send(&mut stream, head);
            check_end(&mut stream, refusal(status, sentence));
        }
        for reason in ["head_too_long", "too_many_headers", "malformed_head", "http_version", "connect", "expectation"] {
            let expected = cases.iter().filter(|case| case.3 == reason).count() as u64;
            assert_eq!(scene.refusals(reason), expected, "{reason}");
        }
        assert_eq!(scene.closes("refused"), cases.len() as u64);
        scene.check_settled();
    }

    fn a_head_without_end_is_answered_and_let_go(driver) {
        let mut scene = Scene::start(options(driver));
        let mut stream = scene.connect();
        send(&mut stream, "GET /raw?channel=x HTTP/1.1\r\n");
        let mut sender = stream.try_clone().expect("a descriptor");
        // Sends for as long as the server lets it; the end of the linger is a reset.
        let sender = std::thread::spawn(move || while sender.write_all(&[b'a'; 4096]).is_ok() {});
        let expected = refusal(TOO_LARGE, TOO_LONG);
        let mut received = vec![0; expected.len()];
        std::io::Read::read_exact(&mut stream, &mut received).expect("an answer that no reset has eaten");
        assert_eq!(String::from_utf8_lossy(&received), expected);
        assert_eq!(scene.refusals("head_too_long"), 1);
        // It still sends, and nothing of that is kept.
        until("nothing is kept", || scene.metric("myriad_buffered_bytes") == 0);
        scene.check_bystander();
        sender.join().expect("the server does not listen for ever");
        scene.check_settled();
    }

    fn one_too_many_on_a_kept_api_connection_is_told_the_same_way(driver) {
        let mut scene = Scene::start(options(driver));
        for (second, status, words) in [
            ("GET / HTTP/1.1\r\nbroken\r\n\r\n".to_owned(), BAD, NAME),
            (format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)), TOO_LARGE, TOO_MANY),
        ] {
            let mut stream = scene.connect();
            send(&mut stream, "GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n");
            send(&mut stream, second);
            let answers = String::from_utf8(read_to_end(&mut stream)).expect("text");
            let last = answers.rfind("HTTP/1.1 ").expect("an answer");
            assert!(answers.starts_with("HTTP/1.1 200 ") && last > 0, "{answers}");
            let answer = &answers[last..];
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.contains("{\"error\":{\"code\":") && answer.contains(words), "{answer}");
        }
        for status in [400, 431] {
            let name = format!("myriad_api_requests_total{{route=\"other\",status=\"{status}\"}}");
            assert_eq!(scene.metric(&name), 1);
        }
        scene.check_settled();
    }
}
