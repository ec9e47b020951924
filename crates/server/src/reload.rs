//! Other options for a server that is running.
//!
//! A reload reads and checks everything first. A mistake leaves the server as it is. What can change then changes at once:
//! [`Control::reload`] gives the control plane its part and every shard its settings. What needs a restart stays
//! ([`Options::with_fixed_of`]).

use crate::config::{Change, Config, ConfigError, Options, Written};
use crate::control::Control;
use crate::machine::Machine;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Gives a running server other options. Works from any thread that shares the descriptor table in which the server was
/// started.
#[derive(Clone, Debug)]
pub struct Reloader {
    /// What the server runs with.
    running: Arc<Mutex<Config>>,
    /// What was written when it started.
    started: Arc<Written>,
    control: UnboundedSender<Reload>,
}

/// A configuration for the control plane to take. It drops `_done` when it has.
#[derive(Debug)]
pub(crate) struct Reload {
    config: Box<Config>,
    _done: SyncSender<()>,
}

/// The control plane's end.
pub(crate) type Reloads = UnboundedReceiver<Reload>;

impl Reloader {
    pub(crate) fn new(config: Config) -> (Self, Reloads) {
        let (control, reloads) = unbounded_channel();
        let started = Arc::clone(&config.options.written);
        let running = Arc::new(Mutex::new(config));
        let reloader = Self {
            running,
            started,
            control,
        };
        (reloader, reloads)
    }

    /// The machine whose facts give the defaults: as it was at the start, so that a reload does not change them.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.running().machine.clone()
    }

    fn running(&self) -> MutexGuard<'_, Config> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the server other options, and returns once the control plane has them and every shard has been sent its own. Answers
    /// what is written otherwise than before; changes that need a restart are named until there is one.
    ///
    /// # Errors
    /// The first value that cannot be used. The server runs on as before.
    pub fn reload(&self, options: Options) -> Result<Vec<Change>, ConfigError> {
        // Two reloads wait for each other here, so at most one is in the channel.
        let mut running = self.running();
        let config = running.reloaded(options)?;
        let changes = self.changes(&config.options.written, &running.options.written);
        let remarks = config.remarks.iter();
        for remark in remarks.filter(|remark| !running.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
        *running = config.clone();
        let (done, is_done) = sync_channel(1);
        let reload = Reload {
            config: Box::new(config),
            _done: done,
        };
        if self.control.send(reload).is_ok() {
            // It fails when the sender is dropped, which is the signal.
            let _ = is_done.recv();
        }
        Ok(changes)
    }

    fn changes(&self, written: &Written, before: &Written) -> Vec<Change> {
        let since_start = written.changes_since(&self.started).into_iter();
        let since_reload = written.changes_since(before).into_iter();
        since_reload
            .filter(|change| !change.needs_restart)
            .chain(since_start.filter(|change| change.needs_restart))
            .collect()
    }
}

/// Carries out reloads until nobody can ask for one.
pub(crate) async fn follow(mut reloads: Reloads, control: Arc<Control>) {
    while let Some(Reload { config, _done }) = reloads.recv().await {
        control.reload(&config);
    }
}
