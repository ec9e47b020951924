//! Flows that callers send and that terminals of HTTP hear, with faults of the server in their exact number.

use crate::support::drivers;
use crate::support::http::{Asked, Held, HttpServer, Reply};
use myriad_swarm::{Driver, FlowReport, Interrupt, LiveStyle, Scenario};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the server does wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Drop,
    Twice,
    /// It comes behind the sender's next message.
    Swap,
    /// It goes to another room too.
    Leak,
}

/// Of fifty messages each is one.
fn fault(number: u64) -> Fault {
    match number % 50 {
        10 => Fault::Drop,
        20 => Fault::Twice,
        30 => Fault::Swap,
        40 => Fault::Leak,
        _ => Fault::None,
    }
}

/// What became of the messages, in deliveries.
#[derive(Default)]
struct Rooms {
    messages: u64,
    faults: HashMap<&'static str, u64>,
    /// By sender: a message that waits for the next one.
    held: HashMap<u64, String>,
    /// By room: what was said in it, for polls.
    log: HashMap<String, Vec<String>>,
    /// By connection: how much of the log it has.
    read: HashMap<usize, usize>,
}

impl Rooms {
    /// What is said because of a message, by room, with what goes wrong counted `each` times.
    fn relay(&mut self, body: &str, each: u64) -> Vec<(String, String)> {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        let number = value["room"].as_u64().unwrap();
        let sender = value["from"].as_u64().unwrap();
        let room = |number: u64| format!("room%20{number}");
        self.messages += 1;
        let held = self.held.remove(&sender);
        let fault = if held.is_some() {
            Fault::None
        } else {
            fault(self.messages)
        };
        let copies = match fault {
            Fault::Drop | Fault::Swap => 0,
            Fault::Twice => 2,
            Fault::None | Fault::Leak => 1,
        };
        let mut said = vec![(room(number), body.to_owned()); copies];
        let name = match fault {
            Fault::Drop => "drop",
            Fault::Twice => "twice",
            Fault::Leak => "leak",
            Fault::None if held.is_some() => "swap",
            Fault::None | Fault::Swap => "none",
        };
        *self.faults.entry(name).or_default() += each;
        if fault == Fault::Swap {
            self.held.insert(sender, body.to_owned());
        }
        if fault == Fault::Leak {
            said.push((room((number + 1) % 4), body.to_owned()));
        }
        said.extend(held.map(|held| (room(number), held)));
        said
    }

    fn count(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }
}

/// The room that a request is about.
fn room(asked: &Asked) -> &str {
    let path = asked.head.split(' ').nth(1).unwrap();
    let (path, _) = path.split_once('?').unwrap();
    path.strip_prefix("/rooms/").unwrap()
}

