//! One run from beginning to end: starts the crowd and the publisher, watches both, writes the report.

mod error;
mod figures;
mod outputs;
mod schedules;
mod watching;

pub use error::RunError;
pub(crate) use figures::{Figures, Times, closes, name_of_close};

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::{Config, Prepared};
use crate::engine::plan::Plan;
use crate::engine::shared::{Order, Shared, Stage};
use crate::engine::thread::{Tables, spawn};
use crate::fleet::Link;
use crate::interrupt::Interrupt;
use crate::measure::collector::Collector;
use crate::measure::cpu::CpuMeter;
use crate::measure::process::{Watch, anonymous_bytes};
use crate::measure::push::PushKey;
use crate::measure::rates::{Peak, Rates};
use crate::measure::series::Recorder;
use crate::measure::server::ServerWatch;
use crate::open_loop::OpenLoop;
use crate::publisher::Publisher;
use crate::report::live::Live;
use crate::report::metrics::Metrics;
use crate::report::unwell::ServerCount;
use crate::report::{Outcome, Report};
use myriad_reactor::Driver;
use myriad_report::{Line, Phase, Verdict};
use outputs::Outputs;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the run looks at its crowd.
const TICK: Duration = Duration::from_millis(50);

/// How long closing may take before the run goes on without it; the process's end closes the rest.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Terminals that gave up before any connected, after which none is expected to.
const HOPELESS: u64 = 1000;

/// A run under way.
pub(crate) struct Run<'a> {
    pub config: &'a Config,
    pub plan: Arc<Plan>,
    pub driver: Driver,
    pub tables: Tables,
    pub started_unix_s: u64,
    channels: Vec<String>,
    pub shared: Arc<Shared>,
    clock: RunClock,
    interrupt: &'a Interrupt,
    threads: Vec<JoinHandle<()>>,
    pub publisher: Option<Publisher>,
    pub requester: Option<OpenLoop>,
    /// The flows of callers, by the index of the flow.
    pub callers: Vec<(usize, OpenLoop)>,
    pub collector: Collector,
    live: Live,
    metrics: Option<Metrics>,
    pub watch: Watch,
    pub cpu: CpuMeter,
    next_watch: Nanos,
    pub message_rates: Option<Rates>,
    message_peak: Peak,
    /// Of answers to polls.
    pub poll_rates: Option<Rates>,
    pub poll_peak: Peak,
    answer_peak: Peak,
    request_peak: Peak,
    pub setup_peak: Peak,
    memory_before: u64,
    /// Anonymous memory, and what of it was gained per terminal, when connecting had finished.
    pub memory_connected: Option<(u64, Option<f64>)>,
    pub drain_timed_out: bool,
    pub recorder: Recorder,
    pub server: ServerWatch,
    /// What it says of clients that vanished.
    pub server_count: ServerCount,
    /// It was said that the server accepts connections and upgrades none.
    silence_noted: bool,
    outputs: Outputs,
    /// When all had connected; none before.
    connected_at: Option<Nanos>,
    /// When thresholds that end the run are judged next.
    next_verdict: Nanos,
    /// The verdict that ended it.
    pub broken: Option<Verdict>,
    /// The agents that are the crowd; none: its threads are here.
    pub link: Option<Arc<Link>>,
}

/// Why a stage of the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    AsPlanned,
    Interrupted,
    Hopeless,
    /// A threshold failed that ends the run.
    Broken,
}

/// Does a whole run and returns its report; also writes it to wherever the configuration says.
///
/// # Errors
/// The run cannot be begun or finished, or its report cannot be written.
pub fn run(config: &Config, interrupt: &Interrupt) -> Result<Report, RunError> {
    let prepared = config.prepare().map_err(RunError::Config)?;
    run_prepared(config, interrupt, prepared, None)
}

/// The same with the threads of agents. They start at a time that they know.
pub(crate) fn run_with_agents(
    config: &Config,
    interrupt: &Interrupt,
    prepared: Prepared,
    link: Arc<Link>,
) -> Result<Report, RunError> {
    run_prepared(config, interrupt, prepared, Some(link))
}

