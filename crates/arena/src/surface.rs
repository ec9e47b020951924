//! Where a contestant is asked what, as the manifest says it for one kind of crowd.

use crate::failure::Failure;
use crate::manifest::{Broadcast, Contestant, Stats, Transport};
use crate::server::Mode;

/// Paths and forms for one kind of crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surface<'a> {
    /// Of the URLs that the crowd connects to.
    pub(crate) scheme: &'static str,
    pub(crate) path: &'a str,
    pub(crate) broadcast: &'a Broadcast,
    pub(crate) stats: &'a Stats,
    /// A stream that is created before the crowd comes.
    pub(crate) create: Option<&'a str>,
}

impl<'a> Surface<'a> {
    /// # Errors
    /// If it does not hold clients in this way.
    pub(crate) fn of(
        contestant: &'a Contestant,
        mode: Mode,
        held: Option<Transport>,
    ) -> Result<Self, Failure> {
        let Some(transport) = held else {
            return Ok(Self::of_sockets(contestant, mode));
        };
        let surface = contestant.held.as_ref().and_then(|held| {
            let clients = held.clients(transport)?;
            Some(Self {
                scheme: "http",
                path: &clients.path,
                broadcast: &held.broadcast,
                stats: clients.stats.as_ref().unwrap_or(&contestant.stats),
                create: held.create.as_deref(),
            })
        });
        surface.ok_or_else(|| {
            let name = transport.name();
            Failure::Start(format!("the manifest has no `held.{name}` for it"))
        })
    }

    fn of_sockets(contestant: &'a Contestant, mode: Mode) -> Self {
        let paths = &contestant.socket_paths;
        Self {
            scheme: "ws",
            path: match mode {
                Mode::Push => &paths.push,
                Mode::Echo => &paths.echo,
            },
            broadcast: &contestant.broadcast,
            stats: &contestant.stats,
            create: None,
        }
    }
}
