//! Terminals that speak HTTP on a simulated network, against a server that remembers everything.
//!
//! The server answers polls in every form that HTTP has, and ends streams and kept connections as it likes, also in the middle
//! of an event. Whatever it and the network do, each terminal must have heard every publication once and in order, and
//! must count as open all the while. A stream of lines has no position: there each terminal must have heard what was written to it.

use super::run::{self, Run};
use crate::clock::Clock as _;
use crate::config::{Config, Endpoint, Publish, PublishBody};
use crate::engine::plan::Plan;
use crate::engine::shared::{Ending, Shared, Stage, Totals};
use crate::failure::Failure;
use crate::measure::push::PushKey;
use crate::protocol::Protocol;
use crate::stamp::Stamp;
use crate::target::Target;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, PeerId, Prng, SimNet};
use myriad_wire::http::{HeadLimits, RequestHead, parse_request};
use std::ops::Range;
use std::time::Duration;

const SEEDS: u64 = 300;
/// What `cargo test` is told to replay a seed.
const REPLAY: &str =
    "-p myriad-swarm --lib simulation::http::whoever_asks_again_has_heard_everything";
const STEPS: u32 = 250;

/// The server's end of one connection.
struct Peer {
    id: PeerId,
    input: Vec<u8>,
    /// The offset of a request that is not answered, or how much of a stream was sent.
    at: Option<usize>,
    /// The form of its stream.
    is_chunked: bool,
    is_over: bool,
}

struct World {
    run: Run,
    prng: Prng,
    protocol: Protocol,
    /// Where it is goes by offset and cursor, instead of tags and ids.
    is_durable: bool,
    peers: Vec<Peer>,
    /// The publications; the offset of the first is 0.
    log: Vec<String>,
    /// Answers without a delivery.
    timeouts: u64,
    /// Publications and heartbeats that were written to streams.
    written: u64,
    heartbeats: u64,
    /// The server is as kind as it can be.
    is_quiet: bool,
}

#[test]
fn whoever_asks_again_has_heard_everything() {
    let Some(all) = run::for_seeds(SEEDS, REPLAY, simulate) else {
        return;
    };
    let sum = |figure: fn(&Totals) -> u64| all.iter().map(figure).sum::<u64>();
    let (reopened, messages) = (sum(|it| it.http.reopened), sum(|it| it.messages));
    let (timeouts, comebacks) = (sum(|it| it.http.timeouts), sum(|it| it.comeback.back));
    // Without them nothing was shown.
    assert!(
        reopened > 1000 && messages > 10_000 && timeouts > 1000 && comebacks > 1000,
        "{reopened} {messages} {timeouts} {comebacks}"
    );
}

