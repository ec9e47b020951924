//! What clients and callers say by a scenario, and who must get it.

use super::Config;
use super::commands::{self, Command};
use crate::config::Endpoint;
use crate::config_error::ConfigError;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::groups::{GroupRule, Groups};
use crate::engine::flows::mark::{FLOWS_MAX, MarkPlace};
use crate::engine::flows::plan::{
    self, Audience, CallPlan, FlowPlan, FlowsPlan, Pace, ReplyPlan, Route,
};
use crate::engine::flows::template::{Place, Template, TemplateError};
use crate::protocol::Protocol;
use crate::target::UrlError;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use myriad_wire::centrifuge::Encoding;
use regex::bytes::Regex;
use std::sync::Arc;
use std::time::Duration;

/// Most messages that a client says when it opens, and most replies that it knows.
const SAID_MAX: usize = 16;

/// Requests of a flow that are under way at once, when no other number is given, and at most.
pub(crate) const CALL_CONNECTIONS_DEFAULT: u32 = 32;
const CALL_CONNECTIONS_MAX: u32 = 10_000;

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
            Self::Http(call) => {
                let values = call.headers.iter().map(|(_, value)| value);
                let mut parts = values.chain(&call.body).chain(std::iter::once(&call.url));
                parts.any(has_stamp)
            }
        }
    }
}

/// An HTTP request of a flow. All its texts are templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where to; no variables up to the path.
    pub url: String,
    /// POST with a body, GET without one, unless it is given.
    pub method: Option<String>,
    /// Beside the ones that HTTP needs.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
    /// A regular expression that the answer's body matches.
    pub answer: Option<String>,
    /// Requests under way at once, each on a kept connection.
    pub connections: u32,
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
    /// A name that is empty, has a colon, or is another flow's.
    #[error("'{0}' cannot name a flow; give each a name of its own, without a colon")]
    Name(String),
    /// The groups do not fit the crowd.
    #[error(
        "clients cannot be dealt out to these groups; give 1 to {0} groups, sizes that add up to the {0} clients, or a column of the accounts"
    )]
    Groups(u64),
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
    /// The name of a header.
    #[error("'{0}' cannot name a header")]
    Header(String),
    /// Requests at once.
    #[error("{0} is out of range; give 1 to {CALL_CONNECTIONS_MAX} connections")]
    Connections(u32),
    /// An answer of its own to something that has none.
    #[error(
        "only requests and commands have an answer of their own; give a url, or write expect = \"sender\""
    )]
    Answer,
    /// A command of clients that have no session.
    #[error(
        "`{0}` is a command of clients with a session; write protocol = \"centrifuge-json\" or \"centrifuge-protobuf\" in [terminals]"
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
    /// Beside something that flows do not go with.
    #[error("{0} do not go with {1}; leave one of them out")]
    With(&'static str, &'static str),
}

