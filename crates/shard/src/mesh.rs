//! How shards, and the control plane, reach each other.

use crate::metrics::Metrics;
use crate::settings::ProcessLimits;
use myriad_reactor::Waker;
use std::sync::Arc;
use std::time::Duration;

/// The data of a publication, as a publisher gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Text: one text frame on `raw`. For the API: a JSON string's content, or any other JSON as its text.
    Text(Box<str>),
    /// Bytes: one binary frame on `raw`.
    Binary(Box<[u8]>),
}

/// The place a publication got in its channel's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Larger than that of every earlier publication of the channel; not contiguous.
    pub offset: u64,
}

/// Called on the home shard's thread once the publication has its place; must not block.
pub type Reply = Box<dyn FnOnce(Position) + Send>;

/// Why a publication was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishRefused {
    /// The channel's name is empty or longer than [`Mesh::CHANNEL_BYTES_MAX`].
    Channel,
    /// The data alone is over the process's limit of publication bytes.
    TooLarge,
    /// The limit of publication bytes in flight is reached; try again later.
    Busy,
    /// The server is draining.
    Draining,
}

/// The way to every shard of the process. Cheap to clone.
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

struct Inner {}

impl Mesh {
    /// Bytes of a channel's name, UTF-8.
    pub const CHANNEL_BYTES_MAX: usize = 255;
    /// Shards of a process.
    pub const SHARDS_MAX: usize = 256;

    /// A mesh of as many shards as there are wakers.
    #[must_use]
    pub fn new(wakers: Vec<Waker>, limits: ProcessLimits) -> Self {
        let _ = (wakers, limits);
        todo!()
    }

    /// Shards of this mesh.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        todo!()
    }

    /// Hands a publication to the channel's home shard; `reply` is called there once it has its place.
    ///
    /// # Errors
    /// Nothing was published, and `reply` will not be called.
    pub fn publish(&self, channel: &str, payload: Payload, reply: Reply) -> Result<(), PublishRefused> {
        let _ = (channel, payload, reply);
        todo!()
    }

    /// Begins draining: new streams get 503, connections are closed evenly over `over`, then each shard's turn
    /// answers [`crate::Turn::Finished`].
    pub fn drain(&self, over: Duration) {
        let _ = over;
        todo!()
    }

    /// Each shard's figures.
    #[must_use]
    pub fn metrics(&self) -> &[Metrics] {
        todo!()
    }
}
