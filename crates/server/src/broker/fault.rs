//! Why a node no longer reads a log, and opens it anew.

use super::beat::{BEAT_TIMEOUT, BeatError};
use super::link::BrokerError;
use super::servers::FeedError;
use thiserror::Error;

/// Why reading ended.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Stream(#[from] BrokerError),
    #[error(transparent)]
    Beat(#[from] BeatError),
    #[error(transparent)]
    Feed(#[from] FeedError),
    #[error(
        "it has lost its end, and has other messages there now; its channels get another epoch"
    )]
    Changed,
    #[error("no beat has come for {} s", BEAT_TIMEOUT.as_secs())]
    Silent,
    /// With the seconds.
    #[error("no answer for {0} s")]
    Slow(u64),
    #[error("it does not have the last message of a channel any more")]
    Suspect,
}
