//! Which channels are occupied, for an application that wants to be told.
//!
//! A channel that becomes empty counts as occupied for a delay: a client that only reconnects makes no event. For each channel
//! [`HomeEffect::Occupied`] and [`HomeEffect::Vacated`] strictly alternate, and the first one is `Occupied`.

use super::{Home, HomeEffect};
use crate::Now;
use myriad_wheel::Tick;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Channels that may wait to be told as vacated. Past it, the one that has waited longest is told early.
const WAITING_MAX: usize = 65_536;

/// Channels that one call of [`Home::handle_time`] tells as vacated.
const VACATED_AT_A_TIME: usize = 256;

/// Channels that have no subscriber, and that the application still takes for occupied.
#[derive(Debug)]
pub(super) struct Occupancy {
    delay: Duration,
    /// By the tick at which they are told as vacated.
    waiting: HashMap<Arc<str>, Tick>,
    /// The same, the earliest first. An entry whose channel has another deadline, or none, is out of date.
    queue: VecDeque<(Tick, Arc<str>)>,
    waiting_max: usize,
}

impl Occupancy {
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            delay,
            waiting: HashMap::new(),
            queue: VecDeque::new(),
            waiting_max: WAITING_MAX,
        }
    }

    /// A channel has its first subscriber. True if the application must be told.
    fn occupy(&mut self, channel: &str) -> bool {
        self.waiting.remove(channel).is_none()
    }

    /// A channel has lost its last subscriber.
    fn vacate(&mut self, channel: Arc<str>, now: Now) {
        let deadline = now.tick_after(self.delay);
        self.waiting.insert(Arc::clone(&channel), deadline);
        self.queue.push_back((deadline, channel));
    }

    /// The next channel to tell as vacated.
    fn poll_vacated(&mut self, now: Now) -> Option<Arc<str>> {
        while let Some((deadline, _)) = self.queue.front() {
            let deadline = *deadline;
            if deadline > now.tick() && self.queue.len() <= self.waiting_max {
                return None;
            }
            let (_, channel) = self.queue.pop_front()?;
            if self.waiting.get(&channel) == Some(&deadline) {
                self.waiting.remove(&channel);
                return Some(channel);
            }
        }
        None
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.queue.front().map(|(deadline, _)| *deadline)
    }
}

impl Home {
    /// A shard is about to be added to those that have subscribers of a channel.
    pub(super) fn note_join(&mut self, index: u32) {
        let Some(occupancy) = &mut self.occupancy else {
            return;
        };
        let record = &self.channels[index];
        if record.subscribed.is_empty() && occupancy.occupy(&record.name) {
            let channel = Arc::clone(&record.name);
            self.effects.push_back(HomeEffect::Occupied { channel });
        }
    }

    /// A channel has lost its last subscriber.
    pub(super) fn note_empty(&mut self, index: u32, now: Now) {
        if let Some(occupancy) = &mut self.occupancy {
            occupancy.vacate(Arc::clone(&self.channels[index].name), now);
            self.tell_vacated(now);
        }
    }

    /// Tells which channels have been empty for the whole delay.
    pub(super) fn tell_vacated(&mut self, now: Now) {
        let Some(occupancy) = &mut self.occupancy else {
            return;
        };
        for _ in 0..VACATED_AT_A_TIME {
            let Some(channel) = occupancy.poll_vacated(now) else {
                return;
            };
            self.effects.push_back(HomeEffect::Vacated { channel });
        }
    }

    pub(super) fn next_vacated(&self) -> Option<Tick> {
        self.occupancy.as_ref().and_then(Occupancy::next_deadline)
    }

