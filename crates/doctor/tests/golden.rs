//! What doctor says of machines that were written down: `/proc`, `/sys` and `/etc` as files, reports as snapshots.
//!
//! A snapshot that should change is looked at, and accepted with `INSTA_UPDATE=always`.

use myriad_doctor::{
    ConnectionCost, CostSource, Examination, Load, Machine, Paths, Probe, Program, Role, Trials,
    report,
};
use myriad_layout::{Paint, WIDTH_MAX, columns};
use std::path::PathBuf;

fn machine(name: &str) -> Machine {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/machines")
        .join(name);
    let trials = Trials {
        connection_cost: ConnectionCost {
            sockets_bytes: 7_320,
            charged: None,
            source: CostSource::Measured { pairs: 2_000 },
        },
        // The one that was never loaded tracks nothing; the others are judged by what they count.
        ..ConnectionCost::assumed("replaced above").into()
    };
    Probe::under(root)
        .machine(trials)
        .expect("a machine of ours")
}

fn told(name: &str, load: Load, wanted: u64) -> String {
    report::text(
        &Examination::new(machine(name), load, wanted),
        Paint::Plain,
        WIDTH_MAX,
    )
}

#[test]
fn a_small_machine_that_suffices_for_both_ends() {
    let load = Load::broadcast(Role::BothEnds);
    insta::assert_snapshot!(told("small", load, 1_000_000));
}

#[test]
fn a_firewalled_server_with_settings_from_a_guide() {
    let load = Load::broadcast(Role::Server);
    insta::assert_snapshot!(told("firewalled", load, 1_000_000));
}

#[test]
fn a_container_without_io_uring() {
    let load = Load::idle(Role::Server);
    insta::assert_snapshot!(told("container", load, 1_000_000));
}

#[test]
fn a_proxy_of_eight_workers() {
    let role = Role::Proxy(Paths {
        sources: 1,
        destinations: 4,
    });
    let load = Load::broadcast(role).on(Program::Ordinary { processes: 8 });
    insta::assert_snapshot!(told("small", load, 200_000));
}

#[test]
fn colours_change_nothing_but_colours() {
    let examination = Examination::new(
        machine("firewalled"),
        Load::broadcast(Role::Server),
        1_000_000,
    );
    let coloured = report::text(&examination, Paint::Coloured, WIDTH_MAX);
    assert!(coloured.contains("\x1b[31;1m"), "{coloured}");
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        stripped.push_str(before);
        rest = after.split_once('m').expect("the end of a sequence").1;
    }
    stripped.push_str(rest);
    let plain = report::text(&examination, Paint::Plain, WIDTH_MAX);
    assert_eq!(stripped, plain);
}

#[test]
fn a_terminal_of_80_columns_gets_no_longer_lines() {
    for name in ["firewalled", "container"] {
        let examination = Examination::new(machine(name), Load::broadcast(Role::Server), 1_000_000);
        for line in report::text(&examination, Paint::Plain, 80).lines() {
            // Paths and settings are not broken.
            let longest_word = line.split_whitespace().map(columns).max();
            let room = 80.max(longest_word.unwrap_or(0) + 6);
            assert!(columns(line) <= room, "{name}: {line}");
        }
    }
}
