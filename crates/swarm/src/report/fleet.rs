//! The machines of a fleet.

use crate::report::reporting::Language;
use crate::report::table::Page;
use crate::report::text::{self, count, listed};
use crate::report::{Report, float};
use myriad_charts::{escape, table};
use myriad_report::{AgentReport, FleetReport};

/// Clocks that are known worse than this make times worth a word.
const CLOCK_ERROR_MAX_MS: f64 = 1.0;

/// The terminals of an agent, by their numbers.
fn terminals(agent: &AgentReport) -> String {
    let last = (agent.first_terminal + agent.terminals).saturating_sub(1);
    match agent.terminals {
        1 => format!("terminal {}", count(agent.first_terminal)),
        _ => format!(
            "terminals {} to {}",
            count(agent.first_terminal),
            count(last)
        ),
    }
}

/// `agent b was lost at 12.3 s with terminals 250 to 499`.
fn loss(agent: &AgentReport) -> Option<String> {
    let at = agent.lost_s?;
    let (name, terminals) = (&agent.name, terminals(agent));
    Some(format!(
        "agent {name} was lost at {at:.1} s with its {terminals}"
    ))
}

/// What was lost with agents, if some were.
pub(super) fn lost(report: &Report) -> Option<String> {
    let agents = report.fleet.iter().flat_map(|fleet| &fleet.agents);
    listed(&agents.filter_map(loss).collect::<Vec<_>>())
}

/// How far the clocks of two machines may be apart, in milliseconds.
fn clock_error_ms(fleet: &FleetReport) -> f64 {
    let errors = fleet.agents.iter();
    errors.fold(0.0, |most, it| {
        most.max(it.clock_error_ms + it.clock_drift_ms)
    })
}

/// What makes figures of a fleet less trustworthy.
pub(super) fn warnings(fleet: &FleetReport) -> Vec<String> {
    let lost = fleet.agents.iter().filter_map(|agent| {
        let loss = loss(agent)?;
        Some(format!(
            "{loss}: what these saw after that is unknown, and counts neither as received nor as missing; what these were to send by a schedule counts as unsent"
        ))
    });
    let error = clock_error_ms(fleet);
    let clocks = (error > CLOCK_ERROR_MAX_MS).then(|| {
        format!(
            "the clocks of the agents are known to {} only: times of what one machine sends and another receives are off by up to that",
            text::time(error)
        )
    });
    lost.chain(clocks).collect()
}

/// The lines of the table.
pub(super) fn write(report: &Report, page: &mut Page) {
    let Some(fleet) = &report.fleet else { return };
    let error = text::time(clock_error_ms(fleet));
    let agents = text::counted(fleet.agents.len() as u64, "agent");
    page.line("fleet", &format!("{agents}, clocks known to {error}"));
    for agent in &fleet.agents {
        let lost = agent.lost_s.map(|at| format!(", LOST at {at:.1} s"));
        page.line(
            "",
            &format!(
                "{}: {}, clock {:+.3} ms, CPU at most {}{}",
                agent.name,
                terminals(agent),
                agent.clock_offset_ms,
                text::share(agent.cpu_share_max),
                lost.unwrap_or_default()
            ),
        );
    }
}

/// The section of the page; nothing without a fleet.
pub(super) fn section(report: &Report, language: Language) -> String {
    let Some(fleet) = &report.fleet else {
        return String::new();
    };
    let heads = [
        language.of("agent", "压测机"),
        language.of("terminals", "终端"),
        language.of("clock", "时钟偏差"),
        language.of("CPU", "处理器"),
        language.of("memory", "内存"),
        language.of("lost", "失联"),
    ];
    let rows = fleet.agents.iter().map(|agent| {
        let last = (agent.first_terminal + agent.terminals).saturating_sub(1);
        let (offset, error) = (agent.clock_offset_ms, agent.clock_error_ms);
        let lost = agent.lost_s.map(|at| format!("{at:.1} s"));
        vec![
            escape(&agent.name),
            format!("{} - {}", count(agent.first_terminal), count(last)),
            format!("{offset:+.3} ms (&plusmn; {error:.3} ms)"),
            text::share(agent.cpu_share_max),
            text::bytes(float(agent.rss_anon_bytes)),
            lost.unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let title = language.of("The fleet", "压测集群");
    format!("<h2>{title}</h2>\n{}", table(&heads, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_agent_is_named_with_its_terminals() {
        let agent = |name: &str, lost_s| AgentReport {
            name: name.to_owned(),
            first_terminal: 250,
            terminals: 250,
            clock_error_ms: 0.1,
            lost_s,
            ..AgentReport::default()
        };
        let fleet = FleetReport {
            agents: vec![agent("a", None), agent("b<", Some(12.34))],
        };
        let report = Report {
            fleet: Some(fleet.clone()),
            ..Report::default()
        };
        let said = lost(&report).unwrap();
        assert_eq!(
            said,
            "agent b< was lost at 12.3 s with its terminals 250 to 499"
        );
        assert_eq!(warnings(&fleet).len(), 1);
        let page = section(&report, Language::Chinese);
        assert!(
            page.contains("b&lt;") && page.contains("250 - 499"),
            "{page}"
        );
        let slow = FleetReport {
            agents: vec![AgentReport {
                clock_error_ms: 3.0,
                ..AgentReport::default()
            }],
        };
        assert!(
            warnings(&slow)[0].contains("3.00 ms"),
            "{:?}",
            warnings(&slow)
        );
        assert_eq!(section(&Report::default(), Language::English), "");
    }
}
