//! Two reports beside each other: what got worse, and by how much.

mod figures;

use crate::files::read_bounded;
use crate::report::Report;
use figures::{ALL, Better, Figure, Form, OF_FLOW};
use myriad_layout::{Cell, Column, Paint, Table, Tone, wrapped};
use myriad_report::FlowReport;
use std::fmt;
use std::path::{Path, PathBuf};

/// Largest file that is read as a report: 10,000 pushes take 5 MB.
const BYTES_MAX: u64 = 256 << 20;

/// Times that differ by less are the same: a scheduler's turn, not a server's.
const TIME_LEAST_MS: f64 = 0.1;

/// Settings that a run has of its own, and none that was asked for.
const OWN_SETTINGS: [&str; 2] = ["sources", "tables"];

/// Why a file is no report.
#[derive(Debug)]
pub enum ReportFileError {
    /// It cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// It is larger than any report.
    TooLarge(PathBuf),
    /// It is no JSON.
    NoJson(PathBuf, serde_json::Error),
    /// A field of it is missing, or has another type than reports of this version have.
    Malformed(PathBuf, serde_json::Error),
    /// It is JSON, and something else than a report.
    Foreign(PathBuf),
}

impl fmt::Display for ReportFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "give files that `myriad swarm --json FILE` has written";
        match self {
            Self::Unreadable(path, error) => write!(
                f,
                "{} cannot be read ({error}); check its name and permissions",
                path.display()
            ),
            Self::TooLarge(path) => write!(
                f,
                "{} has more than 256 MiB, which no report has; {ADVICE}",
                path.display()
            ),
            Self::NoJson(path, error) if error.is_eof() => write!(
                f,
                "{} is empty, or ends in the middle of a report; {ADVICE}",
                path.display()
            ),
            Self::NoJson(path, error) => write!(
                f,
                "{} is no JSON (line {}, column {}); {ADVICE}",
                path.display(),
                error.line(),
                error.column()
            ),
            Self::Malformed(path, error) => write!(
                f,
                "{} is a report of another form ({error}); write it with the version that reads it, {}",
                path.display(),
                env!("CARGO_PKG_VERSION")
            ),
            Self::Foreign(path) => write!(
                f,
                "{} is JSON, but no report of myriad swarm; {ADVICE}",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ReportFileError {}

/// Reads a report that `--json` has written.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read_report(path: &Path) -> Result<Report, ReportFileError> {
    let unreadable = |error| ReportFileError::Unreadable(path.to_owned(), error);
    let malformed = |error| ReportFileError::Malformed(path.to_owned(), error);
    let no_json = |error| ReportFileError::NoJson(path.to_owned(), error);
    let text = read_bounded(path, BYTES_MAX).map_err(unreadable)?;
    let text = text.ok_or_else(|| ReportFileError::TooLarge(path.to_owned()))?;
    let value: serde_json::Value = serde_json::from_slice(&text).map_err(no_json)?;
    if value.get("program").and_then(|name| name.as_str()) != Some("myriad swarm") {
        return Err(ReportFileError::Foreign(path.to_owned()));
    }
    serde_json::from_value(value).map_err(malformed)
}

/// How a figure changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Same,
    Better,
    Worse,
    /// It rests on too little: the change may be chance.
    TooFew,
    /// It has no better and no worse, or one of the reports lacks it.
    Unjudged,
}

/// One figure of both reports.
#[derive(Debug)]
struct Row {
    name: String,
    form: Form,
    before: Option<f64>,
    after: Option<f64>,
    change: Change,
}

impl Row {
    /// A figure of both; none where neither has it, or both have nothing of it.
    fn of<T>(
        figure: &Figure<T>,
        name: String,
        (one, other): (&T, &T),
        tolerance: f64,
    ) -> Option<Self> {
        let (before, after) = ((figure.of)(one), (figure.of)(other));
        let is_anywhere = before
            .or(after)
            .is_some_and(|_| before != Some(0.0) || after != Some(0.0));
        is_anywhere.then(|| Self {
            name,
            form: figure.form,
            before,
            after,
            change: match judge(figure.better, figure.form, (before, after), tolerance) {
                Change::Worse | Change::Better
                    if figure.is_chance(one) || figure.is_chance(other) =>
                {
                    Change::TooFew
                }
                change => change,
            },
        })
    }
}

/// Two reports beside each other.
#[derive(Debug)]
pub struct Comparison {
    names: [String; 2],
    rows: Vec<Row>,
    /// Settings that differ, in words.
    differences: Vec<String>,
    tolerance: f64,
}

