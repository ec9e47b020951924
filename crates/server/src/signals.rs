//! SIGTERM, SIGINT and SIGHUP.
//!
//! SIGHUP reads the config file again. A server without one stops at it, as programs do whose terminal is closed.
//!
//! Signals are blocked in every thread, and one thread fetches them. A signal handler could run on any thread. It would
//! write to a descriptor by its number, which is another descriptor in a thread with its own table.

use crate::config::{Change, SetLog, Sources};
use crate::error::ServerError;
use crate::reload::Reloader;
use crate::server::Stop;
use myriad_units::counted;
use nix::sys::signal::{SigSet, Signal};
use std::path::Path;

/// Signals that are blocked in this thread and in all that it starts.
#[derive(Debug)]
pub(crate) struct Blocked(SigSet);

impl Blocked {
    /// Call it before any other thread is started.
    pub(crate) fn block() -> Result<Self, ServerError> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
        signals
            .thread_block()
            .map_err(|errno| ServerError::System {
                what: "block signals",
                source: errno.into(),
            })?;
        Ok(Self(signals))
    }

    /// Fetches signals on a thread of its own: SIGHUP reloads, the first of the others drains, the second ends the process at
    /// once.
    pub(crate) fn obey(self, stop: Stop, following: Following) -> Result<(), ServerError> {
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let first = self.fetch_end(&following);
                // First the word: a server without clients may end before this thread runs again.
                tracing::info!("{first}: stopping; another signal ends the server at once");
                stop.drain();
                let second = self.fetch_end(&following);
                tracing::warn!("{second} again: ending at once, without closing connections");
                std::process::exit(1);
            })
            .map_err(ServerError::system("start a thread"))?;
        Ok(())
    }

    /// The next signal that is to end the server; reloads until it comes.
    fn fetch_end(&self, following: &Following) -> Signal {
        loop {
            match (self.fetch(), &following.sources.file) {
                (Signal::SIGHUP, Some(path)) => following.reload(path),
                (signal, _) => return signal,
            }
        }
    }

    fn fetch(&self) -> Signal {
        loop {
            // Only EINTR is possible for a set of valid signals.
            if let Ok(signal) = self.0.wait() {
                return signal;
            }
        }
    }
}

/// What a reload reads, and what follows it.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) reloader: Reloader,
    pub(crate) sources: Sources,
    pub(crate) log: SetLog,
}

impl Following {
    fn reload(&self, path: &Path) {
        let path = path.display();
        let reloaded = self
            .sources
            .resolve(&self.reloader.machine())
            .and_then(|config| {
                // First, because shards note for a debug log what it shows.
                self.reloader.reload_behind(*config.options, |config| {
                    let log = config.options.log.clone();
                    self.log.set(&log.unwrap_or_default());
                })
            });
        match reloaded {
            Ok(changes) => {
                for change in &changes {
                    let Change {
                        sentence,
                        needs_restart,
                    } = change;
                    if *needs_restart {
                        tracing::warn!("SIGHUP: {sentence}; that needs a restart");
                    } else {
                        tracing::info!("SIGHUP: {sentence}");
                    }
                }
                let followed = changes
                    .iter()
                    .filter(|change| !change.needs_restart)
                    .count();
                if changes.is_empty() && self.sources.is_credential() {
                    tracing::warn!(
                        "SIGHUP: {path} has not changed: it is the copy that systemd made at the start (LoadCredential). Restart the \
                         service, or let it read the file itself"
                    );
                }
                tracing::info!(
                    "SIGHUP: {path} is in force: {}",
                    counted(followed as u64, "change")
                );
            }
            Err(error) => {
                self.reloader.note_refused();
                for mistake in error.each() {
                    tracing::error!("SIGHUP: {mistake}");
                }
                tracing::error!("SIGHUP: {path} is not in force; the server runs on as before");
            }
        }
    }
}
