//! What each client says of its own when it connects, and what a server that lets nobody in says to that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::drivers;
use myriad_swarm::{Config, Driver, Interrupt, LiveStyle, Report, Scenario, Target};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::{Message, WebSocket};

/// By client: its target, and its headers by name. All of them, as a client has sent them.
type Heads = Arc<Mutex<Vec<(String, Vec<(String, String)>)>>>;

/// Accepts clients, notes their heads, and has each talk in a thread of its own.
fn accept(talk: fn(&mut WebSocket<TcpStream>)) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heads) = (listener.local_addr().unwrap(), Heads::default());
    let noted = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let noted = Arc::clone(&noted);
            std::thread::spawn(move || {
                #[expect(clippy::result_large_err, reason = "the library's own type")]
                let note = |request: &Request, response: Response| -> Result<_, ErrorResponse> {
                    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    let headers = request.headers().iter();
                    let headers =
                        headers.map(|(name, value)| (name.to_string(), text(value.as_bytes())));
                    let head = (request.uri().to_string(), headers.collect());
                    noted.lock().unwrap().push(head);
                    Ok(response)
                };
                if let Ok(mut client) = tungstenite::accept_hdr(stream.unwrap(), note) {
                    talk(&mut client);
                }
            });
        }
    });
    (address, heads)
}

fn echo(client: &mut WebSocket<TcpStream>) {
    while let Ok(message) = client.read() {
        if message.is_text() && client.send(message).is_err() {
            return;
        }
    }
}

fn run(mut config: Config, driver: Driver) -> Report {
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config.retries = 0;
    myriad_swarm::run(&config, &Interrupt::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn scenario(name: &str, text: &str) -> Config {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let scenario = Scenario::parse(&path, text, &[]);
    scenario.unwrap_or_else(|error| panic!("{error}")).config
}

#[test]
fn each_client_shows_the_token_of_its_account() {
    for driver in drivers() {
        let (server, heads) = accept(echo);
        // The port is this run's alone, and so is the file.
        let file = format!("own-heads-{}.csv", server.port());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        // With a byte order mark, as a spreadsheet on Windows writes one.
        let rows = "\u{feff}sid,token\nA1,t/o+k=1\nB2,tok2\n\"C\n3\",tok 3\n";
        std::fs::write(folder.join(&file), rows).unwrap();
        let config = scenario(
            "own.toml",
            &format!(
                r#"
                [terminals]
                count = 4
                targets = ["ws://{server}/ws?token=${{account:token}}&n=${{terminal}}"]
                headers = {{ Cookie = "sid=${{account:sid}}; lang=de", Authorization = "Bearer ${{account:token}}" }}
                [accounts]
                file = "{file}"
                [hold]
                duration = "1s"
                warmup = "0s"
                "#
            ),
        );
        let report = run(config, driver);
        assert_eq!(report.setup.connected, 4, "{report:#?}");
        let mut seen: Vec<_> = heads.lock().unwrap().clone();
        seen.sort();
        let of = |index: usize, name: &str| {
            let headers = seen[index].1.iter();
            let values: Vec<_> = headers.filter(|(known, _)| known == name).collect();
            assert_eq!(values.len(), 1, "{seen:?}");
            values[0].1.clone()
        };
        let paths: Vec<_> = seen.iter().map(|(path, _)| path.as_str()).collect();
        let expected = [
            "/ws?token=t%2Fo%2Bk%3D1&n=0",
            "/ws?token=t%2Fo%2Bk%3D1&n=3",
            "/ws?token=tok%203&n=2",
            "/ws?token=tok2&n=1",
        ];
        assert_eq!(paths, expected);
        assert_eq!(of(0, "authorization"), "Bearer t/o+k=1");
        assert_eq!(of(2, "authorization"), "Bearer tok 3");
        // The line of an account begins no other header.
        assert_eq!(of(2, "cookie"), "sid=C 3; lang=de");
        assert_eq!(of(3, "cookie"), "sid=B2; lang=de");
    }
}

#[test]
fn headers_that_a_browser_shows_can_be_pasted() {
    for (driver, compression) in drivers().into_iter().zip([false, true]) {
        let (server, heads) = accept(echo);
        let target = Target::parse(&format!("ws://{server}/")).unwrap();
        let mut config = Config::new(vec![target], 3);
        let pasted = [
            ("Upgrade", "websocket"),
            ("Origin", "https://chat.example"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Version", "13"),
            (
                "Sec-WebSocket-Extensions",
                "permessage-deflate; client_max_window_bits",
            ),
            ("Cookie", "sid=1"),
        ];
        config.headers = pasted
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        config.compression = compression;
        config.duration = Some(std::time::Duration::from_secs(1));
        let report = run(config, driver);
        assert_eq!(report.setup.connected, 3, "{report:#?}");
        for (_, headers) in heads.lock().unwrap().iter() {
            let count = |name: &str| headers.iter().filter(|(known, _)| known == name).count();
            for name in [
                "upgrade",
                "connection",
                "sec-websocket-key",
                "sec-websocket-version",
            ] {
                assert_eq!(count(name), 1, "{headers:?}");
            }
            assert_eq!(count("sec-websocket-extensions"), usize::from(compression));
            let has =
                |name: &str, value: &str| headers.contains(&(name.to_owned(), value.to_owned()));
            assert!(has("origin", "https://chat.example") && has("cookie", "sid=1"));
        }
    }
}

#[test]
fn pings_do_not_hide_why_a_server_lets_nobody_in() {
    for driver in drivers() {
        let (server, _) = accept(|client| {
            let _ = client.send(Message::text("{\"type\":\"welcome\"}"));
            while let Ok(message) = client.read() {
                if !message.is_text() {
                    continue;
                }
                let _ = client.send(Message::text("{\"error\":\"no token\"}"));
                for number in 0..20 {
                    let _ = client.send(Message::text(format!("{{\"ping\":{number}}}")));
                    let _ = client.send(Message::text("2"));
                }
            }
        });
        let config = scenario(
            "refused.toml",
            &format!(
                r#"
                [terminals]
                count = 2
                targets = ["ws://{server}/"]
                [arrival]
                handshake-timeout = "2s"
                [opening]
                send = ["login"]
                answers = ["^welcome"]
                [[replies]]
                to = "^2$"
                send = "3"
                "#
            ),
        );
        let report = run(config, driver);
        assert_eq!(report.setup.connected, 0);
        let said = format!("{:?}", report.server_said);
        assert!(
            said.contains("no token") && said.contains("welcome"),
            "{said}"
        );
        assert!(
            !said.contains("| 2"),
            "what is replied to was expected: {said}"
        );
    }
}
