//! Channels with every kind of member: readers of streams, clients with sessions, `raw` listeners (`members`), and writers.
//!
//! Writers create streams, append to them, close, delete and create them again, and the application publishes to the same channels.
//! Readers follow `Stream-Next-Offset`, over connections that go on, break off or stall at any moment. What an answer says must follow
//! from its request (`verdict`), and what all were told must be one order of each channel (`facts`). A profile says who is there.

mod answer;
mod ending;
mod events;
mod facts;
mod guest;
mod limited;
mod quiet;
mod reader;
mod regressions;
mod reload;
mod request;
mod scenario;
mod tokens;
mod verdict;
mod writers;

pub(crate) use facts::{Facts, Kind, ROOMS};
pub(crate) use scenario::{Profile, run};

/// What the seeds of CI must come through.
pub(crate) const MUST_HAPPEN: [&str; 25] = [
    "readers: a guest sends too much",
    "readers: a guest's token cannot be verified",
    "readers: a held request is answered with data",
    "readers: a held request is over",
    "readers: a held request waits at a quiet moment",
    "readers: a held request is told that its stream has gone",
    "readers: a part of a stream has gone",
    "readers: a quiet moment",
    "readers: a read has all that is kept",
    "readers: a read has a page",
    "readers: a request comes behind another",
    "readers: a request is one too many",
    "readers: a stream begins again behind a deleted one",
    "readers: a stream is told to be closed",
    "readers: a token is not verified in time",
    "readers: all answers come behind a FIN",
    "readers: an event comes",
    "readers: an event is told to a stream of bytes",
    "readers: an old client ends with its answer",
    "readers: events go on at a quiet moment",
    "readers: events keep themselves alive",
    "readers: nothing has changed for an entity tag",
    "readers: several publications come in one answer",
    "readers: the node drains",
    "readers: who goes on is ended",
];
