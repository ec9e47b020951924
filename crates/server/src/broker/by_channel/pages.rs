//! What was read of a channel, page by page.

use crate::broker::fill_budget::bytes_of;
use crate::broker::servers::Stored;

/// The messages of a channel as they are read.
#[derive(Default)]
pub(super) struct Pages {
    messages: Vec<(u64, Stored)>,
    /// Bytes of memory that they take.
    bytes: usize,
    /// Where the last page begins in them.
    last_page: usize,
    /// Something in front of them was given up.
    is_cut: bool,
}

impl Pages {
    /// The place to read on from.
    pub(super) fn next(&self) -> Option<u64> {
        self.messages.last().map(|(sequence, _)| sequence + 1)
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a page from a place on. A stream may keep far more of a channel than a history has: then the oldest go.
    pub(super) fn take(&mut self, page: Vec<Stored>, from: u64, kept: usize) {
        self.last_page = self.messages.len();
        for message in page {
            if message.sequence >= from {
                self.bytes += bytes_of(&message);
                self.messages.push((message.sequence, message));
            }
        }
        if self.messages.len() > 2 * kept {
            self.give_up(self.messages.len() - kept);
        }
    }

    /// Gives up the oldest, until the others take no more bytes than that. The last one stays in any case.
    pub(super) fn cut_to(&mut self, bytes_max: usize) {
        let (mut count, mut bytes) = (0, self.bytes);
        while bytes > bytes_max && count + 1 < self.messages.len() {
            bytes -= bytes_of(&self.messages[count].1);
            count += 1;
        }
        self.give_up(count);
    }

    /// The first place, if they are of more than one page.
    pub(super) fn begin_of_several(&self) -> Option<u64> {
        let (begin, _) = self.messages.first()?;
        (self.last_page > 0).then_some(*begin)
    }

    /// Gives up what is in front of a place. The last page stays in any case: it is as one server had it at one moment.
    pub(super) fn keep_from(&mut self, place: u64) {
        let gone =
            self.messages[..self.last_page].partition_point(|(sequence, _)| *sequence < place);
        self.give_up(gone);
    }

    /// The messages by their places, and whether something in front of them was given up.
    pub(super) fn end(self) -> (Vec<(u64, Stored)>, bool) {
        (self.messages, self.is_cut)
    }

    /// Gives up the oldest.
    fn give_up(&mut self, count: usize) {
        for (_, message) in self.messages.drain(..count) {
            self.bytes -= bytes_of(&message);
            self.is_cut = true;
        }
        self.last_page = self.last_page.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(places: std::ops::RangeInclusive<u64>) -> Vec<Stored> {
        let stored = |sequence| Stored {
            sequence,
            stored_ns: 0,
            subject: "a".into(),
            headers: None,
            payload: bytes::Bytes::from_static(b"12345678"),
            is_spoiled: false,
        };
        places.map(stored).collect()
    }

    fn places(pages: &Pages) -> Vec<u64> {
        let counted: usize = pages.messages.iter().map(|(_, one)| bytes_of(one)).sum();
        assert_eq!(pages.bytes(), counted);
        pages.messages.iter().map(|(place, _)| *place).collect()
    }

    #[test]
    fn pages_are_put_together_and_only_the_last_one_is_sure_to_be_whole() {
        let mut pages = Pages::default();
        assert_eq!((pages.next(), pages.begin_of_several()), (None, None));
        pages.take(page(3..=5), 3, 100);
        assert_eq!((pages.next(), pages.begin_of_several()), (Some(6), None));
        // A server that is behind gives some again.
        pages.take(page(5..=7), 6, 100);
        assert_eq!(pages.begin_of_several(), Some(3));
        assert_eq!((places(&pages), pages.is_cut), ((3..=7).collect(), false));
        pages.keep_from(3);
        assert_eq!((places(&pages), pages.is_cut), ((3..=7).collect(), false));
        pages.keep_from(5);
        assert_eq!((places(&pages), pages.is_cut), (vec![5, 6, 7], true));
        assert_eq!(pages.begin_of_several(), Some(5));
        pages.keep_from(u64::MAX);
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7], true));
    }

    #[test]
    fn more_than_a_history_can_have_is_given_up() {
        let mut pages = Pages::default();
        pages.take(page(1..=6), 1, 4);
        assert!(!pages.is_cut);
        pages.take(page(7..=9), 7, 4);
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7, 8, 9], true));
        assert_eq!(pages.begin_of_several(), Some(6));
        pages.keep_from(u64::MAX);
        assert_eq!(places(&pages), [7, 8, 9]);
    }

    #[test]
    fn what_takes_too_many_bytes_is_given_up_but_for_the_last_one() {
        let mut pages = Pages::default();
        pages.cut_to(0);
        assert!(!pages.is_cut);
        pages.take(page(1..=2), 1, 100);
        pages.take(page(3..=4), 3, 100);
        let bytes_of_one = pages.bytes() / 4;
        pages.cut_to(4 * bytes_of_one);
        assert_eq!((places(&pages), pages.is_cut), (vec![1, 2, 3, 4], false));
        pages.cut_to(4 * bytes_of_one - 1);
        assert_eq!((places(&pages), pages.is_cut), (vec![2, 3, 4], true));
        assert_eq!(pages.begin_of_several(), Some(2));
        pages.cut_to(0);
        assert_eq!(places(&pages), [4]);
        assert_eq!(pages.begin_of_several(), None);
    }
}
