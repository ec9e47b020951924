//! A naive model of a log: maps of what it keeps, and how a log is compared with it.

use crate::disk::Disk;
use crate::log::Log;
use crate::record::{Body, Limits, Record};
use crate::unit::Unit;
use std::collections::BTreeMap;

/// A channel of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    pub(super) epoch: u64,
    pub(super) last: u64,
    pub(super) lost: u64,
    pub(super) limits: Limits,
    pub(super) publications: BTreeMap<u64, Vec<u8>>,
    pub(super) stream: Option<Vec<u8>>,
    pub(super) producers: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All that a log keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model(pub(super) BTreeMap<String, Channel>);

impl Model {
    pub(super) fn apply(&mut self, unit: &Unit) {
        for record in unit.records() {
            self.apply_record(&record);
        }
    }

    fn apply_record(&mut self, record: &Record<'_>) {
        if record.body == Body::Deleted {
            self.0.remove(record.channel);
            return;
        }
        if matches!(record.body, Body::Key(_) | Body::Group { .. }) {
            return;
        }
        let begins = match record.body {
            Body::Publication(_) => record.offset - 1,
            _ => record.offset,
        };
        let new = Channel {
            epoch: record.epoch,
            last: begins,
            lost: begins,
            limits: Limits::NONE,
            publications: BTreeMap::new(),
            stream: None,
            producers: BTreeMap::new(),
        };
        let channel = self
            .0
            .entry(record.channel.to_owned())
            .or_insert(new.clone());
        if channel.epoch != record.epoch {
            *channel = new;
        }
        match record.body {
            Body::Publication(content) => {
                channel.last = record.offset;
                channel.publications.insert(record.offset, content.to_vec());
            }
            Body::Channel { lost, limits, .. } => {
                channel.last = channel.last.max(record.offset);
                channel.limits = limits;
                channel.publications.retain(|offset, _| *offset > lost);
            }
            Body::Stream(state) => channel.stream = Some(state.to_vec()),
            Body::Producer { key, value } => {
                channel.producers.insert(key.to_vec(), value.to_vec());
            }
            Body::Deleted | Body::Key(_) | Body::Group { .. } => {}
        }
        while channel.publications.len() > channel.limits.size as usize {
            channel.publications.pop_first();
        }
        let oldest = channel.publications.first_key_value();
        channel.lost = oldest.map_or(channel.last, |(offset, _)| offset - 1);
    }

    /// What a log keeps, read from the disk.
    pub(super) fn of<D: Disk>(log: &Log<D>) -> Result<Self, String> {
        let mut model = Self::default();
        for id in log.index.names.ids() {
            let name = log.index.names.get(id).name().to_owned();
            let state = log.index.state_of(id);
            let mut publications = BTreeMap::new();
            for located in log.locate(&name, 0, usize::MAX) {
                let read = located.read(|record| match record.body {
                    Body::Publication(content) if record.channel == name => content.to_vec(),
                    _ => b"something else".to_vec(),
                });
                publications.insert(located.offset(), read.map_err(|error| error.to_string())?);
            }
            let extra = log.index.extra(id).cloned().unwrap_or_default();
            let stream = match extra.stream {
                None => None,
                Some(placed) => Some(read_at(log, placed)?),
            };
            let mut producers = BTreeMap::new();
            for (key, placed) in extra.producers {
                producers.insert(key.to_vec(), read_at(log, placed)?);
            }
            let channel = Channel {
                epoch: state.epoch,
                last: state.last,
                lost: state.lost,
                limits: state.limits,
                publications,
                stream,
                producers,
            };
            model.0.insert(name, channel);
        }
        Ok(model)
    }
}

/// What a stream's or a producer's record says.
fn read_at<D: Disk>(log: &Log<D>, placed: crate::index::Placed) -> Result<Vec<u8>, String> {
    let entry = crate::index::Entry {
        position: placed.position,
        bytes: placed.bytes,
        ..crate::index::Entry::default()
    };
    let located = log.located(entry).ok_or("a segment that is gone")?;
    // The records of a test's streams have no offset.
    let read = located.read(|record| match record.body {
        Body::Stream(state) => state.to_vec(),
        Body::Producer { value, .. } => value.to_vec(),
        _ => b"something else".to_vec(),
    });
    read.map_err(|error| error.to_string())
}

/// What differs, of what was expected.
pub(super) fn difference(expected: &Model, found: &Model) -> String {
    let names = expected.0.keys().chain(found.0.keys());
    for name in names {
        let (one, other) = (expected.0.get(name), found.0.get(name));
        if one != other {
            return format!("{name}: expected {}\nfound {}", text(one), text(other));
        }
    }
    "nothing".into()
}

fn text(channel: Option<&Channel>) -> String {
    let Some(channel) = channel else {
        return "none".into();
    };
    let publications = channel.publications.iter().map(|(offset, content)| {
        let number = content
            .split(|byte| *byte == b':')
            .next()
            .unwrap_or_default();
        format!("{offset}={}", String::from_utf8_lossy(number))
    });
    let publications: Vec<String> = publications.collect();
    let Channel {
        epoch,
        last,
        lost,
        limits,
        stream,
        producers,
        ..
    } = channel;
    format!(
        "{epoch} last {last} lost {lost} {limits:?} {} {stream:?} {producers:?}",
        publications.join(" ")
    )
}

/// The sums that a log keeps of its segments are those of its channels.
pub(super) fn check_live<D: Disk>(log: &Log<D>) {
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    let mut publications = 0;
    for id in log.index.names.ids() {
        let channel = log.index.names.get(id);
        for entry in channel.entries() {
            publications += 1;
            *bytes.entry(entry.position.segment()).or_default() += u64::from(entry.bytes);
        }
        if channel.state.segment() > 0 {
            let length = crate::record::state_bytes(channel.name().len());
            *bytes.entry(channel.state.segment()).or_default() += u64::from(length);
        }
        if let Some(extra) = log.index.extra(id) {
            for placed in extra.stream.iter().chain(extra.producers.values()) {
                *bytes.entry(placed.position.segment()).or_default() += u64::from(placed.bytes);
            }
        }
    }
    for (segment, live) in &log.index.live {
        let expected = bytes.remove(segment).unwrap_or(0);
        assert_eq!(live.bytes, expected, "of use in segment {segment}");
    }
    assert!(bytes.is_empty(), "in segments without a count: {bytes:?}");
    assert_eq!(log.index.figures().publications, publications);
}
