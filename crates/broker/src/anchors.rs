//! The last entries of a log that a node knows. By them it notices that the log is no longer what it was.

use std::collections::VecDeque;

/// Entries that are known by their times.
const ANCHORS_MAX: usize = 8;

/// An entry that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Its place in the log.
    pub sequence: u64,
    /// When it was stored, in ns: another entry in its place has another time.
    pub stored_ns: i128,
}

/// What a log has now.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Its first entry; the next one if there is none.
    pub first: u64,
    /// Its last entry, also if that has gone.
    pub last: u64,
}

/// The last entries that were read, and the last beat.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    /// The newest last.
    recent: VecDeque<Anchor>,
    beat: Option<Anchor>,
}

impl Anchors {
    /// An entry was read, behind all others.
    pub fn note(&mut self, stored: Anchor, is_beat: bool) {
        if is_beat {
            self.beat = Some(stored);
        }
        if self.recent.len() == ANCHORS_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(stored);
    }

    /// The entry that was read last.
    #[must_use]
    pub fn newest(&self) -> Option<Anchor> {
        self.recent.back().copied()
    }

    /// The entries to look for in a log, until one is found.
    #[must_use]
    pub fn newest_first(&self) -> Vec<Anchor> {
        // A beat is the last to go: a log keeps hundreds of them.
        let newest_first = self.recent.iter().rev();
        newest_first.chain(&self.beat).copied().collect()
    }

    /// Whether a log that was read up to a position still has what was read. `found` are the times of entries in the places of
    /// [`Anchors::newest_first`], none where there is no entry any more. If it has not, servers came back with old data: offsets mean
    /// something else from now on, so the log needs another epoch before it is opened.
    #[must_use]
    pub fn still_hold(
        position: u64,
        extent: Extent,
        found: impl IntoIterator<Item = (Anchor, Option<i128>)>,
    ) -> bool {
        if extent.last < position {
            return false;
        }
        let found = found.into_iter();
        let mut known = found.filter_map(|(anchor, stored_ns)| Some((anchor, stored_ns?)));
        match known.next() {
            Some((anchor, stored_ns)) => anchor.stored_ns == stored_ns,
            // All of that has gone. If the log begins behind it, so has what comes next, and a hole tells of it.
            None => extent.first > position,
        }
    }
}
