//! Producers of a stream: what each of them has appended, so that a repeat is recognised (`PROTOCOL.md`, "Idempotent Producers").

use myriad_wheel::Tick;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Producers of a stream. Past it the one that has appended nothing for the longest time is forgotten.
const PRODUCERS_MAX: usize = 1_000;
/// Milliseconds that a producer is known after its last append: seven days, as the protocol recommends for memory.
const KEPT_MS: u64 = 7 * 24 * 3_600_000;
/// Bytes that a producer takes beside the texts of its name: its entries in both maps and in the home's order, and the shared name.
const PRODUCER_BYTES: u64 = 240;

/// Who appends. Producers belong to who made them: one that a client names as the application's is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Appender {
    /// The application, by the name of its key; the key without a name has an empty one.
    Application(Box<str>),
    /// A user's client.
    User(Box<str>),
    /// Clients without a user: they cannot be told apart.
    Anonymous,
}

impl Appender {
    fn text(&self) -> &str {
        match self {
            Self::Application(key) => key,
            Self::User(user) => user,
            Self::Anonymous => "",
        }
    }

    /// Bytes of its text.
    pub(super) fn bytes(&self) -> usize {
        self.text().len()
    }
}

/// What a producer is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    by: Appender,
    id: Box<str>,
}

impl Name {
    fn of(by: &Appender, producer: &Producer) -> Self {
        Self {
            by: by.clone(),
            id: producer.id.clone(),
        }
    }

    fn bytes(&self) -> u64 {
        PRODUCER_BYTES + (self.by.bytes() + self.id.len()) as u64
    }
}

/// A producer's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producer {
    /// Its name.
    pub id: Box<str>,
    /// Which of its instances it is.
    pub epoch: u64,
    /// The request's number in the epoch, from 0 on.
    pub seq: u64,
}

impl Producer {
    /// Bytes of an id.
    pub const ID_BYTES_MAX: usize = 255;
    /// The greatest epoch and sequence number: 2^53 - 1, the greatest that JavaScript can count to.
    pub const NUMBER_MAX: u64 = (1 << 53) - 1;

    /// Its place.
    #[must_use]
    pub fn position(&self) -> ProducerPosition {
        ProducerPosition {
            epoch: self.epoch,
            seq: self.seq,
        }
    }
}

/// How far a producer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerPosition {
    /// Its latest epoch.
    pub epoch: u64,
    /// The last sequence number of that epoch that was taken.
    pub seq: u64,
}

/// What a producer's request is, beside what came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Next,
    Repeat(ProducerPosition),
    Stale { epoch: u64 },
    NotAtBegin,
    Gap { expected: u64 },
}

#[derive(Debug)]
struct Known {
    position: ProducerPosition,
    /// Its key in the order of use.
    used: u64,
    used_at: Tick,
}

impl Known {
    fn is_old(&self, now: Tick) -> bool {
        self.used_at.plus_ms(KEPT_MS) <= now
    }
}

/// The producers of a stream.
#[derive(Debug, Default)]
pub(super) struct Producers {
    known: HashMap<Arc<Name>, Known>,
    /// By their last use, the oldest first.
    order: BTreeMap<u64, Arc<Name>>,
    bytes: u64,
}

impl Producers {
    /// Bytes that all of them take.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What a request is. Nothing is noted yet.
    pub(super) fn judge(&self, by: &Appender, producer: &Producer, now: Tick) -> Verdict {
        let known = self.known.get(&Name::of(by, producer));
        let Some(known) = known.filter(|known| !known.is_old(now)) else {
            return match producer.seq {
                0 => Verdict::Next,
                // Nobody knows what came before: the producer was forgotten, or the stream is another one.
                _ => Verdict::Gap { expected: 0 },
            };
        };
        let ProducerPosition { epoch, seq } = known.position;
        match producer.seq {
            _ if producer.epoch < epoch => Verdict::Stale { epoch },
            0 if producer.epoch > epoch => Verdict::Next,
            _ if producer.epoch > epoch => Verdict::NotAtBegin,
            received if received <= seq => Verdict::Repeat(known.position),
            received if received == seq + 1 => Verdict::Next,
            _ => Verdict::Gap { expected: seq + 1 },
        }
    }

    /// Notes a request that was taken. Each use of a home has a number of its own, higher than those before.
    pub(super) fn note(&mut self, by: &Appender, producer: &Producer, number: u64, now: Tick) {
        self.forget_old(now);
        let position = producer.position();
        let name = Name::of(by, producer);
        let name = if let Some(known) = self.known.get_mut(&name) {
            // A known producer is in the order.
            let noted = self.order.remove(&known.used);
            debug_assert!(noted.is_some());
            (known.position, known.used, known.used_at) = (position, number, now);
            noted.unwrap_or_else(|| Arc::new(name))
        } else {
            let name = Arc::new(name);
            self.bytes += name.bytes();
            let known = Known {
                position,
                used: number,
                used_at: now,
            };
            self.known.insert(Arc::clone(&name), known);
            name
        };
        self.order.insert(number, name);
        if self.known.len() > PRODUCERS_MAX {
            self.forget_oldest();
        }
    }

