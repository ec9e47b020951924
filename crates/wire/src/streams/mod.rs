//! Words of the Durable Streams protocol (github.com/durable-streams/durable-streams, `PROTOCOL.md`): offsets and media types.

mod media_type;
mod offset;

pub use media_type::MediaType;
pub use offset::StreamOffset;
