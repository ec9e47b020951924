//! Hears a whole stream in its order: where a node wants much of it, or where little is said.

use crate::broker::servers::{Feed, FeedError, Heard, HeardMessage, Listener, Stored};
use myriad_broker::Previous;
use myriad_nats::raw::Sid;
use std::task::{Context, Poll, ready};

/// Everything that stands in a stream from a place on.
pub(super) struct Whole {
    feed: Box<dyn Feed>,
    /// The last place that came, or the one before the first.
    position: u64,
    /// A message behind a hole.
    next: Option<Stored>,
    has_begun: bool,
    is_fence_asked: bool,
}

impl Whole {
    /// Of a feed from this place on, where a message stands: when it has come, the feed is known to work.
    pub(super) fn new(feed: Box<dyn Feed>, first: u64) -> Self {
        Self {
            feed,
            position: first - 1,
            next: None,
            has_begun: false,
            is_fence_asked: false,
        }
    }
}

impl Listener for Whole {
    fn subscribe(&mut self, _subject: &str) -> Option<Sid> {
        None
    }

    fn unsubscribe(&mut self, _sid: Sid) {}

    fn ask_fence(&mut self) {
        // Nobody needs to be woken: whoever asks looks for the answer next.
        self.is_fence_asked = true;
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Heard, FeedError>> {
        if self.is_fence_asked && self.has_begun {
            self.is_fence_asked = false;
            // What stands behind the last message has not come, and will.
            return Poll::Ready(Ok(Heard::Fence(self.position)));
        }
        let stored = match self.next.take() {
            Some(stored) => stored,
            None => ready!(self.feed.poll_next(context))?,
        };
        if stored.sequence != self.position + 1 {
            self.position = stored.sequence - 1;
            self.next = Some(stored);
            return Poll::Ready(Ok(Heard::Hole));
        }
        self.has_begun = true;
        self.position = stored.sequence;
        let previous = Previous::InOrder;
        Poll::Ready(Ok(Heard::Message(HeardMessage { stored, previous })))
    }

    fn is_silent(&self) -> bool {
        self.feed.is_silent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::task::Waker;
    use tokio::time::Instant;

    /// Messages that have come.
    struct Ready(VecDeque<u64>);

    impl Feed for Ready {
        fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Stored, FeedError>> {
            let Some(sequence) = self.0.pop_front() else {
                return Poll::Pending;
            };
            Poll::Ready(Ok(Stored {
                sequence,
                stored_ns: 0,
                subject: "my.h.log.log:a".into(),
                headers: None,
                payload: bytes::Bytes::new(),
                is_spoiled: false,
            }))
        }

        fn heard(&self) -> Instant {
            Instant::now()
        }
    }

    /// What a listener hears, in words.
    fn heard(whole: &mut Whole) -> String {
        match whole.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Heard::Fence(position))) => format!("fence {position}"),
            Poll::Ready(Ok(Heard::Message(message))) => {
                assert_eq!(message.previous, Previous::InOrder);
                message.stored.sequence.to_string()
            }
            Poll::Ready(Ok(Heard::Hole)) => "hole".to_owned(),
            Poll::Ready(Err(error)) => error.to_string(),
            Poll::Pending => "nothing".to_owned(),
        }
    }

    #[test]
    fn a_fence_stands_behind_the_last_message_that_came() {
        let mut whole = Whole::new(Box::new(Ready([8, 9].into())), 8);
        whole.ask_fence();
        // Nothing has shown yet that the feed works.
        assert_eq!(heard(&mut whole), "8");
        assert_eq!(heard(&mut whole), "fence 8");
        whole.ask_fence();
        for said in ["fence 8", "9", "nothing"] {
            assert_eq!(heard(&mut whole), said);
        }
    }

    #[test]
    fn a_hole_is_told_before_the_message_behind_it() {
        let mut whole = Whole::new(Box::new(Ready([8, 11, 12].into())), 8);
        assert_eq!(heard(&mut whole), "8");
        assert_eq!(heard(&mut whole), "hole");
        whole.ask_fence();
        for said in ["fence 10", "11", "12", "nothing"] {
            assert_eq!(heard(&mut whole), said);
        }
    }
}
