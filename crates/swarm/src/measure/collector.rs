//! From tallies to figures: decides when a publication has been measured, and makes its report.

use crate::clock::Nanos;
use crate::engine::plan::Plan;
use crate::engine::shared::Shared;
use crate::measure::fanout::{FanoutFigures, extreme, times_of};
use crate::measure::figures::{as_millis, share};
use crate::measure::process::Watch;
use crate::measure::push::{Acceptance, Entry, PushKey, Tally};
use hdrhistogram::Histogram;
use myriad_report::{Ended, Origin, PublishAnswer, PushReport};
use std::collections::HashMap;
use std::time::Duration;

/// Without an arrival for this long, a publication that reached everyone still connected, or that was
/// somebody else's, is taken to be over.
const QUIET: Duration = Duration::from_secs(2);

/// Publications reported one by one; of a longer run, the later ones are in the totals alone.
const REPORTS_MAX: usize = 10_000;

/// Collects finished publications.
pub(crate) struct Collector {
    channels: Vec<String>,
    settle: Duration,
    pub reports: Vec<PushReport>,
    pub own: FanoutFigures,
    pub foreign: FanoutFigures,
    /// Arrivals after their measurement had ended.
    pub late: u64,
    /// Arrivals beyond those expected.
    pub replayed: u64,
    /// Arrivals from before their publication was made.
    pub made_up: u64,
    /// When those were made that were measured since this was taken, and their arrivals.
    pub measured: Vec<(Nanos, Histogram<u64>)>,
    foreign_seen: u32,
}

/// Arrivals of one open publication so far.
#[derive(Clone, Copy, Default)]
struct Arrived {
    received: u64,
    departed: u64,
    last: Duration,
}

impl Collector {
    pub(crate) fn new(channels: Vec<String>, settle: Duration) -> Self {
        Self {
            channels,
            settle,
            reports: Vec::new(),
            own: FanoutFigures::new(),
            foreign: FanoutFigures::new(),
            late: 0,
            replayed: 0,
            made_up: 0,
            measured: Vec::new(),
            foreign_seen: 0,
        }
    }

    /// Ends the measurements that are over, or all of them when the run is, and returns their figures.
    pub(crate) fn collect(
        &mut self,
        shared: &Shared,
        plan: &Plan,
        watch: &Watch,
        now: Nanos,
        run_over: bool,
    ) -> Vec<PushReport> {
        // Before the open ones: what is called but not entered yet must not be taken for measured.
        let measured_from = shared.ledger.measured_from();
        let open = shared.ledger.open();
        let arrived = self.arrived(shared, &open, measured_from);
        let mut finished = Vec::new();
        for mut entry in open {
            if entry.expected.is_none() {
                let expected = shared.open_terminals(|_| true);
                shared.ledger.expect(entry.key, expected);
                entry.expected = Some(expected);
            }
            let arrived = arrived.get(&entry.key).copied().unwrap_or_default();
            let ended = match self.judge(shared, plan, &entry, arrived, now) {
                Some(ended) => ended,
                None if run_over => Ended::CutShort,
                None => continue,
            };
            let stragglers_until = (ended != Ended::Complete).then(|| now.plus(self.settle));
            shared.ledger.close(entry.key, stragglers_until);
            finished.extend(self.finish(shared, watch, &entry, ended));
        }
        shared.ledger.forget_stragglers(now);
        finished
    }

    /// Sums what threads have of open publications, and clears away what came after a measurement's end.
    fn arrived(
        &mut self,
        shared: &Shared,
        open: &[Entry],
        measured_from: u64,
    ) -> HashMap<PushKey, Arrived> {
        let mut arrived: HashMap<PushKey, Arrived> = open
            .iter()
            .map(|entry| (entry.key, Arrived::default()))
            .collect();
        for mut account in shared.accounts() {
            account
                .departed
                .retain(|&number, _| number >= measured_from);
            for entry in open {
                if let (Some(arrived), Some(departed)) = (
                    arrived.get_mut(&entry.key),
                    account.departed.get(&entry.number),
                ) {
                    arrived.departed += departed;
                }
            }
            account.tallies.retain(|key, tally| {
                let Some(arrived) = arrived.get_mut(key) else {
                    // One that was made since `open` was taken is no late one.
                    let is_new = shared.ledger.is_open(*key);
                    self.late += if is_new { 0 } else { tally.received };
                    return is_new;
                };
                arrived.received += tally.received;
                arrived.last = arrived.last.max(tally.last);
                true
            });
        }
        arrived
    }

