//! The slab of records and the intrusive timing wheel shared by hub and swarm.
//!
//! Both are made for millions of small records that are idle for hours. A [`Slab`] grows by segments: it never copies a
//! record, and growing never needs twice the memory. A [`Wheel`] keeps its links inside the records ([`Timer`], 12
//! bytes), so an armed timer allocates nothing.
//!
//! Neither reads a clock: time is an argument, a [`Tick`].

#![forbid(unsafe_code)]

mod slab;
mod timer;
mod wheel;

pub use slab::{Key, NONE, Slab};
pub use timer::{TICK_MS, Tick, Timed, Timer};
pub use wheel::Wheel;
