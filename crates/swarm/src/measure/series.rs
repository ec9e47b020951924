//! The run over time: a bounded list of samples, which grow longer as the run does.

use crate::clock::Nanos;
use crate::measure::figures::{add, float, micros_as_millis, microseconds};
use hdrhistogram::Histogram;
use myriad_report::{ArrivalCurve, HeatMap, Sample, SampleTimes, Series, ServerSample};
use std::time::Duration;

/// Samples at most. Past it, neighbours become one: enough for a picture, and flat memory however long the run is.
const SAMPLES_MAX: usize = 240;

/// A sample that is shorter belongs to the one before.
const HALF_SECOND: Duration = Duration::from_millis(500);

/// Rows of a heat map for each power of ten.
const ROWS_PER_DECADE: f64 = 10.0;

/// The least that a heat map tells apart, in microseconds: 10 us.
const HEAT_LEAST_MICROS: f64 = 10.0;

/// Points of an arrival curve.
const CURVE_POINTS: u32 = 100;

/// What is timed. The order is that of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timed {
    Push,
    Delivery,
    Echo,
    ClientPublish,
    Request,
    Flow,
    Ping,
}

impl Timed {
    const ALL: [Self; 7] = [
        Self::Push,
        Self::Delivery,
        Self::Echo,
        Self::ClientPublish,
        Self::Request,
        Self::Flow,
        Self::Ping,
    ];

    /// As reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Delivery => "delivery",
            Self::Echo => "echo",
            Self::ClientPublish => "client_publish",
            Self::Request => "request",
            Self::Flow => "flow",
            Self::Ping => "ping",
        }
    }
}

/// What has been counted since the run began, and what was seen of the machine in the last second.
/// `connected_least` is that of the time since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub connected: u64,
    pub connected_least: u64,
    pub connecting: u64,
    pub opened: u64,
    pub messages: u64,
    pub sent: u64,
    pub answered: u64,
    pub errors: u64,
    pub lost: u64,
    pub cpu_share: f64,
    pub machine_cpu_share: f64,
    pub rss_anon_bytes: u64,
    pub server: Option<ServerSample>,
}

/// One sample. Counters are those of its time alone.
#[derive(Clone, Debug)]
struct Slot {
    from: Nanos,
    to: Nanos,
    look: Look,
    times: [Option<Histogram<u64>>; Timed::ALL.len()],
}

impl Slot {
    /// Takes in the one that follows.
    fn merge(&mut self, next: Self) {
        // Over less than half a second, shares of processors are chance: their times come in ticks of 10 ms.
        let is_short = next.to.since(next.from) < HALF_SECOND;
        self.to = next.to;
        let (sum, more) = (&mut self.look, next.look);
        sum.connected = more.connected;
        sum.connected_least = sum.connected_least.min(more.connected_least);
        sum.connecting = more.connecting;
        sum.opened += more.opened;
        sum.messages += more.messages;
        sum.sent += more.sent;
        sum.answered += more.answered;
        sum.errors += more.errors;
        sum.lost += more.lost;
        if !is_short {
            sum.cpu_share = sum.cpu_share.max(more.cpu_share);
            sum.machine_cpu_share = sum.machine_cpu_share.max(more.machine_cpu_share);
        }
        sum.rss_anon_bytes = sum.rss_anon_bytes.max(more.rss_anon_bytes);
        let server = more.server.map(|it| ServerSample {
            cpus: it.cpus.filter(|_| !is_short),
            ..it
        });
        sum.server = merged(sum.server, server);
        for (times, more) in self.times.iter_mut().zip(next.times) {
            let Some(more) = more else { continue };
            match times {
                Some(times) => add(times, &more),
                None => *times = Some(more),
            }
        }
    }

