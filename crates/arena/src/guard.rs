//! What ends a phase early: the user, or a lack of memory.

use crate::failure::{Failure, Phase};
use crate::server::float;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checked during every wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    /// This program: every process of a run begins as it.
    pub(crate) myriad: &'a Path,
    pub(crate) interrupted: &'a AtomicBool,
    /// Memory below which a run stops, in bytes.
    pub(crate) available_bytes_min: f64,
}

impl<'a> Guard<'a> {
    /// How children are started.
    pub(crate) fn through(&self) -> (&'a Path, &'static str) {
        (self.myriad, "arena")
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self, phase: Phase) -> Result<(), Failure> {
        if self.interrupted() {
            return Err(Failure::Interrupted);
        }
        match myriad_usage::available_bytes().map(float) {
            Some(available_bytes) if available_bytes < self.available_bytes_min => {
                Err(Failure::Memory {
                    phase,
                    available_bytes,
                })
            }
            _ => Ok(()),
        }
    }
}
