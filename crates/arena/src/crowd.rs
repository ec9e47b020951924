//! The crowd: `myriad swarm` as a child, followed by its live report and read back from its file.

use crate::failure::{Failure, Phase};
use crate::guard::Guard;
use crate::manifest::Body;
use crate::process::{Launch, Process};
use crate::server::Server;
use myriad_demo::{Line, Origin, Phase as Step, Push};
use rustix::process::Signal;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often everybody is looked at when no line comes.
const TICK: Duration = Duration::from_millis(200);
/// Without one more connection for so long a crowd is stuck.
const CONNECT_PATIENCE: Duration = Duration::from_secs(60);
/// The crowd gives up on a push by itself, 30 s after its last arrival; this is for one that does not.
const PUSH_PATIENCE: Duration = Duration::from_secs(180);
/// Closing hundreds of thousands of sockets takes the kernel seconds.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Past any run: the arena itself ends the crowd.
const HOLD: &str = "24h";
/// Of `myriad swarm`: stopped by a signal, with the report so far. How every crowd of ours ends.
const INTERRUPTED: &str = "exit status: 105";

/// What a crowd is to do.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) targets: Vec<String>,
    pub(crate) connections: u64,
    pub(crate) publish: Option<Publish>,
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

/// The report's fields that are used here. Later ones are skipped.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Report {
    pub(crate) setup: Setup,
    #[serde(default)]
    pub(crate) churn: Churn,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) messages: Messages,
    #[serde(default)]
    pub(crate) pushes: Vec<Push>,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Setup {
    pub(crate) connected: u64,
    pub(crate) rate_per_s: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Churn {
    pub(crate) lost: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Messages {
    pub(crate) gaps: u64,
    pub(crate) duplicates: u64,
}

/// A crowd under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Crowd {
    process: Process,
    lines: Receiver<Line>,
    files: Files,
    /// Open now, as far as it has said.
    connected: u64,
}

/// Where the crowd leaves its figures.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    json: PathBuf,
    hgrm: PathBuf,
}

impl Files {
    pub(crate) fn within(folder: &Path) -> Self {
        Self {
            json: folder.join("crowd.json"),
            hgrm: folder.join("crowd.hgrm"),
        }
    }
}

