//! Why a run has no report.

use crate::config_error::ConfigError;
use crate::engine::shared::Fatal;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a run has no report.
#[derive(Debug)]
pub enum RunError {
    /// It was asked for something that cannot be done.
    Config(ConfigError),
    /// A thread could not be started.
    Start(io::Error),
    /// A thread's reactor failed.
    Reactor(String),
    /// An agent of a fleet cannot do its part: its name, and why.
    Agent(String, String),
    /// A report could not be written.
    Write {
        /// The file, or standard output.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Nobody can listen where figures are to be asked for.
    Listen {
        /// As given.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Start(error) => write!(
                f,
                "a thread could not be started ({error}); give fewer --threads"
            ),
            Self::Reactor(reason) => {
                write!(
                    f,
                    "a thread of the crowd could not go on ({reason}); try --driver epoll, fewer connections, or more locked memory (ulimit -l)"
                )
            }
            Self::Agent(name, reason) => write!(f, "agent {name}: {reason}"),
            Self::Listen { address, error } => {
                let remedy = match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        "end the program that listens there, or give another port (0 takes a free one)"
                    }
                    io::ErrorKind::PermissionDenied => "give a port above 1023",
                    _ => "give an address of this machine, such as 127.0.0.1:9100",
                };
                write!(
                    f,
                    "--metrics-listen {address} cannot be used ({error}); {remedy}"
                )
            }
            Self::Write { path, error } => {
                write!(
                    f,
                    "{} cannot be written ({error}); check the folder and its permissions",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for RunError {}

impl From<Fatal> for RunError {
    fn from(fatal: Fatal) -> Self {
        match fatal {
            Fatal::Reactor(reason) => Self::Reactor(reason),
            Fatal::Agent(name, reason) => Self::Agent(name, reason),
        }
    }
}
