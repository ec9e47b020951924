//! What is shown before the start: the machine, its limits, the plan.

use myriad_doctor::{Budget, CostSource, Decision, Effect, Machine, startup};
use myriad_units::{bytes, count};
use std::io::{self, Write};

/// Limits above this many times the plan are not shown.
const LIMITS_SHOWN_UP_TO: u64 = 10;

pub(crate) fn describe(
    machine: &Machine,
    budget: &Budget,
    decision: &Decision,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "This machine: {} cores, {} memory, {} of it available, Linux {}.",
        machine.cores.usable,
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
        let connections = count(limit.connections);
        writeln!(
            out,
            "  {:<32} {:<17} {effect:<10} {connections:>11}",
            limit.name, limit.value
        )?;
    }
    writeln!(
        out,
        "\nOpening {} connections. {}",
        count(decision.connections),
        decision.why
    )
}
