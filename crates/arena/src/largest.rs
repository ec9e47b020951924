//! The search for the largest crowd that a contestant holds.

use crate::failure::Failure;
use crate::figures::{Column, Figures};
use myriad_units::counted;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::Range;

/// Sizes that are tried, in thousandths of the largest one.
const PER_MILLE: [u64; 12] = [15, 30, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000];
/// The smallest crowd there is.
const CONNECTIONS_MIN: u64 = 8;

/// The largest crowd in which a push reached everybody, and what became of the next size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Largest {
    /// Its size; 0 if no size was held.
    pub connections: u64,
    /// Processes that held it.
    pub processes: Option<u64>,
    /// What became of a larger crowd; none if no larger one was tried.
    pub stopped_by: Option<String>,
    /// Figures of that crowd, by their keys. They come from one push, so they have no spread.
    #[serde(flatten, serialize_with = "by_key", deserialize_with = "of_keys")]
    pub(crate) figures: Figures,
}

/// `null` where the crowd was too small to measure.
fn by_key<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
    let by_key: BTreeMap<&str, Option<f64>> = figures
        .iter()
        .map(|(column, value)| (column.key(), column.is_measured(*value).then_some(*value)))
        .collect();
    let mut map = serializer.serialize_map(Some(by_key.len()))?;
    for (key, value) in by_key {
        map.serialize_entry(key, &value)?;
    }
    map.end()
}

/// Keys of another version are skipped.
fn of_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Figures, D::Error> {
    let fields = BTreeMap::<String, serde_json::Value>::deserialize(deserializer)?;
    let figures = fields.into_iter().filter_map(|(key, value)| {
        let column = Column::of_key(&key)?;
        // A difference of zero is what a crowd that is too small leaves.
        let too_small = (value.is_null() && column.is_difference()).then_some(0.0);
        Some((column, value.as_f64().or(too_small)?))
    });
    Ok(figures.collect())
}

impl Largest {
    /// What is shown of it, in this order.
    pub(crate) const COLUMNS: [Column; 8] = [
        Column::SetupPerS,
        Column::UserBytesPerConnection,
        Column::UserBytes,
        Column::PushFirstMs,
        Column::PushP50Ms,
        Column::PushP99Ms,
        Column::PushLastMs,
        Column::CpuSecondsPerMillionDeliveries,
    ];

    /// A crowd of that size was not held. An interruption says nothing about the contestant, so it does not replace the
    /// result of an earlier size.
    pub(crate) fn note_stopped(&mut self, connections: u64, failure: &Failure) {
        let what = format!("{}: {failure}", counted(connections, "connection"));
        self.stopped_by = Some(match self.stopped_by.take() {
            Some(earlier) if *failure == Failure::Interrupted => format!("{earlier}; {what}"),
            _ => what,
        });
    }
}

/// The sizes above one that is held already, up to `most`.
pub(crate) fn sizes(held: u64, most: u64) -> Vec<u64> {
    PER_MILLE
        .into_iter()
        .map(|share| most.saturating_mul(share) / 1_000)
        .filter(|size| *size > held && *size >= CONNECTIONS_MIN)
        .collect()
}

/// The largest size is tried first, because most contestants hold it. If it is not held, the connections that were open
/// say where to look: at the largest size below their count, then at the one above. After that the search halves. A
/// contestant that holds a crowd holds every smaller one.
#[derive(Debug)]
pub(crate) struct Search {
    sizes: Vec<u64>,
    /// Number of sizes known to be held, from the smallest.
    held: usize,
    /// The first size known not to be held.
    stopped: Option<usize>,
    /// Sizes that the last failure points to, in the order of their trials. At most two, so that the search does not
    /// visit every size.
    pointed: Range<usize>,
}

impl Search {
    pub(crate) fn new(sizes: Vec<u64>) -> Self {
        Self {
            sizes,
            held: 0,
            stopped: None,
            pointed: 0..0,
        }
    }

