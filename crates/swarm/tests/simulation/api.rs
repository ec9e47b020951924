//! Terminals that use an API on a simulated network, against a server that answers in every form that HTTP has, and ends
//! connections whenever it likes.
//!
//! Whatever happens, each request is answered, refused or counted as unanswered, a terminal asks one thing at a time, and what
//! may not be done twice is done once.

use super::run::{self, Run};
use crate::clock::Clock as _;
use crate::engine::flows::figures::FlowFigures;
use crate::engine::plan::Plan;
use crate::engine::shared::{Ending, Shared, Stage, Totals};
use crate::failure::Failure;
use crate::scenario::Scenario;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, Prng, SimNet};
use myriad_wire::http::{HeadLimits, parse_request};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

const SEEDS: u64 = 200;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str = "-p myriad-swarm --lib simulation::api::every_request_is_accounted_for_and_none_is_done_twice_that_may_not_be";
const STEPS: u32 = 250;

const ASKED: &str = r#"
[terminals]
protocol = "http"
targets = ["http://127.0.0.1:8000/v1"]
[arrival]
retries = 100
connect-timeout = "1000s"
[hold]
duration = "1000s"
warmup = "0s"
settle = "1000s"
[[flows]]
name = "read"
rate = 30
path = "/read?n=${sequence}"
answer = "^ok"
[[flows]]
name = "add"
think = "10ms..500ms"
path = "/add?n=${sequence}"
send = "more"
answer = "^ok"
[[flows]]
name = "put"
think = "exp(300ms)"
method = "PUT"
path = "/put?n=${sequence}"
send = "x"
status = [200, 404]
[[flows]]
name = "look"
rate = 5
method = "HEAD"
path = "/look?n=${sequence}"
status = [200, 404]
"#;

const ALONE: &str = r#"
[terminals]
count = 1
protocol = "http"
targets = ["http://127.0.0.1:8000/v1"]
[hold]
duration = "1000s"
warmup = "0s"
settle = "1000s"
[[flows]]
name = "read"
think = "40ms..60ms"
path = "/read?n=${sequence}"
"#;

const TIMEOUT: &str =
    "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The server's end of one connection.
struct Peer {
    id: PeerId,
    input: Vec<u8>,
    /// The request that is to be answered: its method and target.
    asked: Option<(String, String)>,
    is_over: bool,
}

struct World {
    run: Run,
    prng: Prng,
    peers: Vec<Peer>,
    is_unkind: bool,
    is_quiet: bool,
    /// How often each request was carried out.
    done: HashMap<(String, String), u64>,
}

#[test]
fn every_request_is_accounted_for_and_none_is_done_twice_that_may_not_be() {
    let Some(all) = run::for_seeds(SEEDS, REPLAY, simulate) else {
        return;
    };
    let flows = || all.iter().flat_map(|(_, figures)| figures);
    let received: u64 = flows().map(|it| it.received).sum();
    let unanswered: u64 = flows().map(|it| it.unanswered).sum();
    let reopened: u64 = all.iter().map(|(totals, _)| totals.http.reopened).sum();
    let repeated: u64 = all.iter().map(|(totals, _)| totals.http.repeated).sum();
    // Without them nothing was shown.
    assert!(
        received > 10_000 && reopened > 1000 && repeated > 500 && unanswered > 100,
        "{received} {reopened} {repeated} {unanswered}"
    );
}

/// The totals, and the figures of each flow.
fn simulate(seed: u64) -> (Totals, Vec<FlowFigures>) {
    let mut world = World::new(seed);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    world.check();
    world.close();
    (world.run.totals(), world.figures())
}

/// What becomes of the requests of one user whose server says this to each, one piece a turn: how many were answered, and how many
/// answers were invalid.
fn answered_by(pieces: &[&str]) -> (u64, u64) {
    let scenario = Scenario::parse(Path::new("api.toml"), ALONE, &[]).unwrap();
    let mut config = scenario.config;
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    let plan = config.prepare().unwrap().plan;
    let shared = Shared::of_plan(&plan);
    let mut world = World {
        run: Run::new(plan, shared, SimNet::new(1, Faults::NONE)),
        prng: Prng::new(1),
        peers: Vec::new(),
        is_unkind: false,
        is_quiet: true,
        done: HashMap::new(),
    };
    for _ in 0..1000 {
        world.accept();
        for index in 0..world.peers.len() {
            world.hear(index);
            if world.peers[index].asked.take().is_none() || world.peers[index].is_over {
                continue;
            }
            for piece in pieces {
                world.say(index, piece, false);
                world.run.turn();
                world.run.pass(1);
            }
        }
        world.run.turn();
        if world.run.shared.connected_at().is_none() && world.run.holds() {
            world.run.note_connected();
        }
        world.run.pass(10);
    }
    let figures = &world.figures()[0];
    assert!(figures.received > 20, "{figures:?}");
    assert_eq!((figures.refused, figures.unanswered), (0, 0));
    let account = world.run.shared.account(0);
    let invalid = account.failures.get(&Failure::AnswerInvalid).copied();
    let invalid = invalid.unwrap_or_default();
    assert_eq!(account.failures.values().sum::<u64>(), invalid);
    (figures.received, invalid)
}

