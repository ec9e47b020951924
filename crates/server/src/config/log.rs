//! What to log: a level, and other levels for parts of the server.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How much to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// What ends the server
    Error,
    /// What an operator should check
    Warn,
    /// Starts, stops and choices
    #[default]
    Info,
    /// Also single connections, publications and requests to the control plane, at a bounded rate
    Debug,
    /// Everything
    Trace,
}

const LEVELS: [(&str, LogLevel); 5] = [
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

impl LogLevel {
    fn of(word: &str) -> Option<Self> {
        let mut levels = LEVELS.into_iter();
        let found = levels.find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, level)| level)
    }
}

/// What to log: `info`, or `info,server::proxy=debug`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// Of everything without a level of its own.
    pub level: LogLevel,
    /// Levels of parts, by the beginning of their targets.
    pub parts: Vec<(String, LogLevel)>,
}

/// Text that is no [`LogFilter`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogFilterError {
    /// A level that does not exist.
    #[error(
        "`{0}` is no level; choose error, warn, info, debug or trace, or PART=LEVEL such as server::proxy=debug"
    )]
    Level(String),
    /// A part that cannot be one.
    #[error(
        "`{0}` is no part of the server; write such as server::proxy=debug or connections=debug"
    )]
    Part(String),
    /// Two levels for everything.
    #[error("there are two levels without a part; keep one")]
    Twice,
}

/// Parts whose targets are ours, whatever module they are written in.
const OWN: [&str; 3] = ["connections", "publications", "refusals"];

impl FromStr for LogFilter {
    type Err = LogFilterError;

    fn from_str(text: &str) -> Result<Self, LogFilterError> {
        let (mut level, mut parts) = (None, Vec::new());
        for word in text.split(',').map(str::trim) {
            let (part, name) = match word.split_once('=') {
                Some((part, name)) => (Some(part.trim()), name.trim()),
                None => (None, word),
            };
            let found = LogLevel::of(name).ok_or_else(|| LogFilterError::Level(name.into()))?;
            match part {
                Some(part) => parts.push((target(part)?, found)),
                None if level.is_some() => return Err(LogFilterError::Twice),
                None => level = Some(found),
            }
        }
        Ok(Self {
            level: level.unwrap_or_default(),
            parts,
        })
    }
}

/// The target of a part, as the log knows it: modules are in crates whose names begin with `myriad_`.
fn target(part: &str) -> Result<String, LogFilterError> {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || "_:".contains(sign);
    if part.is_empty() || !part.chars().all(is_sign) {
        return Err(LogFilterError::Part(part.into()));
    }
    Ok(if OWN.contains(&part) {
        format!("myriad::{part}")
    } else if part.starts_with("myriad") {
        part.into()
    } else {
        format!("myriad_{part}")
    })
}

impl<'de> Deserialize<'de> for LogFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for programs
    Json,
}

/// Gives the log of the process another filter.
pub struct SetLog(Box<dyn Fn(&LogFilter) + Send + Sync>);

impl SetLog {
    /// Calls `set` with each new filter, on the thread that reloads.
    pub fn new(set: impl Fn(&LogFilter) + Send + Sync + 'static) -> Self {
        Self(Box::new(set))
    }

    /// Sets the filter.
    pub(crate) fn set(&self, filter: &LogFilter) {
        self.0(filter);
    }
}

impl fmt::Debug for SetLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetLog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_and_those_of_parts() {
        let part = |name: &str, level| (name.to_owned(), level);
        for (text, level, parts) in [
            ("info", LogLevel::Info, vec![]),
            ("Debug", LogLevel::Debug, vec![]),
            (
                "warn, server::proxy=debug",
                LogLevel::Warn,
                vec![part("myriad_server::proxy", LogLevel::Debug)],
            ),
            (
                "connections=debug,myriad_server=trace",
                LogLevel::Info,
                vec![
                    part("myriad::connections", LogLevel::Debug),
                    part("myriad_server", LogLevel::Trace),
                ],
            ),
        ] {
            assert_eq!(text.parse(), Ok(LogFilter { level, parts }), "{text}");
        }
        for (text, error) in [
            ("", LogFilterError::Level("".into())),
            ("loud", LogFilterError::Level("loud".into())),
            ("info,warn", LogFilterError::Twice),
            ("a-b=info", LogFilterError::Part("a-b".into())),
            ("=info", LogFilterError::Part("".into())),
            ("info,", LogFilterError::Level("".into())),
        ] {
            assert_eq!(text.parse::<LogFilter>(), Err(error), "{text}");
        }
    }
}