    fn sample(&self) -> Sample {
        let (look, span) = (&self.look, self.to.since(self.from).as_secs_f64());
        let rate = |count: u64| if span > 0.0 { float(count) / span } else { 0.0 };
        let times = Timed::ALL.into_iter().zip(&self.times);
        let times = times.filter_map(|(timed, times)| {
            Some((timed.name().to_owned(), times_of(times.as_ref()?)))
        });
        Sample {
            from_s: self.from.since(Nanos(0)).as_secs_f64(),
            to_s: self.to.since(Nanos(0)).as_secs_f64(),
            connected: look.connected,
            connected_least: Some(look.connected_least),
            connecting: look.connecting,
            opened_per_s: rate(look.opened),
            messages_per_s: rate(look.messages),
            sent_per_s: rate(look.sent),
            answered_per_s: rate(look.answered),
            errors: look.errors,
            lost: look.lost,
            cpu_share: look.cpu_share,
            machine_cpu_share: look.machine_cpu_share,
            rss_anon_bytes: look.rss_anon_bytes,
            server: look.server,
            times: times.collect(),
        }
    }
}

fn merged(one: Option<ServerSample>, more: Option<ServerSample>) -> Option<ServerSample> {
    let (Some(one), Some(more)) = (one, more) else {
        return more.or(one);
    };
    Some(ServerSample {
        cpus: [one.cpus, more.cpus].into_iter().flatten().reduce(f64::max),
        rss_bytes: one.rss_bytes.max(more.rss_bytes),
        connections: more.connections.or(one.connections),
    })
}

fn times_of(times: &Histogram<u64>) -> SampleTimes {
    let quantile = |q| micros_as_millis(times.value_at_quantile(q).min(times.max()));
    SampleTimes {
        count: times.len(),
        p50_ms: quantile(0.5),
        p99_ms: quantile(0.99),
        max_ms: micros_as_millis(times.max()),
    }
}

/// A histogram of microseconds to 1%: a sample's, of which there are many.
fn coarse() -> Histogram<u64> {
    Histogram::new(2).expect("two significant digits are valid")
}

/// The times of one kind in one interval, in microseconds to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub timed: Timed,
    pub from: Nanos,
    pub to: Nanos,
    pub times: Histogram<u64>,
}

/// The same to 1%.
fn rounded(times: &Histogram<u64>) -> Histogram<u64> {
    let mut into = coarse();
    add_rounded(&mut into, times);
    into
}

fn add_rounded(into: &mut Histogram<u64>, times: &Histogram<u64>) {
    for value in times.iter_recorded() {
        into.record_n(value.value_iterated_to(), value.count_at_value())
            .expect("it grows as needed");
    }
}

/// Keeps the run over time.
#[derive(Debug)]
pub(crate) struct Recorder {
    slots: Vec<Slot>,
    interval: Duration,
    since: Nanos,
    before: Look,
    /// The fewest open clients that were seen since the last sample; none where nobody looked.
    least: Option<u64>,
    /// Publications that are measured, and not in a sample yet.
    pushes: Vec<(Nanos, Histogram<u64>)>,
    /// Of counters that only grow: their histograms at the last sample.
    seen: [Option<Histogram<u64>>; Timed::ALL.len()],
    /// What was timed since this was taken; none if nobody takes it.
    intervals: Option<Vec<Interval>>,
}

impl Recorder {
    /// Records from now on. With `keeps_intervals`, somebody takes them after each sample.
    pub(crate) fn start(now: Nanos, keeps_intervals: bool) -> Self {
        Self {
            intervals: keeps_intervals.then(Vec::new),
            slots: Vec::new(),
            interval: Duration::from_secs(1),
            since: now,
            before: Look::default(),
            least: None,
            pushes: Vec::new(),
            seen: Default::default(),
        }
    }

    /// Notes how many clients are open, many times between two samples: a storm may be over before the next one.
    pub(crate) fn note_connected(&mut self, connected: u64) {
        let least = self.least.unwrap_or(connected);
        self.least = Some(least.min(connected));
    }

