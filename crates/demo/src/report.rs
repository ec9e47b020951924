//! The results as data: the table and `myriad-demo.json` are made from it.

use crate::watch::Watch;
use myriad_doctor::{Budget, Decision, Machine, Memory};
use myriad_report::PushReport;
use myriad_units::{count, counted};
use myriad_usage::Footprint;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: String,
    /// When it ended, in seconds since 1970.
    pub finished_unix_s: u64,
    /// The machine, as it was before.
    pub machine: Machine,
    /// Its limits.
    pub budget: Budget,
    /// How many connections were planned, and why.
    pub decision: Decision,
    /// The server's command line.
    pub server_command: String,
    /// The crowd's command line.
    pub crowd_command: String,
    /// Whether clients had TLS.
    pub tls: bool,
    /// Connections that were open when the publications were made.
    pub connections: u64,
    /// From the first attempt to the last connection's upgrade.
    pub connect_seconds: f64,
    /// [`Report::connections`] over [`Report::connect_seconds`].
    pub setup_rate_per_s: f64,
    /// What the connections took.
    pub memory: MemoryUse,
    /// One entry per publication.
    pub pushes: Vec<PushReport>,
    /// Failed connection attempts by kind.
    pub errors: BTreeMap<String, u64>,
    /// What makes the figures less trustworthy.
    pub warnings: Vec<String>,
    /// Whether every publication reached every connection.
    pub verdict: Verdict,
}

/// Growth from just before the crowd started until everybody was connected, idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// `RssAnon` of the server.
    pub server_user_bytes: u64,
    /// `RssAnon` of the crowd, from nothing: its own start is counted too.
    pub crowd_user_bytes: u64,
    /// The kernel's slab caches, of the whole machine: sockets of both ends and what watches them.
    pub kernel_bytes: u64,
    /// What `MemAvailable` fell by: all of the above, page tables, rings, and whatever else ran. Kept for those
    /// who want to check the sum; on a machine that does other things it is mostly theirs.
    pub available_fell_bytes: u64,
}

/// Whether the publications reached every connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every connection wanted was open and got every publication.
    ReachedAll,
    /// They did not: a sentence with the reason.
    Missed(String),
}

/// One measurement of everything that grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) memory: Memory,
    pub(crate) server: Footprint,
    pub(crate) crowd: Footprint,
}

impl MemoryUse {
    pub(crate) fn between(before: Snapshot, after: Snapshot) -> Self {
        let grown = |after: Footprint, before: Footprint| {
            after.anonymous_bytes.saturating_sub(before.anonymous_bytes)
        };
        Self {
            server_user_bytes: grown(after.server, before.server),
            crowd_user_bytes: grown(after.crowd, before.crowd),
            kernel_bytes: after
                .memory
                .slab_bytes
                .saturating_sub(before.memory.slab_bytes),
            available_fell_bytes: before
                .memory
                .available_bytes
                .saturating_sub(after.memory.available_bytes),
        }
    }
}

impl Verdict {
    /// `pushes_wanted` publications should have reached `wanted` connections each.
    pub(crate) fn of(watch: &Watch, wanted: u64, pushes_wanted: usize) -> Self {
        if watch.connected < wanted {
            return Self::Missed(format!(
                "Only {} of {} could be opened{}.",
                count(watch.connected),
                counted(wanted, "connection"),
                errors_in_words(&watch.errors)
            ));
        }
        if watch.pushes.len() < pushes_wanted {
            return Self::Missed(format!(
                "Only {} of {} were reported.",
                watch.pushes.len(),
                counted(pushes_wanted as u64, "publication")
            ));
        }
        // Against what was wanted, not what the crowd expected: a connection lost between two pushes is missed too.
        match watch.pushes.iter().find(|push| push.received < wanted) {
            None => Self::ReachedAll,
            Some(push) => Self::Missed(format!(
                "Push {} reached {} of {}; {} did not get it.",
                push.sequence,
                count(push.received),
                counted(wanted, "connection"),
                count(wanted - push.received)
            )),
        }
    }
}

/// `: 12 refused, 3 timed out`, or nothing.
fn errors_in_words(errors: &BTreeMap<String, u64>) -> String {
    let kinds: Vec<String> = errors
        .iter()
        .map(|(kind, number)| format!("{} {kind}", count(*number)))
        .collect();
    if kinds.is_empty() {
        String::new()
    } else {
        format!(": {}", kinds.join(", "))
    }
}

/// Seconds since 1970; zero on a machine whose clock is before that.
pub(crate) fn unix_seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{FanoutTimes, Line, Phase, Progress};
    use std::time::Duration;

    fn push(sequence: u32, received: u64) -> Line {
        let ms = Some(1.0);
        let times = FanoutTimes {
            first_ms: ms,
            p50_ms: ms,
            p90_ms: ms,
            p99_ms: ms,
            p999_ms: ms,
            last_ms: ms,
        };
        Line::Push(Box::new(PushReport {
            sequence,
            expected: 1_000,
            received,
            times,
            ..PushReport::default()
        }))
    }

    fn watched(connected: u64, lines: impl IntoIterator<Item = Line>) -> Watch {
        let mut watch = Watch::new();
        let errors = BTreeMap::from([("refused".to_owned(), 1_200)]);
        let progress = Line::Progress(Box::new(Progress {
            connected,
            errors,
            ..Progress::default()
        }));
        for line in [
            progress,
            Line::Phase {
                phase: Phase::Connected,
                elapsed_s: 0.0,
            },
        ]
        .into_iter()
        .chain(lines)
        {
            watch.handle_line(line, Duration::ZERO);
        }
        watch
    }

    #[test]
    fn everybody_reached_is_good() {
        let watch = watched(1_000, [push(1, 1_000), push(2, 1_000)]);
        assert_eq!(Verdict::of(&watch, 1_000, 2), Verdict::ReachedAll);
    }

    #[test]
    fn each_way_to_miss_has_its_sentence() {
        let sentence = |watch: Watch| match Verdict::of(&watch, 1_000, 2) {
            Verdict::Missed(why) => why,
            Verdict::ReachedAll => panic!("should have missed"),
        };
        assert_eq!(
            sentence(watched(900, [push(1, 900), push(2, 900)])),
            "Only 900 of 1,000 connections could be opened: 1,200 refused."
        );
        assert_eq!(
            sentence(watched(1_000, [push(1, 1_000)])),
            "Only 1 of 2 publications were reported."
        );
        assert_eq!(
            sentence(watched(1_000, [push(1, 1_000), push(2, 998)])),
            "Push 2 reached 998 of 1,000 connections; 2 did not get it."
        );
    }

    #[test]
    fn memory_is_growth_and_never_below_zero() {
        let snapshot = |slab, available, server, crowd| Snapshot {
            memory: Memory {
                total_bytes: 1 << 30,
                available_bytes: available,
                slab_bytes: slab,
                page_bytes: 4096,
            },
            server: Footprint {
                anonymous_bytes: server,
                resident_bytes: 0,
            },
            crowd: Footprint {
                anonymous_bytes: crowd,
                resident_bytes: 0,
            },
        };
        let used = MemoryUse::between(snapshot(100, 9_000, 50, 0), snapshot(7_100, 1_000, 40, 60));
        assert_eq!(used.kernel_bytes, 7_000);
        assert_eq!(used.available_fell_bytes, 8_000);
        assert_eq!((used.server_user_bytes, used.crowd_user_bytes), (0, 60));
    }
}
