//! Messages that a server has denied: it said that a channel had nothing up to a place, and was wrong, as its files are of another time.
//!
//! The home was told the first answer, so clients believe that they have everything up to there. Such a message is no news for them, and
//! would have an offset that they have passed. So the home is told of a loss instead. That needs an offset behind all that the home was
//! told, at which the log has arrived: a message that is stored there later must not be part of the loss.

use super::channel::{Channel, Phase};
use super::{Filled, Interest, LastByChannel};
use myriad_hub::LogEvent;
use std::sync::Arc;

impl<M> Interest<M> {
    /// A channel has a message where a server said that it had none. It is told of a loss behind its next fence.
    pub(super) fn deny(&mut self, name: &Arc<str>) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.is_denied = true;
        }
        self.renew(name);
    }

    /// A channel that was denied something has its last message there (0: none). If the log has got further than what was told, its home is
    /// told of a loss.
    pub(super) fn meet_denied(&mut self, name: &Arc<str>, place: u64, answer: &LastByChannel) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        let offset = answer.watermark;
        if offset <= channel.told {
            channel.phase = Phase::New;
            return self.put_off.push(Arc::clone(name));
        }
        channel.is_denied = false;
        channel.phase = Phase::Live;
        channel.is_empty = place == 0;
        channel.last = place;
        channel.read_to = offset;
        self.confirming.remove(name);
        self.tell(name, offset, LogEvent::Lost);
        self.release(name);
    }

    /// The log may have got further.
    pub(super) fn look_at_denied(&mut self) {
        for name in std::mem::take(&mut self.put_off) {
            let channel = self.channels.get(&name);
            if channel.is_some_and(|one| one.is_denied && one.phase == Phase::New) {
                self.renew(&name);
            }
        }
    }
}

/// Whether a server said before that the channel had nothing where this was read.
pub(super) fn has_denied<M>(channel: &Channel<M>, filled: &Filled<M>) -> bool {
    let mut places = filled.messages.iter().map(|(place, _)| *place);
    places.any(|place| place > channel.last && place <= channel.read_to)
}
