//! What one contestant goes through in one round.

use crate::crowd::{Arrival, Crowd, CrowdOptions, Files, Load, Publish};
use crate::exchange::{self, Exchange};
use crate::failure::{Failure, Phase};
use crate::figures::{Column, Figures};
use crate::guard::Guard;
use crate::held;
use crate::manifest::{Contestant, Feature, Transport};
use crate::server::{Mode, Server, Start, float};
use crate::tls::Tls;
use myriad_report::{PushReport, Report};
use myriad_units::counted;
use myriad_usage::Memory;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between the end of connecting and the measurement of memory. Memory that handshakes needed is given back by
/// then, or never.
const SETTLE: Duration = Duration::from_secs(1);
/// Part of the idle time that is kept for measuring memory before the first push.
const READING: Duration = Duration::from_secs(2);
/// In the search for the largest crowd: the longest time for connecting. A server that takes longer does not hold the
/// crowd.
const CROWD_UP_MAX: Duration = Duration::from_secs(480);
/// Between pushes of a warm-up.
const WARM_UP_EVERY: Duration = Duration::from_millis(20);
/// Before the first push of a warm-up.
const WARM_UP_AFTER: Duration = Duration::from_millis(100);

/// What is the same for all contestants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) connections: u64,
    pub(crate) pushes: u64,
    pub(crate) push_every: Duration,
    pub(crate) idle: Duration,
    pub(crate) echo: Exchange,
    pub(crate) request: Exchange,
    pub(crate) port: u16,
    /// How the crowd is held over HTTP; none for WebSockets.
    pub(crate) held: Option<Transport>,
    /// None without TLS.
    pub(crate) tls: Option<&'a Tls>,
    /// For the crowd's reports.
    pub(crate) folder: &'a Path,
    pub(crate) guard: Guard<'a>,
}

/// One contestant's round: its steps, its results so far, and who is told of each phase.
pub(crate) struct Attempt<'a, 'r> {
    pub(crate) contestant: &'a Contestant,
    pub(crate) plan: Plan<'a>,
    pub(crate) round: &'r mut Round,
    pub(crate) on_phase: &'r mut dyn FnMut(Phase),
}

impl<'a> Attempt<'a, '_> {
    /// Reports that a phase begins.
    pub(crate) fn enter(&mut self, phase: Phase) {
        (self.on_phase)(phase);
    }

    /// Starts the contestant's processes. Their number is the same in each mode and for each crowd.
    pub(crate) fn serve(&self, mode: Mode) -> Result<Server<'a>, Failure> {
        let start = Start {
            port: self.plan.port,
            connections: self.plan.connections,
            mode,
            held: self.plan.held,
            tls: self.plan.tls,
        };
        Server::start(self.contestant, start, self.plan.guard)
    }
}

/// The results. What was measured before a failure stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    pub(crate) figures: Figures,
    pub(crate) processes: u64,
    pub(crate) ready_s: f64,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) warnings: Vec<String>,
    /// In the search for the largest crowd: the connections that were open, also when some were missing.
    pub(crate) open: u64,
}

impl Round {
    /// How many processes it has, and how long they took.
    pub(crate) fn note_start(&mut self, server: &Server<'_>) {
        self.processes = server.count();
        self.ready_s = server.ready_s;
    }

    /// Adds these errors to the earlier ones.
    pub(crate) fn add_errors(
        &mut self,
        errors: impl IntoIterator<Item = (impl Into<String>, u64)>,
    ) {
        for (kind, count) in errors {
            if count > 0 {
                *self.errors.entry(kind.into()).or_insert(0) += count;
            }
        }
        let errors = float(self.errors.values().sum());
        self.figures.insert(Column::Errors, errors);
    }
}

/// Memory of a server at one size of its crowd.
#[derive(Clone, Copy, Debug)]
struct Sample {
    connections: u64,
    memory: Memory,
    heap_bytes: Option<f64>,
}

/// A running server, for one crowd after another.
struct Scenario<'a, 'r, 't> {
    attempt: &'t mut Attempt<'a, 'r>,
    server: Server<'a>,
    /// Seconds from the whole crowd's last connection until the server held all of it: a poll counts as connected when
    /// it has been sent. Of WebSockets 0, because their server has answered each.
    parked_s: f64,
}

