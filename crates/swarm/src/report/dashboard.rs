//! The live dashboard: a picture of the run in the terminal, drawn twice a second by a thread of its own.
//!
//! The run only leaves its figures here. A terminal that takes nothing, because somebody pressed Ctrl-S or the line is slow, holds up
//! the drawing and nothing else.

mod screen;
mod view;

pub(crate) use screen::{is_usable, restore};

use myriad_report::{Line, Phase, Progress, Sample};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is drawn.
const INTERVAL: Duration = Duration::from_millis(500);

/// Seconds of the run that are shown.
const SAMPLES_MAX: usize = 240;

/// Lines of events that are kept.
const EVENTS_MAX: usize = 50;

/// How long the end waits for a terminal that takes nothing.
const END_MAX: Duration = Duration::from_secs(1);

/// What is shown.
#[derive(Clone, Debug, Default)]
struct Board {
    /// What the run is about, in a line.
    title: String,
    phase: Option<Phase>,
    progress: Progress,
    samples: VecDeque<Sample>,
    /// The newest last.
    events: VecDeque<String>,
}

impl Board {
    fn note(&mut self, line: String) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(line);
    }
}

#[derive(Debug, Default)]
struct State {
    board: Board,
    has_ended: bool,
    is_through: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A dashboard that is shown.
#[derive(Debug)]
pub(crate) struct Dashboard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Dashboard {
    /// Takes the terminal of standard error.
    ///
    /// # Errors
    /// It does not do what it is told, or the thread cannot be started.
    pub(crate) fn start(title: String) -> io::Result<Self> {
        screen::take()?;
        let shared = Arc::new(Shared::default());
        shared.state().board.title = title;
        let drawn = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("dashboard".to_owned())
            .spawn(move || draw_until_end(&drawn));
        match thread {
            Ok(thread) => Ok(Self {
                shared,
                thread: Some(thread),
            }),
            Err(error) => {
                screen::restore();
                Err(error)
            }
        }
    }

    /// Shows an event; `text` is what it is in words, if it has any.
    pub(crate) fn show(&self, event: &Line, text: Option<String>) {
        let board = &mut self.shared.state().board;
        match event {
            Line::Progress(progress) => board.progress = (**progress).clone(),
            Line::Phase { phase, .. } => board.phase = Some(*phase),
            _ => text.into_iter().for_each(|text| board.note(text)),
        }
    }

    /// Adds a second of the run.
    pub(crate) fn sample(&self, sample: &Sample) {
        let samples = &mut self.shared.state().board.samples;
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample.clone());
    }

    /// Gives the terminal back.
    pub(crate) fn end(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        let mut state = self.shared.state();
        state.has_ended = true;
        self.shared.changed.notify_all();
        let deadline = Instant::now() + END_MAX;
        while !state.is_through && Instant::now() < deadline {
            let waited = self.shared.changed.wait_timeout(state, INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_through = state.is_through;
        drop(state);
        if is_through {
            // Its panic has been told already.
            let _ = thread.join();
        }
        screen::restore();
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.end();
    }
}

fn draw_until_end(shared: &Shared) {
    if let Ok(mut terminal) = Terminal::new(CrosstermBackend::new(io::stderr())) {
        loop {
            let state = shared.state();
            if state.has_ended {
                break;
            }
            let board = state.board.clone();
            drop(state);
            let drawn =
                screen::while_taken(|| terminal.draw(|frame| view::draw(frame, &board)).map(drop));
            // A terminal that has gone is nobody's loss.
            if drawn.is_none_or(|drawn| drawn.is_err()) {
                break;
            }
            let state = shared.state();
            if state.has_ended {
                break;
            }
            let waited = shared.changed.wait_timeout(state, INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
    // Also for an end that did not wait for a terminal that took nothing.
    screen::restore();
    shared.state().is_through = true;
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::fs::File;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    const MESSAGE: &str = "a thread that panics beside a dashboard";

    #[test]
    #[ignore = "the next test runs it in a process of its own, on a terminal"]
    fn panics_beside_a_dashboard() {
        let _dashboard = Dashboard::start("x".to_owned()).unwrap();
        panic!("{MESSAGE}");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options()
            .read(true)
            .write(true)
            .open(path.to_str().unwrap())
            .unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "report::dashboard::tests::panics_beside_a_dashboard",
            ])
            .args(["--ignored", "--nocapture"])
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(slave)
            .spawn()
            .unwrap();
        let (mut shown, mut terminal) = (Vec::new(), File::from(master));
        let mut part = [0; 4096];
        // The last one to close the other side ends it with an error.
        while let Ok(count @ 1..) = terminal.read(&mut part) {
            shown.extend_from_slice(&part[..count]);
        }
        assert!(!child.wait().unwrap().success());
        let shown = String::from_utf8_lossy(&shown);
        let at = |text: &str| {
            shown
                .find(text)
                .unwrap_or_else(|| panic!("{text:?} in {shown:?}"))
        };
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l"));
        assert!(at("\x1b[?1049l") < at(MESSAGE));
    }
}
