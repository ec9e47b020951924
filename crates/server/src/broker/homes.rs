//! What this node does with what comes from the broker.

use myriad_shard::{
    Asker, Content, Epoch, LogEntry, Mesh, NotPublished, Permit, Position, PublishRefused,
    RequestId,
};

/// The homes of this node's channels, and those who wait for the broker.
pub(super) trait Homes: Send + Sync {
    /// The epoch of positions that no log gives.
    fn epoch(&self) -> Epoch;

    /// What comes from the broker takes its share of the limit of publication bytes.
    ///
    /// # Errors
    /// There is no room now, or there will never be.
    fn take_in(&self, content: &Content) -> Result<Permit, PublishRefused>;

    /// Tells homes what a log says next. Entries of one log come in its order.
    fn read_log(&self, entry: LogEntry);

    /// Answers a publisher.
    fn answer_publisher(&self, asker: Asker, position: Result<Position, NotPublished>);

    /// Answers who had a history removed.
    fn answer_remover(&self, id: RequestId, is_removed: bool);
}

impl Homes for Mesh {
    fn epoch(&self) -> Epoch {
        Self::epoch(self)
    }

    fn take_in(&self, content: &Content) -> Result<Permit, PublishRefused> {
        Self::take_in(self, content)
    }

    fn read_log(&self, entry: LogEntry) {
        Self::read_log(self, entry);
    }

    fn answer_publisher(&self, asker: Asker, position: Result<Position, NotPublished>) {
        Self::answer_publisher(self, asker, position);
    }

    fn answer_remover(&self, id: RequestId, is_removed: bool) {
        Self::answer_remover(self, id, is_removed);
    }
}
