//! What the homes of a node are told of a log, in its order.
//!
//! A node reads each log from its first entry. While it catches up, entries may be missing: the log keeps so much of each channel and no
//! more, and may drop something unread for what comes meanwhile. So the node reads twice: up to what the log had when it began, and then
//! up to what the log had by then. To know an end that will surely be read, the node writes there itself: a *mark*, which is a beat. Behind
//! the second mark nothing may be missing, and a hole in the sequence is a loss. A hole between the marks may be one, too: what it had
//! may have gone for something behind the second mark. Nobody has been told anything yet, so the node gives up what came before it.
//! A third mark ends this: by then, what the hole had has gone from the channel's history here, too, for the same reason.
//!
//! | what happens | tell it by | and then |
//! | --- | --- | --- |
//! | the log is opened, at first or again | [`Anchors::still_hold`], then [`Reading::handle_opened`] | read from [`Reading::next_sequence`] |
//! | a beat is read | [`Reading::handle_beat`] | do the steps |
//! | anything else is read | [`Reading::handle_entry`] | do the steps |
//! | a mark is written, for [`Step::Mark`] | [`Reading::handle_marked`] | do the steps |
//! | any of them was read | [`Reading::note_stored`] | |
//!
//! A log may come back without its end, and grow again past where the node is. Then its sequences say nothing, so a node knows the last
//! entries by their times as well.

use crate::anchors::{Anchor, Anchors};
use myriad_hub::{Epoch, LogEvent};

/// A log that was opened.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The epoch of its last beat.
    pub epoch: Epoch,
    /// Where the mark stands that was written after it was opened.
    pub mark: u64,
}

/// What is to be done.
#[derive(Debug)]
pub enum Step {
    /// Tell the homes.
    Tell {
        /// The place in the log.
        offset: u64,
        /// What they are told.
        event: LogEvent,
    },
    /// Write a mark.
    Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not opened yet.
    New,
    /// Reads what was there.
    First { mark: u64 },
    /// Has read that, and waits for its second mark to be written.
    Between,
    /// Reads what had come by then.
    Second { mark: u64, floor: u64 },
    /// Has read all.
    Live,
}

/// Whether a history may still have what is older than something that was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holes {
    None,
    /// They end at a mark that is being written.
    UpToNextMark,
    UpTo(u64),
}

/// How far a node has read one log.
#[derive(Debug)]
pub struct Reading {
    epoch: Option<Epoch>,
    /// The last entry that was read.
    position: u64,
    /// Where the epoch began here: what stands up to there is of another one.
    began: u64,
    phase: Phase,
    /// Whether histories may have holes; only while the phase is live.
    holes: Holes,
    anchors: Anchors,
}

impl Default for Reading {
    fn default() -> Self {
        Self::new()
    }
}

impl Reading {
    /// Nothing was read.
    #[must_use]
    pub fn new() -> Self {
        Self {
            epoch: None,
            position: 0,
            began: 0,
            phase: Phase::New,
            holes: Holes::None,
            anchors: Anchors::default(),
        }
    }

