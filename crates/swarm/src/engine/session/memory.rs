//! What the last frame of a server said, for the terminals that get the same frame.

use super::place::Epoch;
use crate::echo_stamp::PublishStamp;
use crate::engine::flows::ledger::MessageKey;
use crate::measure::push::PushKey;

/// Frames up to this size are remembered whole. Comparing one is cheaper than reading it.
const REMEMBERED_BYTES_MAX: usize = 16 * 1024;

/// A publication, as any terminal receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// The index of its channel; none for a channel that no terminal of the run subscribes to.
    pub(super) channel: Option<u32>,
    /// The epoch that it names, if it does.
    pub(super) epoch: Epoch,
    /// Zero in a channel without history.
    pub(super) offset: u64,
    pub(super) key: PushKey,
    /// Its number and the channel that it was to go to, if a terminal of the run published it.
    pub(super) published: Option<PublishStamp>,
    /// Which message of a flow it is, if it is one.
    pub(super) flow: Option<MessageKey>,
    pub(super) payload_bytes: usize,
}

/// The frame seen last, and its publications.
#[derive(Debug, Default)]
pub(super) struct Memory {
    frame: Vec<u8>,
    heard: Vec<Heard>,
}

impl Memory {
    /// Whether a frame of this size is worth remembering.
    pub(super) fn fits(frame: &[u8]) -> bool {
        frame.len() <= REMEMBERED_BYTES_MAX
    }

    /// Takes the publications of these bytes, if they are exactly the frame seen last. Give them back with
    /// [`Self::give_back`].
    pub(super) fn recall(&mut self, bytes: &[u8]) -> Option<Vec<Heard>> {
        (bytes == self.frame && !bytes.is_empty()).then(|| std::mem::take(&mut self.heard))
    }

    pub(super) fn give_back(&mut self, heard: Vec<Heard>) {
        self.heard = heard;
    }

    /// Forgets the last frame, and returns its list to be filled anew.
    pub(super) fn forget(&mut self) -> Vec<Heard> {
        self.frame.clear();
        let mut heard = std::mem::take(&mut self.heard);
        heard.clear();
        heard
    }

    /// Remembers a frame that holds these publications and nothing else that concerns a terminal.
    pub(super) fn remember(&mut self, frame: &[u8], heard: Vec<Heard>) {
        self.frame.extend_from_slice(frame);
        self.heard = heard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_frame_is_recalled_with_its_publications() {
        let heard = Heard {
            channel: Some(1),
            epoch: Epoch::NONE,
            offset: 7,
            key: PushKey::Foreign(9),
            published: None,
            flow: None,
            payload_bytes: 3,
        };
        let mut memory = Memory::default();
        assert_eq!(memory.recall(b""), None);
        memory.remember(b"frame", vec![heard; 2]);
        assert_eq!(memory.recall(b"fram"), None);
        let recalled = memory.recall(b"frame").expect("the same bytes");
        assert_eq!(recalled, [heard; 2]);
        memory.give_back(recalled);
        assert!(memory.forget().is_empty());
        assert_eq!(memory.recall(b"frame"), None);
    }
}
