//! What a run shows while it goes on.
//!
//! With `--live json`, standard output carries one JSON object per line, each with an `event`:
//!
//! | event | fields |
//! | --- | --- |
//! | `phase` | `phase`: `connecting`, `connected` (every client is open or given up), `pushing`, `draining`; `elapsed_s` |
//! | `progress` | twice a second and before each phase: `elapsed_s`, `connected` (open now), `connecting`, `connections_wanted`, `setup_rate_per_s` (last second), `churned` (left on purpose), `reconnected` (the connections that replaced them), `lost` (open connections that the server or the network ended), `missed` (deliveries of finished pushes that did not come), `errors` (counts by kind), `closes` (counts by code), `messages`, `message_rate_per_s` (last second), `echo` (`sent`, `received`, `lost`, `errors`, `received_per_s` in the last second; `null` without `--echo`), `request` (the same of `--request`), `cpu_share` (of the processors its threads can use, last second), `rss_anon_bytes`, `user_bytes_per_client` |
//! | `push` | a publication whose measurement has ended: `origin` (`own`, `foreign`), `channel`, `sequence`, `published_s`, `expected`, `left`, `received`, `missed`, `replayed`, `reach`, `first_ms`, `p50_ms`, `p90_ms`, `p99_ms`, `p999_ms`, `last_ms`, `accepted_ms`, `answer` (`accepted`, `refused`, `unreached`, `unanswered`), `crowd_cpu_share`, `machine_cpu_share`, `ended` (`complete`, `settled`, `refused`, `unreached`, `cut_short`) |
//! | `notice` | `message`: a choice that was made, such as falling back to epoll |
//! | `warning` | `message`: something that makes the figures less trustworthy |
//! | `done` | `outcome` (`finished`, `thresholds_failed`, `interrupted`, `nobody_connected`), `went_wrong` (a sentence, or `null`), `elapsed_s`; the last line |
//!
//! `left` are clients that were counted when it was published and left on purpose before it came; `expected` is
//! without them. `elapsed_s` and `published_s` count from the beginning of the run. What is unknown is `null`. More
//! events and fields may come; readers should skip what they do not know.

use crate::config::LiveStyle;
use crate::measure::collector::{Origin, PushReport};
use crate::measure::rates::Peak;
use crate::measure::round_trip::Counts;
use crate::report::{Outcome, text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// What the run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Connections are being made.
    Connecting,
    /// Every client is open, or has given up.
    Connected,
    /// Publications are being made.
    Pushing,
    /// Clients are being closed.
    Draining,
}

/// One line of the live report.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// Another phase begins.
    Phase {
        /// Which.
        phase: Phase,
        /// Since the beginning.
        elapsed_s: f64,
    },
    /// Where things stand.
    Progress(Box<Progress>),
    /// A publication has been measured.
    Push(&'a PushReport),
    /// A choice that was made.
    Notice {
        /// A sentence.
        message: &'a str,
    },
    /// Something that makes the figures less trustworthy.
    Warning {
        /// A sentence.
        message: &'a str,
    },
    /// The last line.
    Done {
        /// How the run ended.
        outcome: Outcome,
        /// One sentence on what went wrong; absent when nothing did.
        went_wrong: Option<&'a str>,
        /// Since the beginning.
        elapsed_s: f64,
    },
}

/// Where things stand.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// Since the beginning.
    pub elapsed_s: f64,
    /// Clients open now.
    pub connected: u64,
    /// Connections under way now.
    pub connecting: u64,
    /// Clients wanted.
    pub connections_wanted: u64,
    /// Successes in the last second.
    pub setup_rate_per_s: f64,
    /// Clients that left on purpose.
    pub churned: u64,
    /// Connections that replaced them.
    pub reconnected: u64,
    /// Open connections that the server or the network ended.
    pub lost: u64,
    /// Publications of this run that clients were to get and did not, of those whose measurement has ended.
    pub missed: u64,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// Close frames from the server by code.
    pub closes: BTreeMap<String, u64>,
    /// Data messages so far.
    pub messages: u64,
    /// Data messages in the last second.
    pub message_rate_per_s: f64,
    /// Messages that the server sends back; absent when there are none.
    pub echo: Option<RoundTripProgress>,
    /// Requests beside the crowd; absent when there are none.
    pub request: Option<RoundTripProgress>,
    /// Of the processors the crowd's threads can use, in the last second.
    pub cpu_share: f64,
    /// Anonymous memory of the process.
    pub rss_anon_bytes: u64,
    /// What of it was gained since the beginning, per open client.
    pub user_bytes_per_client: Option<f64>,
}

/// What came back so far of what was sent.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RoundTripProgress {
    /// Written.
    pub sent: u64,
    /// Came back as they were.
    pub received: u64,
    /// Were given up.
    pub lost: u64,
    /// Wrong answers, and answers to nothing that was asked.
    pub errors: u64,
    /// Came back in the last second.
    pub received_per_s: f64,
}

impl RoundTripProgress {
    pub(crate) fn of(counts: &Counts, received: &Peak) -> Self {
        Self {
            sent: counts.sent - counts.left,
            received: counts.received,
            lost: counts.lost,
            errors: counts.errors,
            received_per_s: received.latest(),
        }
    }

