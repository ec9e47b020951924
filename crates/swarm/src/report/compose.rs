//! From a finished run to its report.

use crate::clock::Nanos;
use crate::engine::thread::Tables;
use crate::failure::Failure;
use crate::measure::collector::{
    FanoutTimes, Origin, PushReport, Series, as_millis, micros_as_millis,
};
use crate::measure::process::{LATE_MAX, SATURATED_SHARE};
use crate::measure::rates::per_second;
use crate::measure::round_trip::{Counts, RoundTripReport, RoundTrips};
use crate::report::{
    ChurnReport, CrowdReport, Fanout, Messages, Outcome, Pings, Report, Settings, Setup, text,
};
use crate::run::{Figures, Run, Times, closes};
use hdrhistogram::Histogram;
use myriad_reactor::Driver;
use std::collections::BTreeMap;
use std::time::Duration;

impl Run<'_> {
    /// The report; its thresholds may turn a finished run into a failed one.
    pub(crate) fn report(&self, outcome: Outcome, figures: &Figures, times: &Times) -> Report {
        let mut report = Report {
            program: "myriad swarm",
            version: env!("CARGO_PKG_VERSION"),
            run_id: format!("{:04x}", self.plan.run),
            started_unix_s: self.started_unix_s,
            elapsed_s: self.elapsed_s(),
            outcome,
            settings: self.settings(),
            churn: ChurnReport {
                churned: figures.totals.churned,
                forgone: figures.totals.churn_forgone,
                reconnected: figures.totals.reconnected,
                given_up: figures.totals.replacements_given_up,
                impatient: figures.totals.impatient,
                lost: figures.totals.lost,
            },
            setup: self.setup(figures, times),
            errors: self.errors(figures),
            closes: closes(figures),
            messages: self.messages(figures),
            pings: pings(figures, times),
            echo: self.echo(times),
            request: self.request(),
            fanout: self.fanout(),
            pushes: self.pushes(),
            crowd: self.crowd(figures),
            thresholds: Vec::new(),
            warnings: self.warnings(figures),
        };
        let verdicts = self
            .config
            .thresholds
            .iter()
            .map(|threshold| threshold.judge(|metric| report.value_of(metric)));
        report.thresholds = verdicts.collect();
        if outcome == Outcome::Finished && report.thresholds.iter().any(|verdict| !verdict.passed) {
            report.outcome = Outcome::ThresholdsFailed;
        }
        report
    }

    fn settings(&self) -> Settings {
        let config = self.config;
        let publish = config.publish.as_ref();
        let publish_urls: Vec<String> = publish
            .iter()
            .flat_map(|publish| &publish.endpoints)
            .map(|endpoint| endpoint.url.clone())
            .collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Settings {
            targets: config
                .targets
                .iter()
                .map(|target| target.url.clone())
                .collect(),
            connections: config.connections,
            connect_rate_per_s: config.connect_rate_per_s,
            connecting_max: config.connecting_max,
            threads: self.plan.threads,
            driver: match self.driver {
                Driver::IoUring => "io_uring",
                Driver::Epoll => "epoll",
            },
            tables: match self.tables {
                Tables::Shared => "shared",
                Tables::Own => "own",
            },
            sources: self.plan.sources.describe(),
            churn_per_s: config.churn_per_s,
            heartbeat_s: config.heartbeat.map(|interval| interval.as_secs_f64()),
            publish_url: publish_urls.first().cloned(),
            publish_urls,
            publish_every_s: publish.map(|publish| publish.every.as_secs_f64()),
            payload_bytes: publish.map(|publish| publish.payload_bytes),
            request_urls: config
                .requests
                .iter()
                .flat_map(|requests| &requests.endpoints)
                .map(|endpoint| endpoint.url.clone())
                .collect(),
            request_connections: config
                .requests
                .as_ref()
                .map(|requests| requests.connections),
            echo_bytes: config.echo.map(|echo| echo.payload_bytes),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
        }
    }

    fn setup(&self, figures: &Figures, times: &Times) -> Setup {
        let totals = &figures.totals;
        let elapsed = match (totals.first_attempt, totals.last_opened) {
            (Some(first), Some(last)) => last.since(first),
            _ => Duration::ZERO,
        };
        Setup {
            connected: totals.opened,
            compressed: self.config.compression.then_some(totals.compressed),
            connections_wanted: self.config.connections,
            given_up: totals.given_up,
            elapsed_s: elapsed.as_secs_f64(),
            rate_per_s: per_second(totals.opened, elapsed),
            // A second that is longer than the whole would be a mean over nothing.
            peak_rate_per_s: self
                .setup_peak
                .best()
                .filter(|_| elapsed >= Duration::from_secs(1)),
            p50_ms: quantile(&times.setup, 0.5),
            p99_ms: quantile(&times.setup, 0.99),
            slowest_ms: quantile(&times.setup, 1.0),
        }
    }

    fn messages(&self, figures: &Figures) -> Messages {
        let totals = &figures.totals;
        let rates = self.message_rates.as_ref();
        let [one, five, fifteen] = rates.map(|rates| rates.weighted()).unwrap_or_default();
        Messages {
            count: totals.messages,
            payload_bytes: totals.message_bytes,
            mean_per_s: rates.map_or(0.0, |rates| rates.mean()),
            last_1_min_per_s: one,
            last_5_min_per_s: five,
            last_15_min_per_s: fifteen,
            gaps: totals.gaps.saturating_sub(totals.overtaken),
            overtaken: totals.overtaken,
            duplicates: totals.duplicates,
            unexpected: totals.unexpected,
            late: self.collector.late,
            unmeasured: totals.unmeasured,
            ahead: totals.ahead,
        }
    }

    fn echo(&self, times: &Times) -> Option<RoundTripReport> {
        let rate_per_s = self.config.echo?.rate_per_s;
        // Without a beginning nobody connected, or the run was interrupted before.
        let window = self.shared.echo_window().unwrap_or_default();
        Some(times.echo.report(rate_per_s, window.from, window.until))
    }

    fn request(&self) -> Option<RoundTripReport> {
        let rate_per_s = self.config.requests.as_ref()?.rate_per_s;
        let Some(requester) = &self.requester else {
            let never = RoundTrips::default();
            return Some(never.report(rate_per_s, Nanos(0), Nanos(0)));
        };
        let progress = requester.progress();
        let (from, until) = (progress.from, progress.until);
        Some(progress.trips.report(rate_per_s, from, until))
    }

    /// In the order they were published; they finish in another.
    fn pushes(&self) -> Vec<PushReport> {
        let mut pushes = self.collector.reports.clone();
        pushes.sort_by(|a, b| a.published_s.total_cmp(&b.published_s));
        pushes
    }

    /// Own publications, or those of others if there were none.
    fn fanout_series(&self) -> &Series {
        let (own, foreign) = (&self.collector.own, &self.collector.foreign);
        if own.worst.count > 0 { own } else { foreign }
    }

    fn fanout(&self) -> Option<Fanout> {
        let series = self.fanout_series();
        let origin = if self.collector.own.worst.count > 0 {
            Origin::Own
        } else {
            Origin::Foreign
        };
        let worst = series.worst;
        (worst.count > 0).then(|| Fanout {
            origin,
            pushes: worst.count,
            overall: FanoutTimes::of(&series.times, series.first, series.last),
            worst: worst.times,
            reach_min: worst.reach,
            accepted_max_ms: worst.accepted_ms,
        })
    }

    fn crowd(&self, figures: &Figures) -> CrowdReport {
        let totals = &figures.totals;
        let (rss_anon_bytes, user_bytes_per_terminal) = self.memory_connected.unwrap_or_default();
        CrowdReport {
            open_at_end: totals.open,
            cpu_share_max: self.watch.share_max,
            saturated_s: self.watch.saturated_seconds,
            watched_s: self.watch.seconds,
            machine_cpu_share_max: self.watch.machine_share_max,
            user_bytes_per_terminal,
            rss_anon_bytes,
            turn_max_ms: as_millis(totals.turn_max),
            connect_late_ms: as_millis(totals.schedule_late),
            connect_window_late_ms: as_millis(totals.window_late),
            echo_late_ms: as_millis(figures.echo.late),
            echo_held_ms: as_millis(figures.echo.held),
            publish_late_ms: as_millis(
                self.publisher
                    .as_ref()
                    .map_or(Duration::ZERO, |p| p.progress().late),
            ),
        }
    }

    /// What makes the figures less trustworthy, and what to do about failures.
    fn warnings(&self, figures: &Figures) -> Vec<String> {
        let mut warnings = Vec::new();
        let (watch, totals) = (&self.watch, &figures.totals);
        if watch.saturated_seconds > 0 {
            warnings.push(format!(
                "the crowd itself was short of CPU in {} of {} seconds (at most {} of what its threads can use): times and rates may be its limit and not the server's; give it more cores, or a machine of its own",
                watch.saturated_seconds,
                watch.seconds,
                text::share(watch.share_max)
            ));
        }
        let fanout = self.fanout_series();
        warnings.extend(warnings_of_saturation(
            fanout.worst.count,
            fanout.crowd_saturated,
            fanout.machine_saturated,
        ));
        let late = |duration: Duration| text::time(as_millis(duration));
        if totals.schedule_late > LATE_MAX {
            warnings.push(format!(
                "the connect schedule was up to {} late because the crowd could not keep it; lower --connect-rate",
                late(totals.schedule_late)
            ));
        }
        if totals.window_late > LATE_MAX {
            warnings.push(format!(
                "the connect schedule was up to {} late because {} connections were under way already: the server is slower than --connect-rate",
                late(totals.window_late),
                text::count(u64::from(self.plan.connecting_max))
            ));
        }
        if totals.opened < self.config.connections {
            let connected = text::count(totals.opened);
            warnings.push(format!(
                "only {connected} of {} connected",
                text::count(self.config.connections)
            ));
        }
        if totals.churn_forgone > 0 {
            warnings.push(format!(
                "{} terminals were to leave by --churn and did not, because too many were still being replaced or the crowd had no CPU: the churn was lower than asked for",
                text::count(totals.churn_forgone)
            ));
        }
        if totals.replacements_given_up > 0 {
            warnings.push(format!(
                "{} of those that left could not be replaced; see the errors",
                text::count(totals.replacements_given_up)
            ));
        }
        warnings.extend(
            figures
                .failures
                .keys()
                .filter_map(|failure| advice(*failure)),
        );
        self.warn_of_echoes(figures, &mut warnings);
        self.warn_of_requests(&mut warnings);
        self.warn_of_publisher(&mut warnings);
        if self.drain_timed_out {
            warnings.push(
                "closing took too long and was given up; the kernel closes the rest".to_owned(),
            );
        }
        warnings
    }

    fn warn_of_echoes(&self, figures: &Figures, warnings: &mut Vec<String>) {
        let counts = &figures.echo;
        if counts.late > LATE_MAX {
            warnings.push(format!(
                "echoes were sent up to {} after they were due because the crowd had no CPU for them, and that is part of their times; lower --echo, or give it more cores",
                text::time(as_millis(counts.late))
            ));
        }
        let why = "too many were unanswered or unsent: the server is slower than --echo";
        warnings.extend(warnings_of_schedule("echoes", counts, why));
    }

    fn warn_of_requests(&self, warnings: &mut Vec<String>) {
        let Some(requester) = &self.requester else {
            return;
        };
        let progress = requester.progress();
        let why = "every connection waited for an answer: the server is slower than --request-rate, or --request-connections are too few";
        warnings.extend(warnings_of_schedule(
            "requests",
            &progress.trips.counts,
            why,
        ));
        warnings.extend(warnings_of_urls(
            "requests to",
            &progress.failures,
            &progress.trouble,
        ));
    }

    fn warn_of_publisher(&self, warnings: &mut Vec<String>) {
        let Some(publisher) = &self.publisher else {
            return;
        };
        let progress = publisher.progress();
        let every = self.config.publish.as_ref().map(|publish| publish.every);
        if progress.late > publish_late_max(every.unwrap_or_default()) {
            warnings.push(format!(
                "the publish schedule was up to {} late, and that is part of the times: answers took longer than --every, or the publisher had no CPU",
                text::time(as_millis(progress.late))
            ));
        }
        warnings.extend(warnings_of_urls(
            "publishing to",
            &progress.failures,
            &progress.trouble,
        ));
    }
}