fn run_prepared(
    config: &Config,
    interrupt: &Interrupt,
    prepared: Prepared,
    link: Option<Arc<Link>>,
) -> Result<Report, RunError> {
    let started_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    // First: an address that is taken is to empty no file of an earlier run.
    let (metrics, metrics_at) = listen(config)?;
    let outputs = Outputs::open(config, started_unix_s)?;
    let plan = Arc::new(prepared.plan);
    let shared = || Arc::new(Shared::of_plan(&plan));
    let clock = link.as_ref().map_or_else(RunClock::start, |it| it.clock());
    let shared = link
        .as_ref()
        .map_or_else(shared, |it| Arc::clone(it.shared()));
    if let Some(link) = &link {
        link.set_plan(&plan);
    }
    let thread_count = plan.deal.own().threads as usize;
    let mut run = Run {
        config,
        driver: prepared.driver,
        tables: prepared.tables,
        started_unix_s,
        shared,
        link,
        collector: Collector::new(prepared.channels.clone(), config.settle),
        channels: prepared.channels,
        clock,
        interrupt,
        threads: Vec::with_capacity(thread_count),
        publisher: None,
        requester: None,
        live: Live::new(config.live, title(config)),
        metrics,
        callers: Vec::new(),
        outputs,
        connected_at: None,
        next_verdict: Nanos(0),
        broken: None,
        watch: Watch::start(clock.now(), thread_count),
        cpu: CpuMeter::default(),
        next_watch: clock.now().plus(Duration::from_secs(1)),
        message_rates: None,
        message_peak: Peak::default(),
        poll_rates: None,
        poll_peak: Peak::default(),
        answer_peak: Peak::default(),
        request_peak: Peak::default(),
        setup_peak: Peak::default(),
        memory_before: anonymous_bytes(),
        memory_connected: None,
        drain_timed_out: false,
        recorder: Recorder::start(clock.now(), config.reporting.hlog.is_some()),
        server: ServerWatch::start(&config.reporting, plan.request_tls())
            .map_err(RunError::Start)?,
        server_count: ServerCount::default(),
        silence_noted: false,
        plan,
    };
    for message in metrics_at.into_iter().chain(prepared.notices) {
        run.live.show(&Line::Notice { message });
    }
    run.carry_out()
}

/// What a run is about, in a line.
fn title(config: &Config) -> String {
    let target = config.targets.first().map_or("", |it| it.url.as_str());
    match config.targets.len() {
        0 | 1 => target.to_owned(),
        many => format!("{target} and {} more", many - 1),
    }
}

/// Listens for those who ask for figures, and says where.
fn listen(config: &Config) -> Result<(Option<Metrics>, Option<String>), RunError> {
    let Some(address) = config.reporting.metrics_listen else {
        return Ok((None, None));
    };
    let (metrics, local) =
        Metrics::listen(address).map_err(|error| RunError::Listen { address, error })?;
    Ok((
        Some(metrics),
        Some(format!("figures are at http://{local}/metrics")),
    ))
}

