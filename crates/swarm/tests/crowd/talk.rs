//! Clients and callers of an IM server with a protocol of its own: they log in and join, have a heartbeat, answer the server's
//! pings, and send messages over WebSocket and over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::drivers;
use myriad_swarm::{Driver, Interrupt, LiveStyle, Outcome, Report, Scenario};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tungstenite::{Message, WebSocket};

/// What the server does with the n-th request, from 0.
#[derive(Clone, Copy)]
enum Manners {
    Kind,
    /// One in four is refused, and one in four is answered with something else.
    Rude,
    /// Who logs in as `eve` gets no answer.
    Deaf,
}

#[derive(Default)]
struct World {
    rooms: HashMap<String, Vec<TcpStream>>,
    logins: Vec<String>,
    pongs: u64,
    beats: u64,
    requests: u64,
    refused: u64,
    wrong: u64,
    connections: u64,
}

impl World {
    /// Sends a text to all of a room.
    fn tell(&mut self, room: &str, text: &str) {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 126);
        let frame = [&[0x81, length], text.as_bytes()].concat();
        for member in self.rooms.entry(room.to_owned()).or_default() {
            let _ = member.write_all(&frame);
        }
    }
}

struct Im {
    websocket: SocketAddr,
    http: SocketAddr,
    world: Arc<Mutex<World>>,
}

fn serve(manners: Manners) -> Im {
    let world: Arc<Mutex<World>> = Arc::default();
    let (websocket, http) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    let im = Im {
        websocket: websocket.local_addr().unwrap(),
        http: http.local_addr().unwrap(),
        world: Arc::clone(&world),
    };
    let shared = Arc::clone(&world);
    std::thread::spawn(move || {
        for stream in websocket.incoming() {
            let (stream, world) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || talk(stream, &world, manners));
        }
    });
    std::thread::spawn(move || {
        for stream in http.incoming() {
            let (stream, world) = (stream.unwrap(), Arc::clone(&world));
            std::thread::spawn(move || answer(stream, &world, manners));
        }
    });
    im
}

/// One client.
fn talk(stream: TcpStream, world: &Mutex<World>, manners: Manners) {
    let writer = stream.try_clone().unwrap();
    let Ok(mut client) = tungstenite::accept(stream) else {
        return;
    };
    let say = |client: &mut WebSocket<TcpStream>, text: String| {
        let _ = client.send(Message::text(text));
    };
    let mut room = String::new();
    while let Ok(message) = client.read() {
        let Ok(text) = message.into_text() else {
            continue;
        };
        // All writes are under the lock, so that no two frames mix.
        let mut world = world.lock().unwrap();
        match text.split_once(':').unwrap_or((&text, "")) {
            ("login", name) if name == "eve/5" && matches!(manners, Manners::Deaf) => {}
            ("login", name) => {
                world.logins.push(name.to_owned());
                say(&mut client, format!("welcome {name}"));
            }
            ("join", name) => {
                room = name.to_owned();
                let members = world.rooms.entry(room.clone()).or_default();
                members.push(writer.try_clone().unwrap());
                say(&mut client, "joined".to_owned());
                say(&mut client, "ping 77".to_owned());
            }
            ("beat", number) => {
                world.beats += 1;
                say(&mut client, format!("alive {number}"));
            }
            ("pong", "77") => world.pongs += 1,
            _ if text.starts_with('{') => world.tell(&room, &text),
            _ => {}
        }
    }
}

/// One connection of HTTP: `POST /rooms/ROOM` tells the room, `GET /rooms/ROOM` has its history.
fn answer(stream: TcpStream, world: &Mutex<World>, manners: Manners) {
    world.lock().unwrap().connections += 1;
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length, mut line) = (String::new(), 0, String::new());
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            let head = line.to_ascii_lowercase();
            if let Some(value) = head.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let target = first.split(' ').nth(1).unwrap().to_owned();
        let room = target.trim_start_matches("/rooms/").replace("%20", " ");
        let mut world = world.lock().unwrap();
        let number = world.requests;
        world.requests += 1;
        let mut said = format!("{{\"room\":\"{room}\",\"messages\":[]}}");
        let mut status = 200;
        match (manners, number % 4) {
            (Manners::Rude, 1) => {
                world.refused += 1;
                status = 503;
            }
            (Manners::Rude, 2) if first.starts_with("GET") => {
                world.wrong += 1;
                said = "{}".to_owned();
            }
            _ if first.starts_with("POST") => {
                let text = String::from_utf8(body).unwrap();
                world.tell(&room, &text);
            }
            _ => {}
        }
        drop(world);
        let bytes = said.len();
        let text = format!("HTTP/1.1 {status} S\r\ncontent-length: {bytes}\r\n\r\n{said}");
        if writer.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Twenty clients with four accounts in three rooms.
