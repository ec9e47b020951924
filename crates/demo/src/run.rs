//! The steps of the demonstration.

use crate::certificate::{Certificate, CertificateError};
use crate::json_file::JsonFile;
use crate::port::NoFreePort;
use crate::process::{Launch, Output, Process};
use crate::progress::Progress;
use crate::report::{MemoryUse, Report, Snapshot, Verdict, unix_seconds_now};
use crate::watch::{Stall, Step, Watch};
use crate::{health, opening, port, table};
use myriad_doctor::{Budget, Decision, Load, Machine, Probe, ProbeError, Role, examine};
use myriad_layout::WIDTH_MAX;
use myriad_report::{Line, Phase, PushReport};
use myriad_units::{count, time};
use myriad_usage::Footprint;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Connections to open if the user names no number and the machine allows it.
const CONNECTIONS_WANTED: u64 = 1_000_000;
/// Handshakes of TLS under way at once, where both ends share the processors: more of them wait, with 9 KB each, and none is faster.
pub const HANDSHAKES_AT_ONCE: u32 = 128;
/// Publications to everybody.
const PUSHES: usize = 3;
/// Room at the server for health checks, publishers and one curious browser.
const SPARE_CONNECTIONS: u64 = 1_000;
/// Longest time until the server is ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// How often the server is asked whether it is ready.
const READY_POLL: Duration = Duration::from_millis(50);
/// How often children and clocks are checked while no line comes.
const TICK: Duration = Duration::from_millis(250);
/// In the line that our server writes to standard error once it has its port. Without it, another server may answer
/// there.
const LISTENING: &str = "listening on ";
/// Lines of what a child said last, in an error.
const LINES_SHOWN: usize = 12;
/// A million sockets take the kernel seconds to close.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// What to show.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that has the commands `serve`, `swarm` and `demo`: usually the one running.
    pub program: PathBuf,
    /// Connections to open, whatever the machine's budget says; none lets the budget decide.
    pub connections: Option<u64>,
    /// Passed on to both as `--driver`.
    pub driver: Option<String>,
    /// Passed on to the crowd as `--protocol`, with a target that speaks it; none stands for `raw`.
    pub protocol: Option<String>,
    /// Clients connect with TLS.
    pub tls: bool,
    /// The server's `--ping-interval`.
    pub ping_interval: String,
    /// Where the report goes.
    pub json: PathBuf,
    /// Version of the program, for the report.
    pub version: String,
    /// Columns of the terminal that shows it; none for a file or a pipe.
    pub columns: Option<usize>,
}

