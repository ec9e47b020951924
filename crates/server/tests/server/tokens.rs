//! Tokens of clients, from the config to what they are told.

use crate::support::{Running, get, next, on_both_drivers, options, start, websocket};
use myriad_server::{ClientTable, DriverChoice, Options, TokenDraft, TokenTable};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tungstenite::{Message, WebSocket};

const SECRET: &str = "a secret of at least thirty-two bytes";

fn with_table(driver: DriverChoice, token: TokenTable) -> Options {
    Options {
        client: Some(ClientTable {
            token,
            ..ClientTable::default()
        }),
        anonymous: Some(false),
        ..options(driver)
    }
}

fn by_hmac(driver: DriverChoice, secret: &str) -> Options {
    let token = TokenTable {
        hmac_secret_key: secret.to_owned().into(),
        ..TokenTable::default()
    };
    with_table(driver, token)
}

fn token(secret: &str, expires_in: Option<Duration>) -> String {
    let draft = TokenDraft {
        user: "42".into(),
        expires_in,
        ..TokenDraft::default()
    };
    draft.sign(secret).expect("a token")
}

/// What a client is told that connects with a token.
fn connect(server: &Running, token: &str) -> (WebSocket<TcpStream>, Result<String, u16>) {
    let mut socket = websocket(server.address(), "/connection/websocket");
    let command = format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#);
    socket.send(Message::text(command)).expect("it is open");
    let told = match next(&mut socket) {
        Message::Text(text) => Ok(text.to_string()),
        Message::Close(Some(frame)) => Err(frame.code.into()),
        other => panic!("{other:?}"),
    };
    (socket, told)
}

/// Whether the metrics have this line.
fn counted(server: &Running, line: &str) -> bool {
    get(server.address(), "/metrics")
        .body
        .lines()
        .any(|shown| shown == line)
}

on_both_drivers! {
    fn a_token_lets_its_client_in_and_another_one_does_not(driver) {
        let server = start(by_hmac(driver, SECRET));
        let (_socket, told) = connect(&server, &token(SECRET, Some(Duration::from_mins(1))));
        let told = told.expect("a reply");
        assert!(told.contains(r#""expires":true"#) && told.contains(r#""ttl":"#), "{told}");
        let (_socket, told) = connect(&server, &token("another secret", None));
        assert_eq!(told, Err(3500));
        let (_socket, told) = connect(&server, &token(SECRET, Some(Duration::ZERO)));
        let told = told.expect("a reply");
        assert!(told.contains(r#""code":109"#), "{told}");
        for (result, count) in [("valid", 1), ("invalid", 1), ("expired", 1)] {
            let line = format!(
                "myriad_tokens_total{{kind=\"connection\",result=\"{result}\"}} {count}"
            );
            assert!(counted(&server, &line), "{line}");
        }
    }

    fn a_reload_changes_the_secret_and_keeps_connections(driver) {
        let server = start(by_hmac(driver, SECRET));
        let (mut old, told) = connect(&server, &token(SECRET, None));
        told.expect("a reply");
        server.reloader().reload(by_hmac(driver, "the next secret")).expect("good options");
        let (_socket, told) = connect(&server, &token("the next secret", None));
        told.expect("a reply");
        let (_socket, told) = connect(&server, &token(SECRET, None));
        assert_eq!(told, Err(3500));
        let subscribe = r##"{"id":2,"subscribe":{"channel":"news"}}"##;
        old.send(Message::text(subscribe)).expect("it is open");
        assert!(matches!(next(&mut old), Message::Text(_)));
    }

    fn keys_of_an_endpoint_verify_tokens(driver) {
        let (endpoint, keys) = endpoint();
        let table = TokenTable {
            jwks_public_endpoint: endpoint.into(),
            ..TokenTable::default()
        };
        let server = start(with_table(driver, table));
        let signed = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJzdWIiOiI0MiJ9.FT6M12HPQAH0a-0KNQgLzQMdcokvxVQyKcnpX_9gTlMtSnBuJTL23P-rWM0kRU1IHopg7kE5NqmFymiKRPX-BQ";
        let (_socket, told) = connect(&server, signed);
        told.expect("a reply");
        // The same signature on other claims.
        let forged = signed.replacen("eyJzdWIiOiI0MiJ9", "eyJzdWIiOiI0MyJ9", 1);
        let (_socket, told) = connect(&server, &forged);
        assert_eq!(told, Err(3500));
        let line = "myriad_token_key_fetches_total{result=\"ok\"} 1";
        assert!(counted(&server, line));
        drop(server);
        keys.join().expect("a server of keys");
    }
}

/// A server of a set with the key of RFC 8037, appendix A.1, for one request.
fn endpoint() -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
    let body = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}"#;
    let keys = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut byte = [0];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a head") > 0 {
            head.push(byte[0]);
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).expect("it is open");
    });
    (url, keys)
}