impl Comparison {
    /// Compares two reports, by their names. A change by a share of at most `tolerance` is none.
    #[must_use]
    pub fn of(before: (&str, &Report), after: (&str, &Report), tolerance: f64) -> Self {
        let both = (before.1, after.1);
        let rows = ALL
            .iter()
            .filter_map(|figure| Row::of(figure, figure.name.to_owned(), both, tolerance));
        let of_flows = flows_of_both(both.0, both.1).flat_map(|flows| {
            let rows = OF_FLOW.iter().filter_map(move |figure| {
                let name = format!("{}: {}", flows.0.name, figure.name);
                Row::of(figure, name, flows, tolerance)
            });
            rows.collect::<Vec<_>>()
        });
        let mut differences = differences(both.0, both.1);
        differences.extend(differences_of_flows(before, after));
        Self {
            names: [before.0.to_owned(), after.0.to_owned()],
            rows: rows.chain(of_flows).collect(),
            differences,
            tolerance,
        }
    }

    /// Whether a figure got worse.
    #[must_use]
    pub fn got_worse(&self) -> bool {
        self.rows.iter().any(|row| row.change == Change::Worse)
    }

    /// The table, in lines of at most `columns` where its figures allow that.
    #[must_use]
    pub fn render(&self, columns: usize, paint: Paint) -> String {
        let mut table = Table::new(&[
            Column::TEXT,
            Column::NUMBER,
            Column::NUMBER,
            Column::NUMBER,
            Column::TEXT,
        ]);
        let [before, after] = self.names.clone();
        table.row(["figure", &before, &after, "change", ""]);
        for row in &self.rows {
            let shown = |value| row.form.shown(value);
            let verdict = match row.change {
                Change::Worse => Cell::toned("worse", Tone::Bad),
                Change::Better => Cell::toned("better", Tone::Good),
                Change::TooFew => Cell::toned("too few to tell", Tone::Faint),
                Change::Same | Change::Unjudged => Cell::from(""),
            };
            table.row([
                Cell::from(row.name.as_str()),
                Cell::from(shown(row.before)),
                Cell::from(shown(row.after)),
                Cell::from(change_of(row)),
                verdict,
            ]);
        }
        let mut text = table.draw(2, columns, paint);
        let mut sentence = |words: &str| {
            for line in wrapped(words, columns.saturating_sub(2).max(20)) {
                text.push_str(&format!("  {line}\n"));
            }
        };
        sentence("");
        if !self.differences.is_empty() {
            let list = self.differences.join("; ");
            sentence(&format!("The runs were not alike: {list}."));
        }
        sentence(&self.conclusion());
        text
    }

    fn conclusion(&self) -> String {
        let count = |change| self.rows.iter().filter(|row| row.change == change).count();
        let figures = |count: usize| match count {
            0 => "No figure".to_owned(),
            1 => "1 figure".to_owned(),
            many => format!("{many} figures"),
        };
        let few = match count(Change::TooFew) {
            0 => String::new(),
            1 => " 1 rests on too little to tell a change from chance: run for longer.".to_owned(),
            few => {
                format!(" {few} rest on too little to tell a change from chance: run for longer.")
            }
        };
        let is_lonely = |row: &&Row| row.before.is_some() != row.after.is_some();
        let lonely = match self.rows.iter().filter(is_lonely).count() {
            0 => String::new(),
            1 => " 1 is in one of the reports only, and was not compared.".to_owned(),
            many => format!(" {many} are in one of the reports only, and were not compared."),
        };
        format!(
            "{} got worse by more than {}%, {} better.{few}{lonely}",
            figures(count(Change::Worse)),
            (self.tolerance * 1e4).round() / 100.0,
            count(Change::Better)
        )
    }
}

/// The flows that both reports have by name, in the order of the first.
fn flows_of_both<'a>(
    before: &'a Report,
    after: &'a Report,
) -> impl Iterator<Item = (&'a FlowReport, &'a FlowReport)> {
    let flows = before.flows.iter();
    flows.filter_map(|one| Some((one, flow_of(after, &one.name)?)))
}

fn flow_of<'a>(report: &'a Report, name: &str) -> Option<&'a FlowReport> {
    report.flows.iter().find(|flow| flow.name == name)
}

fn judge(
    better: Better,
    form: Form,
    (before, after): (Option<f64>, Option<f64>),
    tolerance: f64,
) -> Change {
    let (Some(before), Some(after)) = (before, after) else {
        return Change::Unjudged;
    };
    let worse = match better {
        Better::Neither => return Change::Unjudged,
        Better::Lower => after - before,
        Better::Higher => before - after,
    };
    let is_tiny = matches!(form, Form::Time) && worse.abs() < TIME_LEAST_MS;
    // From nothing, any change is one.
    let is_same = worse.abs() <= before.abs() * tolerance;
    match worse {
        _ if is_tiny || is_same => Change::Same,
        worse if worse > 0.0 => Change::Worse,
        _ => Change::Better,
    }
}

