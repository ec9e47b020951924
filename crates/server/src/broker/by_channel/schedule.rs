//! When something is due while a log is heard.

use crate::broker::fault::Fault;
use std::time::Duration;
use tokio::time::Instant;

/// Between two audits. If the last message of a channel is lost on its way, it is missing for no longer than this and [`SECOND_LOOK`].
const AUDIT_INTERVAL: Duration = Duration::from_secs(30);
/// An audit is no earlier than this after the one before it: streams with little to say have a pause before each message.
const AUDIT_PAUSE: Duration = Duration::from_secs(10);
/// Between two looks at the figures, which take as long as there are channels.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// What an audit finds may be on its way: it is looked at again after this.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// How long a fence may take. Its question or its answer may be lost.
pub(super) const FENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// What a subscription may take more: measured, 142,000 a second with three servers.
const SUBSCRIPTION_TIME: Duration = Duration::from_micros(50);

/// A fence that was asked for.
struct Fence {
    /// How long its answer may take.
    patience: Duration,
    deadline: Instant,
}

/// When something is due.
pub(super) struct Schedule {
    audit: Instant,
    /// When the last audit was. Opening the log counts as one, because it finds the same.
    audited: Instant,
    new_channels: Instant,
    count: Instant,
    second_look: Option<Instant>,
    fence: Option<Fence>,
    /// Nodes that begin at once do not do everything at once.
    pub(super) jitter: Duration,
}

impl Schedule {
    /// Of a log that was opened just now.
    pub(super) fn new(jitter: Duration) -> Self {
        let now = Instant::now();
        Self {
            audit: now + AUDIT_INTERVAL + jitter,
            audited: now,
            new_channels: now + SECOND_LOOK,
            count: now,
            second_look: None,
            fence: None,
            jitter,
        }
    }

    /// A fence is asked for. It is behind all subscriptions, which the servers tell each other one by one.
    pub(super) fn begin_fence(&mut self, patience: Duration, subscriptions: usize) {
        let subscriptions = u32::try_from(subscriptions).unwrap_or(u32::MAX);
        let patience = patience + SUBSCRIPTION_TIME * subscriptions;
        let deadline = Instant::now() + patience;
        self.fence = Some(Fence { patience, deadline });
    }

    /// The answer to a fence comes. Whether one was asked for.
    pub(super) fn end_fence(&mut self) -> bool {
        self.fence.take().is_some()
    }

    /// What is wrong if a fence should have been answered by now.
    pub(super) fn late_fence(&self, now: Instant) -> Option<Fault> {
        let late = self.fence.as_ref().filter(|fence| fence.deadline <= now);
        late.map(|fence| Fault::Slow(fence.patience.as_secs()))
    }

    /// Something may have been lost just now.
    pub(super) fn hasten_audit(&mut self) {
        let soonest = Instant::now().max(self.audited + AUDIT_PAUSE);
        self.audit = self.audit.min(soonest);
    }

    /// An audit has found something that may be on its way.
    pub(super) fn look_again(&mut self) {
        let soon = Instant::now() + SECOND_LOOK;
        self.second_look.get_or_insert(soon);
    }

    /// Whether an audit is due. Then the next one is due later.
    pub(super) fn take_audit(&mut self, now: Instant) -> bool {
        let is_due = take(&mut self.audit, AUDIT_INTERVAL, now);
        if is_due {
            self.audited = now;
        }
        is_due
    }

    /// Whether it is time to look again.
    pub(super) fn take_second_look(&mut self, now: Instant) -> bool {
        self.second_look.take_if(|at| *at <= now).is_some()
    }

    /// Whether it is time to look at new channels.
    pub(super) fn take_new_channels(&mut self, now: Instant) -> bool {
        take(&mut self.new_channels, SECOND_LOOK, now)
    }

    /// Whether it is time for the figures.
    pub(super) fn take_count(&mut self, now: Instant) -> bool {
        take(&mut self.count, COUNT_INTERVAL, now)
    }
}

/// Whether something is due. Then it is due again after its interval.
fn take(at: &mut Instant, interval: Duration, now: Instant) -> bool {
    let is_due = *at <= now;
    if is_due {
        *at = now + interval;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_fence_says_how_long_it_was_waited_for() {
        let mut schedule = Schedule::new(Duration::ZERO);
        for (subscriptions, seconds) in [(0, 5), (1, 5), (100_000, 10)] {
            schedule.begin_fence(FENCE_TIMEOUT, subscriptions);
            let now = Instant::now();
            let patience = Duration::from_secs(seconds);
            assert!(schedule.late_fence(now).is_none());
            let fault = schedule.late_fence(now + patience + Duration::from_secs(1));
            let fault = fault.expect("it is late");
            assert_eq!(fault.to_string(), format!("no answer for {seconds} s"));
        }
        assert!(schedule.end_fence() && !schedule.end_fence());
        assert!(
            schedule
                .late_fence(Instant::now() + Duration::from_secs(60))
                .is_none()
        );
    }

    #[test]
    fn an_audit_is_hastened_but_not_without_end() {
        let mut schedule = Schedule::new(Duration::ZERO);
        let opened = schedule.audited;
        schedule.hasten_audit();
        assert!(!schedule.take_audit(opened + AUDIT_PAUSE / 2));
        assert!(schedule.take_audit(opened + AUDIT_PAUSE));
        assert!(!schedule.take_audit(opened + AUDIT_PAUSE));
        assert!(schedule.take_audit(opened + AUDIT_PAUSE + AUDIT_INTERVAL));
    }
}