impl Run<'_> {
    /// Connects, holds, closes and reports.
    fn carry_out(mut self) -> Result<Report, RunError> {
        self.start_threads()?;
        let passed = self.connect_and_hold()?;
        let (outcome, figures, times) = self.close(passed);
        let report = self.report(outcome, &figures, &times);
        self.conclude(&report, &times)?;
        Ok(report)
    }

    fn start_threads(&mut self) -> Result<(), RunError> {
        for thread in self.plan.deal.own().thread_numbers() {
            let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
            match spawn(plan, thread, self.driver, self.tables, shared, self.clock) {
                Ok(handle) => self.threads.push(handle),
                Err(error) => {
                    self.shared.set_order(Order::Close(self.config.ending));
                    return Err(RunError::Start(error));
                }
            }
        }
        Ok(())
    }

    fn connect_and_hold(&mut self) -> Result<Passed, RunError> {
        self.enter(Phase::Connecting);
        let passed = self.ticks_until(|run, figures| {
            let hopeless = figures.totals.given_up >= HOPELESS.min(run.config.connections);
            if figures.totals.opened == 0 && hopeless {
                return Some(Passed::Hopeless);
            }
            (figures.stage >= Stage::Holding).then_some(Passed::AsPlanned)
        })?;
        if passed != Passed::AsPlanned {
            return Ok(passed);
        }
        let connected_at = self.clock.now();
        self.connected_at = Some(connected_at);
        let figures = Figures::sum(&self.shared);
        let reading = self.cpu_reading(&figures);
        self.cpu.begin(reading);
        self.measure_memory();
        self.enter(Phase::Connected);
        self.shared.note_connected(connected_at);
        if self.config.churn_per_s.is_some() {
            self.shared.set_order(Order::Churn(self.config.ending));
        }
        self.begin_schedules(connected_at)?;
        if let Some(publish) = self.config.publish.clone() {
            let (plan, shared) = (Arc::clone(&self.plan), Arc::clone(&self.shared));
            let publisher =
                Publisher::start(publish, self.channels.clone(), plan, shared, self.clock);
            self.publisher = Some(publisher.map_err(RunError::Start)?);
            self.enter(Phase::Pushing);
        }
        self.hold(connected_at)
    }

    /// Holds the crowd for as long as was asked, and until its pushes are measured.
    fn hold(&mut self, connected_at: Nanos) -> Result<Passed, RunError> {
        let deadline = self
            .config
            .held_for()
            .map(|duration| connected_at.plus(duration));
        let passed = self.ticks_until(|run, figures| {
            // Polls count as connected until they are refused, which may be all of them.
            if figures.totals.opened == 0 && figures.totals.given_up == run.config.connections {
                return Some(Passed::Hopeless);
            }
            let time_over = deadline.is_none_or(|deadline| run.clock.now() >= deadline);
            if !time_over {
                return None;
            }
            if let Some(publisher) = &run.publisher {
                if deadline.is_some() {
                    publisher.stop();
                }
                // Done first, then the ledger: the other way round, a push begun in between would be missed.
                if !publisher.progress().done || run.measures_own_push() {
                    return None;
                }
            }
            Some(Passed::AsPlanned)
        })?;
        if passed != Passed::AsPlanned {
            return Ok(passed);
        }
        self.end_schedules();
        self.ticks_until(|run, figures| {
            if !run.is_told() {
                return None;
            }
            let answered_ended = run.plan.answered.is_none() || figures.answered_ended;
            let requests_ended = run.open_loops().all(OpenLoop::is_done);
            let flows_ended = run.are_flows_over();
            let is_over =
                answered_ended && flows_ended && requests_ended && !run.awaits_deliveries(figures);
            is_over.then_some(Passed::AsPlanned)
        })
    }

    fn measures_own_push(&self) -> bool {
        self.shared
            .ledger
            .open()
            .iter()
            .any(|entry| matches!(entry.key, PushKey::Own { .. }))
    }

    /// Looks at the crowd every tick until `judge` says why to stop, or an interruption does.
    fn ticks_until(
        &mut self,
        mut judge: impl FnMut(&Self, &Figures) -> Option<Passed>,
    ) -> Result<Passed, RunError> {
        loop {
            let figures = Figures::sum(&self.shared);
            self.observe(&figures);
            if let Some(fatal) = &figures.fatal {
                self.shared.set_order(Order::Close(self.config.ending));
                return Err(fatal.clone().into());
            }
            if self.interrupt.is_made() {
                return Ok(Passed::Interrupted);
            }
            if self.link.as_ref().is_some_and(|link| link.is_alone()) {
                return Ok(Passed::Interrupted);
            }
            if self.is_broken(&figures) {
                return Ok(Passed::Broken);
            }
            if let Some(passed) = judge(self, &figures) {
                return Ok(passed);
            }
            std::thread::sleep(TICK);
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(crate) fn elapsed_s(&self) -> f64 {
        self.now().since(Nanos(0)).as_secs_f64()
    }

    fn enter(&mut self, phase: Phase) {
        let figures = Figures::sum(&self.shared);
        if phase != Phase::Connecting {
            self.show_progress(&figures);
        }
        self.live.show(&Line::Phase {
            phase,
            elapsed_s: self.elapsed_s(),
        });
    }

    /// Ends the measuring, then the crowd; the figures are those from before it was closed.
    fn close(&mut self, passed: Passed) -> (Outcome, Figures, Times) {
        let outcome = match passed {
            Passed::AsPlanned => Outcome::Finished,
            Passed::Interrupted => Outcome::Interrupted,
            Passed::Hopeless => Outcome::NobodyConnected,
            Passed::Broken => Outcome::ThresholdsFailed,
        };
        if let Some(publisher) = &self.publisher {
            publisher.stop();
        }
        let now = self.clock.now();
        self.end_schedules();
        if let Some(link) = &self.link {
            link.refresh();
            link.count_unsent();
            self.watch.take(&link.end_measuring());
        }
        for push in self.collect(now, true) {
            self.live.show(&Line::Push(Box::new(push)));
        }
        let (figures, times) = Figures::sum_with_times(&self.shared);
        let reading = self.cpu_reading(&figures);
        self.cpu.end(reading);
        self.record(now, &figures);
        let outcome = if outcome == Outcome::Finished && figures.totals.opened == 0 {
            Outcome::NobodyConnected
        } else {
            outcome
        };
        if self.memory_connected.is_none() && figures.totals.open > 0 {
            self.measure_memory();
        }
        self.enter(Phase::Draining);
        self.shared.set_order(Order::Close(self.config.ending));
        let patience = now.plus(DRAIN_MAX);
        while self
            .shared
            .accounts()
            .any(|account| account.stage != Stage::Gone)
        {
            if self.clock.now() >= patience {
                self.drain_timed_out = true;
                break;
            }
            std::thread::sleep(TICK);
        }
        if !self.drain_timed_out {
            for thread in self.threads.drain(..) {
                // It only fails if it panicked, and then its message is on standard error already.
                let _ = thread.join();
            }
        }
        (outcome, figures, times)
    }
}
