//! The table at the end: the figures with their units, aligned, in one frame.

use crate::report::{MemoryUse, Report, Verdict};
use myriad_report::PushReport;
use myriad_units::{bytes, count, rate, time, time_or_dash};

/// Draws the report. Lines end with a line feed; every line has the same width.
#[must_use]
pub fn render(report: &Report) -> String {
    let facts = facts(report);
    let pushes = push_rows(&report.pushes);
    let mut columns = column_widths(&pushes);
    let label = facts
        .iter()
        .map(|(label, _)| width(label))
        .max()
        .unwrap_or(0);
    let value = facts
        .iter()
        .map(|(_, value)| width(value))
        .max()
        .unwrap_or(0);
    let title = title(report);

    let grid = columns.iter().sum::<usize>() + 3 * (columns.len() - 1);
    let inner = grid.max(label + 3 + value).max(width(&title));
    let last = columns.last_mut().expect("a push has columns");
    *last += inner - grid;
    let fact_columns = [label, inner - label - 3];

    let mut text = String::new();
    rule(&mut text, '┌', &[], &[inner], '┐');
    row(&mut text, &[&title], &[inner]);
    rule(&mut text, '├', &[inner], &fact_columns, '┤');
    for (label, value) in &facts {
        row(&mut text, &[label, value], &fact_columns);
    }
    rule(&mut text, '├', &fact_columns, &columns, '┤');
    for (index, push) in pushes.iter().enumerate() {
        let cells: Vec<&str> = push.iter().map(String::as_str).collect();
        row(&mut text, &cells, &columns);
        if index == 0 {
            rule(&mut text, '├', &columns, &columns, '┤');
        }
    }
    rule(&mut text, '└', &columns, &[], '┘');
    text
}

fn title(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "Myriad {} · {} cores · {} memory · Linux {}",
        report.version,
        machine.cores.usable,
        bytes(machine.memory.total_bytes),
        machine.kernel.release
    )
}

fn facts(report: &Report) -> Vec<(String, String)> {
    let MemoryUse {
        server_user_bytes,
        crowd_user_bytes,
        kernel_bytes,
        ..
    } = report.memory;
    let each = |total: u64| bytes(total / report.connections.max(1));
    let reached = match &report.verdict {
        Verdict::ReachedAll => format!("all of them, {} times", report.pushes.len()),
        Verdict::Missed(_) => "NOT all of them".to_owned(),
    };
    let connect_time = time(report.connect_seconds * 1_000.0);
    [
        ("WebSocket connections open", count(report.connections)),
        (
            "connected in",
            format!("{connect_time}, {}", rate(report.setup_rate_per_s)),
        ),
        (
            "memory a connection, server",
            format!("{} user space", each(server_user_bytes)),
        ),
        (
            "memory a connection, crowd",
            format!("{} user space", each(crowd_user_bytes)),
        ),
        (
            "memory a connection, kernel",
            format!("{}, both ends", each(kernel_bytes)),
        ),
        (
            "memory in all",
            bytes(server_user_bytes + crowd_user_bytes + kernel_bytes),
        ),
        ("pushes reached", reached),
    ]
    .map(|(label, value)| (label.to_owned(), value))
    .into()
}

/// The head and one row per publication.
fn push_rows(pushes: &[PushReport]) -> Vec<[String; 6]> {
    let head = ["push", "first", "p50", "p99", "last", "reach"].map(str::to_owned);
    let rows = pushes.iter().map(|push| {
        [
            push.sequence.to_string(),
            time_or_dash(push.times.first_ms),
            time_or_dash(push.times.p50_ms),
            time_or_dash(push.times.p99_ms),
            time_or_dash(push.times.last_ms),
            reach(push),
        ]
    });
    std::iter::once(head).chain(rows).collect()
}

/// Rounded down, so that 100% means everybody.
fn reach(push: &PushReport) -> String {
    let hundredths = push.received * 10_000 / push.expected.max(1);
    let percent = if hundredths >= 10_000 {
        "100%".to_owned()
    } else {
        format!("{}.{:02}%", hundredths / 100, hundredths % 100)
    };
    format!(
        "{} of {}, {percent}",
        count(push.received),
        count(push.expected)
    )
}

fn column_widths(rows: &[[String; 6]]) -> Vec<usize> {
    (0..6)
        .map(|column| {
            rows.iter()
                .map(|row| width(&row[column]))
                .max()
                .unwrap_or(0)
        })
        .collect()
}

/// Every character used here is one column wide.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn row(text: &mut String, cells: &[&str], widths: &[usize]) {
    for (cell, &columns) in cells.iter().zip(widths) {
        text.push_str("│ ");
        text.push_str(cell);
        text.extend(std::iter::repeat_n(' ', columns - width(cell) + 1));
    }
    text.push_str("│\n");
}

/// A horizontal line, with crossings where the columns above and below it end.
fn rule(text: &mut String, left: char, above: &[usize], below: &[usize], right: char) {
    let ends = |columns: &[usize]| -> Vec<usize> {
        columns
            .iter()
            .scan(0, |position, width| {
                *position += width + 3;
                Some(*position)
            })
            .collect()
    };
    let (above, below) = (ends(above), ends(below));
    let total = above
        .last()
        .or(below.last())
        .copied()
        .expect("one side has columns");
    text.push(left);
    for position in 1..total {
        text.push(
            match (above.contains(&position), below.contains(&position)) {
                (true, true) => '┼',
                (true, false) => '┴',
                (false, true) => '┬',
                (false, false) => '─',
            },
        );
    }
    text.push(right);
    text.push('\n');
}

#[cfg(test)]
mod tests;
