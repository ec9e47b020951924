//! Publishers whose publications are stored, and who wait until this node has read them.
//!
//! A publisher that was answered may ask this node for the channel's history at once: its publication should be there.

use myriad_shard::{Asker, RequestId};
use std::collections::BTreeMap;
use tokio::time::Instant;

/// Who waits for a message to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A publisher.
    Publisher(Asker),
    /// Who removes a channel's history.
    Remover(RequestId),
}

/// Those who wait at one log, by the places of their publications.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: BTreeMap<u64, Vec<(Instant, Waiter)>>,
}

impl Answers {
    /// Somebody's publication is stored there. Waits until this node has read it, at most until `until`.
    pub(super) fn wait(&mut self, sequence: u64, waiter: Waiter, until: Instant) {
        let waiting = self.waiting.entry(sequence).or_default();
        waiting.push((until, waiter));
    }

    /// The log has been read up to here: takes those who waited for that.
    pub(super) fn take_read(&mut self, position: u64) -> Vec<(u64, Waiter)> {
        let mut taken = Vec::new();
        while let Some(first) = self.waiting.first_entry()
            && *first.key() <= position
        {
            let (sequence, askers) = first.remove_entry();
            taken.extend(askers.into_iter().map(|(_, asker)| (sequence, asker)));
        }
        taken
    }

    /// Takes those who have waited long enough.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<(u64, Waiter)> {
        let mut taken = Vec::new();
        self.waiting.retain(|sequence, askers| {
            askers.retain(|(deadline, asker)| {
                let waits = *deadline > now;
                if !waits {
                    taken.push((*sequence, *asker));
                }
                waits
            });
            !askers.is_empty()
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn publishers_wait_until_their_publications_are_read_or_long_enough() {
        let now = Instant::now();
        let asker = |id| Waiter::Remover(RequestId(id));
        let mut answers = Answers::default();
        let second = Duration::from_secs(1);
        let later = now + second;
        answers.wait(7, asker(1), later);
        answers.wait(7, asker(2), later + second);
        answers.wait(9, asker(3), later);
        assert_eq!(answers.take_read(6), []);
        assert_eq!(answers.take_overdue(now), []);
        assert_eq!(answers.take_overdue(later), [(7, asker(1)), (9, asker(3))]);
        assert_eq!(answers.take_read(8), [(7, asker(2))]);
        assert!(answers.waiting.is_empty());
    }
}
