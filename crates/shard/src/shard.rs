//! The turn.

use crate::mesh::Mesh;
use crate::settings::Settings;
use myriad_hub::Now;
use myriad_reactor::Reactor;
use std::io;

/// Where a shard puts connections that belong to the control plane.
pub trait HandOver<H> {
    /// Takes a connection with the bytes already read from it. Never blocks.
    ///
    /// # Errors
    /// It could not be passed on; the connection is closed by dropping the handle.
    fn hand_over(&mut self, handle: H, received: &[u8]) -> io::Result<()>;
}

/// What a turn asks of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Wait, then turn again.
    Continue,
    /// Drained: nothing is left to do.
    Finished,
}

/// One core's connections and their loop.
pub struct Shard<R: Reactor> {
    reactor: R,
}

impl<R: Reactor> Shard<R> {
    /// Shard number `index` of `mesh`. `seed` spreads its timers.
    pub fn new(index: usize, reactor: R, mesh: Mesh, settings: Settings, hand_over: Box<dyn HandOver<R::Handle>>, seed: u64, now: Now) -> Self {
        let _ = (index, mesh, settings, hand_over, seed, now);
        Self { reactor }
    }

    /// Waits for the next thing to do.
    ///
    /// # Errors
    /// The reactor is unusable.
    pub fn wait(&mut self, now: Now) -> io::Result<()> {
        let _ = (now, &mut self.reactor);
        todo!()
    }

    /// One pass: completions, inbox, timers, deliveries, closes.
    pub fn turn(&mut self, now: Now) -> Turn {
        let _ = now;
        todo!()
    }
}
