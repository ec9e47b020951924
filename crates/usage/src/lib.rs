//! What processes and the machine use, read from `/proc` of the machine we run on.
//!
//! `procfs` reads the files. A file that is missing, as in some containers, or that has another form is an absent figure
//! or an error, never a panic. `myriad-doctor` reads limits, and from any folder; this crate reads use.
#![forbid(unsafe_code)]

mod machine;
mod own;
mod process;
mod sockets;

pub use machine::{Ticks, available_bytes, processor_model, total_bytes};
pub use own::{OwnProcess, open_descriptors};
pub use process::{Footprint, Memory, cpu_s, memory};
pub use sockets::tcp_sockets;
