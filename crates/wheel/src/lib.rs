//! The slab of records and the intrusive timing wheel shared by hub and swarm.
//!
//! Both are made for millions of small records that live for hours and do nothing. A [`Slab`] grows by
//! segments, so that no record is ever copied and no peak needs twice the memory. A [`Wheel`] keeps its
//! links inside the records ([`Timer`], 12 bytes), so that an armed timer allocates nothing.
//!
//! Neither reads a clock: time is an argument, a [`Tick`].

#![forbid(unsafe_code)]

mod slab;
mod timer;
mod wheel;

pub use slab::{Key, NONE, Slab};
pub use timer::{TICK_MS, Tick, Timed, Timer};
pub use wheel::Wheel;
