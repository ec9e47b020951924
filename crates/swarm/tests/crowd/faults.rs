//! A chat server whose faults and delays are known: the report has each fault in its exact number, and times as they were.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::drivers;
use myriad_swarm::{Driver, Interrupt, LiveStyle, Report, RoundTripTimes, Scenario};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tungstenite::Message;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};

/// The n-th attempt to connect is refused, and the n-th client is closed when it joins, of so many.
const REFUSED_EVERY: usize = 80;
const CLOSED_EVERY: usize = 100;

/// Of the messages, one in so many is dropped, comes twice, or comes behind the next one of its sender.
const DROPPED_EVERY: u64 = 1000;
const TWICE_EVERY: u64 = 500;
const SWAPPED_EVERY: u64 = 300;

/// A client's writing half.
type Writer = Arc<Mutex<TcpStream>>;

fn write(writer: &Writer, payload: &[u8]) {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    let frame = [&[0x81, length], payload].concat();
    let _ = writer.lock().unwrap().write_all(&frame);
}

/// Accepts clients in order, and calls `serve` with the number, the reading half and the writing half of each.
fn accept(
    refuses: fn(usize) -> bool,
    serve: impl Fn(usize, &mut tungstenite::WebSocket<TcpStream>, &Writer) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || {
                let stream = stream.unwrap();
                let writer = Arc::new(Mutex::new(stream.try_clone().unwrap()));
                #[expect(clippy::result_large_err, reason = "the library's own type")]
                let judge = |_: &Request, response: Response| match refuses(number) {
                    true => {
                        let mut refusal = ErrorResponse::new(Some("full".to_owned()));
                        *refusal.status_mut() = 503.try_into().unwrap();
                        Err(refusal)
                    }
                    false => Ok(response),
                };
                if let Ok(mut client) = tungstenite::accept_hdr(stream, judge) {
                    serve(number, &mut client, &writer);
                }
            });
        }
    });
    address
}

/// What the server of rooms did wrong, in deliveries.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    dropped: u64,
    twice: u64,
    swapped: u64,
}

#[derive(Default)]
struct Rooms {
    members: HashMap<String, Vec<Writer>>,
    messages: u64,
    /// By sender: a message that waits for the next one, and how many it is for.
    held: HashMap<usize, (Vec<u8>, u64)>,
    faults: Faults,
    closed: u64,
}

impl Rooms {
    fn relay(&mut self, sender: usize, room: &str, payload: &[u8]) {
        let number = self.messages;
        self.messages += 1;
        let members = &self.members[room];
        let count = members.len() as u64;
        let tell = |payload: &[u8]| members.iter().for_each(|member| write(member, payload));
        if number % DROPPED_EVERY == DROPPED_EVERY - 1 {
            self.faults.dropped += count;
            return;
        }
        let held = self.held.remove(&sender);
        if held.is_none() && number % SWAPPED_EVERY == SWAPPED_EVERY - 1 {
            self.held.insert(sender, (payload.to_owned(), count));
            return;
        }
        tell(payload);
        if number % TWICE_EVERY == TWICE_EVERY - 2 {
            self.faults.twice += count;
            tell(payload);
        }
        if let Some((held, _)) = held {
            self.faults.swapped += count;
            tell(&held);
        }
    }
}

fn serve_rooms() -> (SocketAddr, Arc<Mutex<Rooms>>) {
    let rooms: Arc<Mutex<Rooms>> = Arc::default();
    let shared = Arc::clone(&rooms);
    let refuses = |number| number % REFUSED_EVERY == REFUSED_EVERY - 1;
    let address = accept(refuses, move |number, client, writer| {
        let joined = client.read().unwrap().into_text().unwrap();
        let room = joined.strip_prefix("join:").unwrap().to_owned();
        if number % CLOSED_EVERY == 0 {
            shared.lock().unwrap().closed += 1;
            let _ = client.close(None);
            while client.read().is_ok() {}
            return;
        }
        let mut rooms = shared.lock().unwrap();
        let members = rooms.members.entry(room.clone()).or_default();
        members.push(Arc::clone(writer));
        drop(rooms);
        write(writer, b"joined");
        while let Ok(message) = client.read() {
            if message.is_text() {
                let payload = message.into_data();
                shared.lock().unwrap().relay(number, &room, &payload);
            }
        }
    });
    (address, rooms)
}