fn run(im: &Im, driver: Driver, more: &str) -> Report {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    // The server's port is this run's alone: other tests would read a file that is written anew.
    let accounts = format!("accounts-{}.csv", im.websocket.port());
    let rows = "name,key,room\nann,2,a\nbob,3,b\ncarl,4,a\neve,5,c d\n";
    std::fs::write(folder.join(&accounts), rows).unwrap();
    let text = format!(
        r#"
thresholds = ["flows:missing==0", "flow:chat:p99<1h", "flow:history:answer:p99<1h", "flow:posts:reach>=100%"]
[terminals]
count = 20
targets = ["ws://{websocket}/"]
[arrival]
retries = 0
handshake-timeout = "5s"
[hold]
duration = "4s"
warmup = "500ms"
settle = "10s"
[accounts]
file = "{accounts}"
[groups]
column = "room"
[opening]
send = ["login:${{account:name}}/${{account:key}}", "join:${{account:room}}"]
answers = ["^welcome ${{ANY}}+/[0-9]$", "^joined$"]
[variables]
ANY = "[a-z]"
[heartbeat]
every = "3s"
send = "beat:${{terminal}}"
answer = "^alive"
[[replies]]
to = "^ping ([0-9]+)$"
send = "pong:${{match}}"
[[flows]]
name = "chat"
rate = 100
send = '{{"id":"${{stamp}}","n":${{sequence}}}}'
[[flows]]
name = "posts"
rate = 60
url = "http://{http}/rooms/${{account:room}}"
send = '{{"id":"${{stamp}}","by":"${{account:name}}"}}'
connections = 3
[[flows]]
name = "history"
rate = 60
url = "http://{http}/rooms/${{account:room}}"
answer = '"room"'
connections = 2
{more}
"#,
        websocket = im.websocket,
        http = im.http,
    );
    let scenario = Scenario::parse(&folder.join("im.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    myriad_swarm::run(&config, &Interrupt::new()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_protocol_of_its_own_is_a_scenario() {
    for driver in drivers() {
        let im = serve(Manners::Kind);
        let report = run(&im, driver, "");
        assert_eq!(report.outcome, Outcome::Finished, "{report:#?}");
        assert_eq!(report.setup.connected, 20);
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        let world = im.world.lock().unwrap();
        assert_eq!(world.logins.len(), 20);
        assert!(world.logins.contains(&"eve/5".to_owned()));
        assert_eq!((world.pongs, world.connections), (20, 5));
        let pings = &report.pings;
        assert!(pings.heartbeats_answered > 0 && world.beats >= pings.heartbeats_answered);
        assert!(pings.p50_ms.is_some());
        for flow in &report.flows {
            assert!(flow.sent > 0 && flow.complete == flow.sent, "{flow:#?}");
            assert_eq!((flow.received, flow.missing), (flow.expected, 0));
            assert_eq!(
                (flow.duplicated, flow.out_of_order, flow.unexpected),
                (0, 0, 0)
            );
            assert_eq!((flow.refused, flow.unanswered), (0, 0));
        }
        let [chat, posts, history] = &report.flows[..] else {
            panic!("three flows");
        };
        // Ten in room a, five in each of the others: a message has 7.5 receivers in the mean.
        assert!(chat.expected > chat.sent * 5 && posts.expected > posts.sent * 5);
        assert_eq!(history.expected, history.sent);
        assert_eq!(world.requests, posts.sent + history.sent);
        assert!(posts.answered_ms.p50.is_some() && chat.answered_ms.p50.is_none());
    }
}

#[test]
fn what_a_server_refuses_is_counted_and_not_expected() {
    let im = serve(Manners::Rude);
    let report = run(&im, drivers()[0], "");
    assert_eq!(report.outcome, Outcome::ThresholdsFailed);
    let world = im.world.lock().unwrap();
    let [chat, posts, history] = &report.flows[..] else {
        panic!("three flows");
    };
    assert_eq!(chat.complete, chat.sent);
    assert!(world.refused > 0 && world.wrong > 0 && posts.refused > 0);
    assert_eq!(posts.refused + history.refused, world.refused + world.wrong);
    assert_eq!((posts.received, posts.missing), (posts.expected, 0));
    assert_eq!(history.missing, history.refused);
    assert_eq!(report.errors.get("call_503"), Some(&world.refused));
    assert_eq!(report.errors.get("call_wrong"), Some(&world.wrong));
    // The connections stay: an answer that says no is an answer.
    assert_eq!(world.connections, 5);
}

#[test]
fn an_answer_that_was_not_waited_for_is_quoted() {
    let im = serve(Manners::Kind);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let text = format!(
        "[terminals]\ncount = 3\ntargets = [\"ws://{}/\"]\n[arrival]\nretries = 0\nhandshake-timeout = \"5s\"\n\
         [hold]\nduration = \"1s\"\n[opening]\nsend = [\"login:ann/2\"]\nanswers = [\"^welcome: \"]\n",
        im.websocket
    );
    for driver in drivers() {
        let scenario = Scenario::parse(&folder.join("quoted.toml"), &text, &[]).unwrap();
        let mut config = scenario.config;
        config.driver = Some(driver);
        config.live = LiveStyle::Off;
        let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
        assert_eq!(report.errors.get("session_timeout"), Some(&3));
        let said = &report.server_said["session_timeout"];
        assert!(said.starts_with("\"welcome ann/"), "{said}");
        let is_told = |it: &String| it.contains("session_timeout") && it.contains("welcome ann/");
        assert!(report.warnings.iter().any(is_told), "{:?}", report.warnings);
    }
}

#[test]
fn who_is_not_answered_does_not_count_as_connected() {
    let im = serve(Manners::Deaf);
    let report = run(&im, drivers()[0], "");
    assert_eq!(report.setup.connected, 15, "{report:#?}");
    assert_eq!(report.errors.get("session_timeout"), Some(&5));
    // Nobody is in the room of those five, and so nothing is expected there.
    assert!(report.flows.iter().all(|flow| flow.missing == 0));
}
