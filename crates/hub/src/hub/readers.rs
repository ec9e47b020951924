//! Readers of streams: held requests and streams of events.
//!
//! A reader is a member of its channel like others. A held request that is answered stays one, with a subscription that waits: its
//! client asks again at once, and nothing has to leave and to join for that.
//!
//! | file | what it does |
//! | --- | --- |
//! | `parking.rs` | held requests |
//! | `events.rs` | streams of events |
//! | `answering.rs` | what readers are told |
//! | `keep_alive.rs` | connections between two requests |
//! | `bearers.rs` | who has shown a token |
//! | `lingering.rs` | channels without members |

mod answering;
mod bearers;
mod events;
mod keep_alive;
mod lingering;
mod parking;

pub use bearers::Bearer;
pub use parking::Reader;

use crate::channel::{Membership, SubscriptionFlags};
use crate::connection::{Phase, Transport};
use crate::hub::{Hub, SubscriptionId};
use crate::streams::{ReaderSettings, StreamSide, Variant};
use crate::{Now, Position, StreamEndKind};
use myriad_wheel::Tick;
use myriad_wire::streams::MediaType;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// What a hub remembers of its readers.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    pub(super) settings: ReaderSettings,
    /// Where in the range of times the next poll is, as the numerator of 2^32.
    poll_phase: u32,
    /// Cursors of those that cannot share an answer, by connection.
    own_cursors: HashMap<u32, u64>,
    /// Whom live reads are for that have shown a token, by connection. In their order, so that a walk can be interrupted.
    bearers: BTreeMap<u32, Bearer>,
    /// The same connections by their users.
    bearers_of: BTreeSet<(Arc<str>, u32)>,
    /// Connections whose held request was answered by a delivery.
    answered: Vec<u32>,
    /// Readers whose stream has ended.
    ended: Vec<EndedReader>,
    /// Channels that are kept without members, by the end of their time.
    lingering: VecDeque<(Tick, u32)>,
    parked: u64,
    events: u64,
}

/// What a shard knows of a stream that it gets the publications of.
#[derive(Clone, Copy, Debug)]
pub struct KnownStream {
    /// Every publication after this position is still to be delivered here.
    pub position: Position,
    /// Nothing more will come.
    pub is_closed: bool,
}

/// A reader whose stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedReader {
    /// Index of its connection's record.
    pub connection: u32,
    /// How the stream ended.
    pub kind: StreamEndKind,
    /// It asked so late that it may read another stream of that name, which was created after the end.
    pub is_late: bool,
}

impl Hub {
    /// How readers of streams are answered.
    #[must_use]
    pub fn reader_settings(&self) -> &ReaderSettings {
        &self.readers.settings
    }

    /// Takes other settings for readers from now on. Those who wait keep their deadlines.
    pub fn set_reader_settings(&mut self, settings: ReaderSettings) {
        self.readers.settings = settings;
    }

    /// Requests that are held.
    #[must_use]
    pub fn parked_count(&self) -> u64 {
        self.readers.parked
    }

    /// Streams of events.
    #[must_use]
    pub fn events_count(&self) -> u64 {
        self.readers.events
    }

    /// What is known of a channel as a stream; none if its home has to be asked.
    #[must_use]
    pub fn known_stream(&self, name: &str) -> Option<KnownStream> {
        let record = &self.channels[*self.names.get(name)?];
        let Membership::Joined { epoch } = record.membership else {
            return None;
        };
        let side = record.stream.as_ref().filter(|side| !side.has_gone)?;
        Some(KnownStream {
            position: Position {
                epoch,
                offset: record.last_offset,
            },
            is_closed: side.is_closed,
        })
    }

    /// The home has said what a stream is. `is_open` says that the channel is not for some users only: then shared caches may
    /// keep answers, where everybody may read ([`ReaderSettings::is_public`]).
    pub fn note_stream(
        &mut self,
        subscription: SubscriptionId,
        media_type: &MediaType,
        is_closed: bool,
        is_open: bool,
    ) {
        let channel = self.subscriptions[subscription.0].channel;
        match &mut self.channels[channel].stream {
            Some(side) if *side.media_type == *media_type => {
                side.is_closed = is_closed;
                side.is_open = is_open;
                side.has_gone = false;
            }
            side => {
                *side = Some(Box::new(StreamSide::new(
                    Arc::new(media_type.clone()),
                    is_closed,
                    is_open,
                )))
            }
        }
    }

    /// A request is to be answered when its channel's home has said what there is. It has as long for that as a head to arrive.
    pub fn begin_reading(&mut self, index: u32, now: Now) {
        self.begin_joining(index, now);
    }

    /// Deliveries skip a subscription until its reader is told what it missed.
    pub fn set_waiting(&mut self, subscription: SubscriptionId) {
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().with(SubscriptionFlags::WAITING));
    }

    /// A reader gets everything after `last` from now on.
    pub fn begin_delivering(&mut self, subscription: SubscriptionId, last: u64) {
        let record = &mut self.subscriptions[subscription.0];
        record.set_flags(record.flags().without(SubscriptionFlags::WAITING));
        record.set_last(last);
    }

    /// Ends the subscriptions of a connection whose next request is not about them.
    pub fn leave_streams(&mut self, index: u32, emptied_channels: &mut Vec<Arc<str>>) {
        self.unsubscribe_all(index, emptied_channels);
    }

    /// Takes the connections whose held request was answered by deliveries.
    pub fn take_answered(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.readers.answered)
    }

    /// Takes the readers whose stream has ended.
    pub fn take_ended(&mut self) -> Vec<EndedReader> {
        std::mem::take(&mut self.readers.ended)
    }

    /// What becomes of the connection of a reader after its answer.
    #[must_use]
    pub fn variant_of(&self, index: u32) -> Variant {
        self.connections[index].variant()
    }

    /// The connection is no reader any more.
    pub(super) fn forget_reader(&mut self, index: u32) {
        let connection = &self.connections[index];
        if connection.phase != Phase::Open || !connection.transport().reads_streams() {
            return;
        }
        match connection.transport() {
            Transport::LongPoll => self.readers.parked -= 1,
            _ => self.readers.events -= 1,
        }
        if connection.variant().has_own_cursor() {
            self.readers.own_cursors.remove(&index);
        }
        self.forget_bearer(index);
    }
}
