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
    // Whoever may publish at the NATS server may have made it up, and this machine's other files are none of their business.
    let scenario = Scenario::parse_handed(&folder.0, Path::new("scenario.toml"), text, &sets)
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[terminals]\ncount = 1\ntargets = [\"ws://127.0.0.1:8000/raw\"]\n";

    /// What is said of a scenario with a change and some files.
    fn refusal(set: String, handed: Option<FileKind>) -> String {
        let mut files = BTreeMap::from([(FileKind::Scenario, TEXT.as_bytes().to_vec())]);
        files.extend(handed.map(|kind| (kind, Vec::new())));
        let job = Job {
            sets: vec![set],
            connections: 1,
            duration: None,
            driver: None,
            slices: Vec::new(),
            own: 0,
            run: 1,
            seed: 1,
        };
        match prepare(&files, job, "0123abcd") {
            Ok(_) => panic!("it is taken"),
            Err(said) => said,
        }
    }

    #[test]
    fn a_file_that_was_not_handed_over_is_not_read() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for (key, kind) in [
            ("accounts.file", FileKind::Accounts),
            ("terminals.tokens-file", FileKind::Tokens),
            ("tls.ca", FileKind::Ca),
        ] {
            let set = || format!("{key}={file}");
            let said = refusal(set(), None);
            assert!(said.contains("it was not handed over"), "{said}");
            // One that was handed over takes its place. There is nothing in it.
            let said = refusal(set(), Some(kind));
            assert!(!said.contains("it was not handed over"), "{said}");
        }
        // A table may be written as the list of its values.
        let said = refusal(format!("accounts=[\"{file}\"]"), None);
        assert!(!said.contains("CSV"), "{said}");
    }
}