/// The demonstration could not finish.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The machine could not be read.
    #[error("this machine cannot be checked: {0}")]
    Probe(#[from] ProbeError),
    /// No port is free.
    #[error(transparent)]
    NoFreePort(#[from] NoFreePort),
    /// The certificate for a run with TLS could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No connection was asked for.
    #[error("--connections 0 is out of range; give 1 or more, or leave it out")]
    NoConnections,
    /// The budget is empty.
    #[error("this machine has no room for connections. {why}")]
    NoRoom {
        /// Which limit, and what to do.
        why: String,
    },
    /// A child could not be started.
    #[error("the {name} could not be started: {source}")]
    Start {
        /// Which.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A child ended before its time.
    #[error("the {name} ended early ({status}). Its last lines:{last_words}")]
    Ended {
        /// Which.
        name: &'static str,
        /// How.
        status: String,
        /// The end of its standard error.
        last_words: String,
    },
    /// The server started and never answered its health check.
    #[error("the server did not become ready on {address}. Its last lines:{last_words}")]
    NotReady {
        /// Where it was asked.
        address: SocketAddr,
        /// The end of its standard error.
        last_words: String,
    },
    /// No progress for too long.
    #[error("no progress for {idle_s} s while {phase}, with {} of {} connected{last_words}", count(*connected), count(*wanted))]
    Stalled {
        /// What the crowd was doing.
        phase: &'static str,
        /// Seconds since the last progress.
        idle_s: u64,
        /// Connections open.
        connected: u64,
        /// Connections wanted.
        wanted: u64,
        /// The ends of both children's standard error.
        last_words: String,
    },
    /// Ctrl-C, or SIGTERM.
    #[error("interrupted")]
    Interrupted,
    /// Standard output is gone.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
    /// The report could not be kept.
    #[error("{} cannot be written ({source}); check the folder and its permissions", path.display())]
    Json {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs the demonstration, writes its course to `out`, and returns the report that it wrote to [`Options::json`].
///
/// Call from the main thread: the kernel ends the children with the thread that started them.
///
/// # Errors
/// See [`DemoError`]. Both children are gone by then. A push that did not reach everybody is not an
/// error but a [`Verdict`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<Report, DemoError> {
    if options.connections == Some(0) {
        return Err(DemoError::NoConnections);
    }
    let json = JsonFile::open(&options.json)?;
    let probe = Probe::system();
    let mut machine = examine(&probe)?;
    let address = port::choose(&machine, None)?;
    let secured = match options.tls {
        true => Some(Secured {
            address: port::choose(&machine, Some(address))?,
            certificate: Certificate::make("demo")?,
        }),
        false => None,
    };
    // Where the crowd connects.
    let target = secured.as_ref().map_or(address, |secured| secured.address);
    machine.listen_on(target.port());
    let wanted = options.connections.unwrap_or(CONNECTIONS_WANTED);
    let load = Load::broadcast(Role::BothEnds).with_tls(options.tls);
    let budget = Budget::new(&machine, load, wanted);
    let decision = decide(&budget, options.connections);
    let width = options.columns.unwrap_or(WIDTH_MAX);
    opening::describe(&machine, &budget, &decision, width, out)?;
    if decision.connections == 0 {
        return Err(DemoError::NoRoom { why: decision.why });
    }
    let plan = Plan::new(options, address, secured.as_ref(), decision.connections);
    writeln!(
        out,
        "\n  $ {}\n  $ {}\n",
        plan.server_command(),
        plan.crowd_command()
    )?;

    let mut stage = Stage::open(&plan, &probe)?;
    let memory = stage.follow(out)?;
    let report = report(
        options,
        &plan,
        &stage.watch,
        memory,
        machine,
        budget,
        decision,
    );
    stage.close();
    finish(options, &report, json, out)?;
    Ok(report)
}

/// As many of a million as the budget allows, or the number that was asked for, with a warning past the budget.
fn decide(budget: &Budget, asked: Option<u64>) -> Decision {
    let Some(asked) = asked else {
        return budget.connections(CONNECTIONS_WANTED);
    };
    let advice = budget.connections(asked);
    if advice.connections == asked {
        return advice;
    }
    Decision {
        connections: asked,
        why: format!("As you asked, but expect trouble. {}", advice.why),
    }
}

/// What a run with TLS has besides.
struct Secured {
    /// Where clients connect.
    address: SocketAddr,
    certificate: Certificate,
}

/// The command lines.
struct Plan {
    program: PathBuf,
    address: SocketAddr,
    connections: u64,
    server: Vec<String>,
    crowd: Vec<String>,
}

impl Plan {
    fn new(
        options: &Options,
        address: SocketAddr,
        secured: Option<&Secured>,
        connections: u64,
    ) -> Self {
        let spare = connections + SPARE_CONNECTIONS;
        let mut server = words(&format!(
            "serve --dev --listen {address} --max-connections {spare}"
        ));
        server.extend(["--ping-interval".to_owned(), options.ping_interval.clone()]);
        // The crowd is gone by then, or nobody cares any more.
        server.extend(words("--drain 1s"));
        let base = match secured {
            Some(secured) => format!("wss://{}", secured.address),
            None => format!("ws://{address}"),
        };
        let target = match options.protocol.as_deref() {
            None | Some("raw") => format!("{base}/raw?channel=demo"),
            Some(protocol) => {
                format!("{base}/connection/websocket --protocol {protocol} --channel demo")
            }
        };
        let mut crowd = words(&format!(
            "swarm {target} --connections {connections} --live json \
             --publish http://{address}/api/publish --pushes {PUSHES} --every {}s",
            pause_s(connections)
        ));
        if let Some(Secured {
            address,
            certificate,
        }) = secured
        {
            let [path, key] =
                [certificate.path(), certificate.key()].map(|path| path.display().to_string());
            server.extend(words(&format!("--tls-listen {address}")));
            server.extend(["--tls-certificate".to_owned(), path.clone()]);
            server.extend(["--tls-key".to_owned(), key]);
            crowd.extend(["--ca".to_owned(), path]);
            crowd.extend(words(&format!("--connecting-max {HANDSHAKES_AT_ONCE}")));
        }
        if let Some(driver) = &options.driver {
            for arguments in [&mut server, &mut crowd] {
                arguments.extend(["--driver".to_owned(), driver.clone()]);
            }
        }
        Self {
            program: options.program.clone(),
            address,
            connections,
            server,
            crowd,
        }
    }

    /// The server or the crowd, as a child.
    fn start(
        &self,
        name: &'static str,
        arguments: &[String],
        output: Output,
    ) -> Result<Process, DemoError> {
        let mut command = vec![self.program.display().to_string()];
        command.extend_from_slice(arguments);
        let launch = Launch {
            through: (&self.program, "demo"),
            folder: None,
            command: &command,
            environment: BTreeMap::new(),
            output,
            ready_words: LISTENING,
        };
        Process::start(&launch).map_err(|source| DemoError::Start { name, source })
    }

    fn server_command(&self) -> String {
        command(&self.server)
    }

    fn crowd_command(&self) -> String {
        command(&self.crowd)
    }
}

/// Seconds from one publication to the next: long enough for each to have reached everybody before the
/// next, which takes some 6 s at a million on two cores.
fn pause_s(connections: u64) -> u64 {
    2 + connections / 100_000
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Quotes a word for a shell: the target has a question mark.
fn command(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|word| {
        if word.contains('?') {
            format!("'{word}'")
        } else {
            word.clone()
        }
    });
    std::iter::once("myriad".to_owned())
        .chain(quoted)
        .collect::<Vec<_>>()
        .join(" ")
}

/// What the main loop waits for.
enum Event {
    Line(Line),
    CrowdSilent,
    Interrupted,
}

/// Both children and what is known about them.
struct Stage<'a> {
    probe: &'a Probe,
    wanted: u64,
    crowd: Process,
    server: Process,
    events: Receiver<Event>,
    signals: signal_hook::iterator::Handle,
    before: Snapshot,
    started: Instant,
    watch: Watch,
}

impl<'a> Stage<'a> {
    /// Starts the server, waits until it is ready, notes the memory in use, starts the crowd.
    fn open(plan: &Plan, probe: &'a Probe) -> Result<Self, DemoError> {
        let (sender, events) = mpsc::channel();
        let signals = forward_signals(sender.clone())?;
        let mut server = plan.start("server", &plan.server, Output::Discard)?;
        wait_until_ready(&mut server, plan.address, &events)?;
        let before = Snapshot {
            memory: probe.memory()?,
            server: Footprint::of(server.id())?,
            crowd: Footprint::default(),
        };
        let mut crowd = plan.start("crowd", &plan.crowd, Output::Read)?;
        forward_lines(&mut crowd, sender);
        let (wanted, started) = (plan.connections, Instant::now());
        Ok(Self {
            probe,
            wanted,
            crowd,
            server,
            events,
            signals,
            before,
            started,
            watch: Watch::new(),
        })
    }

    /// Follows the crowd to its last line. Returns the memory that the connections took.
    fn follow(&mut self, out: &mut dyn Write) -> Result<MemoryUse, DemoError> {
        let mut progress = Progress::new(self.wanted);
        let mut memory = MemoryUse::default();
        while !self.watch.done {
            let event = self.events.recv_timeout(TICK);
            let now = self.started.elapsed();
            let step = match event {
                Ok(Event::Line(line)) => self.watch.handle_line(line, now),
                Ok(Event::Interrupted) => return Err(DemoError::Interrupted),
                Ok(Event::CrowdSilent) | Err(RecvTimeoutError::Disconnected) => {
                    self.crowd.wait_for_end(END_PATIENCE);
                    return Err(ended("crowd", &mut self.crowd));
                }
                Err(RecvTimeoutError::Timeout) => Step::None,
            };
            match step {
                Step::None => {}
                Step::Progressed => progress.advance(self.watch.connected, out)?,
                Step::Connected => {
                    progress.finish();
                    memory = MemoryUse::between(self.before, self.snapshot()?);
                    self.say_connected(out)?;
                }
                Step::Pushed(push) => say_pushed(&push, out)?,
            }
            self.check(now)?;
        }
        Ok(memory)
    }

    fn snapshot(&self) -> Result<Snapshot, DemoError> {
        Ok(Snapshot {
            memory: self.probe.memory()?,
            server: Footprint::of(self.server.id())?,
            crowd: Footprint::of(self.crowd.id())?,
        })
    }

    fn say_connected(&self, out: &mut dyn Write) -> io::Result<()> {
        let time = self.watch.connect_time.unwrap_or_default();
        let connected = count(self.watch.connected);
        writeln!(
            out,
            "  {connected} connected in {}",
            myriad_units::time(time.as_secs_f64() * 1_000.0)
        )
    }

    /// Fails if a child has ended, or without progress.
    fn check(&mut self, now: Duration) -> Result<(), DemoError> {
        if self.server.ended().is_some() {
            return Err(ended("server", &mut self.server));
        }
        let Some(Stall { phase, idle }) = self.watch.stalled(now) else {
            return Ok(());
        };
        Err(DemoError::Stalled {
            phase: phase_in_words(phase),
            idle_s: idle.as_secs(),
            connected: self.watch.connected,
            wanted: self.wanted,
            last_words: format!(
                "\n  The crowd's last lines:{}\n  The server's:{}",
                last_words(&self.crowd),
                last_words(&self.server)
            ),
        })
    }

    /// The ordinary end: the crowd ends by itself, then the server is told to.
    fn close(mut self) {
        self.crowd.wait_for_end(END_PATIENCE);
        self.crowd.stop(Signal::TERM, END_PATIENCE);
        self.server.stop(Signal::TERM, END_PATIENCE);
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.signals.close();
    }
}

/// From here on a signal is an event, until the returned handle is closed.
fn forward_signals(sender: Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    thread::spawn(move || {
        for _signal in signals.forever() {
            if sender.send(Event::Interrupted).is_err() {
                break;
            }
        }
    });
    Ok(handle)
}

/// Turns each line of the crowd's report into an event, in order, and its end too.
fn forward_lines(crowd: &mut Process, sender: Sender<Event>) {
    let stdout = crowd.take_output();
    thread::spawn(move || {
        for text in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(line) = Line::parse(&text)
                && sender.send(Event::Line(line)).is_err()
            {
                return;
            }
        }
        let _ = sender.send(Event::CrowdSilent);
    });
}

fn wait_until_ready(
    server: &mut Process,
    address: SocketAddr,
    events: &Receiver<Event>,
) -> Result<(), DemoError> {
    let deadline = Instant::now() + READY_PATIENCE;
    while !(server.ready() && health::healthy(address)) {
        if server.ended().is_some() {
            return Err(ended("server", server));
        }
        if Instant::now() >= deadline {
            return Err(DemoError::NotReady {
                address,
                last_words: last_words(server),
            });
        }
        // Only signals arrive before the crowd has started.
        if events.recv_timeout(READY_POLL).is_ok() {
            return Err(DemoError::Interrupted);
        }
    }
    Ok(())
}

fn ended(name: &'static str, child: &mut Process) -> DemoError {
    let status = child
        .ended()
        .as_ref()
        .map_or_else(|| "still running".to_owned(), ExitStatus::to_string);
    DemoError::Ended {
        name,
        status,
        last_words: last_words(child),
    }
}

/// The last lines of its output, indented.
fn last_words(child: &Process) -> String {
    let lines = child.last_lines();
    let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
    last.iter().map(|line| format!("\n    {line}")).collect()
}

fn phase_in_words(phase: Phase) -> &'static str {
    match phase {
        Phase::Connecting => "connecting",
        Phase::Connected => "waiting for the first push",
        Phase::Pushing => "pushing",
        Phase::Draining => "closing",
        Phase::Unknown => "in a phase this version does not know",
    }
}

