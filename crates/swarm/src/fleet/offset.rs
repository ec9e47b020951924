//! How far a machine's clock is from the controller's, as NTP measures it: by exchanges over the same way in both directions.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where an agent's clock stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offset {
    /// What is to be added to the agent's time to get the controller's, in nanoseconds.
    pub nanos: i64,
    /// The same between the clocks on the walls, for people.
    pub wall_nanos: i64,
    /// The most that it can be off: half of the time that the exchange took, in nanoseconds.
    pub error_nanos: u64,
}

/// One question for the controller's time. All in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exchange {
    /// When it was sent and answered, by the agent's clock of the run.
    pub sent: u64,
    pub answered: u64,
    /// When it was sent, by the agent's clock on the wall.
    pub wall_sent: u64,
    /// What the controller has told.
    pub told: ControllerTime,
}

/// A controller's time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct ControllerTime {
    /// By its clock of the run, which begins with the run.
    pub run: u64,
    /// By its clock on the wall.
    pub wall: u64,
}

/// The time on the wall, in nanoseconds since 1970.
pub(super) fn wall_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// The result of several exchanges. The quickest is the best: whatever waited somewhere waited in one direction.
pub(super) fn best(exchanges: &[Exchange]) -> Option<Offset> {
    let quickest = exchanges
        .iter()
        .filter(|it| it.answered >= it.sent)
        .min_by_key(|it| it.answered - it.sent)?;
    let took = quickest.answered - quickest.sent;
    let behind = |told: u64, sent: u64| {
        let middle = i128::from(sent) + i128::from(took / 2);
        i64::try_from(i128::from(told) - middle).ok()
    };
    Some(Offset {
        nanos: behind(quickest.told.run, quickest.sent)?,
        error_nanos: took.div_ceil(2),
        wall_nanos: behind(quickest.told.wall, quickest.wall_sent)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(sent: u64, answered: u64, run: u64) -> Exchange {
        Exchange {
            sent,
            answered,
            wall_sent: sent + 1_000_000,
            told: ControllerTime {
                run,
                wall: run + 1_000_700,
            },
        }
    }

    #[test]
    fn the_quickest_exchange_is_believed() {
        // The controller is 5,000 behind. The second answer waited on its way back.
        let exchanges = [
            exchange(10_000, 10_400, 5_200),
            exchange(20_000, 29_000, 15_050),
            exchange(30_000, 30_100, 25_050),
        ];
        let offset = best(&exchanges).unwrap();
        assert_eq!((offset.nanos, offset.error_nanos), (-5_000, 50));
        assert_eq!(offset.wall_nanos, -4_300);
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[exchange(10, 5, 7)]), None, "a clock that went back");
        assert_eq!(best(&[exchange(0, 2, u64::MAX - 2_000_000)]), None);
    }
}
