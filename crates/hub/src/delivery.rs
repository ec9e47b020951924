//! What a home sends to the shards of its subscribers.

use crate::{PresenceEvent, Publication};
use std::sync::Arc;

/// What a home sends to the shards of its subscribers. Cheap to clone: one for each shard.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// One publication.
    Publication(Arc<Publication>),
    /// Publications that leave together.
    Batch(Arc<Batch>),
    /// A join or a leave.
    Presence(Arc<PresenceEvent>),
}

/// Publications of one channel that leave together, in their order; at least one.
///
/// Each of them counts its shards and holds its permit, as if it were delivered alone. A shard that joined while the batch
/// waited has been told a position inside of it: its members skip what is at or before that.
#[derive(Debug)]
pub struct Batch {
    /// The publications.
    pub publications: Box<[Arc<Publication>]>,
}
