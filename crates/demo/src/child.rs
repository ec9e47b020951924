//! Child processes that end with us.

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Lines of a child's standard error kept for an error message.
const STDERR_LINES_KEPT: usize = 12;
/// In the line a server writes to standard error once it has its port.
const LISTENING: &str = "listening on ";
/// How often a stopping child is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Turns this process into `program arguments`, to be sent SIGTERM when `parent` dies.
///
/// A child sets this for itself because doing it between `fork` and `exec` would need unsafe code; the
/// signal survives `exec` (prctl(2), `PR_SET_PDEATHSIG`), and so does the process id. Returns only on failure.
pub fn attach(parent: u32, program: &Path, arguments: &[OsString]) -> io::Error {
    if let Err(errno) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return errno.into();
    }
    // The parent may have died before the call above; then nobody would ever send the signal.
    if getppid().map(|pid| pid.as_raw_pid()) != i32::try_from(parent).ok() {
        return io::Error::other("the demonstration that started this process is gone");
    }
    Command::new(program).args(arguments).exec()
}

/// What happens to a child's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// [`Process::take_stdout`] will be called, and read to the end.
    Read,
    /// Nobody wants it.
    Discard,
}

/// A running child. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    stderr: Arc<Mutex<VecDeque<String>>>,
    listening: Arc<AtomicBool>,
    /// Ends at the end of the child's standard error.
    stderr_reader: Option<thread::JoinHandle<()>>,
}

impl Process {
    /// Starts `program arguments` through [`attach`].
    ///
    /// In a process group of its own, so that Ctrl-C in a terminal comes to us alone and the children are
    /// stopped in order. Call from a thread that lives as long as the child: the kernel's "parent" is the thread.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        output: Output,
    ) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args([
                "demo",
                "--attached-to",
                &std::process::id().to_string(),
                "--",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(match output {
                Output::Read => Stdio::piped(),
                // A pipe nobody reads would fill up and stop the child.
                Output::Discard => Stdio::null(),
            })
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stderr = Arc::new(Mutex::new(VecDeque::with_capacity(STDERR_LINES_KEPT)));
        let pipe = child.stderr.take().expect("was asked for above");
        let kept = Arc::clone(&stderr);
        let listening = Arc::new(AtomicBool::new(false));
        let announced = Arc::clone(&listening);
        let reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if line.contains(LISTENING) {
                    announced.store(true, Ordering::Release);
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == STDERR_LINES_KEPT {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Ok(Self {
            name,
            child,
            stderr,
            listening,
            stderr_reader: Some(reader),
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has said that it has its port. Another server may answer there when it has not.
    pub(crate) fn listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// The child's standard output; once.
    pub(crate) fn take_stdout(&mut self) -> ChildStdout {
        self.child
            .stdout
            .take()
            .expect("started with Output::Read, taken once")
    }

    /// How it ended, when it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The last lines of its standard error, indented. Of an ended child: all the way to its last words.
    pub(crate) fn last_words(&mut self) -> String {
        if self.ended().is_some()
            && let Some(reader) = self.stderr_reader.take()
        {
            let _ = reader.join();
        }
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|line| format!("\n    {line}")).collect()
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait_for_end(&mut self, patience: Duration) -> Option<ExitStatus> {
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

    /// SIGTERM, patience, SIGKILL.
    pub(crate) fn stop(&mut self, patience: Duration) {
        if self.ended().is_some() {
            return;
        }
        // Not reaped yet, so the id is still the child's.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        if self.wait_for_end(patience).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    /// The way out on errors: shorter patience than the ordinary end has.
    fn drop(&mut self) {
        self.stop(Duration::from_secs(5));
    }
}
