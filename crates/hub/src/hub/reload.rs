//! Other settings for a hub that is running.

use super::Hub;
use crate::Namespaces;
use crate::timers::Timing;
use std::sync::Arc;

impl Hub {
    /// Takes other times and other options of channels from now on. Timers that are armed keep their deadlines. Channels with
    /// subscribers get their policy for slow consumers from [`Hub::reload_channels`].
    pub fn reload(&mut self, timing: Timing, namespaces: Arc<Namespaces>) {
        self.timing = timing;
        self.namespaces = namespaces;
        self.reloaded_to = Some(0);
    }

    /// Whether [`Hub::reload_channels`] has something to do.
    #[must_use]
    pub fn is_reloading(&self) -> bool {
        self.reloaded_to.is_some()
    }

    /// Gives the next `max` channels the policy of their namespace. A channel whose namespace has gone keeps its policy.
    pub fn reload_channels(&mut self, max: u32) {
        let Some(begin) = self.reloaded_to else {
            return;
        };
        let slots_end = self.channels.slots_end();
        let end = begin.saturating_add(max).min(slots_end);
        for index in begin..end {
            if self.channels.key_of(index).is_none() {
                continue;
            }
            let channel = &mut self.channels[index];
            if let Some(options) = self.namespaces.options_of(&channel.name) {
                channel.slow_consumer = options.slow_consumer;
            }
        }
        self.reloaded_to = (end < slots_end).then_some(end);
    }
}
