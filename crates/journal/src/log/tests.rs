//! Tests of the whole log: against a naive model, with crashes at any step, and with mistakes that were made on purpose.

mod crashes;
mod damage;
mod model;
mod planted;

/// What is wrong with a log on purpose, so that it is known that the tests would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    AckBeforeSync,
    NoDirectorySync,
    IndexAhead,
    RetrySync,
    NoChecksum,
    TailNotCut,
}