fn run(server: SocketAddr, driver: Driver, rest: &str) -> Report {
    let text = format!("[terminals]\ntargets = [\"ws://{server}/\"]\n{rest}");
    let scenario = Scenario::parse(Path::new("faults.toml"), &text, &[]);
    let mut config = scenario.unwrap_or_else(|error| panic!("{error}")).config;
    config.driver = Some(driver);
    config.live = LiveStyle::Off;
    myriad_swarm::run(&config, &Interrupt::new()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_fault_is_named_in_its_exact_number() {
    for driver in drivers() {
        let (server, rooms) = serve_rooms();
        let scenario = r#"
            count = 400
            [arrival]
            retries = 0
            [hold]
            duration = "5s"
            warmup = "2s"
            settle = "4s"
            [groups]
            count = 100
            [opening]
            send = ["join:${group}"]
            [[flows]]
            name = "chat"
            rate = 2000
            send = '{"id":"${stamp}","from":${terminal}}'
        "#;
        let report = run(server, driver, scenario);
        let rooms = rooms.lock().unwrap();
        let flow = &report.flows[0];
        let refused = 400 / REFUSED_EVERY as u64;
        assert_eq!(report.errors.get("handshake_503"), Some(&refused));
        assert_eq!(report.errors.len(), 1, "{:?}", report.errors);
        assert_eq!(report.setup.connected, 400 - refused);
        assert_eq!(rooms.closed, 4);
        assert_eq!((report.closes["none"], report.churn.lost), (4, 4));
        let faults = rooms.faults;
        assert!(faults.dropped > 0 && faults.twice > 0 && faults.swapped > 0);
        // Those whose sender has sent no later one.
        let held: u64 = rooms.held.values().map(|(_, count)| count).sum();
        assert_eq!(flow.sent, rooms.messages);
        assert_eq!(flow.missing, faults.dropped + held, "{flow:#?}");
        assert_eq!(flow.duplicated, faults.twice, "{flow:#?}");
        assert_eq!(flow.out_of_order, faults.swapped, "{flow:#?}");
        assert_eq!((flow.unexpected, flow.late), (0, 0), "{flow:#?}");
        assert_eq!(flow.received + flow.missing, flow.expected);
    }
}

/// A message on its way through the server that delays: who gets it, what it is, and when it came.
type Delayed = (Writer, Vec<u8>, Instant);

#[derive(Default)]
struct Delays {
    /// By the time when each is due, with its number.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    messages: HashMap<u64, Delayed>,
    count: u64,
    /// How long each was held.
    held: Vec<Duration>,
}

type Line = Arc<(Mutex<Delays>, Condvar)>;

/// Half of these are below 14 ms, 1% above 100 ms and one in a thousand above 316 ms.
fn delay(number: u64) -> Duration {
    const COUNT: u64 = 2000;
    // Neighbours differ.
    let place = number * 1597 % COUNT;
    let above = 1.0 - (place as f64 + 0.5) / COUNT as f64;
    Duration::from_secs_f64(0.010 * above.powf(-0.5))
}

fn serve_delayed() -> (SocketAddr, Line) {
    let line: Line = Arc::default();
    let shared = Arc::clone(&line);
    std::thread::spawn(move || let_go(&shared));
    let shared = Arc::clone(&line);
    let address = accept(
        |_| false,
        move |_, client, writer| {
            while let Ok(message) = client.read() {
                if !message.is_text() {
                    continue;
                }
                let came = Instant::now();
                let mut delays = shared.0.lock().unwrap();
                let number = delays.count;
                delays.count += 1;
                delays.due.push(Reverse((came + delay(number), number)));
                let payload = Message::into_data(message).to_vec();
                let delayed = (Arc::clone(writer), payload, came);
                delays.messages.insert(number, delayed);
                drop(delays);
                shared.1.notify_one();
            }
        },
    );
    (address, line)
}

/// Sends each back when its time has come.
fn let_go((delays, more): &(Mutex<Delays>, Condvar)) {
    let mut delays = delays.lock().unwrap();
    loop {
        let Some(&Reverse((due, number))) = delays.due.peek() else {
            delays = more.wait(delays).unwrap();
            continue;
        };
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            delays = more.wait_timeout(delays, wait).unwrap().0;
            continue;
        }
        delays.due.pop();
        let (writer, payload, came) = delays.messages.remove(&number).unwrap();
        delays.held.push(came.elapsed());
        write(&writer, &payload);
    }
}

/// The figures of the report beside those of the server, in milliseconds.
fn beside(report: RoundTripTimes, held: &mut [Duration]) -> Vec<(f64, f64)> {
    held.sort_unstable();
    let quantile = |thousandths: usize| {
        let rank = (thousandths * held.len()).div_ceil(1000);
        held[rank - 1].as_secs_f64() * 1000.0
    };
    [(report.p50, 500), (report.p99, 990), (report.p999, 999)]
        .map(|(reported, thousandths)| (reported.unwrap(), quantile(thousandths)))
        .to_vec()
}

/// A reported time holds all the time that the server held the message: it is never the shorter.
/// How much longer it may be depends on the machine; `make bench`, row `accuracy`, measures that.
#[test]
fn no_time_is_shorter_than_the_servers() {
    for driver in drivers() {
        let (server, line) = serve_delayed();
        let scenario = r#"
            count = 50
            [hold]
            duration = "5s"
            warmup = "1s"
            settle = "5s"
            [[flows]]
            name = "asked"
            rate = 500
            send = '${stamp}'
            expect = "sender"
        "#;
        let report = run(server, driver, scenario);
        let flow = &report.flows[0];
        let mut held = std::mem::take(&mut line.0.lock().unwrap().held);
        assert_eq!(flow.complete, flow.sent, "{flow:#?}");
        assert_eq!(held.len() as u64, flow.sent);
        let pairs = beside(flow.since_sent_ms, &mut held);
        eprintln!("reported and known, in milliseconds: {pairs:.3?}");
        // One hundredth for the width of the histogram's buckets.
        let is_whole = |(reported, known): &(f64, f64)| *reported >= known * 0.99;
        assert!(pairs.iter().all(is_whole), "{driver:?}: {pairs:.3?}");
    }
}
