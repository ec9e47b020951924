//! One channel that is wanted, and how far it has come.

use super::hearing::Previous;

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for a fence.
    New,
    /// Its last message is asked for.
    Asked,
    /// What it lacks is read.
    Filling,
    /// What comes is told at once.
    Live,
}

/// A message that came for a channel.
#[derive(Debug)]
pub(super) struct Held<M> {
    pub(super) sequence: u64,
    pub(super) previous: Previous,
    pub(super) bytes: usize,
    pub(super) message: M,
}

/// A channel that is wanted.
#[derive(Debug)]
pub(super) struct Channel<M> {
    /// Tells this channel from the same one before it was forgotten.
    pub(super) serial: u64,
    pub(super) phase: Phase,
    /// Its home has not been told that it has caught up.
    pub(super) is_new: bool,
    /// All of its messages up to [`Channel::read_to`] are known to have gone.
    pub(super) is_empty: bool,
    /// More came than could be held back.
    pub(super) is_overfull: bool,
    /// The last message that was told; 0: none.
    pub(super) last: u64,
    /// Everything up to here was told.
    pub(super) read_to: u64,
    /// A server has denied a message that the log has, and the home was told so. It is told of a loss when that has a place.
    pub(super) is_denied: bool,
    /// The last offset that its home was told.
    pub(super) told: u64,
    /// What is stored behind this place is heard: who has not got there cannot say what the channel lacks.
    pub(super) fence: u64,
    /// What came while it was filled.
    pub(super) held: Vec<Held<M>>,
}

impl<M> Channel<M> {
    pub(super) fn new(serial: u64) -> Self {
        Self {
            serial,
            phase: Phase::New,
            is_new: true,
            is_empty: false,
            is_overfull: false,
            last: 0,
            read_to: 0,
            is_denied: false,
            told: 0,
            fence: 0,
            held: Vec::new(),
        }
    }

    /// All messages up to here came in order. If the channel is told what comes at once, it was told all of its own.
    pub(super) fn note_in_order(&mut self, in_order_to: u64) {
        if self.phase == Phase::Live {
            self.read_to = in_order_to.max(self.read_to);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.iter().map(|one| one.bytes).sum()
    }
}