fn run(server: &HttpServer, driver: Driver, protocol: &str, stamp: &str) -> FlowReport {
    let (clients, publishing) = server.addresses();
    let text = format!(
        "[terminals]\ncount = 20\nprotocol = \"{protocol}\"\ntargets = [\"http://{clients}/rooms/{{channel}}?offset=now\"]\n\
         [arrival]\nretries = 0\n[hold]\nduration = \"4s\"\nwarmup = \"500ms\"\nsettle = \"3s\"\n\
         [groups]\ncount = 4\nchannel = \"room ${{group}}\"\n\
         [[flows]]\nname = \"chat\"\nrate = 200\nurl = \"http://{publishing}/publish\"\nconnections = 1\n\
         send = '{{\"room\":${{group}},\"from\":${{terminal}},\"id\":\"${{stamp}}\"}}'\n{stamp}\n"
    );
    let scenario = Scenario::parse(Path::new("chat.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
    assert_eq!(report.setup.connected, 20, "{report:#?}");
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    report.flows.into_iter().next().unwrap()
}

/// Compares a report with what the server did.
fn check(flow: &FlowReport, rooms: &Rooms) {
    for fault in ["drop", "twice", "swap", "leak"] {
        assert!(rooms.count(fault) > 0, "{fault}");
    }
    let held = 5 * rooms.held.len() as u64;
    assert_eq!((flow.sent, flow.refused), (rooms.messages, 0), "{flow:?}");
    assert_eq!(flow.expected, 5 * flow.sent, "{flow:?}");
    assert_eq!(flow.missing, rooms.count("drop") + held, "{flow:?}");
    assert_eq!(flow.duplicated, rooms.count("twice"), "{flow:?}");
    assert_eq!(flow.out_of_order, rooms.count("swap"), "{flow:?}");
    assert_eq!(flow.unexpected, rooms.count("leak"), "{flow:?}");
    assert_eq!(flow.received + flow.missing, flow.expected, "{flow:?}");
    assert!(flow.complete > 0 && flow.to_last_ms.p99.is_some());
    assert!(flow.since_due_ms.p50.is_some() && flow.answered_ms.p50.is_some());
}

#[test]
fn streams_hear_what_callers_send_with_each_fault_in_its_number() {
    for driver in drivers() {
        for (protocol, stamp) in [
            ("sse", "stamp-json = \"/id\""),
            ("http-stream", "stamp-regex = '\"id\":\"([^\"]+)'"),
        ] {
            let is_events = protocol == "sse";
            let rooms: Arc<Mutex<Rooms>> = Arc::default();
            let shared = Arc::clone(&rooms);
            let server = HttpServer::start(
                0,
                move |_| {
                    let kind = if is_events {
                        "text/event-stream"
                    } else {
                        "text/plain"
                    };
                    Reply::SayAndHold(format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n"))
                },
                move |_, body, held| {
                    let said = shared.lock().unwrap().relay(body, 5);
                    for (room_of, message) in said {
                        let message = match is_events {
                            true => format!("data: {message}\n\n"),
                            false => format!("{message}\n"),
                        };
                        let members = held.iter().filter(|held| room(&held.asked) == room_of);
                        members.for_each(|member| member.say(&message));
                    }
                    200
                },
            );
            let flow = run(&server, driver, protocol, stamp);
            check(&flow, &rooms.lock().unwrap());
        }
    }
}

#[test]
fn polls_hear_several_messages_in_one_body() {
    for driver in drivers() {
        for stamp in ["", "stamp-json = \"/id\""] {
            let rooms: Arc<Mutex<Rooms>> = Arc::default();
            let (reading, writing) = (Arc::clone(&rooms), Arc::clone(&rooms));
            let server = HttpServer::start(
                0,
                move |asked| answer(asked, &mut reading.lock().unwrap()),
                move |_, body, held| {
                    let mut rooms = writing.lock().unwrap();
                    let said = rooms.relay(body, 5);
                    let mut woken = Vec::new();
                    for (room, message) in said {
                        rooms.log.entry(room.clone()).or_default().push(message);
                        woken.push(room);
                    }
                    let (now, later): (Vec<Held>, Vec<Held>) = held
                        .drain(..)
                        .partition(|held| woken.iter().any(|it| it == room(&held.asked)));
                    *held = later;
                    for member in now {
                        let Reply::Say(text) = answer(&member.asked, &mut rooms) else {
                            panic!("there is something to say");
                        };
                        member.say(&text);
                    }
                    200
                },
            );
            let flow = run(&server, driver, "long-poll", stamp);
            check(&flow, &rooms.lock().unwrap());
        }
    }
}

/// What is new in a room, as a JSON array: two messages where one came twice, or waited for the other.
fn answer(asked: &Asked, rooms: &mut Rooms) -> Reply {
    let (_, query) = asked.head.split_once("offset=").unwrap();
    let (offset, _) = query.split_once(' ').unwrap();
    let log = rooms.log.entry(room(asked).to_owned()).or_default();
    let end = log.len();
    let read = rooms.read.insert(asked.connection, end).unwrap_or(end);
    // Each goes on where its last answer ended.
    let offset = offset.parse().unwrap_or(read);
    assert_eq!(offset, read);
    if offset == end {
        return Reply::Hold;
    }
    let body = format!("[{}]", log[offset..].join(","));
    let length = body.len();
    Reply::Say(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nstream-next-offset: {end}\r\n\r\n{body}"
    ))
}
