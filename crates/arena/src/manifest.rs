//! The manifest of contestants, `arena.toml`; its own comments define every key.

mod held;

pub(crate) use held::Held;
pub use held::{Transport, UnknownTransport};

use crate::placeholders::{self, UnknownPlaceholder, Values};
use regex::Regex;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Languages that get the keys of `[jvm]` on top of the defaults.
const JVM_LANGUAGES: [&str; 2] = ["java", "scala"];
const TABLES: [&str; 3] = ["defaults", "jvm", "contestant"];

/// A manifest that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {}: {source}; give the folder of arena.toml with --arena DIR", path.display())]
    Unreadable {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A key is wrong, unknown or missing.
    #[error("{}, {entry}: `{key}`: {problem}", path.display())]
    Key {
        /// Which file.
        path: PathBuf,
        /// Which contestant or table.
        entry: String,
        /// The key, with dots.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// The part of the contract that it fulfils.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Websocket,
    Longpoll,
    Tcp,
    /// Only what its `held` says.
    Held,
}

/// An optional part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Feature {
    Push,
    Timer,
    Echo,
    Request,
    /// All of it over TLS, in a run with that.
    Tls,
}

/// How a contestant becomes several processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Processes {
    /// Several starts, process i on port + i.
    Ports,
    /// One start that makes its processes itself.
    Own,
    /// One process that RLIMIT_NOFILE does not bound.
    One,
}

/// The signal that asks it to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum StopSignal {
    Term,
    Int,
    Quit,
    Hup,
}

/// The form of a broadcast's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Body {
    /// The message itself.
    Plain,
    /// `{"channel": ..., "data": ...}`.
    Api,
    /// The message, appended to a stream of the Durable Streams protocol.
    Stream,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketPaths {
    pub(crate) push: String,
    pub(crate) echo: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Broadcast {
    pub(crate) path: String,
    pub(crate) body: Body,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stats {
    pub(crate) path: String,
    /// Finds the number of connections. Without it, the answer is JSON with `connections`.
    pub(crate) pattern: Option<Pattern>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heap {
    base_mb: u64,
    per_1000_connections_mb: u64,
}

impl Heap {
    /// For a process of so many connections.
    pub(crate) fn megabytes(self, connections: u64) -> u64 {
        self.base_mb + (connections * self.per_1000_connections_mb).div_ceil(1_000)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WarmUp {
    pub(crate) connections: u64,
    pub(crate) pushes: u64,
    /// On each of the connections, in mode echo.
    pub(crate) echoes: u64,
    /// In all.
    pub(crate) requests: u64,
}

/// A unit of memory, as programs print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Unit {
    B,
    KiB,
    MiB,
}

impl Unit {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::B => 1,
            Self::KiB => 1 << 10,
            Self::MiB => 1 << 20,
        }
    }
}

/// How to ask a process for memory that only it can measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeapQuery {
    pub(crate) prepare: Vec<String>,
    pub(crate) used: Vec<String>,
    pub(crate) used_pattern: Pattern,
    pub(crate) used_unit: Unit,
}

/// A regular expression with one group.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// What the group holds, each time it is found.
    pub(crate) fn finds<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0
            .captures_iter(text)
            .filter_map(|found| found.get(1).map(|group| group.as_str()))
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(deserializer)?;
        let regex = Regex::new(&text).map_err(|error| {
            D::Error::custom(format!("`{text}` is not a regular expression: {error}"))
        })?;
        if regex.captures_len() != 2 {
            return Err(D::Error::custom(format!(
                "`{text}` must have exactly one group in parentheses, around the number"
            )));
        }
        Ok(Self(regex))
    }
}

