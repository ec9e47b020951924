//! A capacity search: runs a scenario again and again with another value of one key, until the largest is known at which its
//! thresholds hold.
//!
//! * `bisection`: which value comes next;
//! * `pause`: the time between two trials;
//! * `shown`: lines, table and page.

mod bisection;
mod page;
mod pause;
mod shown;

pub use bisection::Growth;

use crate::config::{Config, LiveStyle};
use crate::interrupt::Interrupt;
use crate::report::generator::is_limit;
use crate::report::output::{Destination, Output};
use crate::report::reporting::Language;
use crate::run::{RunError, run};
use crate::scenario::{COUNT_KEY, Scenario, ScenarioError, nearest_key};
use bisection::{Bisection, Bounds, Next};
use myriad_report::{
    GeneratorCheck, Knee, Outcome, Purpose, Report, SearchOutcome, SearchReport, Trial, Unit,
};
use myriad_units::parse;
use pause::Quiet;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The check of the generator that fails a search only together with a threshold: a crowd that is busy while everything holds,
/// and in time, measured the server all the same.
const BUSY: &str = "cpu";

/// What is searched.
#[derive(Clone, Debug)]
pub struct Search {
    /// The file of the scenario.
    pub scenario: PathBuf,
    /// `KEY=VALUE` each, as with a run.
    pub sets: Vec<String>,
    /// The key whose value is searched: a count or a rate, such as `terminals.count` or `flows.NAME.rate`.
    pub key: String,
    /// The first value; none: the scenario's.
    pub from: Option<f64>,
    /// The largest value; none: no bound.
    pub most: Option<f64>,
    /// How the value grows.
    pub growth: Growth,
    /// Largest distance between the knee and what failed, as a share of the knee.
    pub precision: f64,
    /// Times that the knee is repeated.
    pub repeats: u32,
    /// Least time between two trials.
    pub pause: Duration,
    /// Lateness of a schedule or length of a turn past which the load of a trial was not what was asked for, so that the search ends.
    pub late_max: Duration,
    /// Where the report goes.
    pub json: Option<Destination>,
    /// Where the page goes.
    pub html: Option<PathBuf>,
    /// Its language.
    pub language: Language,
    /// The command line, without what is secret.
    pub command: Option<String>,
}