    /// Takes a sample of everything since the last one, and returns it. `totals` are the times of the whole run so far, by kind.
    pub(crate) fn sample(
        &mut self,
        now: Nanos,
        look: Look,
        totals: &[(Timed, &Histogram<u64>)],
    ) -> Sample {
        let before = std::mem::replace(&mut self.before, look);
        let least = self.least.take().unwrap_or(look.connected);
        let mut slot = Slot {
            from: std::mem::replace(&mut self.since, now),
            to: now,
            look: Look {
                // Polls that are refused are taken back from those that connected.
                opened: look.opened.saturating_sub(before.opened),
                messages: look.messages.saturating_sub(before.messages),
                sent: look.sent.saturating_sub(before.sent),
                answered: look.answered.saturating_sub(before.answered),
                errors: look.errors.saturating_sub(before.errors),
                lost: look.lost.saturating_sub(before.lost),
                connected_least: least.min(look.connected),
                ..look
            },
            times: Default::default(),
        };
        for (timed, total) in totals {
            let Some(gained) = self.since_seen(*timed, total) else {
                continue;
            };
            slot.times[*timed as usize] = Some(rounded(&gained));
            if let Some(intervals) = &mut self.intervals {
                intervals.push(Interval {
                    timed: *timed,
                    from: slot.from,
                    to: slot.to,
                    times: gained,
                });
            }
        }
        let sample = slot.sample();
        match self.slots.last_mut() {
            // The end of a run is no second of its own: a rate over a tenth of one says nothing.
            Some(last)
                if last.to.since(last.from) + HALF_SECOND < self.interval
                    || slot.to.since(slot.from) < HALF_SECOND =>
            {
                last.merge(slot);
            }
            _ => self.slots.push(slot),
        }
        if self.slots.len() > SAMPLES_MAX {
            self.halve();
        }
        for (made, times) in std::mem::take(&mut self.pushes) {
            self.place_push(made, &times);
        }
        sample
    }

    /// What a histogram has gained since it was seen last; none if nothing.
    fn since_seen(&mut self, timed: Timed, total: &Histogram<u64>) -> Option<Histogram<u64>> {
        let seen = &mut self.seen[timed as usize];
        if total.len() == seen.as_ref().map_or(0, Histogram::len) {
            return None;
        }
        let mut gained = microseconds();
        for value in total.iter_recorded() {
            let at = value.value_iterated_to();
            // Past its range a histogram answers with the count of its last bucket.
            let known = seen.as_ref().filter(|seen| at <= seen.max());
            let before = known.map_or(0, |seen| seen.count_at(at));
            let count = value.count_at_value().saturating_sub(before);
            if count > 0 {
                gained.record_n(at, count).expect("it grows as needed");
            }
        }
        *seen = Some(total.clone());
        Some(gained)
    }

    /// Adds the arrivals of a publication, with the next sample, to that in which it was made.
    pub(crate) fn add_push(&mut self, made: Nanos, times: Histogram<u64>) {
        if times.is_empty() {
            return;
        }
        if let Some(intervals) = &mut self.intervals {
            intervals.push(Interval {
                timed: Timed::Push,
                from: made,
                to: made.plus(Duration::from_micros(times.max())),
                times: times.clone(),
            });
        }
        self.pushes.push((made, times));
    }