/// One entry, with the defaults filled in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    /// Unique.
    pub name: String,
    /// For tables.
    pub title: String,
    /// The language it is written in.
    pub language: String,
    #[serde(default)]
    pub(crate) folder: PathBuf,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) version_command: Vec<String>,
    pub(crate) version_pattern: Option<Pattern>,
    pub(crate) kind: Kind,
    pub(crate) features: Vec<Feature>,
    /// Parts of the contract that the checker does not test. Not used here, but the key must be known.
    #[serde(default, rename = "deviations")]
    pub(crate) _deviations: Vec<String>,
    pub(crate) needs: Vec<String>,
    pub(crate) needs_hint: String,
    pub(crate) build: Vec<Vec<String>>,
    pub(crate) build_seconds_max: u64,
    /// Empty if it takes part only with TLS.
    #[serde(default)]
    pub(crate) start: Vec<String>,
    /// Instead of `start` in a run with TLS; empty if it is the same.
    #[serde(default)]
    pub(crate) start_tls: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) processes: Processes,
    pub(crate) start_seconds_max: u64,
    pub(crate) stop_signal: StopSignal,
    pub(crate) stop_seconds_max: u64,
    pub(crate) descriptors_spare: u64,
    #[serde(default = "one")]
    pub(crate) descriptors_per_connection: NonZeroU64,
    pub(crate) heap: Heap,
    pub(crate) warm_up: WarmUp,
    pub(crate) memory: Option<HeapQuery>,
    pub(crate) socket_paths: SocketPaths,
    pub(crate) broadcast: Broadcast,
    pub(crate) stats: Stats,
    pub(crate) held: Option<Held>,
}

fn one() -> NonZeroU64 {
    NonZeroU64::MIN
}

impl Contestant {
    pub(crate) fn offers(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Whether it takes part in a run with neither TLS nor clients held over HTTP.
    #[must_use]
    pub fn takes_part_in_plain_runs(&self) -> bool {
        self.kind != Kind::Held && !self.start.is_empty()
    }

    /// Whether it takes part in a run with TLS.
    #[must_use]
    pub fn speaks_tls(&self) -> bool {
        self.offers(Feature::Tls)
    }

    /// The command of one process.
    pub(crate) fn start_command(&self, tls: bool) -> &[String] {
        if tls && !self.start_tls.is_empty() {
            &self.start_tls
        } else {
            &self.start
        }
    }

    /// Whether it serves clients that are held over HTTP in this way.
    #[must_use]
    pub fn holds(&self, transport: Transport) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.clients(transport).is_some())
    }

    /// In a row of a list.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Websocket => "websocket",
            Kind::Longpoll => "longpoll",
            Kind::Tcp => "tcp",
            Kind::Held => "held",
        }
    }
}

/// Reads `arena.toml` of a folder.
///
/// # Errors
/// See [`ManifestError`]; it names the contestant and the key.
pub fn load(arena: &Path) -> Result<Vec<Contestant>, ManifestError> {
    let path = arena.join("arena.toml");
    let unreadable = |source| ManifestError::Unreadable {
        path: path.clone(),
        source,
    };
    // Commands run in the contestant's folder, so that its path must not depend on ours.
    let arena = arena.canonicalize().map_err(unreadable)?;
    let text = std::fs::read_to_string(&path).map_err(unreadable)?;
    parse(&text, &path, &arena)
}