    fn judge(
        &self,
        shared: &Shared,
        plan: &Plan,
        entry: &Entry,
        arrived: Arrived,
        now: Nanos,
    ) -> Option<Ended> {
        match entry.acceptance {
            Acceptance::Refused => return Some(Ended::Refused),
            Acceptance::Unreached => return Some(Ended::Unreached),
            Acceptance::After(_) | Acceptance::Unanswered | Acceptance::Unknown => {}
        }
        let quiet = now.since(entry.base.plus(arrived.last).max(entry.made));
        let expected = entry.expected.unwrap_or(0).saturating_sub(arrived.departed);
        match entry.key {
            PushKey::Own { stream, .. } => {
                // The answer to the request may come after the last arrival, and belongs to the figures.
                let answered = entry.acceptance != Acceptance::Unknown;
                if arrived.received >= expected && (answered || quiet >= self.settle) {
                    return Some(Ended::Complete);
                }
                // Clients that left since cannot be reached any more: no reason to wait long for them.
                let open =
                    shared.open_terminals(|target| plan.targets[target].slot(stream).is_some());
                let patience = if answered && arrived.received >= open {
                    QUIET
                } else {
                    self.settle
                };
                (quiet >= patience).then_some(Ended::Settled)
            }
            // While clients connect, a server that keeps history goes on giving it to each of them.
            PushKey::Foreign(_)
                if arrived.received >= expected && expected > 0 && !shared.is_connecting() =>
            {
                Some(Ended::Complete)
            }
            PushKey::Foreign(_) => (quiet >= QUIET).then_some(Ended::Settled),
        }
    }

    /// Makes the figures of a finished publication. None of a message that one
    /// client alone got: that was a greeting, not a publication.
    fn finish(
        &mut self,
        shared: &Shared,
        watch: &Watch,
        entry: &Entry,
        ended: Ended,
    ) -> Option<PushReport> {
        let (mut whole, churned, crowd_cpu_share) = take_tallies(shared, entry);
        let expected = entry.expected.unwrap_or(0).saturating_sub(churned);
        let (origin, channel, sequence) = match entry.key {
            PushKey::Own { stream, sequence } => (
                Origin::Own,
                self.channels.get(usize::from(stream)).cloned(),
                sequence,
            ),
            PushKey::Foreign(_) if whole.received < 2 && expected > 1 => return None,
            PushKey::Foreign(_) => {
                self.foreign_seen += 1;
                (Origin::Foreign, None, self.foreign_seen)
            }
        };
        // Of nobody expected nothing is known: whoever got it may have been there.
        let replayed = if expected > 0 {
            whole.keep_first(expected)
        } else {
            0
        };
        self.replayed += replayed;
        self.made_up += whole.made_up;
        let is_known = origin == Origin::Own && ended != Ended::CutShort;
        let missed = if is_known && !ended.is_unpublished() {
            expected - whole.received.min(expected)
        } else {
            0
        };
        let (accepted_ms, answer) = answer(entry.acceptance, origin, ended);
        let report = PushReport {
            origin,
            channel,
            sequence,
            published_s: entry.base.since(Nanos(0)).as_secs_f64(),
            expected,
            churned,
            received: whole.received,
            missed,
            replayed,
            reach: match ended {
                Ended::Refused | Ended::Unreached => None,
                _ if entry.deserted => Some(0.0),
                _ => share(whole.received, expected),
            },
            times: times_of(&whole.times, whole.first, whole.last),
            accepted_ms,
            answer,
            crowd_cpu_share,
            // Until an arrival that never was, there is no time in which the machine could be busy.
            machine_cpu_share: (whole.received > 0)
                .then(|| watch.machine_share(entry.base, entry.base.plus(whole.last)))
                .flatten(),
            ended,
        };
        self.keep(&report, whole, entry.base);
        Some(report)
    }

    /// Adds one that has been measured to those of its origin, and to those that are reported one by one.
    fn keep(&mut self, report: &PushReport, whole: Tally, base: Nanos) {
        let fanout = match report.origin {
            Origin::Own => &mut self.own,
            Origin::Foreign => &mut self.foreign,
        };
        // One that the end of the run cut short says nothing about the server.
        if report.ended != Ended::CutShort {
            fanout.add(&whole, report);
        }
        if self.reports.len() < REPORTS_MAX {
            self.reports.push(report.clone());
        }
        self.measured.push((base, whole.times));
    }
}

