//! Histories on the disk: what a home has kept makes another home that says the same.

use super::*;
use crate::{DurableChange, DurableEntry, StoredChannel, StoredPublication};
use std::collections::BTreeMap;

/// A disk that is always fast enough.
#[derive(Clone, Debug, Default)]
struct Disk {
    channels: BTreeMap<Arc<str>, StoredChannel>,
    keys: Vec<(Arc<str>, Box<str>, Position)>,
}

impl Disk {
    fn keep(&mut self, entries: Vec<DurableEntry>) {
        for entry in entries {
            self.keep_one(entry);
        }
    }

    fn keep_one(&mut self, entry: DurableEntry) {
        let DurableEntry {
            channel,
            epoch,
            change,
        } = entry;
        if matches!(change, DurableChange::Deleted { .. }) {
            assert!(self.channels.remove(&channel).is_some(), "deleted once");
            return;
        }
        let begins = matches!(change, DurableChange::State { .. });
        let stored = self.channels.get(&channel);
        if stored.is_none_or(|stored| stored.epoch != epoch) {
            assert!(begins, "a channel begins with its state: {change:?}");
            let new = StoredChannel {
                name: Arc::clone(&channel),
                epoch,
                last: 0,
                lost: 0,
                publications: Vec::new(),
                stream: None,
            };
            self.channels.insert(Arc::clone(&channel), new);
        }
        let stored = self.channels.get_mut(&channel).expect("just made");
        match change {
            DurableChange::State { last, lost, .. } => {
                stored.last = last;
                stored.lost = lost;
                stored.publications.retain(|one| one.offset > lost);
            }
            DurableChange::Publication {
                offset,
                content,
                version,
                version_epoch,
            } => {
                assert_eq!(offset, stored.last + 1);
                stored.last = offset;
                stored.publications.push(StoredPublication {
                    offset,
                    age: Duration::ZERO,
                    content,
                    version,
                    version_epoch,
                });
            }
            DurableChange::Key { key, offset } => {
                let position = Position { epoch, offset };
                self.keys.push((channel, key, position));
            }
            DurableChange::Stream { state, .. } => stored.stream = Some(state),
            DurableChange::Deleted { .. } => {}
        }
    }

    fn home(&self) -> Home {
        let settings = HomeSettings {
            epoch: Epoch::new(8),
            epoch_seed: 7_777_777,
            ..home().settings
        };
        let mut home = Home::new(settings, Now(0));
        home.begin_disk();
        for channel in self.channels.values() {
            assert!(home.restore(channel.clone(), 0, Now(0)));
        }
        for (channel, key, position) in &self.keys {
            home.restore_key(channel, key, *position, Duration::ZERO, Now(0));
        }
        assert_eq!(home.take_durable(), [], "the disk has it");
        home
    }
}

fn home_with_disk() -> Home {
    let mut home = home();
    home.begin_disk();
    home
}

fn page(home: &mut Home, channel: &str) -> String {
    home.handle_history(
        ReadHistory {
            channel: channel.into(),
            asker: Asker::Control(RequestId(1)),
            limit: None,
            since: None,
            reverse: false,
        },
        Now(0),
    );
    format!("{:?}", home.poll_effect())
}

#[test]
fn a_home_that_starts_again_says_the_same() {
    let mut disk = Disk::default();
    let mut first = home_with_disk();
    for n in 0..5 {
        say(&mut first, "kept:a", &n.to_string(), Now(0));
        say(&mut first, "long:b", &n.to_string(), Now(0));
        say(&mut first, "elsewhere", &n.to_string(), Now(0));
    }
    first.handle_remove_history("long:b", Asker::Control(RequestId(2)), Now(0));
    say(&mut first, "long:b", "after", Now(0));
    disk.keep(first.take_durable());
    assert_eq!(disk.channels.len(), 2);
    while first.poll_effect().is_some() {}
    let mut second = disk.home();
    for channel in ["kept:a", "long:b"] {
        assert_eq!(page(&mut first, channel), page(&mut second, channel));
    }
    let epoch = disk.channels["kept:a"].epoch;
    let since = |offset| recover("kept:a", offset, epoch.as_str(), RecoveryMode::Stream);
    let (position, missed) = recovered(&mut second, since(3), Now(0));
    assert_eq!((position.epoch, position.offset), (epoch, 5));
    assert_eq!(missed, Some(vec![4, 5]));
    say(&mut second, "kept:a", "next", Now(0));
    disk.keep(second.take_durable());
    assert_eq!(disk.channels["kept:a"].last, 6);
}

#[test]
fn keys_and_versions_hold() {
    let mut disk = Disk::default();
    let mut first = home_with_disk();
    let keyed = || Submission {
        idempotency_key: Some("once".into()),
        ..submission("kept:a", None)
    };
    first.handle_publish(keyed(), Now(0));
    let versioned = |version| Submission {
        version,
        ..submission("kept:a", None)
    };
    first.handle_publish(versioned(7), Now(0));
    disk.keep(first.take_durable());
    let mut second = disk.home();
    second.handle_publish(keyed(), Now(0));
    second.handle_publish(versioned(7), Now(0));
    assert_eq!(second.take_durable(), []);
    second.handle_publish(versioned(8), Now(0));
    assert_eq!(second.take_durable().len(), 1);
}

#[test]
fn what_is_forgotten_is_forgotten_there_too() {
    let mut disk = Disk::default();
    let mut home = home_with_disk();
    say(&mut home, "kept:a", "1", Now(0));
    disk.keep(home.take_durable());
    assert_eq!(disk.channels.len(), 1);
    home.handle_time(tick(2000));
    disk.keep(home.take_durable());
    assert_eq!(disk.channels.len(), 0);
}

#[test]
fn a_position_that_the_disk_has_lost_gives_another_epoch_once() {
    let mut disk = Disk::default();
    let mut first = home_with_disk();
    for n in 0..2 {
        say(&mut first, "kept:a", &n.to_string(), Now(0));
    }
    disk.keep(first.take_durable());
    let mut second = disk.home();
    let epoch = disk.channels["kept:a"].epoch;
    let beyond = recover("kept:a", 9, epoch.as_str(), RecoveryMode::Stream);
    second.handle_recover(beyond.clone(), Now(0));
    assert!(matches!(
        second.poll_effect(),
        Some(HomeEffect::Deliver {
            delivery: Delivery::Lost(_),
            ..
        })
    ));
    let Some(HomeEffect::Recovered(answer)) = second.poll_effect() else {
        panic!("no answer");
    };
    assert!(answer.publications.is_err());
    assert_ne!(answer.position.epoch, epoch);
    assert_eq!(answer.position.offset, 2);
    disk.keep(second.take_durable());
    assert_eq!(disk.channels["kept:a"].epoch, answer.position.epoch);
    assert_eq!(disk.channels["kept:a"].publications.len(), 2);
    // Who makes one up achieves nothing more.
    let renewed = answer.position.epoch;
    let again = recover("kept:a", 99, renewed.as_str(), RecoveryMode::Stream);
    let (position, missed) = recovered(&mut second, again, Now(0));
    assert_eq!((position.epoch, missed), (renewed, None));
}
