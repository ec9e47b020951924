//! One core's world, deterministic: connections, channels, subscribers, outbound queues, limits.
//!
//! No I/O, no clock, no randomness but an argument's. The shard tells the hub what happened and asks it what to do.
#![forbid(unsafe_code)]

mod close;
mod time;

pub use close::CloseReason;
pub use time::Now;
