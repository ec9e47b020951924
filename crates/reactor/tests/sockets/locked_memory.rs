//! Where the kernel counts ring memory as locked memory of its user, rings are as large as that allows.

#![allow(clippy::unwrap_used, reason = "a test that unwraps nothing fails")]

use crate::support::{Event, Real, World, in_child_with_limit, token};
use myriad_reactor::{Reactor, Uring};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Two full-size rings fit; each end needs five.
const LOCKED_BYTES: u64 = 400 << 10;
const DESCRIPTORS: u64 = 200;
const CONNECTIONS: u32 = 900;

/// The kernel asks the thread that makes the ring (capabilities(7): capability sets are a thread's own).
fn give_up_exemption() {
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    sets.permitted.remove(CapabilitySet::IPC_LOCK);
    sets.inheritable.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    let limit = Rlimit {
        current: Some(LOCKED_BYTES / 2),
        maximum: Some(LOCKED_BYTES),
    };
    setrlimit(Resource::Memlock, limit).unwrap();
}

fn count(events: &[Event], wanted: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| wanted(event)).count()
}

#[test]
fn both_ends_fit_a_low_limit_without_rights() {
    if !<Uring as Real>::is_available() {
        return;
    }
    in_child_with_limit(DESCRIPTORS, || {
        give_up_exemption();
        let wanted = CONNECTIONS as usize;
        let mut server = World::<Uring>::listening(wanted);
        let mut crowd = World::<Uring>::connecting(wanted, server.address);
        for index in 0..CONNECTIONS {
            let target = crowd.address;
            crowd.reactor.connect(token(index), None, target).unwrap();
            crowd.until("connected", |events| {
                events.contains(&Event::Connected(token(index)))
            });
            server.accepted();
        }
        assert_eq!(
            count(&crowd.events, |event| matches!(event, Event::Connected(_))),
            wanted
        );
    });
}
