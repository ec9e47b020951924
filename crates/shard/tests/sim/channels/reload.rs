//! Reloads that take a namespace away, or its history, and bring it back, while members are there.

use super::facts::ROOMS;
use super::scenario::Scenario;
use myriad_shard::{ChannelOptions, Namespaces, Settings};
use std::sync::Arc;

/// The namespaces of [`ROOMS`].
const NAMES: [&str; 7] = ["h", "t", "b", "e", "kept", "cached", "loose"];

/// What becomes of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is what it was in the beginning.
    Whole,
    WithoutHistory,
    Gone,
}

impl Scenario {
    /// Something becomes of some namespace.
    pub(super) fn reload(&mut self) {
        let prng = &mut self.world.prng;
        // One that has changed changes again sooner than others.
        let changed = self.changes.keys().next().copied();
        let name = match changed {
            Some(changed) if prng.one_in(2) => changed,
            _ => *prng.pick(&NAMES),
        };
        let change = *prng.pick(&[
            Change::Whole,
            Change::Whole,
            Change::WithoutHistory,
            Change::Gone,
        ]);
        self.change(name, change);
    }

    /// The settings of all shards change, as each of them comes to it.
    pub(super) fn change(&mut self, name: &'static str, change: Change) {
        self.changes.insert(name, change);
        let settings = &self.world.scene.plan.settings;
        let options_of = |name: &str| {
            let options = settings.namespaces.options_of(&format!("{name}:"));
            ChannelOptions::clone(options.expect("a namespace of ours"))
        };
        let named = NAMES.iter().filter_map(|&name| {
            let options = options_of(name);
            let options = match self.changes.get(name) {
                None | Some(Change::Whole) => options,
                Some(Change::WithoutHistory) => ChannelOptions {
                    history_size: 0,
                    ..options
                },
                Some(Change::Gone) => return None,
            };
            Some((name.into(), options))
        });
        let all = settings.namespaces.options_of("x");
        let all = ChannelOptions::clone(all.expect("channels without a namespace"));
        let namespaces = Namespaces::new(all, named.collect::<Vec<_>>());
        let settings = Settings {
            namespaces: Arc::new(namespaces),
            ..settings.clone()
        };
        self.world.mesh.reload(&Arc::new(settings));
        for (room, taken) in ROOMS.iter().zip(&mut self.facts.takings) {
            if room.name.split_once(':').is_some_and(|(of, _)| of == name) {
                taken.history |= change != Change::Whole;
                taken.namespace |= change == Change::Gone;
            }
        }
        self.facts.note(match change {
            Change::Whole => "sessions: a namespace is what it was before",
            Change::WithoutHistory => "sessions: a namespace loses its history",
            Change::Gone => "sessions: a namespace is taken away",
        });
        self.world.log(format_args!("namespace {name}: {change:?}"));
    }
}
