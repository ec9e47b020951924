//! Defects of a home: what is noted of them, and how a channel ends that has one.

use super::{Home, HomeEffect};
use crate::defects::{Defect, Plant};
use crate::{Delivery, Now, marks};
use std::sync::Arc;

impl Home {
    /// Whether defects were noted.
    #[must_use]
    pub fn has_defects(&self) -> bool {
        !self.defects.is_empty()
    }

    /// Takes the defects that were noted, and how many more there were.
    pub fn take_defects(&mut self) -> (Vec<Defect>, u64) {
        self.defects.take()
    }

    /// From now on defects are noted with debug assertions, too.
    pub fn survive_defects(&mut self) {
        self.defects.survive();
    }

    /// Forgets a channel with a defect. All its subscribers are told that they have lost something, and subscribe anew. A channel
    /// with a history that this home orders comes back with another epoch: so nobody takes what comes then for what was. One that
    /// a log orders begins again behind what was read of the log.
    pub fn end_channel(&mut self, channel: &str, now: Now) {
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        // What waits to leave together has been acknowledged. It is a part of what subscribers have lost.
        self.channels[index].batch = None;
        if let Some(log) = self.channels[index].log() {
            return self.lose_channel(channel, log, now);
        }
        let shards = std::mem::take(&mut self.channels[index].subscribed);
        if !shards.is_empty() {
            self.tell_of_nobody(index);
            self.note_empty(index, now);
            let delivery = Delivery::Lost(Arc::clone(&self.channels[index].name));
            self.effects
                .push_back(HomeEffect::Deliver { delivery, shards });
        }
        self.forget(index);
    }

    /// What is known of a channel, for the line about its defect.
    #[must_use]
    pub fn describe_channel(&self, channel: &str) -> String {
        let Some(&index) = self.names.get(channel) else {
            return "which has no record at its home".to_owned();
        };
        let record = &self.channels[index];
        let (offset, shards) = (record.last_offset, record.subscribed.len());
        let history = record.history.as_ref();
        let kept = history.map_or(0, |history| history.holding().publications);
        format!("at home up to {offset}, with {kept} publications kept and {shards} shards")
    }

    /// Makes a statement wrong, so that tests see what becomes of it. Does nothing where marks are not counted.
    pub fn plant(&mut self, plant: &Plant) {
        if !marks::ENABLED {
            return;
        }
        if let Plant::Home(name) = plant
            && let Some(&index) = self.names.get(&**name)
        {
            let record = &mut self.channels[index];
            record.last_offset = record.last_offset.saturating_sub(1);
        }
    }
}
