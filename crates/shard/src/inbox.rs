//! Messages from other shards, from the control plane, and from ourselves.

use crate::drain::Drain;
use crate::mesh::{Message, Reply};
use crate::reach::ShardPlace;
use crate::shard::Shard;
use myriad_hub::{Joined, Now, Payload, Permit, Phase, Position, Publication};
use myriad_reactor::Reactor;
use std::sync::Arc;

impl<R: Reactor> Shard<R> {
    /// Handles all messages that have arrived, and those that handling them sends to ourselves.
    pub(crate) fn handle_messages(&mut self, now: Now) {
        let mut received = std::mem::take(&mut self.received);
        self.mesh.receive(self.index, &mut received);
        for message in received.drain(..) {
            self.handle_message(message, now);
        }
        self.received = received;
        while let Some(message) = self.loopback.pop_front() {
            self.handle_message(message, now);
        }
    }

    /// Sends to another shard through its inbox, and to ourselves through the loopback. Both keep the order of messages.
    pub(crate) fn send_message(&mut self, shard: usize, message: Message) {
        if shard == self.index {
            self.loopback.push_back(message);
        } else {
            self.mesh.send(shard, message);
        }
    }

    fn handle_message(&mut self, message: Message, now: Now) {
        match message {
            Message::Publish {
                channel,
                payload,
                permit,
                reply,
            } => self.publish(&channel, payload, permit, reply, now),
            Message::Join {
                channel,
                shard,
                serial,
            } => {
                let position = self.home.join(&channel, shard);
                self.send_message(
                    shard,
                    Message::Joined {
                        channel,
                        serial,
                        position,
                    },
                );
            }
            Message::Joined {
                channel,
                serial,
                position,
            } => self.handle_joined(&channel, serial, position, now),
            Message::Leave { channel, shard } => self.home.leave(&channel, shard),
            Message::Deliver(publication) => {
                if !self.hub.deliver(Arc::clone(&publication)) {
                    self.note_submitted(&publication);
                }
            }
            Message::Drain { over } => {
                if self.drain.is_none() {
                    let is_empty = self.hub.connection_count() == 0;
                    self.reach.note_if(is_empty, ShardPlace::DrainEmpty);
                    self.drain = Some(Drain::new(over, now, &self.hub));
                } else {
                    self.reach.note(ShardPlace::DrainAgain);
                }
            }
        }
    }

    /// As the channel's home: gives the publication its offset, then sends it to every shard with a subscriber.
    fn publish(&mut self, channel: &str, payload: Payload, permit: Permit, reply: Reply, now: Now) {
        let (position, shards, name) = self.home.publish(channel);
        self.metrics().publications.add(1);
        reply(position);
        let publication = Arc::new(Publication::new(
            name,
            position,
            payload,
            now,
            shards.len(),
            Some(permit),
        ));
        self.reach.note(match shards.len() {
            0 => ShardPlace::PublishToNobody,
            1 => ShardPlace::PublishToOne,
            _ => ShardPlace::PublishToMany,
        });
        if shards.is_empty() {
            self.completed.push(now);
        }
        for shard in shards.iter() {
            self.send_message(shard, Message::Deliver(Arc::clone(&publication)));
        }
    }

    fn handle_joined(&mut self, channel: &str, serial: u64, position: Position, now: Now) {
        let mut joined = Vec::new();
        self.hub
            .handle_joined(channel, serial, position, &mut joined);
        for Joined { key, .. } in joined {
            // A raw connection is answered once all of its channels have joined.
            let connection = self.hub.connection(key.index);
            if connection.phase == Phase::Joining && connection.joins_pending() == 0 {
                self.admit_joined(key, now);
            }
        }
    }

    /// Sends a leave to the home of each channel that lost its last member here. Called before any later join of the same
    /// channel is sent, so that the home gets the two in order.
    pub(crate) fn send_leaves(&mut self) {
        for channel in std::mem::take(&mut self.emptied_channels) {
            let (shard, home) = (self.index, self.mesh.home_of(&channel));
            self.reach.note_if(home == shard, ShardPlace::LeaveSelf);
            self.reach.note_if(home != shard, ShardPlace::LeaveOther);
            self.send_message(home, Message::Leave { channel, shard });
        }
    }

    /// This shard has submitted a publication to all its members.
    pub(crate) fn note_submitted(&mut self, publication: &Publication) {
        if publication.note_shard_done() {
            self.completed.push(publication.published_at());
        }
    }
}
