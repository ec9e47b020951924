//! Asking a run to end early, with the report so far.

use myriad_report::EXIT_INTERRUPTED;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// A request to end that any thread can make and the run looks at some twenty times a second.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Made by SIGINT or SIGTERM. A second one ends the process at once.
    ///
    /// # Errors
    /// The handlers could not be installed.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::new();
        let made = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut int, mut term) = {
            let _context = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    for _ in 0..2 {
                        tokio::select! {
                            _ = int.recv() => {}
                            _ = term.recv() => {}
                        }
                        if made.is_made() {
                            crate::report::dashboard::restore();
                            std::process::exit(i32::from(EXIT_INTERRUPTED));
                        }
                        made.make();
                    }
                });
            })?;
        Ok(interrupt)
    }

    /// Makes the request.
    pub fn make(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was made.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
