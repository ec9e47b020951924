//! Histories on disk: one ordered log for many channels.
//!
//! A [`Log`] is a directory of segments. A caller appends [`Unit`]s, and commits many of them with one fdatasync; each is kept whole or not
//! at all. What is known of channels is in an index in memory, contents are read from the disk. At a start the log finds out itself what a crash
//! has left.
//!
//! | call | what |
//! | --- | --- |
//! | [`Log::open`] | reads what is there, cuts what was not finished, reports what is damaged |
//! | [`Log::append`], [`Log::commit`] | writes units |
//! | [`Log::channel`], [`Log::locate`] | what a channel has, and where |
//! | [`Log::compact_step`], [`Log::snapshot_step`], [`Log::expire`] | work beside, of bounded size |
//!
//! None of them has a clock, a thread or randomness but its arguments. [`Writer`] is the thread beside a shard that calls them.
//! [`tools`] has what a person does to a directory.
//!
//! The format is in `segment.rs` and `record.rs`; docs/adr/0038 says why it is so.

#![forbid(unsafe_code)]

pub mod disk;
pub mod fuzzing;
mod index;
mod log;
mod record;
mod segment;
pub mod tools;
mod unit;
mod writer;

pub use index::{ChannelState, IndexFigures, KEY_S};
pub use log::{
    BadRange, Compacted, CutTail, Durability, Located, Log, LogFigures, LogSettings, OpenError,
    Opened, Opening, ReadError, WriteError,
};
pub use record::{BODY_BYTES_MAX, Body, Limits, NAME_BYTES_MAX, Record, Why};
pub use segment::{LogPosition, VERSION, segment_name};
pub use unit::{UnfitRecord, Unit};
pub use writer::{Answer, Outcome, Refused, SyncPolicy, Writer, WriterSettings};
