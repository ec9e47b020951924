//! The crowd: `myriad swarm` as a child, followed by its live report and read back from its file.

mod arrivals;

pub use arrivals::Arrival;
use arrivals::arrivals;

use crate::failure::{Failure, Phase};
use crate::failure_text;
use crate::guard::Guard;
use crate::manifest::{Body, Transport};
use crate::server::Server;
use myriad_demo::HANDSHAKES_AT_ONCE;
use myriad_demo::process::{Launch, Output, Process};
use myriad_report::{EXIT_INTERRUPTED, Line, Origin, Outcome, Phase as CrowdPhase, Report};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often processes are checked while no line comes.
const TICK: Duration = Duration::from_millis(200);
/// A crowd without a new connection for this long is stuck.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// The crowd ends a push 30 s after its last arrival. This is for a crowd that does not.
const PUSH_PATIENCE: Duration = Duration::from_secs(180);
/// Closing hundreds of thousands of sockets takes the kernel seconds.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any run: the arena ends the crowd.
const HOLD: Duration = Duration::from_secs(24 * 3_600);
/// Exit code of a crowd that is told to leave.
const INTERRUPTED: i32 = EXIT_INTERRUPTED as i32;
/// Exit code of a crowd whose time is over.
const FINISHED: i32 = 0;
/// The one of a crowd whose time is over, and whose load came to nothing: its report says more.
const FINISHED_FOR_NOTHING: i32 = 1;

/// What a crowd is to do.
#[derive(Clone, Debug)]
pub(crate) struct CrowdOptions {
    pub(crate) targets: Vec<String>,
    pub(crate) connections: u64,
    /// Clients that speak HTTP; none for WebSockets.
    pub(crate) held: Option<HeldClients>,
    /// The certificate that it trusts instead of the machine's CAs; none without TLS.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) load: Option<Load>,
}

/// What clients that speak HTTP do.
#[derive(Clone, Debug)]
pub(crate) struct HeldClients {
    pub(crate) transport: Transport,
    /// The crowd's `--poll-position`.
    pub(crate) position: Option<String>,
}

/// What it does beside holding its connections.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    Publish(Publish),
    /// Pushes for as long as that, however many come together. Then the crowd ends by itself.
    PublishFor(Publish, Duration),
    /// Messages over the whole crowd. The server sends each back.
    Echo(PacedLoad),
    /// Requests while the crowd is held, to the URLs in turn.
    Request {
        urls: Vec<String>,
        /// To each URL.
        connections: u64,
        paced: PacedLoad,
    },
}

/// Pushes: to every URL, on one clock.
#[derive(Clone, Debug)]
pub(crate) struct Publish {
    pub(crate) urls: Vec<String>,
    pub(crate) body: Body,
    pub(crate) pushes: u64,
    pub(crate) every: Duration,
    /// From the last connection to the first push.
    pub(crate) after: Duration,
}

/// A fixed rate for a limited time. Then the crowd ends by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacedLoad {
    pub(crate) rate_per_s: f64,
    pub(crate) duration: Duration,
    /// From the last connection to the first message.
    pub(crate) after: Duration,
}

/// A crowd under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Crowd {
    process: Process,
    lines: Receiver<Line>,
    files: Files,
    /// Connections open now, as of its last line.
    connected: u64,
}

/// Where the crowd leaves its figures.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    json: PathBuf,
    hgrm: PathBuf,
}

impl Files {
    /// Files for a crowd of this name. Crowds that run at the same time need different names.
    pub(crate) fn of(folder: &Path, name: &str) -> Self {
        Self {
            json: folder.join(format!("{name}.json")),
            hgrm: folder.join(format!("{name}.hgrm")),
        }
    }
}

