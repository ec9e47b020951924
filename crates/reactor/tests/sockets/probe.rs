//! Which drivers this machine offers.

use myriad_reactor::Driver;

/// On a machine without io_uring the reason must be a sentence; on the others the probe must agree with
/// the kernel's own switch.
#[test]
fn says_whether_io_uring_works_and_why_not() {
    let disabled =
        std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match Driver::probe_io_uring() {
        Ok(()) => assert_ne!(disabled.trim(), "2"),
        Err(why) => assert!(why.to_string().len() > 10, "{why}"),
    }
}

/// Probing leaves no descriptors behind.
#[test]
fn leaves_nothing_open() {
    let count = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
    let _ = Driver::probe_io_uring();
    let before = count();
    for _ in 0..20 {
        let _ = Driver::probe_io_uring();
    }
    // The other test of this file may be probing as well.
    assert!(count() < before + 20);
}
