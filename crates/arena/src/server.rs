//! A contestant's processes, from a start to their end.

use crate::build::output;
use crate::failure::{Failure, Phase};
use crate::failure_text;
use crate::guard::Guard;
use crate::http::Peer;
use crate::manifest::{Broadcast, Contestant, Processes, Stats, StopSignal, Transport};
use crate::placeholders::{Values, fill};
use crate::surface::Surface;
use crate::tls::Tls;
use myriad_demo::process::{Launch, Output, Process};
use myriad_usage::Memory;
use rustix::process::{Resource, Signal, getrlimit};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
const POLL_MIN: Duration = Duration::from_millis(2);
/// A contestant under load may be slow to say how many it holds.
const STATS_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two requests for an answer while it starts.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// Time in which the server must notice that connections ended.
const COUNT_PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors of a process whose limit could be any number. More would only make tables larger.
const DESCRIPTORS_WANTED: u64 = 1 << 20;
/// Held requests outlast every run.
const HOLD_MS: [&str; 2] = ["30000", "90000"];

/// How the processes are to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    pub(crate) port: u16,
    pub(crate) connections: u64,
    pub(crate) mode: Mode,
    /// How its clients are held over HTTP; none for WebSockets.
    pub(crate) held: Option<Transport>,
    /// What the ports speak TLS with; none without TLS.
    pub(crate) tls: Option<&'a Tls>,
}

/// What the server does with messages from clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Push,
    Echo,
}

impl Mode {
    /// As the contract writes it.
    fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Echo => "echo",
        }
    }
}

/// Descriptors that a process started here may have.
pub(crate) fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile)
        .maximum
        .unwrap_or(DESCRIPTORS_WANTED)
}

/// Processes that a crowd of this size needs.
pub(crate) fn processes_for(contestant: &Contestant, connections: u64) -> u64 {
    let each = descriptors_max()
        .saturating_sub(contestant.descriptors_spare)
        .div_euclid(contestant.descriptors_per_connection.get())
        .max(1);
    match contestant.processes {
        Processes::One => 1,
        Processes::Ports | Processes::Own => connections.div_ceil(each).max(1),
    }
}

/// Running processes of one contestant. Dropping it stops them.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    contestant: &'a Contestant,
    guard: Guard<'a>,
    processes: Vec<Process>,
    /// Processes that share the crowd. One start may make several.
    count: u64,
    ports: Vec<u16>,
    surface: Surface<'a>,
    tls: Option<&'a Tls>,
    pub(crate) ready_s: f64,
}

impl<'a> Server<'a> {
    /// Starts all processes and waits until each answers.
    pub(crate) fn start(
        contestant: &'a Contestant,
        start: Start<'a>,
        guard: Guard<'a>,
    ) -> Result<Self, Failure> {
        let count = processes_for(contestant, start.connections);
        let starts = match contestant.processes {
            Processes::Ports => count,
            Processes::Own | Processes::One => 1,
        };
        let ports = ports(start.port, starts)?;
        let started = Instant::now();
        let mut server = Self {
            contestant,
            guard,
            processes: Vec::with_capacity(ports.len()),
            count,
            ports,
            surface: Surface::of(contestant, start.mode, start.held)?,
            tls: start.tls,
            ready_s: 0.0,
        };
        for &port in &server.ports {
            let process = launch(contestant, start, count, port, guard)?;
            server.processes.push(process);
        }
        let deadline = started + Duration::from_secs(contestant.start_seconds_max);
        for index in 0..server.ports.len() {
            server.wait_until_ready(index, deadline)?;
        }
        server.ready_s = started.elapsed().as_secs_f64();
        server.create_stream()?;
        Ok(server)
    }

    /// Creates the stream that its clients will read, on every process, if it has to be created.
    fn create_stream(&self) -> Result<(), Failure> {
        let Some(path) = self.surface.create else {
            return Ok(());
        };
        for &port in &self.ports {
            let refused = |why: String| Failure::Start(format!("PUT {path} on port {port} {why}"));
            let answer = self
                .peer(port)
                .create(path, STATS_PATIENCE)
                .map_err(|error| refused(format!("was not answered: {error}")))?;
            if !matches!(answer.status, 200 | 201) {
                return Err(refused(format!("was answered with {}", answer.status)));
            }
        }
        Ok(())
    }

