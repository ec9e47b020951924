//! What strangers do in our streams, in our log: at most one line a second for each reason. All of it is counted.

use myriad_shard::{Now, Thinned};
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// What there is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Remark {
    /// A stored message is about no channel of its stream.
    Misplaced,
    /// A message cannot be read.
    Unreadable,
    /// NATS refuses a publication.
    Refused,
}

/// Which remarks were made of late.
#[derive(Debug)]
pub(super) struct Remarks {
    began: Instant,
    made: Mutex<Thinned<Remark>>,
}

impl Default for Remarks {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            made: Mutex::default(),
        }
    }
}

impl Remarks {
    /// Whether this one may have a line now.
    pub(super) fn may(&self, remark: Remark) -> bool {
        let now = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.note(remark, Now(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_is_made_once_a_second() {
        let remarks = Remarks::default();
        let mut made = (0..1_000).filter(|_| remarks.may(Remark::Misplaced));
        assert!(made.next().is_some());
        assert!(made.count() < 10, "a thousand of them take less than that");
        assert!(remarks.may(Remark::Unreadable));
    }
}