/// Why a search has no report.
#[derive(Debug)]
pub enum SearchError {
    /// The scenario cannot be used, or one of the trials' values makes it unusable.
    Scenario(ScenarioError),
    /// The scenario has nothing at the key, and no first value is given.
    NoValue(String),
    /// What it has there is no count and no rate: the key and the text.
    NoNumber(String, String),
    /// Nothing can fail.
    NoThreshold,
    /// A value is out of range: the option, and what is allowed.
    Range(&'static str, &'static str),
    /// A trial could not be begun or finished, or the report cannot be written.
    Run(RunError),
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::NoValue(key) => match nearest_key(key) {
                Some(nearest) => write!(f, "the scenario has no {key}; did you mean {nearest}?"),
                None => write!(
                    f,
                    "the scenario has no {key}; give --from VALUE, or another --key (docs/scenarios.md has the keys)"
                ),
            },
            Self::NoNumber(key, text) => write!(
                f,
                "{key} is '{text}', which is no count and no rate; give another --key, such as terminals.count"
            ),
            Self::NoThreshold => f.write_str(
                "without a threshold nothing can fail; give --threshold, such as --threshold 'echo:p99<50ms'",
            ),
            Self::Range(option, allowed) => write!(f, "{option} is out of range; give {allowed}"),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SearchError {}

impl From<RunError> for SearchError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl SearchError {
    /// Whether it is the fault of what was asked for.
    #[must_use]
    pub fn is_of_arguments(&self) -> bool {
        !matches!(self, Self::Run(_))
    }
}

/// Searches, and writes the report to wherever it is wanted. `over` puts the options of the command line over each trial's run.
///
/// # Errors
/// The search cannot be begun, a trial fails for another reason than a threshold, or the report cannot be written.
pub fn find_max(
    search: &Search,
    over: impl Fn(Config) -> Config,
    interrupt: &Interrupt,
) -> Result<SearchReport, SearchError> {
    let scenario = Scenario::load(&search.scenario, &search.sets).map_err(SearchError::Scenario)?;
    let (from, unit) = first_value(search, &scenario)?;
    let bounds = bounds(search, from, unit)?;
    let key = match search.key == COUNT_KEY {
        true => scenario.count_key(),
        false => search.key.clone(),
    };
    let config = over(scenario.config);
    if config.thresholds.is_empty() {
        return Err(SearchError::NoThreshold);
    }
    let open = |destination: &Option<_>| destination.as_ref().map(Output::open).transpose();
    let json = open(&search.json)?;
    let html = open(&search.html.clone().map(Destination::File))?;
    let begun = Instant::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut under_way = UnderWay {
        search,
        over: &over,
        interrupt,
        key,
        begun,
        quiet: Quiet::before(&config, search.pause),
        bisection: Bisection::new(bounds),
        last: None,
        report: SearchReport {
            program: "myriad swarm find-max".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_s: since.map_or(0, |since| since.as_secs()),
            scenario: search.scenario.display().to_string(),
            description: config.about.description.clone(),
            command: search.command.clone(),
            targets: config.targets.iter().map(|it| it.url.clone()).collect(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: crate::machine::kernel(),
            key: search.key.clone(),
            unit,
            precision: search.precision,
            repeats: search.repeats,
            thresholds: config
                .thresholds
                .iter()
                .map(|it| it.expression.clone())
                .collect(),
            ..SearchReport::default()
        },
    };
    let outcome = under_way.make_trials()?;
    let mut report = under_way.concluded(outcome);
    report.elapsed_s = begun.elapsed().as_secs_f64();
    shown::write(&report, search, json, html)?;
    Ok(report)
}

/// The first value, and what it is.
fn first_value(search: &Search, scenario: &Scenario) -> Result<(f64, Unit), SearchError> {
    let key = &search.key;
    let written = scenario.value_of(key);
    let says_rate = |text: &String| text.trim_end().ends_with("/s");
    let says_rate = written.as_ref().is_some_and(says_rate);
    let unit = match says_rate || key.ends_with("rate") {
        true => Unit::PerSecond,
        false => Unit::Count,
    };
    if let Some(from) = search.from {
        return Ok((from, unit));
    }
    let text = written.ok_or_else(|| SearchError::NoValue(key.clone()))?;
    let value = parse::rate(&text).map_err(|_| SearchError::NoNumber(key.clone(), text))?;
    Ok((value, unit))
}

fn bounds(search: &Search, from: f64, unit: Unit) -> Result<Bounds, SearchError> {
    let most = search.most.unwrap_or(match unit {
        Unit::Count => f64::from(u32::MAX),
        _ => crate::config::LOAD_RATE_MAX,
    });
    if most < from {
        return Err(SearchError::Range("--max", "at least the first value"));
    }
    if !(0.001..=1.0).contains(&search.precision) {
        return Err(SearchError::Range("--precision", "0.1% to 100%"));
    }
    match search.growth {
        Growth::Factor(factor) if !(1.01..=1000.0).contains(&factor) => {
            return Err(SearchError::Range("--factor", "1.01 to 1000"));
        }
        _ => {}
    }
    if search.repeats > 50 {
        return Err(SearchError::Range("--repeats", "0 to 50"));
    }
    Ok(Bounds {
        unit,
        from,
        most,
        growth: search.growth,
        precision: search.precision,
        repeats: search.repeats,
    })
}

/// A search under way.
struct UnderWay<'a, F> {
    search: &'a Search,
    over: &'a F,
    interrupt: &'a Interrupt,
    /// What is changed for a trial: the key, or the variable that it is.
    key: String,
    begun: Instant,
    quiet: Quiet,
    bisection: Bisection,
    /// The report of the last trial at the largest value that held.
    last: Option<(f64, Report)>,
    report: SearchReport,
}

impl<F: Fn(Config) -> Config> UnderWay<'_, F> {
    /// Makes trials until it is known why to stop.
    fn make_trials(&mut self) -> Result<SearchOutcome, SearchError> {
        loop {
            let (value, purpose) = match self.bisection.next() {
                Next::Try(value, purpose) => (value, purpose),
                Next::Knee(_) if self.bisection.failed().is_none() => {
                    return Ok(SearchOutcome::Limit);
                }
                Next::Knee(_) => return Ok(SearchOutcome::Found),
                Next::NeverHeld => return Ok(SearchOutcome::NeverHeld),
                Next::Unsettled => return Ok(SearchOutcome::Unsettled),
            };
            let left_over = match self.report.trials.is_empty() {
                true => 0,
                false => self.quiet.wait(self.interrupt),
            };
            if self.interrupt.is_made() {
                return Ok(SearchOutcome::Interrupted);
            }
            let began = self.begun.elapsed();
            let report = self.run(value)?;
            if report.outcome == Outcome::Interrupted {
                return Ok(SearchOutcome::Interrupted);
            }
            let mut trial = trial(value, purpose, &report);
            trial.left_over = left_over;
            trial.began_s = began.as_secs_f64();
            trial.saturated = saturated(&report, self.search.late_max);
            shown::progress(&self.report, &trial);
            let stops = stop(&trial, &report, self.bisection.held().is_none());
            let held = trial.held;
            self.report.trials.push(trial);
            if let Some(outcome) = stops {
                return Ok(outcome);
            }
            self.bisection.note(value, held);
            if held {
                self.last = Some((value, report));
            }
        }
    }