#[test]
fn what_comes_behind_an_answer_is_told_in_whatever_pieces() {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let last = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    let more = format!("{last}, and more");
    let (answered, invalid) = answered_by(&[more.as_str()]);
    assert_eq!(invalid, answered, "a length that is too small");
    let (answered, invalid) = answered_by(&[ANSWER, "H", &ANSWER[1..]]);
    assert_eq!(invalid, answered, "a second answer");
    for piece in ["H", "HTTP/1.1 4"] {
        let (_, invalid) = answered_by(&[ANSWER, piece, &TIMEOUT[piece.len()..]]);
        assert_eq!(invalid, 0, "it has waited for the next request");
    }
    assert_eq!(answered_by(&[last]).1, 0);
}

fn plan(seed: u64, prng: &mut Prng) -> Plan {
    let scenario = Scenario::parse(Path::new("api.toml"), ASKED, &[]).unwrap();
    let mut config = scenario.config;
    config.connections = prng.between(1, 30) as u64;
    config.driver = Some(Driver::Epoll);
    config.threads = Some(u32::try_from(prng.between(1, 3)).unwrap());
    config.connecting_max = u32::try_from(prng.between(1, 40)).unwrap();
    config.arrival = super::arrival(prng);
    config.incidents = super::storms(prng);
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_secs(2));
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = seed;
    plan
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let faults = Faults::mixed(&mut prng);
        let is_unkind = prng.one_in(2);
        let plan = plan(seed, &mut prng);
        let shared = Shared::of_plan(&plan);
        let net = SimNet::new(seed, faults);
        Self {
            run: Run::new(plan, shared, net),
            prng,
            peers: Vec::new(),
            is_unkind,
            is_quiet: false,
            done: HashMap::new(),
        }
    }

    fn step(&mut self) {
        self.serve_all();
        self.run.turn();
        if self.run.shared.connected_at().is_none() && self.run.holds() {
            self.run.note_connected();
        }
        self.run.pass(self.prng.below(40) as u64);
    }

    fn accept(&mut self) {
        for dialed in self.run.net.dialed() {
            self.peers.push(Peer {
                id: dialed.peer,
                input: Vec::new(),
                asked: None,
                is_over: false,
            });
        }
    }

    fn serve_all(&mut self) {
        self.accept();
        for index in 0..self.peers.len() {
            self.hear(index);
            if self.peers[index].is_over {
                continue;
            }
            match self.peers[index].asked.take() {
                Some(asked) if self.is_quiet || self.prng.one_in(3) => self.answer(index, asked),
                Some(asked) => self.peers[index].asked = Some(asked),
                None => self.get_tired(index),
            }
        }
    }

    fn hear(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if peer.is_over {
            return;
        }
        peer.input.append(&mut self.run.net.read(peer.id));
        let head = parse_request(&peer.input, HeadLimits::default()).unwrap();
        if let Some(head) = head {
            let length = head.header("content-length").map_or(0, |value| {
                str::from_utf8(value).unwrap().parse::<usize>().unwrap()
            });
            let whole = head.head_bytes() + length;
            if peer.input.len() >= whole {
                assert_eq!(peer.asked, None, "one request at a time");
                assert_eq!(peer.input.len(), whole);
                let target = format!("{}?{}", head.path(), head.query().unwrap_or_default());
                peer.asked = Some((head.method().to_owned(), target));
                peer.input.clear();
            }
        }
        if self.run.net.end(peer.id).is_some() {
            peer.is_over = true;
            self.run.net.close(peer.id);
        }
    }

    /// Ends a connection without a request, at times with 408.
    fn get_tired(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        if self.is_quiet || !peer.input.is_empty() || !self.prng.one_in(40) {
            return;
        }
        if self.prng.one_in(2) {
            self.run.net.write(peer.id, TIMEOUT.as_bytes());
        }
        self.end(index);
    }

    /// Ends a connection in any way that connections end.
    fn end(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        peer.is_over = true;
        match self.prng.below(8) {
            0 if !self.is_quiet => self.run.net.reset(peer.id),
            1 if !self.is_quiet => self.run.net.time_out(peer.id),
            _ => self.run.net.close(peer.id),
        }
    }

    fn answer(&mut self, index: usize, asked: (String, String)) {
        let is_kind = self.is_quiet || !self.is_unkind;
        if !self.is_quiet && self.prng.one_in(20) {
            return self.say(index, TIMEOUT, true);
        }
        if !is_kind && self.prng.one_in(12) {
            // Carried out, and nobody is told; or told a part of it.
            *self.done.entry(asked).or_default() += 1;
            let part = if self.prng.one_in(2) {
                ""
            } else {
                "HTTP/1.1 200 OK\r\ncontent-l"
            };
            return self.say(index, part, true);
        }
        assert!(asked.1.starts_with("/v1/"), "{asked:?}");
        let is_to_head = asked.0 == "HEAD";
        *self.done.entry(asked).or_default() += 1;
        let body = if self.prng.one_in(2) {
            "ok"
        } else {
            "ok, and much more than that"
        };
        let length = body.len();
        let ok = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n");
        let (head, body, is_last) = match self.prng.below(6) {
            0 => ("HTTP/1.1 200 OK\r\n".to_owned(), body.to_owned(), true),
            1 => (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n".to_owned(),
                format!("{length:x}\r\n{body}\r\n0\r\n\r\n"),
                false,
            ),
            2 => (format!("{ok}connection: close\r\n"), body.to_owned(), true),
            3 if !is_kind => (
                "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n".to_owned(),
                "ok".to_owned(),
                false,
            ),
            4 => (
                format!("HTTP/1.1 103 Early Hints\r\n\r\n{ok}"),
                body.to_owned(),
                false,
            ),
            _ => (ok, body.to_owned(), false),
        };
        let body = if is_to_head { "" } else { &body };
        // A kept connection may end all the same.
        let is_last = is_last || (!self.is_quiet && self.prng.one_in(10));
        self.say(index, &format!("{head}\r\n{body}"), is_last);
    }

    fn say(&mut self, index: usize, text: &str, is_last: bool) {
        self.run.net.write(self.peers[index].id, text.as_bytes());
        if is_last {
            self.end(index);
        }
    }

    /// Lets everything that is under way arrive, on a quiet network.
    fn settle(&mut self) {
        self.run.net.set_faults(Faults::NONE);
        self.is_quiet = true;
        self.run.shared.end_schedule(self.run.clock.now());
        for _ in 0..1000 {
            self.serve_all();
            self.run.turn();
            self.run.pass(25);
        }
    }

    fn figures(&self) -> Vec<FlowFigures> {
        self.run.shared.flow_ledger().sum()
    }

    fn check(&self) {
        let totals = self.run.totals();
        let terminals = u64::from(self.run.plan.connections);
        for account in self.run.shared.accounts() {
            assert_eq!(account.stage, Stage::Holding);
            let mut failures = account.failures.keys();
            let is_expected = |failure: &Failure| match failure {
                Failure::Refused | Failure::ConnectTimeout => true,
                // Behind a repetition too.
                Failure::Call(0 | 408) => true,
                Failure::Call(404) => self.is_unkind,
                _ => false,
            };
            assert!(failures.all(is_expected), "{:?}", account.failures);
        }
        assert_eq!(
            (totals.open, totals.lost, totals.connecting),
            (terminals, 0, 0)
        );
        assert_eq!(totals.comeback.gone, totals.comeback.back);
        for figures in self.figures() {
            // One that drops with a storm takes its request with it.
            let ended = figures.received + figures.refused + figures.unanswered;
            assert_eq!(ended + figures.away, figures.sent, "{figures:?}");
        }
        let of_add = |target: &str| target.starts_with("/v1/add");
        for ((method, target), count) in &self.done {
            let is_add = of_add(target);
            assert_eq!(method == "POST", is_add);
            assert!(!is_add || *count == 1, "{target} was done {count} times");
            assert!(*count <= 2, "{target} was done {count} times");
        }
    }

    fn close(&mut self) {
        let ending = match self.prng.one_in(2) {
            true => Ending::Orderly,
            false => Ending::Reset,
        };
        run::close(self, |world| &mut world.run, Self::serve_all, ending);
    }
}