/// Lateness of the publish schedule above which the pushes were not those that were asked for.
fn publish_late_max(every: Duration) -> Duration {
    LATE_MAX.min(every / 2)
}

/// Of so many pushes, some in which a thread of the crowd had no rest, and some in which the machine had none.
fn warnings_of_saturation(pushes: u64, crowd: u64, machine: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    let (of, limit) = (text::count(pushes), text::share(SATURATED_SHARE));
    if crowd > 0 {
        warnings.push(format!(
            "a thread of the crowd was above {limit} of its processor during {} of {of} pushes: their times may be its limit and not the server's",
            text::count(crowd)
        ));
    }
    if machine > 0 {
        warnings.push(format!(
            "this machine had no processor left during {} of {of} pushes: if server and crowd share it, these times contain both",
            text::count(machine)
        ));
    }
    warnings
}

/// What to do about each kind of failure, and the last trouble with each URL.
fn warnings_of_urls(
    what: &str,
    failures: &BTreeMap<Failure, u64>,
    trouble: &BTreeMap<String, String>,
) -> Vec<String> {
    let troubles = trouble
        .iter()
        .map(|(url, trouble)| format!("{what} {url} failed: {trouble}"));
    let steps = failures.keys().filter_map(|failure| advice(*failure));
    steps.chain(troubles).collect()
}