/// `+12.3%`; a difference of two shares in points.
fn change_of(row: &Row) -> String {
    let (Some(before), Some(after)) = (row.before, row.after) else {
        return "-".to_owned();
    };
    let difference = after - before;
    if difference == 0.0 {
        return "0%".to_owned();
    }
    if matches!(row.form, Form::Share) {
        return format!("{:+.2} pp", difference * 100.0);
    }
    if before == 0.0 {
        return "new".to_owned();
    }
    let change = difference / before * 100.0;
    if change.abs() < 1_000.0 {
        format!("{change:+.1}%")
    } else {
        format!("x{:.0}", after / before)
    }
}

/// What was asked for differently.
fn differences(before: &Report, after: &Report) -> Vec<String> {
    let settings = |report: &Report| {
        serde_json::to_value(&report.settings).expect("settings have string keys")
    };
    let (before, after) = (settings(before), settings(after));
    let fields = before.as_object().expect("settings are an object");
    let shown = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "none".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(list) if list.len() > 1 => format!("{} of them", list.len()),
        other => other.to_string(),
    };
    let differs = fields.iter().filter_map(|(name, one)| {
        let other = &after[name];
        let differs = one != other && !OWN_SETTINGS.contains(&name.as_str());
        differs.then(|| format!("{name} {} and {}", shown(one), shown(other)))
    });
    differs.collect()
}