fn simulate(seed: u64) -> Totals {
    let mut world = World::new(seed);
    (0..STEPS).for_each(|_| world.step());
    world.settle();
    world.check();
    world.close();
    world.run.totals()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let faults = Faults::mixed(&mut prng);
        let protocols = [Protocol::LongPoll, Protocol::Sse, Protocol::HttpStream];
        let protocol = protocols[prng.below(3)];
        let is_durable = prng.one_in(2);
        let plan = plan(seed, protocol, is_durable, &mut prng);
        let shared = Shared::new(plan.threads as usize, 1);
        let net = SimNet::new(seed, faults);
        Self {
            run: Run::new(plan, shared, net),
            prng,
            protocol,
            is_durable,
            peers: Vec::new(),
            log: Vec::new(),
            timeouts: 0,
            written: 0,
            heartbeats: 0,
            is_quiet: false,
        }
    }

    fn step(&mut self) {
        self.serve_all();
        if self.prng.one_in(12) {
            self.publish();
        }
        self.run.turn();
        if self.run.shared.connected_at().is_none() && self.run.holds() {
            self.run.shared.note_connected(self.run.clock.now());
        }
        self.run.pass(self.prng.below(40) as u64);
    }

    fn serve_all(&mut self) {
        for dialed in self.run.net.dialed() {
            self.peers.push(Peer {
                id: dialed.peer,
                input: Vec::new(),
                at: None,
                is_chunked: false,
                is_over: false,
            });
        }
        for index in 0..self.peers.len() {
            self.hear(index);
            if self.peers[index].at.is_some() && !self.peers[index].is_over {
                match self.protocol {
                    Protocol::LongPoll => self.answer_poll(index),
                    _ => self.go_on_streaming(index),
                }
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
            assert_eq!(peer.at, None, "one request at a time");
            assert_eq!(peer.input.len(), head.head_bytes());
            let shown = offset_asked(&head, self.is_durable);
            let at = match self.protocol {
                Protocol::HttpStream => self.log.len(),
                _ => shown,
            };
            assert!(shown <= at && at <= self.log.len());
            peer.at = Some(at);
            peer.input.clear();
            if self.protocol != Protocol::LongPoll {
                self.begin_stream(index);
            }
        }
        let peer = &mut self.peers[index];
        if self.run.net.end(peer.id).is_some() {
            peer.is_over = true;
            self.run.net.close(peer.id);
        }
    }

    /// Answers a poll, or not yet.
    fn answer_poll(&mut self, index: usize) {
        let at = self.peers[index].at.expect("it asked");
        let has_news = at < self.log.len();
        if !has_news && (self.is_quiet || !self.prng.one_in(30)) {
            return;
        }
        if has_news && !self.is_quiet && self.prng.one_in(2) {
            return;
        }
        let end = at
            + self
                .prng
                .below(self.log.len() - at + 1)
                .max(usize::from(has_news));
        let body: String = self.log[at..end].concat();
        let mut head = match (has_news, self.prng.below(3)) {
            (true, _) => "HTTP/1.1 200 OK\r\n".to_owned(),
            (_, 0) => "HTTP/1.1 204 No Content\r\n".to_owned(),
            (_, 1) => "HTTP/1.1 408 Request Timeout\r\n".to_owned(),
            _ => "HTTP/1.1 304 Not Modified\r\n".to_owned(),
        };
        self.timeouts += u64::from(!has_news);
        if self.is_durable {
            head.push_str(&format!(
                "Stream-Next-Offset: {end}\r\nStream-Cursor: c\r\n"
            ));
        } else {
            head.push_str(&format!("ETag: {end}\r\nLast-Modified: now\r\n"));
        }
        let (mut answer, mut is_last) = (head, !self.is_quiet && self.prng.one_in(6));
        match self.prng.below(3) {
            0 if has_news => {
                answer.push_str("Transfer-Encoding: chunked\r\n");
                if is_last {
                    answer.push_str("Connection: close\r\n");
                }
                answer.push_str("\r\n");
                self.push_chunks(&mut answer, &body);
                answer.push_str("0\r\n\r\n");
            }
            1 if has_news => {
                is_last = true;
                answer.push_str(&format!("\r\n{body}"));
            }
            _ => {
                if is_last {
                    answer.push_str("Connection: close\r\n");
                }
                answer.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
            }
        }
        // A kept connection may end all the same.
        let is_dropped = !self.is_quiet && self.prng.one_in(10);
        let peer = &mut self.peers[index];
        peer.at = None;
        self.run.net.write(peer.id, answer.as_bytes());
        if is_last || is_dropped {
            peer.is_over = true;
            self.run.net.close(peer.id);
        }
    }

    fn push_chunks(&mut self, out: &mut String, body: &str) {
        let mut rest = body;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(1 + self.prng.below(rest.len()));
            out.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
            rest = after;
        }
    }

    fn begin_stream(&mut self, index: usize) {
        let is_chunked = self.prng.one_in(2);
        let coding = match is_chunked {
            true => "Transfer-Encoding: chunked\r\n",
            false => "",
        };
        let kind = match self.protocol {
            Protocol::Sse => "text/event-stream",
            _ => "application/json",
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{coding}\r\n");
        self.peers[index].is_chunked = is_chunked;
        self.run.net.write(self.peers[index].id, head.as_bytes());
    }

    /// A publication as an event or a line.
    fn message(&self, at: usize) -> String {
        let (data, next) = (&self.log[at], at + 1);
        match self.is_durable {
            _ if self.protocol == Protocol::HttpStream => format!("{data}\n"),
            true => format!(
                "event: data\ndata: {data}\n\nevent: control\ndata: {{\"streamNextOffset\":\"{next}\",\"streamCursor\":\"c\"}}\n\n"
            ),
            false => format!("id: {next}\r\ndata: {data}\r\n\r\n"),
        }
    }

    /// Writes some of what a stream has not got, and ends it at times.
    fn go_on_streaming(&mut self, index: usize) {
        let at = self.peers[index].at.expect("it is open");
        let end = at + self.prng.below(self.log.len() - at + 1);
        let end = if self.is_quiet { self.log.len() } else { end };
        let mut text = self.between_messages();
        text.extend((at..end).map(|at| self.message(at)));
        self.written += (end - at) as u64;
        let is_chunked = self.peers[index].is_chunked;
        let ends = !self.is_quiet && self.prng.one_in(60);
        let has_last_chunk = is_chunked && ends && self.prng.one_in(2);
        if ends {
            let is_told = has_last_chunk || !is_chunked;
            self.cut_end(&mut text, at..end, is_told);
        }
        let mut bytes = String::new();
        if is_chunked {
            self.push_chunks(&mut bytes, &text);
            if has_last_chunk {
                bytes.push_str("0\r\n\r\n");
            }
        } else {
            bytes = text;
        }
        let peer = &mut self.peers[index];
        peer.at = Some(end);
        self.run.net.write(peer.id, bytes.as_bytes());
        if ends {
            peer.is_over = true;
            self.run.net.close(peer.id);
        }
    }

    /// What a stream has beside messages.
    fn between_messages(&mut self) -> String {
        let mut text = String::new();
        if self.prng.one_in(5) {
            self.heartbeats += 1;
            text.push_str(match self.protocol {
                Protocol::Sse => ": still here\n\n",
                _ => ["\n", "\r\n", "{}\n"][self.prng.below(3)],
            });
        }
        if self.protocol == Protocol::Sse && self.prng.one_in(50) {
            text.push_str("retry: 5\n\n");
        }
        text
    }

    /// Ends a stream behind a message or in it. `is_told`: the end of the body is known, so that a last line needs no line feed.
    fn cut_end(&mut self, text: &mut String, sent: Range<usize>, is_told: bool) {
        if self.protocol == Protocol::HttpStream {
            if is_told && !sent.is_empty() && self.prng.one_in(2) {
                assert_eq!(text.pop(), Some('\n'));
            }
        } else if sent.end < self.log.len() {
            // An event without its end is none.
            let next = self.message(sent.end);
            let whole = next.find("\n\n").or_else(|| next.find("\r\n\r\n"));
            text.push_str(&next[..self.prng.below(whole.expect("an event"))]);
        }
    }

    fn publish(&mut self) {
        let sequence = u32::try_from(self.log.len()).unwrap() + 1;
        let key = PushKey::Own {
            stream: 0,
            sequence,
        };
        let number = u64::from(sequence);
        let roll = self.run.shared.call_roll(number, |_| true);
        let now = self.run.clock.now();
        self.run.shared.ledger.publish(key, number, roll, now, now);
        let stamp = Stamp {
            run: self.run.plan.run,
            stream: 0,
            sequence,
        };
        self.log.push(stamp.payload(26 + self.prng.below(200)));
    }

    /// Lets everything that is under way arrive, on a quiet network.
    fn settle(&mut self) {
        self.run.net.set_faults(Faults::NONE);
        self.is_quiet = true;
        for _ in 0..1000 {
            self.serve_all();
            self.run.turn();
            self.run.pass(25);
        }
    }

    fn check(&self) {
        let totals = self.run.totals();
        let terminals = u64::from(self.run.plan.connections);
        for account in self.run.shared.accounts() {
            assert_eq!(account.stage, Stage::Holding);
            // The network may not make a connection, which is tried again.
            let mut failures = account.failures.keys();
            let is_network =
                |failure: &Failure| matches!(failure, Failure::Refused | Failure::ConnectTimeout);
            assert!(failures.all(is_network), "{:?}", account.failures);
        }
        assert_eq!(
            (totals.opened, totals.open, totals.lost, totals.connecting),
            (terminals, terminals, 0, 0)
        );
        assert_eq!(self.run.shared.open_terminals(|_| true), terminals);
        assert_eq!((totals.duplicates, totals.overtaken), (0, 0));
        assert_eq!((totals.unexpected, totals.unmeasured), (0, 0));
        assert_eq!(totals.comeback.gone, totals.comeback.back);
        if self.protocol != Protocol::HttpStream {
            assert_eq!((totals.gaps, totals.comeback.missed), (0, 0));
            assert_eq!(totals.messages, terminals * self.log.len() as u64);
        } else {
            let is_all = totals.messages == self.written;
            assert!(is_all || totals.comeback.gone > 0);
            assert!(totals.messages <= self.written);
        }
        // Something may be under way to one that drops.
        if totals.comeback.gone == 0 {
            assert_eq!(totals.http.timeouts, self.timeouts);
            assert_eq!(totals.http.heartbeats, self.heartbeats);
        }
        assert!(totals.http.timeouts <= self.timeouts);
        assert!(totals.http.heartbeats <= self.heartbeats);
        let held: u64 = self
            .run
            .shared
            .accounts()
            .map(|account| account.held_times.len())
            .sum();
        assert_eq!(held, totals.http.timeouts);
        let alive = self.peers.iter().filter(|peer| !peer.is_over);
        assert_eq!(alive.count() as u64, terminals);
    }

    fn close(&mut self) {
        let ending = match self.prng.one_in(2) {
            true => Ending::Orderly,
            false => Ending::Reset,
        };
        // Some are between two connections then.
        self.is_quiet = false;
        for _ in 0..self.prng.below(5) {
            self.serve_all();
            self.run.turn();
        }
        run::close(self, |world| &mut world.run, Self::serve_all, ending);
    }
}

