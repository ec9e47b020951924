//! Words of the Durable Streams protocol (github.com/durable-streams/durable-streams, `PROTOCOL.md`): offsets, media types and times.

mod media_type;
mod offset;
mod timestamp;

pub use media_type::MediaType;
pub use offset::StreamOffset;
pub use timestamp::{parse_timestamp, timestamp};
