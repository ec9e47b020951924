//! What this machine allows, and what will stop a server or a crowd first.
//!
//! Three steps, each usable alone:
//!
//! 1. [`Probe`] reads `/proc` and `/sys` (from any root, so that tests bring their own) and
//!    [`measure`] finds what a connection costs this very kernel; together they fill a [`Machine`].
//! 2. [`Machine`] is plain data: it can be written as JSON on one machine and judged on another.
//! 3. [`Budget::new`] is a pure function from a machine to its [`Limit`]s, the nearest first;
//!    [`Budget::connections`] turns them into the number of connections to open, and says why.
#![forbid(unsafe_code)]

mod budget;
mod change_list;
mod changes;
mod examination;
pub mod fix;
mod limits;
mod machine;
pub mod measure;
pub mod names;
mod probe;
mod remarks;
pub mod report;
pub mod startup;
pub mod tables;
#[cfg(test)]
mod testing;
mod trials;

pub use budget::{Budget, Concern, Decision, Effect, Limit, refusal};
pub use changes::{Change, Setting, changes};
pub use examination::{Examination, JudgedLimit};
pub use limits::{BUCKET_SOCKETS, Load, PER_SOURCE_MAX, Paths, Program, Role};
pub use machine::{
    Addresses, Cgroup, CgroupVersion, Charged, ConnectionCost, Conntrack, Cores, CostSource,
    Descriptors, Interface, IoUring, Kernel, Listening, Machine, Memory, OldAdvice, Ports, Rights,
    Surroundings, Tcp, TrackingTimeouts,
};
pub use probe::{LISTENING_PORT, Probe, ProbeError};
pub use remarks::{Remark, Weight};
pub use trials::{Trials, examine};
