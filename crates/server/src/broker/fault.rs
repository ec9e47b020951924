//! Why a node no longer reads a log, and opens it anew.

use super::beat::{BEAT_TIMEOUT, BeatError};
use super::link::BrokerError;
use super::servers::{FeedError, NotStored, Part};
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

impl Fault {
    /// What says nothing, if that is the fault: a server that has lost its cluster is as silent as one without a leader.
    pub(super) fn silence(&self) -> Option<Part> {
        match self {
            Self::Silent | Self::Feed(FeedError::Silent(_) | FeedError::Stuck(_)) => {
                Some(Part::Feed)
            }
            Self::Slow(_)
            | Self::Stream(BrokerError::NoStream { .. })
            | Self::Beat(BeatError::Read(_) | BeatError::Write(NotStored::Unknown(_)))
            | Self::Feed(FeedError::Make(_) | FeedError::Look(_) | FeedError::Info(_)) => {
                Some(Part::Questions)
            }
            Self::Stream(_) | Self::Beat(_) | Self::Feed(_) | Self::Changed | Self::Suspect => None,
        }
    }
}
