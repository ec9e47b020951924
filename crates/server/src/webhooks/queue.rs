//! Events that wait for one endpoint.

use super::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that an event may take on average, before names of unusual length count.
const BYTES_OF_AN_EVENT: usize = 1024;

/// A queue of events. Past its bound the oldest is dropped, and counted.
#[derive(Debug)]
pub(super) struct Queue {
    events: VecDeque<Arc<Event>>,
    events_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// Events that were dropped, and that no batch has told of.
    untold: u64,
}

impl Queue {
    pub(super) fn new(events_max: usize) -> Self {
        Self {
            events: VecDeque::new(),
            events_max,
            bytes: 0,
            bytes_max: events_max.saturating_mul(BYTES_OF_AN_EVENT),
            untold: 0,
        }
    }

    /// Adds an event. Returns how many older ones were dropped for it.
    pub(super) fn push(&mut self, event: Arc<Event>) -> u64 {
        self.bytes += event.what.bytes();
        self.events.push_back(event);
        self.drop_surplus()
    }

    fn drop_surplus(&mut self) -> u64 {
        let before = self.untold;
        while self.events.len() > self.events_max || self.bytes > self.bytes_max {
            if self.pop().is_none() {
                break;
            }
            self.untold += 1;
        }
        self.untold - before
    }

    /// Changes the bound. Returns how many of the oldest events were dropped for it.
    pub(super) fn resize(&mut self, events_max: usize) -> u64 {
        self.events_max = events_max;
        self.bytes_max = events_max.saturating_mul(BYTES_OF_AN_EVENT);
        self.drop_surplus()
    }

    /// Events were dropped before they came here, or after they were taken out.
    pub(super) fn note_dropped(&mut self, count: u64) {
        self.untold += count;
    }

    pub(super) fn front(&self) -> Option<&Event> {
        self.events.front().map(|event| &**event)
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Event>> {
        let event = self.events.pop_front()?;
        self.bytes -= event.what.bytes();
        Some(event)
    }

    /// How many events were dropped since the last call.
    pub(super) fn take_untold(&mut self) -> u64 {
        std::mem::take(&mut self.untold)
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there is something to tell: events, or that some were dropped.
    pub(super) fn has_news(&self) -> bool {
        !self.events.is_empty() || self.untold > 0
    }

    /// Forgets everything. Returns how many events waited.
    pub(super) fn clear(&mut self) -> u64 {
        let count = self.events.len() as u64;
        *self = Self::new(self.events_max);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_shard::Notice;

    fn event(channel: &str) -> Arc<Event> {
        Arc::new(Event {
            at_ms: 0,
            what: Notice::Occupied(channel.into()),
        })
    }

    #[test]
    fn the_oldest_is_dropped_and_counted_once() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.push(event("a")), 0);
        assert_eq!(queue.push(event("b")), 0);
        assert_eq!(queue.push(event("c")), 1);
        assert_eq!(queue.pop(), Some(event("b")));
        queue.note_dropped(3);
        assert_eq!((queue.take_untold(), queue.take_untold()), (4, 0));
        assert_eq!(queue.pop(), Some(event("c")));
        assert!(!queue.has_news() && queue.bytes == 0);
    }

    #[test]
    fn a_smaller_bound_drops_the_oldest() {
        let mut queue = Queue::new(4);
        for channel in ["a", "b", "c"] {
            queue.push(event(channel));
        }
        assert_eq!((queue.resize(2), queue.resize(4)), (1, 0));
        assert_eq!((queue.pop(), queue.take_untold()), (Some(event("b")), 1));
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut queue = Queue::new(4);
        let long = "x".repeat(2_000);
        for _ in 0..4 {
            queue.push(event(&long));
        }
        assert_eq!(queue.len(), 1, "two would be past four times a kibibyte");
        assert_eq!(queue.take_untold(), 3);
    }

    #[test]
    fn what_was_dropped_is_to_be_told_even_if_nothing_else_is() {
        let mut queue = Queue::new(2);
        queue.note_dropped(1);
        assert!(queue.has_news() && queue.pop().is_none());
    }
}
