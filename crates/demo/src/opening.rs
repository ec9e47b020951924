//! What is shown before the start: the machine, its limits, the plan.

use myriad_doctor::{Budget, CostSource, Decision, Effect, Machine, startup};
use myriad_layout::{Column, Paint, Table};
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
    writeln!(
        out,
        "This machine: {}, {} memory, {} of it available, Linux {}.",
        counted(machine.cores.usable as u64, "core"),
        bytes(machine.memory.total_bytes),
        bytes(machine.memory.available_bytes),
        machine.kernel.release
    )?;
    let cost = bytes(machine.connection_cost.sockets_bytes);
    match &machine.connection_cost.source {
        CostSource::Measured { pairs } => {
            writeln!(
                out,
                "A loopback connection costs its kernel {cost} (measured with {} of them).",
                count(*pairs)
            )?;
        }
        CostSource::Assumed { reason } => {
            writeln!(
                out,
                "A loopback connection should cost its kernel {cost} (not measured: {reason})."
            )?;
        }
    }
    for warning in startup::warnings(budget, decision.connections) {
        // What was asked for beyond the budget is commented on below.
        if !decision.why.contains(&warning) {
            writeln!(out, "{warning}")?;
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
    writeln!(
        out,
        "\nOpening {}. {}",
        counted(decision.connections, "connection"),
        decision.why
    )
}
