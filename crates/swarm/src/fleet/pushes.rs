//! Which publications the controller can have made: what else has a stamp of this run was made up by somebody.

use crate::config::Publish;
use std::time::Duration;

/// How much later an agent may hear that the crowd is connected, with what its clock is off by. It closes its connections when it
/// has not heard its controller for so long.
const HEARD_LATE_MAX: Duration = Duration::from_secs(5);

/// The schedule of the controller's publications.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pushes {
    /// From the end of connecting to the first round, and from each to the next one.
    warmup: Duration,
    every: Duration,
    /// Rounds; none: to the end of the run.
    rounds: Option<u32>,
}

impl Pushes {
    pub(crate) fn of(publish: &Publish) -> Self {
        Self {
            warmup: publish.warmup,
            every: publish.every,
            rounds: publish.pushes,
        }
    }

    /// Rounds that may have been made so long after the crowd was connected: none before it is due.
    pub(super) fn rounds_max(self, connected: Duration) -> u64 {
        let late = connected + HEARD_LATE_MAX;
        let Some(warm) = late.checked_sub(self.warmup) else {
            return 0;
        };
        let rounds = warm.as_nanos() / self.every.as_nanos().max(1) + 1;
        let rounds = u64::try_from(rounds).unwrap_or(u64::MAX);
        let most = self.rounds.map_or(u64::MAX, u64::from);
        rounds.min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::push::Ledger;

    #[test]
    fn no_more_is_believed_than_the_schedule_can_have_brought() {
        let seconds = Duration::from_secs;
        let mut pushes = Pushes {
            warmup: Duration::ZERO,
            every: seconds(10),
            rounds: None,
        };
        let rounds = |pushes: Pushes| [0, 5, 95].map(|it| pushes.rounds_max(seconds(it)));
        assert_eq!(rounds(pushes), [1, 2, 11]);
        pushes.warmup = seconds(6);
        assert_eq!(rounds(pushes), [0, 1, 10]);
        pushes.warmup = seconds(5);
        pushes.rounds = Some(2);
        assert_eq!(rounds(pushes), [1, 1, 2]);
        pushes.every = Duration::ZERO;
        assert_eq!(rounds(pushes), [1, 2, 2]);
    }

    #[test]
    fn a_stamp_from_beyond_the_schedule_is_that_of_no_publication() {
        let ledger = Ledger::of_agent();
        assert!(!ledger.is_made(1));
        ledger.may_be_made(3);
        assert!(ledger.is_made(3) && !ledger.is_made(4));
    }
}
