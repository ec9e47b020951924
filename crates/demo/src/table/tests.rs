//! Tables drawn from given reports, compared whole.

use super::*;
use myriad_doctor::{Budget, ConnectionCost, Load, Machine, Probe, Role};
use myriad_layout::columns;
use myriad_report::{FanoutTimes, PushReport};
use std::collections::BTreeMap;

/// The machine's own figures would differ from one machine to the next.
fn machine() -> Machine {
    let mut machine = Probe::system()
        .machine(ConnectionCost::assumed("of a test"))
        .unwrap();
    machine.cores.usable = 2;
    machine.memory.total_bytes = 25_274_793_984;
    machine.kernel.release = "6.18.44".into();
    machine
}

fn push(sequence: u32, received: u64, times: Option<[f64; 4]>) -> PushReport {
    let time = |index: usize| times.map(|times| times[index]);
    let times = FanoutTimes {
        first_ms: time(0),
        p50_ms: time(1),
        p90_ms: time(2),
        p99_ms: time(2),
        p999_ms: time(3),
        last_ms: time(3),
    };
    PushReport {
        sequence,
        expected: 1_000_000,
        received,
        times,
        ..PushReport::default()
    }
}

fn report(pushes: Vec<PushReport>, verdict: Verdict) -> Report {
    let machine = machine();
    let budget = Budget::new(&machine, Load::broadcast(Role::BothEnds), 1_000_000);
    Report {
        version: "0.1.0".into(),
        finished_unix_s: 1_700_000_000,
        decision: budget.connections(0),
        budget,
        machine,
        server_command: "myriad serve".into(),
        crowd_command: "myriad swarm".into(),
        tls: false,
        connections: 1_000_000,
        connect_seconds: 24.31,
        setup_rate_per_s: 41_135.3,
        memory: MemoryUse {
            server_user_bytes: 128_400_000,
            crowd_user_bytes: 88_100_000,
            kernel_bytes: 7_340_000_000,
            available_fell_bytes: 7_710_000_000,
        },
        pushes,
        errors: BTreeMap::new(),
        warnings: Vec::new(),
        verdict,
    }
}

#[test]
fn a_run_with_tls_says_so() {
    let report = Report {
        tls: true,
        ..report(Vec::new(), Verdict::ReachedAll)
    };
    let drawn = render(&report, 120);
    for said in [
        "1,000,000, with TLS",
        "41,135/s, each with a handshake of TLS",
    ] {
        assert!(drawn.contains(said), "{said:?} in:\n{drawn}");
    }
}

#[test]
fn a_million_reached() {
    let pushes = vec![
        push(1, 1_000_000, Some([0.42, 2_870.0, 5_690.0, 5_812.0])),
        push(2, 1_000_000, Some([12.7, 2_790.0, 5_601.0, 5_744.0])),
    ];
    let drawn = render(&report(pushes, Verdict::ReachedAll), 80);
    assert_eq!(drawn, include_str!("reached.txt"), "drawn:\n{drawn}");
}

#[test]
fn a_push_that_missed_some_and_one_that_reached_nobody() {
    let pushes = vec![
        push(1, 999_999, Some([0.42, 287.0, 569.0, 581.2])),
        push(2, 0, None),
    ];
    let drawn = render(&report(pushes, Verdict::Missed("why".into())), 80);
    assert_eq!(drawn, include_str!("missed.txt"), "drawn:\n{drawn}");
}

#[test]
fn a_crowd_too_small_has_no_memory_of_a_connection() {
    let memory_rows = |connections: u64, kernel_bytes: u64| {
        let mut report = report(vec![], Verdict::ReachedAll);
        report.connections = connections;
        report.memory.kernel_bytes = kernel_bytes;
        let drawn = render(&report, 80);
        let rows = drawn.lines().filter(|line| line.contains("a connection,"));
        rows.map(|row| row.ends_with("  crowd too small to measure"))
            .collect::<Vec<_>>()
    };
    assert_eq!(memory_rows(9_999, 70_000_000), [true; 3]);
    assert_eq!(memory_rows(10_000, 70_000_000), [false; 3]);
    assert_eq!(memory_rows(10_000, 0), [false, false, true]);
}

#[test]
fn the_largest_figures_fit_a_terminal_of_80_columns() {
    let times = Some([100_000.0; 4]);
    let mut large = push(1, 10_000_000, times);
    large.expected = 10_000_001;
    let drawn = render(&report(vec![large], Verdict::ReachedAll), 80);
    let widest = drawn.lines().map(columns).max();
    assert!(widest <= Some(80), "{widest:?}\n{drawn}");
}

#[test]
fn a_long_name_is_wrapped() {
    let mut long = report(vec![], Verdict::ReachedAll);
    long.machine.kernel.release = "6.18.44-a-release-name-of-a-vendor".into();
    assert!(render(&long, 50).lines().all(|line| columns(line) <= 50));
}
