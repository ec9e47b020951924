//! How many clients each user has in a channel.

use crate::PresenceChange;
use std::collections::HashMap;
use std::sync::Arc;

/// How many clients each user has in a channel.
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "every record has this field: 8 bytes of it, and not 48"
)]
pub(super) struct UserCounts(
    /// None while there are none: most channels do not count.
    Option<Box<HashMap<Arc<str>, u32>>>,
);

impl UserCounts {
    /// Counts a change; true if it is the user's first client that joined, or the last one that left.
    pub(super) fn note(&mut self, user: &Arc<str>, change: PresenceChange) -> bool {
        match change {
            PresenceChange::Joined => {
                let count = self.0.get_or_insert_default().entry(Arc::clone(user));
                let count = count.or_default();
                *count += 1;
                *count == 1
            }
            PresenceChange::Left => self.note_left(user),
        }
    }

    fn note_left(&mut self, user: &Arc<str>) -> bool {
        let Some(counts) = &mut self.0 else {
            return false;
        };
        let Some(count) = counts.get_mut(user) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        counts.remove(user);
        if counts.is_empty() {
            self.0 = None;
        }
        true
    }

    /// Whether a user has clients.
    pub(super) fn has(&self, user: &str) -> bool {
        let counts = self.0.as_ref();
        counts.is_some_and(|counts| counts.contains_key(user))
    }

    /// Those who have.
    pub(super) fn users(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flat_map(|counts| counts.keys())
    }

    /// Forgets everybody.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::UserCounts;
    use crate::PresenceChange::{Joined, Left};

    #[test]
    fn the_first_join_and_the_last_leave_are_announced() {
        let mut counts = UserCounts::default();
        let (a, b) = ("a".into(), "b".into());
        assert!(!counts.note(&a, Left), "nobody had joined");
        assert!(counts.note(&a, Joined) && counts.note(&b, Joined));
        assert!(!counts.note(&a, Joined) && !counts.note(&a, Left));
        assert!(counts.note(&a, Left) && !counts.note(&a, Left));
        assert!(counts.note(&b, Left));
        assert!(counts.0.is_none());
        assert!(counts.note(&a, Joined));
        counts.clear();
        assert!(counts.note(&a, Joined));
    }
}