    /// What was timed since the last call.
    pub(crate) fn take_intervals(&mut self) -> Vec<Interval> {
        self.intervals
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    fn place_push(&mut self, made: Nanos, times: &Histogram<u64>) {
        let index = self.slots.partition_point(|slot| slot.to < made);
        let index = index.min(self.slots.len().saturating_sub(1));
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let into = slot.times[Timed::Push as usize].get_or_insert_with(coarse);
        add_rounded(into, times);
    }

    /// Makes one of each two neighbours.
    fn halve(&mut self) {
        self.interval *= 2;
        let mut slots = std::mem::take(&mut self.slots).into_iter();
        while let Some(mut slot) = slots.next() {
            if let Some(next) = slots.next() {
                slot.merge(next);
            }
            self.slots.push(slot);
        }
    }

    /// Everything recorded, for the report.
    pub(crate) fn series(&self, arrivals: Vec<ArrivalCurve>) -> Series {
        Series {
            interval_s: self.interval.as_secs_f64(),
            samples: self.slots.iter().map(Slot::sample).collect(),
            heat: Timed::ALL
                .into_iter()
                .filter_map(|timed| self.heat(timed))
                .collect(),
            arrivals,
        }
    }

    fn heat(&self, timed: Timed) -> Option<HeatMap> {
        let times = || {
            self.slots
                .iter()
                .map(|slot| slot.times[timed as usize].as_ref())
        };
        let least = times().flatten().map(Histogram::min).min()?;
        let most = times().flatten().map(Histogram::max).max()?;
        let (first, last) = (row(least), row(most));
        let bound = |row: usize| {
            let exponent = float(row as u64 + 1) / ROWS_PER_DECADE;
            HEAT_LEAST_MICROS * 10_f64.powf(exponent) / 1000.0
        };
        let counts = times().map(|times| {
            let mut counts = vec![0; last - first + 1];
            for value in times.into_iter().flat_map(Histogram::iter_recorded) {
                let row = row(value.value_iterated_to()).clamp(first, last);
                counts[row - first] += value.count_at_value();
            }
            counts
        });
        Some(HeatMap {
            of: timed.name().to_owned(),
            bounds_ms: (first..=last).map(bound).collect(),
            counts: counts.collect(),
        })
    }
}

/// The row of a heat map that a time belongs to.
fn row(micros: u64) -> usize {
    let decades = (float(micros.max(1)) / HEAT_LEAST_MICROS).log10().max(0.0);
    let row = myriad_units::truncate(decades * ROWS_PER_DECADE);
    usize::try_from(row).expect("a few dozen rows")
}

/// The share of `expected` clients by the time since a push was made.
pub(crate) fn arrival_curve(
    of: &str,
    sequence: Option<u32>,
    times: &Histogram<u64>,
    expected: u64,
) -> ArrivalCurve {
    let reach = (float(times.len()) / float(expected.max(1))).min(1.0);
    let point = |step: u32| {
        let share = f64::from(step) / f64::from(CURVE_POINTS);
        let micros = times.value_at_quantile(share).min(times.max());
        (micros_as_millis(micros), share * reach)
    };
    ArrivalCurve {
        of: of.to_owned(),
        sequence,
        points: (0..=CURVE_POINTS).map(point).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn ten_hours_are_as_large_as_four_minutes_and_nothing_is_lost() {
        let mut recorder = Recorder::start(at(0), false);
        let mut echoes = microseconds();
        for second in 1..=36_000 {
            echoes.record(second).unwrap();
            let look = Look {
                connected: second,
                messages: second * 10,
                cpu_share: if second == 100 { 0.97 } else { 0.1 },
                ..Look::default()
            };
            recorder.sample(at(second), look, &[(Timed::Echo, &echoes)]);
        }
        let series = recorder.series(Vec::new());
        assert!((120..=SAMPLES_MAX).contains(&series.samples.len()));
        assert_eq!(series.interval_s, 256.0);
        let counts = series
            .samples
            .iter()
            .map(|sample| sample.times["echo"].count);
        assert_eq!(counts.sum::<u64>(), 36_000);
        assert!(
            series
                .samples
                .iter()
                .all(|sample| (sample.messages_per_s - 10.0).abs() < 1e-9)
        );
        assert_eq!(series.samples[0].cpu_share, 0.97);
        assert_eq!(series.samples.last().unwrap().connected, 36_000);
        let pairs = series.samples.windows(2);
        assert!(pairs.into_iter().all(|pair| pair[0].to_s == pair[1].from_s));
        let heat = &series.heat[0];
        assert_eq!(heat.counts.iter().flatten().sum::<u64>(), 36_000);
        assert!(
            heat.counts
                .iter()
                .all(|row| row.len() == heat.bounds_ms.len())
        );
    }

    #[test]
    fn a_sample_has_the_times_since_the_one_before() {
        let mut recorder = Recorder::start(at(0), false);
        let mut echoes = microseconds();
        echoes.record_n(1_000, 90).unwrap();
        recorder.sample(at(1), Look::default(), &[(Timed::Echo, &echoes)]);
        echoes.record_n(9_000, 10).unwrap();
        let sample = recorder.sample(at(2), Look::default(), &[(Timed::Echo, &echoes)]);
        let times = sample.times["echo"];
        assert_eq!(times.count, 10);
        assert!((times.p50_ms - 9.0).abs() < 0.1, "{times:?}");
    }

    #[test]
    fn the_last_tenth_of_a_second_is_no_sample() {
        let mut recorder = Recorder::start(at(0), false);
        let look = |messages| Look {
            messages,
            ..Look::default()
        };
        recorder.sample(at(1), look(100), &[]);
        recorder.sample(Nanos(1_100_000_000), look(210), &[]);
        let samples = recorder.series(Vec::new()).samples;
        assert_eq!(samples.len(), 1);
        assert!((samples[0].messages_per_s - 210.0 / 1.1).abs() < 1e-6);
    }

    #[test]
    fn a_push_belongs_to_when_it_was_made() {
        let mut recorder = Recorder::start(at(0), false);
        for second in 1..=2 {
            recorder.sample(at(second), Look::default(), &[]);
        }
        let mut times = microseconds();
        times.record_n(5_000, 7).unwrap();
        recorder.add_push(Nanos(1_500_000_000), times);
        recorder.sample(at(3), Look::default(), &[]);
        let counts = recorder.series(Vec::new()).samples;
        let counts = counts
            .iter()
            .map(|sample| sample.times.get("push").map(|times| times.count));
        assert_eq!(counts.collect::<Vec<_>>(), [None, Some(7), None]);
    }

    #[test]
    fn intervals_hold_what_was_timed_between_two_looks() {
        let mut recorder = Recorder::start(at(0), true);
        let mut echoes = microseconds();
        for second in 1..=3 {
            echoes.record_n(1_111 * second, 5).unwrap();
            recorder.sample(at(second), Look::default(), &[(Timed::Echo, &echoes)]);
        }
        recorder.add_push(at(1), echoes.clone());
        let intervals = recorder.take_intervals();
        assert_eq!(intervals.len(), 4);
        let mut sum = microseconds();
        for interval in &intervals[..3] {
            assert_eq!(interval.times.len(), 5);
            sum.add(&interval.times).unwrap();
        }
        assert_eq!(sum, echoes, "nothing is rounded twice");
        let push = &intervals[3];
        assert_eq!((push.timed, push.from), (Timed::Push, at(1)));
        assert!(recorder.take_intervals().is_empty());
    }

    #[test]
    fn a_curve_ends_at_the_reach() {
        let mut times = microseconds();
        times.record_n(1_000, 50).unwrap();
        let curve = arrival_curve("all", None, &times, 100);
        assert_eq!(curve.points.last().unwrap().1, 0.5);
        assert_eq!(curve.points.first().unwrap().1, 0.0);
    }

    #[test]
    fn a_storm_between_two_samples_is_in_the_next_one() {
        let mut recorder = Recorder::start(Nanos(0), false);
        let at = |tenths: u64| Nanos(tenths * 100_000_000);
        let look = Look {
            connected: 100,
            ..Look::default()
        };
        for open in [100, 40, 90, 100] {
            recorder.note_connected(open);
        }
        let storm = recorder.sample(at(10), look, &[]);
        assert_eq!((storm.connected, storm.connected_least), (100, Some(40)));
        recorder.note_connected(100);
        let after = recorder.sample(at(20), look, &[]);
        assert_eq!(after.connected_least, Some(100), "it is over");
        // Those that close at the end are fewer at its end, and a sample of a tenth of a second belongs to the one before.
        let end = Look {
            connected: 30,
            cpu_share: 1.0,
            machine_cpu_share: 1.0,
            ..look
        };
        recorder.sample(at(21), end, &[]);
        let samples = recorder.slots.iter().map(Slot::sample).collect::<Vec<_>>();
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1].connected_least, Some(30));
        let shares = (samples[1].cpu_share, samples[1].machine_cpu_share);
        assert_eq!(
            shares,
            (0.0, 0.0),
            "over a tenth of a second that is chance"
        );
    }
}
