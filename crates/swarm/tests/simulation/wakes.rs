//! How often a crowd wakes while it has nothing to send and waits for what does not come.

use super::run::Run;
use crate::clock::Clock as _;
use crate::engine::shared::{Ending, Order, Shared};
use crate::scenario::Scenario;
use myriad_reactor::Driver;
use myriad_reactor::sim::{Faults, SimNet};
use std::path::Path;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Clients of a server that answers nothing; `load` is what they send.
fn silent(load: &str) -> Run {
    let text = format!(
        r#"
[terminals]
count = 20
protocol = "tcp"
targets = ["tcp://127.0.0.1:8000"]
[hold]
duration = "2s"
warmup = "0s"
settle = "1000s"
{load}
"#
    );
    let scenario = Scenario::parse(Path::new("silent.toml"), &text, &[]).unwrap();
    let mut config = scenario.config;
    config.driver = Some(Driver::Epoll);
    config.threads = Some(1);
    let mut plan = config.prepare().unwrap().plan;
    plan.seed = 1;
    let shared = Shared::of_plan(&plan);
    Run::new(plan, shared, SimNet::new(1, Faults::NONE))
}

/// The turns of ten seconds in which a silent server is waited for, once all was sent.
fn turns_of_waiting(load: &str) -> u64 {
    let mut run = silent(load);
    run.turns_within(SECOND / 10);
    assert!(run.holds());
    run.note_connected();
    run.turns_within(SECOND);
    run.shared.end_schedule(run.clock.now());
    let sent = run.shared.flows.as_ref().map(|ledger| ledger.sum()[0].sent);
    let echoes = run.shared.account(0).answered.counts.sent;
    assert!(sent.unwrap_or(echoes) > 0, "something is waited for");
    // The grace of what was due at the end.
    run.turns_within(SECOND / 5);
    let turns = run.turns_within(SECOND * 10);
    run.shared.set_order(Order::Close(Ending::Reset));
    run.turns_within(SECOND);
    run.check_ended();
    turns
}

#[test]
fn a_crowd_that_waits_for_missing_deliveries_sleeps() {
    let flow = "[[flows]]\nname = \"chat\"\nexpect = \"sender\"\nsend = \"${stamp}\"\n";
    for pace in ["rate = 7", "rate = 2000", "think = \"10s\""] {
        let turns = turns_of_waiting(&format!("{flow}{pace}\n"));
        assert!(turns <= 200, "{pace}: {turns} turns in ten seconds");
    }
}

#[test]
fn a_crowd_that_waits_for_missing_echoes_sleeps() {
    let turns = turns_of_waiting("[echo]\nrate = 50\n");
    assert!(turns <= 250, "{turns} turns in ten seconds");
}
