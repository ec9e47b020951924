//! The closing table.

use crate::measure::collector::{Ended, Origin, PublishAnswer, PushReport};
use crate::measure::round_trip::RoundTripReport;
use crate::report::{Outcome, Report, text};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Pushes listed one by one; of more, the first and the last of them.
const PUSHES_LISTED: usize = 20;

/// Writes the table.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let settings = &report.settings;
    writeln!(out)?;
    writeln!(
        out,
        "  myriad swarm: {} connections to {}",
        text::count(settings.connections),
        targets(&settings.targets)
    )?;
    if report.outcome == Outcome::NobodyConnected {
        writeln!(out, "  nobody could connect")?;
    }
    if report.outcome == Outcome::Interrupted {
        writeln!(
            out,
            "  interrupted after {:.1} s; the figures are those so far",
            report.elapsed_s
        )?;
    }
    writeln!(out)?;
    write_setup(report, out)?;
    write_messages(report, out)?;
    write_round_trips("echo", report.echo.as_ref(), out)?;
    write_round_trips("requests", report.request.as_ref(), out)?;
    write_pushes(report, out)?;
    write_crowd(report, out)?;
    for verdict in &report.thresholds {
        let mark = if verdict.passed { "ok  " } else { "FAIL" };
        let value = verdict.value.map_or_else(
            || "nothing was measured".to_owned(),
            |value| in_unit(value, verdict.unit),
        );
        writeln!(
            out,
            "  threshold    {mark}  {}  ({value})",
            verdict.expression
        )?;
    }
    for warning in &report.warnings {
        writeln!(out, "  warning      {warning}")?;
    }
    writeln!(out)
}

fn targets(targets: &[String]) -> String {
    match targets {
        [one] => one.clone(),
        [first, _] => format!("{first} and one more target"),
        [first, rest @ ..] => format!(
            "{first} and {} more targets",
            text::count(rest.len() as u64)
        ),
        [] => String::new(),
    }
}

fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "ms" => text::time(value),
        "per_s" => text::rate(value),
        "ratio" => text::percent(value),
        _ => text::count(myriad_doctor::units::truncate(value)),
    }
}

fn write_setup(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let setup = &report.setup;
    write!(
        out,
        "  connected    {} of {} in {:.1} s, {}",
        text::count(setup.connected),
        text::count(setup.connections_wanted),
        setup.elapsed_s,
        text::rate(setup.rate_per_s)
    )?;
    match setup.peak_rate_per_s {
        Some(peak) => writeln!(out, " (best second {})", text::rate(peak))?,
        None => writeln!(out)?,
    }
    writeln!(
        out,
        "  upgraded in  p50 {}  p99 {}  slowest {}",
        text::time_or_dash(setup.p50_ms),
        text::time_or_dash(setup.p99_ms),
        text::time_or_dash(setup.slowest_ms)
    )?;
    writeln!(out, "  errors       {}", kinds(&report.errors))?;
    if !report.closes.is_empty() {
        writeln!(out, "  closed by the server  {}", kinds(&report.closes))?;
    }
    let churn = &report.churn;
    if report.settings.churn_per_s.is_some() || churn.lost + churn.impatient > 0 {
        write!(
            out,
            "  churn        {} left on purpose, {} replaced, {} lost",
            text::count(churn.churned),
            text::count(churn.reconnected),
            text::count(churn.lost)
        )?;
        match churn.impatient {
            0 => writeln!(out)?,
            some => writeln!(
                out,
                ", {} reset because their close frame was not answered",
                text::count(some)
            )?,
        }
    }
    Ok(())
}

