//! Opening handshakes from both ends: the example of RFC 6455, section 1.2, and each requirement of
//! sections 4.1 and 4.2 broken in turn.

use myriad_wire::handshake::{
    Key, Refusal, ResponseRefused, check_response, check_upgrade, write_request,
};
use myriad_wire::http::{HeadLimits, RequestHead, parse_request, parse_response};

const REQUEST: &str = "GET /chat?room=1 HTTP/1.1\r\n\
    Host: server.example.com\r\n\
    Upgrade: websocket\r\n\
    Connection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: http://example.com\r\n\
    Sec-WebSocket-Protocol: chat, superchat\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";

const ACCEPT: &[u8; 28] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

fn head(text: &str) -> RequestHead<'_> {
    parse_request(text.as_bytes(), HeadLimits::default())
        .expect("well-formed")
        .expect("whole")
}

/// The verdict on the example with a part of it replaced.
#[track_caller]
fn verdict(from: &str, to: &str) -> Option<Refusal> {
    assert!(REQUEST.contains(from), "{from:?} is in the example");
    check_upgrade(&head(&REQUEST.replace(from, to))).err()
}

#[test]
fn the_example_is_accepted_as_the_rfc_answers_it() {
    let upgrade = check_upgrade(&head(REQUEST)).unwrap();
    let mut answer = Vec::new();
    upgrade.write_response(Some("chat"), None, &mut answer);
    let answer = parse_response(&answer, HeadLimits::default())
        .unwrap()
        .unwrap();
    assert_eq!(answer.status(), 101);
    assert_eq!(answer.header("upgrade"), Some(&b"websocket"[..]));
    assert_eq!(answer.header("connection"), Some(&b"Upgrade"[..]));
    assert_eq!(answer.header("sec-websocket-accept"), Some(&ACCEPT[..]));
    assert_eq!(answer.header("sec-websocket-protocol"), Some(&b"chat"[..]));
    assert_eq!(check_response(&answer, ACCEPT), Ok(()));
}

#[test]
fn without_a_chosen_protocol_none_is_answered() {
    let mut answer = Vec::new();
    check_upgrade(&head(REQUEST))
        .unwrap()
        .write_response(None, None, &mut answer);
    let answer = parse_response(&answer, HeadLimits::default())
        .unwrap()
        .unwrap();
    assert_eq!(answer.header("sec-websocket-protocol"), None);
}

