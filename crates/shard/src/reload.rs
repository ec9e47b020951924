//! Other settings for a shard that is running. Changes `settings`, `hub` and `home`.
//!
//! A shard takes them between two messages, so one command is judged by one version of them. What follows from them for channels
//! that exist is done in slices, one in each turn.

use crate::settings::Settings;
use crate::shard::Shard;
use myriad_hub::{Now, Timing};
use myriad_reactor::Reactor;
use std::sync::Arc;

impl Settings {
    pub(crate) fn timing(&self) -> Timing {
        Timing::new(
            self.handshake_timeout,
            self.ping_interval,
            self.pong_timeout,
            self.idle_timeout,
            self.linger_timeout,
            self.client.stale_close_delay,
        )
        .with_stall(self.stall_timeout)
    }
}

impl<R: Reactor> Shard<R> {
    /// Takes other settings from now on.
    pub(crate) fn handle_settings(&mut self, settings: &Settings) {
        let settings = settings.clone().over(&self.settings);
        self.hub
            .reload(settings.timing(), Arc::clone(&settings.namespaces));
        self.hub.set_reader_settings(settings.readers);
        self.home
            .handle_namespaces(Arc::clone(&settings.namespaces));
        self.settings = settings;
    }

    /// Whether [`Shard::reload`] has something to do.
    pub(crate) fn is_reloading(&self) -> bool {
        self.hub.is_reloading() || self.home.is_reloading()
    }

    /// Gives a slice of the channels what their namespaces say now.
    pub(crate) fn reload(&mut self, now: Now) {
        if !self.is_reloading() {
            return;
        }
        let max = u32::try_from(self.settings.slice_max).unwrap_or(u32::MAX);
        self.hub.reload_channels(max);
        self.home.reload_records(now, max);
        self.run_home_effects(now);
    }
}