/// The round of a contestant of kind `websocket`.
pub(crate) fn run(attempt: &mut Attempt<'_, '_>) -> Result<(), Failure> {
    let mut scenario = Scenario::start(attempt)?;
    let base = scenario.sample(0, Phase::WarmUp)?;
    let quarter = scenario.quarter()?;
    scenario.whole(base, quarter)?;
    held::rate(scenario.attempt, &mut scenario.server)?;
    scenario.server.stop();
    Ok(())
}

/// A crowd and one push to all of it: one trial of the search for the largest crowd.
///
/// Memory a connection is the slope from no connection to all of them, without a point at a quarter. Idle CPU is not
/// measured, so the CPU of the push contains it.
pub(crate) fn hold(attempt: &mut Attempt<'_, '_>) -> Result<(), Failure> {
    let mut scenario = Scenario::start(attempt)?;
    let base = Sample {
        connections: 0,
        memory: scenario.server.memory(),
        heap_bytes: None,
    };
    scenario.hold(base)?;
    scenario.server.stop();
    Ok(())
}

impl<'a, 'r, 't> Scenario<'a, 'r, 't> {
    /// Starts a server, warms it up, and waits until its connections are closed again.
    fn start(attempt: &'t mut Attempt<'a, 'r>) -> Result<Self, Failure> {
        let server = attempt.serve(Mode::Push)?;
        attempt.round.note_start(&server);
        let mut scenario = Self {
            attempt,
            server,
            parked_s: 0.0,
        };
        scenario.warm_up()?;
        Ok(scenario)
    }

    fn publish(&self, pushes: u64, every: Duration, after: Duration) -> Option<Publish> {
        let offered =
            self.attempt.plan.held.is_some() || self.attempt.contestant.offers(Feature::Push);
        (pushes > 0 && offered).then(|| Publish {
            urls: self.server.broadcast_urls(),
            body: self.server.broadcast().body,
            pushes,
            every,
            after,
        })
    }

    /// A crowd that is connecting, and the number of pushes that it will make.
    fn crowd(&self, connections: u64, publish: Option<Publish>) -> Result<(Crowd, u64), Failure> {
        let pushes = publish.as_ref().map_or(0, |publish| publish.pushes);
        let options = CrowdOptions {
            targets: self.server.targets(),
            connections,
            held: held::clients(self.attempt.contestant, self.attempt.plan.held),
            ca: self.attempt.plan.tls.map(Tls::certificate),
            load: publish.map(Load::Publish),
        };
        let files = Files::of(self.attempt.plan.folder, "crowd");
        Ok((
            Crowd::start(&options, &files, self.attempt.plan.guard)?,
            pushes,
        ))
    }

    /// Waits until the crowd has made its pushes. Returns the CPU time of the server meanwhile.
    fn pushes(&mut self, crowd: &mut Crowd, pushes: u64) -> Result<Used, Failure> {
        self.attempt.enter(Phase::Pushes);
        let pushing = Window::open(&self.server);
        crowd.wait_for_pushes(&mut self.server, pushes, Phase::Pushes)?;
        Ok(pushing.close(&self.server))
    }

    /// The warm-up of the manifest: connects, pushes to all, and waits until the server has no connection.
    fn warm_up(&mut self) -> Result<(), Failure> {
        let warm_up = self.attempt.contestant.warm_up;
        let connections = warm_up.connections.min(self.attempt.plan.connections);
        if connections == 0 {
            return Ok(());
        }
        self.attempt.enter(Phase::WarmUp);
        let publish = self.publish(warm_up.pushes, WARM_UP_EVERY, WARM_UP_AFTER);
        let (mut crowd, pushes) = self.crowd(connections, publish)?;
        crowd.wait_until_connected(&mut self.server, Phase::WarmUp)?;
        crowd.wait_for_pushes(&mut self.server, pushes, Phase::WarmUp)?;
        crowd.leave(Phase::WarmUp)?;
        self.server.wait_for_connections(0, Phase::WarmUp)?;
        Ok(())
    }

    fn sample(&self, connections: u64, phase: Phase) -> Result<Sample, Failure> {
        Ok(Sample {
            connections,
            // First: being asked for its heap changes a process.
            memory: self.server.memory(),
            heap_bytes: self.server.heap_bytes(phase)?,
        })
    }

    /// The first point of the slope.
    fn quarter(&mut self) -> Result<Sample, Failure> {
        self.attempt.enter(Phase::Quarter);
        let connections = (self.attempt.plan.connections / 4).max(1);
        let (mut crowd, _) = self.crowd(connections, None)?;
        let connected = crowd.wait_until_connected(&mut self.server, Phase::Quarter)?;
        crowd.hold(&mut self.server, SETTLE, Phase::Quarter)?;
        let sample = self.sample(connected, Phase::Quarter)?;
        crowd.leave(Phase::Quarter)?;
        self.server.wait_for_connections(0, Phase::Quarter)?;
        Ok(sample)
    }

