//! Whether a node hears its logs, for /healthz, for the other nodes, and for the log.

use myriad_shard::LogId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A log that is opened again is not heard for a moment. That is said of one that is not heard for longer.
const DEAF_AFTER: Duration = Duration::from_secs(5);

/// The logs that a node does not hear now.
#[derive(Debug, Default)]
pub(crate) struct Hearing(Mutex<Deaf>);

#[derive(Debug, Default)]
struct Deaf {
    /// By log: the name of its stream, and since when.
    since: BTreeMap<LogId, (String, Instant)>,
    /// The node's log says it.
    is_said: bool,
}

/// What is to be said of it in the node's log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// This stream is not heard any more, for so long.
    Deaf(String, Duration),
    Hears,
}

impl Hearing {
    /// A log is heard from now on, or not.
    pub(super) fn note(&self, log: LogId, stream: &str, is_heard: bool) {
        let mut deaf = self.lock();
        if is_heard {
            deaf.since.remove(&log);
        } else {
            let now = || (stream.to_owned(), Instant::now());
            deaf.since.entry(log).or_insert_with(now);
        }
    }

    /// The stream that was not heard for the longest time, and for how long; none if all are heard.
    pub(crate) fn deaf(&self) -> Option<(String, Duration)> {
        self.lock().longest()
    }

    /// What is to be said, once for each time.
    pub(super) fn take_said(&self) -> Option<Said> {
        let mut deaf = self.lock();
        match deaf.longest() {
            Some((stream, duration)) if !deaf.is_said => {
                deaf.is_said = true;
                Some(Said::Deaf(stream, duration))
            }
            None if deaf.is_said => {
                deaf.is_said = false;
                Some(Said::Hears)
            }
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Deaf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deaf {
    fn longest(&self) -> Option<(String, Duration)> {
        let longest = self.since.values().min_by_key(|(_, since)| *since)?;
        let duration = longest.1.elapsed();
        (duration >= DEAF_AFTER).then(|| (longest.0.clone(), duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_heard_for_long_is_said_once() {
        let hearing = Hearing::default();
        let second = Duration::from_secs(1);
        hearing.note(LogId(1), "b", false);
        tokio::time::sleep(second).await;
        hearing.note(LogId(0), "a", false);
        hearing.note(LogId(1), "b", false);
        assert_eq!((hearing.deaf(), hearing.take_said()), (None, None));
        tokio::time::sleep(4 * second).await;
        assert_eq!(hearing.deaf(), Some(("b".to_owned(), 5 * second)));
        let said = Said::Deaf("b".to_owned(), 5 * second);
        assert_eq!(hearing.take_said(), Some(said));
        tokio::time::sleep(second).await;
        hearing.note(LogId(1), "b", true);
        assert_eq!(hearing.deaf(), Some(("a".to_owned(), 5 * second)));
        assert_eq!(hearing.take_said(), None);
        hearing.note(LogId(0), "a", true);
        assert_eq!(hearing.take_said(), Some(Said::Hears));
        assert_eq!(hearing.take_said(), None);
    }
}