    /// In words, where it has begun.
    fn words(&self, name: &str) -> Option<String> {
        if self.sent == 0 {
            return None;
        }
        let mut words = format!("  {name} {}", text::rate(self.received_per_s));
        for (kind, count) in [("lost", self.lost), ("wrong", self.errors)] {
            if count > 0 {
                words.push_str(&format!(", {} {kind}", text::count(count)));
            }
        }
        Some(words)
    }
}

/// Shows events in one of several styles.
#[derive(Debug)]
pub(crate) struct Live {
    style: Style,
    last_progress: Option<Duration>,
    /// Whether the cursor stands behind a line that is to be rewritten.
    line_open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Rewritten,
    Plain,
    Json,
    Off,
}

impl Live {
    pub(crate) fn new(style: LiveStyle) -> Self {
        let style = match style {
            LiveStyle::Automatic if io::stderr().is_terminal() => Style::Rewritten,
            LiveStyle::Automatic | LiveStyle::Plain => Style::Plain,
            LiveStyle::Json => Style::Json,
            LiveStyle::Off => Style::Off,
        };
        Self {
            style,
            last_progress: None,
            line_open: false,
        }
    }

    /// Whether the next progress is due, `elapsed` after the beginning.
    pub(crate) fn wants_progress(&self, elapsed: Duration) -> bool {
        let interval = Duration::from_millis(if self.style == Style::Json { 500 } else { 1000 });
        self.style != Style::Off
            && self
                .last_progress
                .is_none_or(|last| elapsed - last >= interval)
    }

    /// Shows an event.
    pub(crate) fn show(&mut self, event: &Event<'_>) {
        if let Event::Progress(progress) = event {
            self.last_progress = Some(Duration::from_secs_f64(progress.elapsed_s));
        }
        match self.style {
            Style::Off => {}
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

    fn rewrite(&mut self, event: &Event<'_>) {
        let line = match event {
            Event::Progress(progress) => Some(short_line(progress)),
            _ => line_of(event),
        };
        let Some(line) = line else { return };
        let mut out = io::stderr().lock();
        // Back to the first column, and away with what stood there.
        let start = if self.line_open { "\r\x1b[K" } else { "" };
        self.line_open = matches!(event, Event::Progress(_));
        let end = if self.line_open { "" } else { "\n" };
        let _ = write!(out, "{start}{line}{end}").and_then(|()| out.flush());
    }

    /// Leaves the rewritten line as it is and goes on below it.
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.line_open) {
            let _ = writeln!(io::stderr().lock());
        }
    }
}

/// An event as a line for people; nothing for those that speak for themselves.
fn line_of(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Progress(progress) => Some(progress_line(progress)),
        Event::Push(push) => Some(push_line(push)),
        Event::Phase { phase, elapsed_s } => {
            let phase = match phase {
                Phase::Connecting => "connecting",
                Phase::Connected => "connected",
                Phase::Pushing => "pushing",
                Phase::Draining => "closing",
            };
            Some(format!("{elapsed_s:7.1} s  {phase}"))
        }
        Event::Notice { message } => Some(format!("note: {message}")),
        Event::Warning { message } => Some(format!("warning: {message}")),
        Event::Done { .. } => None,
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
            "  {} messages  {}",
            text::count(progress.messages),
            text::rate(progress.message_rate_per_s)
        ));
    }
    if let Some(echo) = progress.echo.and_then(|echo| echo.words("echo")) {
        line.push_str(&echo);
    }
    if let Some(request) = progress
        .request
        .and_then(|request| request.words("requests"))
    {
        line.push_str(&request);
    }
    if progress.churned > 0 {
        line.push_str(&format!("  {} replaced", text::count(progress.reconnected)));
    }
    line.push_str(&losses(progress));
    let errors: u64 = progress.errors.values().sum();
    if errors > 0 {
        let kinds: Vec<String> = progress
            .errors
            .iter()
            .map(|(kind, n)| format!("{kind} {}", text::count(*n)))
            .collect();
        line.push_str(&format!("  errors: {}", kinds.join(", ")));
    }
    line
}

/// Connections and deliveries that went missing, where there are any.
fn losses(progress: &Progress) -> String {
    let mut losses = String::new();
    for (name, count) in [("lost", progress.lost), ("missed", progress.missed)] {
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
    } else if let Some(echo) = progress.echo.and_then(|echo| echo.words("echo")) {
        line.push_str(&echo);
    } else if progress.messages > 0 {
        let rate = text::rate(progress.message_rate_per_s);
        line.push_str(&format!(
            "  {} messages {rate}",
            text::count(progress.messages)
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
    use crate::measure::collector::{Ended, FanoutTimes};

    #[test]
    fn events_have_the_documented_form() {
        let json = |event: &Event<'_>| serde_json::to_value(event).unwrap();
        let phase = json(&Event::Phase {
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
            left: 0,
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
        let push = json(&Event::Push(&push));
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
        let progress = json(&Event::Progress(Box::new(Progress {
            connected: 7,
            ..Progress::default()
        })));
        assert_eq!(
            (&progress["event"], &progress["connected"]),
            (&"progress".into(), &7.into())
        );
    }
}