impl Crowd {
    pub(crate) fn start(order: &Order, files: &Files, guard: Guard<'_>) -> Result<Self, Failure> {
        // What an earlier crowd left must not be taken for this one's.
        for file in [&files.json, &files.hgrm] {
            let _ = std::fs::remove_file(file);
        }
        let command = order.command(guard.myriad, files);
        let launch = Launch {
            myriad: guard.myriad,
            folder: None,
            command: &command,
            environment: BTreeMap::new(),
            read_output: true,
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

    /// Until every terminal is open, or has given up; how many are.
    pub(crate) fn wait_until_connected(
        &mut self,
        server: &mut Server<'_>,
        phase: Phase,
    ) -> Result<u64, Failure> {
        let mut moved = Instant::now();
        loop {
            match self.next(server, phase)? {
                Some(Line::Progress { connected, .. }) => {
                    if connected > self.connected {
                        moved = Instant::now();
                    }
                    self.connected = connected;
                }
                Some(Line::Phase {
                    phase: Step::Connected,
                }) => return Ok(self.connected),
                _ => {}
            }
            if moved.elapsed() > CONNECT_PATIENCE {
                let (connected, seconds) = (self.connected, CONNECT_PATIENCE.as_secs());
                let why = format!("no further connection for {seconds} s, {connected} are open");
                return Err(Failure::Crowd { phase, why });
            }
        }
    }

    /// Until that many pushes have run their course.
    pub(crate) fn wait_for_pushes(
        &mut self,
        server: &mut Server<'_>,
        pushes: u64,
        phase: Phase,
    ) -> Result<(), Failure> {
        let (mut seen, mut moved) = (0, Instant::now());
        while seen < pushes {
            if let Some(Line::Push(Push {
                origin: Origin::Own,
                ..
            })) = self.next(server, phase)?
            {
                seen += 1;
                moved = Instant::now();
            }
            if moved.elapsed() > PUSH_PATIENCE {
                let seconds = PUSH_PATIENCE.as_secs();
                let why = format!("{seen} of {pushes} pushes were over after {seconds} s more");
                return Err(Failure::Crowd { phase, why });
            }
        }
        Ok(())
    }

    /// Holds everything as it is.
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

    /// Fails when anybody has ended or has to.
    fn check(&mut self, server: &mut Server<'_>, phase: Phase) -> Result<(), Failure> {
        server.check(phase)?;
        match self.process.ended() {
            None => Ok(()),
            Some(status) => Err(Failure::Crowd {
                phase,
                why: format!("the crowd ended ({status}): {}", self.process.last_words()),
            }),
        }
    }

    /// Lets everybody leave at once; what they saw.
    pub(crate) fn leave(mut self, phase: Phase) -> Result<(Report, Vec<Arrival>), Failure> {
        self.process.signal(Signal::INT);
        let failed = |why: String| Failure::Crowd { phase, why };
        let status = self.process.wait_for_end(END_PATIENCE).ok_or_else(|| {
            let seconds = END_PATIENCE.as_secs();
            failed(format!("the crowd did not end within {seconds} s"))
        })?;
        if status != INTERRUPTED {
            let words = self.process.last_words();
            return Err(failed(format!("the crowd ended ({status}): {words}")));
        }
        let unreadable = |error: String| failed(format!("the crowd's report: {error}"));
        let text = std::fs::read_to_string(&self.files.json)
            .map_err(|error| unreadable(error.to_string()))?;
        let report: Report =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        // Nobody was pushed to, nothing was written.
        let hgrm = std::fs::read_to_string(&self.files.hgrm).unwrap_or_default();
        Ok((report, arrivals(&hgrm)))
    }
}

impl Order {
    fn command(&self, myriad: &Path, files: &Files) -> Vec<String> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut command = vec![myriad.display().to_string(), "swarm".to_owned()];
        command.extend(self.targets.iter().cloned());
        command.extend(words(&format!(
            "--connections {} --live json --retries 2",
            self.connections
        )));
        command.extend(words(&format!("--duration {HOLD}")));
        for (option, file) in [("--json", &files.json), ("--hgrm", &files.hgrm)] {
            command.extend([option.to_owned(), file.display().to_string()]);
        }
        if let Some(publish) = &self.publish {
            let body = match publish.body {
                Body::Plain => "plain",
                Body::Api => "api",
            };
            for url in &publish.urls {
                command.extend(["--publish".to_owned(), url.clone()]);
            }
            command.extend(words(&format!(
                "--publish-body {body} --pushes {} --every {}ms --warmup {}ms",
                publish.pushes,
                publish.every.as_millis(),
                publish.after.as_millis()
            )));
        }
        command
    }
}

/// A point of the arrival curve: this share of all arrivals had come by then.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Arrival {
    /// From the clock of the push.
    pub ms: f64,
    /// Between 0 and 1.
    pub share: f64,
}

/// Reads HdrHistogram's percentile text, the columns value and percentile.
fn arrivals(hgrm: &str) -> Vec<Arrival> {
    hgrm.lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace().map(str::parse::<f64>);
            let (ms, share) = (columns.next()?.ok()?, columns.next()?.ok()?);
            Some(Arrival { ms, share })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_from_percentile_text() {
        let text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n\
                    0.500 0.000000000000          1           1.00\n\
                    1.250 0.500000000000         50           2.00\n\
                    9.000 1.000000000000        100\n\
                    #[Mean    =        1.300, StdDeviation   =        0.100]\n";
        let points: Vec<_> = arrivals(text)
            .iter()
            .map(|point| (point.ms, point.share))
            .collect();
        assert_eq!(points, [(0.5, 0.0), (1.25, 0.5), (9.0, 1.0)]);
        assert_eq!(arrivals(""), []);
    }

    #[test]
    fn a_push_goes_to_every_process() {
        let order = Order {
            targets: vec!["ws://a/".into(), "ws://b/".into()],
            connections: 5,
            publish: Some(Publish {
                urls: vec!["http://a/x".into(), "http://b/x".into()],
                body: Body::Plain,
                pushes: 3,
                every: Duration::from_secs(2),
                after: Duration::from_millis(500),
            }),
        };
        let command = order.command(Path::new("m"), &Files::within(Path::new("/t")));
        assert_eq!(
            command.join(" "),
            "m swarm ws://a/ ws://b/ --connections 5 --live json --retries 2 --duration 24h --json /t/crowd.json \
             --hgrm /t/crowd.hgrm --publish http://a/x --publish http://b/x --publish-body plain --pushes 3 \
             --every 2000ms --warmup 500ms"
        );
    }

    #[test]
    fn a_report_may_say_more_than_is_read() {
        let text = r#"{"program":"x","setup":{"connected":7,"rate_per_s":3.5,"new":1},"later":{}}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!(report.setup.connected, 7);
    }
}
