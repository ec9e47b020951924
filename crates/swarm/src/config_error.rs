//! Why a run cannot be begun.

use crate::config::{ECHO_BYTES_MAX, LOAD_RATE_MAX, PAYLOAD_BYTES_MAX};
use crate::echo_stamp::ECHO_STAMP_BYTES;
use crate::engine::sources::SourceError;
use crate::stamp::STAMP_BYTES;
use std::fmt;
use std::time::Duration;

/// A run that cannot be begun.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    /// There is no target.
    NoTarget,
    /// More targets than a client can name.
    TooManyTargets,
    /// None, or more than 2^31.
    Connections(u64),
    /// More retries than a client can count, or no connections for requests, or too many: the option, what was given,
    /// the least and the most.
    Range(&'static str, u32, u32, u32),
    /// A duration that must not be zero is.
    Zero(&'static str),
    /// Nobody leaves, or everybody more than once a second.
    Churn(f64),
    /// The payload is shorter than the stamp or longer than 16 MiB.
    Payload(usize),
    /// A rate that is zero, or more than can be kept.
    Rate(&'static str, f64),
    /// A message to send back is shorter than its stamp or longer than 1 MiB.
    EchoSize(usize),
    /// The run is over before the warm-up is.
    Warmup {
        /// How long the crowd is held.
        duration: Duration,
        /// As demanded.
        warmup: Duration,
    },
    /// The API key holds characters that a header cannot carry.
    ApiKey,
    /// No channel to publish to is known.
    NoChannel,
    /// A channel to publish to that no target subscribes to.
    NobodySubscribes(String),
    /// Too many channels for a stamp to name.
    TooManyChannels,
    /// The source addresses do not suffice, or do not fit.
    Sources(SourceError),
    /// io_uring was demanded and does not work here.
    Driver(String),
    /// The threads' descriptor tables hold too few connections.
    Threads {
        /// As demanded.
        threads: u32,
        /// What they hold.
        holds: u64,
        /// Threads that would do.
        needed: u64,
    },
    /// The descriptor limit could not be read.
    DescriptorLimit(String),
    /// Two options want standard output for themselves.
    StandardOutput(&'static str, &'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget => write!(
                f,
                "there is no target; give one such as 'ws://127.0.0.1:8000/raw?channel=x'"
            ),
            Self::TooManyTargets => write!(f, "there are more than 65,536 targets; give fewer"),
            Self::Connections(count) => write!(
                f,
                "--connections {count} is out of range; give 1 to 2,147,483,648"
            ),
            Self::Range(option, count, least, most) => write!(
                f,
                "{option} {count} is out of range; give {least} to {most}"
            ),
            Self::Zero(option) => {
                write!(f, "{option} must not be zero; give a duration such as 10s")
            }
            Self::Churn(share_per_s) => write!(
                f,
                "--churn {}%/s is out of range; give more than 0 and at most 100%/s, such as 1%/m",
                share_per_s * 100.0
            ),
            Self::Payload(bytes) => {
                write!(
                    f,
                    "--payload-size {bytes} is out of range; the stamp needs {STAMP_BYTES} bytes, and {PAYLOAD_BYTES_MAX} is the most"
                )
            }
            Self::Rate(option, rate) => write!(
                f,
                "{option} {rate}/s is out of range; give more than 0 and at most {LOAD_RATE_MAX}/s, such as 5k/s"
            ),
            Self::EchoSize(bytes) => write!(
                f,
                "--echo-size {bytes} is out of range; the stamp needs {ECHO_STAMP_BYTES} bytes, and {ECHO_BYTES_MAX} is the most"
            ),
            Self::Warmup { duration, warmup } => write!(
                f,
                "--duration {duration:?} is over before the --warmup of {warmup:?} is; it counts from the end of connecting, so give a longer --duration or a shorter --warmup"
            ),
            _ => self.fmt_rest(f),
        }
    }
}

impl ConfigError {
    /// Those about channels, this machine and where the report goes.
    fn fmt_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiKey => write!(
                f,
                "--api-key holds characters that a header cannot carry; check it for line breaks"
            ),
            Self::NoChannel => write!(
                f,
                "no channel to publish to is known; put ?channel=NAME into the targets, give --publish-channel NAME, or use --publish-body plain"
            ),
            Self::NobodySubscribes(channel) => write!(
                f,
                "--publish-channel {channel} is in no target's ?channel=; nobody would receive it, so add it there"
            ),
            Self::TooManyChannels => write!(f, "there are more than 65,536 channels; give fewer"),
            Self::Sources(error) => write!(f, "source addresses: {error}"),
            Self::Driver(reason) => write!(
                f,
                "--driver io_uring does not work here: {reason}; use --driver epoll"
            ),
            Self::Threads {
                threads,
                holds,
                needed,
            } => write!(
                f,
                "{threads} threads hold {holds} connections under this descriptor limit; give --threads {needed}, leave --threads out, or use --driver io_uring"
            ),
            Self::DescriptorLimit(reason) => {
                write!(f, "the descriptor limit cannot be read or raised: {reason}")
            }
            Self::StandardOutput(one, other) => write!(
                f,
                "{one} and {other} both write to standard output; give a file to one of them"
            ),
            _ => unreachable!("the others are formatted above"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<SourceError> for ConfigError {
    fn from(error: SourceError) -> Self {
        Self::Sources(error)
    }
}
