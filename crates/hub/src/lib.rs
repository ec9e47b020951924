//! One core's world, deterministic: connections, channels, subscribers, outbound queues, limits.
//!
//! No I/O, no clock, no randomness but an argument's. The shard tells the [`Hub`] what happened and asks it what to
//! do; the method families are
//!
//! * connections: [`Hub::open`], [`Hub::admit`], [`Hub::note_input`], [`Hub::begin_closing`], [`Hub::release`];
//! * sessions: [`Hub::open_session`], [`Hub::note_connected`], [`Hub::take_pong`];
//! * channels: [`Hub::subscribe`], [`Hub::handle_joined`], [`Hub::unsubscribe`];
//! * deliveries: [`Hub::deliver`], [`Hub::poll_delivery`], [`Hub::end_batch`];
//! * outbound queues: [`Hub::enqueue`], [`Hub::outbound`], [`Hub::advance_outbound`];
//! * readers of streams: [`Hub::park`], [`Hub::open_events`], [`Hub::take_answered`], [`Hub::end_answer`];
//! * time: [`Hub::poll_due`], [`Hub::next_deadline`];
//! * defects, when a turn ends: [`Hub::has_defects`], [`Hub::take_defects`], [`Hub::end_channel`].
//!
//! A channel's order and its history are kept by its *home*, a [`Home`] on one shard of the process.
#![forbid(unsafe_code)]

mod asker;
mod channel;
mod check;
mod client_id;
mod client_options;
mod close;
mod compression;
mod connection;
mod content;
mod defects;
mod delivery;
mod details;
mod encoding;
mod filters;
mod frames;
mod home;
mod hub;
mod limits;
pub mod marks;
mod options;
mod outbound;
mod payload;
mod position;
mod presence;
mod publication;
mod rate;
mod session;
mod streams;
mod tally;
mod time;
mod timers;
mod users;

pub use asker::{Asker, Ticket};
pub use channel::SubscriptionFlags;
pub use client_id::{ClientId, ClientIds};
pub use client_options::{ClientOptions, HttpRefusal, PersonalChannel};
pub use close::{ApplicationClose, ApplicationCloseError, CLOSE_REASON_BYTES_MAX, CloseReason};
pub use compression::{Compression, Compressor};
pub use connection::{Connection, Phase, Transport};
pub use content::{ClientInfo, Content, ContentParts};
pub use defects::{Defect, DefectScope, Plant};
pub use delivery::{Batch, Delivery, Framed, ToldBy};
pub use details::SubscriptionDetails;
pub use encoding::{DataForm, Encoding, Framing, Protocol};
pub use filters::FilterId;
pub use home::{
    AppendToStream, Appender, CreateStream, DurableChange, DurableEntry, FromNode, HistoryAnswer,
    Home, HomeEffect, HomeSettings, HomeStats, Kept, LogEntry, LogEvent, LogId, NodeSays,
    NotRecovered, Partitions, Producer, ProducerPosition, ReadFrom, ReadHistory, ReadRefused,
    ReadStream, Recover, Recovered, RequestId, ShardSet, Since, StoredChannel, StoredPublication,
    StreamAnswer, StreamCommand, StreamDone, StreamEnd, StreamEndKind, StreamEntry, StreamExpiry,
    StreamPage, StreamRead, StreamRefused, StreamRequest, StreamState, Submission, Told, Wanting,
    Wish, name_hash,
};
pub use hub::{
    Bearer, DeliverySlice, EndedReader, Hub, Joined, KnownStream, Overflown, Reader,
    SlowConsumerStats, Subscribed, SubscriptionId, Target,
};
pub use limits::{Lease, Permit, Pool};
pub use options::{
    ChannelOptions, ChannelPattern, ChannelProxies, DataFormat, JoinLeaveBy, NameError, Namespaces,
    RecoveryMode, Right, SlowConsumer, Subscribable,
};
pub use outbound::{Chunk, Outbound, Overflow};
pub use payload::Payload;
pub use position::{Epoch, Position};
pub use presence::{Announcement, PresenceChange, PresenceEvent};
pub use publication::{Publication, kind_of};
pub use rate::{Charge, RateLimit, TokenBucket, TooMany};
pub use session::{Headers, NEVER, Session, SessionDetails, SessionState, TokenIdentity};
pub use streams::{ReaderSettings, StreamPart, Variant};
pub use tally::{AddressKey, Allowance, Arrival, Excess, Tally};
pub use time::Now;
pub use timers::{Due, Timing};
pub use users::UserHasher;
