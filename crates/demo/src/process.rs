//! Child processes that end with us, together with their own children.

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getppid, getrlimit, kill_process,
    kill_process_group, set_parent_process_death_signal, setrlimit, waitid,
};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Lines of a child's output that are kept to explain its end.
const LINES_KEPT: usize = 40;
/// Bytes that are kept of a line, because programs may print lines of any length.
const LINE_BYTES_MAX: usize = 400;
/// How often a stopping child is checked.
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for the last lines of an ended child.
const HEARING_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the end on errors: shorter than for an ordinary end.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// Turns this process into `command`, with all the descriptors there are, to be sent SIGTERM when `parent` dies.
///
/// A child does this to itself because doing it between `fork` and `exec` would need unsafe code; all of it survives
/// `exec` (prctl(2), `PR_SET_PDEATHSIG`), and so does the process id. Returns only on failure.
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
        return io::Error::other("the process that started this one is gone");
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

/// What happens to a child's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// [`Process::take_output`] will be called, and read to the end.
    Read,
    /// Its last lines are kept, with those of standard error.
    Keep,
    /// It is discarded.
    Discard,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// This program, which becomes the other one, and its command whose `--attached-to` calls [`attach`].
    pub through: (&'a Path, &'a str),
    /// Its working directory; none: ours.
    pub folder: Option<&'a Path>,
    /// The program and its arguments.
    pub command: &'a [String],
    /// Variables beside ours.
    pub environment: BTreeMap<String, String>,
    /// Of the child's standard output. Its standard error is kept.
    pub output: Output,
    /// What a line of it says once it is ready; empty where nobody waits for that.
    pub ready_words: &'static str,
}

/// A running child in a process group of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    said: Arc<Said>,
    readers: Vec<JoinHandle<()>>,
    reaped: bool,
}

/// What a child has written so far.
#[derive(Debug, Default)]
struct Said {
    lines: Mutex<VecDeque<String>>,
    /// Whether the words were among them.
    ready: AtomicBool,
}

impl Process {
    /// Starts it. In a process group of its own, so that Ctrl-C in a terminal comes to us alone and the children are
    /// stopped in order.
    ///
    /// Call from a thread that lives as long as the child: the kernel's "parent" is the thread.
    ///
    /// # Errors
    /// This program could not be started again. What becomes of the command is seen by [`Process::ended`].
    ///
    /// # Panics
    /// Never: the pipes were asked for.
    pub fn start(launch: &Launch<'_>) -> io::Result<Self> {
        let (program, name) = launch.through;
        let mut command = Command::new(program);
        command
            .args([name, "--attached-to"])
            .arg(std::process::id().to_string())
            .arg("--")
            .args(launch.command)
            .envs(&launch.environment)
            .stdin(Stdio::null())
            .stdout(match launch.output {
                Output::Read | Output::Keep => Stdio::piped(),
                // A pipe that nobody reads would fill up and stop the child.
                Output::Discard => Stdio::null(),
            })
            .stderr(Stdio::piped())
            .process_group(0);
        if let Some(folder) = launch.folder {
            command.current_dir(folder);
        }
        let mut child = command.spawn()?;
        let said = Arc::new(Said::default());
        let words = launch.ready_words;
        let error = child.stderr.take().expect("was asked for above");
        let mut readers = vec![keep(error, &said, words)];
        if launch.output == Output::Keep {
            let output = child.stdout.take().expect("was asked for above");
            readers.push(keep(output, &said, words));
        }
        Ok(Self {
            child,
            said,
            readers,
            reaped: false,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, if it was asked for; once.
    ///
    /// # Panics
    /// It was not asked for ([`Output::Read`]), or was taken before.
    pub fn take_output(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("asked for, taken once")
    }

    /// Whether it has said that it is ready, in the words of its launch.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.said.ready.load(Ordering::Acquire)
    }

    /// How it ended, when it has; what it said is read by then.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        if !self.reaped {
            self.reaped = true;
            self.hear_out();
        }
        Some(status)
    }

    /// Waits until its output is read: its last lines may still be in the pipe when its end is known. A child of its
    /// own may hold the pipe open for ever, so the wait is limited.
    fn hear_out(&self) {
        let deadline = Instant::now() + HEARING_MAX;
        while !self.readers.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }

    /// The last lines of what it said, oldest first.
    #[must_use]
    pub fn last_lines(&self) -> Vec<String> {
        let lines = self.said.lines.lock();
        let lines = lines.unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect()
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // Not reaped yet, so the id is still the child's.
        if let Some(pid) = self.pid().filter(|_| !self.reaped) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for it to end by itself.
    pub fn wait_for_end(&mut self, patience: Duration) -> Option<ExitStatus> {
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

    /// Sends the signal, waits, and kills the rest of its group.
    pub fn stop(&mut self, signal: Signal, patience: Duration) {
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
    /// The way out on errors.
    fn drop(&mut self) {
        self.stop(Signal::TERM, DROP_PATIENCE);
    }
}

/// Whether it is dead; it stays a zombie.
fn has_ended(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

/// Reads a pipe to its end and keeps its last lines.
fn keep(
    pipe: impl Read + Send + 'static,
    said: &Arc<Said>,
    ready_words: &'static str,
) -> JoinHandle<()> {
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
            if !ready_words.is_empty() && text.contains(ready_words) {
                said.ready.store(true, Ordering::Release);
            }
            let lines = said.lines.lock();
            let mut lines = lines.unwrap_or_else(PoisonError::into_inner);
            if lines.len() == LINES_KEPT {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    })
}

/// A line, or the part of it that is kept. A longer one comes in pieces.
fn read_line(pipe: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    pipe.take(LINE_BYTES_MAX as u64).read_until(b'\n', line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let text = "x".repeat(LINE_BYTES_MAX + 1);
        let mut pipe = BufReader::new(text.as_bytes());
        let mut line = Vec::new();
        assert_eq!(read_line(&mut pipe, &mut line).unwrap(), LINE_BYTES_MAX);
        line.clear();
        assert_eq!(read_line(&mut pipe, &mut line).unwrap(), 1);
    }

    #[test]
    fn the_last_lines_are_kept_and_the_words_seen_however_long_ago() {
        let said = Arc::new(Said::default());
        let mut text = "  it is listening on a port\n\n".to_owned();
        for number in 0..LINES_KEPT {
            text.push_str(&format!("line {number}\n"));
        }
        keep(io::Cursor::new(text), &said, "listening on")
            .join()
            .unwrap();
        assert!(said.ready.load(Ordering::Acquire));
        let lines = said.lines.lock().unwrap();
        assert_eq!((lines.len(), lines[0].as_str()), (LINES_KEPT, "line 0"));
    }

    #[test]
    fn nobody_is_ready_where_no_words_are_waited_for() {
        let said = Arc::new(Said::default());
        keep(io::Cursor::new("up"), &said, "").join().unwrap();
        assert!(!said.ready.load(Ordering::Acquire));
        assert_eq!(*said.lines.lock().unwrap(), ["up"]);
    }
}
