//! Which crowd a run has, which decides who can take part.

use crate::{Contestant, Transport};

/// What the clients of a run speak.
#[derive(Clone, Copy, Debug)]
pub enum CrowdKind {
    /// Neither of the others.
    Plain,
    /// TLS.
    Tls,
    /// HTTP, by a transport that holds them.
    Held(Transport),
}

impl CrowdKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Plain,
        Self::Tls,
        Self::Held(Transport::LongPoll),
        Self::Held(Transport::Sse),
    ];

    /// Whether a contestant can take part.
    #[must_use]
    pub fn fits(self, contestant: &Contestant) -> bool {
        match self {
            Self::Plain => contestant.takes_part_in_plain_runs(),
            Self::Tls => contestant.speaks_tls(),
            Self::Held(transport) => contestant.holds(transport),
        }
    }

    /// In a list.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::Held(transport) => transport.name(),
        }
    }

    /// How the command line asks for it.
    #[must_use]
    pub fn flags(self) -> String {
        match self {
            Self::Plain => "without --tls and --held".to_owned(),
            Self::Tls => "with --tls".to_owned(),
            Self::Held(transport) => format!("with --held {}", transport.name()),
        }
    }

    /// Why a contestant cannot take part, as its manifest says it.
    #[must_use]
    pub fn why_unfit(self, contestant: &Contestant) -> String {
        let others: Vec<String> = Self::ALL
            .into_iter()
            .filter(|other| other.fits(contestant))
            .map(Self::flags)
            .collect();
        format!(
            "its entry in arena.toml is for runs {}",
            others.join(" and ")
        )
    }
}
