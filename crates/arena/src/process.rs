//! Processes that end with the arena, and all of theirs with them.

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getppid, getrlimit, kill_process,
    kill_process_group, set_parent_process_death_signal, setrlimit, waitid,
};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Lines of a process's output kept for its row, should it fail.
const LINES_KEPT: usize = 40;
/// Bytes of a line kept: programs print what they like.
const LINE_BYTES_MAX: usize = 400;
/// How often a stopping process is looked at.
const POLL: Duration = Duration::from_millis(20);
/// How long the last words of an ended process are waited for.
const HEARING_MAX: Duration = Duration::from_secs(1);
/// Descriptors of a process that is given all there are; more would only make tables larger.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

/// Turns this process into `command`, with all the descriptors there are, to be sent SIGTERM when `parent` dies.
///
/// A process does this to itself because doing it between `fork` and `exec` would need unsafe code; all of it
/// survives `exec`. Returns only on failure.
#[must_use]
pub fn attach(parent: u32, command: &[OsString]) -> io::Error {
    let Some((program, arguments)) = command.split_first() else {
        return io::Error::other("there is no command to run");
    };
    if let Err(errno) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return errno.into();
    }
    // The parent may have died before the call above; then nobody would ever send the signal.
    if getppid().map(Pid::as_raw_pid) != i32::try_from(parent).ok() {
        return io::Error::other("the arena that started this process is gone");
    }
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(errno) = setrlimit(Resource::Nofile, all) {
        return errno.into();
    }
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(
        error.kind(),
        format!("`{}`: {error}", program.to_string_lossy()),
    )
}

/// Descriptors that a process started here may have.
pub(crate) fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile)
        .maximum
        .unwrap_or(DESCRIPTORS_WANTED)
}

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Launch<'a> {
    /// This program: it becomes the other one.
    pub(crate) myriad: &'a Path,
    pub(crate) folder: Option<&'a Path>,
    pub(crate) command: &'a [String],
    pub(crate) environment: BTreeMap<String, String>,
    /// Its standard output is read by the caller; otherwise it is kept with its standard error.
    pub(crate) read_output: bool,
}

/// A running process in a group of its own. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
    reaped: bool,
}

impl Process {
    /// Starts it. In a process group of its own, so that Ctrl-C in a terminal comes to us alone.
    ///
    /// Call from a thread that lives as long as the process: the kernel's "parent" is the thread.
    pub(crate) fn start(launch: &Launch<'_>) -> io::Result<Self> {
        let mut command = Command::new(launch.myriad);
        command
            .args(["arena", "--attached-to"])
            .arg(std::process::id().to_string())
            .arg("--")
            .args(launch.command)
            .envs(&launch.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(folder) = launch.folder {
            command.current_dir(folder);
        }
        let mut child = command.spawn()?;
        let said = Arc::new(Mutex::new(VecDeque::with_capacity(LINES_KEPT)));
        let mut readers = vec![keep(
            child.stderr.take().expect("was asked for above"),
            &said,
        )];
        if !launch.read_output {
            let output = child.stdout.take().expect("was asked for above");
            readers.push(keep(output, &said));
        }
        Ok(Self {
            child,
            said,
            readers,
            reaped: false,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, if it was asked for; once.
    pub(crate) fn take_output(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("asked for, taken once")
    }

    /// How it ended, when it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        if !self.reaped {
            self.reaped = true;
            self.hear_out();
        }
        Some(status.to_string())
    }

    /// Waits until what it said is read: its last words may still be in the pipe when its end is known. A process it left
    /// behind may hold the pipe open for ever.
    fn hear_out(&self) {
        let deadline = Instant::now() + HEARING_MAX;
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }

    /// What tells most about why it failed: its first line with "error" in it, or its last one.
    pub(crate) fn last_words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        last_words(said.iter().map(String::as_str))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // Not reaped yet, so the id is still the process's.
        if let Some(pid) = self.pid().filter(|_| !self.reaped) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait_for_end(&mut self, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(POLL);
        }
    }

    /// The signal, patience, and SIGKILL for whoever is left of its group.
    pub(crate) fn stop(&mut self, signal: Signal, patience: Duration) {
        let Some(pid) = self.pid().filter(|_| !self.reaped) else {
            return;
        };
        let _ = kill_process(pid, signal);
        let deadline = Instant::now() + patience;
        while !has_ended(pid) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        // Before it is reaped, its id is nobody else's, and so is that of its group.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
        self.reaped = true;
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    /// The way out on errors: shorter patience than the ordinary end has.
    fn drop(&mut self) {
        self.stop(Signal::TERM, Duration::from_secs(3));
    }
}

/// Whether it is dead; it stays a zombie.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Reads a pipe to its end and keeps its last lines.
fn keep(pipe: impl Read + Send + 'static, said: &Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    let said = Arc::clone(said);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = read_line(&mut pipe, &mut line) {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if text.is_empty() {
                continue;
            }
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() == LINES_KEPT {
                said.pop_front();
            }
            said.push_back(text);
        }
    })
}

/// A line, or so much of it as is kept; a longer one comes in pieces.
fn read_line(pipe: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    pipe.take(LINE_BYTES_MAX as u64).read_until(b'\n', line)
}

/// Enough for a row of a table.
pub(crate) fn last_words<'t>(lines: impl Iterator<Item = &'t str> + Clone) -> String {
    let mut telling = lines
        .clone()
        .filter(|line| line.contains("rror") && !line.starts_with("NOTE:"));
    let line = telling.next().or_else(|| lines.last());
    line.map_or_else(
        || "it said nothing".to_owned(),
        |line| line.chars().take(200).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_tells_most_is_chosen() {
        let words = |text: &str| last_words(text.lines());
        assert_eq!(words(""), "it said nothing");
        assert_eq!(words("one\ntwo"), "two");
        assert_eq!(
            words("NOTE: error counts\nError: no port\nat line 7"),
            "Error: no port"
        );
        assert_eq!(words(&"ż".repeat(500)).chars().count(), 200);
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let text = "x".repeat(LINE_BYTES_MAX + 1);
        let mut pipe = BufReader::new(text.as_bytes());
        let mut line = Vec::new();
        assert_eq!(read_line(&mut pipe, &mut line).unwrap(), LINE_BYTES_MAX);
        line.clear();
        assert_eq!(read_line(&mut pipe, &mut line).unwrap(), 1);
    }
}
