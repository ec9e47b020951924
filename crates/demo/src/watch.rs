//! The crowd as seen from outside: takes its lines and the time, gives events.
//!
//! Pure: time is an argument, counted from the start of the crowd.

use myriad_report::{Line, Origin, Phase, PushReport};
use std::collections::BTreeMap;
use std::time::Duration;

/// Connecting may take any time, but a crowd without a new connection for this long is stuck.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);
/// The crowd gives up on a publication by itself, long before this.
const PUSH_PATIENCE: Duration = Duration::from_secs(90);

/// What has happened so far.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    phase: Phase,
    /// The most connections that were open at once. Not the last figure: closing counts down.
    pub(crate) connected: u64,
    /// When the phase "connecting" began.
    connecting_since: Duration,
    /// The time of the last progress.
    moved: Duration,
    /// From the first attempt until the crowd said it was connected.
    pub(crate) connect_time: Option<Duration>,
    /// In the order they were published.
    pub(crate) pushes: Vec<PushReport>,
    /// Failed attempts by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Warnings of the crowd about its own figures.
    pub(crate) warnings: Vec<String>,
    /// The crowd has written its last line.
    pub(crate) done: bool,
}

/// What a line means for display and measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing new to show.
    None,
    /// Perhaps more connections.
    Progressed,
    /// All that could be opened are open: the moment to measure memory.
    Connected,
    /// The measurement of a publication has ended.
    Pushed(Box<PushReport>),
}

/// No progress for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// In which phase.
    pub(crate) phase: Phase,
    /// For how long.
    pub(crate) idle: Duration,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Connecting,
            connected: 0,
            connecting_since: Duration::ZERO,
            moved: Duration::ZERO,
            connect_time: None,
            pushes: Vec::new(),
            errors: BTreeMap::new(),
            warnings: Vec::new(),
            done: false,
        }
    }

    /// Takes in one line that came at `now`.
    pub(crate) fn handle_line(&mut self, line: Line, now: Duration) -> Step {
        match line {
            Line::Phase { phase, .. } => self.enter(phase, now),
            Line::Progress(progress) => {
                self.errors = progress.errors;
                if progress.connected > self.connected {
                    self.moved = now;
                    self.connected = progress.connected;
                }
                Step::Progressed
            }
            // Somebody else found the port and publishes too; the demonstration's own three are counted.
            Line::Push(push) if push.origin == Origin::Foreign => Step::None,
            Line::Push(push) => {
                self.moved = now;
                self.pushes.push((*push).clone());
                Step::Pushed(push)
            }
            Line::Warning { message } => {
                self.warnings.push(message);
                Step::None
            }
            Line::Done { .. } => {
                self.done = true;
                Step::None
            }
            Line::Notice { .. } | Line::Unknown => Step::None,
        }
    }

    fn enter(&mut self, phase: Phase, now: Duration) -> Step {
        self.moved = now;
        self.phase = phase;
        match phase {
            Phase::Connecting => {
                self.connecting_since = now;
                Step::None
            }
            Phase::Connected => {
                self.connect_time = Some(now.saturating_sub(self.connecting_since));
                Step::Connected
            }
            Phase::Pushing | Phase::Draining | Phase::Unknown => Step::None,
        }
    }

    /// Whether to stop waiting.
    pub(crate) fn stalled(&self, now: Duration) -> Option<Stall> {
        let idle = now.saturating_sub(self.moved);
        let patience = if self.phase == Phase::Connecting {
            CONNECT_PATIENCE
        } else {
            PUSH_PATIENCE
        };
        (idle >= patience).then_some(Stall {
            phase: self.phase,
            idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::{Outcome, Progress};

    fn seconds(value: u64) -> Duration {
        Duration::from_secs(value)
    }

    fn progress(connected: u64) -> Line {
        Line::Progress(Box::new(Progress {
            connected,
            ..Progress::default()
        }))
    }

    fn phase(phase: Phase) -> Line {
        let elapsed_s = 0.0;
        Line::Phase { phase, elapsed_s }
    }

    #[test]
    fn connecting_is_timed_from_its_own_beginning() {
        let mut watch = Watch::new();
        watch.handle_line(phase(Phase::Connecting), seconds(2));
        assert_eq!(
            watch.handle_line(progress(10), seconds(5)),
            Step::Progressed
        );
        assert_eq!(
            watch.handle_line(phase(Phase::Connected), seconds(9)),
            Step::Connected
        );
        assert_eq!(watch.connect_time, Some(seconds(7)));
        assert_eq!(watch.connected, 10);
    }

    #[test]
    fn no_further_connection_for_long_is_a_stall() {
        let mut watch = Watch::new();
        watch.handle_line(progress(10), seconds(5));
        watch.handle_line(progress(10), seconds(30));
        assert_eq!(watch.stalled(seconds(34)), None);
        assert_eq!(
            watch.stalled(seconds(35)),
            Some(Stall {
                phase: Phase::Connecting,
                idle: seconds(30)
            })
        );
        watch.handle_line(progress(11), seconds(35));
        assert_eq!(watch.stalled(seconds(40)), None);
    }

    #[test]
    fn publications_have_more_patience() {
        let mut watch = Watch::new();
        watch.handle_line(phase(Phase::Pushing), seconds(10));
        assert_eq!(watch.stalled(seconds(99)), None);
        assert_eq!(
            watch.stalled(seconds(100)).map(|stall| stall.phase),
            Some(Phase::Pushing)
        );
    }

    #[test]
    fn closing_does_not_count_down() {
        let mut watch = Watch::new();
        watch.handle_line(progress(10), seconds(1));
        watch.handle_line(phase(Phase::Draining), seconds(2));
        watch.handle_line(progress(0), seconds(3));
        assert_eq!(watch.connected, 10);
    }

    #[test]
    fn the_last_word_and_the_warnings_are_kept() {
        let mut watch = Watch::new();
        watch.handle_line(
            Line::Warning {
                message: "late".into(),
            },
            seconds(1),
        );
        assert!(!watch.done);
        let done = Line::Done {
            outcome: Outcome::Finished,
            went_wrong: None,
            elapsed_s: 2.0,
        };
        watch.handle_line(done, seconds(2));
        assert!(watch.done);
        assert_eq!(watch.warnings, ["late"]);
    }
}
