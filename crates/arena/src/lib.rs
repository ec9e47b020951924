//! The arena: servers of other frameworks, one after the other under the same crowd on the same machine.
//!
//! [`load`] reads the manifest (`arena/arena.toml`). It says how a contestant is built, started, warmed up, asked for
//! its memory and stopped. [`run`] takes each through the same scenario, in another order each round: crowd up, idle,
//! pushes, requests, crowd down, and echoes. With [`Options::held`] the clients speak HTTP: long polls or server-sent
//! events. With [`Options::tls`] everything goes over TLS. The crowd is `myriad swarm`, a child process whose report is read back.
//! CPU and memory are read from `/proc`, of all of a contestant's processes. [`text`], [`markdown`] and [`html`] show
//! the [`Report`].
//!
//! All processes end with the arena: each begins as this program ([`attach`]), asks the kernel for a signal at its
//! parent's death, and becomes the other one.
#![forbid(unsafe_code)]

mod build;
mod contestant_run;
mod crowd;
mod crowd_kind;
mod exchange;
mod failure;
mod failure_text;
mod figures;
mod format;
mod guard;
mod held;
mod held_connections;
mod html;
mod http;
mod largest;
mod manifest;
mod markdown;
mod placeholders;
mod report;
mod run;
mod scenario;
mod server;
mod surface;
mod table;
mod tls;
mod verdict;

pub use crowd::Arrival;
pub use crowd_kind::CrowdKind;
pub use exchange::Exchange;
pub use figures::Summary;
pub use html::html;
pub use largest::Largest;
pub use manifest::{Contestant, ManifestError, Transport, UnknownTransport, load};
pub use markdown::markdown;
pub use myriad_demo::process::attach;
pub use report::{Machine, Report, Row, Settings};
pub use run::{ArenaError, Options, processes, run};
pub use table::text;
