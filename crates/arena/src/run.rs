//! The whole run: builds, rounds in rotated order, the search for the largest crowd, the report.

use crate::build;
use crate::course::{self, Plan, Round};
use crate::failure::{Failure, Phase};
use crate::figures::{Column, Figures, compare, summarize};
use crate::guard::Guard;
use crate::holders;
use crate::manifest::{Contestant, Feature, Kind};
use crate::report::{Machine, Measured, Report, Row, Settings};
use crate::server::{float, processes_for};
use myriad_doctor::units::count;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

/// A push is over long before the next one is due.
const PUSH_EVERY_MIN: Duration = Duration::from_secs(2);
/// So many connections get a second more.
const CONNECTIONS_PER_SECOND_MORE: u64 = 25_000;
/// With less than this available a run does not go on: the machine would start to kill programs.
const AVAILABLE_BYTES_MIN: f64 = 1.5e9;
/// Steps of the search for the largest crowd.
const LARGEST_STEPS: [u64; 8] = [
    15_000, 50_000, 100_000, 200_000, 300_000, 500_000, 750_000, 1_000_000,
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// This program: `serve`, `swarm` and `arena` of it are started as children.
    pub myriad: PathBuf,
    /// For the report.
    pub version: String,
    /// Of the crowd.
    pub connections: u64,
    /// Times that everybody has their turn.
    pub rounds: u32,
    /// In each round.
    pub pushes: u64,
    /// Time between crowd up and pushes, in which nothing happens.
    pub idle: Duration,
    /// The first port; as many follow as there are processes.
    pub port: u16,
    /// Whether to run the build commands.
    pub build: bool,
    /// Whether to look for the largest crowd that each contestant holds.
    pub largest: bool,
}

/// The run itself failed, not a contestant.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Signals cannot be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(io::Error),
    /// There is no place for the crowd's reports.
    #[error("no folder for the crowd's reports, {}: {source}", path.display())]
    Folder {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A contestant on its way.
struct Entrant<'a> {
    contestant: &'a Contestant,
    version: Option<String>,
    build_s: Option<f64>,
    rounds: Vec<Round>,
    /// Of them, those that came to their end.
    completed: u32,
    failure: Option<Failure>,
    largest: Option<u64>,
    largest_stopped_by: Option<String>,
}

/// Runs everybody, telling `progress` about it.
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
        signal_hook::flag::register_conditional_shutdown(signal, 105, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .map_err(ArenaError::Signals)?;
    }
    let folder = Scratch::new()?;
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
        port: options.port,
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
        entrants: contestants.iter().map(Entrant::new).collect(),
    };
    run.prepare();
    run.rounds();
    if options.largest {
        run.largest();
    }
    Ok(run.report(started_unix_s))
}

struct Run<'a> {
    plan: Plan<'a>,
    options: &'a Options,
    progress: &'a mut dyn Write,
    entrants: Vec<Entrant<'a>>,
}

impl Run<'_> {
    fn prepare(&mut self) {
        for entrant in &mut self.entrants {
            let contestant = entrant.contestant;
            say(self.progress, &contestant.name, "build");
            if let Err(failure) = entrant.prepare(self.options.build, self.plan.guard) {
                tell_failure(self.progress, &contestant.name, &failure);
                entrant.failure = Some(failure);
            }
        }
    }

    /// In another order each time, so that nobody is always the one after the same predecessor.
    fn rounds(&mut self) {
        let rounds = self.options.rounds;
        for number in 0..rounds {
            for place in order(self.entrants.len(), number) {
                let entrant = &mut self.entrants[place];
                if entrant.failure.is_some() {
                    continue;
                }
                let head = format!(
                    "round {} of {rounds}, {}",
                    number + 1,
                    entrant.contestant.name
                );
                entrant.round(self.plan, &head, self.progress);
            }
        }
    }

    fn largest(&mut self) {
        for entrant in &mut self.entrants {
            let holds = entrant.contestant.kind == Kind::Websocket;
            if !holds || entrant.failure.is_some() {
                continue;
            }
            entrant.search_largest(self.plan, self.progress);
        }
    }

    fn report(self, started_unix_s: u64) -> Report {
        let interrupted = self.plan.guard.interrupted();
        let mut contestants: Vec<Row> = self.entrants.into_iter().map(Entrant::row).collect();
        let mut figures: Vec<_> = contestants
            .iter_mut()
            .map(|row| &mut row.figures.0)
            .collect();
        compare(&mut figures);
        Report {
            program: "myriad arena",
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
            },
            contestants,
        }
    }
}

/// Everybody once, beginning one further in each round.
fn order(count: usize, round: u32) -> impl Iterator<Item = usize> {
    let first = usize::try_from(round).unwrap_or(0);
    (0..count).map(move |place| (place + first) % count)
}

impl<'a> Entrant<'a> {
    fn new(contestant: &'a Contestant) -> Self {
        Self {
            contestant,
            version: None,
            build_s: None,
            rounds: Vec::new(),
            completed: 0,
            failure: None,
            largest: None,
            largest_stopped_by: None,
        }
    }

