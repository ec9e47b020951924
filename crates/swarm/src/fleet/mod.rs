//! A fleet: one crowd whose threads are on several machines, with one controller, over NATS.
//!
//! An agent runs threads of the crowd as a single machine does. It tells its controller what they have counted and timed so far, and
//! for the controller it is a thread of its own crowd. So whatever makes progress, thresholds and reports of a run does the same
//! for a fleet.
//!
//! * `messages`: what they say to each other, over a connection of `myriad_nats`;
//! * `division`: who gets how much of the crowd (`crate::engine::deal` is the result); `offset`: whose clock is how far off;
//! * `agent`: waits for a controller and works for it; `preparing`: reads its scenario; `threads`: an agent's threads;
//! * `recruiting`: a controller finds its agents and prepares them; `link`: what it hears of them then;
//! * `state`: an agent's figures on their way; `pushes`: which publications an agent believes in; `unsent`: what a lost
//!   agent was to send.

mod agent;
mod division;
mod link;
mod messages;
mod offset;
mod preparing;
mod pushes;
mod recruiting;
mod state;
mod threads;
mod unsent;

pub use agent::{AgentOptions, serve_agent};
pub(crate) use link::{FLEET_SCHEDULE_AHEAD, Link};
pub use myriad_nats::{Nats, NatsError};
pub(crate) use pushes::Pushes;
pub use recruiting::{FleetOptions, run_fleet};
pub(crate) use state::MachineState;

use crate::run::RunError;
use crate::scenario::ScenarioError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a fleet cannot do what was asked.
#[derive(Debug)]
pub enum FleetError {
    /// There is no connection to a NATS server.
    Nats(NatsError),
    /// There was one, and it failed later.
    Lost(String),
    /// A thread or a runtime could not be started.
    Start(io::Error),
    /// The kernel gives no random bytes for the secret of the run.
    Random(io::Error),
    /// Too few agents in time: how many are wanted and free, and the others.
    TooFew {
        /// Agents wanted.
        wanted: u32,
        /// Agents that were free.
        free: usize,
        /// The others: their names, and why they are not.
        others: Vec<(String, String)>,
        /// How long they were waited for.
        waited: Duration,
    },
    /// What a fleet does not do: what it is, and what to do.
    Unsupported(&'static str, &'static str),
    /// The crowd cannot be divided so.
    Division(String),
    /// A file of the scenario cannot be handed to agents.
    File(PathBuf, String),
    /// An agent cannot do its part: its name, and why.
    Agent(String, String),
    /// The scenario cannot be used.
    Scenario(Box<ScenarioError>),
    /// The run failed.
    Run(RunError),
    /// It was interrupted before it began.
    Interrupted,
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nats(error @ NatsError::Connect { .. }) => {
                write!(f, "{error}; start a nats-server there, or check --nats")
            }
            Self::Nats(error) => error.fmt(f),
            Self::Lost(said) => write!(f, "the NATS server failed ({said}); look at its log"),
            Self::Start(error) => write!(
                f,
                "a thread could not be started ({error}); raise the limit of processes (ulimit -u)"
            ),
            Self::Random(error) => write!(
                f,
                "the kernel gives no random bytes ({error}); allow the system call getrandom"
            ),
            Self::TooFew {
                wanted,
                free,
                others,
                waited,
            } => {
                write!(
                    f,
                    "{free} of {wanted} agents were free within {} s; start more with `myriad swarm agent --nats URL`, or give fewer --agents",
                    waited.as_secs()
                )?;
                for (name, why) in others {
                    write!(f, "\n  agent {name} {why}")?;
                }
                Ok(())
            }
            Self::Unsupported(what, remedy) => write!(f, "a fleet has no {what}; {remedy}"),
            Self::Division(said) => f.write_str(said),
            Self::File(path, said) => write!(
                f,
                "{} cannot be handed to agents ({said}); files have at most 64 MiB",
                path.display()
            ),
            Self::Agent(name, said) => write!(f, "agent {name}: {said}"),
            Self::Scenario(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
            Self::Interrupted => f.write_str("interrupted before the crowd began"),
        }
    }
}

impl std::error::Error for FleetError {}

impl FleetError {
    /// Whether it is the fault of what was asked for.
    #[must_use]
    pub fn is_of_arguments(&self) -> bool {
        matches!(
            self,
            Self::Nats(NatsError::Credentials { .. } | NatsError::Address { .. })
                | Self::Unsupported(..)
                | Self::Division(_)
                | Self::File(..)
                | Self::Scenario(_)
                | Self::Run(RunError::Config(_) | RunError::Listen { .. })
        )
    }
}

impl From<NatsError> for FleetError {
    fn from(error: NatsError) -> Self {
        Self::Nats(error)
    }
}

impl From<RunError> for FleetError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}
