//! Flows as every thread knows them before the run begins.

use super::groups::Groups;
use super::ledger::Receiver;
use super::mark::MarkPlace;
use super::template::Template;
use std::time::Duration;

/// Who must receive a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All of the sender's group.
    Group,
    /// All of it but the sender.
    Others,
    /// The sender alone: a request and its reply.
    Sender,
    /// Everybody.
    All,
}

impl Audience {
    /// The place of a receiver in the audience of a message; none if it is outside.
    pub(crate) fn place(self, sender: u64, group: u32, receiver: Receiver) -> Option<u32> {
        let is_sender = receiver.terminal == sender;
        let is_member = receiver.group == group;
        match self {
            Self::Group => is_member.then_some(receiver.place),
            Self::Others => (is_member && !is_sender).then_some(receiver.place),
            Self::Sender => is_sender.then_some(0),
            Self::All => u32::try_from(receiver.terminal).ok(),
        }
    }
}

/// The flows of a run.
#[derive(Debug)]
pub(crate) struct FlowsPlan {
    /// What each terminal says when it opens, in this order.
    pub opening: Vec<Template>,
    pub groups: Groups,
    pub flows: Vec<FlowPlan>,
    pub settle: Duration,
}

/// One flow.
#[derive(Debug)]
pub(crate) struct FlowPlan {
    pub name: String,
    /// Messages a second over the whole crowd.
    pub rate_per_s: f64,
    pub template: Template,
    pub is_binary: bool,
    pub audience: Audience,
    pub place: MarkPlace,
}
