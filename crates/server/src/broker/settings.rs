//! What a broker is told.

use myriad_broker::Subjects;
use myriad_nats::Nats;

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
    /// This node hears the channels that its clients want, and no others.
    pub(crate) by_channel: bool,
}
