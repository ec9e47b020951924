//! The home of channels: the one shard of the process that orders a channel's publications.

mod questions;
mod shard_set;

pub use questions::{
    HistoryAnswer, HomeEffect, Kept, PublishId, ReadHistory, Recover, Recovered, Since, Submission,
};
pub use shard_set::ShardSet;

use crate::{Delivery, Epoch, Now, Position, Publication};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

#[derive(Debug)]
struct HomeChannel {
    name: Arc<str>,
    last_offset: u64,
    subscribed: ShardSet,
}

/// The channels at home on one shard: their offsets, and which shards want their publications.
///
/// What happens is told by [`Home::handle_publish`], [`Home::handle_join`] and [`Home::handle_leave`]; what is to be done
/// about it comes from [`Home::poll_effect`], until it has nothing more. A publication's position need not be known when it
/// is submitted: a home whose order is made elsewhere answers later.
///
/// A channel takes memory only while some shard has a subscriber. Offsets keep growing all the same: a channel that
/// comes back starts above the highest offset of every channel that was forgotten.
#[derive(Debug)]
pub struct Home {
    /// Of all channels: their offsets start again together, with the process.
    epoch: Epoch,
    channels: HashMap<Arc<str>, HomeChannel>,
    floor: u64,
    effects: VecDeque<HomeEffect>,
}

impl Home {
    /// A home without channels.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            channels: HashMap::new(),
            floor: 0,
            effects: VecDeque::new(),
        }
    }

    /// A shard has its first subscriber of a channel, and asks for its publications. `serial` comes back in the answer.
    pub fn handle_join(&mut self, channel: Arc<str>, shard: usize, serial: u64) {
        let floor = self.floor;
        let entry = self
            .channels
            .entry(Arc::clone(&channel))
            .or_insert_with(|| HomeChannel {
                name: Arc::clone(&channel),
                last_offset: floor,
                subscribed: ShardSet::default(),
            });
        entry.subscribed.insert(shard);
        let position = Position {
            epoch: self.epoch,
            offset: entry.last_offset,
        };
        self.effects.push_back(HomeEffect::Joined {
            shard,
            channel,
            serial,
            position,
        });
    }

    /// A shard has lost its last subscriber of a channel.
    pub fn handle_leave(&mut self, channel: &str, shard: usize) {
        let Some(entry) = self.channels.get_mut(channel) else {
            return;
        };
        entry.subscribed.remove(shard);
        if entry.subscribed.is_empty() {
            self.floor = self.floor.max(entry.last_offset);
            self.channels.remove(channel);
        }
    }

    /// Data comes to be published. Its publication counts as accepted at `now`.
    pub fn handle_publish(&mut self, submission: Submission, now: Now) {
        let Submission {
            channel,
            content,
            permit,
            asker,
            ..
        } = submission;
        let (position, shards, name) = self.next_position(&channel);
        if let Some(asker) = asker {
            self.effects
                .push_back(HomeEffect::Published { asker, position });
        }
        let content = Arc::new(content);
        let publication =
            Publication::new(name, position, content, now, shards.len(), Some(permit));
        self.effects.push_back(HomeEffect::Deliver {
            delivery: Delivery::Publication(Arc::new(publication)),
            shards,
        });
    }

    /// The channel's next position, the shards that have subscribers, and the channel's shared name.
    fn next_position(&mut self, channel: &str) -> (Position, ShardSet, Arc<str>) {
        let epoch = self.epoch;
        if let Some(entry) = self.channels.get_mut(channel) {
            entry.last_offset += 1;
            let offset = entry.last_offset;
            let name = Arc::clone(&entry.name);
            return (Position { epoch, offset }, entry.subscribed, name);
        }
        self.floor += 1;
        let offset = self.floor;
        let nobody = ShardSet::default();
        (Position { epoch, offset }, nobody, channel.into())
    }

    /// The next thing to do, until there is none.
    pub fn poll_effect(&mut self) -> Option<HomeEffect> {
        self.effects.pop_front()
    }

    /// Channels with a subscriber somewhere.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// Whether no channel has a subscriber.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Home, HomeEffect, PublishId, Submission};
    use crate::{Asker, Content, Delivery, Epoch, Now, Payload, Permit, Pool, Position};

    fn at(offset: u64) -> Position {
        Position {
            epoch: Epoch::new(7),
            offset,
        }
    }

    fn submission(channel: &str, id: Option<PublishId>) -> Submission {
        Submission {
            channel: channel.into(),
            content: Content::new(Payload::Text("".into())),
            permit: Permit::take(&Pool::new(10), 1).expect("ten"),
            asker: id.map(Asker::Control),
            idempotency_key: None,
            delta: false,
            skip_history: false,
        }
    }

    /// Publishes; the position and the shards.
    fn publish(home: &mut Home, channel: &str, id: Option<PublishId>) -> (Position, Vec<usize>) {
        home.handle_publish(submission(channel, id), Now(3));
        if let Some(id) = id {
            let Some(HomeEffect::Published {
                asker: answered,
                position,
            }) = home.poll_effect()
            else {
                panic!("the publisher is answered first")
            };
            assert_eq!(answered, Asker::Control(id));
            assert_eq!(position.epoch, Epoch::new(7));
        }
        let Some(HomeEffect::Deliver {
            delivery: Delivery::Publication(publication),
            shards,
        }) = home.poll_effect()
        else {
            panic!("then the publication is delivered")
        };
        assert!(home.poll_effect().is_none());
        assert_eq!(&**publication.channel(), channel);
        (publication.position(), shards.iter().collect())
    }

    /// Joins; the position.
    fn join(home: &mut Home, channel: &str, shard: usize) -> Position {
        home.handle_join(channel.into(), shard, 5);
        match home.poll_effect() {
            Some(HomeEffect::Joined {
                shard: answered,
                serial: 5,
                position,
                ..
            }) if answered == shard => position,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn offsets_grow_through_absence() {
        let mut home = Home::new(Epoch::new(7));
        assert_eq!(publish(&mut home, "news", None), (at(1), vec![]));
        assert_eq!(join(&mut home, "news", 3), at(1));
        assert_eq!(publish(&mut home, "news", None).0, at(2));
        let id = Some(PublishId(9));
        assert_eq!(publish(&mut home, "news", id), (at(3), vec![3]));
        home.handle_leave("news", 3);
        assert!(home.is_empty());
        assert_eq!(publish(&mut home, "news", None).0, at(4));
        assert_eq!(join(&mut home, "news", 0), at(4));
        assert_eq!(publish(&mut home, "other", None).0, at(5));
        assert_eq!(publish(&mut home, "news", None), (at(5), vec![0]));
    }

    #[test]
    fn effects_come_in_the_order_of_what_caused_them() {
        let mut home = Home::new(Epoch::new(7));
        home.handle_join("x".into(), 1, 1);
        home.handle_publish(submission("x", Some(PublishId(1))), Now(0));
        home.handle_join("x".into(), 2, 2);
        let effects = std::iter::from_fn(|| home.poll_effect());
        let kinds = effects.map(|effect| match effect {
            HomeEffect::Joined { position, .. } => ("joined", position.offset),
            HomeEffect::Published { position, .. } => ("published", position.offset),
            HomeEffect::Deliver {
                delivery: Delivery::Publication(publication),
                ..
            } => ("deliver", publication.offset()),
            other => panic!("{other:?}"),
        });
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            [
                ("joined", 0),
                ("published", 1),
                ("deliver", 1),
                ("joined", 1)
            ]
        );
    }
}
