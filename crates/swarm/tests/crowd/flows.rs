//! Flows against a chat server of another kind with known faults, over real sockets: the report has each fault in the exact number.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{SHORT_SETTLE, drivers};
use myriad_swarm::{
    Config, Destination, Driver, FlowReport, Incident, Interrupt, LiveStyle, Pace, Report,
    Scenario, Think,
};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tungstenite::Message;

/// What the server does wrong with the n-th message, to the first member of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Drop,
    Twice,
    /// It comes behind the sender's next message.
    Swap,
    /// To a member of another group too.
    Leak,
}

/// A chat room server: `join:GROUP` first, then every message goes to all of the group.
#[derive(Default)]
struct Rooms {
    members: HashMap<String, Vec<TcpStream>>,
    messages: u64,
    /// By sender: a message for the first member of its group, which waits for the next.
    held: HashMap<usize, Vec<u8>>,
    /// How many of each there were.
    faults: HashMap<&'static str, u64>,
}

impl Rooms {
    fn note(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    fn relay(&mut self, sender: usize, group: &str, frame: Vec<u8>, fault: Fault) {
        let held = self.held.remove(&sender);
        // One that waits already comes behind this one, whatever else is due.
        let fault = if held.is_some() { Fault::None } else { fault };
        match fault {
            Fault::None => {}
            Fault::Drop => self.note("drop"),
            Fault::Twice => self.note("twice"),
            Fault::Leak => self.note("leak"),
            Fault::Swap => {
                self.held.insert(sender, frame.clone());
            }
        }
        if held.is_some() {
            self.note("swap");
        }
        let other = self.members.keys().find(|name| *name != group).cloned();
        let members = self.members.get_mut(group).unwrap();
        for (index, member) in members.iter_mut().enumerate() {
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

fn frame(message: &Message) -> Vec<u8> {
    let first = if message.is_text() { 0x81 } else { 0x82 };
    let payload = message.clone().into_data();
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    [&[first, length], &payload[..]].concat()
}

fn serve(fault: fn(u64) -> Fault) -> (SocketAddr, Arc<Mutex<Rooms>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let rooms = Arc::new(Mutex::new(Rooms::default()));
    let shared = Arc::clone(&rooms);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let rooms = Arc::clone(&shared);
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let writer = stream.try_clone().unwrap();
                let Ok(peer) = stream.peer_addr() else { return };
                let Ok(mut client) = tungstenite::accept(stream) else {
                    return;
                };
                let Ok(joined) = client.read() else { return };
                let joined = joined.into_text().unwrap();
                let group = joined.strip_prefix("join:").unwrap().to_owned();
                let mut answered = writer.try_clone().unwrap();
                rooms
                    .lock()
                    .unwrap()
                    .members
                    .entry(group.clone())
                    .or_default()
                    .push(writer);
                let _ = answered.write_all(&frame(&Message::text("joined")));
                while let Ok(message) = client.read() {
                    if message.is_text() || message.is_binary() {
                        let mut rooms = rooms.lock().unwrap();
                        rooms.messages += 1;
                        let fault = fault(rooms.messages);
                        rooms.relay(number, &group, frame(&message), fault);
                    }
                }
                let mut rooms = rooms.lock().unwrap();
                let members = rooms.members.get_mut(&group).unwrap();
                members.retain(|member| member.peer_addr().is_ok_and(|other| other != peer));
            });
        }
    });
    (address, rooms)
}

