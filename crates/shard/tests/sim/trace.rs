//! What a run did, line by line: hashed always, printed when a seed is replayed.

use std::fmt::{Arguments, Write};

/// A log that is a number unless somebody wants to read it.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    is_printed: bool,
}

impl Trace {
    pub(crate) fn new(is_printed: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            is_printed,
        }
    }

    pub(crate) fn line(&mut self, now: u64, line: Arguments<'_>) {
        write!(self, "{now} {line}").expect("a hash takes everything");
        if self.is_printed {
            eprintln!("{:>14.6} {line}", now as f64 / 1e9);
        }
    }

    /// Of all lines so far: equal for equal runs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

impl Write for Trace {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
