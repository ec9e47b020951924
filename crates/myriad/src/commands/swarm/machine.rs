//! What a run of a scenario may be told beside its file: its duration, this machine, and changes of keys.

use super::values::DriverName;
use clap::Args;
use myriad_swarm::{Config, SourceChoice, SourceRanges};
use myriad_units::parse::duration;
use std::time::Duration;

/// The length of a run, and how this machine makes it.
#[derive(Args, Clone, Debug)]
pub(super) struct MachineArguments {
    /// Time to hold the crowd, from the end of connecting and with the warm-up in it [default: as the scenario says, or until
    /// the pushes are over, or 60s]
    #[arg(long, short = 'd', visible_short_alias = 'z', value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Threads [default: as the scenario says, or one per core, more where descriptor tables are small]
    #[arg(long, short = 't', value_name = "COUNT")]
    threads: Option<u32>,
    /// How to drive sockets
    #[arg(long, value_enum, default_value = "auto")]
    driver: DriverName,
    /// Source addresses: ranges, CIDR blocks or single addresses, separated by commas [default: as the scenario says, or chosen
    /// automatically]
    #[arg(long, value_name = "RANGES", value_parser = SourceRanges::parse)]
    source_ip: Option<SourceRanges>,
}

impl MachineArguments {
    /// Puts what was given over a run.
    pub(super) fn over(&self, config: &mut Config) {
        config.duration = self.duration.or(config.duration);
        config.threads = self.threads.or(config.threads);
        config.driver = self.driver.chosen().or(config.driver);
        if let Some(ranges) = self.source_ip.clone() {
            config.sources = SourceChoice::Ranges(ranges);
        }
    }
}

/// Changes of a scenario.
#[derive(Args, Clone, Debug)]
pub(super) struct ChangeArguments {
    /// Change a key of the scenario, such as terminals.count=200; may be repeated [default: the file as it is]
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Change a variable of the scenario: the same as --set variables.NAME=VALUE; may be repeated [default: the file as it is]
    #[arg(long, short = 'e', visible_alias = "env", value_name = "NAME=VALUE", value_parser = variable)]
    var: Vec<String>,
}

impl ChangeArguments {
    /// All of them, as `KEY=VALUE`.
    pub(super) fn sets(&self) -> Vec<String> {
        self.set.iter().chain(&self.var).cloned().collect()
    }
}

/// `NAME=VALUE`, as the change of a key.
fn variable(given: &str) -> Result<String, String> {
    match given.split_once('=') {
        Some((name, _)) if !name.trim().is_empty() => Ok(format!("variables.{given}")),
        _ => {
            Err("write NAME=VALUE with a variable of the scenario, such as connections=200".into())
        }
    }
}
