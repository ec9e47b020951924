//! The whole run: builds, rounds in rotated order, the search for the largest crowd, the report.

use crate::contestant_run::{ContestantRun, report_failure, write_progress};
use crate::exchange::Exchange;
use crate::guard::Guard;
use crate::manifest::{Contestant, Kind, Transport};
use crate::report::{Machine, PROGRAM, Report, Row, Settings};
use crate::scenario::Plan;
use crate::server::processes_for;
use crate::tls::{Tls, TlsError};
use myriad_report::EXIT_INTERRUPTED;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

/// A push is over long before the next one is due.
pub(crate) const PUSH_EVERY_MIN: Duration = Duration::from_secs(2);
/// Connections that add one second to the time between pushes.
const CONNECTIONS_PER_SECOND_MORE: u64 = 25_000;
/// Available memory below which a run stops, in bytes: with less, the kernel would start to kill programs.
const AVAILABLE_BYTES_MIN: f64 = 1.5e9;
/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// This program: `serve`, `swarm` and `arena` of it are started as children.
    pub myriad: PathBuf,
    /// For the report.
    pub version: String,
    /// Of the crowd.
    pub connections: u64,
    /// Rounds, each with a turn for every contestant; 0 if only the largest crowd is wanted.
    pub rounds: u32,
    /// In each round.
    pub pushes: u64,
    /// Idle time between the last connection and the first push.
    pub idle: Duration,
    /// Echoes, with a crowd of their own.
    pub echo: Exchange,
    /// Requests while the crowd is held, after the pushes.
    pub request: Exchange,
    /// The first port; as many follow as there are processes.
    pub port: u16,
    /// Whether to run the build commands.
    pub build: bool,
    /// Look for the largest crowd that each contestant holds, up to this size.
    pub largest_max: Option<u64>,
    /// A crowd that is held over HTTP instead of one of WebSockets. Contestants that do not hold such clients fail.
    pub held: Option<Transport>,
    /// Whether everything goes over TLS. Contestants without it fail.
    pub tls: bool,
}

/// The run itself failed, not a contestant.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Signals cannot be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(io::Error),
    /// There is no certificate for a run with TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The folder for the crowd's reports cannot be made.
    #[error("cannot make a folder for the crowd's reports, {}: {source}", path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs all contestants, and tells `progress` about it.
///
/// Call from the main thread: the kernel ends the children with the thread that started them.
///
/// # Errors
/// See [`ArenaError`]. A contestant that fails is no error; its row says why.
pub fn run(
    contestants: &[Contestant],
    options: &Options,
    progress: &mut dyn Write,
) -> Result<Report, ArenaError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second one ends us at once; the kernel then ends the children.
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(EXIT_INTERRUPTED),
            Arc::clone(&interrupted),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
        .map_err(ArenaError::Signals)?;
    }
    let folder = Scratch::new()?;
    let tls = options.tls.then(Tls::new).transpose()?;
    let guard = Guard {
        myriad: &options.myriad,
        interrupted: &interrupted,
        available_bytes_min: AVAILABLE_BYTES_MIN,
    };
    let plan = Plan {
        connections: options.connections,
        pushes: options.pushes,
        push_every: PUSH_EVERY_MIN
            + Duration::from_secs(options.connections / CONNECTIONS_PER_SECOND_MORE),
        idle: options.idle,
        echo: Exchange {
            connections: options.echo.connections.min(options.connections),
            ..options.echo
        },
        request: options.request,
        port: options.port,
        held: options.held,
        tls: tls.as_ref(),
        folder: &folder.0,
        guard,
    };
    let started_unix_s = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut run = Run {
        plan,
        options,
        progress,
        contestants: contestants.iter().map(ContestantRun::new).collect(),
    };
    run.prepare();
    run.rounds();
    if let Some(most) = options.largest_max {
        run.largest(most);
    }
    Ok(run.report(started_unix_s))
}