    /// One run at a value.
    fn run(&self, value: f64) -> Result<Report, SearchError> {
        let mut sets = self.search.sets.clone();
        sets.push(set(&self.key, value, self.report.unit));
        let path = &self.search.scenario;
        let scenario = Scenario::load(path, &sets).map_err(SearchError::Scenario)?;
        let mut config = (self.over)(scenario.config.clone());
        config.live = LiveStyle::Off;
        config.closing_table = false;
        run(&config, self.interrupt).map_err(|error| match error {
            RunError::Config(error) => SearchError::Scenario(scenario.explain(error)),
            error => SearchError::Run(error),
        })
    }

    /// The report, when the reason to stop is known.
    fn concluded(mut self, outcome: SearchOutcome) -> SearchReport {
        self.report.outcome = outcome;
        if let Some(value) = self.bisection.held() {
            let of_value = |trial: &&Trial| close(trial.value, value);
            let trials = self.report.trials.iter().filter(of_value);
            let held = trials.clone().filter(|trial| trial.held).count();
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let last = self.last.take().filter(|(at, _)| close(*at, value));
            self.report.knee = Some(Knee {
                value,
                failed_at: self.bisection.failed(),
                trials: count(trials.count()),
                held: count(held),
                report: Box::new(last.map(|(_, report)| report).unwrap_or_default()),
            });
        }
        self.report.summary = shown::summary(&self.report, Language::English);
        self.report
    }
}

/// Whether two values are the same: they come from the same rounding.
fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs()
}

/// What the scenario's key is changed to.
fn set(key: &str, value: f64, unit: Unit) -> String {
    match unit {
        Unit::PerSecond => format!("{key}={value}/s"),
        _ => format!("{key}={value}"),
    }
}

/// Checks of the generator that failed.
fn saturated(report: &Report, late_max: Duration) -> Vec<String> {
    let late_max_ms = late_max.as_secs_f64() * 1000.0;
    let failed = |check: &&GeneratorCheck| match check.unit {
        Unit::Milliseconds => check.value > late_max_ms,
        _ => is_limit(check),
    };
    let checks = report.generator.checks.iter().filter(failed);
    checks.map(|check| check.of.clone()).collect()
}