    fn forget_old(&mut self, now: Tick) {
        while let Some((_, name)) = self.order.first_key_value()
            && self.known[name].is_old(now)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((&number, _)) = self.order.first_key_value() {
            self.forget(number);
        }
    }

    /// All of them, those first that were used the longest ago.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Appender, Producer)> {
        self.order.values().filter_map(|name| {
            let ProducerPosition { epoch, seq } = self.known.get(name)?.position;
            let id = name.id.clone();
            Some((&name.by, Producer { id, epoch, seq }))
        })
    }

    /// Whether this is the last use of a producer.
    pub(super) fn has(&self, number: u64) -> bool {
        self.order.contains_key(&number)
    }

    /// Forgets the producer whose last use this is.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(name) = self.order.remove(&number) {
            self.known.remove(&name);
            self.bytes -= name.bytes();
        }
    }

    /// Its producers by their last use, for checks.
    #[cfg(test)]
    pub(super) fn uses(&self) -> impl Iterator<Item = u64> {
        self.order.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Appender = Appender::Anonymous;

    fn request(id: &str, epoch: u64, seq: u64) -> Producer {
        let id = id.into();
        Producer { id, epoch, seq }
    }

    #[test]
    fn requests_are_judged_as_the_protocol_says() {
        let mut producers = Producers::default();
        let (now, mut number) = (Tick(5), 0);
        for (epoch, seq, verdict) in [
            (0, 1, Verdict::Gap { expected: 0 }),
            (2, 0, Verdict::Next),
            (2, 0, Verdict::Repeat(ProducerPosition { epoch: 2, seq: 0 })),
            (2, 2, Verdict::Gap { expected: 1 }),
            (2, 1, Verdict::Next),
            (2, 0, Verdict::Repeat(ProducerPosition { epoch: 2, seq: 1 })),
            (1, 7, Verdict::Stale { epoch: 2 }),
            (3, 1, Verdict::NotAtBegin),
            (3, 0, Verdict::Next),
            (2, 2, Verdict::Stale { epoch: 3 }),
        ] {
            let request = request("a", epoch, seq);
            assert_eq!(
                producers.judge(&BY, &request, now),
                verdict,
                "{epoch} {seq}"
            );
            if verdict == Verdict::Next {
                number += 1;
                producers.note(&BY, &request, number, now);
            }
        }
        assert_eq!(
            producers.judge(&BY, &request("b", 0, 0), now),
            Verdict::Next
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "a thousand producers take long")]
    fn the_one_that_was_used_the_longest_ago_is_forgotten() {
        let mut producers = Producers::default();
        for n in 0..PRODUCERS_MAX {
            producers.note(&BY, &request(&n.to_string(), 0, 0), n as u64, Tick(0));
        }
        producers.note(&BY, &request("0", 0, 1), 5_000, Tick(1));
        producers.note(&BY, &request("new", 0, 0), 5_001, Tick(1));
        let now = Tick(2);
        assert_eq!(producers.known.len(), PRODUCERS_MAX);
        let again = producers.judge(&BY, &request("1", 0, 1), now);
        assert_eq!(again, Verdict::Gap { expected: 0 });
        assert_eq!(
            producers.judge(&BY, &request("0", 0, 2), now),
            Verdict::Next
        );
        let names = producers.known.keys().map(|name| name.bytes());
        assert_eq!(producers.bytes(), names.sum::<u64>());
    }

    #[test]
    fn producers_of_one_id_are_others_for_whoever_else_appends() {
        let mut producers = Producers::default();
        let owners = [
            Appender::Application("".into()),
            Appender::Application("billing".into()),
            Appender::User("billing".into()),
            Appender::User("".into()),
            Appender::Anonymous,
        ];
        for (number, by) in owners.iter().enumerate() {
            let first = request("p", 0, 0);
            assert_eq!(producers.judge(by, &first, Tick(1)), Verdict::Next);
            producers.note(by, &first, number as u64, Tick(1));
        }
        producers.note(
            &owners[4],
            &request("p", Producer::NUMBER_MAX, 0),
            9,
            Tick(1),
        );
        for by in &owners[..4] {
            let next = producers.judge(by, &request("p", 0, 1), Tick(2));
            assert_eq!(next, Verdict::Next, "{by:?}");
        }
        assert_eq!(producers.len(), owners.len());
    }

    #[test]
    fn a_producer_is_known_for_seven_days() {
        let mut producers = Producers::default();
        producers.note(&BY, &request("a", 4, 0), 1, Tick(10));
        let until = Tick(10).plus_ms(KEPT_MS);
        let stale = producers.judge(&BY, &request("a", 0, 0), Tick(until.0 - 1));
        assert_eq!(stale, Verdict::Stale { epoch: 4 });
        assert_eq!(
            producers.judge(&BY, &request("a", 0, 0), until),
            Verdict::Next
        );
        assert!(producers.has(1), "to judge changes nothing");
        producers.note(&BY, &request("b", 0, 0), 2, until);
        assert_eq!((producers.len(), producers.order.len()), (1, 1));
        assert_eq!(producers.bytes(), PRODUCER_BYTES + 1);
    }
}