    fn peer(&self, port: u16) -> Peer<'a> {
        Peer {
            address: address(port),
            tls: self.tls,
        }
    }

    fn wait_until_ready(&mut self, index: usize, deadline: Instant) -> Result<(), Failure> {
        let peer = self.peer(self.ports[index]);
        let path = &self.contestant.stats.path;
        loop {
            if self.guard.interrupted() {
                return Err(Failure::Interrupted);
            }
            let process = &mut self.processes[index];
            if let Some(status) = process.ended() {
                let said = failure_text::of(process);
                return Err(Failure::Start(format!("it ended ({status}): {said}")));
            }
            let answer = peer.ask(path, READY_PATIENCE);
            if answer.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Failure::Start(format!(
                    "GET {path} on port {} unanswered after {} s: {}",
                    peer.address.port(),
                    self.contestant.start_seconds_max,
                    failure_text::of(process)
                )));
            }
            thread::sleep(POLL);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The URLs of the crowd, one for each port.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.urls(self.surface.scheme, self.surface.path)
    }

    /// Where a push is posted to, and in which form.
    pub(crate) fn broadcast(&self) -> &'a Broadcast {
        self.surface.broadcast
    }

    fn stats(&self) -> &'a Stats {
        self.surface.stats
    }

    /// The URLs that a push is posted to: one for each process.
    pub(crate) fn broadcast_urls(&self) -> Vec<String> {
        self.urls("http", &self.broadcast().path)
    }

    /// The URLs that requests are posted to: one for each process.
    pub(crate) fn request_urls(&self) -> Vec<String> {
        self.urls("http", "/request")
    }

    /// `scheme` is that of a server without TLS.
    fn urls(&self, scheme: &str, path: &str) -> Vec<String> {
        let secure = if self.tls.is_some() { "s" } else { "" };
        let url = |port: &u16| format!("{scheme}{secure}://{}{path}", address(*port));
        self.ports.iter().map(url).collect()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(|&port| address(port)).collect()
    }

    /// Fails when a process has ended.
    pub(crate) fn check(&mut self, phase: Phase) -> Result<(), Failure> {
        for process in &mut self.processes {
            if let Some(status) = process.ended() {
                return Err(Failure::Died {
                    phase,
                    status: status.to_string(),
                    said: failure_text::of(process),
                });
            }
        }
        self.guard.check(phase)
    }

    fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(Process::id).collect()
    }

    pub(crate) fn memory(&self) -> Memory {
        myriad_usage::memory(&self.ids())
    }

    pub(crate) fn cpu_s(&self) -> f64 {
        myriad_usage::cpu_s(&self.ids())
    }

    /// Memory in use, as the processes say themselves, if the manifest says how to ask.
    pub(crate) fn heap_bytes(&self, phase: Phase) -> Result<Option<f64>, Failure> {
        let Some(query) = &self.contestant.memory else {
            return Ok(None);
        };
        let mut total = 0;
        for process in &self.processes {
            let values = Values::default().with("pid", process.id());
            let _ = self.ask_program(&query.prepare, &values);
            let said = self.ask_program(&query.used, &values);
            let found: Vec<u64> = query
                .used_pattern
                .finds(&said)
                .filter_map(|number| number.parse().ok())
                .collect();
            if found.is_empty() {
                let why = format!("`{}` said: {}", query.used.join(" "), first_line(&said));
                return Err(Failure::Contract { phase, why });
            }
            total += found.iter().sum::<u64>() * query.used_unit.bytes();
        }
        Ok(Some(float(total)))
    }

    fn ask_program(&self, command: &[String], values: &Values) -> String {
        let words: Vec<String> = command
            .iter()
            .map(|word| fill(word, values).expect("checked when the manifest was read"))
            .collect();
        words
            .split_first()
            .map_or_else(String::new, |(program, arguments)| {
                output(program, arguments, &self.contestant.folder)
            })
    }

    /// The sum of what all processes say of themselves.
    pub(crate) fn connections(&self, phase: Phase) -> Result<u64, Failure> {
        let broken = |port: &u16, what: String| Failure::Contract {
            phase,
            why: format!("GET {} on port {port} {what}", self.stats().path),
        };
        let mut total = 0;
        for port in &self.ports {
            let path = &self.stats().path;
            let answer = self
                .peer(*port)
                .ask(path, STATS_PATIENCE)
                .map_err(|error| broken(port, format!("was not answered: {error}")))?;
            if answer.status != 200 {
                return Err(broken(port, format!("was answered with {}", answer.status)));
            }
            let text = String::from_utf8_lossy(&answer.body);
            total += self.number_in(&text).ok_or_else(|| {
                broken(port, "was answered without a number of connections".into())
            })?;
        }
        Ok(total)
    }

    fn number_in(&self, text: &str) -> Option<u64> {
        match &self.stats().pattern {
            Some(pattern) => pattern.finds(text).next()?.parse().ok(),
            None => serde_json::from_str::<serde_json::Value>(text)
                .ok()?
                .get("connections")?
                .as_u64(),
        }
    }

    /// Waits until it says that it holds so many. Returns the seconds that this took.
    pub(crate) fn wait_for_connections(
        &mut self,
        wanted: u64,
        phase: Phase,
    ) -> Result<f64, Failure> {
        let began = Instant::now();
        loop {
            let seen = match self.connections(phase) {
                Ok(seen) => seen,
                Err(broken) => {
                    // A process that is gone explains more than an answer that did not come.
                    thread::sleep(POLL);
                    self.check(phase)?;
                    return Err(broken);
                }
            };
            if seen == wanted {
                return Ok(began.elapsed().as_secs_f64());
            }
            if began.elapsed() > COUNT_PATIENCE {
                let why = format!(
                    "it reported {seen} connections {} s after there were {wanted}",
                    COUNT_PATIENCE.as_secs()
                );
                return Err(Failure::Contract { phase, why });
            }
            self.check(phase)?;
            // Short at first, where it matters when exactly the last one came.
            thread::sleep((began.elapsed() / 8).clamp(POLL_MIN, POLL));
        }
    }

    /// Asks all processes to end, and kills those that do not.
    pub(crate) fn stop(mut self) {
        let signal = match self.contestant.stop_signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
        };
        for process in &self.processes {
            process.signal(signal);
        }
        let deadline = Instant::now() + Duration::from_secs(self.contestant.stop_seconds_max);
        for process in &mut self.processes {
            process.stop(signal, deadline.saturating_duration_since(Instant::now()));
        }
    }
}

