//! Flows of clients with sessions against a chat server of their protocol with known faults, over real sockets: the report has each
//! fault in the exact number.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{agree, drivers};
use myriad_swarm::{Config, Driver, FlowReport, Interrupt, LiveStyle, Report, Scenario};
use myriad_wire::centrifuge::{
    ClientInfo, ConnectResult, Decoder, Encoding, ErrorCode, FrameWriter, PublicationFields, Push,
    Request, SubscribeResult,
};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// What the server does wrong with the n-th command that publishes, or that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The first member of the channel gets nothing.
    Drop,
    /// It gets the publication twice.
    Twice,
    /// It gets it behind the sender's next one.
    Swap,
    /// A member of another channel gets it too.
    Leak,
    /// The command is answered with an error.
    Refuse,
    /// The command is not answered, and otherwise done.
    Silence,
    /// The command is answered as another one would be.
    Mistake,
}

/// A server of rooms.
struct Rooms {
    encoding: Encoding,
    fault: fn(u64) -> Fault,
    members: HashMap<String, Vec<TcpStream>>,
    commands: u64,
    /// By sender: a frame for the first member of its channel, which waits for the next.
    held: HashMap<usize, Vec<u8>>,
    faults: HashMap<&'static str, u64>,
}

impl Rooms {
    fn count(&self, fault: &str) -> u64 {
        self.faults.get(fault).copied().unwrap_or(0)
    }

    fn note(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    fn frame(&self, write: impl FnOnce(&mut FrameWriter<'_>)) -> Vec<u8> {
        let mut message = Vec::new();
        write(&mut FrameWriter::new(self.encoding, &mut message));
        let first = match self.encoding {
            Encoding::Json => 0x81,
            Encoding::Protobuf => 0x82,
        };
        let length = u16::try_from(message.len()).unwrap();
        let head = match length {
            0..=125 => vec![first, u8::try_from(length).unwrap()],
            _ => [&[first, 126], &length.to_be_bytes()[..]].concat(),
        };
        [&head[..], &message].concat()
    }

    /// Does what a client of this number commands.
    fn obey(&mut self, number: usize, client: &mut TcpStream, id: u32, request: &Request<'_>) {
        let answer = match request {
            Request::Connect(_) => {
                let connected = ConnectResult {
                    client: "c",
                    version: "test",
                    ..ConnectResult::default()
                };
                let subs: [(&str, (SubscribeResult<'_>, std::iter::Empty<_>)); 0] = [];
                self.frame(|writer| writer.connect(id, &connected, subs.into_iter()))
            }
            Request::Subscribe(subscribe) if subscribe.channel.ends_with("forbidden") => {
                self.frame(|writer| writer.error(id, ErrorCode::PermissionDenied))
            }
            Request::Subscribe(subscribe) => {
                let members = self.members.entry(subscribe.channel.to_string());
                let member = client.try_clone().unwrap();
                members.or_default().push(member);
                let subscribed = SubscribeResult::default();
                self.frame(|writer| writer.subscribe(id, &subscribed, std::iter::empty()))
            }
            Request::Pong => return,
            request => {
                self.commands += 1;
                let fault = (self.fault)(self.commands);
                match self.answer(number, id, request, fault) {
                    Some(answer) => answer,
                    None => return,
                }
            }
        };
        let _ = client.write_all(&answer);
    }

    fn answer(
        &mut self,
        number: usize,
        id: u32,
        request: &Request<'_>,
        fault: Fault,
    ) -> Option<Vec<u8>> {
        match fault {
            Fault::Refuse => {
                self.note("refuse");
                return Some(self.frame(|writer| writer.error(id, ErrorCode::PermissionDenied)));
            }
            Fault::Mistake => {
                self.note("mistake");
                return Some(self.frame(|writer| writer.unsubscribe(id)));
            }
            Fault::Silence => self.note("silence"),
            _ => {}
        }
        if let Request::Publish(publish) = request {
            let fields = PublicationFields {
                data: publish.data.as_bytes(),
                ..PublicationFields::default()
            };
            let push = Push::Publication(fields);
            let frame = self.frame(|writer| writer.push(&publish.channel, &push));
            self.relay(number, &publish.channel, frame, fault);
        }
        let info = ClientInfo {
            client: "c",
            ..ClientInfo::default()
        };
        let answer = self.frame(|writer| match request {
            Request::Publish(_) => writer.publish(id),
            Request::History(_) => writer.history(id, std::iter::empty(), "e", 0),
            Request::Presence(_) => writer.presence(id, std::iter::once(info), ""),
            Request::PresenceStats(_) => writer.presence_stats(id, 1, 1),
            Request::Rpc(rpc) if rpc.method == "ask" => writer.rpc(id, rpc.data.as_bytes()),
            other => panic!("{other:?}"),
        });
        (fault != Fault::Silence).then_some(answer)
    }

    fn relay(&mut self, sender: usize, channel: &str, frame: Vec<u8>, fault: Fault) {
        let held = self.held.remove(&sender);
        // One that waits already comes behind this one, whatever else is due.
        let fault = if held.is_some() { Fault::None } else { fault };
        match fault {
            Fault::Drop => self.note("drop"),
            Fault::Twice => self.note("twice"),
            Fault::Leak => self.note("leak"),
            Fault::Swap => {
                self.held.insert(sender, frame.clone());
            }
            _ => {}
        }
        if held.is_some() {
            self.note("swap");
        }
        let other = self.members.keys().find(|name| *name != channel).cloned();
        for (index, member) in self
            .members
            .get_mut(channel)
            .unwrap()
            .iter_mut()
            .enumerate()
        {
            let copies = match fault {
                Fault::Drop | Fault::Swap if index == 0 => 0,
                Fault::Twice if index == 0 => 2,
                _ => 1,
            };
            for _ in 0..copies {
                let _ = member.write_all(&frame);
            }
            if let Some(held) = held.as_ref().filter(|_| index == 0) {
                let _ = member.write_all(held);
            }
        }
        if fault == Fault::Leak {
            let others = self.members.get_mut(&other.unwrap()).unwrap();
            let _ = others[0].write_all(&frame);
        }
    }
}

fn serve(encoding: Encoding, fault: fn(u64) -> Fault) -> (SocketAddr, Arc<Mutex<Rooms>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rooms = Arc::new(Mutex::new(Rooms {
        encoding,
        fault,
        members: HashMap::new(),
        commands: 0,
        held: HashMap::new(),
        faults: HashMap::new(),
    }));
    let shared = Arc::clone(&rooms);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let rooms = Arc::clone(&shared);
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let mut writer = stream.try_clone().unwrap();
                let Ok(mut client) = tungstenite::accept_hdr(stream, agree) else {
                    return;
                };
                while let Ok(message) = client.read() {
                    let message = message.into_data();
                    let mut rooms = rooms.lock().unwrap();
                    for command in Decoder::new(encoding, &message) {
                        let Ok(command) = command else { return };
                        rooms.obey(number, &mut writer, command.id, &command.request);
                    }
                }
            });
        }
    });
    (address, rooms)
}

