//! Commands that come in requests of their own, for connections that take replies only.

use crate::mesh::Emulated;
use crate::shard::Shard;
use myriad_hub::{ClientId, Now, Phase};
use myriad_reactor::Reactor;
use myriad_wheel::Key;

impl<R: Reactor> Shard<R> {
    /// Handles commands of a client. They name its session, which only the client knows; those of a session that has gone are dropped.
    pub(crate) fn handle_emulated(&mut self, emulated: &Emulated, now: Now) {
        let key = emulated.connection;
        let is_there = self.hub.contains(key)
            && self.hub.connection(key.index).phase == Phase::Open
            && self.hub.connection(key.index).transport().is_emulated();
        if !is_there {
            self.metrics().emulated_dropped.add(1);
            return;
        }
        self.hub.note_input(key.index, now);
        self.metrics().messages_received.add(1);
        self.handle_message_of(key, &emulated.data, now);
    }

    /// Names a client's session, for requests with its commands.
    pub(super) fn session_id(&self, key: Key) -> ClientId {
        let shard = u16::try_from(self.index).expect("at most 256 shards");
        self.mesh.session_ids().id_of(shard, key)
    }
}