fn parse(text: &str, path: &Path, arena: &Path) -> Result<Vec<Contestant>, ManifestError> {
    let manifest: Table = toml::from_str(text).map_err(|source| ManifestError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    let wrong = |entry: &str, key: &str, problem: String| ManifestError::Key {
        path: path.to_owned(),
        entry: entry.to_owned(),
        key: key.to_owned(),
        problem,
    };
    if let Some(unknown) = manifest.keys().find(|key| !TABLES.contains(&key.as_str())) {
        let problem = format!("unknown table; there are {}", TABLES.join(", "));
        return Err(wrong("the manifest", unknown, problem));
    }
    let entries = manifest
        .get("contestant")
        .and_then(Value::as_array)
        .filter(|entries| !entries.is_empty())
        .ok_or_else(|| {
            let problem = "missing; write one [[contestant]] for each contestant".to_owned();
            wrong("the manifest", "contestant", problem)
        })?;
    let mut names = BTreeSet::new();
    let mut contestants = Vec::with_capacity(entries.len());
    for entry in entries {
        let name = entry
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("a contestant without a name");
        let contestant =
            read(entry, &manifest, arena).map_err(|(key, problem)| wrong(name, &key, problem))?;
        if !names.insert(contestant.name.clone()) {
            return Err(wrong(name, "name", "two contestants have it".to_owned()));
        }
        contestants.push(contestant);
    }
    Ok(contestants)
}

/// One entry; the error is a key and what is wrong with it.
fn read(entry: &Value, manifest: &Table, arena: &Path) -> Result<Contestant, (String, String)> {
    let table = |name: &str| manifest.get(name).and_then(Value::as_table);
    let mut merged = table("defaults").cloned().unwrap_or_default();
    let language = entry.get("language").and_then(Value::as_str);
    if language.is_some_and(|language| JVM_LANGUAGES.contains(&language)) {
        merged.extend(table("jvm").cloned().unwrap_or_default());
    }
    merged.extend(entry.as_table().cloned().unwrap_or_default());
    let mut contestant: Contestant = serde_path_to_error::deserialize(Value::Table(merged))
        .map_err(|error| {
            let problem = error.inner().message().to_owned();
            let path = error.path().to_string();
            // An unknown or missing key is named by the message, and the path is where it would stand.
            let named = problem.split('`').nth(1).filter(|_| {
                problem.starts_with("unknown field") || problem.starts_with("missing field")
            });
            match (path.as_str(), named) {
                (".", Some(key)) => (key.to_owned(), problem),
                (path, Some(key)) if !path.ends_with(key) => (format!("{path}.{key}"), problem),
                (path, _) => (path.to_owned(), problem),
            }
        })?;
    if contestant.folder.as_os_str().is_empty() {
        contestant.folder = PathBuf::from(&contestant.name);
    }
    contestant.folder = arena.join(&contestant.folder);
    check(&contestant)?;
    Ok(contestant)
}

/// Checks that types do not make.
fn check(contestant: &Contestant) -> Result<(), (String, String)> {
    let wrong = |key: &str, problem: &str| Err((key.to_owned(), problem.to_owned()));
    let name = &contestant.name;
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if name.is_empty() || !name.chars().all(plain) {
        return wrong("name", "must be of letters, digits, `-`, `_` and `.`");
    }
    if contestant.start.is_empty() && contestant.start_tls.is_empty() {
        return wrong("start", "must have at least the name of a program");
    }
    let tls = contestant.speaks_tls();
    if tls && contestant.kind != Kind::Websocket {
        return wrong("features", "`tls` is for kind `websocket` only");
    }
    if !tls && !contestant.start_tls.is_empty() {
        return wrong("start_tls", "must be given together with the feature `tls`");
    }
    if contestant.build.iter().any(Vec::is_empty) {
        return wrong(
            "build",
            "a command must have at least the name of a program",
        );
    }
    if contestant.version_command.is_empty() != contestant.version_pattern.is_none() {
        return wrong(
            "version_pattern",
            "must be given together with version_command",
        );
    }
    if contestant.kind == Kind::Held && contestant.held.is_none() {
        return wrong("held", "must be given for kind `held`");
    }
    if let Some((key, problem)) = contestant.held.as_ref().and_then(|held| held.check().err()) {
        return wrong(key, problem);
    }
    let (values, with_tls) = (Values::example(), Values::example_with_tls());
    let known = |key: &str, words: &mut dyn Iterator<Item = &String>| {
        let values = if key == "start_tls" {
            &with_tls
        } else {
            &values
        };
        for word in words {
            placeholders::fill(word, values)
                .map_err(|error: UnknownPlaceholder| (key.to_owned(), error.to_string()))?;
        }
        Ok::<(), (String, String)>(())
    };
    known("start", &mut contestant.start.iter())?;
    known("start_tls", &mut contestant.start_tls.iter())?;
    known("environment", &mut contestant.environment.values())?;
    if let Some(memory) = &contestant.memory {
        known("memory", &mut memory.prepare.iter().chain(&memory.used))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