fn config(server: SocketAddr, driver: Driver, encoding: Encoding, more: &str) -> Config {
    let protocol = match encoding {
        Encoding::Json => "centrifuge-json",
        Encoding::Protobuf => "centrifuge-protobuf",
    };
    let text = format!(
        "[terminals]\ncount = 20\nprotocol = \"{protocol}\"\ntargets = [\"ws://{server}/\"]\n\
         [arrival]\nretries = 0\n\
         [hold]\nduration = \"4s\"\nwarmup = \"500ms\"\nsettle = \"3s\"\n{more}\n"
    );
    let scenario = Scenario::parse(Path::new("rooms.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config
}

fn run(config: &Config) -> Report {
    myriad_swarm::run(config, &Interrupt::new()).unwrap()
}

/// Each driver with each encoding.
fn ways() -> Vec<(Driver, Encoding)> {
    let both = [Encoding::Json, Encoding::Protobuf];
    let ways = drivers().into_iter();
    ways.flat_map(|driver| both.map(|encoding| (driver, encoding)))
        .collect()
}

const GROUPS: &str = "[groups]\ncount = 4\nchannel = \"room-${group}\"\n";
const CHAT: &str = r#"[[flows]]
name = "chat"
rate = 200
send = '{"from":${terminal},"n":${sequence},"id":"${stamp}","text":"${random:20}"}'"#;

fn chat(server: SocketAddr, driver: Driver, encoding: Encoding) -> FlowReport {
    let config = config(server, driver, encoding, &format!("{GROUPS}{CHAT}"));
    let report = run(&config);
    assert_eq!(report.setup.connected, 20, "{report:#?}");
    report.flows.into_iter().next().unwrap()
}

#[test]
fn a_group_is_a_channel_that_its_members_publish_to() {
    for (driver, encoding) in ways() {
        let (server, _) = serve(encoding, |_| Fault::None);
        let flow = chat(server, driver, encoding);
        // 200 a second in 3.5 s.
        assert!(flow.sent > 0 && flow.sent + flow.unsent <= 700, "{flow:?}");
        assert_eq!((flow.complete, flow.expected), (flow.sent, flow.sent * 5));
        assert_eq!((flow.received, flow.missing), (flow.expected, 0));
        assert_eq!((flow.duplicated, flow.out_of_order), (0, 0));
        assert_eq!((flow.unexpected, flow.late, flow.refused), (0, 0, 0));
        assert!(flow.answered_ms.p50.is_some() && flow.to_last_ms.p50.is_some());
    }
}

#[test]
fn each_fault_of_a_publication_is_reported_in_its_exact_number() {
    for (driver, encoding) in ways() {
        let (server, rooms) = serve(encoding, |number| match number % 70 {
            10 => Fault::Drop,
            20 => Fault::Twice,
            30 => Fault::Swap,
            40 => Fault::Leak,
            50 => Fault::Refuse,
            60 => Fault::Silence,
            _ => Fault::None,
        });
        let flow = chat(server, driver, encoding);
        let rooms = rooms.lock().unwrap();
        let held = u64::try_from(rooms.held.len()).unwrap();
        for fault in ["drop", "twice", "swap", "leak", "refuse", "silence"] {
            assert!(rooms.count(fault) > 0, "{fault}");
        }
        assert_eq!(flow.sent, rooms.commands);
        assert_eq!(flow.missing, rooms.count("drop") + held, "{flow:?}");
        assert_eq!(flow.duplicated, rooms.count("twice"), "{flow:?}");
        assert_eq!(flow.out_of_order, rooms.count("swap"), "{flow:?}");
        assert_eq!(flow.unexpected, rooms.count("leak"), "{flow:?}");
        assert_eq!(flow.refused, rooms.count("refuse"), "{flow:?}");
        assert_eq!(flow.unanswered, rooms.count("silence"), "{flow:?}");
        assert_eq!(flow.expected, (flow.sent - flow.refused) * 5);
        assert_eq!(flow.received + flow.missing, flow.expected);
    }
}

#[test]
fn questions_are_answered_by_id_and_nothing_else_is_expected() {
    const QUESTIONS: &str = r#"
[[flows]]
name = "history"
rate = 100
action = "history"
limit = 5

[[flows]]
name = "members"
rate = 100
action = "presence"

[[flows]]
name = "how-many"
rate = 100
action = "presence-stats"
channel = "room-0"

[[flows]]
name = "ask"
rate = 100
action = "rpc"
method = "ask"
send = '{"n":${sequence}}'
answer = '"n":[0-9]+'
"#;
    for (driver, encoding) in ways() {
        let (server, rooms) = serve(encoding, |number| match number % 50 {
            10 => Fault::Refuse,
            20 => Fault::Silence,
            30 => Fault::Mistake,
            _ => Fault::None,
        });
        let more = format!("{GROUPS}{QUESTIONS}");
        let report = run(&config(server, driver, encoding, &more));
        let rooms = rooms.lock().unwrap();
        let of = |name: &str| report.errors.get(name).copied().unwrap_or(0);
        let sum = |of: fn(&FlowReport) -> u64| report.flows.iter().map(of).sum::<u64>();
        let (wrong, silent) = (rooms.count("mistake"), rooms.count("silence"));
        assert!(wrong > 0 && silent > 0 && rooms.count("refuse") > 0);
        assert_eq!(of("command_error_103"), rooms.count("refuse"));
        assert_eq!(
            (of("command_wrong"), of("command_unanswered")),
            (wrong, silent)
        );
        assert_eq!(report.flows.len(), 4);
        assert!(report.flows.iter().all(|flow| flow.sent > 0), "{report:#?}");
        assert_eq!(sum(|flow| flow.sent), rooms.commands);
        assert_eq!(sum(|flow| flow.refused), wrong + rooms.count("refuse"));
        assert_eq!(sum(|flow| flow.unanswered), silent);
        assert_eq!(
            sum(|flow| flow.missing),
            wrong + silent + rooms.count("refuse")
        );
        assert_eq!(sum(|flow| flow.received + flow.missing), rooms.commands);
        assert_eq!(sum(|flow| flow.duplicated + flow.unexpected), 0);
    }
}

#[test]
fn a_group_that_cannot_be_joined_is_a_named_error() {
    for (driver, encoding) in ways() {
        let (server, _) = serve(encoding, |_| Fault::None);
        let accounts = std::env::temp_dir().join(format!("myriad-rooms-{}", std::process::id()));
        std::fs::write(&accounts, "room\nopen\nforbidden\n").unwrap();
        let more = format!(
            "[accounts]\nfile = {accounts:?}\n[groups]\ncolumn = \"room\"\nchannel = \"${{account:room}}\"\n{CHAT}"
        );
        let report = run(&config(server, driver, encoding, &more));
        std::fs::remove_file(&accounts).unwrap();
        assert_eq!(report.setup.connected, 10);
        assert_eq!(
            report.errors.get("subscribe_error_103"),
            Some(&10),
            "{report:#?}"
        );
        let said = serde_json::to_string(&report).unwrap();
        assert!(said.contains("permission denied: forbidden"), "{said}");
        let flow = &report.flows[0];
        assert_eq!(
            (flow.expected, flow.missing),
            (flow.sent * 10, 0),
            "{flow:?}"
        );
    }
}
