//! Flows, and what else terminals say, as every thread knows it before the run begins.

use super::accounts::Accounts;
use super::figures::FlowFigures;
use super::groups::Groups;
use super::ledger::{FlowLedger, Receiver};
use super::mark::MarkPlace;
use super::template::{Template, Values};
use super::thinking::Think;
use crate::config::{Action, Endpoint};
use crate::failure::Failure;
use hyper::Method;
use hyper::header::HeaderName;
use regex::bytes::Regex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    /// Nobody of the crowd: the answer to a request or a command is all that is to come.
    Answer,
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
            Self::Answer => None,
        }
    }
}

/// What terminals and callers say.
#[derive(Debug)]
pub(crate) struct FlowsPlan {
    pub accounts: Accounts,
    /// What each terminal says when it opens, in this order.
    pub opening: Vec<Said>,
    /// What takes the place of ping frames.
    pub heartbeat: Option<Said>,
    /// What terminals reply.
    pub replies: Vec<ReplyPlan>,
    /// Each line of what comes is a message.
    pub are_lines: bool,
    pub groups: Groups,
    /// By group: the channel that its members subscribe to. Empty where they subscribe to none because of it.
    pub channels: Vec<String>,
    pub flows: Vec<FlowPlan>,
    pub settle: Duration,
}

/// Something that a terminal says by itself.
#[derive(Debug)]
pub(crate) struct Said {
    pub template: Template,
    pub is_binary: bool,
    /// What its answer matches; none: no answer is awaited.
    pub answer: Option<Regex>,
}

/// What a terminal says when something comes.
#[derive(Debug)]
pub(crate) struct ReplyPlan {
    /// What the message matches that is replied to.
    pub to: Regex,
    pub template: Template,
    pub is_binary: bool,
}

/// When the messages of a flow are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// So many a second over the whole run, whatever the server does.
    Rate(f64),
    /// By each terminal when it has thought for so long behind the answer to the last one.
    Think(Think),
}

impl Pace {
    /// Messages a second, where that is what was asked for.
    #[must_use]
    pub fn rate_per_s(self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Think(_) => None,
        }
    }

    /// The time to think, where that is what was asked for.
    pub(crate) fn think(self) -> Option<Think> {
        match self {
            Self::Rate(_) => None,
            Self::Think(think) => Some(think),
        }
    }
}

/// One flow.
#[derive(Debug)]
pub(crate) struct FlowPlan {
    pub name: String,
    pub pace: Pace,
    pub audience: Audience,
    pub place: MarkPlace,
    pub route: Route,
}

impl FlowPlan {
    /// Answers to its messages: those to requests and commands, or what comes back to who has sent it.
    pub(crate) fn answers(&self, figures: &FlowFigures) -> u64 {
        match (&self.route, self.audience) {
            (Route::Socket { .. }, Audience::Sender) => figures.received,
            _ => figures.answered.len(),
        }
    }
}

/// How the messages of a flow leave.
#[derive(Debug)]
pub(crate) enum Route {
    /// Over the sender's connection.
    Socket { template: Template, is_binary: bool },
    /// As a command of the sender's session.
    Command(Box<CommandPlan>),
    /// As a request of the sender, over its connection.
    Request(Box<RequestPlan>),
    /// As a request of a caller.
    Http(Box<CallPlan>),
}

/// The commands of a flow.
#[derive(Debug)]
pub(crate) struct CommandPlan {
    pub action: Action,
    /// What it is about; none: the channel of the sender's group.
    pub channel: Option<Template>,
    pub data: Option<Template>,
    /// Of `rpc`.
    pub method: String,
    /// Of `history`.
    pub limit: u32,
    /// What the data of a reply to `rpc` matches.
    pub answer: Option<Regex>,
}

/// The requests of a flow.
#[derive(Debug)]
pub(crate) struct CallPlan {
    pub endpoint: Endpoint,
    pub request: RequestPlan,
    /// Requests under way at once.
    pub connections: u32,
}

/// An HTTP request, and what its answer is to be.
#[derive(Debug)]
pub(crate) struct RequestPlan {
    pub method: Method,
    /// Path and query.
    pub path: Template,
    pub headers: Vec<(HeaderName, Template)>,
    pub body: Option<Template>,
    pub expected: Expected,
}

impl RequestPlan {
    /// Whether doing it twice is the same as once: its method says so (RFC 9110, section 9.2.2), or its server knows it again by a key
    /// (the header `Idempotency-Key` of an Internet draft, and what was used before it).
    pub(crate) fn may_be_done_twice(&self) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name.as_str());
        names.any(|name| matches!(name, "idempotency-key" | "x-idempotency-key"))
            || [
                Method::GET,
                Method::HEAD,
                Method::OPTIONS,
                Method::TRACE,
                Method::PUT,
                Method::DELETE,
            ]
            .contains(&self.method)
    }

    /// Whether its answer has no body, whatever the head says.
    pub(crate) fn is_to_head(&self) -> bool {
        self.method == Method::HEAD
    }
}

/// What an answer is to be.
#[derive(Debug)]
pub(crate) struct Expected {
    /// One of these; empty: any status of success.
    pub statuses: Vec<u16>,
    /// What its body matches; none: its status is enough.
    pub answer: Option<Regex>,
}

/// What is wrong with an answer.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub failure: Failure,
    pub reason: String,
}

impl Expected {
    /// Whether an answer is as it should be.
    pub(crate) fn judge(&self, status: u16, body: &[u8]) -> Result<(), Wrong> {
        let is_expected = match &self.statuses[..] {
            [] => (200..300).contains(&status),
            statuses => statuses.contains(&status),
        };
        if !is_expected {
            return Err(Wrong {
                failure: Failure::Call(status),
                reason: format!("status {status}"),
            });
        }
        match &self.answer {
            Some(answer) if !answer.is_match(body) => Err(Wrong {
                failure: Failure::CallWrong,
                reason: "an answer that does not match `answer`".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl FlowsPlan {
    /// The requests that terminals send of a flow.
    pub(crate) fn request_of(&self, flow: usize) -> &RequestPlan {
        match &self.flows[flow].route {
            Route::Request(request) => request,
            Route::Socket { .. } | Route::Command(_) | Route::Http(_) => {
                unreachable!("terminals send no requests of this flow")
            }
        }
    }

    /// Whether terminals think between messages.
    pub(crate) fn has_thinking(&self) -> bool {
        self.flows.iter().any(|flow| flow.pace.think().is_some())
    }

    /// What a terminal fills in where the message is no flow's.
    pub(crate) fn values_of(&self, terminal: u64) -> Values<'_> {
        let (group, _) = self.groups.of(terminal);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let since_1970 = since_1970.unwrap_or_default().as_millis();
        Values {
            terminal,
            group,
            mark: None,
            unix_ms: u64::try_from(since_1970).unwrap_or(u64::MAX),
            accounts: &self.accounts,
            matched: b"",
        }
    }

    /// How many get a message of a sender for a group now, and how many places its audience has.
    pub(crate) fn audience_of(
        &self,
        ledger: &FlowLedger,
        audience: Audience,
        (group, sender): (u32, u64),
    ) -> (u32, u32) {
        let members = self.groups.size(group);
        let presence = &ledger.presence;
        let is_there = u32::from(presence.is_there(sender));
        match audience {
            Audience::Group => (presence.open_in(group), members),
            Audience::Others => (presence.open_in(group).saturating_sub(is_there), members),
            Audience::Sender => (is_there, 1),
            Audience::All => (presence.open_in_all(), self.groups.terminals()),
            Audience::Answer => (0, 0),
        }
    }
}
