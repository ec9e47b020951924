//! One shard's side of a channel: its members here, and the publications on their way to them.

use crate::hub::Pace;
use crate::marks::hit;
use crate::streams::StreamSide;
use crate::{Batch, Delivery, Epoch, SlowConsumer};
use myriad_wheel::{Key, NONE, Tick};
use std::collections::VecDeque;
use std::sync::Arc;

/// A connection's subscription to a channel.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: u32,
    /// Index in the channel's list of members.
    pub(crate) member_index: u32,
    /// Next subscription of the same connection, or `NONE`.
    pub(crate) next: u32,
    /// Last offset it was given in the low 56 bits, its flags in the high eight; in halves so that the record stays at 20
    /// bytes.
    last_and_flags: [u32; 2],
}

const _: () = assert!(size_of::<Subscription>() == 20);

/// What a subscription of a client with a session is, and may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionFlags(u8);

impl SubscriptionFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The client has not been answered yet: deliveries skip it.
    pub const WAITING: Self = Self(1);
    /// It has a side record: [`SubscriptionDetails`](crate::SubscriptionDetails).
    pub(crate) const DETAILS: Self = Self(2);
    /// The client gets joins and leaves.
    pub const JOIN_LEAVE: Self = Self(4);
    /// The channel's home was told of the client's join, and is to be told of its leave.
    pub const ANNOUNCED: Self = Self(8);
    /// The server subscribed it.
    pub const SERVER_SIDE: Self = Self(16);
    /// The client was told positions, and recovers by them.
    pub const POSITIONED: Self = Self(32);
    /// The client takes deltas: data is a string for JSON clients, whole or not.
    pub const DELTA: Self = Self(64);
    /// The client has the publication at the subscription's last offset, so that the next one may be a delta to it.
    pub const HAS_BASE: Self = Self(128);

    /// Whether all of these flags are set.
    #[must_use]
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of these flags is set.
    #[must_use]
    pub fn has_any(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// These flags and others.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These flags without others.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl Subscription {
    const OFFSET_BITS: u32 = 56;

    pub(crate) fn new(channel: u32, member_index: u32, next: u32) -> Self {
        Self {
            channel,
            member_index,
            next,
            last_and_flags: [0; 2],
        }
    }

    fn packed(&self) -> u64 {
        u64::from(self.last_and_flags[0]) | u64::from(self.last_and_flags[1]) << 32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of a u64")]
    fn set_packed(&mut self, packed: u64) {
        self.last_and_flags = [packed as u32, (packed >> 32) as u32];
    }

    pub(crate) fn last(&self) -> u64 {
        self.packed() & ((1 << Self::OFFSET_BITS) - 1)
    }

    pub(crate) fn set_last(&mut self, offset: u64) {
        // 2^56 publications take a channel two thousand years at a million a second: no home gives out more.
        let offset = offset.min((1 << Self::OFFSET_BITS) - 1);
        self.set_packed(offset | u64::from(self.flags().0) << Self::OFFSET_BITS);
    }

    pub(crate) fn flags(&self) -> SubscriptionFlags {
        SubscriptionFlags((self.packed() >> Self::OFFSET_BITS) as u8)
    }

    pub(crate) fn set_flags(&mut self, flags: SubscriptionFlags) {
        self.set_packed(self.last() | u64::from(flags.0) << Self::OFFSET_BITS);
    }
}

impl Default for Subscription {
    fn default() -> Self {
        Self::new(NONE, NONE, NONE)
    }
}

/// An entry of the list of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) connection: u32,
    pub(crate) subscription: u32,
}

impl Member {
    /// The entry of a member that left during a delivery: it is skipped, and removed when the delivery ends.
    pub(crate) const TOMBSTONE: Self = Self {
        connection: NONE,
        subscription: NONE,
    };
}

/// Whether the channel's home knows that this shard wants its publications.
#[derive(Debug)]
pub(crate) enum Membership {
    /// The home was asked; all members wait for the answer with this serial. Answers with earlier serials are ignored:
    /// the home sent them before it got our last leave.
    Joining { serial: u64 },
    /// The home has confirmed: every publication after the `last_offset` of that moment arrives here, in order.
    Joined { epoch: Epoch },
}

/// Publications that are made one batch.
const MERGED_MAX: usize = 256;
/// Publications that may wait in a channel before its clients are to publish later. Of bytes, as many as the budget of a
/// connection.
const WAITING_MAX: usize = 1000;
/// At this multiple of the limit for clients, the channel pauses for nobody. Each shard refuses only its own clients, so those of
/// three or more shards may pass it.
const END_PAUSES_FACTOR: usize = 2;
/// The same, as quarters of what all publications in flight may hold. Clients do not come this far.
const END_PAUSES_QUARTERS: u64 = 3;

/// What waits to be delivered to a channel's members on this shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    publications: usize,
    /// About as many bytes as it adds to the queue of each member.
    bytes: usize,
}

impl Backlog {
    /// Joins and leaves have a bound of their own. A stream ends once.
    fn of(delivery: &Delivery) -> Self {
        match delivery {
            Delivery::Presence(_) | Delivery::StreamEnd(_) | Delivery::Lost(_) => Self::default(),
            Delivery::Publication(_) | Delivery::Batch(_) => Self {
                publications: delivery.publications().len(),
                bytes: delivery.bytes(),
            },
        }
    }

    pub(crate) fn add(&mut self, delivery: &Delivery) {
        let added = Self::of(delivery);
        self.publications += added.publications;
        self.bytes += added.bytes;
    }

