//! The report of a run.

use crate::crowd::Arrival;
use crate::figures::{Column, Measured, Summary, TOO_SMALL, compare};
use crate::largest::Largest;
use crate::manifest::Transport;
use crate::server::descriptors_max;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a report's `program` says.
pub(crate) const PROGRAM: &str = "myriad arena";

/// The whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `myriad arena`.
    pub program: String,
    /// The version of `myriad`.
    pub version: String,
    /// Seconds since 1970.
    pub started_unix_s: u64,
    /// Whether it was stopped before its end; the figures are those so far.
    pub interrupted: bool,
    /// The machine of the run.
    pub machine: Machine,
    /// The settings of the run, the same for all contestants.
    pub settings: Settings,
    /// The contestants, in the order of the manifest.
    pub contestants: Vec<Row>,
}

impl Report {
    /// Reads what a run has written.
    ///
    /// # Errors
    /// A sentence that says which field is wrong.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let mut fields = serde_json::Deserializer::from_str(text);
        let mut report: Self = serde_path_to_error::deserialize(&mut fields).map_err(|error| {
            let path = error.path().to_string();
            format!(
                "not a report of `{PROGRAM} --json`: {path}: {}",
                error.inner()
            )
        })?;
        if report.program != PROGRAM {
            return Err(format!(
                "not a report of `{PROGRAM} --json`: program is `{}`",
                report.program
            ));
        }
        // Whoever took contestants out of the file may have taken the best.
        report.compare();
        Ok(report)
    }

    /// Fills in how each figure compares with the best of its column.
    pub(crate) fn compare(&mut self) {
        let rows = self.contestants.iter_mut();
        compare(
            &mut rows
                .map(|row| &mut row.figures.summaries)
                .collect::<Vec<_>>(),
        );
    }
}

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model, as the kernel names it.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// All memory of the machine.
    pub memory_bytes: f64,
    /// The kernel's release.
    pub kernel: String,
    /// Descriptors that one process may have: the hard RLIMIT_NOFILE.
    pub descriptors_max: u64,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let kernel = rustix::system::uname();
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
        let memory_bytes = myriad_usage::total_bytes().map_or(0.0, |bytes| bytes as f64);
        Self {
            processor: myriad_usage::processor_model().unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes,
            kernel: kernel.release().to_string_lossy().into_owned(),
            descriptors_max: descriptors_max(),
        }
    }
}

/// The settings of the run, the same for all contestants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Connections of the whole crowd.
    pub connections: u64,
    /// Rounds asked for.
    pub rounds: u32,
    /// Pushes in each round.
    pub pushes: u64,
    /// Seconds from one push to the next.
    pub push_every_s: f64,
    /// Seconds from the last connection to the first push.
    pub idle_s: f64,
    /// Connections of the crowd that sends echoes.
    pub echo_connections: u64,
    /// Echoes a second, over all of these connections.
    pub echo_rate_per_s: f64,
    /// Seconds for which echoes are sent.
    pub echo_duration_s: f64,
    /// Connections to each process for requests, beside the whole crowd.
    pub request_connections: u64,
    /// Requests a second, over all of these connections.
    pub request_rate_per_s: f64,
    /// Seconds for which requests are sent.
    pub request_duration_s: f64,
    /// The largest size of the search for the largest crowd; none without a search.
    pub largest_max: Option<u64>,
    /// How the crowd was held over HTTP; none for WebSockets, and in reports of earlier versions.
    pub held: Option<Transport>,
    /// Whether everything went over TLS; not in reports of earlier versions, whose runs had none.
    #[serde(default)]
    pub tls: bool,
}

/// One contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its name in the manifest.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// The language it is written in.
    pub language: String,
    /// `websocket`, `longpoll`, `tcp` or `held`.
    pub kind: String,
    /// The version of its framework.
    pub version: Option<String>,
    /// Whether it did everything asked of it in every round.
    pub ok: bool,
    /// Why it did not.
    pub reason: Option<String>,
    /// Rounds that it completed.
    pub rounds: u32,
    /// Processes that held the crowd.
    pub processes: Option<u64>,
    /// Seconds of the build; none if it was not built.
    pub build_s: Option<f64>,
    /// Seconds from the start of the processes to the last one's first answer.
    pub ready_s: Option<f64>,
    /// Medians over the rounds, by their keys; and `over_rounds`, the same with their spread and the ratio to the best.
    #[serde(flatten)]
    pub(crate) figures: Measured,
    /// Errors by kind, over all rounds.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// The largest crowd, where it was looked for.
    pub largest: Option<Largest>,
    /// Columns without a figure, and other things to know.
    pub notes: Vec<String>,
    /// The share of the last round's deliveries that had arrived by each time.
    pub arrivals: Vec<Arrival>,
}

