//! From a finished run to its report.

use crate::clock::Nanos;
use crate::engine::plan::HttpKind;
use crate::engine::thread::Tables;
use crate::measure::fanout::{FanoutFigures, Single, times_of};
use crate::measure::figures::{as_millis, micros_as_millis};
use crate::measure::flow_metric::Which;
use crate::measure::rates::{Rates, per_second};
use crate::measure::round_trip::RoundTrips;
use crate::measure::series::arrival_curve;
use crate::measure::threshold::{Metric, TimeOf};
use crate::report::generator;
use crate::report::warnings::server_said;
use crate::report::{
    ChurnReport, CrowdReport, Fanout, Messages, Outcome, Pings, Report, Settings, Setup, summary,
};
use crate::run::{Figures, Run, Times, closes};
use hdrhistogram::Histogram;
use myriad_report::{
    ClientPublishReport, HeldReport, HttpReport, Origin, PushReport, RoundTripReport,
    SessionReport, TlsReport, Verdict,
};
use std::time::Duration;

impl Run<'_> {
    /// The report; its thresholds and its loads may turn a finished run into a failed one.
    pub(crate) fn report(&self, outcome: Outcome, figures: &Figures, times: &Times) -> Report {
        let mut report = Report {
            outcome,
            settings: self.settings(),
            server_said: server_said(figures),
            pushes: self.pushes(),
            series: self.series(),
            cpu: self.cpu.report(),
            warnings: self.warnings(figures),
            ..self.measured(figures, times)
        };
        report.generator = generator::judge(&report);
        report.thresholds = self.verdicts(&report, times);
        if outcome == Outcome::Finished && report.thresholds.iter().any(|verdict| !verdict.passed) {
            report.outcome = Outcome::ThresholdsFailed;
        }
        if report.outcome == Outcome::Finished && summary::has_failed_load(&report) {
            report.outcome = Outcome::LoadFailed;
        }
        report.went_wrong = summary::went_wrong(&report);
        report
    }

    /// The figures that thresholds are held against.
    pub(crate) fn measured(&self, figures: &Figures, times: &Times) -> Report {
        Report {
            program: "myriad swarm".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run_id: format!("{:04x}", self.plan.run),
            started_unix_s: self.started_unix_s,
            elapsed_s: self.elapsed_s(),
            churn: ChurnReport {
                churned: figures.totals.churned,
                forgone: figures.totals.churn_forgone,
                reconnected: figures.totals.reconnected,
                given_up: figures.totals.replacements_given_up,
                impatient: figures.totals.impatient,
                lost: figures.totals.lost,
            },
            comeback: self.comeback(figures, &times.comebacks),
            stall: self.stall(figures, &times.unwell),
            vanish: self.vanish(figures, &times.unwell),
            setup: self.setup(figures, times),
            errors: self.errors(figures),
            closes: closes(figures),
            messages: self.messages(figures),
            pings: pings(figures, times),
            echo: self.echo(times),
            client_publish: self.client_publish(figures, times),
            session: self.session(figures),
            http: self.http(figures, times),
            request: self.request(),
            flows: self.flows(),
            fanout: self.fanout(),
            crowd: self.crowd(figures),
            fleet: self.link.as_ref().map(|link| link.report()),
            ..Report::default()
        }
    }

    /// The verdict on each threshold; on the one that ended the run as it was then.
    fn verdicts(&self, report: &Report, times: &Times) -> Vec<Verdict> {
        let thresholds = self.config.thresholds.iter();
        let judged = thresholds.map(|threshold| match &self.broken {
            Some(broken) if broken.expression == threshold.expression => broken.clone(),
            _ => threshold.judge(|metric, flows| self.figure((metric, flows), report, times)),
        });
        judged.collect()
    }

    /// A figure that a threshold is held against.
    pub(crate) fn figure(
        &self,
        (metric, flows): (Metric, &Which),
        report: &Report,
        times: &Times,
    ) -> Option<f64> {
        let (of, aggregate) = match metric {
            Metric::Time(of, aggregate) => (of, aggregate),
            Metric::Flow(metric) => return self.flow_figure(metric, flows, report),
            metric => return metric.of(report),
        };
        match of {
            TimeOf::Setup => aggregate.of(&times.setup),
            // A run has one of both.
            TimeOf::Echo | TimeOf::ClientPublish => aggregate.of(&times.answered.times),
            TimeOf::Delivery => aggregate.of(&times.deliveries.times),
            TimeOf::Request => {
                let requester = self.requester.as_ref()?;
                aggregate.of(&requester.progress().trips.times)
            }
            TimeOf::Held => aggregate.of(&times.held),
            TimeOf::Ping => aggregate.of(&times.pong),
        }
    }

    fn settings(&self) -> Settings {
        let config = self.config;
        let publish = config.publish.as_ref();
        let publish_urls: Vec<String> = publish
            .iter()
            .flat_map(|publish| &publish.endpoints)
            .map(|endpoint| endpoint.url.clone())
            .collect();
        let about = &config.about;
        Settings {
            scenario: about.scenario.clone(),
            description: about.description.clone(),
            command: about.command.clone(),
            targets: config
                .targets
                .iter()
                .map(|target| target.url.clone())
                .collect(),
            protocol: config.protocol.name().to_owned(),
            channel_count: config.channel_count,
            connections: config.connections,
            connect_rate_per_s: config.arrival.rate_per_s(),
            arrival: config.arrival.describe(),
            connecting_max: self.plan.connecting_max,
            hold_s: config.held_for().map(|held| held.as_secs_f64()),
            threads: self.plan.threads,
            driver: self.driver.name().to_owned(),
            tables: match self.tables {
                Tables::Shared => "shared",
                Tables::Own => "own",
            }
            .to_owned(),
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
            client_publish_bytes: config.client_publish.map(|publish| publish.payload_bytes),
            recover_from: config
                .recover_from
                .as_ref()
                .map(|(epoch, offset)| format!("{epoch}:{offset}")),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: crate::machine::kernel(),
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
            tcp_connected: totals.tcp_connected,
            window_min: totals.window_least,
            elapsed_s: elapsed.as_secs_f64(),
            rate_per_s: per_second(totals.opened, elapsed),
            peak_rate_per_s: self.setup_peak.best_within(totals.opened, elapsed),
            p50_ms: quantile(&times.setup, 0.5),
            p99_ms: quantile(&times.setup, 0.99),
            slowest_ms: quantile(&times.setup, 1.0),
            tls: self.tls(times),
        }
    }

    fn tls(&self, times: &Times) -> Option<TlsReport> {
        if !self.plan.has_secure_targets() {
            return None;
        }
        let (given, tls) = (&self.config.tls, &times.tls);
        Some(TlsReport {
            insecure: given.is_insecure,
            ca: given.ca.as_ref().map(|ca| ca.name().to_owned()),
            handshakes: tls.handshakes,
            resumed: tls.resumed,
            tls12: tls.tls12,
            p50_ms: quantile(&tls.times, 0.5),
            p99_ms: quantile(&tls.times, 0.99),
            slowest_ms: quantile(&tls.times, 1.0),
        })
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
            missed: self.collector.own.missed,
            gaps: totals.gaps.saturating_sub(totals.overtaken),
            overtaken: totals.overtaken,
            duplicates: totals.duplicates,
            unexpected: totals.unexpected + self.collector.made_up,
            late: self.collector.late,
            unmeasured: totals.unmeasured,
            replayed: totals.replayed + self.collector.replayed,
        }
    }

    fn echo(&self, times: &Times) -> Option<RoundTripReport> {
        let rate_per_s = self.config.echo?.rate_per_s;
        // Without a beginning nobody connected, or the run was interrupted before.
        let window = self.shared.schedule().unwrap_or_default();
        let until = window.until.min(self.now());
        Some(times.answered.report(rate_per_s, window.from, until))
    }

    fn client_publish(&self, figures: &Figures, times: &Times) -> Option<ClientPublishReport> {
        let rate_per_s = self.config.client_publish?.rate_per_s;
        let window = self.shared.schedule().unwrap_or_default();
        let until = window.until.min(self.now());
        let totals = &figures.totals;
        let unwell = totals.unwell.stalled + totals.unwell.vanished;
        let has_anybody_left = totals.churned + totals.comeback.gone + unwell > 0;
        let are_all_there = totals.open == self.config.connections && !has_anybody_left;
        Some(ClientPublishReport {
            replies: times.answered.report(rate_per_s, window.from, until),
            delivery: times.deliveries.report(
                window.from,
                until,
                &times.answered.counts,
                are_all_there,
            ),
        })
    }

    fn session(&self, figures: &Figures) -> Option<SessionReport> {
        let totals = &figures.totals;
        self.plan.session.as_ref().map(|_| SessionReport {
            gaps: totals.offset_gaps.saturating_sub(totals.offset_overtaken),
            overtaken: totals.offset_overtaken,
            duplicates: totals.offset_duplicates,
            recovered: totals.recoveries,
            unrecovered: totals.recoveries_failed,
            recovered_publications: totals.recovered,
        })
    }

    fn http(&self, figures: &Figures, times: &Times) -> Option<HttpReport> {
        let plan = self.plan.http.as_ref()?;
        let totals = &figures.totals.http;
        let is_polling = plan.kind == HttpKind::LongPoll;
        let expected = plan.expect_held;
        let (held, judged) = (&times.held, |count: u64| expected.map(|_| count));
        Some(HttpReport {
            requests: totals.requests,
            answers: totals.answers,
            answers_per_s: self.poll_rates.as_ref().map_or(0.0, Rates::mean),
            peak_answers_per_s: self.poll_peak.best(),
            timeouts: totals.timeouts,
            heartbeats: totals.heartbeats,
            reopened: totals.reopened,
            reopening: totals.reopening,
            repeated: totals.repeated,
            held: is_polling.then(|| HeldReport {
                shortest_ms: (!held.is_empty()).then(|| micros_as_millis(held.min())),
                mean_ms: (!held.is_empty()).then(|| held.mean() / 1000.0),
                p50_ms: quantile(held, 0.5),
                p99_ms: quantile(held, 0.99),
                longest_ms: quantile(held, 1.0),
                expected_ms: expected
                    .map(|(shortest, longest)| (as_millis(shortest), as_millis(longest))),
                early: judged(totals.held_early),
                late: judged(totals.held_late),
            }),
        })
    }

    fn request(&self) -> Option<RoundTripReport> {
        let rate_per_s = self.config.requests.as_ref()?.rate_per_s;
        let Some(requester) = &self.requester else {
            let never = RoundTrips::default();
            return Some(never.report(rate_per_s, Nanos(0), Nanos(0)));
        };
        let progress = requester.progress();
        let (from, until) = (progress.from, progress.until.min(self.now()));
        Some(progress.trips.report(rate_per_s, from, until))
    }

    /// In the order they were published; they finish in another.
    fn pushes(&self) -> Vec<PushReport> {
        let mut pushes = self.collector.reports.clone();
        pushes.sort_by(|a, b| a.published_s.total_cmp(&b.published_s));
        pushes
    }

    /// Own publications, or those of others if there were none.
    pub(super) fn fanout_figures(&self) -> &FanoutFigures {
        let (own, foreign) = (&self.collector.own, &self.collector.foreign);
        if own.worst.count > 0 { own } else { foreign }
    }

    fn series(&self) -> myriad_report::Series {
        let series = self.fanout_figures();
        let of = |name: &str, one: &Option<Single>| {
            let one = one.as_ref()?;
            Some(arrival_curve(
                name,
                Some(one.sequence),
                &one.times,
                one.expected,
            ))
        };
        let whole = |expected: u64| arrival_curve("all", None, &series.times, expected);
        let all = (!series.times.is_empty()).then(|| whole(series.expected));
        let single = [
            of("fastest", &series.fastest),
            of("slowest", &series.slowest),
        ];
        // One push is all pushes.
        let single = single.into_iter().filter(|_| series.worst.count > 1);
        self.recorder
            .series(all.into_iter().chain(single.flatten()).collect())
    }

    fn fanout(&self) -> Option<Fanout> {
        let series = self.fanout_figures();
        let origin = if self.collector.own.worst.count > 0 {
            Origin::Own
        } else {
            Origin::Foreign
        };
        let worst = series.worst;
        (worst.count > 0).then(|| Fanout {
            origin,
            pushes: worst.count,
            failed: series.failed,
            reach: series.reach(),
            overall: times_of(&series.times, series.first, series.last),
            worst: worst.times,
            reach_min: worst.reach,
            accepted_max_ms: worst.accepted_ms,
        })
    }

    fn crowd(&self, figures: &Figures) -> CrowdReport {
        let totals = &figures.totals;
        let (rss_anon_bytes, user_bytes_per_client) = self.memory_connected.unwrap_or_default();
        CrowdReport {
            open_at_end: totals.open.saturating_sub(totals.http.reopening),
            cpu_share_max: self.watch.share_max,
            saturated_s: self.watch.saturated_seconds,
            watched_s: self.watch.seconds,
            machine_cpu_share_max: self.watch.machine_share_max,
            user_bytes_per_client,
            rss_anon_bytes,
            turn_max_ms: as_millis(totals.turn_max),
            connect_late_ms: as_millis(totals.schedule_late),
            connect_window_late_ms: as_millis(totals.window_late),
            echo_late_ms: as_millis(figures.answered.late),
            echo_held_ms: as_millis(figures.answered.held),
            publish_late_ms: as_millis(
                self.publisher
                    .as_ref()
                    .map_or(Duration::ZERO, |p| p.progress().late),
            ),
        }
    }
}

pub(super) fn quantile(times: &Histogram<u64>, quantile: f64) -> Option<f64> {
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