/// Clients that wait until they have joined, so that it is known who is there.
fn config(server: SocketAddr, driver: Driver, flow: &str) -> Config {
    let text = format!(
        "[terminals]\ncount = 20\ntargets = [\"ws://{server}/\"]\n\
         [hold]\nduration = \"2s\"\nwarmup = \"500ms\"\nsettle = \"10s\"\n\
         [groups]\ncount = 4\n[opening]\nsend = [\"join:${{group}}\"]\nanswers = [\"^joined$\"]\n\
         [[flows]]\nname = \"chat\"\nrate = 200\n{flow}\n"
    );
    let scenario = Scenario::parse(Path::new("chat.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    config
}

fn run(config: &Config) -> FlowReport {
    let report = myriad_swarm::run(config, &Interrupt::new()).unwrap();
    assert_eq!(report.setup.connected, 20, "{report:#?}");
    report.flows.into_iter().next().unwrap()
}

const CHAT: &str =
    r#"send = '{"from":${terminal},"n":${sequence},"id":"${stamp}","text":"${random:20}"}'"#;

#[test]
fn a_server_without_faults_has_none() {
    for driver in drivers() {
        for more in [
            "",
            "stamp-json = \"/id\"",
            "stamp-regex = '\"id\":\"([^\"]+)'",
        ] {
            let (server, _) = serve(|_| Fault::None);
            let flow = run(&config(server, driver, &format!("{CHAT}\n{more}")));
            // 200 a second in 1.5 s. A crowd that is kept from its processor leaves some unsent, and says so.
            assert!(flow.sent > 0 && flow.sent + flow.unsent <= 300, "{flow:?}");
            assert_eq!((flow.complete, flow.expected), (flow.sent, flow.sent * 5));
            assert_eq!(
                (flow.received, flow.missing, flow.duplicated),
                (flow.expected, 0, 0)
            );
            assert_eq!((flow.out_of_order, flow.unexpected, flow.late), (0, 0, 0));
            let (due, sent, last) = (flow.since_due_ms, flow.since_sent_ms, flow.to_last_ms);
            assert!(due.p99 >= sent.p99 && last.p50 >= due.p50 && sent.p50.is_some());
        }
    }
}

#[test]
fn a_binary_message_has_its_stamp_at_a_byte() {
    for driver in drivers() {
        let (server, _) = serve(|_| Fault::None);
        let flow = "send = '..${stamp:bytes}'\nbinary = true\nstamp-offset = 2\nexpect = \"all\"";
        let mut config = config(server, driver, flow);
        config.settle = SHORT_SETTLE;
        let flow = run(&config);
        // Everybody was to get what only groups got.
        assert_eq!(
            (flow.expected, flow.received),
            (flow.sent * 20, flow.sent * 5)
        );
        assert_eq!((flow.missing, flow.complete), (flow.sent * 15, 0));
    }
}

#[test]
fn each_fault_is_reported_in_its_exact_number() {
    for driver in drivers() {
        let (server, rooms) = serve(|number| match number {
            number if number % 50 == 10 => Fault::Drop,
            number if number % 50 == 20 => Fault::Twice,
            number if number % 50 == 30 => Fault::Swap,
            number if number % 50 == 40 => Fault::Leak,
            _ => Fault::None,
        });
        let mut config = config(server, driver, CHAT);
        config.settle = SHORT_SETTLE;
        config.duration = Some(Duration::from_secs(4));
        let flow = run(&config);
        let rooms = rooms.lock().unwrap();
        let done = |fault| rooms.faults.get(fault).copied().unwrap_or(0);
        let held = u64::try_from(rooms.held.len()).unwrap();
        assert!(done("drop") > 0 && done("twice") > 0 && done("swap") > 0 && done("leak") > 0);
        assert_eq!(flow.sent, rooms.messages);
        assert_eq!(flow.missing, done("drop") + held, "{flow:?}");
        assert_eq!(flow.duplicated, done("twice"), "{flow:?}");
        assert_eq!(flow.out_of_order, done("swap"), "{flow:?}");
        assert_eq!(flow.unexpected, done("leak"), "{flow:?}");
        assert_eq!(flow.received + flow.missing, flow.expected);
    }
}

#[test]
fn what_flows_sent_and_got_is_over_time_and_in_the_distribution() {
    let (server, _) = serve(|_| Fault::None);
    let flow = format!("{CHAT}\nexpect = \"sender\"");
    let mut config = config(server, drivers()[0], &flow);
    let folder = std::env::temp_dir().join(format!("myriad-flow-hgrm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    config.heartbeat = Some(Duration::from_millis(20));
    config.hgrm = Some(Destination::File(folder.join("times.hgrm")));
    let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
    let flow = &report.flows[0];
    assert!(flow.received > 0 && report.pings.heartbeats_answered > 0);
    let samples = report.series.samples.iter();
    let counts = samples.map(|it| {
        let lasted = it.to_s - it.from_s;
        (it.sent_per_s * lasted, it.answered_per_s * lasted)
    });
    let (sent, answered) = counts.fold((0.0, 0.0), |(sent, answered), (more, others)| {
        (sent + more, answered + others)
    });
    #[expect(clippy::cast_precision_loss, reason = "some hundred messages")]
    let counted = (flow.sent as f64, flow.received as f64);
    assert_eq!((sent.round(), answered.round()), counted);
    let hgrm = std::fs::read_to_string(folder.join("times.hgrm")).unwrap();
    let total = format!("Total count    = {:12}]", flow.received);
    assert!(hgrm.contains(&total), "{hgrm}");
    assert!(hgrm.ends_with("#[Of      = flow]\n"), "{hgrm}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Clients that leave and come back soon.
fn returning(server: SocketAddr, driver: Driver) -> Config {
    let mut config = config(server, driver, CHAT);
    config.duration = Some(Duration::from_secs(5));
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_millis(100));
    config
}

/// A run with a server that does nothing wrong.
fn changing(driver: Driver, change: impl Fn(&mut Config)) -> Report {
    let (server, _) = serve(|_| Fault::None);
    let mut config = returning(server, driver);
    change(&mut config);
    let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
    let flow = &report.flows[0];
    assert!(flow.sent > 0 && flow.received > 0, "{flow:?}");
    assert_eq!(
        (flow.missing, flow.received),
        (0, flow.expected),
        "{flow:?}"
    );
    assert_eq!((flow.duplicated, flow.out_of_order), (0, 0), "{flow:?}");
    assert_eq!((flow.unexpected, flow.late), (0, 0), "{flow:?}");
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    report
}

#[test]
fn nothing_is_expected_of_a_client_while_it_is_away() {
    for driver in drivers() {
        let report = changing(driver, |config| config.churn_per_s = Some(0.9));
        assert!(report.churn.churned > 0);
        let report = changing(driver, |config| {
            config.incidents = vec![Incident::storm("50%@700ms").unwrap()];
        });
        let comeback = report.comeback.as_ref().unwrap();
        assert_eq!((comeback.gone, comeback.back), (10, 10));
    }
}

#[test]
fn what_a_server_loses_is_missing_though_clients_leave() {
    for driver in drivers() {
        let (server, rooms) = serve(|number| match number % 4 {
            0 => Fault::Drop,
            _ => Fault::None,
        });
        let mut config = returning(server, driver);
        config.settle = SHORT_SETTLE;
        config.incidents = vec![Incident::storm("50%@700ms").unwrap()];
        let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
        let flow = &report.flows[0];
        let dropped = rooms.lock().unwrap().faults["drop"];
        assert_eq!(flow.received + flow.missing, flow.expected, "{flow:?}");
        // Whom the server left out may have left by then.
        assert!(flow.missing > 0 && flow.missing <= dropped, "{flow:?}");
        assert!(flow.missing + flow.away >= dropped, "{dropped} {flow:?}");
    }
}

#[test]
fn who_stalls_or_vanishes_is_no_part_of_an_audience() {
    for driver in drivers() {
        let report = changing(driver, |config| {
            config.incidents = vec![Incident::stall("5@600ms..3s").unwrap()];
        });
        let stall = report.stall.as_ref().unwrap();
        assert_eq!((stall.stalled, stall.resumed), (5, 5));
        assert!(report.flows[0].replayed > 0, "{:?}", report.flows[0]);
        let report = changing(driver, |config| {
            config.incidents = vec![Incident::vanish("5@600ms").unwrap()];
        });
        assert_eq!(report.vanish.as_ref().unwrap().vanished, 5);
        assert_eq!(report.flows[0].replayed, 0);
    }
}

#[test]
fn who_thinks_sends_again_when_its_message_has_come_back() {
    for driver in drivers() {
        // A server that never forgets anything, and one that loses one of five to the first member of a group.
        let loses: fn(u64) -> Fault = |number| match number % 5 {
            0 => Fault::Drop,
            _ => Fault::None,
        };
        for fault in [|_| Fault::None, loses] {
            let (server, _) = serve(fault);
            let mut config = config(server, driver, CHAT);
            let flow = &mut config.flows.as_mut().unwrap().flows[0];
            flow.pace = Pace::Think(Think::parse("20ms..60ms").unwrap());
            config.duration = Some(Duration::from_secs(3));
            config.settle = Duration::from_millis(300);
            let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
            let flow = &report.flows[0];
            assert_eq!(
                (flow.rate_per_s, flow.think.as_deref()),
                (None, Some("20ms..60ms"))
            );
            // Twenty clients in 2.5 s: no more than one in 20 ms each.
            assert!((1..=20 * (2500 / 20 + 1)).contains(&flow.sent), "{flow:?}");
            assert_eq!((flow.unsent, flow.expected), (0, flow.sent * 5), "{flow:?}");
            assert_eq!(flow.received + flow.missing, flow.expected, "{flow:?}");
            assert_eq!((flow.duplicated, flow.unexpected), (0, 0), "{flow:?}");
        }
    }
}

#[test]
fn a_stamp_that_is_looked_for_at_the_wrong_place_is_shown_with_a_message_that_came() {
    let flow = "send = '{\"text\":\"${stamp}\"}'";
    for (place, said) in [
        (
            "stamp-regex = 'id=(mf[0-9a-f]+)'",
            "with stamp-regex = 'id=(mf[0-9a-f]+)'",
        ),
        ("stamp-json = \"/id\"", "at stamp-json = \"/id\""),
    ] {
        let (server, _) = serve(|_| Fault::None);
        let mut config = config(server, drivers()[0], &format!("{flow}\n{place}"));
        config.settle = SHORT_SETTLE;
        let report = myriad_swarm::run(&config, &Interrupt::new()).unwrap();
        let it = &report.flows[0];
        assert!(it.expected > 0 && it.received == 0, "{it:?}");
        let of_stamps = |warning: &&String| warning.contains("no stamp was found");
        let warning = report.warnings.iter().find(of_stamps);
        let warning = warning.unwrap_or_else(|| panic!("{:?}", report.warnings));
        assert!(warning.contains(said), "{warning}");
        assert!(warning.contains("\"{\"text\":\"mf"), "{warning}");
        assert!(
            warning.contains("Its stamp is at another place"),
            "{warning}"
        );
    }
}