    /// The size to try next; none when the largest is found.
    pub(crate) fn next(&self) -> Option<u64> {
        let Some(stopped) = self.stopped else {
            return self.sizes.get(self.held..)?.last().copied();
        };
        let open = self.held..stopped;
        if open.is_empty() {
            return None;
        }
        let pointed = self.pointed.clone().find(|index| open.contains(index));
        let index = pointed.unwrap_or(usize::midpoint(self.held, stopped));
        self.sizes.get(index).copied()
    }

    /// That size was held.
    pub(crate) fn note_held(&mut self, size: u64) {
        self.held = self.sizes.partition_point(|it| *it <= size);
    }

    /// That size was not held, with the most connections of it that were open at once.
    pub(crate) fn note_stopped(&mut self, size: u64, open: u64) {
        self.stopped = Some(self.sizes.partition_point(|it| *it < size));
        let below = self.sizes.partition_point(|it| *it <= open);
        self.pointed = if below > self.held {
            below - 1..below + 1
        } else {
            0..0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes tried, of 1 to `count`, by a contestant that holds at most `holds` and of more has `open` open; and
    /// what it was found to hold.
    fn found(count: u64, holds: u64, open: u64) -> (Vec<u64>, u64) {
        let mut search = Search::new((1..=count).collect());
        let (mut tried, mut held) = (Vec::new(), 0);
        while let Some(size) = search.next() {
            tried.push(size);
            if size <= holds {
                search.note_held(size);
                held = size;
            } else {
                search.note_stopped(size, open);
            }
        }
        (tried, held)
    }

    #[test]
    fn every_limit_is_found_in_a_few_steps_whatever_was_open() {
        for (holds, open) in (0..=12).flat_map(|holds| (0..=13).map(move |open| (holds, open))) {
            let (tried, held) = found(12, holds, open);
            assert_eq!(held, holds);
            assert!(tried.len() <= 7, "holds {holds}, open {open}: {tried:?}");
        }
        assert_eq!(found(12, 12, 0).0, [12]);
        assert_eq!(found(0, 0, 0), (Vec::new(), 0));
    }

    #[test]
    fn what_was_open_says_where_to_look() {
        assert_eq!(found(12, 11, 11), (vec![12, 11], 11));
        assert_eq!(found(12, 8, 8), (vec![12, 8, 9], 8));
        assert_eq!(found(12, 7, 8).0[..3], [12, 8, 4]);
    }

    #[test]
    fn sizes_begin_above_what_is_held() {
        assert_eq!(
            sizes(100_000, 1_000_000),
            [
                150_000, 200_000, 300_000, 400_000, 500_000, 750_000, 1_000_000
            ]
        );
        assert_eq!(sizes(0, 40), [8, 12, 16, 20, 30, 40]);
        assert!(sizes(1_000_000, 1_000_000).is_empty());
    }

    #[test]
    fn an_interruption_is_told_behind_what_stopped_a_size() {
        let mut largest = Largest::default();
        largest.note_stopped(1_000, &Failure::Interrupted);
        assert_eq!(
            largest.stopped_by.as_deref(),
            Some("1,000 connections: interrupted")
        );
        largest.note_stopped(900, &Failure::Start("no port".to_owned()));
        let why = largest.stopped_by.clone().unwrap();
        assert!(why.starts_with("900 connections: "), "{why}");
        largest.note_stopped(400, &Failure::Interrupted);
        assert_eq!(
            largest.stopped_by,
            Some(format!("{why}; 400 connections: interrupted"))
        );
    }

    #[test]
    fn figures_stand_beside_the_size() {
        let largest = Largest {
            connections: 20,
            figures: Figures::from([(Column::PushLastMs, 5.0)]),
            ..Largest::default()
        };
        let json = serde_json::to_value(largest).unwrap();
        assert_eq!(json["connections"], 20);
        assert_eq!(json["push_last_ms"], 5.0);
    }
}
