//! The terminal while the dashboard has it, and how it gets it back: at the end, at a second Ctrl-C, and when a thread panics.
//!
//! Keys are not read, so that Ctrl-C stays a signal. They are not shown either, and those that were pressed are thrown away. Ctrl-Z is
//! off: a shell in the alternate screen is no help.

use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, size};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr,
};
use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The least that a dashboard fits into: columns and rows.
const LEAST: (u16, u16) = (60, 16);

/// How the terminal was; none while nobody has taken it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

static HOOK: Once = Once::new();

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether standard error is a terminal that a dashboard can be drawn on.
pub(crate) fn is_usable() -> bool {
    let out = io::stderr();
    let is_plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // To set a terminal from the background would stop the process.
    let is_in_front = || tcgetpgrp(&out).is_ok_and(|group| group == rustix::process::getpgrp());
    let fits = || size().is_ok_and(|(columns, rows)| columns >= LEAST.0 && rows >= LEAST.1);
    out.is_terminal() && !is_plain && is_in_front() && fits()
}

/// Takes the terminal.
pub(super) fn take() -> io::Result<()> {
    HOOK.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // First, so that the message stays on the screen.
            restore();
            told(panic);
        }));
    });
    let mut before = before();
    let old = tcgetattr(io::stderr())?;
    let mut modes = old.clone();
    modes.local_modes.remove(LocalModes::ECHO);
    modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
    tcsetattr(io::stderr(), OptionalActions::Now, &modes)?;
    *before = Some(old);
    execute!(io::stderr(), EnterAlternateScreen, Hide)
}

/// Does something to the screen if it is still taken: whoever gives it back waits for that, and nothing is drawn behind them.
pub(super) fn while_taken<T>(draw: impl FnOnce() -> T) -> Option<T> {
    let before = before();
    before.is_some().then(draw)
}

/// Gives the terminal back, if somebody has it. A drawing that the terminal does not take is not waited for.
pub(crate) fn restore() {
    let old = match BEFORE.try_lock() {
        Ok(mut before) => before.take(),
        Err(_) => wait_a_little().and_then(|mut before| before.take()),
    };
    let Some(old) = old else { return };
    // What cannot be given back has gone.
    let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
    let _ = tcflush(io::stderr(), QueueSelector::IFlush);
    let _ = tcsetattr(io::stderr(), OptionalActions::Now, &old);
}

/// A drawing takes a millisecond; one that takes more than a second is stuck.
fn wait_a_little() -> Option<MutexGuard<'static, Option<Termios>>> {
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        match BEFORE.try_lock() {
            Ok(before) => return Some(before),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => {}
        }
    }
    None
}
