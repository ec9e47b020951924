//! How many requests a reader may send on one connection, checked against the times of all of them.

use super::facts::Facts;
use super::request::Request;
use crate::verdict::ns;
use myriad_shard::RateLimit;
use std::time::Duration;

/// The limit of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) count: u64,
    pub(super) period: Duration,
}

impl Rate {
    pub(super) fn limit(self) -> RateLimit {
        RateLimit::new(self.count, self.period).expect("a limit")
    }
}

/// What became of a request. The server has looked at it between these times.
#[derive(Clone, Copy, Debug)]
struct Charged {
    sent_at: u64,
    answered_at: u64,
    is_refused: bool,
}

/// The requests of a connection that were answered, in their order.
#[derive(Debug, Default)]
pub(super) struct Charges(Vec<Charged>);

/// How a request is answered that is one too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    None,
    /// The connection goes on.
    Once,
    /// The connection ends.
    Last,
}

impl Charges {
    /// Notes an answer, and checks that it is right to refuse its request, or to take it.
    pub(super) fn note(&mut self, request: &Request, refusal: Refusal, facts: &mut Facts) {
        let Some(rate) = facts.reads else {
            assert_eq!(refusal, Refusal::None, "nothing is limited: {request:?}");
            return;
        };
        self.0.push(Charged {
            sent_at: request.sent_at,
            answered_at: facts.now,
            is_refused: refusal != Refusal::None,
        });
        let spans = match refusal {
            Refusal::None => return self.check_taken(rate),
            // The connection of a client that wishes so ends with any answer.
            Refusal::Last if !request.closes => 2,
            Refusal::Once | Refusal::Last => 1,
        };
        assert!(
            self.may_have_used(spans, rate),
            "too early: {rate:?} {self:?}"
        );
        facts.note(match spans {
            1 => "readers: a request is one too many",
            _ => "readers: who goes on is ended",
        });
    }

    /// Whether the last request may have come when this many times the limit was used up.
    fn may_have_used(&self, spans: u64, rate: Rate) -> bool {
        let period = ns(rate.period);
        let last = self.0.last().expect("a request");
        let mut requests = 0;
        self.0.iter().rev().any(|first| {
            requests += 1;
            let passed = last.sent_at.saturating_sub(first.answered_at);
            requests * period > rate.count * (spans * period + passed)
        })
    }

    /// However its requests were spread, no more were taken than may be at once, and those of the time that has passed.
    fn check_taken(&self, rate: Rate) {
        let now = self.0.last().expect("a request").answered_at;
        let mut taken = 0;
        for first in self.0.iter().rev() {
            taken += u64::from(!first.is_refused);
            let passed = now - first.sent_at;
            let most = rate.count + passed * rate.count / ns(rate.period) + 1;
            assert!(taken <= most, "{taken} of {most}: {rate:?} {self:?}");
        }
    }
}
