//! What is shown before the start: the machine, its limits, the plan.

use myriad_doctor::{Budget, CostSource, Decision, Effect, Machine, startup};
use myriad_layout::{Column, Paint, Table, wrapped};
use myriad_units::{bytes, count, counted};
use std::io::{self, Write};

/// Limits above this many times the plan are not shown.
const LIMITS_SHOWN_UP_TO: u64 = 10;
/// Name, value, effect, and the connections at which it comes.
const LIMIT_COLUMNS: [Column; 4] = [Column::TEXT, Column::TEXT, Column::TEXT, Column::NUMBER];

pub(crate) fn describe(
    machine: &Machine,
    budget: &Budget,
    decision: &Decision,
    width: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let here = format!(
        "This machine: {}, {} memory, {} of it available, Linux {}.",
        counted(machine.cores.usable as u64, "core"),
        bytes(machine.memory.total_bytes),
        bytes(machine.memory.available_bytes),
        machine.kernel.release
    );
    write_wrapped(&here, width, out)?;
    let cost = bytes(machine.connection_cost.sockets_bytes);
    let cost = match &machine.connection_cost.source {
        CostSource::Measured { pairs } => format!(
            "A loopback connection costs its kernel {cost} (measured with {} of them).",
            count(*pairs)
        ),
        CostSource::Assumed { reason } => {
            format!("A loopback connection should cost its kernel {cost} (not measured: {reason}).")
        }
    };
    write_wrapped(&cost, width, out)?;
    for warning in startup::warnings(budget, decision.connections) {
        // What was asked for beyond the budget is commented on below.
        if !decision.why.contains(&warning) {
            write_wrapped(&warning, width, out)?;
        }
    }
    writeln!(out, "\nIts limits, the nearest first:")?;
    let mut table = Table::new(&LIMIT_COLUMNS);
    let furthest = decision.connections.saturating_mul(LIMITS_SHOWN_UP_TO);
    for limit in &budget.limits {
        let is_near = limit.binds_us && limit.connections <= furthest;
        if !is_near && limit.name != budget.first_stop().name {
            continue;
        }
        let effect = match limit.effect {
            Effect::Stops => "stops at",
            Effect::Degrades => "slows from",
            Effect::DelaysBursts => "at once",
            // Both ends are closed at a pace.
            Effect::CutsMassCloses => continue,
        };
        table.row([limit.name, &limit.value, effect, &count(limit.connections)]);
    }
    write!(out, "{}", table.draw(2, width, Paint::Plain))?;
    let plan = format!(
        "Opening {}. {}",
        counted(decision.connections, "connection"),
        decision.why
    );
    writeln!(out)?;
    write_wrapped(&plan, width, out)
}

/// Writes a sentence in lines of at most `width` columns.
pub(crate) fn write_wrapped(text: &str, width: usize, out: &mut dyn Write) -> io::Result<()> {
    for line in wrapped(text, width) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
