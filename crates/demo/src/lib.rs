//! The demonstration: a server and a crowd on one machine, watched from outside.
//!
//! [`run`] checks the machine through [`myriad_doctor`], starts `serve` and `swarm` of the same program as
//! two child processes, follows the crowd's live report while it connects and while three publications go
//! to everybody, reads both processes' memory from `/proc`, and ends with a table and a JSON file.
//!
//! The children never outlive the demonstration: they are stopped on success, on errors and on signals,
//! and the kernel stops them ([`process::attach`]) should the demonstration itself be killed.
#![forbid(unsafe_code)]

pub mod certificate;
mod health;
mod json_file;
mod opening;
mod port;
pub mod process;
mod progress;
mod report;
mod run;
mod table;
mod watch;

pub use port::NoFreePort;
pub use report::{MemoryUse, Report, Verdict};
pub use run::{DemoError, HANDSHAKES_AT_ONCE, Options, run};
pub use table::render;
