//! Messages in which no stamp was found: their number, and one of them for people, who have said where to look.

use super::mark::MarkPlace;
use crate::engine::crowd::World;
use serde::{Deserialize, Serialize};

/// Bytes that are kept of the example.
pub(crate) const EXAMPLE_BYTES_MAX: usize = 4096;

/// Messages that are looked at for a better example.
const LOOKED_AT_MAX: u32 = 1000;

/// The example of a message in which no stamp was found where the scenario says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unstamped {
    pub message: Vec<u8>,
    /// It has a stamp of the run, at another place.
    pub has_stamp: bool,
}

/// A thread's example.
#[derive(Debug, Default)]
pub(in crate::engine) struct Examples {
    best: Unstamped,
    looked_at: u32,
    is_new: bool,
}

impl Examples {
    /// Takes the first message, and the first one with a stamp at another place in its stead.
    fn look_at(&mut self, message: &[u8], run: u16) {
        if self.best.has_stamp || self.looked_at == LOOKED_AT_MAX {
            return;
        }
        self.looked_at += 1;
        let has_stamp = MarkPlace::Anywhere.find(message, run).is_some();
        if has_stamp || self.best.message.is_empty() {
            let bytes = message.len().min(EXAMPLE_BYTES_MAX);
            self.best = Unstamped {
                message: message[..bytes].to_vec(),
                has_stamp,
            };
            self.is_new = true;
        }
    }

    /// The example, if it is another than before.
    pub(in crate::engine) fn take_new(&mut self) -> Option<Unstamped> {
        std::mem::take(&mut self.is_new).then(|| self.best.clone())
    }
}

impl Unstamped {
    /// The better one of two examples.
    pub(crate) fn better(one: Option<Self>, other: Option<&Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.has_stamp && !one.has_stamp => Some(other.clone()),
            (one, other) => one.or_else(|| other.cloned()),
        }
    }
}

impl World {
    /// Keeps a message without a stamp as the example, if it is one. Empty answers are none.
    pub(in crate::engine) fn keep_unstamped(&mut self, message: &[u8]) {
        if !is_blank(message) {
            self.notes.unstamped.look_at(message, self.plan.mark_run);
        }
    }
}

/// Whether there is nothing in a message: no bytes, or a list of nothing.
pub(in crate::engine) fn is_blank(message: &[u8]) -> bool {
    matches!(message.trim_ascii(), b"" | b"[]" | b"{}")
}

#[cfg(test)]
mod tests {
    use super::super::mark::Mark;
    use super::*;

    #[test]
    fn the_example_is_the_first_message_or_the_first_with_a_stamp_elsewhere() {
        let mut examples = Examples::default();
        let mut look_at = |message: &str| {
            examples.look_at(message.as_bytes(), 7);
            examples.take_new()
        };
        let is = |found: Option<Unstamped>, message: &str, has_stamp| {
            let message = message.as_bytes().to_vec();
            assert_eq!(found, Some(Unstamped { message, has_stamp }));
        };
        is(look_at("welcome"), "welcome", false);
        assert_eq!(look_at("more"), None);
        let stamp = Mark::new(7, 0, 1).text();
        is(look_at(&stamp), &stamp, true);
        assert_eq!(look_at(&stamp), None);
        let long = "x".repeat(EXAMPLE_BYTES_MAX + 1);
        let mut fresh = Examples::default();
        fresh.look_at(long.as_bytes(), 7);
        assert_eq!(fresh.best.message.len(), EXAMPLE_BYTES_MAX);
    }
}
