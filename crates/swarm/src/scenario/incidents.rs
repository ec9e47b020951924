//! The sections about clients that drop, stall or vanish, and how they come back: `storm`, `stall`, `vanish` and `reconnect`.

use super::format::Close;
use super::quantity::{Share, StageSize, Time, TimeRange};
use crate::config::{Config, CrowdSize, Incident, What};
use crate::engine::shared::Ending;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// How clients come back whose connection a storm dropped, or the server ended. Before each attempt a client waits for a random
/// time between zero and a limit, which doubles with each failure.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Reconnect {
    /// The first limit and the largest, such as `500ms..20s`.
    pub backoff: Option<TimeRange>,
    /// Attempts before a client gives up. Without it, it never does.
    pub attempts: Option<u32>,
    /// Ask for what was missed, where the protocol has that. Without it, yes.
    #[serde(default = "yes")]
    pub recover: bool,
    /// Clients that the server ended come back too, and not those of storms alone. Without it, yes.
    #[serde(default = "yes")]
    pub lost: bool,
    /// An attempt that fails is followed by one at any other target, as clients of a cluster do. Without it, no.
    #[serde(default)]
    pub elsewhere: bool,
}

fn yes() -> bool {
    true
}

/// A share of the crowd drops its connections at once, and comes back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Storm {
    /// When, from the end of connecting.
    pub at: Time,
    /// Of all clients.
    pub share: Share,
    /// How: by RST, or by FIN without a close frame. Without it, as `terminals.close` says.
    pub close: Option<Close>,
}

/// Clients stop reading and sending, so that their server has to do something about slow ones.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Stall {
    /// How many: a share of all clients, or a count.
    pub share: StageSize,
    /// When, from the end of connecting. Without it, at once.
    pub after: Option<Time>,
    /// How long. Without it, until the end of the run.
    #[serde(rename = "for")]
    pub lasts: Option<Time>,
}

/// Clients are gone without a word, as if their machines had lost power.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Vanish {
    /// How many: a share of all clients, or a count.
    pub share: StageSize,
    /// When, from the end of connecting. Without it, at once.
    pub after: Option<Time>,
}

/// What happens to clients while the crowd is held.
#[derive(Debug)]
pub(super) struct Incidents {
    pub storms: Vec<Storm>,
    pub stall: Option<Stall>,
    pub vanish: Option<Vanish>,
}

pub(super) fn fill(config: &mut Config, reconnect: Option<Reconnect>, incidents: Incidents) {
    let Incidents {
        storms,
        stall,
        vanish,
    } = incidents;
    if let Some(reconnect) = reconnect {
        let comeback = &mut config.comeback;
        comeback.backoff = reconnect.backoff.map_or(comeback.backoff, |range| range.0);
        comeback.attempts = reconnect.attempts;
        comeback.recovers = reconnect.recover;
        comeback.when_lost = reconnect.lost;
        comeback.elsewhere = reconnect.elsewhere;
    }
    config
        .incidents
        .extend(storms.into_iter().map(|storm| Incident {
            at: storm.at.0,
            size: CrowdSize::Share(storm.share.0),
            what: What::Storm(storm.close.map(|close| match close {
                Close::Reset => Ending::Reset,
                Close::Orderly => Ending::Orderly,
            })),
        }));
    let at = |after: Option<Time>| after.map_or(Duration::ZERO, |time| time.0);
    config.incidents.extend(stall.map(|stall| Incident {
        at: at(stall.after),
        size: stall.share.0,
        what: What::Stall(stall.lasts.map(|time| time.0)),
    }));
    config.incidents.extend(vanish.map(|vanish| Incident {
        at: at(vanish.after),
        size: vanish.share.0,
        what: What::Vanish,
    }));
}