fn advice(failure: Failure) -> Option<String> {
    failure.next_step().map(|step| format!("{failure}: {step}"))
}

fn quantile(times: &Histogram<u64>, quantile: f64) -> Option<f64> {
    (!times.is_empty())
        .then(|| micros_as_millis(times.value_at_quantile(quantile).min(times.max())))
}

fn pings(figures: &Figures, times: &Times) -> Pings {
    Pings {
        answered: figures.totals.pings_answered,
        heartbeats_sent: figures.totals.heartbeats_sent,
        heartbeats_answered: figures.totals.heartbeats_answered,
        p50_ms: quantile(&times.pong, 0.5),
        p99_ms: quantile(&times.pong, 0.99),
    }
}

/// What a schedule of echoes or requests could not keep, and why some had to wait.
fn warnings_of_schedule(what: &str, counts: &Counts, why_held: &str) -> Vec<String> {
    let held = (counts.held > LATE_MAX).then(|| {
        let time = text::time(as_millis(counts.held));
        format!("{what} were sent up to {time} after they were due because {why_held}")
    });
    let unsent = (counts.unsent() > 0).then(|| {
        let unsent = text::count(counts.unsent());
        format!(
            "{unsent} {what} fell due and were never sent, and are in no time: the times are those of a lower load than asked for"
        )
    });
    held.into_iter().chain(unsent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_and_what_was_never_sent_is_warned_of() {
        let mut counts = Counts {
            due: 9,
            sent: 9,
            held: LATE_MAX,
            ..Counts::default()
        };
        assert_eq!(warnings_of_schedule("echoes", &counts, "so"), [""; 0]);
        (counts.due, counts.held) = (1_009, Duration::from_millis(1_500));
        let warnings = warnings_of_schedule("echoes", &counts, "so");
        assert_eq!(
            warnings[0],
            "echoes were sent up to 1.50 s after they were due because so"
        );
        assert!(
            warnings[1].starts_with("1,000 echoes fell due and were never sent"),
            "{warnings:?}"
        );
    }

    #[test]
    fn saturation_is_warned_of_where_it_was() {
        assert_eq!(warnings_of_saturation(3, 0, 0), [""; 0]);
        let crowd = warnings_of_saturation(3, 2, 0);
        assert_eq!(crowd.len(), 1);
        assert!(crowd[0].contains("2 of 3 pushes"), "{crowd:?}");
        let machine = warnings_of_saturation(3, 0, 3);
        assert_eq!(machine.len(), 1);
        assert!(
            machine[0].contains("these times contain both"),
            "{machine:?}"
        );
    }

    #[test]
    fn a_short_interval_leaves_less_room_for_lateness() {
        assert_eq!(publish_late_max(Duration::from_secs(5)), LATE_MAX);
        let short = publish_late_max(Duration::from_millis(20));
        assert_eq!(short, Duration::from_millis(10));
    }
}
