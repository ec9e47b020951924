//! Lines of an export.

use crate::record::{Body, Limits, Record, Why};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What a line of an export says: one record. Bytes are in base64.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// A channel, behind its publications: what it says of the last offset holds for an import, too.
    Channel {
        /// Its name.
        channel: String,
        /// Its epoch, as a number.
        epoch: u64,
        /// The offset of its last publication.
        last: u64,
        /// The offset up to which everything is gone.
        lost: u64,
        /// Publications that it keeps at most.
        history_size: u32,
        /// Seconds that it keeps each.
        history_ttl_s: u32,
    },
    /// A publication.
    Publication {
        /// The channel's name.
        channel: String,
        /// The channel's epoch.
        epoch: u64,
        /// Its offset.
        offset: u64,
        /// When it came, in milliseconds since 1970.
        time_ms: u64,
        /// What the server keeps of it.
        #[serde(with = "base64_bytes")]
        content: Vec<u8>,
    },
    /// What is known of a channel as a stream.
    Stream {
        /// The channel's name.
        channel: String,
        /// The channel's epoch.
        epoch: u64,
        /// When it changed last.
        time_ms: u64,
        /// What the server keeps of it.
        #[serde(with = "base64_bytes")]
        state: Vec<u8>,
    },
    /// A producer of a stream.
    Producer {
        /// The channel's name.
        channel: String,
        /// The channel's epoch.
        epoch: u64,
        /// When it appended last.
        time_ms: u64,
        /// Who it is.
        #[serde(with = "base64_bytes")]
        key: Vec<u8>,
        /// How far it has come.
        #[serde(with = "base64_bytes")]
        value: Vec<u8>,
    },
    /// An idempotency key.
    Key {
        /// The channel's name.
        channel: String,
        /// The channel's epoch.
        epoch: u64,
        /// The offset of the publication that came with it.
        offset: u64,
        /// When that came.
        time_ms: u64,
        /// The key.
        #[serde(with = "base64_bytes")]
        key: Vec<u8>,
    },
}

impl Line {
    /// What is written for a record; none for what an export leaves out.
    pub(super) fn of(record: &Record<'_>) -> Option<Self> {
        let channel = record.channel.to_owned();
        let (epoch, offset, time_ms) = (record.epoch, record.offset, record.time_ms);
        Some(match record.body {
            Body::Publication(content) => Self::Publication {
                channel,
                epoch,
                offset,
                time_ms,
                content: content.to_vec(),
            },
            Body::Channel { lost, limits, .. } => Self::Channel {
                channel,
                epoch,
                last: offset,
                lost,
                history_size: limits.size,
                history_ttl_s: limits.ttl_s,
            },
            Body::Stream(state) => Self::Stream {
                channel,
                epoch,
                time_ms,
                state: state.to_vec(),
            },
            Body::Producer { key, value } => Self::Producer {
                channel,
                epoch,
                time_ms,
                key: key.to_vec(),
                value: value.to_vec(),
            },
            Body::Key(key) => Self::Key {
                channel,
                epoch,
                offset,
                time_ms,
                key: key.to_vec(),
            },
            Body::Deleted | Body::Group { .. } => return None,
        })
    }

    pub(super) fn write(&self, into: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *into, self)?;
        into.write_all(b"\n")
    }

    /// Gives the record that it says.
    pub(super) fn with_record<T>(&self, then: impl FnOnce(Record<'_>) -> T) -> T {
        let record = |channel, epoch, offset, time_ms, body| Record {
            channel,
            epoch,
            offset,
            time_ms,
            body,
        };
        then(match self {
            Self::Channel {
                channel,
                epoch,
                last,
                lost,
                history_size,
                history_ttl_s,
            } => {
                let limits = Limits {
                    size: *history_size,
                    ttl_s: *history_ttl_s,
                };
                let why = Why::Opened;
                let lost = *lost;
                record(
                    channel,
                    *epoch,
                    *last,
                    0,
                    Body::Channel { why, lost, limits },
                )
            }
            Self::Publication {
                channel,
                epoch,
                offset,
                time_ms,
                content,
            } => record(
                channel,
                *epoch,
                *offset,
                *time_ms,
                Body::Publication(content),
            ),
            Self::Stream {
                channel,
                epoch,
                time_ms,
                state,
            } => record(channel, *epoch, 0, *time_ms, Body::Stream(state)),
            Self::Producer {
                channel,
                epoch,
                time_ms,
                key,
                value,
            } => record(channel, *epoch, 0, *time_ms, Body::Producer { key, value }),
            Self::Key {
                channel,
                epoch,
                offset,
                time_ms,
                key,
            } => record(channel, *epoch, *offset, *time_ms, Body::Key(key)),
        })
    }
}

mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}
