//! What subscribers are sent when a stream ends.

use crate::Position;
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
    /// The position after its last publication.
    pub tail: Position,
}
