//! Which members of groups are there, while some of them leave and come back.
//!
//! What is expected of a message is exact only if each member is known to have been there when it was sent, or not. So every
//! change has a number, and a message knows the last change before it. Messages are sent while the number is held, and whoever leaves or
//! comes has it alone ([`Presence::change`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Who is there.
#[derive(Debug)]
pub(crate) struct Presence {
    /// By group: members that are there.
    open: Vec<AtomicU32>,
    /// By terminal of the run, a bit each: whether it is there. Empty where nobody leaves.
    there: Vec<AtomicU64>,
    /// Changes so far, where there are any.
    changes: RwLock<u64>,
}

/// When a member was not there: behind the first of these changes, and before the second. Nobody is away from zero to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absence {
    pub from: u64,
    pub until: u64,
}

impl Absence {
    /// Who has left on purpose: nothing that did not come before is expected any more.
    pub(crate) const ON_PURPOSE: Self = Self {
        from: 0,
        until: u64::MAX,
    };

    /// Whether a message is one that its member was away for.
    pub(crate) fn covers(self, stage: u64) -> bool {
        (self.from..self.until).contains(&stage)
    }

    pub(crate) fn is_over(self) -> bool {
        self.until < u64::MAX
    }
}

/// The last two absences of a member: what was sent during the one before may come after the last one, too.
///
/// One that is lost a third time has both as one. What it was owed from between them is then `missing`, and `replayed` if it comes: never
/// received beyond what was expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Absences {
    earlier: Absence,
    last: Absence,
}

impl Absences {
    /// Whose member leaves on purpose.
    pub(crate) const ON_PURPOSE: Self = Self {
        earlier: Absence { from: 0, until: 0 },
        last: Absence::ON_PURPOSE,
    };

    /// Whether a message is one that the member was away for.
    pub(crate) fn covers(self, stage: u64) -> bool {
        self.earlier.covers(stage) || self.last.covers(stage)
    }

    /// Whether the member is there again.
    pub(crate) fn are_over(self) -> bool {
        self.last.is_over()
    }

    /// Whether the member left on purpose the last time.
    pub(crate) fn is_on_purpose(self) -> bool {
        self.last.from == 0 && self.last.until > 0
    }

    /// The member is lost with this change.
    pub(crate) fn begin(&mut self, change: u64) {
        self.earlier = match self.earlier.until {
            0 => self.last,
            _ => Absence {
                from: self.earlier.from,
                until: self.last.until,
            },
        };
        self.last = Absence {
            from: change,
            until: u64::MAX,
        };
    }

    /// The member is there again from this change on.
    pub(crate) fn end(&mut self, change: u64) {
        self.last.until = change;
    }
}

impl Presence {
    /// Of so many groups. `changing` is the number of terminals of the run, where some may leave.
    pub(crate) fn new(groups: usize, changing: Option<u32>) -> Self {
        let words = changing.unwrap_or(0).div_ceil(64);
        Self {
            open: (0..groups).map(|_| AtomicU32::new(0)).collect(),
            there: (0..words).map(|_| AtomicU64::new(0)).collect(),
            changes: RwLock::new(0),
        }
    }

    /// Notes that a member came or went.
    pub(crate) fn note(&self, group: u32, terminal: u64, is_there: bool) {
        let open = &self.open[group as usize];
        let word = usize::try_from(terminal / 64).expect("terminals are at most 2^32");
        let bit = 1 << (terminal % 64);
        match is_there {
            true => open.fetch_add(1, Ordering::Relaxed),
            false => open.fetch_sub(1, Ordering::Relaxed),
        };
        if let Some(word) = self.there.get(word) {
            match is_there {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }

    /// Whether a terminal is there. Where nobody leaves, everybody is.
    pub(crate) fn is_there(&self, terminal: u64) -> bool {
        let word = usize::try_from(terminal / 64).expect("terminals are at most 2^32");
        self.there
            .get(word)
            .is_none_or(|word| word.load(Ordering::Relaxed) >> (terminal % 64) & 1 == 1)
    }

    /// Members of a group that are there.
    pub(crate) fn open_in(&self, group: u32) -> u32 {
        self.open[group as usize].load(Ordering::Relaxed)
    }

    /// Terminals that are there.
    pub(crate) fn open_in_all(&self) -> u32 {
        let open = self.open.iter().map(|open| open.load(Ordering::Relaxed));
        open.sum()
    }

    /// The number of the last change. There is no other until it is dropped.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, u64> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change, which has the next number. Nothing is sent until it is dropped.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, u64> {
        let mut changes = self.changes.write().unwrap_or_else(PoisonError::into_inner);
        *changes += 1;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_there_is_known_by_group_and_by_terminal() {
        let presence = Presence::new(2, Some(100));
        presence.note(0, 3, true);
        presence.note(1, 70, true);
        presence.note(1, 71, true);
        presence.note(1, 70, false);
        assert_eq!((presence.open_in(1), presence.open_in_all()), (1, 2));
        assert!(presence.is_there(3) && presence.is_there(71));
        assert!(!presence.is_there(70) && !presence.is_there(99));
        assert!(Presence::new(2, None).is_there(70));
    }

    #[test]
    fn an_absence_covers_what_was_sent_behind_its_first_change() {
        let presence = Presence::new(1, Some(1));
        assert_eq!(*presence.hold(), 0);
        let from = *presence.change();
        let until = *presence.change();
        let absence = Absence { from, until };
        let covered = (0..4).filter(|stage| absence.covers(*stage));
        assert_eq!(covered.collect::<Vec<_>>(), [1]);
        assert!(Absence::ON_PURPOSE.covers(0) && !Absence::ON_PURPOSE.is_over());
        assert!(!Absence::default().covers(0) && absence.is_over());
    }

    #[test]
    fn what_was_sent_in_an_absence_before_the_last_one_is_known_too() {
        let covered = |absences: Absences| -> Vec<u64> {
            (0..9).filter(|stage| absences.covers(*stage)).collect()
        };
        let mut absences = Absences::default();
        assert!(absences.are_over() && !absences.is_on_purpose());
        absences.begin(1);
        assert!(!absences.are_over() && !absences.is_on_purpose());
        absences.end(2);
        absences.begin(4);
        absences.end(6);
        assert_eq!(covered(absences), [1, 4, 5]);
        // What came between the two is given up.
        absences.begin(7);
        absences.end(8);
        assert_eq!(covered(absences), [1, 2, 3, 4, 5, 7]);
        // One that took another one's place, and is lost.
        let mut absences = Absences::ON_PURPOSE;
        assert_eq!(covered(absences).len(), 9);
        absences.end(2);
        assert!(absences.are_over() && absences.is_on_purpose());
        absences.begin(5);
        absences.end(6);
        assert_eq!(covered(absences), [0, 1, 5]);
        assert!(!absences.is_on_purpose());
    }
}