    /// The shard ends: whoever has subscribed is about to go, and no later message of theirs comes here. Every channel that the
    /// application takes for occupied is told as vacated.
    pub fn handle_end(&mut self) {
        let Some(occupancy) = self.occupancy.take() else {
            return;
        };
        let records = self.names.values().map(|&index| &self.channels[index]);
        let subscribed = records.filter(|record| !record.subscribed.is_empty());
        let mut channels: Vec<Arc<str>> = subscribed
            .map(|record| Arc::clone(&record.name))
            .chain(occupancy.waiting.into_keys())
            .collect();
        // Maps have no order that two runs share.
        channels.sort_unstable();
        self.effects.extend(
            channels
                .into_iter()
                .map(|channel| HomeEffect::Vacated { channel }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, HomeSettings};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const DELAY: Duration = Duration::from_secs(3);

    fn home(vacated_delay: Option<Duration>) -> Home {
        let settings = HomeSettings {
            epoch: Epoch::new(1),
            epoch_seed: 1,
            logs: 0,
            by_channel: false,
            namespaces: Arc::default(),
            history_bytes_max: 1 << 20,
            batch_bytes_max: 1 << 10,
            vacated_delay,
        };
        Home::new(settings, Now(0))
    }

    fn at(ms: u64) -> Now {
        Now(ms * 1_000_000)
    }

    /// What the application is told: `+` and `-`, with the channel.
    fn told(home: &mut Home) -> Vec<String> {
        std::iter::from_fn(|| home.poll_effect())
            .filter_map(|effect| match effect {
                HomeEffect::Occupied { channel } => Some(format!("+{channel}")),
                HomeEffect::Vacated { channel } => Some(format!("-{channel}")),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn the_first_subscriber_of_all_shards_occupies_and_the_last_one_vacates() {
        let mut home = home(Some(DELAY));
        home.handle_join("a".into(), 0, 1, at(0));
        home.handle_join("a".into(), 1, 1, at(0));
        assert_eq!(told(&mut home), ["+a"]);
        home.handle_leave("a", 0, at(100));
        assert_eq!(home.next_deadline(), None);
        home.handle_leave("a", 1, at(200));
        assert_eq!(home.next_deadline(), Some(at(3_200).tick()));
        home.handle_time(at(3_199));
        assert!(told(&mut home).is_empty());
        home.handle_time(at(3_200));
        assert_eq!(told(&mut home), ["-a"]);
        assert_eq!(home.next_deadline(), None);
    }

    #[test]
    fn who_comes_back_in_time_has_never_left() {
        let mut home = home(Some(DELAY));
        for start in [0, 1_000, 2_000] {
            home.handle_join("a".into(), 0, 1, at(start));
            home.handle_leave("a", 0, at(start));
        }
        assert_eq!(told(&mut home), ["+a"]);
        home.handle_time(at(4_900));
        assert!(told(&mut home).is_empty(), "the last leave was at 2000");
        home.handle_time(at(5_000));
        assert_eq!(told(&mut home), ["-a"]);
    }

    #[test]
    fn without_the_wish_nothing_is_told_or_kept() {
        let mut home = home(None);
        home.handle_join("a".into(), 0, 1, at(0));
        home.handle_leave("a", 0, at(0));
        home.handle_end();
        assert!(told(&mut home).is_empty());
        assert_eq!(home.next_deadline(), None);
    }

    #[test]
    fn a_flood_of_empty_channels_is_told_early() {
        let mut home = home(Some(DELAY));
        home.occupancy.as_mut().unwrap().waiting_max = 2;
        for channel in ["a", "b", "c", "d"] {
            home.handle_join(channel.into(), 0, 1, at(0));
            home.handle_leave(channel, 0, at(0));
        }
        assert_eq!(told(&mut home), ["+a", "+b", "+c", "-a", "+d", "-b"]);
        home.handle_end();
        assert_eq!(told(&mut home), ["-c", "-d"]);
    }

    proptest! {
        /// Against a model: events alternate, and in the end the application knows what is so.
        #[test]
        fn events_alternate_and_end_with_the_truth(steps in prop::collection::vec((0..3_usize, 0..2_usize, 0..2_000_u64), 0..200), max in 1..5_usize) {
            let mut home = home(Some(DELAY));
            home.occupancy.as_mut().unwrap().waiting_max = max;
            let (mut now, mut subscribed) = (0, BTreeSet::new());
            let mut occupied = BTreeSet::new();
            let note = |home: &mut Home, occupied: &mut BTreeSet<String>| {
                for event in told(home) {
                    let (sign, channel) = event.split_at(1);
                    let alternates = match sign {
                        "+" => occupied.insert(channel.to_owned()),
                        _ => occupied.remove(channel),
                    };
                    assert!(alternates, "{event} twice");
                }
            };
            for (channel, shard, ms) in steps {
                now += ms;
                home.handle_time(at(now));
                let name = ["a", "b", "c"][channel];
                if subscribed.insert((name, shard)) {
                    home.handle_join(name.into(), shard, 1, at(now));
                } else {
                    subscribed.remove(&(name, shard));
                    home.handle_leave(name, shard, at(now));
                }
                note(&mut home, &mut occupied);
            }
            now += 3_000;
            home.handle_time(at(now));
            note(&mut home, &mut occupied);
            let truth: BTreeSet<String> = subscribed.iter().map(|(name, _)| (*name).to_owned()).collect();
            prop_assert_eq!(&occupied, &truth);
            home.handle_end();
            note(&mut home, &mut occupied);
            prop_assert!(occupied.is_empty());
        }
    }
}
