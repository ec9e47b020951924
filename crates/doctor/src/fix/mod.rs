//! Changing settings, and taking it back.
//!
//! Every change is listed before it is made, and written into a journal, on disk, before it is made. So
//! whatever ends a run half-way, [`Undo`] knows what may have been changed and what it was before.

mod apply;
mod journal;
mod print;
mod steps;
mod undo;

pub use apply::{Applied, apply};
pub use journal::{Journal, JournalError};
pub use print::{Format, print};
pub use steps::{Made, Persistence, Plan, Step, Target};
pub use undo::{Restored, Undo, Undone};

use std::path::{Path, PathBuf};

/// Where journals are kept unless another place is named.
pub const JOURNAL: &str = "/var/lib/myriad/doctor.journal";

/// The machine to change: `/`, or a folder with files like its own.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// The files under that folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What a journal's entries are true for: settings of a network namespace end with it, live ones with the boot.
    fn world(&self) -> World {
        let boot =
            std::fs::read_to_string(self.place(Path::new("/proc/sys/kernel/random/boot_id")));
        let network = std::fs::read_link(self.place(Path::new("/proc/self/ns/net")));
        World {
            boot: boot.map_or_else(|_| String::new(), |text| text.trim().to_owned()),
            network: network.map_or_else(|_| String::new(), |link| link.display().to_string()),
        }
    }
}

/// Which boot and which network namespace a setting was read in.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct World {
    boot: String,
    network: String,
}

#[cfg(test)]
mod tests;
