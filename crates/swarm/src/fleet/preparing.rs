//! An agent reads its controller's scenario and plans its part of the crowd.

use super::messages::{FileKind, Job};
use crate::config::{Dealt, LiveStyle, Prepared};
use crate::engine::deal::Deal;
use crate::random;
use crate::scenario::Scenario;
use myriad_reactor::Driver;
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Reads the scenario and plans this agent's part of it.
pub(super) fn prepare(
    files: &BTreeMap<FileKind, Vec<u8>>,
    job: Job,
    id: &str,
) -> Result<Prepared, String> {
    let text = files.get(&FileKind::Scenario).ok_or("it has no scenario")?;
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let folder = Folder::make(id).map_err(|error| format!("no folder for files: {error}"))?;
    let mut sets = job.sets;
    for (kind, key) in [
        (FileKind::Accounts, "accounts.file"),
        (FileKind::Tokens, "terminals.tokens-file"),
        (FileKind::Ca, "tls.ca"),
    ] {
        if let Some(content) = files.get(&kind) {
            let path = folder.write(key, content);
            let path = path.map_err(|error| format!("{key} cannot be written: {error}"))?;
            sets.push(format!("{key}={}", path.display()));
        }
    }
    let scenario = Scenario::parse(Path::new("scenario.toml"), text, &sets)
        .map_err(|error| error.to_string())?;
    let mut config = scenario.config;
    config.connections = job.connections;
    config.duration = job.duration;
    config.driver = job.driver.as_deref().and_then(Driver::named);
    config.live = LiveStyle::Off;
    let whole: u64 = job.slices.iter().map(|it| u64::from(it.terminals)).sum();
    let deal = Deal::of(job.slices, Some(job.own)).filter(|_| whole == job.connections);
    config.dealt = Some(Dealt {
        deal: deal.ok_or("the crowd is not dealt out whole")?,
        run: job.run,
        seed: job.seed,
    });
    config.prepare().map_err(|error| error.to_string())
}

/// A folder that only this user can read, for as long as a scenario is read.
struct Folder(PathBuf);

impl Folder {
    fn make(id: &str) -> std::io::Result<Self> {
        let name = format!("myriad-agent-{id}-{:08x}", random::seed());
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Writes a file whose name is ours.
    fn write(&self, key: &str, content: &[u8]) -> std::io::Result<PathBuf> {
        let path = self.0.join(key);
        std::fs::File::create_new(&path)?.write_all(content)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever cleans up temporary folders does the rest.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
