//! Whether the crowd itself was the limit.

use crate::measure::process::{LATE_MAX, MACHINE_SATURATED_SHARE};
use crate::report::{Report, float};
use myriad_report::{GeneratorCheck, GeneratorReport, Unit};

/// Share of its seconds that a crowd may be without rest: connecting takes what it gets.
const SATURATED_SECONDS_SHARE: f64 = 0.1;

/// The check of the whole machine. It makes no crowd saturated: with the server on the same machine, that one may be what fills it.
const MACHINE: &str = "machine_cpu";

/// Looks at what the crowd used, how late it was, and what it ran out of.
pub(super) fn judge(report: &Report) -> GeneratorReport {
    let crowd = &report.crowd;
    let late_max_ms = LATE_MAX.as_secs_f64() * 1000.0;
    let late_ms = crowd
        .connect_late_ms
        .max(crowd.publish_late_ms)
        .max(crowd.echo_late_ms);
    let failures = |kinds: &[&str]| {
        let counts = kinds.iter().filter_map(|kind| report.errors.get(*kind));
        float(counts.sum())
    };
    let busy = float(crowd.saturated_s) / float(crowd.watched_s.max(1));
    let limit = MACHINE_SATURATED_SHARE;
    let ports = failures(&["no_source_port", "source_refused"]);
    let checks = vec![
        check("cpu", busy, SATURATED_SECONDS_SHARE, Unit::Ratio),
        check(MACHINE, crowd.machine_cpu_share_max, limit, Unit::Ratio),
        check("schedule", late_ms, late_max_ms, Unit::Milliseconds),
        check("turn", crowd.turn_max_ms, late_max_ms, Unit::Milliseconds),
        check("ports", ports, 0.0, Unit::Count),
        check(
            "descriptors",
            failures(&["no_descriptor"]),
            0.0,
            Unit::Count,
        ),
        check("memory", failures(&["no_memory"]), 0.0, Unit::Count),
    ];
    GeneratorReport {
        saturated: checks.iter().any(is_limit),
        checks,
    }
}

fn check(of: &str, value: f64, limit: f64, unit: Unit) -> GeneratorCheck {
    GeneratorCheck {
        of: of.to_owned(),
        value,
        limit,
        unit,
        passed: value <= limit,
    }
}

/// Whether it failed, and the crowd was the limit by that.
pub(crate) fn is_limit(check: &GeneratorCheck) -> bool {
    !check.passed && check.of != MACHINE
}

/// Whether the machine had no processor left in its busiest second.
pub(super) fn is_machine_full(generator: &GeneratorReport) -> bool {
    let mut checks = generator.checks.iter();
    checks.any(|check| !check.passed && check.of == MACHINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_without_ports_or_rest_is_saturated() {
        let mut report = Report::default();
        report.crowd.watched_s = 60;
        report.crowd.machine_cpu_share_max = 1.0;
        report.crowd.saturated_s = 6;
        let generator = judge(&report);
        assert!(!generator.saturated && is_machine_full(&generator));
        let failed = generator.checks.iter().filter(|check| !check.passed);
        let failed: Vec<&str> = failed.map(|check| check.of.as_str()).collect();
        assert_eq!(failed, [MACHINE], "1.0 is above its limit");
        report.crowd.machine_cpu_share_max = 0.9;
        report.crowd.saturated_s = 7;
        assert!(judge(&report).saturated);
        report.crowd.saturated_s = 0;
        report.errors.insert("no_source_port".to_owned(), 1);
        let failed = judge(&report)
            .checks
            .into_iter()
            .find(|check| !check.passed);
        assert_eq!(failed.unwrap().of, "ports");
    }
}
