//! What a program says of its machine when it starts: the same words for server, crowd and demonstration.

use crate::budget::{Budget, Concern, Effect};
use crate::names::remark;
use crate::remarks::Weight;
use myriad_units::count;

/// Remarks that matter to a program that is about to run, beside what it finds out itself (its driver).
const REMARKS: [&str; 5] = [
    remark::UNREAD,
    remark::LISTENING_PORT,
    remark::CORES,
    remark::THREADS,
    remark::OUT_OF_MEMORY,
];

/// Everything that will trouble `wanted` connections, each in a sentence or two; nothing on a machine that suffices.
#[must_use]
pub fn warnings(budget: &Budget, wanted: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if budget.first_stop().connections < wanted {
        warnings.push(budget.connections(wanted).why);
    }
    for limit in &budget.limits {
        if limit.effect == Effect::DelaysBursts && limit.concern(wanted) != Concern::None {
            warnings.push(format!(
                "{} {} at once: {}. {}",
                crate::budget::allows(limit.name),
                count(limit.connections),
                limit.evidence,
                limit.remedy
            ));
        }
    }
    for remark in &budget.remarks {
        if remark.weight == Weight::Warning && REMARKS.contains(&remark.name) {
            let finding = crate::budget::capitalised(&remark.finding);
            warnings.push(format!("{finding}. {}", remark.consequence));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Load, Role};
    use crate::testing::small_machine;

    #[test]
    fn a_machine_that_suffices_is_not_mentioned() {
        let budget = Budget::new(&small_machine(), Load::idle(Role::Server), 1_000_000);
        assert_eq!(warnings(&budget, 1_000_000), Vec::<String>::new());
    }

    #[test]
    fn what_will_trouble_is_said_with_figures_and_what_to_do() {
        let mut machine = small_machine();
        machine.memory.available_bytes = 3 << 30;
        machine.tcp.backlog_max = Some(128);
        machine.listening.port = 40_000;
        machine.listening.can_be_taken = true;
        // Warned of in doctor's report, but not what a start is about.
        machine.io_uring = crate::IoUring::Disabled;
        let budget = Budget::new(&machine, Load::idle(Role::Server), 1_000_000);
        let warnings = warnings(&budget, 1_000_000);
        assert_eq!(warnings.len(), 3, "{warnings:#?}");
        assert!(
            warnings[0].starts_with("Memory allows 374,"),
            "{warnings:#?}"
        );
        assert!(
            warnings[1].starts_with("Accept queue allows 129 at once: somaxconn is 128;")
                && warnings[1].contains("net.core.somaxconn=4096"),
            "{warnings:#?}"
        );
        assert!(
            warnings[2].starts_with("Port 40000 lies in ip_local_port_range"),
            "{warnings:#?}"
        );
    }
}
