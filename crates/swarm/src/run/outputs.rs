//! The end of a run: its report, to wherever it is wanted.

use super::watching::since_due;
use super::{Run, RunError, Times};
use crate::config::{Config, LiveStyle};
use crate::measure::series::Interval;
use crate::report::Report;
use crate::report::hlog::HistogramLog;
use crate::report::output::{Destination, Output};
use hdrhistogram::Histogram;
use myriad_layout::terminal_columns;
use myriad_report::{Line, Origin, Sample};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

/// Where the report is to be written, opened.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    json: Option<Output>,
    hgrm: Option<Output>,
    html: Option<Output>,
    samples: Option<BufWriter<File>>,
    hlog: Option<HistogramLog<BufWriter<File>>>,
}

impl Outputs {
    /// Opens whatever the configuration names.
    pub(super) fn open(config: &Config, started_unix_s: u64) -> Result<Self, RunError> {
        let reporting = &config.reporting;
        let hlog = |path: &PathBuf| {
            let log = HistogramLog::begin(create(path)?, started_unix_s);
            log.map_err(|error| unwritable(path, error))
        };
        let open = |destination: &Option<_>| destination.as_ref().map(Output::open).transpose();
        Ok(Self {
            json: open(&config.json)?,
            hgrm: open(&config.hgrm)?,
            html: open(&reporting.html.clone().map(Destination::File))?,
            samples: reporting.samples.as_deref().map(create).transpose()?,
            hlog: reporting.hlog.as_ref().map(hlog).transpose()?,
        })
    }

    /// Adds a line to the file of samples.
    pub(super) fn note(&mut self, sample: &Sample) {
        let Some(file) = &mut self.samples else {
            return;
        };
        let line = serde_json::to_string(sample).expect("samples have string keys");
        // Each line at once: whoever follows the file sees a whole one. A disk that is full ends the file, not the run.
        if writeln!(file, "{line}")
            .and_then(|()| file.flush())
            .is_err()
        {
            self.samples = None;
        }
    }

    /// Adds lines to the histogram log; a full disk ends it in the same way.
    pub(super) fn log(&mut self, intervals: &[Interval]) {
        let Some(log) = &mut self.hlog else {
            return;
        };
        if intervals.iter().try_for_each(|it| log.add(it)).is_err() {
            self.hlog = None;
        }
    }
}

/// A file that is written while the run goes on, empty.
fn create(path: &Path) -> Result<BufWriter<File>, RunError> {
    let file = File::create(path).map_err(|error| unwritable(path, error))?;
    Ok(BufWriter::new(file))
}

fn unwritable(path: &Path, error: io::Error) -> RunError {
    RunError::Write {
        path: path.to_owned(),
        error,
    }
}

impl Run<'_> {
    /// Writes the report to wherever it is wanted.
    pub(super) fn conclude(&mut self, report: &Report, times: &Times) -> Result<(), RunError> {
        for warning in &report.warnings {
            // Standard output's table shows them too; this is for whoever reads the events.
            if self.config.live == LiveStyle::Json {
                self.live.show(&Line::Warning {
                    message: warning.clone(),
                });
            }
        }
        self.live.finish();
        // All of them are tried, the table first: one that fails must not cost the others.
        let table = match self.config.closing_table {
            true => self.write_table(report),
            false => Ok(()),
        };
        let json = self.write_json(report);
        let hgrm = self.write_hgrm(report, times);
        let html = self.write_html(report);
        self.live.show(&Line::Done {
            outcome: report.outcome,
            went_wrong: report.went_wrong.clone(),
            elapsed_s: self.elapsed_s(),
        });
        table.and(json).and(hgrm).and(html)
    }

    /// Writes the table for people: to standard output, or to standard error where that carries something else.
    fn write_table(&self, report: &Report) -> Result<(), RunError> {
        let is_error = self.config.uses_standard_output();
        let text = |columns: Option<usize>| {
            // A file or a pipe has room for any line.
            crate::report::table::render(report, columns.unwrap_or(usize::MAX))
        };
        let (name, written) = if is_error {
            let mut out = io::stderr().lock();
            let text = text(terminal_columns(&out));
            ("standard error", out.write_all(text.as_bytes()))
        } else {
            let mut out = io::stdout().lock();
            let text = text(terminal_columns(&out));
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            ("standard output", written)
        };
        match written {
            // A reader that has seen enough, such as `head`, is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| RunError::Write {
                path: name.into(),
                error,
            }),
        }
    }

    fn write_json(&mut self, report: &Report) -> Result<(), RunError> {
        let Some(output) = &mut self.outputs.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(report).expect("reports have string keys");
        output.write((text + "\n").as_bytes())
    }

    fn write_html(&mut self, report: &Report) -> Result<(), RunError> {
        let Some(output) = &mut self.outputs.html else {
            return Ok(());
        };
        let page = crate::report::html::page(report, self.config.reporting.language);
        output.write(page.as_bytes())
    }

    fn write_hgrm(&mut self, report: &Report, times: &Times) -> Result<(), RunError> {
        let requests = self.requester.as_ref().map(|it| it.progress().trips.times);
        let flows = self.shared.flows.as_ref().map(|it| since_due(&it.sum()));
        let own = report
            .fanout
            .as_ref()
            .is_none_or(|fanout| fanout.origin == Origin::Own);
        let pushes = match own {
            true => &self.collector.own.times,
            false => &self.collector.foreign.times,
        };
        let Some(output) = &mut self.outputs.hgrm else {
            return Ok(());
        };
        let answered = match self.config.echo {
            Some(_) => "echo",
            None => "client_publish",
        };
        let all = [
            ("push", Some(pushes)),
            ("delivery", Some(&times.deliveries.times)),
            (answered, Some(&times.answered.times)),
            ("request", requests.as_ref()),
            ("flow", flows.as_ref()),
            ("held", Some(&times.held)),
            ("ping", Some(&times.pong)),
        ];
        let mut text = Vec::new();
        let (of, written) = first_measured(all).unwrap_or(("push", pushes));
        crate::report::hgrm::write(of, written, &mut text).expect("memory takes any text");
        output.write(&text)
    }
}

/// The first of these with anything in it, and what it is: a file has one distribution.
fn first_measured<'a>(
    all: [(&'static str, Option<&'a Histogram<u64>>); 7],
) -> Option<(&'static str, &'a Histogram<u64>)> {
    let mut measured = all.into_iter().filter_map(|(of, times)| Some((of, times?)));
    measured.find(|(_, times)| !times.is_empty())
}