    /// Returns the delivery's bytes.
    pub(crate) fn remove(&mut self, delivery: &Delivery) -> usize {
        let removed = Self::of(delivery);
        self.publications -= removed.publications;
        self.bytes -= removed.bytes;
        removed.bytes
    }

    /// Adds one publication.
    pub(crate) fn add_one(&mut self, bytes: usize) {
        self.publications += 1;
        self.bytes += bytes;
    }

    /// Whether it is at least this many times the limit for clients.
    fn reaches(&self, times: usize, budget: u32) -> bool {
        self.publications >= times * WAITING_MAX || self.bytes >= times * budget as usize
    }
}

/// A channel with subscribers on this shard.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) name: Arc<str>,
    pub(crate) slow_consumer: SlowConsumer,
    pub(crate) membership: Membership,
    pub(crate) members: Vec<Member>,
    pub(crate) tombstones: usize,
    /// Subscriptions that get joins and leaves, in the order in which they asked. An entry outlives its subscription until the
    /// list is compacted.
    pub(crate) observers: Vec<Key>,
    /// Entries of `observers` whose subscription has ended.
    pub(crate) ended_observers: usize,
    /// Offset of the last publication that came from the home.
    pub(crate) last_offset: u64,
    /// What is to be delivered, the first of them under way when `cursor` is not zero.
    pub(crate) deliveries: VecDeque<Delivery>,
    pub(crate) backlog: Backlog,
    /// What was taken from clients of this shard in this turn: it may not have come back yet.
    pub(crate) taken: Backlog,
    /// Next member for the first delivery.
    pub(crate) cursor: usize,
    /// Names the first delivery to filters.
    pub(crate) delivery: u64,
    pub(crate) pace: Pace,
    /// What is known of it as a stream, once somebody has read it as one.
    pub(crate) stream: Option<Box<StreamSide>>,
    /// Without members, it is kept until then.
    pub(crate) lingers_until: Option<Tick>,
    /// It has lost publications. By this, its home has let this shard go: nothing more comes until the shard joins again, so the
    /// record goes with its last member.
    pub(crate) is_lost: bool,
}

impl Default for Channel {
    fn default() -> Self {
        Self::new("".into(), SlowConsumer::default(), 0)
    }
}

impl Channel {
    pub(crate) fn new(name: Arc<str>, slow_consumer: SlowConsumer, serial: u64) -> Self {
        Self {
            name,
            slow_consumer,
            membership: Membership::Joining { serial },
            members: Vec::new(),
            tombstones: 0,
            observers: Vec::new(),
            ended_observers: 0,
            last_offset: 0,
            deliveries: VecDeque::new(),
            backlog: Backlog::default(),
            taken: Backlog::default(),
            cursor: 0,
            delivery: 0,
            pace: Pace::default(),
            stream: None,
            lingers_until: None,
            is_lost: false,
        }
    }

    /// Whether clients are to publish later. `budget` is that of a connection's queue, in bytes.
    pub(crate) fn refuses_clients(&self, budget: u32) -> bool {
        self.backlog.reaches(1, budget) || self.taken.reaches(1, budget)
    }

    /// Whether so much waits that the channel pauses for nobody.
    pub(crate) fn ends_pauses(&self, budget: u32) -> bool {
        // Joins and leaves may be behind it.
        let mut newest_first = self.deliveries.iter().rev();
        let newest = newest_first.find_map(|delivery| delivery.publications().last());
        self.backlog.reaches(END_PAUSES_FACTOR, budget)
            || newest.is_some_and(|newest| newest.held_quarters() >= END_PAUSES_QUARTERS)
    }

    /// Makes one batch of the deliveries that wait, as far as they are publications and the batch stays under `bytes_max`: a
    /// send costs as much for one publication as for fifty. The first of them must not be under way.
    pub(crate) fn merge_deliveries(&mut self, bytes_max: usize) {
        let mut bytes = 0;
        let mut publications = 0;
        let count = self
            .deliveries
            .iter()
            .take_while(|delivery| {
                bytes += delivery.bytes();
                publications += delivery.publications().len();
                !delivery.publications().is_empty()
                    && bytes <= bytes_max
                    && publications <= MERGED_MAX
            })
            .count();
        if count < 2 {
            return;
        }
        hit!(DeliveriesMerge);
        let merged: Vec<Delivery> = self.deliveries.drain(..count).collect();
        let publications = merged.iter().flat_map(|one| one.publications()).cloned();
        let batch = Delivery::Batch(Arc::new(Batch::new(publications.collect())));
        for delivery in &merged {
            self.backlog.remove(delivery);
        }
        self.backlog.add(&batch);
        self.deliveries.push_front(batch);
    }

    /// The channel as a stream, with its epoch. None if its home has not confirmed it, or nobody has read it as one.
    pub(crate) fn as_stream(&mut self) -> Option<(Epoch, &mut StreamSide)> {
        let Membership::Joined { epoch } = self.membership else {
            return None;
        };
        Some((epoch, self.stream.as_deref_mut()?))
    }

    pub(crate) fn has_members(&self) -> bool {
        self.members.len() > self.tombstones
    }

    /// Removes the member at `index`. Returns the subscription that moved to `index`, if one did.
    ///
    /// During a delivery a tombstone stays at `index` instead: the last member, swapped in, would land before the
    /// delivery's cursor and miss the publication.
    pub(crate) fn remove_member(&mut self, index: u32) -> Option<u32> {
        let index = index as usize;
        if !self.deliveries.is_empty() {
            self.members[index] = Member::TOMBSTONE;
            self.tombstones += 1;
            return None;
        }
        self.members.swap_remove(index);
        self.members.get(index).map(|moved| moved.subscription)
    }
}
