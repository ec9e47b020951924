//! What this simulation has found, distilled. What a reader is told is checked as it comes (`verdict`).

use super::limited::Rate;
use super::reader::Reader;
use super::reload::Change;
use super::request::{From, Live, Request};
use super::scenario::Scenario;
use super::tokens::Token;
use crate::members::{Client, TAGS, Way};
use crate::node::Node;
use crate::plan::Plan;
use myriad_hub::name_hash;
use myriad_reactor::sim::{PeerId, Prng};
use myriad_shard::{Settings, StreamOffset};
use myriad_wire::centrifuge::Encoding;
use std::collections::HashMap;
use std::time::Duration;

/// A stream of JSON that lasts for ever.
const STREAM: usize = 0;
/// One whose publications wait for others.
const BATCHED: usize = 4;

/// One shard without faults. Tokens and limits are as they are.
fn node(change: impl FnOnce(&mut Settings)) -> Scenario {
    node_of(|plan| change(&mut plan.settings))
}

fn node_of(change: impl FnOnce(&mut Plan)) -> Scenario {
    let mut plan = super::scenario::plain(&mut Prng::new(1));
    change(&mut plan);
    Scenario::with(plan, &mut Prng::new(1), false)
}

impl Scenario {
    /// A reader who has connected.
    fn new_reader(&mut self) -> usize {
        let number = self.add_reader();
        self.settle();
        number
    }

    /// A reader asks.
    fn ask(&mut self, reader: usize, room: usize, from: From, live: Live) {
        let request = Request::new(room, from, live, &mut self.facts);
        self.send(reader, request);
    }

    fn send(&mut self, reader: usize, request: Request) {
        let mut readers = self.readers.iter_mut();
        let reader = readers.find(|known| known.number == reader);
        let reader = reader.expect("its connection goes on");
        reader.send(&self.world.net, request);
    }

    /// A writer does something, and waits for the answer.
    fn write(&mut self, act: impl FnOnce(&mut Self)) {
        act(self);
        self.settle();
        assert!(self.writers.is_answered());
    }

    fn create(&mut self, room: usize) {
        let (mesh, facts) = (&self.world.mesh, &mut self.facts);
        self.writers
            .create_with(room, 0, false, mesh, facts, &mut self.world.prng);
    }

    fn append(&mut self, room: usize, count: usize, closes: bool) {
        let (mesh, facts) = (&self.world.mesh, &mut self.facts);
        self.writers
            .append(room, count, closes, mesh, facts, &mut self.world.prng);
    }

    fn delete(&mut self, room: usize) {
        self.writers.delete(room, &self.world.mesh, &mut self.facts);
    }

    fn reader(&self, number: usize) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.number == number)
    }

    /// Where a reader is who has been answered.
    fn place_of(&self, reader: usize, room: usize) -> StreamOffset {
        let found = self.reader(reader).map(|reader| &reader.found[room]);
        found.and_then(|found| found.at).expect("it was told")
    }

    fn is_waiting(&self, reader: usize) -> bool {
        self.reader(reader)
            .is_some_and(|reader| !reader.asked.is_empty())
    }

    /// The end of a test: nothing is left, and something was told.
    fn end_with(mut self, told: &str) {
        assert!(
            self.facts.reached.contains_key(told),
            "{:?}",
            self.facts.reached
        );
        self.leave();
    }
}

/// A stream of events whose head did not fit the budget was told its last chunk, and nothing before it.
#[test]
fn a_stream_of_events_without_room_for_its_head_is_refused() {
    let mut node = node_of(|plan| plan.limits.buffered_bytes_max = 400);
    node.write(|node| node.create(STREAM));
    let reader = node.new_reader();
    node.ask(reader, STREAM, From::Start, Live::Events);
    node.settle();
    node.end_with("readers: there is no memory for an answer");
}

