//! Other options for a running server.

use crate::support::{
    Http, api_error, head, next, next_text, on_both_drivers, options, publish_ok, start, websocket,
};
use myriad_server::{ChannelTable, Count, NamespaceTable, Options, Span, TokenDraft};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tungstenite::Message;

/// A namespace with so much history.
fn namespace(name: &str, history_size: u64) -> NamespaceTable {
    NamespaceTable {
        name: Some(name.into()),
        history_size: Count(history_size),
        history_ttl: Span(Duration::from_secs(if history_size > 0 { 60 } else { 0 })),
        ..NamespaceTable::default()
    }
}

/// The same options with these namespaces.
fn with(options: &Options, namespaces: &[NamespaceTable]) -> Options {
    Options {
        channel: Some(ChannelTable {
            reload_may_remove: true,
            namespaces: namespaces.to_vec(),
            ..ChannelTable::default()
        }),
        ..options.clone()
    }
}

/// An application that lets everybody connect, and counts how often it was asked.
struct Application {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Application {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || answer_all(stream, &count));
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Answers requests with short bodies until the connection ends.
fn answer_all(stream: TcpStream, asked: &AtomicUsize) -> Option<()> {
    let mut lines = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        lines.read_exact(&mut vec![0; length]).ok()?;
        asked.fetch_add(1, Ordering::SeqCst);
        let body = r#"{"result":{"user":"u"}}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        lines.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

/// Clients show tokens by these secrets, or the application says who they are.
fn asking(options: &Options, application: &Application, secrets: [&str; 2]) -> Options {
    let [secret, previous] = secrets;
    let address = application.address;
    let text = format!(
        "[token]\nhmac_secret_key = \"{secret}\"\nhmac_previous_secret_key = \"{previous}\"\n\
         [proxy.connect]\nenabled = true\ntimeout = \"4s\"\nendpoint = \"http://{address}/\""
    );
    Options {
        client: Some(toml::from_str(&text).expect("a table")),
        ..options.clone()
    }
}

/// What a client is told that connects, with a token or without.
fn connect(address: SocketAddr, token: Option<&str>) -> Message {
    let mut socket = websocket(address, "/connection/websocket");
    let token = token.map_or_else(String::new, |token| format!(r#""token":"{token}""#));
    let command = format!(r#"{{"id":1,"connect":{{{token}}}}}"#);
    socket.send(Message::text(command)).expect("it is open");
    next(&mut socket)
}

fn is_connected(told: &Message) -> bool {
    matches!(told, Message::Text(text) if text.contains(r#""connect":{"client""#))
}

on_both_drivers! {
    fn nothing_is_lost_while_channels_change(driver) {
        const PUBLICATIONS: usize = 2_000;
        let options = options(driver);
        let server = start(with(&options, &[namespace("kept", 3), namespace("gone", 0)]));
        let mut clients = ["kept:a", "kept:b", "gone:a"]
            .map(|channel| websocket(server.address(), &format!("/raw?channel={channel}")));
        let (reloader, is_over) = (server.reloader(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rounds = 0;
                while !is_over.load(Ordering::Relaxed) || rounds < 3 {
                    for history_size in [0, 5, 1, 100] {
                        let changed = with(&options, &[namespace("kept", history_size), namespace("new", 1)]);
                        reloader.reload(changed).expect("good options");
                    }
                    rounds += 1;
                }
            });
            let mut api = Http::connect(server.address());
            for nth in 0..PUBLICATIONS {
                for channel in ["kept:a", "kept:b"] {
                    let body = format!(r#"{{"channel": "{channel}", "data": {nth}}}"#);
                    let length = format!("Content-Length: {}\r\n", body.len());
                    api.send(head("POST", "/api/publish", &length).as_bytes());
                    api.send(body.as_bytes());
                    let answer = api.answer();
                    assert!(answer.body.contains("\"result\""), "{answer:?}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for client in &mut clients[..2] {
            for nth in 0..PUBLICATIONS {
                assert_eq!(next_text(client), nth.to_string());
            }
        }
        // A subscription of a namespace that has gone stays until its client ends it.
        let error = api_error(server.address(), "publish", r#"{"channel": "gone:a", "data": 1}"#);
        assert_eq!(error["code"], 102, "{error}");
        clients[2].send(Message::Ping("here".into())).expect("an open connection");
        assert_eq!(next(&mut clients[2]), Message::Pong("here".into()));
        let mut client = websocket(server.address(), "/raw?channel=new:a");
        publish_ok(server.address(), r#"{"channel": "new:a", "data": "new"}"#);
        assert_eq!(next_text(&mut client), "new");
    }

    fn keys_and_proxies_follow_while_clients_connect(driver) {
        const CLIENTS: usize = 200;
        const SECRETS: [&str; 2] = ["the first secret, which is long enough", "the second secret, which is long enough"];
        let options = options(driver);
        let applications = [Application::start(), Application::start()];
        let token = TokenDraft { user: "42".into(), ..TokenDraft::default() };
        let token = token.sign(SECRETS[0]).expect("a token");
        let server = start(asking(&options, &applications[0], SECRETS));
        let (address, reloader) = (server.address(), server.reloader());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = 0;
                while !is_over.load(Ordering::Relaxed) || turn < 4 {
                    turn += 1;
                    let [first, second] = SECRETS;
                    let secrets = if turn % 2 == 0 { [first, second] } else { [second, first] };
                    let changed = asking(&options, &applications[turn % 2], secrets);
                    reloader.reload(changed).expect("good options");
                }
            });
            for nth in 0..CLIENTS {
                let shown = (nth % 2 == 0).then_some(&*token);
                let told = connect(address, shown);
                assert!(is_connected(&told), "client {nth}: {told:?}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let asked: usize = applications.iter().map(Application::asked).sum();
        assert_eq!(asked, CLIENTS / 2);
        // From here on only the second application and the second secret count.
        reloader.reload(asking(&options, &applications[1], [SECRETS[1], ""])).expect("good options");
        let [first, second] = [applications[0].asked(), applications[1].asked()];
        assert!(is_connected(&connect(address, None)));
        assert_eq!([applications[0].asked(), applications[1].asked()], [first, second + 1]);
        let told = connect(address, Some(&token));
        assert!(matches!(&told, Message::Close(Some(frame)) if u16::from(frame.code) == 3500), "{told:?}");
    }

    fn a_mistake_changes_nothing(driver) {
        let options = options(driver);
        let server = start(with(&options, &[namespace("kept", 3)]));
        let mut wrong = with(&options, &[namespace("other", 1), namespace("other", 2)]);
        wrong.anonymous = Some(false);
        let error = server.reloader().reload(wrong).expect_err("two of the same name");
        assert!(error.to_string().contains("channel.namespaces[1].name"), "{error}");
        let mut client = websocket(server.address(), "/raw?channel=kept:a");
        publish_ok(server.address(), r#"{"channel": "kept:a", "data": "as before"}"#);
        assert_eq!(next_text(&mut client), "as before");
    }
}
