//! One turn of a core: joins `wire`, `hub` and `reactor`; transports and the mesh between shards.
//!
//! A [`Shard`] belongs to one thread and is generic over its [`Reactor`](myriad_reactor::Reactor), so that the
//! simulator runs the code that ships. Its owner repeats two calls:
//!
//! ```text
//! loop {
//!     shard.wait(clock.now())?;          // blocks until something happens or a timer is due
//!     if shard.turn(clock.now()) == Turn::Finished { break }
//! }
//! ```
//!
//! Everybody else talks to shards through the [`Mesh`]: publish, answer what sessions ask, drain, metrics, events of
//! connections, notices for an application.
#![forbid(unsafe_code)]

mod access;
mod asks;
mod check;
mod closing;
mod defects;
mod delivery;
mod drain;
mod durable;
mod events;
mod inbox;
mod input;
mod inquiry;
mod limits;
mod listening;
mod marks;
mod mesh;
mod metrics;
mod new_names;
mod notices;
mod orders;
mod outbound;
mod reading;
mod reload;
mod session;
mod settings;
mod shard;
mod surplus;
mod thinned;
mod traces;
mod transport;

pub use access::{
    Access, ApiKeys, CERTIFICATE_USER_HEADER, ConnectGrant, KeyFault, OptionOverrides,
    PublishGrant, RefreshGrant, Refreshed, Refusal, SubscribeGrant, TokenFault, Tokens, Verdict,
};
pub use asks::{Ask, AskAnswer, AskingClient, Question};
pub use defects::{DefectLines, NotedDefect};
pub use durable::Journal;
pub use events::{
    ClientPublication, ConnectionEvent, ConnectionName, Event, EventBudget, EventKind, Events,
    Refusals, RefusedCommand, Who,
};
pub use inquiry::{
    ChannelsPage, ChannelsWish, Figures, HistoryWish, Inquiry, InquiryAnswer, StreamWish,
};
pub use limits::{Limit, Limits, TrustedProxies};
pub use listening::ListenRefused;
pub use marks::take_reached;
pub use mesh::{
    BrokerTask, ControlPlane, EmulatedRefused, LogSettings, Mesh, NotPublished, PublishOptions,
    PublishRefused,
};
pub use metrics::{CLOSE_REASONS, Count, Distribution, Metrics, REFUSALS};
pub use notices::{ClientEnd, Notice, NoticeKind, NoticeSettings, NoticedClient, Notices};
pub use orders::{
    Deed, Described, MetaFilter, Order, OrderDone, OrderRefused, Question as ConnectionQuestion,
    RevokedTokens, ServerSubscribe, Users, Whose,
};
pub use session::{MembersKind, MembersPage, MembersQuestion};
pub use settings::{ProcessLimits, Settings, Transports};
pub use shard::{HandOver, HandedBack, Holdings, Origin, Shard, Turn, TurnedAway};
pub use thinned::Thinned;
pub use traces::{Noted, Trace, TraceEnd, Traced};
pub use transport::{EMULATION, ShardRequests};

pub use myriad_hub::{
    AppendToStream, Appender, ApplicationClose, ApplicationCloseError, Asker, ChannelOptions,
    ChannelPattern, ChannelProxies, ClientId, ClientIds, ClientInfo, ClientOptions, CloseReason,
    Compression, Content, CreateStream, DataFormat, DefectScope, DurableChange, DurableEntry,
    Epoch, Framing, FromNode, Headers, HistoryAnswer, Home, HttpRefusal, JoinLeaveBy, Kept,
    LogEntry, LogEvent, LogId, NameError, Namespaces, NodeSays, Now, Partitions, Payload, Permit,
    PersonalChannel, Plant, Position, PresenceEvent, Producer, ProducerPosition, ReadFrom,
    ReadRefused, ReaderSettings, RecoveryMode, RequestId, Right, Since, SlowConsumer,
    StoredChannel, StoredPublication, StreamAnswer, StreamCommand, StreamDone, StreamEntry,
    StreamExpiry, StreamPage, StreamRead, StreamRefused, StreamState, Submission, Ticket,
    TokenIdentity, Told, Transport, UserHasher, Wanting, Wish,
};
pub use myriad_hub::{RateLimit, TokenBucket, TooMany};
pub use myriad_reactor::Refusal as TlsRefusal;
pub use myriad_wire::centrifuge::ErrorCode;
pub use myriad_wire::http::{OriginPattern, OriginPatternError, OwnHosts};
pub use myriad_wire::peer::{AddressHeader, AddressHeaderError, Network, NetworkError, Networks};
pub use myriad_wire::streams::{MediaType, StreamOffset};
