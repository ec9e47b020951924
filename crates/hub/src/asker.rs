//! Who asked for something: the answer goes back there.

use crate::RequestId;
use myriad_wheel::Key;

/// Names a command of a client that waits for an answer from elsewhere. Plain data: only the session's count of open tickets
/// remembers it. The answer to a client that has gone is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The shard of the client's connection.
    pub shard: u16,
    /// A mark of the channel that a publication is for; 0 of other commands. Another channel may have the same.
    pub mark: u16,
    /// The connection.
    pub connection: Key,
    /// The id that the client gave its command.
    pub command: u32,
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// A request of the control plane.
    Control(RequestId),
    /// A client's command.
    Session(Ticket),
}
