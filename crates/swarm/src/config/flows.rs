//! What clients and callers say by a scenario, and who must get it.

mod calls;
mod planning;

pub(crate) use calls::CALL_CONNECTIONS_DEFAULT;
use calls::CALL_CONNECTIONS_MAX;
pub(super) use calls::is_of_length;
pub(super) use planning::{pattern, template};

use super::commands::{self, Command};
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::groups::{GroupRule, GroupsMisfit};
use crate::engine::flows::plan::{Audience, Pace};
use crate::engine::flows::template::TemplateError;
use crate::engine::framing::Unfit;
use crate::protocol::Protocol;
use crate::target::UrlError;
use std::time::Duration;

/// What clients and callers say in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// What templates take from accounts.
    pub accounts: Accounts,
    /// What each client says when it opens. One with an answer is followed by the next when that has come.
    pub opening: Vec<Said>,
    /// What takes the place of ping frames.
    pub heartbeat: Option<Said>,
    /// What clients reply to what comes.
    pub replies: Vec<Reply>,
    /// Each line of what comes is a message.
    pub are_lines: bool,
    /// How clients are dealt out to groups.
    pub groups: GroupRule,
    /// The channel that all members of a group subscribe to, as a template: by command, or in the URL. None: they join by what they
    /// say, or not at all.
    pub channel: Option<String>,
    /// At most 16.
    pub flows: Vec<Flow>,
    /// Time between the end of connecting and the first message of a flow.
    pub warmup: Duration,
}

/// Something that a client says by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The template.
    pub send: String,
    /// Whether it is sent as a binary message.
    pub is_binary: bool,
    /// A regular expression that its answer matches; none: no answer is awaited.
    pub answer: Option<String>,
}

/// What a client says when something comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// A regular expression that the message matches.
    pub to: String,
    /// The template.
    pub send: String,
    /// Whether it is sent as a binary message.
    pub is_binary: bool,
}

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name in the report and in thresholds.
    pub name: String,
    /// When its messages are sent.
    pub pace: Pace,
    /// Who must receive it.
    pub audience: Audience,
    /// Where the stamp is in what comes back.
    pub stamp: StampPlace,
    /// How it leaves.
    pub route: FlowRoute,
}

/// How the messages of a flow leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowRoute {
    /// Over the connections of clients.
    Socket {
        /// The template.
        send: String,
        /// Whether it is sent as a binary message.
        is_binary: bool,
    },
    /// As commands of clients with sessions.
    Command(Command),
    /// As requests of clients, over their connections.
    Request(ClientRequest),
    /// As requests beside the crowd.
    Http(Call),
}

impl FlowRoute {
    /// Whether somebody can be told to know its messages again. A message over a connection that nothing answers must have a stamp,
    /// and then it has none only by mistake.
    pub(crate) fn has_stamp(&self) -> bool {
        let has_stamp = |text: &String| text.contains("${stamp");
        match self {
            Self::Socket { .. } => true,
            Self::Command(command) if command.action == commands::Action::Send => true,
            Self::Command(command) => command.data.as_ref().is_some_and(has_stamp),
            // Its answer is all that is expected.
            Self::Request(_) => false,
            Self::Http(call) => {
                let values = call.text.headers.iter().map(|(_, value)| value);
                let parts = values.chain(&call.text.body);
                let mut parts = parts.chain(std::iter::once(&call.url));
                parts.any(has_stamp)
            }
        }
    }
}

/// An HTTP request of a flow, by callers beside the crowd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where to; no variables up to the path.
    pub url: String,
    /// What it says.
    pub text: RequestText,
    /// Requests under way at once, each on a kept connection.
    pub connections: u32,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// Path and query, behind the path of the target.
    pub path: String,
    /// What it says.
    pub text: RequestText,
}

/// What requests of callers and of clients say, and what is to be answered. All texts are templates, as their URLs and paths are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestText {
    /// POST with a body, GET without one, unless it is given.
    pub method: Option<String>,
    /// Beside the ones that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
    /// A regular expression that the answer's body matches.
    pub answer: Option<String>,
    /// Statuses that an answer may have; empty: any of success.
    pub statuses: Vec<u16>,
}

/// Where a stamp is in what comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StampPlace {
    /// Anywhere, as a text.
    Anywhere,
    /// A JSON pointer.
    Json(String),
    /// A regular expression: its first group, or the whole match.
    Pattern(String),
    /// A byte.
    Offset(usize),
}