#[test]
fn protocols_come_from_all_headers_in_order() {
    let protocols = |text: &str| {
        check_upgrade(&head(text))
            .unwrap()
            .protocols()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(protocols(REQUEST), ["chat", "superchat"]);
    let several = "sec-websocket-protocol:a ,b\r\nX-Other: x\r\nSEC-WEBSOCKET-PROTOCOL: , v1.c, not a token, d\r\n";
    assert_eq!(
        protocols(&REQUEST.replace("Sec-WebSocket-Protocol: chat, superchat\r\n", several)),
        ["a", "b", "v1.c", "d"]
    );
    let similar = "Sec-WebSocket-Protocols: x\r\nX-Sec-WebSocket-Protocol: y\r\n";
    assert!(
        protocols(&REQUEST.replace("Sec-WebSocket-Protocol: chat, superchat\r\n", similar))
            .is_empty()
    );
}

#[test]
fn lists_and_case_are_understood() {
    for (from, to) in [
        ("Upgrade: websocket", "UPGRADE: WebSocket"),
        ("Upgrade: websocket", "Upgrade: h2c, websocket"),
        ("Upgrade: websocket", "Upgrade: h2c\r\nUpgrade: websocket"),
        ("Connection: Upgrade", "connection: keep-alive, upgrade"),
        (
            "Connection: Upgrade",
            "Connection: keep-alive\r\nConnection:\tUPGRADE",
        ),
        ("Host: server.example.com", "Host: [::1]:8000"),
        ("Origin: http://example.com", "Content-Length: 0"),
    ] {
        assert_eq!(verdict(from, to), None, "{to}");
    }
}

#[test]
fn each_requirement_is_demanded() {
    for (from, to, refusal) in [
        ("GET", "POST", Refusal::Method),
        ("GET", "get", Refusal::Method),
        ("HTTP/1.1", "HTTP/1.0", Refusal::HttpVersion),
        ("Host: server.example.com\r\n", "", Refusal::Host),
        (
            "Host: server.example.com",
            "Host: a\r\nHost: a",
            Refusal::Host,
        ),
        ("Upgrade: websocket\r\n", "", Refusal::NotUpgrade),
        (
            "Upgrade: websocket",
            "Upgrade: websockets",
            Refusal::NotUpgrade,
        ),
        ("Connection: Upgrade\r\n", "", Refusal::Connection),
        (
            "Connection: Upgrade",
            "Connection: close",
            Refusal::Connection,
        ),
        (
            "Origin: http://example.com",
            "Content-Length: 4",
            Refusal::Body,
        ),
        (
            "Origin: http://example.com",
            "Transfer-Encoding: chunked",
            Refusal::Body,
        ),
        ("Sec-WebSocket-Version: 13\r\n", "", Refusal::Version),
        ("Version: 13", "Version: 8", Refusal::Version),
        ("Version: 13", "Version: 13, 8", Refusal::Version),
        (
            "Version: 13",
            "Version: 13\r\nSec-WebSocket-Version: 13",
            Refusal::Version,
        ),
        (
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "",
            Refusal::Key,
        ),
        ("dGhlIHNhbXBsZSBub25jZQ==", "", Refusal::Key),
        (
            "dGhlIHNhbXBsZSBub25jZQ==",
            "dGhlIHNhbXBsZSBub25j",
            Refusal::Key,
        ),
        (
            "Origin: http",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http",
            Refusal::Key,
        ),
    ] {
        assert_eq!(verdict(from, to), Some(refusal), "{from:?} -> {to:?}");
    }
}

#[test]
fn refusals_say_what_would_be_accepted() {
    let header = |refusal: Refusal, wanted: &str| {
        refusal
            .headers()
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| *value)
    };
    assert_eq!(
        (Refusal::Method.status(), header(Refusal::Method, "allow")),
        (405, Some("GET"))
    );
    for refusal in [Refusal::Version, Refusal::NotUpgrade] {
        assert_eq!(refusal.status(), 426);
        assert_eq!(header(refusal, "sec-websocket-version"), Some("13"));
        assert_eq!(header(refusal, "upgrade"), Some("websocket"));
    }
    for refusal in [
        Refusal::Host,
        Refusal::Connection,
        Refusal::Body,
        Refusal::Key,
    ] {
        assert_eq!(refusal.status(), 400);
    }
    let labels: std::collections::BTreeSet<_> =
        Refusal::ALL.iter().map(|refusal| refusal.label()).collect();
    assert_eq!(labels.len(), Refusal::ALL.len());
    assert!(
        Refusal::ALL
            .iter()
            .all(|refusal| refusal.sentence().ends_with('.'))
    );
}

#[test]
fn our_request_is_what_the_rfc_asks() {
    let mut request = Vec::new();
    let key = Key::from(*b"the sample nonce");
    write_request(
        &mut request,
        "127.0.0.1:8000",
        "/raw?channel=a b",
        &key,
        &[("authorization", "Bearer x\r\ny: z")],
    );
    assert_eq!(
        String::from_utf8(request).unwrap(),
        "GET /raw?channel=a%20b HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
         authorization: Bearer x  y: z\r\n\r\n"
    );
}

#[test]
fn answers_are_judged() {
    let good = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let judge = |text: &str| {
        let head = parse_response(text.as_bytes(), HeadLimits::default())
            .expect("well-formed")
            .expect("whole");
        check_response(&head, ACCEPT)
    };
    assert_eq!(judge(good), Ok(()));
    for (from, to, refused) in [
        (
            "101 Switching Protocols",
            "200 OK",
            ResponseRefused::Status(200),
        ),
        (
            "101 Switching Protocols",
            "503",
            ResponseRefused::Status(503),
        ),
        ("Upgrade: WebSocket\r\n", "", ResponseRefused::Upgrade),
        (
            "Upgrade: WebSocket",
            "Upgrade: h2c",
            ResponseRefused::Upgrade,
        ),
        (
            "keep-alive, Upgrade",
            "keep-alive",
            ResponseRefused::Connection,
        ),
        ("s3pPLMB", "S3PPLMB", ResponseRefused::Accept),
        (
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
            "",
            ResponseRefused::Accept,
        ),
        (
            "\r\n\r\n",
            "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
            ResponseRefused::Extension,
        ),
    ] {
        assert_eq!(judge(&good.replacen(from, to, 1)), Err(refused), "{to}");
        assert!(refused.to_string().ends_with('.'));
    }
}
