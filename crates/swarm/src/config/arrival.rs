//! How the clients of a crowd arrive: as fast as a server takes them, evenly, in stages, or all at the first moment.

use crate::config_error::ConfigError;
use crate::engine::ramp::Knot;
use myriad_units::parse;
use std::fmt;
use std::time::Duration;

/// How clients arrive. None of these makes a client wait for another one, but the window of connections under way.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Arrival {
    /// As fast as the window allows.
    #[default]
    Unpaced,
    /// So many a second.
    Rate(f64),
    /// All of them evenly over this time.
    Ramp(Duration),
    /// One stage after the other.
    Stages(Vec<ArrivalStage>),
    /// All at the first moment, and no window holds them up.
    AtOnce,
}

/// A part of the arrival, in which the crowd grows evenly. It does not shrink.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalStage {
    /// Zero for a jump.
    pub duration: Duration,
    /// The size of the crowd at its end.
    pub target: CrowdSize,
}

/// A size of the crowd.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrowdSize {
    /// Clients.
    Count(u64),
    /// A share of all clients, between 0 and 1.
    Share(f64),
}

impl ArrivalStage {
    /// Reads a stage as k6 writes it: `30s:10k`, or `30s:50%`.
    ///
    /// # Errors
    /// The time or the size cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (duration, target) = text
            .split_once(':')
            .ok_or_else(|| "a stage has the form TIME:TARGET, such as 30s:10k".to_owned())?;
        Ok(Self {
            duration: parse::duration(duration).map_err(|error| error.to_string())?,
            target: CrowdSize::parse(target)?,
        })
    }
}

impl CrowdSize {
    /// Reads a count or a share.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let said = if text.trim_end().ends_with('%') {
            parse::share(text).map(Self::Share)
        } else {
            parse::count(text).map(Self::Count)
        };
        said.map_err(|error| error.to_string())
    }

    /// So many of a crowd.
    pub(crate) fn of(self, connections: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "clients are at most 2^31")]
        match self {
            Self::Count(count) => count as f64,
            Self::Share(share) => share * connections as f64,
        }
    }
}

impl fmt::Display for CrowdSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

impl Arrival {
    /// The clients that its last stage asks for, where that is a count.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Stages(stages) => match stages.last()?.target {
                CrowdSize::Count(count) => Some(count),
                CrowdSize::Share(_) => None,
            },
            _ => None,
        }
    }

    /// Connections to begin each second, where that is one figure.
    pub(crate) fn rate_per_s(&self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(*rate),
            _ => None,
        }
    }

    pub(crate) fn check(&self, connections: u64) -> Result<(), ConfigError> {
        match self {
            Self::Ramp(time) if time.is_zero() => Err(ConfigError::Zero("--ramp")),
            Self::Stages(stages) => check_stages(stages, connections),
            _ => Ok(()),
        }
    }

    /// The growth of the whole crowd; none where it has no schedule, or an even one.
    pub(crate) fn curve(&self, connections: u64) -> Option<Vec<Knot>> {
        let begin = Knot {
            at: Duration::ZERO,
            count: 0.0,
        };
        let whole = CrowdSize::Share(1.0).of(connections);
        let mut knots = vec![begin];
        match self {
            Self::Unpaced | Self::Rate(_) | Self::AtOnce => return None,
            Self::Ramp(time) => knots.push(Knot {
                at: *time,
                count: whole,
            }),
            Self::Stages(stages) => {
                let mut at = Duration::ZERO;
                knots.extend(stages.iter().map(|stage| {
                    at = at.saturating_add(stage.duration);
                    let count = stage.target.of(connections);
                    Knot { at, count }
                }));
            }
        }
        Some(knots)
    }

    /// In words, for the report; none where `connect_rate_per_s` says it all.
    pub(crate) fn describe(&self) -> Option<String> {
        match self {
            Self::Unpaced | Self::Rate(_) => None,
            Self::Ramp(time) => Some(format!("evenly over {time:?}")),
            Self::AtOnce => Some("at once".to_owned()),
            Self::Stages(stages) => {
                let stages = stages.iter().map(|stage| {
                    let ArrivalStage { duration, target } = stage;
                    format!("{duration:?} to {target}")
                });
                Some(stages.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn check_stages(stages: &[ArrivalStage], connections: u64) -> Result<(), ConfigError> {
    let mut size = 0.0;
    for stage in stages {
        let next = stage.target.of(connections);
        if next < size {
            return Err(ConfigError::StageFalls(stage.target.to_string()));
        }
        size = next;
    }
    // Less than one client is a share that was written with too few digits.
    let whole = CrowdSize::Share(1.0).of(connections);
    if (size - whole).abs() < 1.0 {
        return Ok(());
    }
    let last = stages.last().map(|last| last.target.to_string());
    Err(ConfigError::StageTarget {
        target: last.unwrap_or_else(|| "nothing".to_owned()),
        connections,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(texts: &[&str]) -> Arrival {
        let stages = texts.iter().map(|text| ArrivalStage::parse(text).unwrap());
        Arrival::Stages(stages.collect())
    }

    #[test]
    fn a_stage_has_a_time_and_a_size() {
        let stage = ArrivalStage::parse("30s:10k").unwrap();
        assert_eq!(stage.duration, Duration::from_secs(30));
        assert_eq!(stage.target, CrowdSize::Count(10_000));
        let half = ArrivalStage::parse("0s:50%").unwrap();
        assert_eq!(half.target, CrowdSize::Share(0.5));
        for text in ["30s", "30:10", "1s:", "1s:-5", "1s:120%"] {
            ArrivalStage::parse(text).unwrap_err();
        }
    }

    #[test]
    fn the_last_stage_says_how_many_there_are() {
        assert_eq!(stages(&["1s:10", "1s:20"]).count(), Some(20));
        assert_eq!(stages(&["1s:10", "1s:100%"]).count(), None);
        assert_eq!(Arrival::Rate(5.0).count(), None);
        assert_eq!(stages(&["1s:10", "5s:10", "1s:20"]).check(20), Ok(()));
        assert_eq!(stages(&["1s:33%", "1s:100%"]).check(7), Ok(()));
    }

    #[test]
    fn stages_that_cannot_be_are_refused() {
        assert_eq!(
            stages(&["1s:20", "1s:10"]).check(10),
            Err(ConfigError::StageFalls("10".to_owned()))
        );
        let refused = |arrival: Arrival| match arrival.check(30) {
            Err(ConfigError::StageTarget { target, .. }) => target,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(stages(&["1s:10", "1s:20"])), "20");
        assert_eq!(refused(stages(&["1s:50%"])), "50%");
        assert_eq!(refused(Arrival::Stages(Vec::new())), "nothing");
        let zero = Arrival::Ramp(Duration::ZERO).check(30);
        assert_eq!(zero, Err(ConfigError::Zero("--ramp")));
    }
}