    fn prepare(&mut self, builds: bool, guard: Guard<'_>) -> Result<(), Failure> {
        if guard.interrupted() {
            return Err(Failure::Interrupted);
        }
        let began = Instant::now();
        if builds {
            build::build(self.contestant, &guard)?;
            self.build_s = Some(began.elapsed().as_secs_f64());
        }
        self.version = Some(build::version(self.contestant, guard.myriad)?);
        Ok(())
    }

    fn round(&mut self, plan: Plan<'_>, head: &str, progress: &mut dyn Write) {
        let mut round = Round::default();
        let mut tell = |phase: Phase| say(progress, head, &phase.to_string());
        let outcome = plan.guard.check(Phase::CrowdUp).and_then(|()| {
            if self.contestant.kind == Kind::Websocket {
                course::run(self.contestant, plan, &mut round, &mut tell)
            } else {
                holders::run(self.contestant, plan, &mut round, &mut tell)
            }
        });
        if !round.figures.is_empty() {
            self.rounds.push(round);
        }
        match outcome {
            Ok(()) => self.completed += 1,
            Err(failure) => {
                tell_failure(progress, head, &failure);
                self.failure = Some(failure);
            }
        }
    }

    /// Steps upwards until one fails.
    fn search_largest(&mut self, plan: Plan<'_>, progress: &mut dyn Write) {
        let steps = LARGEST_STEPS
            .into_iter()
            .filter(|connections| *connections > plan.connections);
        for connections in steps {
            let name = &self.contestant.name;
            say(progress, name, &format!("holding {}", count(connections)));
            let larger = Plan {
                connections,
                push_every: PUSH_EVERY_MIN,
                ..plan
            };
            let held = plan
                .guard
                .check(Phase::Largest)
                .and_then(|()| course::hold_once(self.contestant, larger));
            if let Err(failure) = held {
                tell_failure(progress, name, &failure);
                let at = format!("{} connections: {failure}", count(connections));
                self.largest_stopped_by = Some(at);
                return;
            }
            self.largest = Some(connections);
        }
        self.largest_stopped_by = Some("the search ends there".to_owned());
    }

    fn row(self) -> Row {
        let contestant = self.contestant;
        let rounds: Vec<Figures> = self
            .rounds
            .iter()
            .map(|round| round.figures.clone())
            .collect();
        let mut figures = summarize(&rounds);
        if let (Some(largest), Some(held)) =
            (self.largest, figures.get_mut(&Column::ConnectionsHeld))
        {
            held.median = float(largest);
            held.max = held.median;
            held.min = held.median;
        }
        let mut errors_by_kind = BTreeMap::new();
        for (kind, count) in self.rounds.iter().flat_map(|round| &round.errors) {
            *errors_by_kind.entry(kind.clone()).or_insert(0) += count;
        }
        let last = self.rounds.last();
        Row {
            name: contestant.name.clone(),
            title: contestant.title.clone(),
            language: contestant.language.clone(),
            kind: contestant.kind_name(),
            version: self.version.filter(|version| !version.is_empty()),
            ok: self.failure.is_none(),
            reason: self.failure.map(|failure| failure.to_string()),
            rounds: self.completed,
            processes: last.map(|round| round.processes),
            build_s: self.build_s,
            ready_s: last.map(|round| round.ready_s),
            figures: Measured(figures),
            errors_by_kind,
            largest_stopped_by: self.largest_stopped_by,
            notes: notes(contestant, last),
            arrivals: last.map(|round| round.arrivals.clone()).unwrap_or_default(),
        }
    }
}

/// What a reader of the row should know: why a column is empty, and what the crowd said of itself.
fn notes(contestant: &Contestant, last: Option<&Round>) -> Vec<String> {
    let mut notes = Vec::new();
    match contestant.kind {
        Kind::Websocket if !contestant.offers(Feature::Push) => {
            notes.push("it offers no push".to_owned());
        }
        Kind::Websocket => {}
        Kind::Tcp => notes.push("it only holds connections: no pushes, no echo".to_owned()),
        Kind::Longpoll => notes.push("it only holds requests: no pushes, no echo".to_owned()),
    }
    notes.extend(last.iter().flat_map(|round| round.warnings.clone()));
    notes
}

fn say(progress: &mut dyn Write, head: &str, what: &str) {
    // Nobody reading the progress is no reason to stop measuring.
    let _ = writeln!(progress, "{head}: {what}");
}

fn tell_failure(progress: &mut dyn Write, head: &str, failure: &Failure) {
    let word = if *failure == Failure::Interrupted {
        "stopped"
    } else {
        "FAILED"
    };
    say(progress, head, &format!("{word}: {failure}"));
}

/// How many processes a contestant would have, for the list.
#[must_use]
pub fn processes(contestant: &Contestant, connections: u64) -> u64 {
    processes_for(contestant, connections)
}

/// A folder that goes with the run.
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

/// Nobody else may have made it, nor look into it.
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
