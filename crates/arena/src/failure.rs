//! Why a contestant failed, or why the run ended early.

use std::fmt;

/// In one line, for the row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// Commands that are not on PATH.
    Missing { commands: String, hint: String },
    /// A build command did not succeed.
    Build { command: String, why: String },
    /// The version could not be read.
    Version { command: String, said: String },
    /// It could not be started, or did not become ready.
    Start(String),
    /// It ended without being asked to.
    Died {
        phase: Phase,
        status: String,
        said: String,
    },
    /// The crowd could not start or did not finish.
    Crowd { phase: Phase, why: String },
    /// It answered something that the contract does not allow.
    Contract { phase: Phase, why: String },
    /// The machine is short of memory.
    Memory { phase: Phase, available_bytes: f64 },
    /// Ctrl-C, or SIGTERM.
    Interrupted,
}

/// The phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp,
    Quarter,
    CrowdUp,
    Idle,
    Pushes,
    PollRate,
    RequestWarmUp,
    Request,
    CrowdDown,
    EchoWarmUp,
    Echo,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WarmUp => "warm-up",
            Self::Quarter => "a quarter of the crowd",
            Self::CrowdUp => "crowd up",
            Self::Idle => "idle",
            Self::Pushes => "pushes",
            Self::PollRate => "polls answered and asked again",
            Self::RequestWarmUp => "request warm-up",
            Self::Request => "requests",
            Self::CrowdDown => "crowd down",
            Self::EchoWarmUp => "echo warm-up",
            Self::Echo => "echo",
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { commands, hint } => write!(f, "not on PATH: {commands}; {hint}"),
            Self::Build { command, why } => write!(f, "build: `{command}` {why}"),
            Self::Version { command, said } => write!(f, "version: `{command}` said: {said}"),
            Self::Start(why) => write!(f, "start: {why}"),
            Self::Died {
                phase,
                status,
                said,
            } => write!(f, "{phase}: the server ended ({status}): {said}"),
            Self::Crowd { phase, why } | Self::Contract { phase, why } => {
                write!(f, "{phase}: {why}")
            }
            Self::Memory {
                phase,
                available_bytes,
            } => write!(
                f,
                "{phase}: stopped, because the machine had only {} of memory available",
                myriad_units::bytes(myriad_units::whole(*available_bytes))
            ),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}
