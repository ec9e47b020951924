//! Units: records that become durable together or not at all.

use crate::record::{BODY_BYTES_MAX, Body, Limits, NAME_BYTES_MAX, Record, Why};
use thiserror::Error;

/// What a caller asks a log to keep: all of it or nothing.
///
/// It owns its bytes, so that whoever makes it need not wait for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    entries: Vec<Entry>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    channel: Box<str>,
    epoch: u64,
    offset: u64,
    time_ms: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Publication(Box<[u8]>),
    Channel { why: Why, lost: u64, limits: Limits },
    Deleted,
    Stream(Box<[u8]>),
    Producer { key: Box<[u8]>, value: Box<[u8]> },
    Key(Box<[u8]>),
}

/// A record that no log can keep.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum UnfitRecord {
    /// The channel's name is empty or too long.
    #[error("a channel's name is to have 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    /// It has too many bytes.
    #[error("a record is to have {BODY_BYTES_MAX} bytes at most")]
    Bytes,
    /// Only a log begins groups.
    #[error("the beginning of a group is nothing that a caller writes")]
    Group,
}

impl Unit {
    /// A unit of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A unit of one record.
    ///
    /// # Errors
    /// No log can keep it.
    pub fn of(record: Record<'_>) -> Result<Self, UnfitRecord> {
        let mut unit = Self::new();
        unit.push(record)?;
        Ok(unit)
    }

    /// Adds a record behind the others.
    ///
    /// # Errors
    /// No log can keep it. The unit is as before.
    pub fn push(&mut self, record: Record<'_>) -> Result<(), UnfitRecord> {
        let Record {
            channel,
            epoch,
            offset,
            time_ms,
            body,
        } = record;
        if channel.is_empty() || channel.len() > NAME_BYTES_MAX {
            return Err(UnfitRecord::Name);
        }
        let extra = match body {
            Body::Publication(bytes) | Body::Stream(bytes) | Body::Key(bytes) => bytes.len(),
            Body::Producer { key, value } => key.len() + value.len() + 4,
            Body::Channel { .. } | Body::Deleted | Body::Group { .. } => 17,
        };
        // Beside the name and the fixed fields, which are less than 66,000 bytes.
        if extra > BODY_BYTES_MAX / 2 {
            return Err(UnfitRecord::Bytes);
        }
        let what = match body {
            Body::Publication(bytes) => What::Publication(bytes.into()),
            Body::Channel { why, lost, limits } => What::Channel { why, lost, limits },
            Body::Deleted => What::Deleted,
            Body::Stream(bytes) => What::Stream(bytes.into()),
            Body::Producer { key, value } => What::Producer {
                key: key.into(),
                value: value.into(),
            },
            Body::Key(bytes) => What::Key(bytes.into()),
            Body::Group { .. } => return Err(UnfitRecord::Group),
        };
        self.bytes += size_of::<Entry>() + channel.len() + extra;
        self.entries.push(Entry {
            channel: channel.into(),
            epoch,
            offset,
            time_ms,
            what,
        });
        Ok(())
    }

    /// Its records.
    #[must_use]
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        self.entries.iter().map(Entry::record)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that it holds, for budgets.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

impl Entry {
    fn record(&self) -> Record<'_> {
        let body = match &self.what {
            What::Publication(bytes) => Body::Publication(bytes),
            What::Channel { why, lost, limits } => Body::Channel {
                why: *why,
                lost: *lost,
                limits: *limits,
            },
            What::Deleted => Body::Deleted,
            What::Stream(bytes) => Body::Stream(bytes),
            What::Producer { key, value } => Body::Producer { key, value },
            What::Key(bytes) => Body::Key(bytes),
        };
        Record {
            channel: &self.channel,
            epoch: self.epoch,
            offset: self.offset,
            time_ms: self.time_ms,
            body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_log_can_keep_is_refused() {
        let record = Record {
            channel: "",
            epoch: 1,
            offset: 1,
            time_ms: 1,
            body: Body::Deleted,
        };
        assert_eq!(Unit::of(record), Err(UnfitRecord::Name));
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let channel = long.as_str();
        assert_eq!(
            Unit::of(Record { channel, ..record }),
            Err(UnfitRecord::Name)
        );
        let body = Body::Group {
            synced: 0,
            bytes: 0,
        };
        let record = Record {
            channel: "a",
            body,
            ..record
        };
        assert_eq!(Unit::of(record), Err(UnfitRecord::Group));
    }
}
