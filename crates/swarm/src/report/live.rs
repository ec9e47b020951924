//! What a run shows while it goes on.
//!
//! With `--live json`, standard output carries the lines of `myriad_report`.

use crate::config::LiveStyle;
use crate::measure::rates::Peak;
use crate::measure::round_trip::Counts;
use crate::report::dashboard::{self, Dashboard};
use crate::report::table::kinds;
use crate::report::text;
use myriad_report::{Line, Origin, Phase, Progress, PushReport, RoundTripProgress, Sample};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// What came back so far of what was sent.
pub(crate) fn round_trip_progress(counts: &Counts, received: &Peak) -> RoundTripProgress {
    RoundTripProgress {
        sent: counts.sent - counts.departed,
        received: counts.received,
        lost: counts.lost,
        errors: counts.errors,
        received_per_s: received.latest(),
    }
}

/// The same in words, where it has begun.
fn describe(trips: &RoundTripProgress, name: &str) -> Option<String> {
    if trips.sent == 0 {
        return None;
    }
    let mut line = format!("  {name} {}", text::rate(trips.received_per_s));
    for (kind, count) in [("lost", trips.lost), ("wrong", trips.errors)] {
        if count > 0 {
            line.push_str(&format!(", {} {kind}", text::count(count)));
        }
    }
    Some(line)
}

/// Shows events in one of several styles.
#[derive(Debug)]
pub(crate) struct Live {
    style: Style,
    last_progress: Option<Duration>,
    /// Whether the cursor stands behind a line that is to be rewritten.
    line_open: bool,
    dashboard: Option<Dashboard>,
    /// What was shown on the dashboard and must be read.
    kept: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Dashboard,
    Rewritten,
    Plain,
    Json,
    Off,
}

impl Live {
    /// `title` says what the run is about.
    pub(crate) fn new(style: LiveStyle, title: String) -> Self {
        let dashboard = match style {
            LiveStyle::Automatic if dashboard::is_usable() => Dashboard::start(title).ok(),
            _ => None,
        };
        let style = match style {
            LiveStyle::Automatic if dashboard.is_some() => Style::Dashboard,
            LiveStyle::Line if io::stderr().is_terminal() => Style::Rewritten,
            LiveStyle::Automatic | LiveStyle::Line | LiveStyle::Plain => Style::Plain,
            LiveStyle::Json => Style::Json,
            LiveStyle::Off => Style::Off,
        };
        Self {
            style,
            last_progress: None,
            line_open: false,
            dashboard,
            kept: Vec::new(),
        }
    }

    /// Whether the next progress is due, `elapsed` after the beginning.
    pub(crate) fn wants_progress(&self, elapsed: Duration) -> bool {
        let interval = Duration::from_millis(match self.style {
            Style::Json | Style::Dashboard => 500,
            _ => 1000,
        });
        self.style != Style::Off
            && self
                .last_progress
                .is_none_or(|last| elapsed - last >= interval)
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Line) {
        if let Line::Progress(progress) = event {
            self.last_progress = Some(Duration::from_secs_f64(progress.elapsed_s));
        }
        match self.style {
            Style::Off => {}
            Style::Dashboard => self.show_on_dashboard(event),
            Style::Json => {
                let line = serde_json::to_string(event)
                    .expect("events have string keys and finite numbers");
                // Nobody reading any more is no reason to stop measuring.
                let _ = writeln!(io::stdout().lock(), "{line}");
            }
            Style::Plain => {
                if let Some(line) = line_of(event) {
                    let _ = writeln!(io::stderr().lock(), "{line}");
                }
            }
            Style::Rewritten => self.rewrite(event),
        }
    }

    fn show_on_dashboard(&mut self, event: &Line) {
        let text = match event {
            Line::Progress(_) => None,
            _ => line_of(event),
        };
        if let Line::Notice { .. } | Line::Warning { .. } = event {
            self.kept.extend(text.clone());
        }
        if let Some(dashboard) = &self.dashboard {
            dashboard.show(event, text);
        }
    }

    /// Shows a second of the run, where there are pictures.
    pub(crate) fn sample(&self, sample: &Sample) {
        if let Some(dashboard) = &self.dashboard {
            dashboard.sample(sample);
        }
    }

    fn rewrite(&mut self, event: &Line) {
        let line = match event {
            Line::Progress(progress) => Some(short_line(progress)),
            _ => line_of(event),
        };
        let Some(line) = line else { return };
        let mut out = io::stderr().lock();
        // Back to the first column, and away with what stood there.
        let start = if self.line_open { "\r\x1b[K" } else { "" };
        self.line_open = matches!(event, Line::Progress(_));
        let end = if self.line_open { "" } else { "\n" };
        let _ = write!(out, "{start}{line}{end}").and_then(|()| out.flush());
    }

    /// Leaves the rewritten line as it is and goes on below it; gives the dashboard's terminal back.
    pub(crate) fn finish(&mut self) {
        if self.dashboard.take().is_some() {
            self.style = Style::Plain;
            for line in self.kept.drain(..) {
                let _ = writeln!(io::stderr().lock(), "{line}");
            }
        }
        if std::mem::take(&mut self.line_open) {
            let _ = writeln!(io::stderr().lock());
        }
    }
}

/// An event as a line for people; nothing for those that speak for themselves.
fn line_of(event: &Line) -> Option<String> {
    match event {
        Line::Progress(progress) => Some(progress_line(progress)),
        Line::Push(push) => Some(push_line(push)),
        Line::Phase { phase, elapsed_s } => {
            let phase = match phase {
                Phase::Connecting => "connecting",
                Phase::Connected => "connected",
                Phase::Pushing => "pushing",
                Phase::Draining => "closing",
                Phase::Unknown => return None,
            };
            Some(format!("{elapsed_s:7.1} s  {phase}"))
        }
        Line::Notice { message } => Some(format!("note: {message}")),
        Line::Warning { message } => Some(format!("warning: {message}")),
        Line::Done { .. } | Line::Unknown => None,
    }
}

