//! What is on its way to a listener of the simulated log.

use super::SILENCE_MAX;
use crate::broker::servers::{FeedError, Heard, HeardMessage, Stored};
use myriad_broker::Previous;
use myriad_reactor::sim::Prng;
use std::collections::BTreeMap;
use std::task::Waker;
use tokio::time::Instant;

/// A message on its way to those who want it.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) stored: Stored,
    /// The place of the message of its subject before it; 0: there is none.
    pub(super) previous: u64,
}

/// What comes to a listener.
#[derive(Debug)]
pub(super) enum Coming {
    Message(Live),
    Fence(u64),
}

impl From<Coming> for Heard {
    fn from(coming: Coming) -> Self {
        match coming {
            Coming::Message(Live { stored, previous }) => {
                let previous = Previous::of(previous);
                Self::Message(HeardMessage { stored, previous })
            }
            Coming::Fence(place) => Self::Fence(place),
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Its server is killed, or cannot be reached.
    Cut,
    /// Nothing comes any more, and the node finds that later.
    Silent,
}

/// What is on its way to a listener.
#[derive(Debug, Default)]
pub(super) struct Wire {
    /// By the time at which it comes, and a serial.
    coming: BTreeMap<(Instant, u64), Coming>,
    serial: u64,
    /// When the listener hears of the end, and which one it is.
    end: Option<(Instant, End)>,
    waker: Option<Waker>,
}

impl Wire {
    pub(super) fn send(&mut self, at: Instant, what: Coming) {
        if self.end.is_none() {
            self.serial += 1;
            self.coming.insert((at, self.serial), what);
            self.wake();
        }
    }

    /// What has not come by now never will.
    pub(super) fn end(&mut self, end: End) {
        let now = Instant::now();
        let at = match end {
            End::Cut => now,
            End::Silent => now + SILENCE_MAX,
        };
        self.coming.retain(|(comes_at, _), _| *comes_at <= now);
        if self.end.is_none_or(|(before, _)| at < before) {
            self.end = Some((at, end));
        }
        self.wake();
    }

    /// Takes some of the messages that have not come yet.
    pub(super) fn take_unsent(&mut self, prng: &mut Prng) -> Vec<Live> {
        let after_now = (Instant::now(), u64::MAX);
        let later = self.coming.range(after_now..);
        let messages = later.filter(|(_, what)| matches!(what, Coming::Message(_)));
        let keys: Vec<_> = messages.map(|(key, _)| *key).collect();
        let mut taken = Vec::new();
        for key in keys {
            if prng.one_in(2)
                && let Some(Coming::Message(live)) = self.coming.remove(&key)
            {
                taken.push(live);
            }
        }
        taken
    }

    /// What has come by now.
    pub(super) fn take(&mut self, now: Instant) -> Option<Result<Heard, FeedError>> {
        if let Some(first) = self.coming.first_entry()
            && first.key().0 <= now
        {
            return Some(Ok(first.remove().into()));
        }
        let (_, end) = self.end.filter(|(at, _)| *at <= now)?;
        Some(Err(match end {
            End::Cut => FeedError::Cut,
            End::Silent => FeedError::Silent(SILENCE_MAX.as_secs()),
        }))
    }

    /// When something comes next, as far as that is known. Who asks is woken if something is sent that comes earlier.
    pub(super) fn next_at(&mut self, waker: &Waker) -> Option<Instant> {
        self.waker = Some(waker.clone());
        let first = self.coming.first_key_value().map(|((at, _), _)| *at);
        let end = self.end.map(|(at, _)| at);
        first.into_iter().chain(end).min()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
