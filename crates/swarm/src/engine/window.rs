//! How many connections may be under way at once: fewer while handshakes time out, more again while they succeed.
//!
//! A server that is slower than the crowd answers no handshake in time if all ask at once. So the window halves when a
//! handshake times out, and grows by an eighth each time as many attempts succeed as it holds. Attempts that began
//! before the window last shrank do not count, so one burst of timeouts halves it once.
//!
//! A server that never upgraded anybody is not slow, and fewer handshakes at once would only make the crowd wait longer
//! to say so. So the window opens to its ceiling again when it has halved some times without a first success.

use crate::clock::Nanos;
use std::time::Duration;

/// The window never shrinks below this, unless its ceiling is lower.
pub(crate) const FLOOR: u32 = 16;

/// Halvings before the first success. After them a server counts as silent, and the window opens.
const HALVINGS_MAX: u8 = 3;

/// The window of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    ceiling: u32,
    size: u32,
    /// The smallest size so far.
    least: u32,
    /// Attempts that succeeded since the size last changed.
    succeeded: u32,
    shrunk_at: Option<Nanos>,
    /// Halvings that the server may still cause without a success; `None` once it has upgraded somebody.
    patience: Option<u8>,
}

impl Window {
    /// A window that is as large as it may become.
    pub(crate) fn new(ceiling: u32) -> Self {
        Self {
            ceiling,
            size: ceiling,
            least: ceiling,
            succeeded: 0,
            shrunk_at: None,
            patience: Some(HALVINGS_MAX),
        }
    }

    /// Connections that may be under way now.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// The smallest that the size has been.
    pub(crate) fn least(&self) -> u32 {
        self.least
    }

    /// Notes that an attempt was upgraded.
    pub(crate) fn note_success(&mut self) {
        self.succeeded += 1;
        self.patience = None;
        if self.succeeded >= self.size {
            self.succeeded = 0;
            self.size = (self.size + (self.size / 8).max(1)).min(self.ceiling);
        }
    }

    /// Notes that a handshake which began `age` ago timed out.
    pub(crate) fn note_timeout(&mut self, now: Nanos, age: Duration) {
        if self.shrunk_at.is_some_and(|at| now.since(at) <= age) {
            return;
        }
        self.shrunk_at = Some(now);
        self.succeeded = 0;
        if self.patience == Some(0) {
            self.size = self.ceiling;
            return;
        }
        self.patience = self.patience.map(|halvings| halvings - 1);
        self.size = (self.size / 2).max(FLOOR.min(self.ceiling));
        self.least = self.least.min(self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    const AGE: Duration = Duration::from_secs(1);

    #[test]
    fn one_burst_of_timeouts_halves_it_once() {
        let mut window = Window::new(1000);
        for millis in 0..100 {
            window.note_timeout(at(5_000 + millis), AGE);
        }
        assert_eq!(window.size(), 500);
        window.note_timeout(at(6_001), AGE);
        assert_eq!((window.size(), window.least()), (250, 250));
    }

    #[test]
    fn a_server_that_upgrades_nobody_has_the_whole_window_again() {
        let mut window = Window::new(1000);
        let sizes = [500, 250, 125, 1000, 1000];
        for (burst, size) in (1..).zip(sizes) {
            window.note_timeout(at(burst * 5_000), AGE);
            assert_eq!(window.size(), size, "burst {burst}");
        }
        window.note_success();
        for (burst, size) in (11..).zip([500, 250, 125, 62, 31]) {
            window.note_timeout(at(burst * 5_000), AGE);
            assert_eq!(window.size(), size, "slow, and not silent");
        }
    }

    #[test]
    fn it_grows_back_to_its_ceiling_and_not_beyond() {
        let mut window = Window::new(1000);
        window.note_timeout(at(5_000), AGE);
        (0..500).for_each(|_| window.note_success());
        assert_eq!(window.size(), 562);
        (0..100_000).for_each(|_| window.note_success());
        assert_eq!((window.size(), window.least()), (1000, 500));
    }

    /// Whatever happens, in any order: it stays between its floor and its ceiling, and successes alone bring it back.
    #[test]
    fn it_stays_within_its_bounds() {
        let mut random = crate::random::Random::new(7);
        for _ in 0..200 {
            let ceiling = u32::from(random.mask()[0]) * 9 + 1;
            let mut window = Window::new(ceiling);
            let mut now = 0;
            for _ in 0..300 {
                let [kind, time, ..] = random.mask();
                now += u64::from(time) * 20;
                if kind < 128 {
                    (0..kind).for_each(|_| window.note_success());
                } else {
                    window.note_timeout(at(now), AGE);
                }
                assert!((FLOOR.min(ceiling)..=ceiling).contains(&window.size()));
                assert!(window.least() <= window.size());
            }
            (0..60 * ceiling).for_each(|_| window.note_success());
            assert_eq!(window.size(), ceiling);
        }
    }
}