/// Whoever began now got what the stream's home had taken in before, and had not yet delivered.
#[test]
fn who_begins_now_gets_nothing_that_was_there_before() {
    for live in [Live::Poll, Live::Events] {
        let mut node = node(|_| {});
        node.write(|node| node.create(BATCHED));
        let [early, late] = [(); 2].map(|()| node.new_reader());
        node.ask(early, BATCHED, From::Now, Live::Poll);
        node.settle();
        node.write(|node| node.append(BATCHED, 2, false));
        assert!(node.is_waiting(early), "the batch waits");
        node.ask(late, BATCHED, From::Now, live);
        node.walk(Duration::from_millis(300));
        assert!(!node.is_waiting(early) && node.is_waiting(late));
        node.end_with("readers: a held request is answered with data");
    }
}

/// A stream of events was told that it had everything, while the home had more.
#[test]
fn who_opens_a_stream_of_events_is_told_what_its_home_knows() {
    let mut node = node(|_| {});
    node.write(|node| node.create(BATCHED));
    let [early, late] = [(); 2].map(|()| node.new_reader());
    node.ask(early, BATCHED, From::Start, Live::No);
    node.settle();
    let at = node.place_of(early, BATCHED);
    node.ask(early, BATCHED, From::After(at), Live::Poll);
    node.settle();
    node.write(|node| node.append(BATCHED, 2, false));
    node.ask(late, BATCHED, From::After(at), Live::Events);
    node.settle();
    node.end_with("readers: an event comes");
}

/// A reader that asks as fast as it can is refused, and waits as long as it is told. One that does not wait is ended.
#[test]
fn who_asks_too_often_waits_or_is_ended() {
    let rate = Rate {
        count: 3,
        period: Duration::from_secs(3),
    };
    let plan = super::scenario::plain(&mut Prng::new(1));
    let mut node = Scenario::with_reads(Some(rate), plan, &mut Prng::new(1), false);
    node.write(|node| node.create(STREAM));
    node.write(|node| node.append(STREAM, 1, false));
    let [patient, hasty] = [(); 2].map(|()| node.new_reader());
    for _ in 0..4 {
        node.ask(patient, STREAM, From::Start, Live::No);
    }
    node.settle();
    assert!(!node.is_waiting(patient), "all are answered");
    for _ in 0..3 {
        node.walk(Duration::from_secs(2));
        node.ask(patient, STREAM, From::Start, Live::No);
        node.settle();
    }
    assert!(
        !node
            .facts
            .reached
            .contains_key("readers: who goes on is ended")
    );
    for _ in 0..7 {
        node.ask(hasty, STREAM, From::Start, Live::Poll);
        node.ask(hasty, STREAM, From::Start, Live::No);
        node.settle();
        if node.reader(hasty).is_none() {
            break;
        }
    }
    assert!(node.reader(hasty).is_none() && node.reader(patient).is_some());
    node.end_with("readers: who goes on is ended");
}

/// The end of a stream that was there again was told to who had asked about the new one, where its shard was still telling others.
#[test]
fn who_reads_a_stream_that_was_created_again_is_not_told_the_end_of_the_first() {
    for ends_closed in [false, true] {
        let mut node = node(|settings| settings.slice_max = 1);
        node.write(|node| node.create(STREAM));
        let readers = [(); 4].map(|()| node.new_reader());
        for reader in readers {
            node.ask(reader, STREAM, From::Now, Live::Poll);
        }
        node.settle();
        node.write(|node| node.append(STREAM, 1, false));
        let at = node.place_of(readers[0], STREAM);
        let [early @ .., late] = readers;
        for reader in early {
            node.ask(reader, STREAM, From::After(at), Live::Poll);
        }
        node.settle();
        node.walk(Duration::from_secs(1));
        if ends_closed {
            node.append(STREAM, 0, true);
        }
        node.delete(STREAM);
        node.create(STREAM);
        while !node.writers.is_answered() {
            node.world.turn(0);
            node.exchange(false);
        }
        // The writer knows the new stream. What its home has told its own shard goes to one reader in a turn.
        let begin = StreamOffset {
            offset: at.offset + 1,
            ..at
        };
        node.ask(late, STREAM, From::After(begin), Live::Poll);
        node.settle();
        assert!(early.iter().all(|&reader| !node.is_waiting(reader)));
        assert!(node.is_waiting(late), "there is a stream, without an end");
        node.end_with("readers: a stream begins again behind a deleted one");
    }
}