fn kinds(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts
        .iter()
        .map(|(kind, count)| format!("{kind} {}", text::count(*count)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn write_messages(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let messages = &report.messages;
    writeln!(
        out,
        "  messages     {}, mean {}, over 1/5/15 min {} {} {}",
        text::count(messages.count),
        text::rate(messages.mean_per_s),
        text::rate(messages.last_1_min_per_s),
        text::rate(messages.last_5_min_per_s),
        text::rate(messages.last_15_min_per_s)
    )?;
    write!(
        out,
        "               gaps {}, duplicates {}",
        text::count(messages.gaps),
        text::count(messages.duplicates)
    )?;
    let rarer = [
        ("overtaken", messages.overtaken),
        ("unexpected", messages.unexpected),
        ("late", messages.late),
        ("unmeasured", messages.unmeasured),
        ("ahead", messages.ahead),
    ];
    for (name, value) in rarer.into_iter().filter(|&(_, value)| value > 0) {
        write!(out, ", {name} {}", text::count(value))?;
    }
    writeln!(out)?;
    let pings = &report.pings;
    if pings.answered > 0 {
        writeln!(
            out,
            "  pings        {} answered",
            text::count(pings.answered)
        )?;
    }
    if pings.heartbeats_sent > 0 {
        writeln!(
            out,
            "  heartbeats   {} sent, {} answered, p50 {}  p99 {}",
            text::count(pings.heartbeats_sent),
            text::count(pings.heartbeats_answered),
            text::time_or_dash(pings.p50_ms),
            text::time_or_dash(pings.p99_ms)
        )?;
    }
    Ok(())
}

/// What came back of what was sent, in two lines; nothing when nothing was to be sent.
fn write_round_trips(
    name: &str,
    trips: Option<&RoundTripReport>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(trips) = trips else {
        return Ok(());
    };
    write!(
        out,
        "  {name:<12} {} of {} came back, {} of {} asked for, lost {}, errors {}",
        text::count(trips.received),
        text::count(trips.sent),
        text::rate(trips.received_per_s),
        text::rate(trips.rate_per_s),
        text::count(trips.lost),
        text::count(trips.errors)
    )?;
    match trips.unsent {
        0 => writeln!(out)?,
        unsent => writeln!(out, ", never sent {}", text::count(unsent))?,
    }
    let times = trips.round_trip_ms;
    writeln!(
        out,
        "               since due: mean {}  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
        text::time_or_dash(times.mean),
        text::time_or_dash(times.p50),
        text::time_or_dash(times.p90),
        text::time_or_dash(times.p99),
        text::time_or_dash(times.p999),
        text::time_or_dash(times.max)
    )
}

fn write_pushes(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if report.pushes.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(
        out,
        "  {:<14} {:>8} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "push", "reach", "reached", "first", "p50", "p90", "p99", "p99.9", "last", "accepted"
    )?;
    let count = report.pushes.len();
    let hidden = if count > PUSHES_LISTED {
        PUSHES_LISTED - 1..count - 1
    } else {
        count..count
    };
    for (place, push) in report.pushes.iter().enumerate() {
        if place == hidden.start {
            writeln!(out, "  ... {} more ...", text::count(hidden.len() as u64))?;
        }
        if !hidden.contains(&place) {
            write_push(push, out)?;
        }
    }
    if report
        .pushes
        .iter()
        .any(|push| push.origin == Origin::Foreign)
    {
        writeln!(
            out,
            "  * somebody else's: times count from its first arrival, not from its publication"
        )?;
    }
    if let Some(fanout) = report.fanout.as_ref().filter(|fanout| fanout.pushes > 1) {
        let times = fanout.overall;
        let columns = [
            times.first_ms,
            times.p50_ms,
            times.p90_ms,
            times.p99_ms,
            times.p999_ms,
            times.last_ms,
        ];
        write_row(
            "all together",
            fanout.reach_min,
            None,
            &columns,
            fanout.accepted_max_ms,
            out,
        )?;
    }
    writeln!(out)
}

fn write_push(push: &PushReport, out: &mut dyn Write) -> io::Result<()> {
    let channel = push.channel.as_deref().unwrap_or_default();
    let star = if push.origin == Origin::Foreign {
        "*"
    } else {
        ""
    };
    let name = format!("{}{star} {channel}", push.sequence);
    let times = push.times;
    let columns = [
        times.first_ms,
        times.p50_ms,
        times.p90_ms,
        times.p99_ms,
        times.p999_ms,
        times.last_ms,
    ];
    write_row(
        &name,
        push.reach,
        Some(push.received),
        &columns,
        push.accepted_ms,
        out,
    )?;
    match push.ended {
        Ended::Refused => writeln!(out, "    ^ the server refused it"),
        Ended::CutShort => writeln!(out, "    ^ cut short by the end of the run"),
        Ended::Complete | Ended::Settled if push.answer == Some(PublishAnswer::Unanswered) => {
            writeln!(out, "    ^ the publish request was not answered")
        }
        Ended::Complete | Ended::Settled => Ok(()),
    }
}

fn write_row(
    name: &str,
    reach: Option<f64>,
    received: Option<u64>,
    columns: &[Option<f64>],
    accepted_ms: Option<f64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let reach = reach.map_or_else(|| "-".to_owned(), text::percent);
    let received = received.map(text::count).unwrap_or_default();
    write!(out, "  {name:<14} {reach:>8} {received:>11}")?;
    for column in columns.iter().chain([&accepted_ms]) {
        write!(out, " {:>9}", text::time_or_dash(*column))?;
    }
    writeln!(out)
}

fn write_crowd(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (settings, crowd) = (&report.settings, &report.crowd);
    write!(
        out,
        "  this crowd   {}, {} threads, CPU at most {}",
        settings.driver,
        settings.threads,
        text::share(crowd.cpu_share_max)
    )?;
    match crowd.user_bytes_per_terminal {
        Some(bytes) => writeln!(out, ", {} of user space a terminal", text::bytes(bytes)),
        None => writeln!(out),
    }
}
