//! Reading a channel as a Durable Stream over HTTP: the request, and the bytes of its answer.
//!
//! The rules are those of the Durable Streams protocol (durable-streams/durable-streams, PROTOCOL.md): sections 5.6 to 5.8 and 6
//! of it for requests and answers, section 8 for caches. Offsets are opaque here: whoever asks gives their text.

mod answer;
mod events;
mod persistence;
mod request;

pub use answer::{
    Answer, Caching, HEADERS, PAGE_HEADERS, SCHEMES, Status, error_body, etag_matches, write_answer,
};
pub use events::{Control, write_control, write_data, write_data_base64, write_events_head};
pub use persistence::Persistence;
pub use request::{Live, ReadError, ReadRequest, STREAM_PATH};

/// Seconds of an interval of cursors (section 8.1).
pub const CURSOR_INTERVAL_S: u64 = 20;
/// Where intervals of cursors are counted from: 9 October 2024, 00:00 UTC, as seconds of Unix time (section 8.1).
pub const CURSOR_EPOCH_S: u64 = 1_728_432_000;
