//! What nodes say to each other, as headers of NATS.

use crate::nats::header;
use async_nats::Message;

/// Who says it.
pub(super) const NODE: &str = "Myriad-Node";
/// In a hello: whether the node hears all of its logs (`yes` or `no`), and a digest of what all nodes have to agree on.
pub(super) const HEARS: &str = "Myriad-Hears";
pub(super) const COMMON: &str = "Myriad-Common";
/// In a hello: a mark of the keys that verify tokens.
pub(super) const KEYS: &str = "Myriad-Keys";
/// Which ask it is, or is about. The asker counts its asks.
pub(super) const ASK: &str = "Myriad-Ask";
/// What is asked.
pub(super) const WHAT: &str = "Myriad-What";
/// A random number that all nodes that are asked have in common, in hexadecimal digits.
pub(super) const SEED: &str = "Myriad-Seed";
/// Which part of an answer it is, counted from 0.
pub(super) const PART: &str = "Myriad-Part";
/// It is the last part: `whole`, or `failed` without an answer.
pub(super) const END: &str = "Myriad-End";

/// How an answer ends.
pub(super) const WHOLE: &str = "whole";
pub(super) const FAILED: &str = "failed";

/// Reads headers. A message of somebody else has none of ours, or others in them.
pub(super) struct Headers<'m>(pub(super) &'m Message);

impl<'m> Headers<'m> {
    pub(super) fn text(&self, name: &str) -> Option<&'m str> {
        header(self.0.headers.as_ref(), name)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}
