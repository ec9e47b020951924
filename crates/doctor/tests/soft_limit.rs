//! The soft limit that Linux gives to programs, in a process of its own because it is the process's.

use myriad_doctor::{CostSource, Probe, examine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_low_soft_limit_does_not_keep_connections_from_being_measured() {
    let hard = getrlimit(Resource::Nofile).maximum;
    if hard.is_some_and(|hard| hard < 4_096) {
        eprintln!("not tried: the hard limit is {hard:?}");
        return;
    }
    let low = Rlimit {
        current: Some(1_024),
        maximum: hard,
    };
    setrlimit(Resource::Nofile, low).expect("lowering is allowed");
    let machine = examine(&Probe::system()).expect("this machine");
    if let CostSource::Assumed { reason } = &machine.connection_cost.source {
        // Neighbours may make figures unsteady; that there are too few descriptors must not be the reason.
        assert!(!reason.contains("descriptors"), "{reason}");
    }
    assert_eq!(machine.descriptors.table_soft, 1_024);
    assert_eq!(getrlimit(Resource::Nofile), low);
}
