//! `myriad swarm find-max`: the largest load at which thresholds hold.

use super::machine::{ChangeArguments, MachineArguments};
use super::reporting::LanguageName;
use super::{EXIT_THRESHOLD, interrupt};
use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use myriad_swarm::{
    Config, Destination, EXIT_INTERRUPTED, Endpoint, Growth, LATE_MAX, Search, SearchOutcome,
    Threshold, find_max,
};
use myriad_units::parse::{duration, rate, share};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example: myriad swarm find-max scenario.toml --duration 20s --threshold 'echo:p99<50ms' --threshold 'errors==0'\n\
                  Exit codes: 0 the knee is known, or everything holds at --max; 1 nobody connected, the generator was the limit, or something failed; 99 a threshold fails at the smallest value too; 104 bad arguments; 105 interrupted."
)]
pub(super) struct FindMaxArguments {
    /// The scenario that each trial runs
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Key whose value is searched: a count or a rate, such as flows.NAME.rate
    #[arg(long, value_name = "KEY", default_value = "terminals.count")]
    key: String,
    /// First value [default: the scenario's]
    #[arg(long, value_name = "VALUE", value_parser = rate)]
    from: Option<f64>,
    /// Largest value [default: no bound]
    #[arg(long, value_name = "VALUE", value_parser = rate)]
    max: Option<f64>,
    /// Factor by which the value grows while everything holds
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 2.0,
        conflicts_with = "step"
    )]
    factor: f64,
    /// Amount by which it grows instead [default: it grows by the factor]
    #[arg(long, value_name = "VALUE", value_parser = rate)]
    step: Option<f64>,
    /// How near the value that fails has to be to the one that holds
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share)]
    precision: f64,
    /// Times that the knee is tried again; each of them has to hold
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    repeats: u32,
    /// Least time between two trials. The next one waits longer while connections of the one before are still there
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pause: Duration,
    #[command(flatten)]
    changes: ChangeArguments,
    /// A condition that has to hold, beside those of the scenario; may be repeated [default: the scenario's]
    #[arg(long, value_name = "CONDITION", value_parser = Threshold::parse)]
    threshold: Vec<Threshold>,
    /// End a trial when a threshold fails, this long after the end of connecting at the earliest [default: as the scenario says]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    abort_on_fail: Option<Duration>,
    #[command(flatten)]
    machine: MachineArguments,
    /// Watch this process: processor time and memory of the server, in the report of the knee [default: it is not watched]
    #[arg(long, value_name = "PID")]
    server_pid: Option<u32>,
    /// Watch what the server tells of itself here, its connections among it [default: the server is not asked]
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse)]
    server_metrics: Option<Endpoint>,
    /// Write the report of the search here as JSON; - is standard output [default: not written]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write it here as a page [default: not written]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Language of that page
    #[arg(long, value_enum, default_value = "en", requires = "html")]
    lang: LanguageName,
}

/// Searches, and says what was found.
pub(super) fn run(arguments: &FindMaxArguments, words: &[String]) -> ExitCode {
    let Some(interrupt) = interrupt() else {
        return ExitCode::FAILURE;
    };
    let over = |config| arguments.over(config);
    match find_max(&arguments.search(words), over, &interrupt) {
        Ok(report) => ExitCode::from(exit_code(report.outcome)),
        Err(error) => {
            say(format_args!("error: {error}"));
            match error.is_of_arguments() {
                true => ExitCode::from(BAD_ARGUMENTS),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn exit_code(outcome: SearchOutcome) -> u8 {
    match outcome {
        SearchOutcome::Found | SearchOutcome::Limit => 0,
        SearchOutcome::NeverHeld => EXIT_THRESHOLD,
        SearchOutcome::GeneratorSaturated
        | SearchOutcome::NobodyConnected
        | SearchOutcome::Unsettled => 1,
        SearchOutcome::Interrupted => EXIT_INTERRUPTED,
    }
}

impl FindMaxArguments {
    fn search(&self, words: &[String]) -> Search {
        Search {
            scenario: self.scenario.clone(),
            sets: self.changes.sets(),
            key: self.key.clone(),
            from: self.from,
            most: self.max,
            growth: self.step.map_or(Growth::Factor(self.factor), Growth::Step),
            precision: self.precision,
            repeats: self.repeats,
            pause: self.pause,
            late_max: LATE_MAX,
            json: self.json.clone().map(Destination::from),
            html: self.html.clone(),
            language: self.lang.into(),
            command: Some(crate::command_line::shown(words)),
        }
    }

    /// A trial's run, with what the command line says of it.
    fn over(&self, mut config: Config) -> Config {
        self.machine.over(&mut config);
        config.reporting.server_pid = self.server_pid;
        config.reporting.server_metrics = self.server_metrics.clone();
        config.thresholds.extend(self.threshold.iter().cloned());
        config.abort_on_fail = self.abort_on_fail.or(config.abort_on_fail);
        config
    }
}
