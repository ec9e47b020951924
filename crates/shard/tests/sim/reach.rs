//! What a run came through: which phases, ends, refusals and meetings of schedules, each by the sentence that the report
//! names it with. What is expected and never seen stays in the list with a count of zero.

use crate::world::World;
use myriad_shard::{CLOSE_REASONS, REFUSALS};
use std::collections::BTreeMap;

/// Seen in so few seeds that a run of CI's length may miss it. Everything else must be seen there.
const RARE: [&str; 10] = [
    "tls: the control plane takes a connection in the middle of a record",
    "session: told of a gap",
    "Joining: the drain comes to it",
    "Handshake: a send of the queue fails",
    "a connection listed for a flush has gone",
    "Closing: more is queued than one gathered send takes",
    "bytes of a connection that has gone",
    "a connection over its budget keeps the unsent tail of a frame",
    // A shard that ran late without a look at its sockets: `regressions` has it.
    "a deadline is over, and nobody has looked at the sockets since",
    // Clients with TLS that read nothing at the very end: `regressions` has it.
    "a drain waits for last bytes below the shard",
];

/// Ends and refusals that no schedule brings about: defects, which fail every seed; data of the application that is no JSON; names
/// of hosts, which only a development server checks.
const ELSEWHERE: [&str; 3] = [
    "close: Defect",
    "close: InappropriateProtocol",
    "refusal: foreign_host",
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
        let others = others.chain(&crate::channels::MUST_HAPPEN);
        let others = others.chain(&crate::members::MUST_HAPPEN);
        let others = others.chain(&crate::secured::MUST_HAPPEN);
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
        let missed = self
            .0
            .iter()
            .filter(|(what, count)| **count == 0 && !ELSEWHERE.contains(&what.as_str()));
        (self.0.len(), missed.map(|(what, _)| &**what).collect())
    }

    /// Asserts that as many seeds as CI runs have seen everything that is not known to be rare.
    pub(crate) fn check(&self) {
        let (_, missed) = self.missed();
        let tame: Vec<_> = missed.iter().filter(|what| !RARE.contains(what)).collect();
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
        for (what, count) in self.net.take_reached() {
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
