//! What homes are told of their channels.

use super::{ChannelEvent, Interest, Task};
use myriad_hub::LogEvent;
use std::sync::Arc;

impl<M> Interest<M> {
    pub(super) fn begin(&mut self, name: &Arc<str>) {
        if let Some(epoch) = self.epoch {
            self.tell(name, 0, LogEvent::Began(epoch));
        }
    }

    /// A channel's home has all that the log has of it. What has an offset up to `floor` may be missing.
    pub(super) fn catch_up(&mut self, name: &Arc<str>, floor: u64) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        channel.is_new = false;
        let offset = channel.read_to.max(floor);
        channel.read_to = offset;
        self.confirming.remove(name);
        self.tell(name, offset, LogEvent::CaughtUp { floor });
        self.tell(name, offset, LogEvent::Whole);
    }

    pub(super) fn tell_message(&mut self, name: &Arc<str>, sequence: u64, message: M) {
        let Some(channel) = self.channels.get_mut(name) else {
            return;
        };
        if sequence <= channel.last {
            return;
        }
        channel.last = sequence;
        channel.read_to = sequence.max(channel.read_to);
        channel.is_empty = false;
        self.push_told(name, sequence, ChannelEvent::Message(message));
    }

    pub(super) fn tell(&mut self, name: &Arc<str>, offset: u64, event: LogEvent) {
        self.push_told(name, offset, ChannelEvent::Log(event));
    }

    fn push_told(&mut self, name: &Arc<str>, offset: u64, event: ChannelEvent<M>) {
        if let Some(channel) = self.channels.get_mut(name) {
            channel.told = offset.max(channel.told);
        }
        let channel = Arc::clone(name);
        self.tasks.push_back(Task::Tell {
            channel,
            offset,
            event,
        });
    }
}
