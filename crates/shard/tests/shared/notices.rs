//! What an application is told in a simulation, and what must hold of it.

use myriad_shard::{ClientId, Mesh, Notice, NoticedClient, Now};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The application's view of the node, made of nothing but notices.
#[derive(Debug, Default)]
pub(crate) struct Application {
    pub(crate) occupied: BTreeSet<Arc<str>>,
    pub(crate) connected: BTreeMap<ClientId, NoticedClient>,
    /// Notices of channels, and of clients.
    pub(crate) told: [u64; 2],
    /// Of each shard.
    last: BTreeMap<usize, Now>,
}

impl Application {
    /// Reads what a shard has noted. Notices of a channel must alternate, and so must those of a client.
    pub(crate) fn read(&mut self, mesh: &Mesh, shard: usize) {
        let notices = mesh.take_notices(shard);
        assert_eq!(notices.dropped, [0; 4], "there is room for all");
        for (at, notice) in notices.kept {
            let last = self.last.insert(shard, at);
            assert!(last.is_none_or(|last| last <= at), "notices have an order");
            self.told[usize::from(matches!(
                notice,
                Notice::Connected(_) | Notice::Disconnected(..)
            ))] += 1;
            match notice {
                Notice::Occupied(channel) => {
                    let is_new = self.occupied.insert(Arc::clone(&channel));
                    assert!(is_new, "{channel} is occupied twice");
                }
                Notice::Vacated(channel) => {
                    let was_occupied = self.occupied.remove(&channel);
                    assert!(was_occupied, "{channel} is vacated, and was not occupied");
                }
                Notice::Connected(client) => {
                    let before = self.connected.insert(client.client, client);
                    assert_eq!(before, None, "a client connects once");
                }
                Notice::Disconnected(client, end) => {
                    let connected = self.connected.remove(&client.client);
                    assert_eq!(connected, Some(client), "who connected disconnects");
                    assert!((1000..5000).contains(&end.code), "{end:?}");
                }
            }
        }
    }

    /// Everybody has gone, and the delay is over.
    pub(crate) fn check_end(&self) {
        assert_eq!(self.occupied, BTreeSet::new(), "all channels are vacated");
        assert_eq!(self.connected, BTreeMap::new(), "all clients disconnected");
    }
}
