//! Positions: from where a terminal's next request goes on.
//!
//! In a broadcast a million terminals have one position, or a few. So each is kept once, with the number of those that
//! have it, and a terminal keeps four bytes.

use std::collections::HashMap;
use std::sync::Arc;

/// Longest position. Offsets of Durable Streams are to be below 256 bytes each.
pub(super) const POSITION_BYTES_MAX: usize = 1024;

/// What is added to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Position {
    /// Parameters of the query, encoded, which replace those of the same name: `offset=7&cursor=a`.
    Query(Box<str>),
    /// Header lines, each with its CR LF.
    Headers(Box<[u8]>),
}

impl Position {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Query(query) => query.len(),
            Self::Headers(lines) => lines.len(),
        }
    }
}

/// A position that is kept here; [`PositionId::NONE`] for a terminal that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PositionId(u32);

impl PositionId {
    pub(super) const NONE: Self = Self(0);
}

#[derive(Debug)]
struct Entry {
    position: Arc<Position>,
    holders: u32,
}

/// All positions of one thread's terminals.
#[derive(Debug, Default)]
pub(super) struct Positions {
    /// By id, from 1.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    ids: HashMap<Arc<Position>, u32>,
}

impl Positions {
    /// The id of a position, which the caller then holds.
    pub(super) fn hold_new(&mut self, position: Position) -> PositionId {
        if let Some(&id) = self.ids.get(&position) {
            self.hold(PositionId(id));
            return PositionId(id);
        }
        let position = Arc::new(position);
        let entry = Some(Entry {
            position: Arc::clone(&position),
            holders: 1,
        });
        let id = if let Some(id) = self.free.pop() {
            self.entries[id as usize - 1] = entry;
            id
        } else {
            self.entries.push(entry);
            u32::try_from(self.entries.len()).expect("one for each terminal at most, or nearly so")
        };
        self.ids.insert(position, id);
        PositionId(id)
    }

    /// Holds a position once more.
    pub(super) fn hold(&mut self, id: PositionId) {
        if id != PositionId::NONE {
            self.entry_mut(id).holders += 1;
        }
    }

    /// Gives up one hold. A position that nobody holds is forgotten.
    pub(super) fn release(&mut self, id: PositionId) {
        if id == PositionId::NONE {
            return;
        }
        let entry = self.entry_mut(id);
        entry.holders -= 1;
        if entry.holders == 0 {
            let slot = &mut self.entries[id.0 as usize - 1];
            let entry = slot.take().expect("it was held until now");
            self.ids.remove(&entry.position);
            self.free.push(id.0);
        }
    }

    pub(super) fn find(&self, id: PositionId) -> Option<&Position> {
        let index = (id.0 as usize).checked_sub(1)?;
        let entry = self.entries[index].as_ref();
        Some(&entry.expect("whoever asks holds it").position)
    }

    fn entry_mut(&mut self, id: PositionId) -> &mut Entry {
        let entry = self.entries[id.0 as usize - 1].as_mut();
        entry.expect("it is held")
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        assert_eq!(self.ids.len() + self.free.len(), self.entries.len());
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Position {
        Position::Query(text.into())
    }

    #[test]
    fn who_is_at_the_same_place_shares_it() {
        let mut positions = Positions::default();
        let one = positions.hold_new(query("offset=1"));
        let same = positions.hold_new(query("offset=1"));
        let other = positions.hold_new(Position::Headers(b"offset=1"[..].into()));
        assert!(one == same && one != other && positions.count() == 2);
        positions.release(one);
        assert_eq!(positions.find(one), Some(&query("offset=1")));
        positions.release(same);
        assert_eq!(positions.count(), 1);
        let next = positions.hold_new(query("offset=2"));
        assert_eq!(
            (next, positions.count()),
            (one, 2),
            "the place is used again"
        );
        positions.hold(next);
        positions.release(next);
        assert_eq!(positions.find(next), Some(&query("offset=2")));
    }

    #[test]
    fn no_position_is_held_by_nobody() {
        let mut positions = Positions::default();
        positions.hold(PositionId::NONE);
        positions.release(PositionId::NONE);
        assert_eq!(positions.find(PositionId::NONE), None);
    }
}