struct Run<'a> {
    plan: Plan<'a>,
    options: &'a Options,
    progress: &'a mut dyn Write,
    contestants: Vec<ContestantRun<'a>>,
}

impl Run<'_> {
    fn prepare(&mut self) {
        for contestant_run in &mut self.contestants {
            let contestant = contestant_run.contestant;
            write_progress(self.progress, &contestant.name, "build");
            if let Err(failure) = contestant_run.prepare(self.options.build, self.plan.guard) {
                report_failure(self.progress, &contestant.name, &failure);
                contestant_run.failure = Some(failure);
            }
        }
    }

    /// In another order each time, so that nobody is always the one after the same predecessor.
    fn rounds(&mut self) {
        let rounds = self.options.rounds;
        for number in 0..rounds {
            for index in order(self.contestants.len(), number) {
                let contestant_run = &mut self.contestants[index];
                if contestant_run.failure.is_some() {
                    continue;
                }
                let prefix = format!(
                    "round {} of {rounds}, {}",
                    number + 1,
                    contestant_run.contestant.name
                );
                contestant_run.round(self.plan, &prefix, self.progress);
            }
        }
    }

    fn largest(&mut self, most: u64) {
        for contestant_run in &mut self.contestants {
            let holds = contestant_run.contestant.kind == Kind::Websocket;
            if !holds || contestant_run.failure.is_some() {
                continue;
            }
            contestant_run.search_largest(self.plan, most, self.progress);
        }
    }

    fn report(self, started_unix_s: u64) -> Report {
        let interrupted = self.plan.guard.interrupted();
        let contestants: Vec<Row> = self
            .contestants
            .into_iter()
            .map(|contestant_run| contestant_run.row(self.options.held.is_some()))
            .collect();
        let mut report = Report {
            program: PROGRAM.to_owned(),
            version: self.options.version.clone(),
            started_unix_s,
            interrupted,
            machine: Machine::here(),
            settings: Settings {
                connections: self.options.connections,
                rounds: self.options.rounds,
                pushes: self.options.pushes,
                push_every_s: self.plan.push_every.as_secs_f64(),
                idle_s: self.plan.idle.as_secs_f64(),
                echo_connections: self.plan.echo.connections,
                echo_rate_per_s: self.plan.echo.rate_per_s,
                echo_duration_s: self.plan.echo.duration.as_secs_f64(),
                request_connections: self.plan.request.connections,
                request_rate_per_s: self.plan.request.rate_per_s,
                request_duration_s: self.plan.request.duration.as_secs_f64(),
                largest_max: self.options.largest_max,
                held: self.options.held,
                tls: self.options.tls,
            },
            contestants,
        };
        report.compare();
        report
    }
}

/// Each contestant once. Each round begins with the next one.
fn order(count: usize, round: u32) -> impl Iterator<Item = usize> {
    let first = usize::try_from(round).unwrap_or(0);
    (0..count).map(move |index| (index + first) % count)
}

/// How many processes a contestant would have, for the list.
#[must_use]
pub fn processes(contestant: &Contestant, connections: u64) -> u64 {
    processes_for(contestant, connections)
}

/// A folder that is removed after the run.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, ArenaError> {
        let path = std::env::temp_dir().join(format!("myriad-arena-{}", std::process::id()));
        let failed = |source| ArenaError::Folder {
            path: path.clone(),
            source,
        };
        create_private(&path).map_err(failed)?;
        Ok(Self(path))
    }
}

/// Creates it new, with access for this user only.
fn create_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_round_begins_one_further() {
        let order = |round| super::order(3, round).collect::<Vec<_>>();
        assert_eq!(order(0), [0, 1, 2]);
        assert_eq!(order(1), [1, 2, 0]);
        assert_eq!(order(5), [2, 0, 1]);
        assert_eq!(super::order(0, 2).count(), 0);
    }
}
