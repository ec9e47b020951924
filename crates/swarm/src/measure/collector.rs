//! From tallies to figures: decides when a publication has been measured, and what the figures are.

use crate::clock::Nanos;
use crate::engine::plan::Plan;
use crate::engine::shared::Shared;
use crate::measure::process::{MACHINE_SATURATED_SHARE, SATURATED_SHARE, Watch};
use crate::measure::push::{Acceptance, Entry, PushKey, Tally, as_micros, microseconds};
use crate::report::float;
use hdrhistogram::Histogram;
use myriad_report::{Ended, FanoutTimes, Origin, PublishAnswer, PushReport};
use std::collections::HashMap;
use std::time::Duration;

/// Without an arrival for this long, a publication that reached everyone still connected, or that was
/// somebody else's, is taken to be over.
const QUIET: Duration = Duration::from_secs(2);

/// How far the product of two floats may miss its whole number, which must not cost a rank.
const HAIR: f64 = 1e-6;

/// Publications reported one by one; of a longer run, the later ones are in the totals alone.
const REPORTS_MAX: usize = 10_000;

/// Each time of the slower one.
fn slower(one: FanoutTimes, other: FanoutTimes) -> FanoutTimes {
    FanoutTimes {
        first_ms: extreme(one.first_ms, other.first_ms, f64::max),
        p50_ms: extreme(one.p50_ms, other.p50_ms, f64::max),
        p90_ms: extreme(one.p90_ms, other.p90_ms, f64::max),
        p99_ms: extreme(one.p99_ms, other.p99_ms, f64::max),
        p999_ms: extreme(one.p999_ms, other.p999_ms, f64::max),
        last_ms: extreme(one.last_ms, other.last_ms, f64::max),
    }
}

/// The same over `expected` clients, of which a publication may have reached fewer: what the others never saw
/// took forever. Absent when nobody was expected.
fn times_of_expected(whole: &Tally, expected: u64) -> FanoutTimes {
    let reached = times_of(&whole.times, whole.first, whole.last);
    if whole.received >= expected {
        return reached;
    }
    let never = Some(f64::INFINITY);
    let quantile = |q: f64| {
        let rank = (q * float(expected) - HAIR).ceil();
        let share = rank / float(whole.received);
        if share > 1.0 {
            return never;
        }
        let micros = whole.times.value_at_quantile(share);
        Some(micros_as_millis(micros).clamp(as_millis(whole.first), as_millis(whole.last)))
    };
    FanoutTimes {
        first_ms: reached.first_ms.or(never),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        p999_ms: quantile(0.999),
        last_ms: never,
    }
}

/// Quantiles of a histogram of microseconds, between ends that are known exactly.
pub(crate) fn times_of(times: &Histogram<u64>, first: Duration, last: Duration) -> FanoutTimes {
    if times.is_empty() {
        return FanoutTimes::default();
    }
    let (first, last) = (as_millis(first), as_millis(last));
    // A bucket reaches up to 0.1% past its values, which must not put a quantile past the last.
    let quantile = |q| Some(micros_as_millis(times.value_at_quantile(q)).clamp(first, last));
    FanoutTimes {
        first_ms: Some(first),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        p999_ms: quantile(0.999),
        last_ms: Some(last),
    }
}

fn extreme(a: Option<f64>, b: Option<f64>, choose: fn(f64, f64) -> f64) -> Option<f64> {
    [a, b].into_iter().flatten().reduce(choose)
}

/// The worst of several publications: what thresholds are held against.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    pub count: u64,
    pub times: FanoutTimes,
    pub reach: Option<f64>,
    pub accepted_ms: Option<f64>,
}

impl Worst {
    /// Adds one that reached whom it reached: what is missing of an own one counts as the worst there is.
    fn add(&mut self, whole: &Tally, report: &PushReport) {
        self.count += 1;
        let (times, reach, accepted_ms) = if report.origin == Origin::Own {
            let reach = if report.ended.is_unpublished() {
                Some(0.0)
            } else {
                report.reach
            };
            // Without a reach everyone was away on purpose. With one, somebody is missing even where nobody was up.
            let expected = reach.map_or(0, |_| report.expected.max(1));
            (
                times_of_expected(whole, expected),
                reach,
                report.accepted_ms.or(Some(f64::INFINITY)),
            )
        } else {
            // Whom somebody else meant to reach is unknown.
            (report.times, report.reach, None)
        };
        self.times = slower(self.times, times);
        self.reach = extreme(self.reach, reach, f64::min);
        self.accepted_ms = extreme(self.accepted_ms, accepted_ms, f64::max);
    }
}

