//! The table at the end: the figures with their units, aligned.

use crate::report::{MemoryUse, Report, Verdict};
use myriad_layout::{Column, Paint, Table, wrapped};
use myriad_report::PushReport;
use myriad_units::{bytes, count, counted, rate, time, time_or_dash};

/// Blanks before every row.
const INDENT: usize = 2;

/// Connections from which the memory of one is shown. Both processes take up to 3 MiB once, for threads, rings and tables:
/// 7 KiB and 118 KiB for each of 10 connections, but 85 and 20 bytes for each of a million.
const MEASURABLE_MIN: u64 = 10_000;
/// Shown when there were fewer, or when nothing grew; `arena` has the same words.
const TOO_SMALL: &str = "crowd too small to measure";

/// The report in lines of at most `width` columns. Lines end with a line feed.
#[must_use]
pub fn render(report: &Report, width: usize) -> String {
    let mut text = wrapped(&title(report), width).join("\n");
    text.push_str("\n\n");
    let mut table = Table::new(&[Column::TEXT, Column::TEXT]);
    for fact in facts(report) {
        table.row(fact);
    }
    text.push_str(&table.draw(INDENT, width, Paint::Plain));
    text.push('\n');
    text.push_str(&pushes(&report.pushes).draw(INDENT, width, Paint::Plain));
    text
}

fn title(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "Myriad {} · {} · {} memory · Linux {}",
        report.version,
        counted(machine.cores.usable as u64, "core"),
        bytes(machine.memory.total_bytes),
        machine.kernel.release
    )
}

fn facts(report: &Report) -> [[String; 2]; 7] {
    let MemoryUse {
        server_user_bytes,
        crowd_user_bytes,
        kernel_bytes,
        ..
    } = report.memory;
    let each = |total: u64, whose: &str| {
        if total == 0 || report.connections < MEASURABLE_MIN {
            return TOO_SMALL.to_owned();
        }
        format!("{}{whose}", bytes(total / report.connections))
    };
    let reached = match &report.verdict {
        Verdict::ReachedAll => format!(
            "all of them, {}",
            counted(report.pushes.len() as u64, "time")
        ),
        Verdict::Missed(_) => "NOT all of them".to_owned(),
    };
    let connect_time = time(report.connect_seconds * 1_000.0);
    let (with_tls, handshake) = match report.tls {
        true => (", with TLS", ", each with a handshake of TLS"),
        false => ("", ""),
    };
    [
        (
            "WebSocket connections open",
            format!("{}{with_tls}", count(report.connections)),
        ),
        (
            "connected in",
            format!(
                "{connect_time}, {}{handshake}",
                rate(report.setup_rate_per_s)
            ),
        ),
        (
            "memory a connection, server",
            each(server_user_bytes, " user space"),
        ),
        (
            "memory a connection, crowd",
            each(crowd_user_bytes, " user space"),
        ),
        (
            "memory a connection, kernel",
            each(kernel_bytes, ", both ends"),
        ),
        (
            "memory in all",
            bytes(server_user_bytes + crowd_user_bytes + kernel_bytes),
        ),
        ("pushes reached", reached),
    ]
    .map(|(label, value)| [label.to_owned(), value])
}

/// The head and one row per publication.
fn pushes(pushes: &[PushReport]) -> Table {
    let mut table = Table::new(&[Column::NUMBER; 7]);
    table.row(["push", "first", "p50", "p99", "last", "reached", "share"]);
    for push in pushes {
        table.row([
            push.sequence.to_string(),
            time_or_dash(push.times.first_ms),
            time_or_dash(push.times.p50_ms),
            time_or_dash(push.times.p99_ms),
            time_or_dash(push.times.last_ms),
            format!("{} of {}", count(push.received), count(push.expected)),
            share(push),
        ]);
    }
    table
}

/// Rounded down, so that 100% means everybody.
fn share(push: &PushReport) -> String {
    let hundredths = push.received * 10_000 / push.expected.max(1);
    if hundredths >= 10_000 {
        "100%".to_owned()
    } else {
        format!("{}.{:02}%", hundredths / 100, hundredths % 100)
    }
}

#[cfg(test)]
mod tests;