/// Flows that one of the runs did not have, and those that were asked for at another rate or with another time to think.
fn differences_of_flows(before: (&str, &Report), after: (&str, &Report)) -> Vec<String> {
    let only = |(name, report): (&str, &Report), other: &Report| {
        let flows = report.flows.iter();
        let lonely = flows.filter(|flow| flow_of(other, &flow.name).is_none());
        let said = lonely.map(|flow| format!("the flow {} only in {name}", flow.name));
        said.collect::<Vec<_>>()
    };
    let mut all = only(before, after.1);
    all.extend(only(after, before.1));
    let rates = flows_of_both(before.1, after.1).filter_map(|(one, other)| {
        let (rate, other) = (Form::Rate.shown(one.rate_per_s), other.rate_per_s);
        let differs = one.rate_per_s != other;
        let other = Form::Rate.shown(other);
        differs.then(|| format!("the rate of the flow {} {rate} and {other}", one.name))
    });
    all.extend(rates);
    let thinking = flows_of_both(before.1, after.1).filter_map(|(one, other)| {
        let of = |flow: &FlowReport| flow.think.clone().unwrap_or_else(|| "none".to_owned());
        let differs = one.think != other.think;
        differs.then(|| {
            format!(
                "the time to think of the flow {} {} and {}",
                one.name,
                of(one),
                of(other)
            )
        })
    });
    all.extend(thinking);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;
    use myriad_report::RoundTripReport;

    fn compared(change: impl FnOnce(&mut Report)) -> Comparison {
        let mut before = report();
        before.setup.elapsed_s = 4.0;
        let mut after = before.clone();
        change(&mut after);
        Comparison::of(("A", &before), ("B", &after), 0.05)
    }

    fn changes(comparison: &Comparison) -> Vec<(&str, Change)> {
        let rows = comparison.rows.iter();
        let judged = rows.filter(|row| matches!(row.change, Change::Worse | Change::Better));
        judged.map(|row| (row.name.as_str(), row.change)).collect()
    }

    #[test]
    fn the_same_run_twice_is_no_change() {
        let comparison = compared(|_| {});
        assert!(!comparison.got_worse());
        assert_eq!(changes(&comparison), []);
        let text = comparison.render(100, Paint::Plain);
        let said = "No figure got worse by more than 5%, 0 better.";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn what_one_report_does_not_have_is_said_not_to_be_compared() {
        let comparison = compared(|report| report.fanout = None);
        assert!(!comparison.got_worse());
        let text = comparison.render(200, Paint::Plain);
        assert!(
            text.contains("are in one of the reports only, and were not compared."),
            "{text}"
        );
    }

    #[test]
    fn slower_fewer_and_more_errors_are_worse() {
        let comparison = compared(|report| {
            report.fanout.as_mut().unwrap().overall.p99_ms = Some(150.0);
            report.setup.rate_per_s *= 2.0;
            report.errors.insert("refused".to_owned(), 1);
            report.settings.connections = 2_000;
        });
        assert_eq!(
            changes(&comparison),
            [
                ("clients connected a second", Change::Better),
                ("errors", Change::Worse),
                ("pushes: p99", Change::Worse),
            ]
        );
        let text = comparison.render(100, Paint::Plain);
        assert!(text.contains("connections 1000 and 2000"), "{text}");
        assert!(
            text.contains("+33.9%") && text.contains("2 figures got worse by more than 5%"),
            "{text}"
        );
    }

    #[test]
    fn what_did_not_come_is_missing_as_in_the_table() {
        let comparison = compared(|report| report.messages.missed = 5);
        assert_eq!(changes(&comparison), [("messages missing", Change::Worse)]);
    }

    fn flow(name: &str) -> FlowReport {
        let times = |p99| myriad_report::RoundTripTimes {
            p50: Some(1.0),
            p99: Some(p99),
            ..myriad_report::RoundTripTimes::default()
        };
        FlowReport {
            name: name.to_owned(),
            rate_per_s: Some(100.0),
            sent: 1000,
            expected: 5000,
            received: 5000,
            received_per_s: 500.0,
            since_due_ms: times(20.0),
            since_sent_ms: times(19.0),
            ..FlowReport::default()
        }
    }

    #[test]
    fn each_flow_is_compared_by_its_name() {
        let mut before = report();
        before.flows = vec![flow("chat"), flow("posts"), flow("old")];
        let mut after = before.clone();
        after.flows[0].received = 4900;
        after.flows[0].missing = 100;
        after.flows[0].since_sent_ms.p99 = Some(30.0);
        after.flows[1].since_due_ms.p99 = Some(10.0);
        after.flows[1].rate_per_s = Some(200.0);
        after.flows[2] = flow("new");
        after.flows.swap(0, 1);
        let comparison = Comparison::of(("A", &before), ("B", &after), 0.01);
        assert_eq!(
            changes(&comparison),
            [
                ("chat: reach", Change::Worse),
                ("chat: missing", Change::Worse),
                ("chat: since sent: p99", Change::Worse),
                ("posts: since due: p99", Change::Better),
            ]
        );
        let text = comparison.render(200, Paint::Plain);
        assert!(
            text.contains("the flow old only in A; the flow new only in B"),
            "{text}"
        );
        assert!(
            text.contains("the rate of the flow posts 100/s and 200/s"),
            "{text}"
        );
        assert!(!text.contains("old: sent"), "{text}");
    }

    #[test]
    fn a_change_of_what_rests_on_little_is_chance() {
        let mut before = report();
        before.flows = vec![flow("chat")];
        let mut after = before.clone();
        // Of 999 times, nine lie beyond the 99th percentile.
        after.flows[0].received = 999;
        after.flows[0].since_due_ms.p99 = Some(40.0);
        let comparison = Comparison::of(("A", &before), ("B", &after), 0.9);
        assert_eq!(changes(&comparison), []);
        assert!(!comparison.got_worse());
        let text = comparison.render(200, Paint::Plain);
        assert!(text.contains("too few to tell"), "{text}");
        assert!(
            text.contains("1 rests on too little to tell a change from chance"),
            "{text}"
        );
    }

    #[test]
    fn what_one_run_did_not_measure_is_not_judged() {
        let comparison = compared(|report| report.echo = Some(RoundTripReport::default()));
        assert_eq!(changes(&comparison), []);
    }

    #[test]
    fn a_hair_is_no_change() {
        let comparison = compared(|report| {
            let times = &mut report.fanout.as_mut().unwrap().overall;
            times.p99_ms = Some(113.0);
            times.first_ms = Some(0.45);
        });
        assert_eq!(changes(&comparison), []);
    }

    #[test]
    fn what_is_no_report_is_named() {
        let folder = std::env::temp_dir().join(format!("myriad-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let error_of = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            read_report(&path).unwrap_err().to_string()
        };
        assert!(error_of("a.json", "{").contains("a.json is empty, or ends in the middle"));
        let table = error_of("t.json", "  figure  A  B");
        assert!(
            table.contains("t.json is no JSON (line 1, column 4); give files"),
            "{table}"
        );
        assert!(error_of("b.json", "{}").contains("b.json is JSON, but no report"));
        let wrong = error_of("c.json", r#"{"program":"myriad swarm","setup":7}"#);
        assert!(wrong.contains("invalid type"), "{wrong}");
        let missing = read_report(&folder.join("none.json")).unwrap_err();
        assert!(missing.to_string().contains("none.json cannot be read"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
