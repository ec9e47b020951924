//! SIGTERM, SIGINT and SIGHUP.
//!
//! SIGHUP reads the config file again. A server without one stops at it, as programs do whose terminal is closed.
//!
//! Signals are blocked in every thread, and one thread fetches them. A signal handler could run on any thread. It would
//! write to a descriptor by its number, which is another descriptor in a thread with its own table.

use crate::error::ServerError;
use crate::following::{Follower, Following};
use crate::server::Stop;
use nix::sys::signal::{SigSet, Signal};

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
    ///
    /// That thread reads no file and waits for nobody, so a signal that ends the server always does.
    pub(crate) fn obey(self, stop: Stop, following: Following) -> Result<(), ServerError> {
        let follower = following.begin()?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let first = self.fetch_end(follower.as_ref());
                // First the word: a server without clients may end before this thread runs again.
                tracing::info!("{first}: stopping; another signal ends the server at once");
                stop.drain();
                let second = self.fetch_end(follower.as_ref());
                tracing::warn!("{second} again: ending at once, without closing connections");
                std::process::exit(1);
            })
            .map_err(ServerError::system("start a thread"))?;
        Ok(())
    }

    /// The next signal that is to end the server; reloads until it comes.
    fn fetch_end(&self, follower: Option<&Follower>) -> Signal {
        loop {
            match (self.fetch(), follower) {
                (Signal::SIGHUP, Some(follower)) => follower.ask(),
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