/// Something about flows that cannot be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowError {
    /// There are too many of something: how many, and the most.
    #[error("{0} are given; {1} is the most")]
    Count(usize, usize),
    /// A name that is empty or has a colon.
    #[error("'{0}' cannot name a flow; write a name without a colon, such as chat")]
    Name(String),
    /// The name of another flow.
    #[error(
        "two flows are named '{0}'; give each a name of its own, because reports and thresholds tell flows by their names"
    )]
    NameTaken(String),
    /// The groups do not fit the crowd.
    #[error("{0}")]
    Groups(GroupsMisfit),
    /// Clients are to think, and nothing answers them.
    #[error("clients think behind an answer, and {0}; give a `rate` in place of `think`")]
    ThinkWithout(&'static str),
    /// A rate of zero, or too high.
    #[error("{0}/s is out of range; give more than 0 and at most 10m/s")]
    Rate(f64),
    /// A template that cannot be filled in.
    #[error("{0}")]
    Template(TemplateError),
    /// A regular expression that is none, and why.
    #[error("this is no regular expression: {0}")]
    Pattern(String),
    /// A JSON pointer without its slash.
    #[error("'{0}' is no JSON pointer; it begins with a slash, such as /data/id")]
    Pointer(String),
    /// Bytes in a text message.
    #[error("this may be no text, because a variable stands for bytes; write binary = true")]
    Bytes,
    /// Bytes in a request.
    #[error("a request is a text; leave out variables that stand for bytes")]
    BytesOfRequest,
    /// A request's URL.
    #[error("{0}")]
    Url(UrlError),
    /// Variables in the host.
    #[error(
        "variables stand behind the host only; write them into the path, the query or a header"
    )]
    Host,
    /// A request's method.
    #[error("'{0}' is no method of HTTP; write one such as GET or POST")]
    Method(String),
    /// The path of a request.
    #[error(
        "'{0}' is no path of a request; begin it with a slash, and percent-encode what cannot stand in a URL"
    )]
    Path(String),
    /// A status that HTTP does not have.
    #[error("{0} is no status of an answer; give some from 200 to 599")]
    Status(u16),
    /// Requests of clients that send none: what they speak.
    #[error(
        "clients of {0} send no requests; write protocol = \"http\" in [terminals], or give the flow a url"
    )]
    NoRequests(&'static str),
    /// Something else than requests of clients that send nothing else: what they speak.
    #[error("clients of {0} send requests; give the flow a path")]
    Requests(&'static str),
    /// The name of a header.
    #[error("'{0}' cannot name a header; write letters, digits and hyphens")]
    Header(String),
    /// A header that says how long the body is.
    #[error("'{0}' is written as the body needs it; leave it out")]
    LengthHeader(String),
    /// The value of a header has more than one line: the header's name.
    #[error("the value of {0} cannot be sent; take out line breaks and other control characters")]
    HeaderValue(String),
    /// Requests at once.
    #[error("{0} is out of range; give 1 to {CALL_CONNECTIONS_MAX} connections")]
    Connections(u32),
    /// An answer of its own to something that has none.
    #[error(
        "only requests and commands have an answer of their own; give a url, or write expect = \"sender\""
    )]
    Answer,
    /// More than an answer to a request of a client.
    #[error("clients of http hear nothing but answers; write expect = \"answer\", or leave it out")]
    OnlyAnswers,
    /// A command of clients that have no session.
    #[error(
        "`{0}` is a command of clients with a session; write protocol = {names} in [terminals]",
        names = Protocol::listed(Protocol::has_session)
    )]
    NoSession(&'static str),
    /// A message of clients that only receive: what they speak.
    #[error("clients of {0} only receive; give the flow a url, where callers send it to")]
    Receiver(&'static str),
    /// A key that an action needs, or that it does not have: the action, the key, and whether it is needed.
    #[error("the action {0} {wants} `{1}`; {then}", wants = if *.2 { "needs" } else { "has no" }, then = if *.2 { "write it too" } else { "leave it out" })]
    OfAction(&'static str, &'static str, bool),
    /// A command that is about a channel, and none is known.
    #[error("there is no channel to do this in; write `channel` in [groups], or in the flow")]
    NoChannel,
    /// A channel without a name.
    #[error("a channel has a name; write one such as \"room-${{group}}\"")]
    NoChannelName,
    /// Groups with the same channel: its name, and two of them.
    #[error("the groups {1} and {2} would both have the channel {0}; write ${{group}} into it")]
    SharedChannel(String, u32, u32),
    /// Members of a group with several channels: the group, and two of them.
    #[error(
        "members of the group {0} would subscribe to {1} and to {2}; let `column` deal them out by the same, or write ${{group}}"
    )]
    SplitGroup(u32, String, String),
    /// A group's channel is among those that every client subscribes to.
    #[error("clients subscribe to {0} already; leave it out of the targets and of `channels`")]
    SubscribedTwice(String),
    /// Data of a command in JSON that is no JSON, and why.
    #[error("the data of a command in JSON is a JSON value, which this is not: {0}")]
    NoJson(String),
    /// Bytes in the data of a command in JSON.
    #[error(
        "the data of a command in JSON is a text; leave out variables that stand for bytes, or write protocol = \"centrifuge-protobuf\""
    )]
    BytesOfJson,
    /// A message that no frame holds.
    #[error("this does not fit [framing]: {0}")]
    Unfit(Unfit),
    /// Numbers as bytes between delimiters.
    #[error(
        "the delimiter may be among the bytes of a number; write the number as a text, or tell messages apart by = \"length\""
    )]
    DelimiterInBytes,
    /// Beside something that flows do not go with.
    #[error("{0} do not go with {1}; leave one of them out")]
    With(&'static str, &'static str),
}

/// What is wrong, and at which key below the one that is looked at.
pub(super) type Wrong = (&'static str, FlowError);
