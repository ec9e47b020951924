//! What was read of a channel, page by page.

use crate::broker::fill_budget::bytes_of;
use crate::broker::servers::Stored;

/// The messages of a channel as they are read.
///
/// Each page is as one server had it, and what goes, goes from the oldest on. So a page that begins with the last message of the one
/// before it lacks nothing between the two, although another server may have answered.
#[derive(Default)]
pub(super) struct Pages {
    messages: Vec<(u64, Stored)>,
    /// Bytes of memory that they take.
    bytes: usize,
    /// Something in front of them was given up.
    is_cut: bool,
}

impl Pages {
    /// The place of the last message.
    pub(super) fn last(&self) -> Option<u64> {
        self.messages.last().map(|(sequence, _)| *sequence)
    }

    /// Bytes of memory that the last message takes.
    pub(super) fn bytes_of_last(&self) -> usize {
        self.messages.last().map_or(0, |(_, last)| bytes_of(last))
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a page. If it does not begin with the last message that is there, what is there is given up. Returns whether the page has
    /// something new. A stream may keep far more of a channel than a history has: then the oldest go.
    pub(super) fn take(&mut self, page: Vec<Stored>, kept: usize) -> bool {
        let last = self.last();
        let mut is_joined = false;
        let mut new = Vec::with_capacity(page.len());
        for message in page {
            match last {
                Some(last) if message.sequence <= last => is_joined |= message.sequence == last,
                _ => new.push((message.sequence, message)),
            }
        }
        let has_new = !new.is_empty();
        if has_new && !is_joined {
            self.give_up(self.messages.len());
        }
        self.bytes += new.iter().map(|(_, one)| bytes_of(one)).sum::<usize>();
        self.messages.append(&mut new);
        if self.messages.len() > 2 * kept {
            self.give_up(self.messages.len() - kept);
        }
        has_new
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
    fn pages_that_begin_with_the_last_message_are_put_together() {
        let mut pages = Pages::default();
        assert_eq!((pages.last(), pages.bytes_of_last()), (None, 0));
        assert!(pages.take(page(3..=5), 100));
        assert_eq!(pages.bytes_of_last(), pages.bytes() / 3);
        assert!(pages.take(page(5..=7), 100));
        // A server gives some again.
        assert!(pages.take(page(6..=8), 100));
        assert_eq!((places(&pages), pages.is_cut), ((3..=8).collect(), false));
        assert!(!pages.take(page(8..=8), 100) && !pages.take(Vec::new(), 100));
        assert_eq!((places(&pages), pages.is_cut), ((3..=8).collect(), false));
    }

    #[test]
    fn a_page_that_begins_behind_the_last_message_takes_the_place_of_all() {
        let mut pages = Pages::default();
        assert!(pages.take(page(3..=5), 100));
        assert!(pages.take(page(6..=7), 100), "5 may have gone, and others");
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7], true));
    }

    #[test]
    fn more_than_a_history_can_have_is_given_up() {
        let mut pages = Pages::default();
        pages.take(page(1..=6), 4);
        assert!(!pages.is_cut);
        pages.take(page(6..=9), 4);
        assert_eq!((places(&pages), pages.is_cut), (vec![6, 7, 8, 9], true));
    }

    #[test]
    fn what_takes_too_many_bytes_is_given_up_but_for_the_last_one() {
        let mut pages = Pages::default();
        pages.cut_to(0);
        assert!(!pages.is_cut);
        pages.take(page(1..=4), 100);
        let bytes_of_one = pages.bytes() / 4;
        pages.cut_to(4 * bytes_of_one);
        assert_eq!((places(&pages), pages.is_cut), (vec![1, 2, 3, 4], false));
        pages.cut_to(4 * bytes_of_one - 1);
        assert_eq!((places(&pages), pages.is_cut), (vec![2, 3, 4], true));
        pages.cut_to(0);
        assert_eq!(places(&pages), [4]);
    }
}
