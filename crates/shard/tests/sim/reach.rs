//! What a run came through: which phases, ends, refusals and meetings of schedules, each by the sentence that the report
//! names it with. What is expected and never seen stays in the list with a count of zero.

use crate::world::World;
use myriad_shard::{CLOSE_REASONS, REFUSALS};
use std::collections::BTreeMap;

/// Seen in so few seeds that a run of CI's length may miss it. Everything else must be seen there.
const RARE: [&str; 6] = [
    "session: told of a gap",
    "Joining: the drain comes to it",
    "a connection listed for a flush has gone",
    "Closing: more is queued than one gathered send takes",
    "bytes of a connection that has gone",
    "a connection over its budget keeps the unsent tail of a frame",
];

/// What needs a response that goes on, which these peers do not ask for: `tests/sessions` and `tests/real` do.
const ELSEWHERE: [&str; 2] = [
    "close: ConnectFailed",
    "something comes behind a request whose answer goes on",
];

/// Only readers of streams come here. The simulation has none yet: `tests/real/readers.rs` has them.
const OF_READERS: [&str; 37] = [
    "a stream ends while a request is held that may be about the next one",
    "the token of a stream of events is over",
    "a publication finds a channel that is kept without members",
    "a reader of a stream gets a part of a delivery",
    "a reader of a stream needs a cursor of its own",
    "a channel that was read is kept without members",
    "a held request has waited for as long as it may",
    "a stream of events has lasted for as long as it may",
    "no other request comes on a connection",
    "a request comes before the one before it is answered",
    "too much comes behind a request that is not answered",
    "something comes behind the request for a stream of events",
    "a request begins that waited for an answer to leave",
    "a connection goes before its next request begins",
    "a shard knows all that a reader asks for",
    "a home refuses a reader",
    "a home answers a reader that has gone",
    "a request is held",
    "a stream of events needs more than one page to catch up",
    "not even an answer fits the budget",
    "the answer to a held request fails",
    "a stream is deleted while a request for it is held",
    "a stream is closed while somebody waits for more",
    "a client ends its side before its answer has left",
    "Handshake: the queue is taken whole",
    "Handshake: the queue is taken in part",
    "Handshake: nothing of the queue is taken",
    "Handshake: a send of the queue fails",
    "Handshake: more is queued than one gathered send takes",
    "Handshake: the socket takes bytes again",
    "refusal: offset",
    "refusal: live",
    "refusal: stream",
    "refusal: gone",
    "refusal: token",
    "refusal: pipelined",
    "close: Answered",
];

/// What clients may read as the status of an answer.
const STATUSES: [u16; 15] = [
    101, 200, 400, 401, 403, 404, 405, 408, 413, 417, 426, 431, 501, 503, 505,
];
/// What a close frame may say: nothing, our reasons, and the codes that clients have sent.
const CODES: [u16; 11] = [
    0, 1000, 1001, 1002, 1007, 1009, 1013, 3008, 3012, 3456, 4999,
];

/// How often each of it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reach(BTreeMap<String, u64>);

impl Reach {
    pub(crate) fn new() -> Self {
        let statuses = STATUSES.iter().map(|status| status_read(*status));
        let codes = CODES.iter().map(|code| close_read(*code));
        let others = [
            "a client reads FIN",
            "a client reads RST",
            "publish: accepted",
            "publish: Busy",
            "publish: TooLarge",
            "publish: Draining",
            "session: recovered",
            "session: recovered with publications",
            "session: recovered while publishers were busy",
            "session: not recovered",
            "session: told of a gap",
            "session: the control plane answers",
            "session: the control plane is too late",
            "session: too many wait for the control plane",
            "session: told that the server shuts down",
            "node: drains at once",
            "node: drains over time",
            "node: everybody leaves",
            "node: a storm of clients",
            "node: a table is full",
            "node: the limit of connections is reached",
            "node: time leaps while messages are under way",
        ];
        let others = others.iter().chain(&crate::access::MUST_HAPPEN);
        let others = others.map(|what| (*what).to_owned());
        let all = statuses.chain(codes).chain(others);
        Self(all.map(|what| (what, 0)).collect())
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.add(what, 1);
    }

    pub(crate) fn add(&mut self, what: impl Into<String>, count: u64) {
        *self.0.entry(what.into()).or_default() += count;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other
            .0
            .into_iter()
            .for_each(|(what, count)| self.add(what, count));
    }

    /// How many there are to see, and those that were not.
    pub(crate) fn missed(&self) -> (usize, Vec<&str>) {
        let here = self
            .0
            .iter()
            .filter(|(what, _)| !ELSEWHERE.contains(&what.as_str()));
        let missed = here.clone().filter(|(_, count)| **count == 0);
        (here.count(), missed.map(|(what, _)| &**what).collect())
    }

    /// Asserts that as many seeds as CI runs have seen everything that is not known to be rare.
    pub(crate) fn check(&self) {
        let (_, missed) = self.missed();
        let tame: Vec<_> = missed
            .iter()
            .filter(|what| !RARE.contains(what) && !OF_READERS.contains(what))
            .collect();
        assert!(tame.is_empty(), "the schedules miss: {tame:#?}");
        let unknown = RARE.iter().find(|what| !self.0.contains_key(**what));
        assert_eq!(unknown, None, "rare, and nothing is called so");
    }

    /// All of it, the rarest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut sorted: Vec<_> = self.0.iter().collect();
        sorted.sort_by_key(|(what, count)| (**count, *what));
        let line = |(what, count): (&String, &u64)| format!("{count:>14}  {what}");
        sorted.into_iter().map(line).collect()
    }
}

pub(crate) fn status_read(status: u16) -> String {
    format!("a client reads status {status}")
}

/// Zero for a close frame without a code.
pub(crate) fn close_read(code: u16) -> String {
    format!("a client reads close {code}")
}

impl World {
    /// Takes in what the shards have come through, before they go.
    pub(crate) fn note_reach(&mut self) {
        for (what, count) in myriad_shard::take_reached() {
            self.reach.add(what, count);
        }
        for (reason, count) in CLOSE_REASONS.iter().zip(self.closes_by_reason()) {
            self.reach.add(format!("close: {reason:?}"), count);
        }
        for (at, label) in REFUSALS.iter().enumerate() {
            let count = self.sum(|metrics| &metrics.refusals[at]);
            self.reach.add(format!("refusal: {label}"), count);
        }
    }
}