/// What is wrong, and at which key below the one that is looked at.
pub(super) type Wrong = (&'static str, FlowError);

impl Config {
    /// The flows as threads need them.
    pub(super) fn plan_flows(&self) -> Result<Option<Arc<FlowsPlan>>, ConfigError> {
        let Some(flows) = &self.flows else {
            return Ok(None);
        };
        self.check_flows(flows)?;
        let connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let accounts = &flows.accounts;
        let slices = self.dealt.as_ref().map(|dealt| dealt.deal.slices());
        let parts: Vec<u32> = match slices {
            Some(slices) if flows.keep_groups() => slices.iter().map(|it| it.terminals).collect(),
            _ => vec![connections],
        };
        let groups = Groups::deal(&flows.groups, connections, accounts, &parts)
            .ok_or_else(|| at("groups".to_owned())(FlowError::Groups(self.connections)))?;
        let opening = flows.opening.iter().enumerate().map(|(index, one)| {
            let error = |(key, error): Wrong| match key {
                "answer" => at(format!("opening.answers[{index}]"))(error),
                _ => at(format!("opening.send[{index}]"))(error),
            };
            said(one, accounts).map_err(error)
        });
        let heartbeat = flows.heartbeat.as_ref().map(|one| {
            said(one, accounts).map_err(|(key, error)| at(format!("heartbeat.{key}"))(error))
        });
        let replies = flows.replies.iter().enumerate().map(|(index, one)| {
            let error = |(key, error): Wrong| at(format!("replies[{index}].{key}"))(error);
            reply(one, accounts).map_err(error)
        });
        let planned = flows.flows.iter().enumerate().map(|(index, one)| {
            let error = |(key, error): Wrong| at(format!("flows[{index}].{key}"))(error);
            self.flow(one, flows).map_err(error)
        });
        let channels = flows.channel.as_ref().map(|text| {
            let names = commands::channels_of_groups(text, &groups, accounts)?;
            match names.iter().find(|name| self.subscribes_to(name)) {
                Some(name) => Err(FlowError::SubscribedTwice(name.clone())),
                None => Ok(names),
            }
        });
        let channels = channels
            .transpose()
            .map_err(at("groups.channel".to_owned()))?;
        Ok(Some(Arc::new(FlowsPlan {
            accounts: accounts.clone(),
            opening: opening.collect::<Result<_, _>>()?,
            heartbeat: heartbeat.transpose()?,
            replies: replies.collect::<Result<_, _>>()?,
            are_lines: flows.are_lines,
            groups,
            channels: channels.unwrap_or_default(),
            flows: planned.collect::<Result<_, _>>()?,
            settle: self.settle,
        })))
    }

    fn check_flows(&self, flows: &Flows) -> Result<(), ConfigError> {
        for (key, count, most) in [
            ("flows", flows.flows.len(), FLOWS_MAX),
            ("opening.send", flows.opening.len(), SAID_MAX),
            ("replies", flows.replies.len(), SAID_MAX),
        ] {
            if count > most {
                return Err(at(key.to_owned())(FlowError::Count(count, most)));
            }
        }
        for (index, flow) in flows.flows.iter().enumerate() {
            let name = &flow.name;
            let is_taken = flows.flows[..index].iter().any(|other| other.name == *name);
            if name.is_empty() || name.contains(':') || is_taken {
                let key = format!("flows[{index}].name");
                return Err(at(key)(FlowError::Name(name.clone())));
            }
        }
        let with = |key: &str, what, other| Err(at(key.to_owned())(FlowError::With(what, other)));
        if self.protocol != Protocol::Raw
            && let Some((key, what)) = flows.of_raw_clients(self.protocol)
        {
            return with(key, what, self.protocol.name());
        }
        if flows.channel.is_some() && self.recover_from.is_some() {
            return with("groups.channel", "channels of groups", "recover-from");
        }
        if flows.reach_clients() {
            if self.client_publish.is_some() {
                return with("client-publish", "flows", "client-publish");
            }
            if self.echo.is_some() {
                return with("echo", "flows", "echo");
            }
        }
        match flows.flows.is_empty() {
            true => Ok(()),
            false => self.check_warmup(flows.warmup),
        }
    }
}

impl Config {
    /// Whether clients subscribe to a channel wherever they belong to.
    fn subscribes_to(&self, name: &String) -> bool {
        let of_targets = self.targets.iter().flat_map(|target| &target.channels);
        of_targets.chain(&self.channels).any(|known| known == name)
    }

    fn flow(&self, given: &Flow, flows: &Flows) -> Result<FlowPlan, Wrong> {
        let (is_receiver, name) = (self.protocol.http().is_some(), self.protocol.name());
        match given.route {
            FlowRoute::Socket { .. } | FlowRoute::Command(_) if is_receiver => {
                return Err(("send", FlowError::Receiver(name)));
            }
            FlowRoute::Socket { .. } if self.protocol.has_session() => {
                return Err(("send", FlowError::With("messages of any form", name)));
            }
            _ => {}
        }
        let groups_have_channels = flows.channel.is_some();
        flow(
            given,
            self.protocol.encoding(),
            groups_have_channels,
            &flows.accounts,
        )
    }
}

/// What a fleet does not have, and what to do.
pub(crate) type NotInFleets = (&'static str, &'static str);

impl Config {
    /// The sizes of groups that have to stay whole when the crowd is dealt to so many machines; none if nothing is expected of
    /// groups.
    pub(crate) fn groups_to_keep(&self, machines: usize) -> Result<Option<Vec<u32>>, NotInFleets> {
        let Some(flows) = self.flows.as_ref().filter(|flows| flows.keep_groups()) else {
            return Ok(None);
        };
        let all = |flow: &Flow| flow.audience == Audience::All;
        if machines > 1 && flows.flows.iter().any(all) {
            return Err((
                "flows that all clients expect (`expect = \"all\"`) on several agents",
                "give one --agents, or expect them of groups",
            ));
        }
        if machines > 1 && matches!(flows.groups, GroupRule::Column(_)) {
            return Err((
                "groups by a column of accounts on several agents",
                "give `groups.count` or `groups.sizes`, because groups stay whole",
            ));
        }
        let connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        Ok(Groups::sizes(&flows.groups, connections))
    }
}

impl Flows {
    /// The first of what clients of this protocol cannot say or hear, because their protocol has its own: its key, and what it is.
    fn of_raw_clients(&self, protocol: Protocol) -> Option<(&'static str, &'static str)> {
        let has_opening = !self.opening.is_empty();
        let has_lines = self.are_lines && protocol.has_session();
        [
            ("opening", "messages of [opening]", has_opening),
            (
                "heartbeat.send",
                "heartbeats of any form",
                self.heartbeat.is_some(),
            ),
            ("replies", "[[replies]]", !self.replies.is_empty()),
            ("terminals.lines", "lines", has_lines),
        ]
        .into_iter()
        .find_map(|(key, what, is_given)| is_given.then_some((key, what)))
    }

    /// Whether something is expected of whole groups.
    fn keep_groups(&self) -> bool {
        let needs = |flow: &Flow| !matches!(flow.audience, Audience::Sender | Audience::Answer);
        self.flows.iter().any(needs)
    }

    /// Whether clients say or hear anything because of them.
    fn reach_clients(&self) -> bool {
        let is_talk = !self.opening.is_empty() || !self.replies.is_empty();
        let reaches = |flow: &Flow| flow.audience != Audience::Answer;
        is_talk || self.heartbeat.is_some() || self.flows.iter().any(reaches)
    }
}

fn at(key: String) -> impl FnOnce(FlowError) -> ConfigError {
    move |error| ConfigError::Flow(key, error)
}

/// A template of a message over a connection, at the key `send`.
fn message(
    text: &str,
    is_binary: bool,
    place: Place,
    accounts: &Accounts,
) -> Result<Template, Wrong> {
    let template = template("send", text, place, accounts)?;
    match template.is_binary() && !is_binary {
        true => Err(("send", FlowError::Bytes)),
        false => Ok(template),
    }
}

pub(super) fn template(
    key: &'static str,
    text: &str,
    place: Place,
    accounts: &Accounts,
) -> Result<Template, Wrong> {
    Template::parse(text, place, accounts).map_err(|error| (key, FlowError::Template(error)))
}

pub(super) fn pattern(key: &'static str, text: &str) -> Result<Regex, Wrong> {
    Regex::new(text).map_err(|error| (key, FlowError::Pattern(error.to_string())))
}

fn said(given: &Said, accounts: &Accounts) -> Result<plan::Said, Wrong> {
    let answer = given.answer.as_ref();
    Ok(plan::Said {
        template: message(&given.send, given.is_binary, Place::Said, accounts)?,
        is_binary: given.is_binary,
        answer: answer.map(|text| pattern("answer", text)).transpose()?,
    })
}

fn reply(given: &Reply, accounts: &Accounts) -> Result<ReplyPlan, Wrong> {
    Ok(ReplyPlan {
        to: pattern("to", &given.to)?,
        template: message(&given.send, given.is_binary, Place::Reply, accounts)?,
        is_binary: given.is_binary,
    })
}

fn flow(
    given: &Flow,
    encoding: Option<Encoding>,
    groups_have_channels: bool,
    accounts: &Accounts,
) -> Result<FlowPlan, Wrong> {
    if let Some(rate) = given.pace.rate_per_s()
        && !(rate > 0.0 && rate <= super::LOAD_RATE_MAX)
    {
        return Err(("rate", FlowError::Rate(rate)));
    }
    check_think(given)?;
    let (route, has_stamp) = match &given.route {
        FlowRoute::Socket { send, is_binary } => {
            if given.audience == Audience::Answer {
                return Err(("expect", FlowError::Answer));
            }
            let template = message(send, *is_binary, Place::Flow, accounts)?;
            let has_stamp = template.has_stamp();
            let is_binary = *is_binary;
            let route = Route::Socket {
                template,
                is_binary,
            };
            (route, has_stamp)
        }
        FlowRoute::Command(command) => {
            let is_answered = command.action != commands::Action::Send;
            if given.audience == Audience::Answer && !is_answered {
                return Err(("expect", FlowError::Answer));
            }
            let planned = commands::planned(command, encoding, groups_have_channels, accounts);
            let (command, has_stamp) = planned?;
            (Route::Command(Box::new(command)), has_stamp)
        }
        FlowRoute::Http(given) => {
            let (call, has_stamp) = call(given, accounts)?;
            (Route::Http(Box::new(call)), has_stamp)
        }
    };
    if given.audience != Audience::Answer && !has_stamp {
        return Err(("send", FlowError::Template(TemplateError::NoStamp)));
    }
    Ok(FlowPlan {
        name: given.name.clone(),
        pace: given.pace,
        audience: given.audience,
        place: mark_place(&given.stamp)?,
        route,
    })
}

/// Who thinks has to get an answer first.
fn check_think(given: &Flow) -> Result<(), Wrong> {
    let nothing = match &given.route {
        _ if given.pace.think().is_none() => return Ok(()),
        FlowRoute::Http(_) => "requests are sent by callers, who are no clients",
        FlowRoute::Command(command) if command.action == commands::Action::Send => {
            "the application does not answer `send`"
        }
        FlowRoute::Socket { .. } if given.audience == Audience::Others => {
            "the sender is not expected to get its message"
        }
        FlowRoute::Socket { .. } | FlowRoute::Command(_) => return Ok(()),
    };
    Err(("think", FlowError::ThinkWithout(nothing)))
}

fn mark_place(stamp: &StampPlace) -> Result<MarkPlace, Wrong> {
    Ok(match stamp {
        StampPlace::Anywhere => MarkPlace::Anywhere,
        StampPlace::Offset(offset) => MarkPlace::Offset(*offset),
        StampPlace::Json(pointer) if pointer.starts_with('/') => MarkPlace::Json(pointer.clone()),
        StampPlace::Json(pointer) => {
            return Err(("stamp-json", FlowError::Pointer(pointer.clone())));
        }
        StampPlace::Pattern(text) => MarkPlace::Pattern(Box::new(pattern("stamp-regex", text)?)),
    })
}

/// The requests of a flow, and whether any part of them has a stamp.
fn call(given: &Call, accounts: &Accounts) -> Result<(CallPlan, bool), Wrong> {
    let (endpoint, path) = endpoint(&given.url)?;
    let path = template("url", &path, Place::Url, accounts)?;
    let body = given.body.as_ref();
    let body = body.map(|body| template("send", body, Place::Flow, accounts));
    let body = body.transpose()?;
    let mut headers = Vec::new();
    if body.is_some() {
        headers.push((CONTENT_TYPE, "application/json"));
    }
    for (name, value) in &given.headers {
        let wrong = |_| ("headers", FlowError::Header(name.clone()));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(wrong)?;
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
    }
    let headers = headers
        .into_iter()
        .map(|(name, value)| Ok((name, template("headers", value, Place::Flow, accounts)?)));
    let headers: Vec<(HeaderName, Template)> = headers.collect::<Result<_, Wrong>>()?;
    let parts = || {
        let values = headers.iter().map(|(_, value)| value);
        values.chain(&body).chain(std::iter::once(&path))
    };
    if parts().any(Template::is_binary) {
        return Err(("send", FlowError::BytesOfRequest));
    }
    if !(1..=CALL_CONNECTIONS_MAX).contains(&given.connections) {
        return Err(("connections", FlowError::Connections(given.connections)));
    }
    let default = if body.is_some() { "POST" } else { "GET" };
    let method = given.method.as_deref().unwrap_or(default);
    let wrong = |_| ("method", FlowError::Method(method.to_owned()));
    let has_stamp = parts().any(Template::has_stamp);
    let answer = given.answer.as_ref();
    let call = CallPlan {
        method: Method::from_bytes(method.as_bytes()).map_err(wrong)?,
        answer: answer.map(|text| pattern("answer", text)).transpose()?,
        connections: given.connections,
        endpoint,
        path,
        headers,
        body,
    };
    Ok((call, has_stamp))
}

/// Where requests go, and the text of their path.
fn endpoint(url: &str) -> Result<(Endpoint, String), Wrong> {
    let whole = url.split_once('#').map_or(url, |(before, _)| before);
    let host_at = whole.find("://").map_or(0, |at| at + 3);
    let path_at = whole[host_at..].find(['/', '?']);
    let path_at = path_at.map_or(whole.len(), |at| host_at + at);
    let (before, path) = whole.split_at(path_at);
    if before.contains("${") {
        return Err(("url", FlowError::Host));
    }
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    // A URL with something in place of each variable, to see whether it is one.
    let mut sample = before.to_owned();
    let mut rest = &path[..];
    while let Some((text, more)) = rest.split_once("${") {
        sample.push_str(text);
        sample.push('0');
        rest = more.split_once('}').map_or("", |(_, after)| after);
    }
    sample.push_str(rest);
    let endpoint = Endpoint::parse(&sample).map_err(|error| ("url", FlowError::Url(error)))?;
    Ok((endpoint, path))
}