/// Whoever asked again while others were still told the end of a stream was held until the request's time was over.
#[test]
fn who_asks_again_while_others_are_told_the_end_is_told_at_once() {
    let mut node = node(|settings| settings.slice_max = 1);
    node.write(|node| node.create(STREAM));
    let readers = [(); 4].map(|()| node.new_reader());
    for reader in readers {
        node.ask(reader, STREAM, From::Now, Live::Poll);
        node.settle();
    }
    node.walk(Duration::from_millis(200));
    node.append(STREAM, 0, true);
    for _ in 0..20 {
        node.world.turn(0);
        node.exchange(false);
        for reader in readers {
            if !node.is_waiting(reader) {
                let at = node.place_of(reader, STREAM);
                node.ask(reader, STREAM, From::After(at), Live::Poll);
            }
        }
    }
    node.settle();
    assert!(
        !readers
            .map(|reader| node.is_waiting(reader))
            .contains(&true)
    );
    node.end_with("readers: a stream is told to be closed");
}

impl Scenario {
    /// A client connects to a shard, with server-side subscriptions. Returns its connection.
    fn connect_to(&mut self, shard: usize, channels: &[&str]) -> PeerId {
        let id = self.world.net.connect();
        self.world.connected += 1;
        let subs: Vec<_> = channels
            .iter()
            .map(|channel| format!("\"{channel}\":{{}}"))
            .collect();
        let request = format!("{{\"subs\":{{{}}}}}", subs.join(","));
        let length = request.len();
        let head = format!(
            "POST /connection/uni_http_stream HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        );
        self.world.net.write(id, (head + &request).as_bytes());
        self.turn_alone(shard);
        id
    }

    /// One shard turns until it has nothing more to do, and no other does.
    fn turn_alone(&mut self, shard: usize) {
        while self.world.turn(shard) {
            self.exchange(false);
        }
    }

    fn text_of(&self, id: PeerId) -> String {
        String::from_utf8_lossy(&self.world.net.read(id)).into_owned()
    }
}

/// The end of a stream ended the process where a client that connects waited for another of its channels: the shard asked the end
/// for a frame, to keep it for the client.
#[test]
fn the_end_of_a_stream_passes_a_client_that_connects() {
    let mut node = node_of(|plan| plan.shards = 2);
    let shard_of = |name: &str| usize::try_from(name_hash(name) % 2).expect("0 or 1");
    let stream = super::facts::ROOMS[STREAM].name;
    let home = shard_of(stream);
    let elsewhere = ["h:a", "h:b", "h:c", "h:d"];
    let mut elsewhere = elsewhere.into_iter().filter(|name| shard_of(name) != home);
    let elsewhere = elsewhere.next().expect("one of them is elsewhere");
    node.write(|node| node.create(STREAM));
    let reader = node.add_reader();
    node.turn_alone(home);
    node.ask(reader, STREAM, From::Now, Live::Poll);
    node.turn_alone(home);
    let client = node.connect_to(home, &[stream, elsewhere]);
    assert!(node.is_waiting(reader));
    node.delete(STREAM);
    node.turn_alone(home);
    assert!(node.writers.is_answered() && !node.is_waiting(reader));
    let told = node.text_of(client);
    assert!(!told.contains("subs"), "the other channel's home is asleep");
    node.settle();
    let told = node.text_of(client);
    assert!(told.contains(stream) && told.contains(elsewhere), "{told}");
    node.write(|node| node.create(STREAM));
    node.write(|node| node.append(STREAM, 1, false));
    assert!(node.text_of(client).contains("\"pub\""));
    node.world.net.close(client);
    node.end_with("readers: a stream begins again behind a deleted one");
}

/// Turns in which whatever is under way arrives.
const TURNS: usize = 20;

impl Scenario {
    /// All shards but one do what there is to do.
    fn turn_without(&mut self, late: usize) {
        for _ in 0..TURNS {
            for shard in 0..self.world.seats.len() {
                if shard != late {
                    self.world.turn(shard);
                }
            }
            self.exchange(false);
        }
    }
}

/// The end of a stream came to a session whose connection waited for another channel, on a shard with a reader of the stream. The
/// session's delivery was asked for its frame, and the process died.
#[test]
fn a_stream_ends_while_a_session_waits_for_its_other_subscriptions() {
    for late in 0..3 {
        for is_deleted in [false, true] {
            let mut node = node_of(|plan| plan.shards = 3);
            node.write(|node| node.create(STREAM));
            for _ in 0..12 {
                let reader = node.new_reader();
                node.ask(reader, STREAM, From::Now, Live::Poll);
            }
            node.settle();
            let mut client = Client::over(0, Encoding::Json, Way::WebSocket);
            let wanted = (0..8).map(|room| (room, None)).collect();
            client.open_with(&node.world.net, wanted);
            node.clients.push(client);
            node.world.connected += 1;
            node.turn_without(late);
            if is_deleted {
                node.delete(STREAM);
            } else {
                node.append(STREAM, 0, true);
            }
            node.turn_without(late);
            node.settle();
            assert!(node.clients[0].is_subscribed(STREAM));
            node.end_with("sessions: a subscription comes with the connection");
        }
    }
}

/// The simulation expected an answer about the offset, where a reader with a token asked beyond the end of a stream whose namespace had
/// just gone. The answer is 403, because a shard looks at the name first.
#[test]
fn a_namespace_that_has_gone_comes_before_an_offset_that_is_too_far() {
    let token = |is_later| Token {
        seconds: 5,
        is_later,
    };
    for token in [Some(token(false)), Some(token(true)), None] {
        let mut node = node(|_| {});
        node.write(|node| node.create(STREAM));
        let reader = node.new_reader();
        node.change("h", Change::Gone);
        node.settle();
        let mut request = Request::new(STREAM, From::Now, Live::Events, &mut node.facts);
        request.token = token;
        request.faults = &[400, 404, 410];
        node.send(reader, request);
        node.settle();
        node.desk.clear(&node.world.mesh);
        node.settle();
        assert!(!node.is_waiting(reader));
        node.end_with("readers: there is no such namespace");
    }
}

/// The simulation expected that each subscription with a filter is made, also where queues had taken the room for filters. Error 106 says
/// that there is none.
#[test]
fn a_filter_without_room_is_refused() {
    let mut refused = 0;
    // From too little for a queue to room for it and the filter.
    for bytes in (400..4_000).step_by(20) {
        let mut node = node_of(|plan| {
            plan.limits.buffered_bytes_max = bytes;
            plan.faults.kernel_bytes = (300, 300);
        });
        let mut client = Client::over(0, Encoding::Protobuf, Way::WebSocket);
        client.open_with(&node.world.net, HashMap::new());
        node.clients.push(client);
        node.world.connected += 1;
        node.write(|node| node.create(STREAM));
        let reader = node.new_reader();
        node.ask(reader, STREAM, From::Now, Live::Events);
        node.settle();
        if let Some(reader) = node.reader(reader) {
            node.world.net.stall(reader.id);
        }
        node.write(|node| node.append(STREAM, 8, false));
        if node.clients[0].is_connected {
            node.clients[0].subscribe_by_tag(&node.world.net, BATCHED, TAGS[0]);
            node.settle();
        }
        let said = node.facts.reached.get("sessions: a filter has no room");
        refused += said.copied().unwrap_or_default();
        node.leave();
    }
    assert!(refused > 0, "no queue leaves too little for a filter");
}
