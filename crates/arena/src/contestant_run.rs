//! One contestant on its way through the run: built, round after round, the search for its largest crowd, its row.

use crate::build;
use crate::exchange;
use crate::failure::{Failure, Phase};
use crate::figures::{Figures, Measured, summarize};
use crate::guard::Guard;
use crate::held_connections;
use crate::largest::{Largest, Search, sizes};
use crate::manifest::{Contestant, Feature, Kind};
use crate::report::Row;
use crate::scenario::{self, Attempt, Plan, Round};
use myriad_units::counted;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;

/// A contestant and its results so far.
#[derive(Debug)]
pub(crate) struct ContestantRun<'a> {
    pub(crate) contestant: &'a Contestant,
    version: Option<String>,
    build_s: Option<f64>,
    rounds: Vec<Round>,
    /// Rounds that were completed.
    completed: u32,
    pub(crate) failure: Option<Failure>,
    largest: Option<Largest>,
}

impl<'a> ContestantRun<'a> {
    pub(crate) fn new(contestant: &'a Contestant) -> Self {
        Self {
            contestant,
            version: None,
            build_s: None,
            rounds: Vec::new(),
            completed: 0,
            failure: None,
            largest: None,
        }
    }

    pub(crate) fn prepare(&mut self, builds: bool, guard: Guard<'_>) -> Result<(), Failure> {
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

    pub(crate) fn round(&mut self, plan: Plan<'a>, prefix: &str, progress: &mut dyn Write) {
        let mut round = Round::default();
        let mut tell = |phase: Phase| write_progress(progress, prefix, &phase.to_string());
        let outcome = plan.guard.check(Phase::CrowdUp).and_then(|()| {
            let mut attempt = Attempt {
                contestant: self.contestant,
                plan,
                round: &mut round,
                on_phase: &mut tell,
            };
            if plan.held.is_some() {
                scenario::run(&mut attempt)
            } else if self.contestant.kind == Kind::Websocket {
                scenario::run(&mut attempt)?;
                exchange::echo(&mut attempt)
            } else {
                held_connections::run(&mut attempt)
            }
        });
        if !round.figures.is_empty() {
            self.rounds.push(round);
        }
        match outcome {
            Ok(()) => self.completed += 1,
            Err(failure) => {
                report_failure(progress, prefix, &failure);
                self.failure = Some(failure);
            }
        }
    }

    /// Looks for the largest crowd above that of the rounds, of at most `most`.
    pub(crate) fn search_largest(&mut self, plan: Plan<'a>, most: u64, progress: &mut dyn Write) {
        let mut largest = self.largest_of_rounds(plan.connections);
        let mut search = Search::new(sizes(largest.connections, most));
        while let Some(connections) = search.next() {
            let prefix = format!(
                "{}, {}",
                self.contestant.name,
                counted(connections, "connection")
            );
            let mut round = Round::default();
            let held = plan.guard.check(Phase::CrowdUp).and_then(|()| {
                let mut tell = |phase: Phase| write_progress(progress, &prefix, &phase.to_string());
                scenario::hold(&mut Attempt {
                    contestant: self.contestant,
                    plan: Plan {
                        connections,
                        ..plan
                    },
                    round: &mut round,
                    on_phase: &mut tell,
                })
            });
            match held {
                Ok(()) => {
                    search.note_held(connections);
                    largest = Largest {
                        connections,
                        processes: Some(round.processes),
                        stopped_by: largest.stopped_by,
                        figures: round.figures,
                    };
                }
                Err(failure) => {
                    search.note_stopped(connections, round.open);
                    report_failure(progress, &prefix, &failure);
                    largest.note_stopped(connections, &failure);
                    if failure == Failure::Interrupted {
                        break;
                    }
                }
            }
        }
        self.largest = Some(largest);
    }

    /// The result before the search: the crowd of the rounds.
    fn largest_of_rounds(&self, connections: u64) -> Largest {
        let Some(last) = self.rounds.last().filter(|_| self.completed > 0) else {
            return Largest::default();
        };
        Largest {
            connections,
            processes: Some(last.processes),
            stopped_by: None,
            figures: self
                .over_rounds()
                .summaries
                .into_iter()
                .map(|(column, summary)| (column, summary.median))
                .collect(),
        }
    }

    fn over_rounds(&self) -> Measured {
        let rounds: Vec<Figures> = self
            .rounds
            .iter()
            .map(|round| round.figures.clone())
            .collect();
        summarize(&rounds)
    }

    /// The row of the report; `held` says whether its clients spoke HTTP.
    pub(crate) fn row(self, held: bool) -> Row {
        let contestant = self.contestant;
        let figures = self.over_rounds();
        let mut errors_by_kind = BTreeMap::new();
        for (kind, count) in self.rounds.iter().flat_map(|round| &round.errors) {
            *errors_by_kind.entry(kind.clone()).or_insert(0) += count;
        }
        let last = self.rounds.last();
        Row {
            name: contestant.name.clone(),
            title: contestant.title.clone(),
            language: contestant.language.clone(),
            kind: contestant.kind_name().to_owned(),
            version: self.version.filter(|version| !version.is_empty()),
            ok: self.failure.is_none(),
            reason: self.failure.map(|failure| failure.to_string()),
            rounds: self.completed,
            processes: last.map(|round| round.processes),
            build_s: self.build_s,
            ready_s: last.map(|round| round.ready_s),
            figures,
            errors_by_kind,
            largest: self.largest,
            notes: notes(contestant, held, last),
            arrivals: last.map(|round| round.arrivals.clone()).unwrap_or_default(),
        }
    }
}

/// Notes for a reader of the row: why a column is empty, and warnings of the crowd.
fn notes(contestant: &Contestant, held: bool, last: Option<&Round>) -> Vec<String> {
    let mut notes = Vec::new();
    match contestant.kind {
        // Whoever takes part in it does all of it.
        _ if held => {}
        // Without a round nobody was asked for any of it.
        Kind::Websocket if last.is_none() => {}
        Kind::Websocket => {
            for (feature, name) in [
                (Feature::Push, "push"),
                (Feature::Echo, "echo"),
                (Feature::Request, "request"),
            ] {
                if !contestant.offers(feature) {
                    notes.push(format!("it offers no {name}"));
                }
            }
        }
        Kind::Tcp => notes.push("it only holds connections: no pushes, no answers".to_owned()),
        Kind::Held => {}
        Kind::Longpoll => notes.push("it only holds requests: no pushes, no answers".to_owned()),
    }
    notes.extend(last.iter().flat_map(|round| round.warnings.clone()));
    notes
}

pub(crate) fn write_progress(progress: &mut dyn Write, prefix: &str, what: &str) {
    // Nobody reading the progress is no reason to stop measuring.
    let _ = writeln!(progress, "{prefix}: {what}");
}

pub(crate) fn report_failure(progress: &mut dyn Write, prefix: &str, failure: &Failure) {
    let word = if *failure == Failure::Interrupted {
        "stopped"
    } else {
        "FAILED"
    };
    write_progress(progress, prefix, &format!("{word}: {failure}"));
}
