//! What becomes of clients while the crowd is held: connections that drop, and how their clients come back.

use super::arrival::CrowdSize;
use crate::config_error::ConfigError;
use crate::engine::shared::Ending;
use myriad_units::parse;
use std::time::Duration;

/// Shortest and longest wait before a client comes back, as the SDKs of the Centrifuge protocol have them.
const BACKOFF_DEFAULT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(20));

/// How clients come back.
///
/// Before each attempt a client waits for a random time between zero and a limit (full jitter). The limit doubles with
/// each attempt that failed, from the first of these times up to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comeback {
    /// The first limit, and the largest.
    pub backoff: (Duration, Duration),
    /// Attempts before a client gives up; none: it never does.
    pub attempts: Option<u32>,
    /// Clients ask for what they missed, where the protocol has that.
    pub recovers: bool,
    /// Clients whose connection the server or the network ended come back too, and not those alone that a storm dropped.
    pub when_lost: bool,
    /// An attempt that fails is followed by one at any other target: the targets are nodes of one cluster.
    pub elsewhere: bool,
}

impl Default for Comeback {
    fn default() -> Self {
        Self {
            backoff: BACKOFF_DEFAULT,
            attempts: None,
            recovers: true,
            when_lost: false,
            elsewhere: false,
        }
    }
}

/// Something that happens to a share of the crowd at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incident {
    /// From the end of connecting.
    pub at: Duration,
    /// How many clients: more than none, and at most all.
    pub size: CrowdSize,
    /// What happens to them.
    pub what: What,
}

/// What happens to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// They drop their connection in this way, all at once, and come back. None: as clients leave.
    Storm(Option<Ending>),
    /// They neither read nor send, for so long. None: until the end of the run.
    Stall(Option<Duration>),
    /// They are gone without a word: nothing of the server reaches them, and nobody answers.
    Vanish,
}

impl What {
    /// The option of the command line.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Storm(_) => "--storm",
            Self::Stall(_) => "--stall",
            Self::Vanish => "--vanish",
        }
    }

    /// Whether connections drop.
    pub(crate) fn is_storm(self) -> bool {
        matches!(self, Self::Storm(_))
    }

    /// Whether the connection stays, and its client does not behave.
    pub(crate) fn is_unwell(self) -> bool {
        matches!(self, Self::Stall(_) | Self::Vanish)
    }
}

impl Incident {
    /// Reads a storm: `50%@10s`.
    ///
    /// # Errors
    /// The share or the time cannot be read.
    pub fn storm(text: &str) -> Result<Self, String> {
        let (share, at) = text
            .split_once('@')
            .ok_or_else(|| "a share and a time are wanted, such as 50%@10s".to_owned())?;
        let share = parse::share(share).map_err(|error| error.to_string())?;
        Ok(Self {
            at: time(at)?,
            size: CrowdSize::Share(share),
            what: What::Storm(None),
        })
    }

    /// Reads who stalls and when: `1%@10s..40s`, `100@10s` without an end, or `1%` at once.
    ///
    /// # Errors
    /// The share, the count or a time cannot be read, or it ends before it begins.
    pub fn stall(text: &str) -> Result<Self, String> {
        let (size, times) = size_at(text)?;
        let (at, until) = match times.split_once("..") {
            None => (time(times)?, None),
            Some((at, until)) => (time(at)?, Some(time(until)?)),
        };
        let lasts = match until {
            Some(until) if until <= at => {
                return Err("it ends before it begins; write it as in 1%@10s..40s".to_owned());
            }
            until => until.map(|until| until - at),
        };
        let what = What::Stall(lasts);
        Ok(Self { at, size, what })
    }

    /// Reads who vanishes and when: `1%@10s`, `100@10s`, or `1%` at once.
    ///
    /// # Errors
    /// The share, the count or the time cannot be read.
    pub fn vanish(text: &str) -> Result<Self, String> {
        let (size, at) = size_at(text)?;
        let at = time(at)?;
        let what = What::Vanish;
        Ok(Self { at, size, what })
    }
}