fn launch(
    contestant: &Contestant,
    start: Start<'_>,
    count: u64,
    port: u16,
    guard: Guard<'_>,
) -> Result<Process, Failure> {
    let share = start.connections.div_ceil(count);
    let text = |value: &str| value.to_owned();
    let variables = [
        ("host", Ipv4Addr::LOCALHOST.to_string()),
        ("port", port.to_string()),
        ("mode", text(start.mode.name())),
        ("push_every_ms", text("0")),
        ("connections", share.to_string()),
        ("processes", count.to_string()),
    ];
    let mut values = Values::new(variables.clone())
        .with("heap_mb", contestant.heap.megabytes(share))
        .with("myriad", guard.myriad.display());
    let pair = start.tls.map(|tls| {
        let files = [("certificate", tls.certificate()), ("key", tls.key())];
        files.map(|(name, file)| (name, file.display().to_string()))
    });
    for (name, file) in pair.iter().flatten() {
        values = values.with(name, file);
    }
    let filled = |word: &String| fill(word, &values).expect("checked when the manifest was read");
    let mut environment: BTreeMap<String, String> = variables
        .into_iter()
        .map(|(name, value)| (name.to_uppercase(), value))
        .collect();
    environment.insert(text("HOLD_MIN_MS"), text(HOLD_MS[0]));
    environment.insert(text("HOLD_MAX_MS"), text(HOLD_MS[1]));
    let files = pair.into_iter().flatten();
    environment.extend(files.map(|(name, file)| (format!("TLS_{}", name.to_uppercase()), file)));
    let own = contestant.environment.iter();
    environment.extend(own.map(|(name, value)| (name.clone(), filled(value))));
    let command: Vec<String> = contestant
        .start_command(start.tls.is_some())
        .iter()
        .map(filled)
        .collect();
    let launch = Launch {
        through: guard.through(),
        folder: Some(&contestant.folder),
        command: &command,
        environment,
        output: Output::Keep,
        ready_words: "",
    };
    Process::start(&launch).map_err(|error| {
        let folder = contestant.folder.display();
        Failure::Start(format!("no process in {folder}: {error}"))
    })
}

/// Checks that nobody listens on these ports: another server there would be measured instead.
fn ports(first: u16, count: u64) -> Result<Vec<u16>, Failure> {
    let past = u64::from(first) + count;
    let too_many = || Failure::Start(format!("{count} ports from {first} on go past 65535"));
    let last = u16::try_from(past - 1).map_err(|_| too_many())?;
    let ports: Vec<u16> = (first..=last).collect();
    for port in &ports {
        TcpListener::bind(address(*port)).map_err(|error| {
            Failure::Start(format!("port {port}: {error}; give another with --port"))
        })?;
    }
    Ok(ports)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("nothing")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and counts of one machine are far below 2^53"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