fn say_pushed(push: &PushReport, out: &mut dyn Write) -> io::Result<()> {
    let last = push.times.last_ms.map_or_else(
        || "nobody".to_owned(),
        |ms| format!("the last after {}", time(ms)),
    );
    let (received, expected) = (count(push.received), count(push.expected));
    writeln!(
        out,
        "  push {} reached {received} of {expected}, {last}",
        push.sequence
    )
}

fn report(
    options: &Options,
    plan: &Plan,
    watch: &Watch,
    memory: MemoryUse,
    machine: Machine,
    budget: Budget,
    decision: Decision,
) -> Report {
    let connect_seconds = watch.connect_time.unwrap_or_default().as_secs_f64();
    Report {
        version: options.version.clone(),
        finished_unix_s: unix_seconds_now(),
        machine,
        budget,
        decision,
        server_command: plan.server_command(),
        crowd_command: plan.crowd_command(),
        tls: options.tls,
        connections: watch.connected,
        connect_seconds,
        setup_rate_per_s: rate(watch.connected, connect_seconds),
        memory,
        pushes: watch.pushes.clone(),
        errors: watch.errors.clone(),
        warnings: watch.warnings.clone(),
        verdict: Verdict::of(watch, plan.connections, PUSHES),
    }
}

#[expect(clippy::cast_precision_loss, reason = "connections are far below 2^53")]
fn rate(connections: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        connections as f64 / seconds
    } else {
        0.0
    }
}

/// The table, the warnings, the file.
fn finish(
    options: &Options,
    report: &Report,
    json: JsonFile<'_>,
    out: &mut dyn Write,
) -> Result<(), DemoError> {
    let width = options.columns.unwrap_or(WIDTH_MAX);
    writeln!(out, "\n{}", table::render(report, width))?;
    for warning in &report.warnings {
        opening::write_wrapped(&format!("Warning: {warning}"), width, out)?;
    }
    json.write(report)?;
    writeln!(out, "Everything measured is in {}.", options.json.display())?;
    Ok(())
}