/// From where a request goes on; a first one begins at the beginning.
fn offset_asked(head: &RequestHead<'_>, is_durable: bool) -> usize {
    if is_durable {
        let query = head.query().unwrap();
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find_map(|(known, value)| (known == name).then_some(value))
        };
        let offset = value("offset").unwrap();
        assert_eq!(value("cursor").is_some(), offset != "-1");
        return offset.parse().unwrap_or(0);
    }
    let tag = head.header("if-none-match");
    assert_eq!(tag.is_some(), head.header("if-modified-since").is_some());
    let shown = tag.or_else(|| head.header("last-event-id"));
    shown.map_or(0, |text| str::from_utf8(text).unwrap().parse().unwrap())
}

fn plan(seed: u64, protocol: Protocol, is_durable: bool, prng: &mut Prng) -> Plan {
    let query = match is_durable {
        true => "?offset=-1&live=x",
        false => "",
    };
    let target = Target::parse(&format!("http://127.0.0.1:8000/stream{query}")).unwrap();
    let mut config = Config::new(vec![target], prng.between(1, 40) as u64);
    config.protocol = protocol;
    config.driver = Some(Driver::Epoll);
    config.threads = Some(u32::try_from(prng.between(1, 3)).unwrap());
    config.connecting_max = u32::try_from(prng.between(1, 40)).unwrap();
    config.arrival = super::arrival(prng);
    config.incidents = super::storms(prng);
    config.comeback.backoff = (Duration::from_millis(50), Duration::from_secs(2));
    config.duration = Some(Duration::from_mins(1));
    config.retries = 100;
    config.connect_timeout = Duration::from_secs(1000);
    config.handshake_timeout = Duration::from_secs(1000);
    let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
    let mut publish = Publish::new(endpoint, Duration::from_secs(1));
    publish.body = PublishBody::Plain;
    config.publish = Some(publish);
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = seed;
    plan
}
