//! SIGHUP: reads what the configuration was read from again, on threads of its own.
//!
//! A read lasts for as long as a file system hangs. The thread that fetches signals must not wait for that, because other signals end
//! the server.

use crate::config::{Change, SetLog, Sources};
use crate::error::ServerError;
use crate::reload::Reloader;
use myriad_units::counted;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A reload takes less, unless a file system hangs.
const RELOAD_MAX: Duration = Duration::from_secs(30);

/// What a reload reads, and what follows it.
#[derive(Debug)]
pub(crate) struct Following {
    pub(crate) reloader: Reloader,
    pub(crate) sources: Sources,
    pub(crate) log: SetLog,
}

/// The way to the thread that reloads.
#[derive(Debug)]
pub(crate) struct Follower {
    asks: SyncSender<()>,
    began: Began,
}

/// When the reload that is under way began.
type Began = Arc<Mutex<Option<Instant>>>;

impl Following {
    /// Starts a thread that reloads whenever it is asked to. None without a config file.
    ///
    /// # Errors
    /// There can be no thread.
    pub(crate) fn begin(self) -> Result<Option<Follower>, ServerError> {
        let Some(path) = self.sources.file.clone() else {
            return Ok(None);
        };
        // A reload that waits reads the newest files, so one is enough.
        let (asks, asked) = sync_channel(1);
        let began = Began::default();
        let follower = Follower {
            asks,
            began: Arc::clone(&began),
        };
        thread::Builder::new()
            .name("reload".into())
            .spawn(move || self.follow(&path, &asked, &began))
            .map_err(ServerError::system("start a thread"))?;
        Ok(Some(follower))
    }

    fn follow(&self, path: &Path, asked: &Receiver<()>, began: &Mutex<Option<Instant>>) {
        let set_began = |to| *began.lock().unwrap_or_else(PoisonError::into_inner) = to;
        while asked.recv().is_ok() {
            set_began(Some(Instant::now()));
            let has_ended = watched(
                || self.reload(path),
                RELOAD_MAX,
                || {
                    self.reloader.note_refused();
                    tracing::error!(
                        "SIGHUP: {}, or a file that it names, could not be read for {} s: check their file system. The server runs on as \
                         before, and reloads as soon as they can be read",
                        path.display(),
                        RELOAD_MAX.as_secs()
                    );
                },
            );
            if !has_ended {
                self.reloader.note_refused();
                tracing::error!("SIGHUP: there was no thread to reload, or it panicked");
            }
            set_began(None);
        }
    }

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

impl Follower {
    /// Asks for a reload. It begins when the one that is under way has ended. Never blocks.
    pub(crate) fn ask(&self) {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(began) = began {
            tracing::warn!(
                "SIGHUP: the reload before has not ended, and began {} s ago; the files are read again when it has",
                began.elapsed().as_secs()
            );
        }
        // It fails if a reload waits already, which is as good.
        let _ = self.asks.try_send(());
    }
}

/// Runs `work` on a thread of its own to its end, and calls `late` when that has taken longer than `patience`. False if there was no
/// thread, or if it panicked.
fn watched(work: impl FnOnce() + Send, patience: Duration, late: impl FnOnce()) -> bool {
    let (ended, has_ended) = channel::<()>();
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("reload-read".into())
            .spawn_scoped(scope, move || {
                // Dropped at the end, which is the signal.
                let _ended = ended;
                work();
            });
        let Ok(worker) = worker else { return false };
        if has_ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            late();
        }
        worker.join().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_that_takes_long_is_told_and_waited_for() {
        let (tell, told) = channel();
        let mut is_over = false;
        let over = &mut is_over;
        // It ends only after it has been called late.
        let work = move || {
            told.recv().unwrap();
            *over = true;
        };
        assert!(watched(work, Duration::ZERO, || tell.send(()).unwrap()));
        assert!(is_over);
        assert!(watched(
            || (),
            Duration::MAX,
            || panic!("it has ended in time")
        ));
        assert!(!watched(|| panic!("as meant"), Duration::MAX, || ()));
    }

    /// The thread that asks is the one that fetches signals.
    #[test]
    fn whoever_asks_waits_for_no_reload() {
        let (asks, asked) = sync_channel(1);
        let began = Arc::new(Mutex::new(Some(Instant::now())));
        let follower = Follower { asks, began };
        for _ in 0..3 {
            follower.ask();
        }
        assert_eq!(asked.try_iter().count(), 1);
    }
}