/// The arrivals of one publication.
pub(crate) struct Single {
    pub sequence: u32,
    pub expected: u64,
    last: Duration,
    /// In microseconds.
    pub times: Histogram<u64>,
}

/// All publications of one origin together.
pub(crate) struct Series {
    pub worst: Worst,
    /// Clients that were to get those that were published, over all of them; and of them, those that did.
    pub expected: u64,
    pub received: u64,
    /// Expected and not received, where it is known who was expected.
    pub missed: u64,
    /// Own publications whose request was not answered with success.
    pub failed: u64,
    /// Every arrival, in microseconds.
    pub times: Histogram<u64>,
    /// The fastest and the slowest arrival, exactly.
    pub first: Duration,
    pub last: Duration,
    /// The one that reached all it was to reach soonest, and the one whose last arrival came latest.
    pub fastest: Option<Single>,
    pub slowest: Option<Single>,
    /// Publications during which a thread of the crowd, or the machine, had no rest.
    pub crowd_saturated: u64,
    pub machine_saturated: u64,
}

impl Series {
    fn new() -> Self {
        Self {
            worst: Worst::default(),
            expected: 0,
            received: 0,
            missed: 0,
            failed: 0,
            times: microseconds(),
            first: Duration::MAX,
            last: Duration::ZERO,
            fastest: None,
            slowest: None,
            crowd_saturated: 0,
            machine_saturated: 0,
        }
    }

    fn add(&mut self, whole: &Tally, report: &PushReport) {
        self.worst.add(whole, report);
        if !report.ended.is_unpublished() {
            self.expected += report.expected;
            self.received += report.received;
        }
        self.missed += report.missed;
        let failed = |answer| answer != PublishAnswer::Accepted;
        self.failed += u64::from(report.answer.is_some_and(failed));
        let above = |share: Option<f64>, limit| u64::from(share.is_some_and(|share| share > limit));
        self.crowd_saturated += above(report.crowd_cpu_share, SATURATED_SHARE);
        self.machine_saturated += above(report.machine_cpu_share, MACHINE_SATURATED_SHARE);
        self.compare(whole, report);
        self.first = self.first.min(whole.first);
        self.last = self.last.max(whole.last);
        self.times
            .add(&whole.times)
            .expect("a histogram that grows takes any other of its precision");
    }

    fn compare(&mut self, whole: &Tally, report: &PushReport) {
        let single = || {
            Some(Single {
                sequence: report.sequence,
                expected: report.expected,
                last: whole.last,
                times: whole.times.clone(),
            })
        };
        let is_slowest = |one: &Single| whole.last > one.last;
        if whole.received > 0 && self.slowest.as_ref().is_none_or(is_slowest) {
            self.slowest = single();
        }
        let is_fastest = |one: &Single| whole.last < one.last;
        let is_whole = whole.received > 0 && whole.received >= report.expected;
        if is_whole && self.fastest.as_ref().is_none_or(is_fastest) {
            self.fastest = single();
        }
    }

    /// Received / expected, over all publications.
    pub(crate) fn reach(&self) -> Option<f64> {
        ratio(self.received, self.expected)
    }
}