/// The size of `SIZE@TIME`, and the time. Without one it is the end of connecting.
fn size_at(text: &str) -> Result<(CrowdSize, &str), String> {
    let (size, time) = text.split_once('@').unwrap_or((text, "0s"));
    Ok((CrowdSize::parse(size)?, time))
}

fn time(text: &str) -> Result<Duration, String> {
    parse::duration(text).map_err(|error| error.to_string())
}

/// Checks incidents of a crowd of so many that is held for so long; none: until its pushes are over.
pub(crate) fn check(
    incidents: &[Incident],
    connections: u64,
    held_for: Option<Duration>,
) -> Result<(), ConfigError> {
    let whole = CrowdSize::Count(connections).of(connections);
    for incident in incidents {
        let option = incident.what.option();
        let size = incident.size.of(connections);
        if !(size > 0.0 && size <= whole) {
            return Err(ConfigError::IncidentSize {
                option,
                size: incident.size.to_string(),
            });
        }
        match held_for {
            None => return Err(ConfigError::IncidentUntimed(option)),
            Some(duration) if incident.at >= duration => {
                return Err(ConfigError::IncidentLate {
                    option,
                    at: incident.at,
                    duration,
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Comeback {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (first, most) = self.backoff;
        if first.is_zero() || first > most {
            return Err(ConfigError::Backoff(first, most));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_a_share_and_a_time() {
        let storm = Incident::storm("50%@10s").unwrap();
        let half = CrowdSize::Share(0.5);
        assert_eq!((storm.at, storm.size), (Duration::from_secs(10), half));
        for text in ["50%", "50@10s", "50%@10", "@10s"] {
            Incident::storm(text).unwrap_err();
        }
    }

    #[test]
    fn who_stalls_or_vanishes_is_a_share_or_a_count_with_times() {
        let seconds = Duration::from_secs;
        let stall = Incident::stall("1%@10s..40s").unwrap();
        assert_eq!(
            (stall.at, stall.size),
            (seconds(10), CrowdSize::Share(0.01))
        );
        assert_eq!(stall.what, What::Stall(Some(seconds(30))));
        let stall = Incident::stall("2k@5s").unwrap();
        assert_eq!((stall.at, stall.size), (seconds(5), CrowdSize::Count(2000)));
        assert_eq!(stall.what, What::Stall(None));
        let vanish = Incident::vanish("5%").unwrap();
        assert_eq!((vanish.at, vanish.what), (Duration::ZERO, What::Vanish));
        for text in ["", "1%@", "1%@10s..10s", "1%@10s..", "x@10s", "101%"] {
            Incident::stall(text).unwrap_err();
        }
        Incident::vanish("1%@10s..20s").unwrap_err();
    }

    #[test]
    fn what_never_happens_is_refused() {
        let storm = |text| [Incident::storm(text).unwrap()];
        let minute = Some(Duration::from_mins(1));
        assert_eq!(check(&storm("100%@0s"), 100, minute), Ok(()));
        let late = check(&storm("10%@60s"), 100, minute).unwrap_err();
        assert!(late.to_string().contains("--duration"), "{late}");
        let untimed = ConfigError::IncidentUntimed("--storm");
        assert_eq!(check(&storm("10%@5s"), 100, None), Err(untimed));
        let refused = |option, size: &str| {
            let size = size.to_owned();
            Err(ConfigError::IncidentSize { option, size })
        };
        assert_eq!(
            check(&storm("0%@5s"), 100, minute),
            refused("--storm", "0%")
        );
        let stall = [Incident::stall("101@5s").unwrap()];
        assert_eq!(check(&stall, 100, minute), refused("--stall", "101"));
        assert_eq!(check(&stall, 101, minute), Ok(()));
    }

    #[test]
    fn the_waits_of_clients_have_an_order() {
        assert_eq!(Comeback::default().check(), Ok(()));
        let second = Duration::from_secs(1);
        for backoff in [(Duration::ZERO, second), (second * 2, second)] {
            let comeback = Comeback {
                backoff,
                ..Comeback::default()
            };
            let (first, most) = backoff;
            assert_eq!(comeback.check(), Err(ConfigError::Backoff(first, most)));
        }
    }
}