    /// Crowd up, idle, pushes, requests, crowd down.
    fn whole(&mut self, base: Sample, quarter: Sample) -> Result<(), Failure> {
        self.attempt.enter(Phase::CrowdUp);
        let plan = self.attempt.plan;
        let publish = self.publish(plan.pushes, plan.push_every, plan.idle + SETTLE + READING);
        let (mut crowd, pushes) = self.crowd(plan.connections, publish)?;
        let connected = crowd.wait_until_connected(&mut self.server, Phase::CrowdUp)?;
        if plan.held.is_some() {
            self.parked_s = self
                .server
                .wait_for_connections(connected, Phase::CrowdUp)?;
        }

        self.attempt.enter(Phase::Idle);
        crowd.hold(&mut self.server, SETTLE, Phase::Idle)?;
        let idle = Window::open(&self.server);
        crowd.hold(&mut self.server, plan.idle, Phase::Idle)?;
        let idle_share = idle.close(&self.server).share();
        self.attempt
            .round
            .figures
            .insert(Column::IdleCpuShare, idle_share);
        let memory = self.server.memory();

        let used = self.pushes(&mut crowd, pushes)?;
        let full = Sample {
            connections: connected,
            memory,
            heap_bytes: self.server.heap_bytes(Phase::Pushes)?,
        };
        self.note_memory(base, quarter, full);

        let stated = self.server.wait_for_connections(connected, Phase::Pushes);
        let answered =
            stated.and_then(|_| exchange::request(self.attempt, &mut self.server, connected));
        self.attempt.enter(Phase::CrowdDown);
        let leaving = Instant::now();
        let (report, arrivals) = crowd.leave(Phase::CrowdDown)?;
        self.attempt.round.arrivals = arrivals;
        self.note_report(&report, used.cpu_s - idle_share * used.elapsed_s);
        answered?;
        self.server.wait_for_connections(0, Phase::CrowdDown)?;
        let down_s = leaving.elapsed().as_secs_f64();
        self.attempt
            .round
            .figures
            .insert(Column::CrowdDownS, down_s);
        verdict(&report, plan.connections, pushes)?;
        let held = float(plan.connections);
        self.attempt
            .round
            .figures
            .insert(Column::ConnectionsHeld, held);
        Ok(())
    }

    /// Crowd up, one push, crowd down.
    fn hold(&mut self, base: Sample) -> Result<(), Failure> {
        self.attempt.enter(Phase::CrowdUp);
        let plan = self.attempt.plan;
        let publish = self.publish(1, plan.push_every, SETTLE + READING);
        let (mut crowd, pushes) = self.crowd(plan.connections, publish)?;
        let up = crowd.connected_within(CROWD_UP_MAX, &mut self.server, Phase::CrowdUp);
        self.attempt.round.open = crowd.connected();
        let connected = up?;
        crowd.hold(&mut self.server, SETTLE, Phase::CrowdUp)?;
        let memory = self.server.memory();

        let used = self.pushes(&mut crowd, pushes)?;
        let full = Sample {
            connections: connected,
            memory,
            heap_bytes: None,
        };
        self.note_memory(base, base, full);
        let stated = self.server.wait_for_connections(connected, Phase::Pushes);

        self.attempt.enter(Phase::CrowdDown);
        let (report, _) = crowd.leave(Phase::CrowdDown)?;
        self.note_report(&report, used.cpu_s);
        verdict(&report, plan.connections, pushes)?;
        stated.map(drop)
    }

    fn note_memory(&mut self, base: Sample, quarter: Sample, full: Sample) {
        let figures = &mut self.attempt.round.figures;
        figures.insert(Column::UserBaseBytes, base.memory.pss_bytes);
        figures.insert(Column::UserBytes, full.memory.pss_bytes);
        figures.insert(Column::RssBaseBytes, base.memory.rss_bytes);
        figures.insert(Column::RssBytes, full.memory.rss_bytes);
        if let Some(heap_bytes) = base.heap_bytes {
            figures.insert(Column::HeapBaseBytes, heap_bytes);
        }
        let Some(more) = full.connections.checked_sub(quarter.connections) else {
            return;
        };
        if more == 0 {
            return;
        }
        let slope = |few: f64, many: f64| (many - few) / float(more);
        let user = slope(quarter.memory.pss_bytes, full.memory.pss_bytes);
        let rss = slope(quarter.memory.rss_bytes, full.memory.rss_bytes);
        figures.insert(Column::UserBytesPerConnection, user);
        figures.insert(Column::RssBytesPerConnection, rss);
        if let (Some(few), Some(many)) = (quarter.heap_bytes, full.heap_bytes) {
            figures.insert(Column::HeapBytesPerConnection, slope(few, many));
        }
    }

