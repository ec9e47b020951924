//! The hub itself. Its methods are in one file for each of what it keeps: connections, subscriptions, deliveries and
//! outbound queues; those of time are in `timers`.

mod connections;
mod defects;
mod deliveries;
mod held;
mod observers;
mod outbound;
mod pace;
mod progress;
mod readers;
mod reload;
mod sessions;
mod slow_consumers;
mod subscriptions;
mod unconnected;

pub(crate) use pace::Pace;

pub use deliveries::{DeliverySlice, Target};
pub use readers::{Bearer, EndedReader, KnownStream, Reader};
pub use slow_consumers::{Overflown, SlowConsumerStats};
pub use subscriptions::{Joined, Subscribed, SubscriptionId};

use crate::channel::{Channel, Subscription};
use crate::compression::Compressor;
use crate::connection::Connection;
use crate::defects::Defects;
use crate::details::SubscriptionDetails;
use crate::filters::Filters;
use crate::limits::Lease;
use crate::outbound::Outbound;
use crate::session::Session;
use crate::streams::ReaderSettings;
use crate::timers::{InputBacklog, Timing};
use crate::users::UserIndex;
use crate::{Namespaces, Now};
use myriad_wheel::{Slab, Tick, Wheel};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// One core's connections and channels.
#[derive(Debug)]
pub struct Hub {
    pub(crate) connections: Slab<Connection>,
    pub(crate) wheel: Wheel,
    pub(crate) input_backlog: InputBacklog,
    pub(crate) timing: Timing,
    pub(crate) fired: Vec<u32>,
    pub(crate) subscriptions: Slab<Subscription>,
    /// What only some subscriptions have, by their index.
    pub(crate) details: HashMap<u32, SubscriptionDetails>,
    pub(crate) sessions: Slab<Session>,
    pub(crate) users: UserIndex,
    pub(crate) outbounds: Slab<Outbound>,
    /// What clients that connect are told later, by their connections.
    held: HashMap<u32, held::Held>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) names: HashMap<Arc<str>, u32>,
    /// Channels with a delivery under way, in turn.
    pub(crate) delivering: VecDeque<u32>,
    /// Channels with a delivery that begins at this tick.
    pub(crate) paused: BTreeSet<(Tick, u32)>,
    /// Channels of which something was taken from clients of this shard in this turn.
    taken: Vec<u32>,
    /// The time of this turn.
    turn_tick: Tick,
    /// Connections with something to send that does not wait for their socket, each once.
    flush: Vec<u32>,
    deliveries: u64,
    compressor: Compressor,
    saved_bytes: u64,
    buffered: Lease,
    pub(crate) buffered_bytes: u64,
    unconnected: unconnected::Unconnected,
    pub(crate) outbound_bytes_max: u32,
    /// Where in their interval the first connections ping, as the numerator of 2^32.
    pub(crate) spread_from: u32,
    join_serial: u64,
    dropped_announcements: u64,
    slow_consumers: SlowConsumerStats,
    /// Publications that subscribers could not read, for one subscriber each.
    unreadable: u64,
    pub(crate) namespaces: Arc<Namespaces>,
    /// The next channel that gets the policy of new namespaces; none once all have it.
    reloaded_to: Option<u32>,
    is_draining: bool,
    /// The number of its shard.
    pub(crate) shard: u16,
    pub(crate) readers: readers::Readers,
    pub(crate) filters: Filters,
    pub(crate) defects: Defects,
    /// Connections whose queue has a defect: what the peer has of it is not known.
    broken_queues: Vec<u32>,
    /// What stands for a session that should be there, where it is read ...
    no_session: Session,
    /// ... and where it is changed, until the connection ends.
    spare_session: Session,
}

impl Hub {
    /// An empty hub. `buffered` bounds the bytes buffered for its connections; `spread_from` is where in their interval
    /// the first of them ping, as the numerator of 2^32.
    #[must_use]
    pub fn new(
        timing: Timing,
        outbound_bytes_max: u32,
        buffered: Lease,
        spread_from: u32,
        now: Now,
    ) -> Self {
        Self {
            connections: Slab::new(),
            wheel: Wheel::new(now.tick()),
            input_backlog: InputBacklog::new(now),
            timing,
            fired: Vec::new(),
            subscriptions: Slab::new(),
            details: HashMap::new(),
            sessions: Slab::new(),
            users: UserIndex::new(0),
            outbounds: Slab::new(),
            held: HashMap::new(),
            channels: Slab::new(),
            names: HashMap::new(),
            delivering: VecDeque::new(),
            paused: BTreeSet::new(),
            taken: Vec::new(),
            turn_tick: now.tick(),
            flush: Vec::new(),
            deliveries: 0,
            compressor: Compressor::default(),
            saved_bytes: 0,
            unconnected: unconnected::Unconnected::new(buffered.all()),
            buffered,
            buffered_bytes: 0,
            outbound_bytes_max,
            spread_from,
            join_serial: 0,
            dropped_announcements: 0,
            slow_consumers: SlowConsumerStats::default(),
            unreadable: 0,
            namespaces: Arc::default(),
            reloaded_to: None,
            is_draining: false,
            shard: 0,
            readers: readers::Readers::default(),
            filters: Filters::default(),
            defects: Defects::default(),
            broken_queues: Vec::new(),
            no_session: Session::default(),
            spare_session: Session::default(),
        }
    }

    /// Says which shard's hub it is: clients are named by it.
    #[must_use]
    pub fn of_shard(self, shard: u16) -> Self {
        Self { shard, ..self }
    }

    /// Says by which secret users are found: see [`ClientIds::user_seed`](crate::ClientIds::user_seed).
    #[must_use]
    pub fn with_user_seed(mut self, seed: u64) -> Self {
        self.users = UserIndex::new(seed);
        self
    }

    /// Says how long readers of streams are held, and how they are answered.
    #[must_use]
    pub fn with_readers(mut self, settings: ReaderSettings) -> Self {
        self.readers.settings = settings;
        self
    }

    /// Says what the options of channels are.
    #[must_use]
    pub fn with_namespaces(self, namespaces: Arc<Namespaces>) -> Self {
        Self { namespaces, ..self }
    }

    /// Subscriptions of all connections.
    #[must_use]
    pub fn subscription_count(&self) -> usize {
        self.subscriptions.len()
    }

    /// Channels with members or deliveries here.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.len()
    }

    /// Backpressured connections: those with an outbound queue.
    #[must_use]
    pub fn outbound_count(&self) -> usize {
        self.outbounds.len()
    }

    /// Armed timers.
    #[must_use]
    pub fn timer_count(&self) -> usize {
        self.wheel.len()
    }

    /// Bytes buffered for this shard's connections.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }
}

#[cfg(test)]
mod tests;
