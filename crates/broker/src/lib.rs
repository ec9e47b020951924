//! What stands between a node and the logs of its cluster, deterministic: no I/O, no clock, no randomness but an argument's.
//!
//! A *log* orders the publications of one namespace with history for all nodes ([ADR 23]). Whoever speaks to the log system tells
//! these types what happened there, and does what they say:
//!
//! * [`Subjects`]: where publications stand in NATS, by their channels' names;
//! * [`Envelope`]: a publication as a message of NATS, and [`Announced`]: a join or a leave;
//! * [`Reading`]: what the homes of a node are told of a log, in its order, and whether something is missing;
//! * [`Interest`]: the same where a node knows only the channels that its clients want, and [`Choice`]: how it hears them;
//! * [`Line`]: publications on their way to a log, one of each channel at a time;
//! * [`Nodes`] and [`Gather`]: which other nodes are there, and what they answer.
//!

#![forbid(unsafe_code)]

mod anchors;
mod announcement;
mod choice;
mod envelope;
mod interest;
mod line;
mod names;
mod nodes;
mod reading;

pub use anchors::{Anchor, Anchors, Extent};
pub use announcement::Announced;
pub use choice::{Change, Choice, Measured, Policy, Source};
pub use envelope::{
    Envelope, Header, MESSAGE_OVERHEAD, Origin, Unreadable, Version, version_behind,
};
pub use interest::{
    Asked, ChannelEvent, Fill, Filled, Interest, LastByChannel, Life, Previous, Task,
};
pub use line::Line;
pub use names::{Class, PrefixError, Subjects};
pub use nodes::{Gather, GatherError, Gathered, HELLO_NS, Nodes, is_node_name};
pub use reading::{Opened, Reading, Step};