/// Collects finished publications.
pub(crate) struct Collector {
    channels: Vec<String>,
    settle: Duration,
    pub reports: Vec<PushReport>,
    pub own: Series,
    pub foreign: Series,
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
struct Progress {
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
            own: Series::new(),
            foreign: Series::new(),
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
        let progress = self.progress(shared, &open, measured_from);
        let mut finished = Vec::new();
        for mut entry in open {
            if entry.expected.is_none() {
                let expected = shared.open_terminals(|_| true);
                shared.ledger.expect(entry.key, expected);
                entry.expected = Some(expected);
            }
            let progress = progress.get(&entry.key).copied().unwrap_or_default();
            let ended = match self.judge(shared, plan, &entry, progress, now) {
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
    fn progress(
        &mut self,
        shared: &Shared,
        open: &[Entry],
        measured_from: u64,
    ) -> HashMap<PushKey, Progress> {
        let mut progress: HashMap<PushKey, Progress> = open
            .iter()
            .map(|entry| (entry.key, Progress::default()))
            .collect();
        for mut account in shared.accounts() {
            account
                .departed
                .retain(|&number, _| number >= measured_from);
            for entry in open {
                if let (Some(progress), Some(departed)) = (
                    progress.get_mut(&entry.key),
                    account.departed.get(&entry.number),
                ) {
                    progress.departed += departed;
                }
            }
            account.tallies.retain(|key, tally| {
                let Some(progress) = progress.get_mut(key) else {
                    // One that was made since `open` was taken is no late one.
                    let is_new = shared.ledger.is_open(*key);
                    self.late += if is_new { 0 } else { tally.received };
                    return is_new;
                };
                progress.received += tally.received;
                progress.last = progress.last.max(tally.last);
                true
            });
        }
        progress
    }

    fn judge(
        &self,
        shared: &Shared,
        plan: &Plan,
        entry: &Entry,
        progress: Progress,
        now: Nanos,
    ) -> Option<Ended> {
        match entry.acceptance {
            Acceptance::Refused => return Some(Ended::Refused),
            Acceptance::Unreached => return Some(Ended::Unreached),
            Acceptance::After(_) | Acceptance::Unanswered | Acceptance::Unknown => {}
        }
        let quiet = now.since(entry.base.plus(progress.last).max(entry.made));
        let expected = entry
            .expected
            .unwrap_or(0)
            .saturating_sub(progress.departed);
        match entry.key {
            PushKey::Own { stream, .. } => {
                // The answer to the request may come after the last arrival, and belongs to the figures.
                let answered = entry.acceptance != Acceptance::Unknown;
                if progress.received >= expected && (answered || quiet >= self.settle) {
                    return Some(Ended::Complete);
                }
                // Clients that left since cannot be reached any more: no reason to wait long for them.
                let open =
                    shared.open_terminals(|target| plan.targets[target].slot(stream).is_some());
                let patience = if answered && progress.received >= open {
                    QUIET
                } else {
                    self.settle
                };
                (quiet >= patience).then_some(Ended::Settled)
            }
            // While clients connect, a server that keeps history goes on giving it to each of them.
            PushKey::Foreign(_)
                if progress.received >= expected && expected > 0 && !shared.is_connecting() =>
            {
                Some(Ended::Complete)
            }
            PushKey::Foreign(_) => (quiet >= QUIET).then_some(Ended::Settled),
        }
    }

    /// Takes the tallies of a finished publication and makes its figures. None of a message that one
    /// client alone got: that was a greeting, not a publication.
    fn finish(
        &mut self,
        shared: &Shared,
        watch: &Watch,
        entry: &Entry,
        ended: Ended,
    ) -> Option<PushReport> {
        let mut whole = Tally::new(entry.base);
        let (mut churned, mut crowd_cpu_share) = (0, None);
        for mut account in shared.accounts() {
            if let Some(tally) = account.tallies.remove(&entry.key) {
                crowd_cpu_share = extreme(crowd_cpu_share, tally.busy_share(), f64::max);
                whole.merge(&tally);
            }
            churned += account.departed.get(&entry.number).copied().unwrap_or(0);
        }
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
                _ => ratio(whole.received, expected),
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
        let series = match report.origin {
            Origin::Own => &mut self.own,
            Origin::Foreign => &mut self.foreign,
        };
        // One that the end of the run cut short says nothing about the server.
        if report.ended != Ended::CutShort {
            series.add(&whole, report);
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

fn ratio(part: u64, whole: u64) -> Option<f64> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "clients are far fewer than 2^52"
    )]
    let ratio = part as f64 / whole as f64;
    (whole > 0).then_some(ratio)
}

/// Milliseconds, to the microsecond.
pub(crate) fn as_millis(duration: Duration) -> f64 {
    micros_as_millis(as_micros(duration))
}

/// Milliseconds of whole microseconds.
pub(crate) fn micros_as_millis(micros: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "times of a run are far below 2^52 microseconds"
    )]
    let micros = micros as f64;
    micros / 1000.0
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
        collector.progress(&shared, &open, 1);
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
