//! What a broker is told.

use myriad_broker::{Policy, Subjects};
use myriad_nats::Nats;
use std::fmt;

/// The prefix of subjects and streams, if nobody says.
pub(crate) const BROKER_PREFIX_DEFAULT: &str = "myriad";

/// The broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerSettings {
    /// The NATS servers.
    pub(crate) nats: Nats,
    /// The cluster's place in them.
    pub(crate) subjects: Subjects,
    /// Servers that keep each publication: 1 to 5.
    pub(crate) replicas: usize,
    /// What this node hears.
    pub(crate) interest: BrokerInterest,
}

/// What a node hears of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerInterest {
    /// Each stream whole, and it keeps all histories.
    Stream,
    /// The channels that its clients want, and no others.
    Channel,
    /// It keeps the channels that its clients want. It chooses for each stream whether it hears all of it, by what it measures.
    Auto(Policy),
}

impl fmt::Display for BrokerInterest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream => f.write_str("stream"),
            Self::Channel => f.write_str("channel"),
            Self::Auto(Policy { rate_min, .. }) => {
                write!(f, "auto, broker-auto-rate = {rate_min}")
            }
        }
    }
}

impl BrokerInterest {
    /// Whether this node keeps only the channels that its clients want.
    pub(crate) fn keeps_only_wanted(self) -> bool {
        self != Self::Stream
    }
}