    /// Takes in the crowd's report. `cpu_s` is the CPU time of its pushes without that of an idle server.
    fn note_report(&mut self, report: &Report, cpu_s: f64) {
        let round = &mut *self.attempt.round;
        let own: Vec<&PushReport> = report.pushes.iter().collect();
        let deliveries: u64 = own.iter().map(|push| push.received).sum();
        let figures = &mut round.figures;
        let setup_per_s = if self.parked_s > 0.0 {
            float(report.setup.connected) / (report.setup.elapsed_s + self.parked_s)
        } else {
            report.setup.rate_per_s
        };
        figures.insert(Column::SetupPerS, setup_per_s);
        if deliveries > 0 {
            let per_million = cpu_s.max(0.0) / float(deliveries) * 1e6;
            figures.insert(Column::CpuSecondsPerMillionDeliveries, per_million);
        }
        let mut note = |column: Column, time: fn(&PushReport) -> Option<f64>| {
            if let Some(ms) = median(own.iter().filter_map(|push| time(push)).collect()) {
                figures.insert(column, ms);
            }
        };
        note(Column::PushFirstMs, |push| push.times.first_ms);
        note(Column::PushP50Ms, |push| push.times.p50_ms);
        note(Column::PushP99Ms, |push| push.times.p99_ms);
        note(Column::PushLastMs, |push| push.times.last_ms);
        let missed: u64 = own
            .iter()
            .map(|push| push.expected.saturating_sub(push.received))
            .sum();
        round.add_errors(report.errors.clone());
        round.add_errors([
            ("lost", report.churn.lost),
            ("missed", missed),
            ("gaps", report.messages.gaps),
            ("duplicates", report.messages.duplicates),
        ]);
        round.warnings.extend(report.warnings.iter().cloned());
    }
}

/// Whether all clients connected and got every push.
fn verdict(report: &Report, connections: u64, pushes: u64) -> Result<(), Failure> {
    let connected = report.setup.connected;
    if connected < connections {
        return Err(Failure::Crowd {
            phase: Phase::CrowdUp,
            why: format!(
                "only {connected} of {connections} connected{}",
                kinds(report)
            ),
        });
    }
    let failed = |why: String| Failure::Crowd {
        phase: Phase::Pushes,
        why,
    };
    if report.churn.lost > 0 {
        let lost = report.churn.lost;
        return Err(failed(format!(
            "the server closed {}",
            counted(lost, "connection")
        )));
    }
    if let Some(push) = report
        .pushes
        .iter()
        .find(|push| push.received < connections)
    {
        let (sequence, received) = (push.sequence, push.received);
        return Err(failed(format!(
            "push {sequence} reached {received} of {connections}{}",
            kinds(report)
        )));
    }
    if float(pushes) > float(report.pushes.len() as u64) {
        let made = report.pushes.len();
        return Err(failed(format!(
            "pushes made: {made} of {pushes}{}",
            kinds(report)
        )));
    }
    Ok(())
}

pub(crate) fn kinds(report: &Report) -> String {
    let kinds: Vec<String> = report
        .errors
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    if kinds.is_empty() {
        String::new()
    } else {
        format!(" ({})", kinds.join(", "))
    }
}

/// CPU and wall-clock time between two moments.
struct Window {
    began: Instant,
    cpu_s: f64,
}

struct Used {
    cpu_s: f64,
    elapsed_s: f64,
}

impl Window {
    fn open(server: &Server<'_>) -> Self {
        Self {
            began: Instant::now(),
            cpu_s: server.cpu_s(),
        }
    }

    fn close(self, server: &Server<'_>) -> Used {
        Used {
            cpu_s: server.cpu_s() - self.cpu_s,
            elapsed_s: self.began.elapsed().as_secs_f64(),
        }
    }
}

impl Used {
    /// Of one core.
    fn share(&self) -> f64 {
        self.cpu_s / self.elapsed_s
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length.is_multiple_of(2) => {
            Some(f64::midpoint(values[middle - 1], values[middle]))
        }
        _ => Some(values[middle]),
    }
}
