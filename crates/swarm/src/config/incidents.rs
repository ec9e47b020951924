//! What becomes of clients while the crowd is held: connections that drop, and how their clients come back.

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
}

impl Default for Comeback {
    fn default() -> Self {
        Self {
            backoff: BACKOFF_DEFAULT,
            attempts: None,
            recovers: true,
            when_lost: false,
        }
    }
}

/// Something that happens to a share of the crowd at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Incident {
    /// From the end of connecting.
    pub at: Duration,
    /// Of all clients, more than 0 and at most 1.
    pub share: f64,
    /// What happens to them.
    pub what: What,
}

/// What happens to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// They drop their connection in this way, all at once, and come back. None: as clients leave.
    Storm(Option<Ending>),
}

impl What {
    /// The option of the command line.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Storm(_) => "--storm",
        }
    }
}

impl Incident {
    /// Reads a storm: `50%@10s`.
    ///
    /// # Errors
    /// The share or the time cannot be read.
    pub fn storm(text: &str) -> Result<Self, String> {
        let (share, at) = share_at(text)?;
        let at = time(at)?;
        let what = What::Storm(None);
        Ok(Self { at, share, what })
    }
}

/// The share of `SHARE@REST`, and the rest.
fn share_at(text: &str) -> Result<(f64, &str), String> {
    let (share, rest) = text
        .split_once('@')
        .ok_or_else(|| "a share and a time are wanted, such as 50%@10s".to_owned())?;
    let share = parse::share(share).map_err(|error| error.to_string())?;
    Ok((share, rest))
}

fn time(text: &str) -> Result<Duration, String> {
    parse::duration(text).map_err(|error| error.to_string())
}

/// Checks incidents of a run that is held for so long; none: until its pushes are over.
pub(crate) fn check(incidents: &[Incident], held_for: Option<Duration>) -> Result<(), ConfigError> {
    for incident in incidents {
        let option = incident.what.option();
        if !(incident.share > 0.0 && incident.share <= 1.0) {
            return Err(ConfigError::IncidentShare {
                option,
                share: incident.share,
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
        assert_eq!((storm.at, storm.share), (Duration::from_secs(10), 0.5));
        for text in ["50%", "50@10s", "50%@10", "@10s"] {
            Incident::storm(text).unwrap_err();
        }
    }

    #[test]
    fn what_never_happens_is_refused() {
        let storm = |text| [Incident::storm(text).unwrap()];
        let minute = Some(Duration::from_mins(1));
        assert_eq!(check(&storm("100%@0s"), minute), Ok(()));
        let late = check(&storm("10%@60s"), minute).unwrap_err();
        assert!(late.to_string().contains("--duration"), "{late}");
        let untimed = ConfigError::IncidentUntimed("--storm");
        assert_eq!(check(&storm("10%@5s"), None), Err(untimed));
        let nobody = ConfigError::IncidentShare {
            option: "--storm",
            share: 0.0,
        };
        assert_eq!(check(&storm("0%@5s"), minute), Err(nobody));
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
