//! Figures of clients that stall or vanish, for thresholds.

use crate::measure::figures::float;
use crate::measure::threshold::LoadOption;
use myriad_report::{Report, StallReport, Unit, VanishReport};

/// A figure of clients that stall or vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnwellMetric {
    /// Clients that stalled.
    Stalled,
    /// Of them, those that read again.
    StallResumed,
    /// Connections of theirs that ended.
    StallEnded,
    /// Of these, those that ended with a close frame.
    StallClosed,
    /// Of these, those that ended with a reset.
    StallReset,
    /// Time until half of these had ended.
    StallP50,
    /// The same for the slowest.
    StallSlowest,
    /// Deliveries that never came to those that stalled.
    StallMissing,
    /// Clients that vanished.
    Vanished,
    /// Of them, those that the server found out about: by its own count where it is asked, or else those whose end was seen.
    VanishNoticed,
    /// Of them, the others.
    VanishUnnoticed,
    /// Time until the end of half of those whose end was seen.
    VanishP50,
    /// The same for the slowest.
    VanishSlowest,
    /// Time until the server counted none of them.
    VanishAll,
}

impl UnwellMetric {
    /// By name.
    pub(super) const ALL: [(&'static str, Self); 14] = [
        ("stall:stalled", Self::Stalled),
        ("stall:resumed", Self::StallResumed),
        ("stall:ended", Self::StallEnded),
        ("stall:closed", Self::StallClosed),
        ("stall:reset", Self::StallReset),
        ("stall:p50", Self::StallP50),
        ("stall:slowest", Self::StallSlowest),
        ("stall:missing", Self::StallMissing),
        ("vanish:vanished", Self::Vanished),
        ("vanish:noticed", Self::VanishNoticed),
        ("vanish:unnoticed", Self::VanishUnnoticed),
        ("vanish:p50", Self::VanishP50),
        ("vanish:slowest", Self::VanishSlowest),
        ("vanish:all", Self::VanishAll),
    ];

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::StallP50
            | Self::StallSlowest
            | Self::VanishP50
            | Self::VanishSlowest
            | Self::VanishAll => Unit::Milliseconds,
            _ => Unit::Count,
        }
    }

    /// The option without which this is never measured.
    pub(super) fn load(self) -> LoadOption {
        match self {
            Self::Stalled
            | Self::StallResumed
            | Self::StallEnded
            | Self::StallClosed
            | Self::StallReset
            | Self::StallP50
            | Self::StallSlowest
            | Self::StallMissing => LoadOption::Stall,
            Self::VanishAll => LoadOption::VanishByServer,
            Self::Vanished
            | Self::VanishNoticed
            | Self::VanishUnnoticed
            | Self::VanishP50
            | Self::VanishSlowest => LoadOption::Vanish,
        }
    }

    /// Whether a figure of a run under way may get better again.
    pub(super) fn is_provisional(self) -> bool {
        matches!(
            self,
            Self::StallMissing | Self::VanishUnnoticed | Self::VanishAll
        )
    }

    /// The figure in a report; none when it was never measured.
    pub(super) fn of(self, report: &Report) -> Option<f64> {
        match self.load() {
            LoadOption::Stall => self.of_stall(report.stall.as_ref()?),
            _ => self.of_vanish(report.vanish.as_ref()?),
        }
    }

    fn of_stall(self, stall: &StallReport) -> Option<f64> {
        let closed = stall.ends.iter();
        let closed = closed.filter(|(end, _)| end.starts_with("close_"));
        match self {
            Self::StallP50 => stall.ended_p50_ms,
            Self::StallSlowest => stall.ended_slowest_ms,
            Self::Stalled => Some(float(stall.stalled)),
            Self::StallResumed => Some(float(stall.resumed)),
            Self::StallEnded => Some(float(stall.ended)),
            Self::StallClosed => Some(float(closed.map(|(_, count)| count).sum())),
            Self::StallReset => Some(float(stall.ends.get("reset").copied().unwrap_or(0))),
            _ => Some(float(stall.missing)),
        }
    }

    fn of_vanish(self, vanish: &VanishReport) -> Option<f64> {
        let unseen = vanish.vanished.saturating_sub(vanish.ends_seen);
        let unnoticed = vanish.held_by_server.unwrap_or(unseen);
        match self {
            Self::VanishP50 => vanish.ends_p50_ms,
            Self::VanishSlowest => vanish.ends_slowest_ms,
            Self::VanishAll => vanish.all_noticed_ms,
            Self::Vanished => Some(float(vanish.vanished)),
            Self::VanishNoticed => Some(float(vanish.vanished.saturating_sub(unnoticed))),
            _ => Some(float(unnoticed)),
        }
    }
}
