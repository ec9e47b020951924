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
mod limits;
mod machine;
pub mod measure;
pub mod plan;
mod probe;
pub mod units;

pub use budget::{Budget, Decision, Effect, Limit, Remark};
pub use limits::{Load, Role};
pub use machine::{
    Cgroup, CgroupVersion, ConnectionCost, Conntrack, Cores, CostSource, Descriptors, IoUring,
    Kernel, Machine, Memory, Ports, Tcp,
};
pub use probe::{Probe, ProbeError};
