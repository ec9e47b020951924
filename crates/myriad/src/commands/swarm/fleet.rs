//! A crowd on several machines: its agents, and the controller's options.

use super::{exit_code, interrupt};
use crate::{BAD_ARGUMENTS, say};
use clap::Args;
use myriad_swarm::{
    AgentOptions, Config, EXIT_INTERRUPTED, FleetError, FleetOptions, Nats, Scenario, run_fleet,
    serve_agent,
};
use myriad_units::parse::duration;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Clone, Debug)]
pub(super) struct FleetArguments {
    /// Run the scenario with agents on other machines, which are found at this NATS server [default: this machine is the crowd]
    #[arg(long, value_name = "URL")]
    nats: Option<String>,
    /// Credentials for it, as a file [default: those of the URL]
    #[arg(long, value_name = "FILE", requires = "nats")]
    nats_creds: Option<PathBuf>,
    /// Agents to run it with
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "nats")]
    agents: u32,
    /// How long they are waited for
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration, requires = "nats")]
    agents_wait: Duration,
}

/// An agent's options.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Whoever may publish at that NATS server decides which servers this machine connects to: give users and passwords, or credentials.\n\
                  Exit codes: 0 ended by a signal, 1 the NATS server cannot be reached, 104 bad arguments."
)]
pub(super) struct AgentArguments {
    /// NATS server where controllers are, such as nats://10.0.0.1:4222
    #[arg(long, value_name = "URL")]
    nats: String,
    /// Credentials for it, as a file [default: those of the URL]
    #[arg(long, value_name = "FILE")]
    nats_creds: Option<PathBuf>,
    /// Name of this agent in reports [default: the host's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl FleetArguments {
    pub(super) fn is_wanted(&self) -> bool {
        self.nats.is_some()
    }

    /// Runs the scenario with agents.
    pub(super) fn run(self, scenario: &Scenario, config: &Config) -> ExitCode {
        let Some(interrupt) = interrupt() else {
            return ExitCode::FAILURE;
        };
        let options = FleetOptions {
            nats: Nats {
                url: self.nats.unwrap_or_default(),
                credentials: self.nats_creds,
                ..Nats::default()
            },
            agents: self.agents,
            wait: self.agents_wait,
        };
        match run_fleet(&options, scenario, config, &interrupt) {
            Ok(report) => ExitCode::from(exit_code(&report)),
            Err(error) => refuse(&error),
        }
    }
}

/// Is an agent until it is told to end.
pub(super) fn serve(arguments: &AgentArguments) -> ExitCode {
    let Some(interrupt) = interrupt() else {
        return ExitCode::FAILURE;
    };
    let host = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
    };
    let options = AgentOptions {
        nats: Nats {
            url: arguments.nats.clone(),
            credentials: arguments.nats_creds.clone(),
            ..Nats::default()
        },
        name: arguments.name.clone().unwrap_or_else(host),
    };
    match serve_agent(&options, &interrupt, |line| say(line)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

fn refuse(error: &FleetError) -> ExitCode {
    say(format_args!("error: {error}"));
    match error {
        FleetError::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
        error if error.is_of_arguments() => ExitCode::from(BAD_ARGUMENTS),
        _ => ExitCode::FAILURE,
    }
}
