//! The search for the largest crowd that a contestant holds.

use crate::figures::{Column, Figures};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Sizes that are tried, in thousandths of the largest one.
const PER_MILLE: [u64; 12] = [15, 30, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1_000];
/// The smallest crowd there is.
const CONNECTIONS_MIN: u64 = 8;

/// The largest crowd in which a push reached everybody, and what became of the next size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Largest {
    /// Held; 0 where no size was.
    pub connections: u64,
    /// That held it.
    pub processes: Option<u64>,
    /// What became of a larger crowd; nothing where none was to be tried.
    pub stopped_by: Option<String>,
    /// Of that crowd, by their keys. From one push, so that there is no spread.
    #[serde(flatten, serialize_with = "by_key")]
    pub(crate) figures: Figures,
}

fn by_key<S: Serializer>(figures: &Figures, serializer: S) -> Result<S::Ok, S::Error> {
    let by_key: BTreeMap<&str, f64> = figures
        .iter()
        .map(|(column, value)| (column.key(), *value))
        .collect();
    let mut map = serializer.serialize_map(Some(by_key.len()))?;
    for (key, value) in by_key {
        map.serialize_entry(key, &value)?;
    }
    map.end()
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
}

/// Which sizes there are above one that is held already, up to `most`.
pub(crate) fn sizes(held: u64, most: u64) -> Vec<u64> {
    PER_MILLE
        .into_iter()
        .map(|share| most.saturating_mul(share) / 1_000)
        .filter(|size| *size > held && *size >= CONNECTIONS_MIN)
        .collect()
}

/// The largest size first, since most that can hold it are done then; after that by halves. Whoever holds a crowd holds
/// every smaller one.
#[derive(Debug)]
pub(crate) struct Search {
    /// So many of the sizes, from the smallest, are held.
    held: usize,
    /// From this one on they are not.
    stopped: Option<usize>,
    count: usize,
}

impl Search {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            held: 0,
            stopped: None,
            count,
        }
    }

    /// The size to try next, by its place; nothing when the largest is found.
    pub(crate) fn next(&self) -> Option<usize> {
        let stopped = self.stopped.unwrap_or(self.count);
        if self.held == stopped {
            return None;
        }
        Some(match self.stopped {
            None => self.count - 1,
            Some(stopped) => usize::midpoint(self.held, stopped),
        })
    }

    pub(crate) fn note(&mut self, place: usize, held: bool) {
        if held {
            self.held = place + 1;
        } else {
            self.stopped = Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes tried of so many, by a contestant that holds the first `holds` of them; and how many it was found to hold.
    fn found(count: usize, holds: usize) -> (Vec<usize>, usize) {
        let mut search = Search::new(count);
        let mut tried = Vec::new();
        while let Some(place) = search.next() {
            tried.push(place);
            search.note(place, place < holds);
        }
        (tried, search.held)
    }

    #[test]
    fn every_limit_is_found_in_a_few_steps() {
        for holds in 0..=12 {
            let (tried, largest) = found(12, holds);
            assert_eq!(largest, holds);
            assert!(tried.len() <= 5, "{tried:?}");
        }
        assert_eq!(found(12, 12).0, [11]);
        assert_eq!(found(0, 0), (Vec::new(), 0));
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
