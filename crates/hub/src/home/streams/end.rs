//! What subscribers are sent when a stream ends.

use crate::Position;
use myriad_wheel::Tick;
use std::sync::Arc;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEndKind {
    /// Nothing more will come; what is kept can still be read.
    Closed,
    /// It was deleted, or its time is over: nothing is kept.
    Deleted,
}

/// The end of a stream, behind its last publication. Only readers of streams are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The channel.
    pub channel: Arc<str>,
    /// How it ended.
    pub kind: StreamEndKind,
    /// The position after its last publication; of a deleted one, the position at which another stream of that name begins.
    pub tail: Position,
    /// When it ended. Whoever has asked since may read another stream of that name.
    pub ended_at: Tick,
}

impl StreamEnd {
    /// Whether somebody who asked at this time, by the clock of another shard, may have asked after the end. A turn may have begun
    /// a tick before what it handles came.
    #[must_use]
    pub fn may_precede(&self, asked_at: Tick) -> bool {
        asked_at.0.saturating_add(1) >= self.ended_at.0
    }
}
