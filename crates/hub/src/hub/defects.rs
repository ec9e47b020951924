//! Defects of a hub: what is noted of them, and how a channel ends that has one.

use super::Hub;
use crate::channel::{Backlog, Membership};
use crate::defects::{Defect, DefectScope, Plant};
use crate::{Delivery, marks};
use std::collections::VecDeque;
use std::sync::Arc;

impl Hub {
    /// A statement does not hold: what it is about is to be ended when the turn ends.
    ///
    /// # Panics
    /// With debug assertions, but for [`Hub::survive_defects`].
    #[cold]
    #[track_caller]
    pub fn note_defect(&self, scope: DefectScope, statement: &'static str) {
        self.defects.note(scope, statement);
    }

    /// A queue does not agree with what its peer has.
    #[cold]
    #[track_caller]
    pub(super) fn note_broken_queue(&mut self, index: u32, statement: &'static str) {
        self.broken_queues.push(index);
        self.defects.note(DefectScope::Connection(index), statement);
    }

    /// Whether what the peer has of a queue is not known: no frame may follow it.
    #[must_use]
    pub fn has_broken_queue(&self, index: u32) -> bool {
        self.broken_queues.contains(&index)
    }

    /// Whether defects were noted.
    #[must_use]
    pub fn has_defects(&self) -> bool {
        !self.defects.is_empty()
    }

    /// Takes the defects that were noted, and how many more there were.
    pub fn take_defects(&mut self) -> (Vec<Defect>, u64) {
        self.defects.take()
    }

    /// The connections whose queues are broken have ended.
    pub fn forget_broken_queues(&mut self) {
        self.broken_queues.clear();
    }

    /// From now on defects are noted with debug assertions, too.
    pub fn survive_defects(&mut self) {
        self.defects.survive();
    }

    /// Ends a channel with a defect on this shard: what waits in it is not delivered, and every subscription ends, as after a loss.
    /// Then the shard leaves the channel. Who subscribes anew asks the home again. Returns what was not delivered.
    pub fn end_channel(
        &mut self,
        name: &str,
        emptied_channels: &mut Vec<Arc<str>>,
    ) -> VecDeque<Delivery> {
        let Some(&channel) = self.names.get(name) else {
            return VecDeque::new();
        };
        self.delivering.retain(|listed| *listed != channel);
        self.paused.retain(|(_, paused)| *paused != channel);
        let record = &mut self.channels[channel];
        let dropped = std::mem::take(&mut record.deliveries);
        record.backlog = Backlog::default();
        record.cursor = 0;
        record.is_lost = true;
        self.compact_members(channel);
        let record = &mut self.channels[channel];
        if record.has_members() {
            record
                .deliveries
                .push_back(Delivery::Lost(Arc::clone(&record.name)));
            self.delivering.push_back(channel);
        } else {
            emptied_channels.push(self.remove_channel(channel));
        }
        dropped
    }

    /// What is known of a channel here, for the line about its defect.
    #[must_use]
    pub fn describe_channel(&self, name: &str) -> String {
        let Some(&channel) = self.names.get(name) else {
            return "which has no record here".to_owned();
        };
        let record = &self.channels[channel];
        let members = record.members.len() - record.tombstones;
        let (deliveries, offset) = (record.deliveries.len(), record.last_offset);
        let joined = match record.membership {
            Membership::Joined { .. } => "joined",
            Membership::Joining { .. } => "joining",
        };
        format!("{joined} up to {offset}, with {members} members and {deliveries} deliveries")
    }

    /// Makes a statement wrong, so that tests see what becomes of it. Does nothing where marks are not counted.
    pub fn plant(&mut self, plant: &Plant) {
        if !marks::ENABLED {
            return;
        }
        match plant {
            Plant::Connection(index) => {
                self.note_defect(DefectScope::Connection(*index), "nothing is planted");
            }
            Plant::Channel(name) => {
                if let Some(&channel) = self.names.get(&**name) {
                    // The next publication seems to be one that came before.
                    self.channels[channel].last_offset += 1;
                }
            }
            Plant::Home(_) => {}
        }
    }
}
