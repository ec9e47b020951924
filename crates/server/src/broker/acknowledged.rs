//! Messages of this node that a stream has acknowledged: it must still have them, whether this node has read them or not.
//!
//! A server without the stream's end may become its leader. Then others take the places of what was lost, and the next message of this
//! node is acknowledged behind them. So the newest acknowledged message says nothing about those before it.
//!
//! When a leader has died, the servers need longer than [`PAUSE`] to elect another one, and acknowledge nothing. And it is the end of a
//! stream that is lost: if any message of this node is lost, so is the last one that was acknowledged before the election. So the last one
//! before each pause is in doubt, and is kept until it was looked for. A leader that steps down hands over all that it has.

use super::looking::PAUSE;
use std::collections::VecDeque;
use tokio::time::Instant;

/// Messages in doubt. There are several while the stream cannot be looked at, or where acknowledgements take longer than [`PAUSE`].
pub(super) const DOUBTED_MAX: usize = 8;

/// A message of this node that a stream has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    /// Its place.
    pub(super) sequence: u64,
    /// Its number: this node gives each to one message.
    pub(super) serial: u64,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    message: Acknowledged,
    /// When the attempt began that was acknowledged.
    sent: Instant,
}

/// The newest message that a stream has acknowledged, and earlier ones that are in doubt.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    newest: Option<Newest>,
    /// The oldest first, [`DOUBTED_MAX`] at most.
    doubted: VecDeque<Acknowledged>,
}

impl Acknowledgements {
    /// The message with the last place.
    pub(super) fn newest(&self) -> Option<Acknowledged> {
        self.newest.map(|newest| newest.message)
    }

    /// A message was acknowledged. `sent` is when the attempt began that was.
    pub(super) fn note(&mut self, message: Acknowledged, sent: Instant, now: Instant) {
        let newest = self.newest;
        // Not since its acknowledgement: a node that stands still reads late what came long before.
        if newest.is_some_and(|newest| now.duration_since(newest.sent) > PAUSE) {
            self.doubt_newest(0);
        }
        if newest.is_none_or(|newest| newest.message.sequence < message.sequence) {
            self.newest = Some(Newest { message, sent });
        }
    }

    /// The stream may have lost its end. The newest message is in doubt then, unless it stands at `read` or before it: what was read is
    /// looked for anyway.
    pub(super) fn doubt_newest(&mut self, read: u64) {
        let Some(message) = self.newest() else {
            return;
        };
        if message.sequence <= read || self.doubted.back() == Some(&message) {
            return;
        }
        if self.doubted.len() == DOUBTED_MAX {
            // The oldest ones are from before the first pause in which looking failed. A fault of the servers began there.
            self.doubted.pop_back();
        }
        self.doubted.push_back(message);
    }

    /// Takes the oldest message in doubt. Whoever takes it looks for it.
    pub(super) fn take_doubted(&mut self) -> Option<Acknowledged> {
        self.doubted.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(sequence: u64) -> Acknowledged {
        let serial = 100 + sequence;
        Acknowledged { sequence, serial }
    }

    /// Notes messages by their places, with the times at which they were sent and acknowledged, in ms.
    fn noted(messages: impl IntoIterator<Item = (u64, u64, u64)>) -> Acknowledgements {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut all = Acknowledgements::default();
        for (sequence, sent_ms, acknowledged_ms) in messages {
            all.note(message(sequence), at(sent_ms), at(acknowledged_ms));
        }
        all
    }

    fn doubted(all: &mut Acknowledgements) -> Vec<u64> {
        let taken = std::iter::from_fn(|| all.take_doubted());
        taken.map(|message| message.sequence).collect()
    }

    #[test]
    fn the_last_message_before_each_pause_is_in_doubt() {
        let quick = [
            (1, 0),
            (2, 400),
            (5, 800),
            (6, 3_000),
            (7, 3_100),
            (9, 5_000),
        ];
        let mut all = noted(quick.map(|(sequence, ms)| (sequence, ms, ms + 1)));
        assert_eq!(all.newest(), Some(message(9)));
        assert_eq!(doubted(&mut all), [5, 7]);
        assert!(doubted(&mut all).is_empty(), "they were taken");
        all.doubt_newest(9);
        assert!(doubted(&mut all).is_empty(), "it was read");
        all.doubt_newest(8);
        all.doubt_newest(0);
        assert_eq!(doubted(&mut all), [9]);
    }

    #[test]
    fn a_pause_is_found_by_a_node_that_stood_still() {
        // The first two were acknowledged while it did.
        let mut all = noted([(1, 0, 5_000), (2, 10, 5_001), (4, 5_002, 5_003)]);
        assert_eq!(doubted(&mut all), [1, 2]);
    }

    #[test]
    fn a_message_of_an_earlier_place_shows_a_pause_and_is_not_the_newest() {
        let mut all = noted([(9, 0, 1), (8, 1, 2_000)]);
        assert_eq!(all.newest(), Some(message(9)));
        assert_eq!(doubted(&mut all), [9]);
    }

    #[test]
    fn the_oldest_in_doubt_are_kept_and_the_last_one() {
        let mut all =
            noted((1..=20).map(|sequence| (sequence, 2_000 * sequence, 2_000 * sequence)));
        assert_eq!(doubted(&mut all), [1, 2, 3, 4, 5, 6, 7, 19]);
    }
}
