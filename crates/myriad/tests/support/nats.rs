//! A nats-server, agents that wait there, and ways to it.

use super::myriad;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The version of nats-server that is tested.
const NATS: &str = "github.com/nats-io/nats-server/v2@v2.15.2";

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nats-server of the system, or one that Go builds once; none where neither is there.
fn nats_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = PROGRAM.get_or_init(|| {
        let bin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-2.15.2");
        let built = bin.join("nats-server");
        if built.exists() {
            return Some(built);
        }
        let install = Command::new("go")
            .args(["install", NATS])
            .env("GOBIN", &bin)
            .status();
        match install {
            Ok(status) => {
                assert!(status.success(), "go install {NATS}");
                Some(built)
            }
            Err(error) => {
                eprintln!("Go is not installed ({error}), so fleets are not tested");
                None
            }
        }
    });
    found.as_deref()
}

/// A process whose lines of standard error are read. It is killed at the end of the test.
pub(crate) struct Running {
    process: Child,
    lines: Receiver<String>,
    /// What was read so far.
    pub(crate) said: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().expect("a program");
        let stderr = BufReader::new(process.stderr.take().expect("piped"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            stderr
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            process,
            lines,
            said: Vec::new(),
        }
    }

    pub(crate) fn wait_for(&mut self, words: &str) {
        let begun = Instant::now();
        loop {
            match self
                .lines
                .recv_timeout(PATIENCE.saturating_sub(begun.elapsed()))
            {
                Ok(line) => {
                    let found = line.contains(words);
                    self.said.push(line);
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("it never said '{words}': {:#?}", self.said)
                }
            }
        }
    }

    /// Stops it, or lets it go on.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill").success());
    }

    /// The report of a controller that writes it to standard output.
    pub(crate) fn report(&mut self) -> Value {
        let mut stdout = self.process.stdout.take().expect("piped");
        let mut text = String::new();
        stdout.read_to_string(&mut text).expect("a report");
        serde_json::from_str(&text).expect("a report")
    }

    /// The exit code and the report of a controller that ends by itself.
    pub(crate) fn end_with_report(&mut self) -> (Option<i32>, Value) {
        let mut stdout = self.process.stdout.take().expect("piped");
        let report = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let begun = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.said),
            }
        }
        let code = self.process.wait().expect("it has ended").code();
        let text = report.join().expect("no panic").expect("a report");
        (code, serde_json::from_str(&text).expect("a report"))
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A nats-server with one user.
pub(crate) struct Nats {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl Nats {
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["--user", "ann", "--pass", "s3cret"])
    }

    pub(crate) fn start_with(more: &[&str]) -> Option<Self> {
        let program = nats_program()?;
        // On a port that it chooses and says.
        let mut process = Running::start(
            Command::new(program)
                .args(["--addr", "127.0.0.1", "--port", "-1"])
                .args(more),
        );
        process.wait_for("Server is ready");
        let mut said = process.said.iter();
        let listening = said.find_map(|line| line.split_once("client connections on "));
        let (_, address) = listening.expect("it says where it listens");
        let address = address.trim().to_owned();
        Some(Self { process, address })
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://ann:s3cret@{}", self.address)
    }

    /// Agents of these names, which wait for a controller.
    pub(crate) fn agents(&self, names: &[&str]) -> Vec<Running> {
        self.agents_at(&self.url(), names)
    }

    pub(crate) fn agents_at(&self, url: &str, names: &[&str]) -> Vec<Running> {
        let start = |name: &&str| {
            Running::start(&mut myriad(&[
                "swarm", "agent", "--nats", url, "--name", name,
            ]))
        };
        let mut agents: Vec<Running> = names.iter().map(start).collect();
        agents
            .iter_mut()
            .for_each(|it| it.wait_for("waits for a controller"));
        agents
    }

    /// A stranger's connection, as the user that everybody is.
    pub(crate) fn stranger(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a socket option");
        stream
            .write_all(b"CONNECT {\"verbose\":false,\"user\":\"ann\",\"pass\":\"s3cret\"}\r\n")
            .expect("it is open");
        BufReader::new(stream)
    }
}

/// A way to a server that takes so long in each direction.
pub(crate) fn slow_way(to: &str, delay: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&to).expect("it listens");
            let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            carry(again(&client), again(&server), delay);
            carry(server, client, delay);
        }
    });
    address
}

/// Carries bytes, each of which arrives so long after it came.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, parts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count) = from.read(&mut bytes) {
            let part = (Instant::now() + delay, bytes[..count].to_vec());
            if count == 0 || sender.send(part).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, part) in parts {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&part).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