/// When and how a publish request was answered.
fn answer(
    acceptance: Acceptance,
    origin: Origin,
    ended: Ended,
) -> (Option<f64>, Option<PublishAnswer>) {
    match acceptance {
        Acceptance::After(duration) => (Some(as_millis(duration)), Some(PublishAnswer::Accepted)),
        Acceptance::Refused => (None, Some(PublishAnswer::Refused)),
        Acceptance::Unreached => (None, Some(PublishAnswer::Unreached)),
        Acceptance::Unanswered => (None, Some(PublishAnswer::Unanswered)),
        Acceptance::Unknown if origin == Origin::Foreign || ended == Ended::CutShort => {
            (None, None)
        }
        Acceptance::Unknown => (None, Some(PublishAnswer::Unanswered)),
    }
}

/// Takes the tallies of a publication from all threads: what arrived, the terminals that left before it came to them, and the largest
/// share of its processor that a thread needed for it.
fn take_tallies(shared: &Shared, entry: &Entry) -> (Tally, u64, Option<f64>) {
    let mut whole = Tally::new(entry.base);
    let (mut churned, mut crowd_cpu_share) = (0, None);
    for mut account in shared.accounts() {
        if let Some(tally) = account.tallies.remove(&entry.key) {
            crowd_cpu_share = extreme(crowd_cpu_share, tally.busy_share(), f64::max);
            whole.merge(&tally);
        }
        churned += account.departed.get(&entry.number).copied().unwrap_or(0);
    }
    (whole, churned, crowd_cpu_share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Endpoint, Publish, PublishBody};
    use crate::target::Target;

    const EXPECTED: u32 = 1000;
    const SETTLE: Duration = Duration::from_secs(5);

    /// A crowd of one thread whose connections are all open, and what collects its figures.
    fn crowd() -> (Shared, Plan, Collector) {
        let target = Target::parse("ws://127.0.0.1:8000/raw?channel=x").unwrap();
        let mut config = Config::new(vec![target], u64::from(EXPECTED));
        config.driver = Some(myriad_reactor::Driver::Epoll);
        let endpoint = Endpoint::parse("http://127.0.0.1:8000/publish").unwrap();
        let mut publish = Publish::new(endpoint, Duration::from_secs(1));
        publish.body = PublishBody::Plain;
        config.publish = Some(publish);
        let plan = config.prepare().unwrap().plan;
        let shared = Shared::new(1, 1);
        shared.account(0).open_by_target[0] = EXPECTED;
        shared.account(0).totals.opened = u64::from(EXPECTED);
        (shared, plan, Collector::new(vec!["x".to_owned()], SETTLE))
    }

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// Pushes at zero, gives it to each of `reached` in one more millisecond than the one before, and measures it.
    fn push(
        crowd: &mut (Shared, Plan, Collector),
        acceptance: Acceptance,
        reached: u64,
    ) -> PushReport {
        let watch = Watch::start(at(0), 1);
        push_watched(crowd, acceptance, reached, Duration::ZERO, &watch)
    }

    /// The same, for which the thread needs so much processor time for each.
    fn push_watched(
        (shared, plan, collector): &mut (Shared, Plan, Collector),
        acceptance: Acceptance,
        reached: u64,
        each: Duration,
        watch: &Watch,
    ) -> PushReport {
        let number = shared.account(0).called + 1;
        let key = plan.key_of_number(number);
        let roll = shared.call_roll(number, |_| true);
        shared.ledger.publish(key, number, roll, at(0), at(0));
        let mut tally = Tally::new(at(0));
        for (millis, spent) in (1..=reached).zip(1..) {
            tally.record(at(millis), 1);
            tally.note_processor_time(each * spent);
        }
        shared.account(0).tallies.insert(key, tally);
        shared.ledger.answer(key, acceptance);
        let long_after = at(1_000_000);
        let mut finished = collector.collect(shared, plan, watch, long_after, false);
        assert_eq!(finished.len(), 1);
        finished.remove(0)
    }

    const ACCEPTED: Acceptance = Acceptance::After(Duration::from_millis(3));

    #[test]
    fn what_some_never_got_took_forever() {
        let mut crowd = crowd();
        push(&mut crowd, ACCEPTED, 1000);
        let whole = crowd.2.own.worst;
        assert_eq!((whole.reach, whole.accepted_ms), (Some(1.0), Some(3.0)));
        assert_eq!(whole.times.last_ms, Some(1000.0));

        let report = push(&mut crowd, ACCEPTED, 900);
        assert_eq!(report.times.last_ms, Some(900.0), "of those it reached");
        let worst = crowd.2.own.worst;
        assert_eq!(worst.reach, Some(0.9));
        let times = worst.times;
        assert_eq!(
            (times.p50_ms, times.p90_ms),
            (whole.times.p50_ms, whole.times.p90_ms)
        );
        for never in [times.p99_ms, times.p999_ms, times.last_ms] {
            assert_eq!(never, Some(f64::INFINITY));
        }
    }

    #[test]
    fn a_push_that_is_made_late_still_has_its_settle_time() {
        let (shared, plan, mut collector) = crowd();
        let watch = Watch::start(at(0), 1);
        let (key, roll) = (plan.key_of_number(1), shared.call_roll(1, |_| true));
        // Due at zero, and held up by an answer for longer than it may settle.
        shared.ledger.publish(key, 1, roll, at(0), at(60_000));
        let mut finished = |now| collector.collect(&shared, &plan, &watch, now, false).len();
        assert_eq!(finished(at(60_050)), 0);
        assert_eq!(finished(at(65_000)), 1);
    }

    #[test]
    fn a_push_that_is_made_while_threads_are_looked_at_is_not_late() {
        let (shared, plan, mut collector) = crowd();
        let watch = Watch::start(at(0), 1);
        let key = plan.key_of_number(1);
        let arrive = |count| {
            let mut tally = Tally::new(at(0));
            tally.record(at(1), count);
            shared.account(0).tallies.insert(key, tally);
        };
        let roll = shared.call_roll(1, |_| true);
        // What was open had been looked up before.
        let open = shared.ledger.open();
        shared.ledger.publish(key, 1, roll, at(0), at(0));
        shared.ledger.answer(key, ACCEPTED);
        arrive(u64::from(EXPECTED));
        collector.arrived(&shared, &open, 1);
        let finished = collector.collect(&shared, &plan, &watch, at(2), false);
        assert_eq!(finished[0].ended, Ended::Complete);
        assert_eq!(collector.late, 0);

        arrive(7);
        collector.collect(&shared, &plan, &watch, at(3), false);
        assert_eq!(collector.late, 7, "its measurement has ended");
    }

    #[test]
    fn what_was_refused_is_worse_than_anything() {
        let mut crowd = crowd();
        push(&mut crowd, ACCEPTED, 1000);
        let report = push(&mut crowd, Acceptance::Refused, 0);
        assert_eq!((report.reach, report.accepted_ms), (None, None));
        let worst = crowd.2.own.worst;
        assert_eq!(worst.reach, Some(0.0));
        assert_eq!(worst.accepted_ms, Some(f64::INFINITY));
        assert_eq!(worst.times.first_ms, Some(f64::INFINITY));
        assert_eq!(worst.times.last_ms, Some(f64::INFINITY));
    }

    #[test]
    fn a_push_without_a_rest_is_counted() {
        let mut crowd = crowd();
        let mut watch = Watch::start(at(0), 1);
        let (half, most) = (Duration::from_micros(500), Duration::from_micros(990));
        let percent = |share: Option<f64>| share.map(|share| (share * 100.0).round());
        let calm = push_watched(&mut crowd, ACCEPTED, 1000, half, &watch);
        assert_eq!(percent(calm.crowd_cpu_share), Some(50.0));
        assert_eq!(calm.machine_cpu_share, None);
        (1..10).for_each(|look| watch.note_look(at(look * 100), look * 20, 0));
        let busy = push_watched(&mut crowd, ACCEPTED, 1000, most, &watch);
        assert_eq!(percent(busy.crowd_cpu_share), Some(99.0));
        assert_eq!(percent(busy.machine_cpu_share), Some(100.0));
        let unseen = push_watched(&mut crowd, ACCEPTED, 0, most, &watch);
        assert_eq!(unseen.machine_cpu_share, None);
        let own = &crowd.2.own;
        assert_eq!((own.crowd_saturated, own.machine_saturated), (1, 1));
    }

    #[test]
    fn what_nobody_could_be_asked_for_is_no_refusal_of_the_server() {
        let mut crowd = crowd();
        let report = push(&mut crowd, Acceptance::Unreached, 0);
        assert_eq!(report.answer, Some(PublishAnswer::Unreached));
        assert_eq!((report.ended, report.missed), (Ended::Unreached, 0));
        assert_eq!(crowd.2.own.worst.reach, Some(0.0));
        assert_eq!(crowd.2.own.failed, 1);
    }

    #[test]
    fn what_was_expected_and_did_not_come_is_missed() {
        let mut crowd = crowd();
        push(&mut crowd, ACCEPTED, 1000);
        assert_eq!(push(&mut crowd, ACCEPTED, 900).missed, 100);
        push(&mut crowd, Acceptance::Refused, 0);
        let own = &crowd.2.own;
        assert_eq!((own.missed, own.failed), (100, 1));
        assert_eq!(own.reach(), Some(0.95), "of those that were published");
    }

    #[test]
    fn a_reach_is_at_most_everybody_and_the_rest_was_replayed() {
        let mut crowd = crowd();
        let report = push(&mut crowd, ACCEPTED, 1500);
        assert_eq!((report.received, report.replayed), (1000, 500));
        assert_eq!((report.reach, report.missed), (Some(1.0), 0));
        let last = report.times.last_ms.unwrap();
        assert!((1000.0..1001.0).contains(&last), "{last}");
        assert_eq!(crowd.2.replayed, 500);
        assert_eq!(crowd.2.own.times.len(), 1000);
    }

    #[test]
    fn history_that_is_given_to_a_connecting_crowd_is_one_publication() {
        let (shared, plan, mut collector) = crowd();
        let watch = Watch::start(at(0), 1);
        let key = PushKey::Foreign(7);
        let mut collect = |millis, received| {
            shared.ledger.base(key, at(10));
            let mut account = shared.account(0);
            let tally = account
                .tallies
                .entry(key)
                .or_insert_with(|| Tally::new(at(10)));
            tally.record(at(millis), received);
            drop(account);
            collector.collect(&shared, &plan, &watch, at(millis), false)
        };
        shared.account(0).open_by_target[0] = 300;
        assert_eq!(collect(20, 300).len(), 0, "more connect");
        shared.account(0).open_by_target[0] = 1000;
        assert_eq!(collect(100, 700).len(), 0);
        shared.account(0).stage = crate::engine::shared::Stage::Holding;
        let finished = collect(200, 0);
        assert_eq!(finished.len(), 1);
        let report = &finished[0];
        assert_eq!((report.expected, report.received), (300, 300));
        assert_eq!((report.replayed, report.reach), (700, Some(1.0)));
    }

    #[test]
    fn what_was_not_answered_may_have_arrived() {
        let mut crowd = crowd();
        for acceptance in [Acceptance::Unanswered, Acceptance::Unknown] {
            let all = push(&mut crowd, acceptance, 1000);
            assert_eq!(all.answer, Some(PublishAnswer::Unanswered));
            assert_eq!((all.reach, all.ended), (Some(1.0), Ended::Complete));
            assert_eq!(crowd.2.own.worst.reach, Some(1.0));
            assert_eq!(crowd.2.own.worst.accepted_ms, Some(f64::INFINITY));
        }
        let none = push(&mut crowd, Acceptance::Unanswered, 0);
        assert_eq!((none.reach, none.ended), (Some(0.0), Ended::Settled));
    }

    #[test]
    fn a_push_to_a_crowd_that_was_lost_reached_nobody() {
        let mut crowd = crowd();
        crowd.0.account(0).open_by_target[0] = 0;
        crowd.0.account(0).totals.churned = 1;
        let away = push(&mut crowd, ACCEPTED, 0);
        assert_eq!(away.reach, None, "the last one is being replaced");
        assert_eq!(crowd.2.own.worst.times.last_ms, None);

        crowd.0.account(0).totals.reconnected = 1;
        let lost = push(&mut crowd, ACCEPTED, 0);
        assert_eq!((lost.expected, lost.reach), (0, Some(0.0)));
        assert_eq!(crowd.2.own.worst.reach, Some(0.0));
        assert_eq!(crowd.2.own.worst.times.last_ms, Some(f64::INFINITY));
    }
}