fn trial(value: f64, purpose: Purpose, report: &Report) -> Trial {
    Trial {
        value,
        purpose,
        held: report.outcome == Outcome::Finished,
        saturated: Vec::new(),
        began_s: 0.0,
        elapsed_s: report.elapsed_s,
        connected: report.setup.connected,
        thresholds: report.thresholds.clone(),
        errors: report.errors.clone(),
        went_wrong: report.went_wrong.clone(),
        left_over: 0,
    }
}

/// Why a trial ends the search, whatever the bisection would try next.
fn stop(trial: &Trial, report: &Report, is_first: bool) -> Option<SearchOutcome> {
    let was_late = trial.saturated.iter().any(|check| check != BUSY);
    if was_late || (!trial.held && !trial.saturated.is_empty()) {
        return Some(SearchOutcome::GeneratorSaturated);
    }
    let nobody = report.outcome == Outcome::NobodyConnected;
    (nobody && is_first).then_some(SearchOutcome::NobodyConnected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_scenarios_have_them() {
        assert_eq!(
            set("terminals.count", 12_345.0, Unit::Count),
            "terminals.count=12345"
        );
        assert_eq!(
            set("echo.rate", 123.4, Unit::PerSecond),
            "echo.rate=123.4/s"
        );
    }

    #[test]
    fn how_late_a_generator_may_be_is_the_searchs() {
        let check = |of: &str, unit, value, passed| GeneratorCheck {
            of: of.to_owned(),
            value,
            limit: 100.0,
            unit,
            passed,
        };
        let mut report = Report::default();
        report.generator.checks = vec![
            check("turn", Unit::Milliseconds, 150.0, false),
            check("machine_cpu", Unit::Ratio, 1.0, false),
            check("ports", Unit::Count, 200.0, false),
        ];
        let of = |millis| saturated(&report, Duration::from_millis(millis));
        assert_eq!(of(100), ["turn", "ports"]);
        assert_eq!(of(150), ["ports"]);
    }

    #[test]
    fn a_busy_crowd_ends_a_search_only_when_something_fails() {
        let report = Report::default();
        let of = |held: bool, saturated: &[&str]| {
            let trial = Trial {
                held,
                saturated: saturated.iter().map(ToString::to_string).collect(),
                ..Trial::default()
            };
            stop(&trial, &report, true)
        };
        assert_eq!(of(true, &[]), None);
        assert_eq!(of(false, &[]), None);
        assert_eq!(of(true, &["cpu"]), None);
        assert_eq!(of(false, &["cpu"]), Some(SearchOutcome::GeneratorSaturated));
        assert_eq!(
            of(true, &["ports"]),
            Some(SearchOutcome::GeneratorSaturated)
        );
    }

    #[test]
    fn a_key_of_a_flow_is_found_by_its_name() {
        let text = "[variables]\nrate = \"40\"\n[terminals]\ncount = 5_000\ntargets = [\"ws://127.0.0.1:1/\"]\n\
                    [[flows]]\nname = \"chat\"\nrate = \"${rate}/s\"\nsend = \"${stamp}\"\n";
        let parse = |sets: &[String]| Scenario::parse("s.toml".as_ref(), text, sets).unwrap();
        let scenario = parse(&[]);
        assert_eq!(
            scenario.value_of("terminals.count").as_deref(),
            Some("5000")
        );
        assert_eq!(
            scenario.value_of("flows.chat.rate").as_deref(),
            Some("40/s")
        );
        assert_eq!(scenario.value_of("flows.other.rate"), None);
        let changed = parse(&["flows.chat.rate=70/s".to_owned()]);
        let rate = changed.config.flows.unwrap().flows[0]
            .pace
            .rate_per_s()
            .unwrap();
        assert!(close(rate, 70.0));
    }
}