    /// The last entry that was read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The epoch of what was read; none before the log was opened.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Whether all has been read that was there when the log was opened.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// The next entry to read.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.position + 1
    }

    /// Where the epoch began here: what stands up to there is of another one.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.began
    }

    /// What was handled last was stored then.
    pub fn note_stored(&mut self, stored: Anchor, is_beat: bool) {
        if stored.sequence == self.position {
            self.anchors.note(stored, is_beat);
        }
    }

    /// The entry that was read last, if none is known to have gone since.
    #[must_use]
    pub fn newest(&self) -> Option<Anchor> {
        self.anchors.newest()
    }

    /// The entries to look for in a log that is opened again, until one is found.
    #[must_use]
    pub fn anchors(&self) -> Vec<Anchor> {
        self.anchors.newest_first()
    }

    /// The log is opened.
    pub fn handle_opened(&mut self, opened: Opened, steps: &mut Vec<Step>) {
        let Opened { epoch, mark } = opened;
        if self.epoch != Some(epoch) {
            self.begin(epoch, 0, steps);
        }
        if self.phase != Phase::Live {
            self.phase = Phase::First { mark };
        } else if self.holes == Holes::UpToNextMark {
            self.holes = Holes::UpTo(mark);
        }
        self.note_progress(steps);
    }

    /// A beat is read. It says whose entries these are.
    pub fn handle_beat(&mut self, sequence: u64, epoch: Epoch, steps: &mut Vec<Step>) {
        if sequence <= self.position {
            return;
        }
        if self.epoch == Some(epoch) {
            return self.handle_entry(sequence, LogEvent::Passed, steps);
        }
        // Somebody found a loss that we had no part in. Everything up to here is of the epoch before.
        let was_live = self.phase == Phase::Live;
        self.begin(epoch, sequence, steps);
        if was_live {
            self.catch_up(sequence, steps);
        } else {
            steps.push(Step::Mark);
            self.phase = Phase::Between;
        }
    }

    /// An entry is read. One that was read before is left out.
    pub fn handle_entry(&mut self, sequence: u64, event: LogEvent, steps: &mut Vec<Step>) {
        if sequence <= self.position {
            return;
        }
        let is_hole = sequence != self.next_sequence();
        let before = sequence - 1;
        match &mut self.phase {
            Phase::Live if is_hole => {
                let (offset, event) = (before, LogEvent::Lost);
                steps.push(Step::Tell { offset, event });
                if self.holes != Holes::None {
                    // By this, all histories begin anew.
                    self.tell_whole(steps);
                }
            }
            Phase::Second { floor, .. } if is_hole => *floor = before.max(*floor),
            _ => {}
        }
        self.position = sequence;
        let offset = sequence;
        steps.push(Step::Tell { offset, event });
        self.note_progress(steps);
    }

    /// The mark of [`Step::Mark`] is written. `first` is the log's first entry now: what came before it is gone.
    pub fn handle_marked(&mut self, mark: u64, first: u64, steps: &mut Vec<Step>) {
        if self.phase == Phase::Between {
            let floor = first.saturating_sub(1);
            self.phase = Phase::Second { mark, floor };
        } else if self.holes == Holes::UpToNextMark {
            self.holes = Holes::UpTo(mark);
        }
        self.note_progress(steps);
    }

    fn begin(&mut self, epoch: Epoch, offset: u64, steps: &mut Vec<Step>) {
        self.epoch = Some(epoch);
        self.position = offset;
        self.began = offset;
        self.phase = Phase::New;
        self.holes = Holes::None;
        self.anchors = Anchors::default();
        let event = LogEvent::Began(epoch);
        steps.push(Step::Tell { offset, event });
    }

    fn catch_up(&mut self, floor: u64, steps: &mut Vec<Step>) {
        self.phase = Phase::Live;
        let offset = self.position;
        let event = LogEvent::CaughtUp { floor };
        steps.push(Step::Tell { offset, event });
        if floor > self.began {
            self.holes = Holes::UpToNextMark;
            steps.push(Step::Mark);
        } else {
            self.tell_whole(steps);
        }
    }

    fn tell_whole(&mut self, steps: &mut Vec<Step>) {
        self.holes = Holes::None;
        let (offset, event) = (self.position, LogEvent::Whole);
        steps.push(Step::Tell { offset, event });
    }

    fn note_progress(&mut self, steps: &mut Vec<Step>) {
        match self.phase {
            Phase::First { mark } if self.position >= mark => {
                self.phase = Phase::Between;
                steps.push(Step::Mark);
            }
            Phase::Second { mark, floor } if self.position >= mark => {
                self.catch_up(floor, steps);
            }
            _ => {}
        }
        if let Holes::UpTo(mark) = self.holes
            && self.position >= mark
        {
            self.tell_whole(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchors::Extent;
    use proptest::prelude::*;

    const FIRST: fn() -> Epoch = || Epoch::new(1);
    const OTHER: fn() -> Epoch = || Epoch::new(2);

    fn said(steps: &mut Vec<Step>) -> Vec<String> {
        let say = |step: Step| match step {
            Step::Mark => "mark".to_owned(),
            Step::Tell { offset, event } => match event {
                LogEvent::Began(_) => format!("began {offset}"),
                LogEvent::CaughtUp { floor } => format!("caught up {offset} floor {floor}"),
                LogEvent::Whole => format!("whole {offset}"),
                LogEvent::Lost => format!("lost {offset}"),
                LogEvent::Passed => format!("{offset}"),
                other => panic!("{other:?}"),
            },
        };
        steps.drain(..).map(say).collect()
    }

    fn opened(epoch: Epoch, mark: u64) -> Opened {
        Opened { epoch, mark }
    }

    /// A reading of a log that was empty.
    fn live() -> Reading {
        let (mut reading, mut steps) = (Reading::new(), Vec::new());
        reading.handle_opened(opened(FIRST(), 2), &mut steps);
        reading.handle_beat(1, FIRST(), &mut steps);
        reading.handle_beat(2, FIRST(), &mut steps);
        reading.handle_marked(3, 1, &mut steps);
        reading.handle_beat(3, FIRST(), &mut steps);
        assert_eq!(
            said(&mut steps),
            [
                "began 0",
                "1",
                "2",
                "mark",
                "3",
                "caught up 3 floor 0",
                "whole 3"
            ]
        );
        assert!(reading.is_live());
        reading
    }

    #[test]
    fn a_log_is_read_to_its_end_twice() {
        let (mut reading, mut steps) = (Reading::new(), Vec::new());
        reading.handle_opened(opened(FIRST(), 9), &mut steps);
        assert_eq!(reading.next_sequence(), 1);
        // What was dropped before it was read is no loss yet.
        reading.handle_entry(4, LogEvent::Passed, &mut steps);
        reading.handle_entry(7, LogEvent::Passed, &mut steps);
        assert_eq!(said(&mut steps), ["began 0", "4", "7"]);
        reading.handle_beat(9, FIRST(), &mut steps);
        assert_eq!(said(&mut steps), ["9", "mark"]);
        reading.handle_entry(10, LogEvent::Passed, &mut steps);
        reading.handle_marked(12, 4, &mut steps);
        reading.handle_entry(13, LogEvent::Passed, &mut steps);
        // It missed 11 and 12 between the marks.
        assert_eq!(
            said(&mut steps),
            ["10", "13", "caught up 13 floor 12", "mark"]
        );
        // What is old in histories may have a hole behind it until what made it has come.
        reading.handle_entry(14, LogEvent::Passed, &mut steps);
        reading.handle_marked(16, 4, &mut steps);
        reading.handle_entry(15, LogEvent::Passed, &mut steps);
        assert_eq!(said(&mut steps), ["14", "15"]);
        reading.handle_beat(16, FIRST(), &mut steps);
        assert_eq!(said(&mut steps), ["16", "whole 16"]);
    }

    #[test]
    fn holes_in_histories_end_at_a_loss_and_at_the_mark_of_an_opening() {
        let behind_a_hole = |steps: &mut Vec<Step>| {
            let mut reading = Reading::new();
            reading.handle_opened(opened(FIRST(), 1), steps);
            reading.handle_beat(1, FIRST(), steps);
            reading.handle_marked(3, 1, steps);
            reading.handle_beat(3, FIRST(), steps);
            let last = ["3", "caught up 3 floor 2", "mark"];
            assert!(said(steps).ends_with(&last.map(str::to_owned)));
            reading
        };
        let mut steps = Vec::new();
        let mut reading = behind_a_hole(&mut steps);
        reading.handle_opened(opened(FIRST(), 5), &mut steps);
        reading.handle_entry(4, LogEvent::Passed, &mut steps);
        reading.handle_beat(5, FIRST(), &mut steps);
        assert_eq!(said(&mut steps), ["4", "5", "whole 5"]);

        let mut reading = behind_a_hole(&mut steps);
        reading.handle_entry(5, LogEvent::Passed, &mut steps);
        reading.handle_marked(6, 1, &mut steps);
        reading.handle_beat(6, FIRST(), &mut steps);
        assert_eq!(said(&mut steps), ["lost 4", "whole 3", "5", "6"]);
    }

    #[test]
    fn a_hole_between_the_marks_is_told_to_those_who_come_from_before_it() {
        let (mut reading, mut steps) = (Reading::new(), Vec::new());
        reading.handle_opened(opened(FIRST(), 9), &mut steps);
        reading.handle_beat(9, FIRST(), &mut steps);
        reading.handle_marked(14, 1, &mut steps);
        reading.handle_entry(10, LogEvent::Passed, &mut steps);
        reading.handle_entry(12, LogEvent::Passed, &mut steps);
        reading.handle_entry(13, LogEvent::Passed, &mut steps);
        reading.handle_beat(14, FIRST(), &mut steps);
        assert_eq!(
            said(&mut steps),
            [
                "began 0",
                "9",
                "mark",
                "10",
                "12",
                "13",
                "14",
                "caught up 14 floor 11",
                "mark"
            ]
        );
    }

    #[test]
    fn a_mark_that_was_read_before_it_was_known_counts() {
        let (mut reading, mut steps) = (Reading::new(), Vec::new());
        reading.handle_opened(opened(FIRST(), 1), &mut steps);
        reading.handle_beat(1, FIRST(), &mut steps);
        reading.handle_beat(2, FIRST(), &mut steps);
        reading.handle_marked(2, 1, &mut steps);
        assert_eq!(
            said(&mut steps),
            [
                "began 0",
                "1",
                "mark",
                "2",
                "caught up 2 floor 0",
                "whole 2"
            ]
        );
    }

    #[test]
    fn a_hole_is_a_loss_once_all_was_read() {
        let (mut reading, mut steps) = (live(), Vec::new());
        reading.handle_entry(4, LogEvent::Passed, &mut steps);
        reading.handle_entry(4, LogEvent::Passed, &mut steps);
        reading.handle_entry(6, LogEvent::Passed, &mut steps);
        assert_eq!(said(&mut steps), ["4", "lost 5", "6"]);
    }

    #[test]
    fn a_log_that_is_opened_again_goes_on() {
        let (mut reading, mut steps) = (live(), Vec::new());
        reading.handle_opened(opened(FIRST(), 5), &mut steps);
        assert_eq!(reading.next_sequence(), 4);
        reading.handle_entry(4, LogEvent::Passed, &mut steps);
        assert_eq!(said(&mut steps), ["4"]);
    }

    #[test]
    fn a_log_that_came_back_shorter_begins_anew_with_another_epoch() {
        let (mut reading, mut steps) = (live(), Vec::new());
        reading.handle_opened(opened(OTHER(), 4), &mut steps);
        assert_eq!((reading.next_sequence(), reading.is_live()), (1, false));
        reading.handle_entry(1, LogEvent::Passed, &mut steps);
        assert_eq!(said(&mut steps), ["began 0", "1"]);
    }

    #[test]
    fn a_log_is_known_by_its_entries_and_not_by_its_length() {
        let (mut reading, mut steps) = (live(), Vec::new());
        let anchor = |sequence: u64| Anchor {
            sequence,
            stored_ns: i128::from(sequence) * 1_000,
        };
        reading.note_stored(anchor(3), true);
        for sequence in 4..30 {
            reading.handle_entry(sequence, LogEvent::Passed, &mut steps);
            reading.note_stored(anchor(sequence), false);
        }
        // Not what was handled last.
        reading.note_stored(anchor(7), false);
        let anchors = reading.anchors();
        let sequences: Vec<_> = anchors.iter().map(|one| one.sequence).collect();
        assert_eq!(sequences, [29, 28, 27, 26, 25, 24, 23, 22, 3]);
        let extent = |first, last| Extent { first, last };
        // What is in its place: the same entry, another one, or none.
        let (same, other, none) = (Some(0), Some(1), None);
        for (extent, found, still_has) in [
            (extent(1, 29), vec![same], true),
            (extent(1, 50), vec![same], true),
            (extent(1, 28), vec![], false),
            (extent(1, 50), vec![other], false),
            (extent(1, 50), vec![none, same], true),
            (extent(1, 50), vec![none, none, other], false),
            (extent(1, 50), vec![none; 9], false),
            (extent(29, 50), vec![none; 9], false),
            (extent(30, 50), vec![none; 9], true),
        ] {
            let found = anchors.iter().zip(&found);
            let found = found.map(|(anchor, off)| (*anchor, off.map(|off| anchor.stored_ns + off)));
            let holds = Anchors::still_hold(reading.position(), extent, found);
            assert_eq!(holds, still_has, "{extent:?}");
        }
        reading.handle_opened(opened(OTHER(), 4), &mut steps);
        assert_eq!((reading.anchors(), reading.began()), (vec![], 0));
    }

    #[test]
    fn another_epoch_in_a_beat_begins_there() {
        let (mut reading, mut steps) = (live(), Vec::new());
        reading.handle_beat(4, OTHER(), &mut steps);
        reading.handle_entry(5, LogEvent::Passed, &mut steps);
        assert_eq!(
            said(&mut steps),
            ["began 4", "caught up 4 floor 4", "whole 4", "5"]
        );

        // Before all was read, there is more to read.
        let mut reading = Reading::new();
        reading.handle_opened(opened(FIRST(), 9), &mut steps);
        reading.handle_beat(4, OTHER(), &mut steps);
        assert_eq!(said(&mut steps), ["began 0", "began 4", "mark"]);
        reading.handle_marked(11, 1, &mut steps);
        reading.handle_beat(11, OTHER(), &mut steps);
        assert_eq!(said(&mut steps), ["11", "caught up 11 floor 10", "mark"]);
    }

    #[test]
    fn a_connection_lost_between_the_marks_begins_the_marks_again() {
        let (mut reading, mut steps) = (Reading::new(), Vec::new());
        reading.handle_opened(opened(FIRST(), 1), &mut steps);
        reading.handle_beat(1, FIRST(), &mut steps);
        reading.handle_opened(opened(FIRST(), 3), &mut steps);
        reading.handle_beat(3, FIRST(), &mut steps);
        assert_eq!(said(&mut steps), ["began 0", "1", "mark", "3", "mark"]);
    }

    proptest! {
        /// Whatever a log drops behind the first mark while it is read, what was not told lies at or below the floor.
        #[test]
        fn what_is_missing_between_the_marks_is_below_the_floor(kept in prop::collection::vec(any::<bool>(), 0..40)) {
            let (mut reading, mut steps) = (Reading::new(), Vec::new());
            reading.handle_opened(opened(FIRST(), 1), &mut steps);
            reading.handle_beat(1, FIRST(), &mut steps);
            let mark = kept.len() as u64 + 2;
            reading.handle_marked(mark, 1, &mut steps);
            let mut missing = 0;
            for (sequence, is_kept) in (2..).zip(&kept) {
                if *is_kept {
                    reading.handle_entry(sequence, LogEvent::Passed, &mut steps);
                } else {
                    missing = sequence;
                }
            }
            reading.handle_beat(mark, FIRST(), &mut steps);
            let said = said(&mut steps);
            let caught_up = format!("caught up {mark} floor {missing}");
            let next = if missing == 0 { format!("whole {mark}") } else { "mark".to_owned() };
            prop_assert!(said.ends_with(&[caught_up, next]), "{said:?}");
        }

        /// Whatever is read: offsets rise, and once the node is live each sequence that was left out is told before the next entry.
        #[test]
        fn no_hole_is_silent(gaps in prop::collection::vec(1_u64..4, 1..40)) {
            let (mut reading, mut steps) = (live(), Vec::new());
            let mut sequence = reading.position();
            for gap in gaps {
                let is_whole = gap == 1;
                sequence += gap;
                reading.handle_entry(sequence, LogEvent::Passed, &mut steps);
                let said = said(&mut steps);
                prop_assert_eq!(said.len(), if is_whole { 1 } else { 2 });
                prop_assert_eq!(said.last(), Some(&sequence.to_string()));
            }
        }
    }
}
