//! Why a server does not start, or ended otherwise than by draining.

use crate::config::ConfigError;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// What ended the server, in words for the person who started it.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Somebody else listens there.
    #[error(
        "address {address} is in use by another program; stop it or choose another with --{flag}"
    )]
    AddressInUse {
        /// Where.
        address: SocketAddr,
        /// The option to change.
        flag: &'static str,
    },
    /// The address is not ours, or not allowed to us.
    #[error("cannot listen on {address}: {source}; choose another with --{flag}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The option to change.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Ports below `net.ipv4.ip_unprivileged_port_start` need a capability.
    #[error(
        "cannot listen on {address} (--{flag}): a port below {unprivileged} needs the capability CAP_NET_BIND_SERVICE: with systemd write AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, by hand run setcap cap_net_bind_service=+ep on the program; or choose another port"
    )]
    PrivilegedPort {
        /// Where.
        address: SocketAddr,
        /// The option to change.
        flag: &'static str,
        /// The first port that anybody may listen on.
        unprivileged: u16,
    },
    /// The driver that was asked for does not work here.
    #[error(
        "--driver io_uring cannot be used here: {reason}; use --driver epoll, or auto to choose by itself"
    )]
    Driver {
        /// What is missing.
        reason: String,
    },
    /// No number of threads gives enough descriptors.
    #[error("{why}")]
    Descriptors {
        /// What tables hold, and what to do, in doctor's words.
        why: String,
    },
    /// The kernel refused something every server needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// The directory of histories cannot be used.
    #[error("history-dir {}: {source}", directory.display())]
    History {
        /// The directory.
        directory: std::path::PathBuf,
        /// Why.
        source: myriad_journal::OpenError,
    },
    /// A shard failed while running; the others cannot do its work.
    #[error("shard {index} failed: {source}")]
    Shard {
        /// Which one.
        index: usize,
        /// How.
        source: io::Error,
    },
    /// The broker cannot be used.
    #[error(transparent)]
    Broker(#[from] crate::broker::BrokerError),
    /// A thread panicked; its message is above.
    #[error("{thread} panicked: this is a defect; please report it with the message above")]
    Panicked {
        /// Which one.
        thread: String,
    },
}

impl ServerError {
    /// True when the configuration is at fault, and not the machine.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Config(_))
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