impl Crowd {
    pub(crate) fn start(
        options: &CrowdOptions,
        files: &Files,
        guard: Guard<'_>,
    ) -> Result<Self, Failure> {
        // What an earlier crowd left must not be taken for this one's.
        for file in [&files.json, &files.hgrm] {
            let _ = std::fs::remove_file(file);
        }
        let command = options.command(guard.myriad, files);
        let launch = Launch {
            through: guard.through(),
            folder: None,
            command: &command,
            environment: BTreeMap::new(),
            output: Output::Read,
            ready_words: "",
        };
        let mut process = Process::start(&launch).map_err(|error| Failure::Crowd {
            phase: Phase::CrowdUp,
            why: format!("the crowd could not be started: {error}"),
        })?;
        let (sender, lines) = mpsc::channel();
        let output = process.take_output();
        thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                // What is no line of the report is nothing to us.
                if let Ok(line) = serde_json::from_str(&text)
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            lines,
            files: files.clone(),
            connected: 0,
        })
    }

    /// Waits until every client is connected or has given up. Returns how many are connected.
    pub(crate) fn wait_until_connected(
        &mut self,
        server: &mut Server<'_>,
        phase: Phase,
    ) -> Result<u64, Failure> {
        self.connected_within(Duration::MAX, server, phase)
    }

    /// The same, with a time limit.
    pub(crate) fn connected_within(
        &mut self,
        patience: Duration,
        server: &mut Server<'_>,
        phase: Phase,
    ) -> Result<u64, Failure> {
        let began = Instant::now();
        // Whoever loses as many as come in does not get on, though the count goes up and down.
        let (mut most, mut moved) = (self.connected, began);
        loop {
            match self.next(server, phase)? {
                Some(Line::Progress(progress)) => {
                    let connected = progress.connected;
                    if connected > most {
                        (most, moved) = (connected, Instant::now());
                    }
                    self.connected = connected;
                }
                Some(Line::Phase {
                    phase: CrowdPhase::Connected,
                    ..
                }) => return Ok(self.connected),
                _ => {}
            }
            if moved.elapsed() > CONNECT_PATIENCE {
                let (connected, seconds) = (self.connected, CONNECT_PATIENCE.as_secs());
                let why =
                    format!("at most {most} connections open after {seconds} s, {connected} now");
                return Err(Failure::Crowd { phase, why });
            }
            if began.elapsed() > patience {
                let (connected, seconds) = (self.connected, patience.as_secs());
                let why = format!("only {connected} connections open after {seconds} s");
                return Err(Failure::Crowd { phase, why });
            }
        }
    }

    /// Connections open now, as of the crowd's last line.
    pub(crate) fn connected(&self) -> u64 {
        self.connected
    }

    /// Waits until that many pushes are over.
    pub(crate) fn wait_for_pushes(
        &mut self,
        server: &mut Server<'_>,
        pushes: u64,
        phase: Phase,
    ) -> Result<(), Failure> {
        let (mut seen, mut moved) = (0, Instant::now());
        while seen < pushes {
            if let Some(Line::Push(push)) = self.next(server, phase)?
                && push.origin == Origin::Own
            {
                seen += 1;
                moved = Instant::now();
            }
            if moved.elapsed() > PUSH_PATIENCE {
                let seconds = PUSH_PATIENCE.as_secs();
                let why =
                    format!("pushes that were over after {seconds} s more: {seen} of {pushes}");
                return Err(Failure::Crowd { phase, why });
            }
        }
        Ok(())
    }

    /// Holds the crowd without doing anything.
    pub(crate) fn hold(
        &mut self,
        server: &mut Server<'_>,
        time: Duration,
        phase: Phase,
    ) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            // Lines wait in the channel meanwhile: pushes must not be lost to whoever waits for them next.
            thread::sleep(left.min(TICK));
            self.check(server, phase)?;
        }
        Ok(())
    }

    fn next(&mut self, server: &mut Server<'_>, phase: Phase) -> Result<Option<Line>, Failure> {
        let line = match self.lines.recv_timeout(TICK) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.process.wait_for_end(END_PATIENCE);
                None
            }
        };
        self.check(server, phase)?;
        Ok(line)
    }

    /// Fails when a process has ended, or when the run must stop.
    fn check(&mut self, server: &mut Server<'_>, phase: Phase) -> Result<(), Failure> {
        server.check(phase)?;
        match self.process.ended() {
            None => Ok(()),
            Some(status) => Err(Failure::Crowd {
                phase,
                why: format!(
                    "the crowd ended ({status}): {}",
                    failure_text::of(&self.process)
                ),
            }),
        }
    }

    /// Ends the crowd at once, and returns its report.
    pub(crate) fn leave(mut self, phase: Phase) -> Result<(Report, Vec<Arrival>), Failure> {
        self.process.signal(Signal::INT);
        let failed = |why: String| Failure::Crowd { phase, why };
        let status = self.process.wait_for_end(END_PATIENCE).ok_or_else(|| {
            let seconds = END_PATIENCE.as_secs();
            failed(format!("the crowd did not end within {seconds} s"))
        })?;
        let report = self.read(status, INTERRUPTED, phase)?;
        // Nobody was pushed to, nothing was written.
        let hgrm = std::fs::read_to_string(&self.files.hgrm).unwrap_or_default();
        Ok((report, arrivals(&hgrm)))
    }

    /// Waits until its limited time is over and it has ended. Returns its report.
    pub(crate) fn finish(
        mut self,
        server: &mut Server<'_>,
        patience: Duration,
        phase: Phase,
    ) -> Result<Report, Failure> {
        let deadline = Instant::now() + patience;
        loop {
            server.check(phase)?;
            if let Some(status) = self.process.wait_for_end(TICK) {
                return self.read(status, FINISHED, phase);
            }
            if Instant::now() > deadline {
                let seconds = patience.as_secs();
                let why = format!("the crowd did not end within {seconds} s");
                return Err(Failure::Crowd { phase, why });
            }
        }
    }

    /// Its report, if it ended as expected.
    fn read(&self, status: ExitStatus, expected: i32, phase: Phase) -> Result<Report, Failure> {
        let failed = |why: String| Failure::Crowd { phase, why };
        let ended = || {
            let said = failure_text::of(&self.process);
            failed(format!("the crowd ended ({status}): {said}"))
        };
        let is_for_nothing = expected == FINISHED && status.code() == Some(FINISHED_FOR_NOTHING);
        if status.code() != Some(expected) && !is_for_nothing {
            return Err(ended());
        }
        match self.read_report() {
            Ok(report) if is_for_nothing && report.outcome != Outcome::LoadFailed => Err(ended()),
            Err(_) if is_for_nothing => Err(ended()),
            read => read.map_err(|error| failed(format!("the crowd's report: {error}"))),
        }
    }

    fn read_report(&self) -> Result<Report, String> {
        let text = std::fs::read_to_string(&self.files.json).map_err(|error| error.to_string())?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

impl CrowdOptions {
    fn command(&self, myriad: &Path, files: &Files) -> Vec<String> {
        let mut command = vec![myriad.display().to_string(), "swarm".to_owned()];
        command.extend(self.targets.iter().cloned());
        if let Some(held) = &self.held {
            command.extend(held.options());
        }
        if let Some(ca) = &self.ca {
            command.extend(["--ca".to_owned(), ca.display().to_string()]);
            command.extend(arguments(&format!("--connecting-max {HANDSHAKES_AT_ONCE}")));
        }
        command.extend(arguments(&format!(
            "--connections {} --live json --retries 2",
            self.connections
        )));
        let held = match &self.load {
            Some(Load::Echo(paced) | Load::Request { paced, .. }) => paced.after + paced.duration,
            Some(Load::PublishFor(publish, time)) => publish.after + *time,
            Some(Load::Publish(_)) | None => HOLD,
        };
        command.extend(arguments(&format!("--duration {}ms", held.as_millis())));
        for (option, file) in [("--json", &files.json), ("--hgrm", &files.hgrm)] {
            command.extend([option.to_owned(), file.display().to_string()]);
        }
        match &self.load {
            Some(Load::Publish(publish) | Load::PublishFor(publish, _)) => {
                command.extend(publish.options());
            }
            Some(Load::Echo(paced)) => command.extend(paced.options("--echo")),
            Some(Load::Request {
                urls,
                connections,
                paced,
            }) => {
                command.extend(each("--request", urls));
                command.extend(arguments(&format!("--request-connections {connections}")));
                command.extend(paced.options("--request-rate"));
            }
            None => {}
        }
        command
    }
}

impl HeldClients {
    fn options(&self) -> Vec<String> {
        let mut options = arguments(&format!("--protocol {}", self.transport.name()));
        if let (Transport::LongPoll, Some(position)) = (self.transport, &self.position) {
            options.extend(["--poll-position".to_owned(), position.clone()]);
        }
        options
    }
}

impl Publish {
    fn options(&self) -> Vec<String> {
        let body = match self.body {
            Body::Plain => "plain",
            Body::Api => "api",
            Body::Stream => "stream",
        };
        let mut options: Vec<String> = each("--publish", &self.urls).collect();
        options.extend(arguments(&format!(
            "--publish-body {body} --pushes {} --every {}ms --warmup {}ms",
            self.pushes,
            self.every.as_millis(),
            self.after.as_millis()
        )));
        options
    }
}

impl PacedLoad {
    fn options(&self, rate: &str) -> Vec<String> {
        arguments(&format!(
            "{rate} {}/s --warmup {}ms",
            self.rate_per_s,
            self.after.as_millis()
        ))
    }
}

fn each(option: &str, urls: &[String]) -> impl Iterator<Item = String> {
    urls.iter()
        .flat_map(move |url| [option.to_owned(), url.clone()])
}

fn arguments(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_goes_to_every_process() {
        let options = CrowdOptions {
            targets: vec!["ws://a/".into(), "ws://b/".into()],
            connections: 5,
            held: None,
            ca: None,
            load: Some(Load::Publish(Publish {
                urls: vec!["http://a/x".into(), "http://b/x".into()],
                body: Body::Plain,
                pushes: 3,
                every: Duration::from_secs(2),
                after: Duration::from_millis(500),
            })),
        };
        let command = options.command(Path::new("m"), &Files::of(Path::new("/t"), "crowd"));
        assert_eq!(
            command.join(" "),
            "m swarm ws://a/ ws://b/ --connections 5 --live json --retries 2 --duration 86400000ms --json /t/crowd.json \
             --hgrm /t/crowd.hgrm --publish http://a/x --publish http://b/x --publish-body plain --pushes 3 \
             --every 2000ms --warmup 500ms"
        );
    }

    #[test]
    fn a_crowd_with_tls_trusts_the_certificate_of_the_run() {
        let options = CrowdOptions {
            targets: vec!["wss://a/".into()],
            connections: 5,
            held: None,
            ca: Some("/t/certificate.pem".into()),
            load: None,
        };
        let command = options.command(Path::new("m"), &Files::of(Path::new("/t"), "crowd"));
        let begin =
            "m swarm wss://a/ --ca /t/certificate.pem --connecting-max 128 --connections 5 ";
        assert!(command.join(" ").starts_with(begin), "{command:?}");
    }

    #[test]
    fn echoes_end_with_the_crowd() {
        let options = CrowdOptions {
            targets: vec!["ws://a/echo".into()],
            connections: 5,
            held: None,
            ca: None,
            load: Some(Load::Echo(PacedLoad {
                rate_per_s: 0.5,
                duration: Duration::from_secs(3),
                after: Duration::from_millis(500),
            })),
        };
        let command = options.command(Path::new("m"), &Files::of(Path::new("/t"), "crowd"));
        assert_eq!(
            command.join(" "),
            "m swarm ws://a/echo --connections 5 --live json --retries 2 --duration 3500ms --json /t/crowd.json \
             --hgrm /t/crowd.hgrm --echo 0.5/s --warmup 500ms"
        );
    }

    #[test]
    fn requests_go_to_every_process_beside_the_crowd() {
        let options = CrowdOptions {
            targets: vec!["ws://a/".into()],
            connections: 1,
            held: None,
            ca: None,
            load: Some(Load::Request {
                urls: vec!["http://a/request".into(), "http://b/request".into()],
                connections: 64,
                paced: PacedLoad {
                    rate_per_s: 500.0,
                    duration: Duration::from_secs(3),
                    after: Duration::from_millis(500),
                },
            }),
        };
        let command = options.command(Path::new("m"), &Files::of(Path::new("/t"), "beside"));
        assert_eq!(
            command.join(" "),
            "m swarm ws://a/ --connections 1 --live json --retries 2 --duration 3500ms --json /t/beside.json \
             --hgrm /t/beside.hgrm --request http://a/request --request http://b/request --request-connections 64 \
             --request-rate 500/s --warmup 500ms"
        );
    }
    #[test]
    fn held_clients_speak_http_and_are_published_to_for_a_time() {
        let options = CrowdOptions {
            targets: vec!["http://a/poll".into()],
            connections: 5,
            held: Some(HeldClients {
                transport: Transport::LongPoll,
                position: Some("X-Next=since".into()),
            }),
            ca: None,
            load: Some(Load::PublishFor(
                Publish {
                    urls: vec!["http://a/x".into()],
                    body: Body::Stream,
                    pushes: 100,
                    every: Duration::from_millis(50),
                    after: Duration::from_millis(500),
                },
                Duration::from_secs(5),
            )),
        };
        let command = options.command(Path::new("m"), &Files::of(Path::new("/t"), "crowd"));
        assert_eq!(
            command.join(" "),
            "m swarm http://a/poll --protocol long-poll --poll-position X-Next=since --connections 5 --live json \
             --retries 2 --duration 5500ms --json /t/crowd.json --hgrm /t/crowd.hgrm --publish http://a/x \
             --publish-body stream --pushes 100 --every 50ms --warmup 500ms"
        );
    }
}
