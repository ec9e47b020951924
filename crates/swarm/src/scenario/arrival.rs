//! The section `arrival`: how the clients come.

use super::fault::Problem;
use super::fill::Wrong;
use super::quantity::{Count, Rate, StageSize, Time};
use crate::config::{self, ArrivalStage, Config};
use schemars::JsonSchema;
use serde::Deserialize;

/// How the clients arrive. At most one of `rate`, `ramp`, `stages` and `at-once`; without them, as fast as
/// `connecting-max` allows.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Arrival {
    /// Connections to begin each second.
    pub rate: Option<Rate>,
    /// All clients evenly over this time.
    pub ramp: Option<Time>,
    /// One stage after the other. The last one has the whole crowd.
    pub stages: Vec<Stage>,
    /// All clients at the first moment, whatever `connecting-max` says.
    pub at_once: bool,
    /// Connections being established at once.
    pub connecting_max: Option<Count>,
    /// Time a connection may take.
    pub connect_timeout: Option<Time>,
    /// Time the upgrade, or the head of a stream, may take.
    pub handshake_timeout: Option<Time>,
    /// Attempts after a failed one.
    pub retries: Option<u8>,
}

/// A part of the arrival, in which the crowd grows evenly.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Stage {
    /// How long it takes; `0s` for a jump.
    pub duration: Time,
    /// The size of the crowd at its end: a count, or a share of all clients.
    pub target: StageSize,
}

impl Arrival {
    /// Fills a run. Where the number of clients is not given, the last stage may say it.
    pub(super) fn fill(self, config: &mut Config, is_counted: bool) -> Result<(), Wrong> {
        config.arrival = self.schedule()?;
        if let Some(count) = config.arrival.count().filter(|_| !is_counted) {
            config.connections = count;
        }
        if let Some(count) = self.connecting_max {
            config.connecting_max = u32::try_from(count.0).unwrap_or(u32::MAX);
        }
        let time = |given: Option<Time>, default| given.map_or(default, |time| time.0);
        config.connect_timeout = time(self.connect_timeout, config.connect_timeout);
        config.handshake_timeout = time(self.handshake_timeout, config.handshake_timeout);
        config.retries = self.retries.unwrap_or(config.retries);
        Ok(())
    }

    fn schedule(&self) -> Result<config::Arrival, Wrong> {
        let given = [
            ("arrival.rate", self.rate.is_some()),
            ("arrival.ramp", self.ramp.is_some()),
            ("arrival.stages", !self.stages.is_empty()),
            ("arrival.at-once", self.at_once),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given);
        let first = given.next();
        if let (Some((one, _)), Some((other, _))) = (first, given.next()) {
            return Err((other, Problem::Both(one, other)));
        }
        if let Some(rate) = &self.rate {
            return Ok(config::Arrival::Rate(rate.0));
        }
        if let Some(time) = &self.ramp {
            return Ok(config::Arrival::Ramp(time.0));
        }
        if self.at_once {
            return Ok(config::Arrival::AtOnce);
        }
        if self.stages.is_empty() {
            return Ok(config::Arrival::Unpaced);
        }
        let stages = self.stages.iter().map(|stage| ArrivalStage {
            duration: stage.duration.0,
            target: stage.target.0,
        });
        Ok(config::Arrival::Stages(stages.collect()))
    }
}
