//! One run from beginning to end: starts the crowd and the publisher, watches both, writes the report.

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Config;
use crate::config_error::ConfigError;
use crate::engine::plan::Plan;
use crate::engine::shared::{Closes, Order, Shared, Stage, Totals};
use crate::engine::thread::{Tables, spawn};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::measure::collector::Collector;
use crate::measure::process::{Watch, anonymous_bytes};
use crate::measure::push::{PushKey, microseconds};
use crate::measure::rates::{Peak, Rates};
use crate::measure::round_trip::{Counts, RoundTrips};
use crate::publisher::Publisher;
use crate::report::live::{Live, round_trip_progress};
use crate::report::output::Output;
use crate::report::{Outcome, Report, float, text};
use crate::requester::Requester;
use hdrhistogram::Histogram;
use myriad_layout::terminal_columns;
use myriad_reactor::Driver;
use myriad_report::{Line, Origin, Phase, Progress, PushReport};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often the run looks at its crowd.
const TICK: Duration = Duration::from_millis(50);

/// How long closing may take before the run goes on without it; the process's end closes the rest.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// How far ahead a schedule begins, so that every thread knows in time: twice as long as one sleeps.
const SCHEDULE_AHEAD: Duration = Duration::from_millis(200);

/// How long a server may accept connections and upgrade none before that is said.
const SILENCE: Duration = Duration::from_secs(3);

/// Terminals that gave up before any connected, after which none is expected to.
const HOPELESS: u64 = 1000;

