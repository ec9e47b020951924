//! Publications on their way to a log: of each channel one at a time.
//!
//! A publication that is not acknowledged in time is sent again. If the next one of its channel had been sent meanwhile, the two could
//! change places. So it waits; publications of other channels do not.

use std::collections::{HashMap, VecDeque};

/// Publications by their channels. `T` is one on its way.
#[derive(Debug)]
pub struct Line<T> {
    /// Of each channel with something under way: what waits behind it.
    behind: HashMap<Box<str>, VecDeque<T>>,
    /// What may leave, in the order in which it came.
    ready: VecDeque<(Box<str>, T)>,
    under_way: usize,
    under_way_max: usize,
}

impl<T> Line<T> {
    /// An empty line; so many publications may be under way at once.
    #[must_use]
    pub fn new(under_way_max: usize) -> Self {
        assert!(under_way_max > 0, "something has to move");
        Self {
            behind: HashMap::new(),
            ready: VecDeque::new(),
            under_way: 0,
            under_way_max,
        }
    }

    /// Another publication comes. The line has no bound of its own: each holds a permit for its bytes.
    pub fn push(&mut self, channel: &str, one: T) {
        if let Some(behind) = self.behind.get_mut(channel) {
            behind.push_back(one);
        } else {
            self.behind.insert(channel.into(), VecDeque::new());
            self.ready.push_back((channel.into(), one));
        }
    }

    /// The next publication to send, if one may be sent now. It is under way until [`Line::end`].
    pub fn poll(&mut self) -> Option<(Box<str>, T)> {
        if self.under_way == self.under_way_max {
            return None;
        }
        let next = self.ready.pop_front()?;
        self.under_way += 1;
        Some(next)
    }

    /// A channel's publication is stored, or will never be.
    pub fn end(&mut self, channel: &str) {
        // One that ended twice would end the process of everybody's connections.
        let Some(behind) = self.behind.get_mut(channel) else {
            debug_assert!(false, "one of the channel is under way");
            return;
        };
        self.under_way -= 1;
        match behind.pop_front() {
            Some(next) => self.ready.push_back((channel.into(), next)),
            None => drop(self.behind.remove(channel)),
        }
    }

    /// Takes all that is not under way, when nothing can be sent.
    pub fn take_waiting(&mut self) -> Vec<T> {
        self.take_if(|_| true)
    }

    /// Takes those that `is_taken` picks of what is not under way. The others keep their order.
    pub fn take_if(&mut self, is_taken: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for behind in self.behind.values_mut() {
            for one in std::mem::take(behind) {
                if is_taken(&one) {
                    taken.push(one);
                } else {
                    behind.push_back(one);
                }
            }
        }
        for (channel, one) in std::mem::take(&mut self.ready) {
            if !is_taken(&one) {
                self.ready.push_back((channel, one));
                continue;
            }
            taken.push(one);
            // The next one of the channel takes its place.
            match self.behind.get_mut(&channel).and_then(VecDeque::pop_front) {
                Some(next) => self.ready.push_back((channel, next)),
                None => drop(self.behind.remove(&channel)),
            }
        }
        taken
    }

    /// Publications under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Nothing waits, and nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.under_way == 0 && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn channel_of(next: Option<(Box<str>, u32)>) -> Option<(String, u32)> {
        next.map(|(channel, one)| (channel.into(), one))
    }

    #[test]
    fn one_of_a_channel_is_under_way_and_others_overtake_it() {
        let mut line = Line::new(10);
        for (channel, one) in [("a", 1), ("a", 2), ("b", 3)] {
            line.push(channel, one);
        }
        assert_eq!(channel_of(line.poll()), Some(("a".into(), 1)));
        assert_eq!(channel_of(line.poll()), Some(("b".into(), 3)));
        assert_eq!(line.poll(), None);
        line.end("a");
        assert_eq!(channel_of(line.poll()), Some(("a".into(), 2)));
        line.end("b");
        line.end("a");
        assert!(line.is_empty() && line.behind.is_empty());
    }

    #[test]
    fn so_many_are_under_way_and_no_more() {
        let mut line = Line::new(1);
        line.push("a", 1);
        line.push("b", 2);
        assert!(line.poll().is_some() && line.poll().is_none());
        line.end("a");
        assert_eq!(channel_of(line.poll()), Some(("b".into(), 2)));
    }

    #[test]
    fn what_waits_can_be_taken_back() {
        let mut line = Line::new(1);
        for (channel, one) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
            line.push(channel, one);
        }
        line.poll();
        let mut taken = line.take_waiting();
        taken.sort_unstable();
        assert_eq!(taken, [2, 3, 4]);
        line.end("a");
        assert!(line.is_empty() && line.behind.is_empty());
    }

    #[test]
    fn some_of_what_waits_can_be_taken_and_the_rest_goes_on() {
        let mut line = Line::new(1);
        for (channel, one) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("c", 6)] {
            line.push(channel, one);
        }
        line.poll();
        let mut taken = line.take_if(|one| one % 2 == 0);
        taken.sort_unstable();
        assert_eq!(taken, [2, 4, 6]);
        line.end("a");
        assert_eq!(channel_of(line.poll()), Some(("b".into(), 5)));
        line.end("b");
        assert_eq!(channel_of(line.poll()), Some(("a".into(), 3)));
        line.end("a");
        assert!(line.is_empty() && line.behind.is_empty());
    }

    proptest! {
        /// Whatever is under way: each channel's publications leave in their order, and all of them do.
        #[test]
        fn channels_keep_their_order(
            pushes in prop::collection::vec(0_usize..4, 0..60),
            choices in prop::collection::vec(any::<prop::sample::Index>(), 200),
            under_way_max in 1_usize..5,
        ) {
            let names = ["a", "b", "c", "d"];
            let mut line = Line::new(under_way_max);
            let (mut sent, mut under_way) = (vec![Vec::new(); 4], Vec::new());
            let mut coming = pushes.iter().enumerate();
            for choice in choices {
                if let Some((number, &channel)) = coming.next() {
                    line.push(names[channel], number);
                }
                while let Some((channel, number)) = line.poll() {
                    let at = names.iter().position(|name| **name == *channel).unwrap();
                    prop_assert!(!under_way.contains(&at));
                    sent[at].push(number);
                    under_way.push(at);
                }
                prop_assert!(under_way.len() <= under_way_max);
                prop_assert_eq!(under_way.len(), line.under_way());
                if !under_way.is_empty() {
                    let ended = under_way.swap_remove(choice.index(under_way.len()));
                    line.end(names[ended]);
                }
            }
            let pushed = |at| pushes.iter().enumerate().filter(move |(_, one)| **one == at);
            for (at, sent) in sent.iter().enumerate() {
                let pushed: Vec<_> = pushed(at).map(|(number, _)| number).collect();
                prop_assert_eq!(sent, &pushed);
            }
        }
    }
}
