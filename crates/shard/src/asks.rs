//! Asks: questions of clients' commands to the control plane, and its answers, as plain data.
//!
//! Some commands need what a shard must not do: wait for an application, or compute for long. The shard hands such a question to
//! [`ControlPlane::ask`](crate::ControlPlane::ask), and [`Mesh::answer`](crate::Mesh::answer) brings the answer back.

use myriad_hub::{Now, Payload, Permit, Pool, Ticket};
use myriad_wheel::Tick;
use myriad_wire::centrifuge::ErrorCode;
use std::sync::Arc;

/// What an ask may hold beside its question's data: its record, and its entries in the mailbox, in the runtime and in an inbox.
const OVERHEAD_BYTES: u64 = 512;

/// A question to the control plane. Its shard waits for the answer until the deadline, and then answers the client itself.
#[derive(Debug)]
pub struct Ask {
    pub(crate) ticket: Ticket,
    pub(crate) id: AskId,
    pub(crate) question: Question,
    /// Released when both sides have dropped theirs: the shard at the answer, the control plane with the question.
    pub(crate) _place: Arc<AskPlace>,
}

impl Ask {
    /// What is asked.
    #[must_use]
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// When the shard stops waiting. An answer after it is dropped and counted.
    #[must_use]
    pub fn deadline(&self) -> Now {
        Now::at(self.id.deadline)
    }
}

/// What a command needs to know.
#[derive(Debug)]
pub enum Question {
    /// A client calls a method of the application.
    Rpc {
        /// The method's name; may be empty.
        method: Box<str>,
        /// The argument.
        data: Payload,
    },
}

impl Question {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Rpc { method, data } => (method.len() + data.bytes().len()) as u64,
        }
    }
}

/// What the control plane answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskAnswer {
    /// The command is answered with this error.
    Refused(ErrorCode),
}

/// Names an ask among those of its shard, in the order of deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AskId {
    pub(crate) deadline: Tick,
    pub(crate) serial: u64,
}

/// An ask's share of two limits of the process: how many asks there are, and buffered bytes.
#[derive(Debug)]
pub(crate) struct AskPlace {
    _count: Permit,
    _bytes: Permit,
}

impl AskPlace {
    /// None if the process has as many asks as it may, or no memory for this one.
    pub(crate) fn take(asks: &Pool, buffered: &Pool, question: &Question) -> Option<Self> {
        Some(Self {
            _count: Permit::take(asks, 1, 0)?,
            _bytes: Permit::take(buffered, question.bytes() + OVERHEAD_BYTES, 0)?,
        })
    }
}