/// Why a run has no report.
#[derive(Debug)]
pub enum RunError {
    /// It was asked for something that cannot be done.
    Config(ConfigError),
    /// A thread could not be started.
    Start(io::Error),
    /// A thread's reactor failed.
    Reactor(String),
    /// A report could not be written.
    Write {
        /// The file, or standard output.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Start(error) => write!(
                f,
                "a thread could not be started ({error}); give fewer --threads"
            ),
            Self::Reactor(reason) => {
                write!(
                    f,
                    "a thread of the crowd could not go on ({reason}); try --driver epoll, fewer connections, or more locked memory (ulimit -l)"
                )
            }
            Self::Write { path, error } => {
                write!(
                    f,
                    "{} cannot be written ({error}); check the folder and its permissions",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for RunError {}

/// The crowd's figures, summed over its threads.
#[derive(Debug)]
pub(crate) struct Figures {
    pub totals: Totals,
    pub failures: BTreeMap<Failure, u64>,
    pub closes: BTreeMap<Option<u16>, Closes>,
    /// The first bytes that the server answered, by the failure that this was.
    pub answers: BTreeMap<Failure, Vec<u8>>,
    pub echo: Counts,
    /// The least advanced thread's.
    pub stage: Stage,
    pub fatal: Option<String>,
}

impl Figures {
    fn sum(shared: &Shared) -> Self {
        let mut figures = Self {
            totals: Totals::default(),
            failures: BTreeMap::new(),
            closes: BTreeMap::new(),
            answers: BTreeMap::new(),
            echo: Counts::default(),
            stage: Stage::Gone,
            fatal: None,
        };
        for account in shared.accounts() {
            figures.totals.merge(&account.totals);
            figures.echo.merge(&account.echo.counts);
            for (failure, count) in &account.failures {
                *figures.failures.entry(*failure).or_default() += count;
            }
            for (code, closes) in &account.closes {
                let sum = figures.closes.entry(*code).or_default();
                sum.count += closes.count;
                if sum.reason.is_empty() {
                    sum.reason.clone_from(&closes.reason);
                }
            }
            for (failure, answer) in &account.answers {
                let first = figures.answers.entry(*failure);
                first.or_insert_with(|| answer.clone());
            }
            figures.stage = figures.stage.min(account.stage);
            figures.fatal = figures.fatal.take().or_else(|| account.fatal.clone());
        }
        figures
    }
}

/// What the threads measured of single connections, summed. Apart from [`Figures`], which are wanted at every tick.
#[derive(Debug)]
pub(crate) struct Times {
    pub setup: Histogram<u64>,
    pub pong: Histogram<u64>,
    /// With their counts.
    pub echo: RoundTrips,
}

impl Times {
    fn sum(shared: &Shared) -> Self {
        let mut times = Self {
            setup: microseconds(),
            pong: microseconds(),
            echo: RoundTrips::default(),
        };
        let grows = "a histogram that grows takes any other of its precision";
        for account in shared.accounts() {
            times.setup.add(&account.setup_times).expect(grows);
            times.pong.add(&account.pong_times).expect(grows);
            times.echo.merge(&account.echo);
        }
        times
    }
}

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
    pub requester: Option<Requester>,
    pub collector: Collector,
    live: Live,
    pub watch: Watch,
    next_watch: Nanos,
    pub message_rates: Option<Rates>,
    message_peak: Peak,
    echo_peak: Peak,
    request_peak: Peak,
    pub setup_peak: Peak,
    memory_before: u64,
    /// Anonymous memory, and what of it was gained per terminal, when connecting had finished.
    pub memory_connected: Option<(u64, Option<f64>)>,
    pub drain_timed_out: bool,
    /// It was said that the server accepts connections and upgrades none.
    silence_noted: bool,
    outputs: Outputs,
}

/// Where the report is to be written, opened.
#[derive(Debug, Default)]
struct Outputs {
    json: Option<Output>,
    hgrm: Option<Output>,
}

impl Outputs {
    /// Opens whatever the configuration names.
    fn open(config: &Config) -> Result<Self, RunError> {
        let open = |destination: &Option<_>| destination.as_ref().map(Output::open).transpose();
        Ok(Self {
            json: open(&config.json)?,
            hgrm: open(&config.hgrm)?,
        })
    }
}

/// Why a stage of the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    AsPlanned,
    Interrupted,
    Hopeless,
}

/// Does a whole run and returns its report; also writes it to wherever the configuration says.
///
/// # Errors
/// The run cannot be begun or finished, or its report cannot be written.
pub fn run(config: &Config, interrupt: &Interrupt) -> Result<Report, RunError> {
    let prepared = config.prepare().map_err(RunError::Config)?;
    let outputs = Outputs::open(config)?;
    let plan = Arc::new(prepared.plan);
    let clock = RunClock::start();
    let thread_count = plan.threads as usize;
    let mut run = Run {
        config,
        driver: prepared.driver,
        tables: prepared.tables,
        started_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        shared: Arc::new(Shared::new(thread_count, plan.targets.len())),
        collector: Collector::new(prepared.channels.clone(), config.settle),
        channels: prepared.channels,
        clock,
        interrupt,
        threads: Vec::with_capacity(thread_count),
        publisher: None,
        requester: None,
        live: Live::new(config.live),
        outputs,
        watch: Watch::start(clock.now(), thread_count),
        next_watch: clock.now().plus(Duration::from_secs(1)),
        message_rates: None,
        message_peak: Peak::default(),
        echo_peak: Peak::default(),
        request_peak: Peak::default(),
        setup_peak: Peak::default(),
        memory_before: anonymous_bytes(),
        memory_connected: None,
        drain_timed_out: false,
        silence_noted: false,
        plan,
    };
    for notice in &prepared.notices {
        run.live.show(&Line::Notice {
            message: notice.clone(),
        });
    }
    run.start_threads()?;
    let passed = run.connect_and_hold();
    let (outcome, figures, times) = run.close(passed)?;
    let report = run.report(outcome, &figures, &times);
    run.conclude(&report)?;
    Ok(report)
}

impl Run<'_> {
    fn start_threads(&mut self) -> Result<(), RunError> {
        for thread in 0..self.plan.threads {
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
        self.measure_memory();
        self.enter(Phase::Connected);
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
        let passed = self.ticks_until(|run, _| {
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
        self.ticks_until(|run, _| {
            let echoed = run.config.echo.is_none()
                || run.shared.accounts().all(|account| account.echo_ended);
            let answered = run.requester.as_ref().is_none_or(Requester::is_done);
            (echoed && answered).then_some(Passed::AsPlanned)
        })
    }

    /// Ends what goes by a schedule; answers are still awaited.
    fn end_schedules(&self) {
        let now = self.clock.now();
        self.shared.end_echoes(now);
        if let Some(requester) = &self.requester {
            requester.stop(now);
        }
    }

    /// When a schedule begins and ends that is begun now.
    fn window(&self, warmup: Duration, connected_at: Nanos) -> (Nanos, Option<Nanos>) {
        let soonest = self.clock.now().plus(SCHEDULE_AHEAD);
        let from = connected_at.plus(warmup).max(soonest);
        let until = self
            .config
            .held_for()
            .map(|duration| connected_at.plus(duration).max(from));
        (from, until)
    }

    fn begin_schedules(&mut self, connected_at: Nanos) -> Result<(), RunError> {
        if let Some(echo) = self.config.echo {
            let (from, until) = self.window(echo.warmup, connected_at);
            self.shared.begin_echoes(from, until);
        }
        if let Some(requests) = &self.config.requests {
            let window = self.window(requests.warmup, connected_at);
            let (run, settle) = (self.plan.run, self.config.settle);
            let requester = Requester::start(requests, run, settle, window, self.clock);
            self.requester = Some(requester.map_err(RunError::Start)?);
        }
        Ok(())
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
            if let Some(reason) = &figures.fatal {
                self.shared.set_order(Order::Close(self.config.ending));
                return Err(RunError::Reactor(reason.clone()));
            }
            if self.interrupt.is_made() {
                return Ok(Passed::Interrupted);
            }
            if let Some(passed) = judge(self, &figures) {
                return Ok(passed);
            }
            std::thread::sleep(TICK);
        }
    }

    /// Takes samples, collects finished publications, shows progress.
    fn observe(&mut self, figures: &Figures) {
        let now = self.clock.now();
        let totals = &figures.totals;
        self.setup_peak.sample(now, totals.opened);
        self.message_peak.sample(now, totals.messages);
        self.echo_peak.sample(now, figures.echo.received);
        if let Some(requester) = &self.requester {
            let counts = requester.progress().trips.counts;
            self.request_peak.sample(now, counts.received);
        }
        if totals.opened > 0 {
            let rates = self
                .message_rates
                .get_or_insert_with(|| Rates::start(now, 0));
            rates.sample(now, totals.messages);
        }
        if now >= self.next_watch {
            let thread_times = self.shared.accounts().map(|account| account.cpu_time);
            self.watch.sample(now, thread_times.collect());
            self.next_watch = now.plus(Duration::from_secs(1));
        }
        for push in self.collect(now, false) {
            self.live.show(&Line::Push(Box::new(push)));
        }
        self.note_silence(totals, now);
        if self.live.wants_progress(now.since(Nanos(0))) {
            self.show_progress(figures);
        }
    }

    /// Says once that connections are accepted and none is upgraded: until they time out nothing else would show it.
    fn note_silence(&mut self, totals: &Totals, now: Nanos) {
        let waited = totals.first_attempt.map(|first| now.since(first));
        let is_silent = totals.opened == 0 && totals.tcp_connected > 0;
        if self.silence_noted || !is_silent || waited.is_none_or(|waited| waited < SILENCE) {
            return;
        }
        self.silence_noted = true;
        let connected = text::count(totals.tcp_connected.min(self.config.connections));
        let message = match self.plan.session {
            Some(_) => format!(
                "{connected} connected, none has its session yet: is this a Centrifuge endpoint?"
            ),
            None => {
                format!("{connected} connected, none upgraded yet: is this a WebSocket server?")
            }
        };
        self.live.show(&Line::Notice { message });
    }

    /// Measures the publications that are over, or all of them when the run is.
    fn collect(&mut self, now: Nanos, run_over: bool) -> Vec<PushReport> {
        let publishing = self.publisher.is_some();
        self.watch
            .look(now, publishing, self.shared.ledger.is_measuring());
        self.collector
            .collect(&self.shared, &self.plan, &self.watch, now, run_over)
    }

    fn show_progress(&mut self, figures: &Figures) {
        let memory = anonymous_bytes();
        let request = self.requester.as_ref().map(|requester| {
            round_trip_progress(&requester.progress().trips.counts, &self.request_peak)
        });
        let progress = Progress {
            request,
            elapsed_s: self.elapsed_s(),
            connected: figures.totals.open,
            connecting: figures.totals.connecting,
            connections_wanted: self.config.connections,
            setup_rate_per_s: self.setup_peak.latest(),
            churned: figures.totals.churned,
            reconnected: figures.totals.reconnected,
            lost: figures.totals.lost,
            missed: self.collector.own.missed,
            errors: self.errors(figures),
            closes: closes(figures),
            messages: figures.totals.messages,
            message_rate_per_s: self.message_peak.latest(),
            echo: self
                .config
                .echo
                .map(|_| round_trip_progress(&figures.echo, &self.echo_peak)),
            cpu_share: self.watch.share,
            rss_anon_bytes: memory,
            user_bytes_per_client: self.bytes_per_terminal(memory, figures.totals.open),
        };
        self.live.show(&Line::Progress(Box::new(progress)));
    }

    fn bytes_per_terminal(&self, memory: u64, open: u64) -> Option<f64> {
        (open > 0).then(|| float(memory.saturating_sub(self.memory_before)) / float(open))
    }

    fn measure_memory(&mut self) {
        let memory = anonymous_bytes();
        let open = self.shared.open_terminals(|_| true);
        self.memory_connected = Some((memory, self.bytes_per_terminal(memory, open)));
    }

    pub(crate) fn elapsed_s(&self) -> f64 {
        self.clock.now().since(Nanos(0)).as_secs_f64()
    }

    /// Failures by kind, the publisher's among them.
    pub(crate) fn errors(&self, figures: &Figures) -> BTreeMap<String, u64> {
        let mut errors: BTreeMap<String, u64> = figures
            .failures
            .iter()
            .map(|(failure, &count)| (failure.to_string(), count))
            .collect();
        if let Some(publisher) = &self.publisher {
            for (failure, count) in publisher.progress().failures {
                *errors.entry(failure.to_string()).or_default() += count;
            }
        }
        if let Some(requester) = &self.requester {
            for (failure, count) in requester.progress().failures {
                *errors.entry(failure.to_string()).or_default() += count;
            }
        }
        errors
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
    fn close(
        &mut self,
        passed: Result<Passed, RunError>,
    ) -> Result<(Outcome, Figures, Times), RunError> {
        let outcome = match passed? {
            Passed::AsPlanned => Outcome::Finished,
            Passed::Interrupted => Outcome::Interrupted,
            Passed::Hopeless => Outcome::NobodyConnected,
        };
        if let Some(publisher) = &self.publisher {
            publisher.stop();
        }
        let now = self.clock.now();
        self.end_schedules();
        for push in self.collect(now, true) {
            self.live.show(&Line::Push(Box::new(push)));
        }
        let (figures, times) = (Figures::sum(&self.shared), Times::sum(&self.shared));
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
        Ok((outcome, figures, times))
    }

    /// Writes the report to wherever it is wanted.
    fn conclude(&mut self, report: &Report) -> Result<(), RunError> {
        for warning in &report.warnings {
            // Standard output's table shows them too; this is for whoever reads the events.
            if self.config.live == crate::config::LiveStyle::Json {
                self.live.show(&Line::Warning {
                    message: warning.clone(),
                });
            }
        }
        self.live.finish();
        // All of them are tried, the table first: one that fails must not cost the others.
        let table = self.write_table(report);
        let json = self.write_json(report);
        let hgrm = self.write_hgrm(report);
        self.live.show(&Line::Done {
            outcome: report.outcome,
            went_wrong: report.went_wrong.clone(),
            elapsed_s: self.elapsed_s(),
        });
        table.and(json).and(hgrm)
    }

    /// Writes the table for people: to standard output, or to standard error where that carries something else.
    fn write_table(&self, report: &Report) -> Result<(), RunError> {
        let is_error = self.config.uses_standard_output();
        let text = |columns: Option<usize>| {
            // A file or a pipe has room for any line.
            crate::report::table::render(report, columns.unwrap_or(usize::MAX))
        };
        let (name, written) = if is_error {
            let mut out = io::stderr().lock();
            let text = text(terminal_columns(&out));
            ("standard error", out.write_all(text.as_bytes()))
        } else {
            let mut out = io::stdout().lock();
            let text = text(terminal_columns(&out));
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            ("standard output", written)
        };
        match written {
            // A reader that has seen enough, such as `head`, is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| RunError::Write {
                path: name.into(),
                error,
            }),
        }
    }

    fn write_json(&mut self, report: &Report) -> Result<(), RunError> {
        let Some(output) = &mut self.outputs.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(report).expect("reports have string keys");
        output.write((text + "\n").as_bytes())
    }

    fn write_hgrm(&mut self, report: &Report) -> Result<(), RunError> {
        let Some(output) = &mut self.outputs.hgrm else {
            return Ok(());
        };
        let origin = report.fanout.as_ref().map(|fanout| fanout.origin);
        let times = match origin.unwrap_or(Origin::Own) {
            Origin::Own => &self.collector.own.times,
            Origin::Foreign => &self.collector.foreign.times,
        };
        let mut text = Vec::new();
        crate::report::hgrm::write(times, &mut text).expect("memory takes any text");
        output.write(&text)
    }
}

/// Close frames by code.
pub(crate) fn closes(figures: &Figures) -> BTreeMap<String, u64> {
    let closes = figures.closes.iter();
    closes
        .map(|(&code, closes)| (name_of_close(code), closes.count))
        .collect()
}

/// `1001`, or `none`.
pub(crate) fn name_of_close(code: Option<u16>) -> String {
    code.map_or_else(|| "none".to_owned(), |code| code.to_string())
}
