//! Other options for channels that have a record already.
//!
//! Publications, offsets and subscribers stay. A channel that gets a history keeps its epoch, and its history begins with the
//! next publication: offsets grow by one while a record lives, so they have no gap. A channel that loses its history keeps
//! its epoch until nobody is subscribed.

use super::{Home, StreamEndKind};
use crate::marks::hit;
use crate::{ChannelOptions, Namespaces, Now};
use std::sync::Arc;

impl Home {
    /// Takes the options of channels from other namespaces from now on. Records that exist get theirs from
    /// [`Home::reload_records`]. A channel whose namespace has gone keeps the options that it had.
    pub fn handle_namespaces(&mut self, namespaces: Arc<Namespaces>) {
        self.settings.namespaces = namespaces;
        self.reloaded_to = Some(0);
    }

    /// Whether [`Home::reload_records`] has something to do.
    #[must_use]
    pub fn is_reloading(&self) -> bool {
        self.reloaded_to.is_some()
    }

    /// Gives the next `max` records their new options: a home with a million channels must not stop for that.
    pub fn reload_records(&mut self, now: Now, max: u32) {
        let Some(begin) = self.reloaded_to else {
            return;
        };
        let slots_end = self.channels.slots_end();
        let end = begin.saturating_add(max).min(slots_end);
        for index in begin..end {
            if self.channels.key_of(index).is_some() {
                self.adopt_options(index, now);
            }
        }
        self.reloaded_to = (end < slots_end).then_some(end);
        self.keep_budget();
    }

    fn adopt_options(&mut self, index: u32, now: Now) {
        let record = &self.channels[index];
        let Some(options) = self.settings.namespaces.options_of(&record.name) else {
            return;
        };
        if *options == record.options {
            return;
        }
        let options = Arc::clone(options);
        let options = if record.subscribed.is_empty() {
            options
        } else {
            counting_as_before(options, &record.options)
        };
        // What waits was to leave by the old options.
        self.flush_batch(index);
        let record = &mut self.channels[index];
        match (&mut record.history, options.has_history()) {
            (Some(history), true) => {
                let before = history.holding();
                history.adopt(&options, now);
                record.options = options;
                self.budget.note(before, history.holding());
                self.adopt_durability(index);
                self.arm(index);
                self.note_idleness(index);
            }
            (None, false) => record.options = options,
            (Some(_), false) if record.subscribed.is_empty() => {
                hit!(ReloadForgets);
                self.forget(index);
            }
            (Some(_), false) | (None, true) => self.renew(index, options, now),
        }
    }

    /// Nobody is subscribed any more, so nothing keeps an option from changing.
    pub(super) fn adopt_all_options(&mut self, index: u32) {
        let record = &mut self.channels[index];
        if self.reloaded_to.is_none()
            && let Some(options) = self.settings.namespaces.options_of(&record.name)
        {
            record.options = Arc::clone(options);
        }
    }

    /// Replaces a record by one with a history, or without. Its key is another one: queues of the budget name the old one.
    fn renew(&mut self, index: u32, options: Arc<ChannelOptions>, now: Now) {
        let has_subscribers = !self.channels[index].subscribed.is_empty();
        let had_history = self.channels[index].history.is_some();
        hit!(ReloadTakesHistory if had_history && has_subscribers);
        hit!(ReloadBringsHistory if !had_history && has_subscribers);
        if had_history {
            self.tell_stream_end(index, StreamEndKind::Deleted, now);
        }
        self.wheel.disarm(&mut self.channels, index);
        let record = self.channels.remove(index);
        self.note_forgotten(&record);
        if had_history {
            self.note_durable_end(&record);
        }
        let record = record.with_options(options, now);
        let name = Arc::clone(&record.name);
        let has_history = record.history.is_some();
        let index = self.channels.insert(record).index;
        self.names.insert(name, index);
        if has_history {
            self.note_opened(index);
        }
        self.arm(index);
    }
}

/// Whose joins are announced changes only while nobody is subscribed: nobody has counted the clients that users have by now.
fn counting_as_before(
    options: Arc<ChannelOptions>,
    before: &ChannelOptions,
) -> Arc<ChannelOptions> {
    if options.join_leave_by == before.join_leave_by {
        return options;
    }
    Arc::new(ChannelOptions {
        join_leave_by: before.join_leave_by,
        ..ChannelOptions::clone(&options)
    })
}
