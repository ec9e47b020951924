//! Channels as streams of the Durable Streams protocol.
//!
//! A channel with history is a stream once it was created as one, or something was published in it that history keeps. What the
//! stream keeps is the channel's history, and its offsets are the channel's. A record of its own ([`Stream`]) says what a channel
//! does not know: content type, end, time to live, producers. Most channels need none.
//!
//! Deletion and expiry end the life of a stream. While shards have subscribers its channel keeps epoch and offsets, and the next
//! stream of that name begins behind them. So an offset of the old one names a position that is no longer kept.

mod append;
mod durable;
mod end;
mod life;
mod producers;
mod questions;
mod read;

pub use end::{StreamEnd, StreamEndKind};
pub use life::StreamExpiry;
pub use producers::{Appender, Producer, ProducerPosition};
pub use questions::{
    AppendToStream, CreateStream, ReadFrom, ReadRefused, ReadStream, StreamAnswer, StreamCommand,
    StreamDone, StreamEntry, StreamPage, StreamRead, StreamRefused, StreamRequest, StreamState,
};

pub(super) use durable::{producers_in, read_stream, write_stream};
pub(super) use life::{Stream, StreamHolding};