fn progress_line(progress: &Progress) -> String {
    let mut line = format!(
        "{:7.1} s  {} of {} connected",
        progress.elapsed_s,
        text::count(progress.connected),
        text::count(progress.connections_wanted)
    );
    if progress.setup_rate_per_s > 0.0 {
        line.push_str(&format!("  {}", text::rate(progress.setup_rate_per_s)));
    }
    if progress.messages > 0 {
        line.push_str(&format!(
            "  {}  {}",
            text::counted(progress.messages, "message"),
            text::rate(progress.message_rate_per_s)
        ));
    }
    if let Some(echo) = progress.echo.and_then(|trips| describe(&trips, "echo")) {
        line.push_str(&echo);
    }
    if let Some(request) = progress
        .request
        .and_then(|trips| describe(&trips, "requests"))
    {
        line.push_str(&request);
    }
    if progress.churned > 0 {
        line.push_str(&format!("  {} replaced", text::count(progress.reconnected)));
    }
    line.push_str(&losses(progress));
    let errors: u64 = progress.errors.values().sum();
    if errors > 0 {
        line.push_str(&format!("  errors: {}", kinds(&progress.errors)));
    }
    line
}

/// Connections and deliveries that went missing, where there are any.
fn losses(progress: &Progress) -> String {
    let mut losses = String::new();
    for (name, count) in [("lost", progress.lost), ("missing", progress.missed)] {
        if count > 0 {
            losses.push_str(&format!("  {} {name}", text::count(count)));
        }
    }
    losses
}

/// The same in less than 80 columns: a line that wraps cannot be rewritten.
fn short_line(progress: &Progress) -> String {
    let mut line = format!(
        "{:7.1} s  {}/{} up",
        progress.elapsed_s,
        text::count(progress.connected),
        text::count(progress.connections_wanted)
    );
    // Both rates together are never of interest: connecting is over when publishing begins.
    if progress.setup_rate_per_s > 0.0 {
        line.push_str(&format!("  {}", text::rate(progress.setup_rate_per_s)));
    } else if let Some(echo) = progress.echo.and_then(|trips| describe(&trips, "echo")) {
        line.push_str(&echo);
    } else if progress.messages > 0 {
        let rate = text::rate(progress.message_rate_per_s);
        line.push_str(&format!(
            "  {} {rate}",
            text::counted(progress.messages, "message")
        ));
    }
    line.push_str(&losses(progress));
    let errors: u64 = progress.errors.values().sum();
    if errors > 0 {
        line.push_str(&format!("  errors {}", text::count(errors)));
    }
    line
}

fn push_line(push: &PushReport) -> String {
    let whose = match push.origin {
        Origin::Own => format!("push {}", push.sequence),
        Origin::Foreign => format!(
            "foreign push {} (times since its first arrival)",
            push.sequence
        ),
    };
    let channel = push
        .channel
        .as_deref()
        .filter(|channel| !channel.is_empty());
    format!(
        "{:7.1} s  {whose}{}: {} of {} reached  first {}  p50 {}  p99 {}  last {}",
        push.published_s + push.times.last_ms.unwrap_or(0.0) / 1000.0,
        channel
            .map(|channel| format!(" to {channel}"))
            .unwrap_or_default(),
        text::count(push.received),
        text::count(push.expected),
        text::time_or_dash(push.times.first_ms),
        text::time_or_dash(push.times.p50_ms),
        text::time_or_dash(push.times.p99_ms),
        text::time_or_dash(push.times.last_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{Ended, FanoutTimes};

    #[test]
    fn events_have_the_documented_form() {
        let json = |event: &Line| serde_json::to_value(event).unwrap();
        let phase = json(&Line::Phase {
            phase: Phase::Connecting,
            elapsed_s: 0.5,
        });
        assert_eq!(
            phase,
            serde_json::json!({"event": "phase", "phase": "connecting", "elapsed_s": 0.5})
        );
        let push = PushReport {
            origin: Origin::Own,
            channel: Some("x".to_owned()),
            sequence: 2,
            published_s: 1.5,
            expected: 10,
            churned: 0,
            received: 0,
            missed: 0,
            replayed: 0,
            reach: Some(0.0),
            times: FanoutTimes::default(),
            accepted_ms: None,
            answer: None,
            crowd_cpu_share: None,
            machine_cpu_share: None,
            ended: Ended::CutShort,
        };
        let push = json(&Line::Push(Box::new(push)));
        assert_eq!(push["event"], "push");
        assert_eq!(push["ended"], "cut_short");
        for field in [
            "first_ms",
            "p50_ms",
            "p90_ms",
            "p99_ms",
            "p999_ms",
            "last_ms",
            "accepted_ms",
        ] {
            assert_eq!(push.get(field), Some(&serde_json::Value::Null), "{field}");
        }
        let progress = json(&Line::Progress(Box::new(Progress {
            connected: 7,
            ..Progress::default()
        })));
        assert_eq!(
            (&progress["event"], &progress["connected"]),
            (&"progress".into(), &7.into())
        );
    }

    #[test]
    fn a_line_says_what_is_lost_and_what_is_missing() {
        let progress = Progress {
            lost: 2,
            missed: 3,
            ..Progress::default()
        };
        for line in [progress_line(&progress), short_line(&progress)] {
            assert!(line.ends_with("  2 lost  3 missing"), "{line}");
        }
    }
}
