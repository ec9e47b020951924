//! SIGTERM and SIGINT.
//!
//! Signals are blocked in every thread, and one thread fetches them. A signal handler could run on any thread. It would
//! write to a descriptor by its number, which is another descriptor in a thread with its own table.

use crate::error::ServerError;
use crate::server::Stop;
use nix::sys::signal::{SigSet, Signal};

/// Signals that are blocked in this thread and in all that it starts.
#[derive(Debug)]
pub(crate) struct Blocked(SigSet);

impl Blocked {
    /// Call it before any other thread is started.
    pub(crate) fn block() -> Result<Self, ServerError> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        signals
            .thread_block()
            .map_err(|errno| ServerError::System {
                what: "block signals",
                source: errno.into(),
            })?;
        Ok(Self(signals))
    }

    /// Fetches signals on a thread of its own: the first drains, the second ends the process at once.
    pub(crate) fn obey(self, stop: Stop) -> Result<(), ServerError> {
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let first = self.fetch();
                stop.drain();
                tracing::info!("{first}: stopping; another signal ends the server at once");
                let second = self.fetch();
                tracing::warn!("{second} again: ending at once, without closing connections");
                std::process::exit(1);
            })
            .map_err(ServerError::system("start a thread"))?;
        Ok(())
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