impl Row {
    pub(crate) fn summary(&self, column: Column) -> Option<&Summary> {
        self.figures.summaries.get(&column)
    }

    /// Why a column has no figure; none if it was not measured at all.
    pub(crate) fn why_unmeasured(&self, column: Column) -> Option<&'static str> {
        let too_small = self.figures.too_small.contains(&column);
        too_small.then_some(TOO_SMALL)
    }
}

/// An example with three contestants: one did well, one lost a message, one was never built. For tests.
#[cfg(test)]
pub(crate) fn example() -> Report {
    use crate::figures::{Figures, summarize};
    let row = |name: &str, title: &str, rounds: &[Figures]| Row {
        name: name.to_owned(),
        title: title.to_owned(),
        language: "c".to_owned(),
        kind: "websocket".to_owned(),
        version: None,
        ok: false,
        reason: None,
        rounds: 1,
        processes: Some(1),
        build_s: Some(1.5),
        ready_s: Some(0.2),
        figures: summarize(rounds),
        errors_by_kind: BTreeMap::new(),
        largest: None,
        notes: Vec::new(),
        arrivals: Vec::new(),
    };
    let round = |bytes: f64, last_ms: f64| {
        Figures::from([
            (Column::UserBytesPerConnection, bytes),
            (Column::PushLastMs, last_ms),
        ])
    };
    let mut quick = row("quick", "Quick", &[round(90.0, 5.0), round(110.0, 5.0)]);
    quick.version = Some("1.2".to_owned());
    quick.ok = true;
    quick.arrivals = [(1.0, 0.0), (2.5, 0.5), (5.0, 1.0)]
        .map(|(ms, share)| Arrival { ms, share })
        .into();
    let mut slow = row("slow", "Slow", &[round(250.0, 50.0)]);
    slow.reason = Some("pushes: push 1 reached 7 of 8".to_owned());
    let mut broken = row("broken", "Broken", &[]);
    broken.reason = Some("build: `make` ended (exit status: 2): error: no rule".to_owned());
    let mut report = Report {
        program: PROGRAM.to_owned(),
        version: "0.0.0".to_owned(),
        started_unix_s: 0,
        interrupted: false,
        machine: Machine {
            processor: "A <processor>".to_owned(),
            cores: 2,
            memory_bytes: 1e9,
            kernel: "6.8".to_owned(),
            descriptors_max: 20_000,
        },
        settings: Settings {
            connections: 8,
            rounds: 2,
            pushes: 1,
            push_every_s: 2.0,
            idle_s: 1.0,
            echo_connections: 8,
            echo_rate_per_s: 200.0,
            echo_duration_s: 5.0,
            request_connections: 64,
            request_rate_per_s: 100.0,
            request_duration_s: 5.0,
            largest_max: None,
            held: None,
            tls: false,
        },
        contestants: vec![quick, slow, broken],
    };
    report.compare();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let written = serde_json::to_value(example()).unwrap();
        let read = Report::from_json(&written.to_string()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), written);
        // As a version without it wrote it.
        let mut older = written;
        older["settings"].as_object_mut().unwrap().remove("tls");
        assert!(!Report::from_json(&older.to_string()).unwrap().settings.tls);
    }

    #[test]
    fn what_is_no_report_is_refused_with_the_field() {
        let refused = |text: &str| Report::from_json(text).unwrap_err();
        let mut json = serde_json::to_value(example()).unwrap();
        json["settings"]["rounds"] = "two".into();
        let why = refused(&json.to_string());
        assert!(why.contains("settings.rounds"), "{why}");
        json = serde_json::to_value(example()).unwrap();
        json["program"] = "myriad swarm".into();
        let why = refused(&json.to_string());
        assert!(why.contains("program is `myriad swarm`"), "{why}");
        assert!(refused("{").contains("not a report"));
    }

    #[test]
    fn a_row_has_its_figures_under_their_keys() {
        let json = serde_json::to_value(example()).unwrap();
        let quick = &json["contestants"][0];
        assert_eq!(quick["user_bytes_per_connection"], 100.0);
        let over_rounds = &quick["over_rounds"]["user_bytes_per_connection"];
        assert_eq!(over_rounds["min"], 90.0);
        assert_eq!(over_rounds["rounds"], 2);
        assert_eq!(
            json["contestants"][1]["over_rounds"]["push_last_ms"]["ratio_to_best"],
            10.0
        );
        let broken = &json["contestants"][2];
        assert_eq!(broken["ok"], false);
        assert!(broken["reason"].as_str().unwrap().contains("no rule"));
    }
}
