//! From the sections about what clients and callers say to [`Flows`].

use super::fault::Problem;
use super::fill::{Wrong, read};
use super::format::{Action, Assign, Expect, Flow, Groups, Heartbeat, Scenario};
use crate::config::{
    self, CALL_CONNECTIONS_DEFAULT, Call, ClientRequest, Command, FlowRoute, Flows, Pace,
    RequestText, Said, StampPlace, WARMUP_DEFAULT,
};
use crate::engine::flows::accounts::{ACCOUNTS_BYTES_MAX, Accounts};
use crate::engine::flows::groups::GroupRule;
use crate::engine::flows::plan::Audience;
use crate::engine::own_head::has_variables;
use crate::protocol::Protocol;
use std::path::Path;
use std::time::Duration;

/// Publications that `history` asks for when no other limit is given.
const HISTORY_LIMIT_DEFAULT: u32 = 20;

/// What is said in a run; none where the scenario has nothing of it. Its parts are taken out of the scenario.
pub(super) fn flows(
    scenario: &mut Scenario,
    folder: &Path,
    warmup: Option<Duration>,
) -> Result<Option<Flows>, Wrong> {
    let heartbeat = scenario.heartbeat.as_ref().map(said_of);
    let terminals = &scenario.terminals;
    let paths = terminals.targets.iter().map(|target| &target.0.path);
    let has_own_heads = paths
        .chain(terminals.headers.values())
        .any(|text| has_variables(text));
    let protocol = scenario.terminals.protocol;
    let protocol = protocol.map_or(Protocol::default(), |named| named.0);
    let of_what_is_said = [
        ("accounts", "accounts", scenario.accounts.is_some()),
        ("groups", "groups", scenario.groups.is_some()),
        ("terminals.lines", "lines", scenario.terminals.lines),
    ];
    let mut groups = scenario.groups.take().unwrap_or_default();
    let flows = Flows {
        accounts: accounts(scenario, folder)?,
        opening: opening(scenario)?,
        heartbeat: heartbeat.transpose()?.flatten(),
        replies: std::mem::take(&mut scenario.replies)
            .into_iter()
            .map(|reply| config::Reply {
                to: reply.to,
                send: reply.send,
                is_binary: reply.binary,
            })
            .collect(),
        are_lines: scenario.terminals.lines,
        channel: groups.channel.take(),
        groups: group_rule(groups)?,
        flows: std::mem::take(&mut scenario.flows)
            .into_iter()
            .map(|given| flow(given, protocol))
            .collect::<Result<_, _>>()?,
        warmup: warmup.unwrap_or(WARMUP_DEFAULT),
    };
    let is_silent = flows.opening.is_empty()
        && flows.heartbeat.is_none()
        && flows.replies.is_empty()
        && flows.channel.is_none()
        && !has_own_heads
        && flows.flows.is_empty();
    let mut of_what_is_said = of_what_is_said.into_iter();
    match of_what_is_said.find(|(.., is_given)| *is_given) {
        Some((key, name, _)) if is_silent => Err((key, Problem::NothingSaid(name))),
        _ => Ok((!is_silent).then_some(flows)),
    }
}

fn accounts(scenario: &Scenario, folder: &Path) -> Result<Accounts, Wrong> {
    const KEY: &str = "accounts.file";
    let Some(accounts) = &scenario.accounts else {
        return Ok(Accounts::default());
    };
    let path = folder.join(&accounts.file);
    let text = read(KEY, &path, ACCOUNTS_BYTES_MAX)?;
    let wrong = |error: crate::AccountsError| (KEY, Problem::File(path.clone(), error.to_string()));
    Accounts::parse(&text).map_err(wrong)
}

fn opening(scenario: &mut Scenario) -> Result<Vec<Said>, Wrong> {
    let Some(opening) = scenario.opening.take() else {
        return Ok(Vec::new());
    };
    let (said, answers) = (opening.send.len(), opening.answers.len());
    if answers > 0 && answers != said {
        return Err(("opening.answers", Problem::Answers(answers, said)));
    }
    let answers = opening.answers.into_iter().map(Some);
    let answers = answers.chain(std::iter::repeat(None));
    let said = opening.send.into_iter().zip(answers);
    let said = said.map(|(send, answer)| Said {
        send,
        is_binary: opening.binary,
        answer: answer.filter(|answer| !answer.is_empty()),
    });
    Ok(said.collect())
}

/// What takes the place of ping frames; none where those are sent.
fn said_of(heartbeat: &Heartbeat) -> Result<Option<Said>, Wrong> {
    match &heartbeat.send {
        Some(send) => Ok(Some(Said {
            send: send.clone(),
            is_binary: heartbeat.binary,
            answer: heartbeat.answer.clone(),
        })),
        None if heartbeat.binary => Err(("heartbeat.binary", Problem::Needs("binary", "send"))),
        None if heartbeat.answer.is_some() => {
            Err(("heartbeat.answer", Problem::Needs("answer", "send")))
        }
        None => Ok(None),
    }
}

fn group_rule(groups: Groups) -> Result<GroupRule, Wrong> {
    check_group_keys(&groups)?;
    if let Some(column) = groups.column {
        return Ok(GroupRule::Column(column));
    }
    if !groups.sizes.is_empty() {
        return Ok(GroupRule::Sizes(groups.sizes));
    }
    let count = groups
        .count
        .map_or(1, |it| u32::try_from(it.0).unwrap_or(u32::MAX));
    match groups.assign {
        Some(Assign::Zipf) => Ok(GroupRule::Zipf(count, groups.exponent.unwrap_or(1.0))),
        Some(Assign::Even) | None => Ok(GroupRule::Even(count)),
    }
}

/// Groups are those of a column, or have given sizes, or are so many. Each other key goes with one of these.
fn check_group_keys(groups: &Groups) -> Result<(), Wrong> {
    let (has_column, has_sizes) = (groups.column.is_some(), !groups.sizes.is_empty());
    let has_count = groups.count.is_some();
    let (has_assign, has_exponent) = (groups.assign.is_some(), groups.exponent.is_some());
    let excluded = [
        ("groups.column", "count", "column", has_count && has_column),
        ("groups.column", "sizes", "column", has_sizes && has_column),
        ("groups.sizes", "count", "sizes", has_count && has_sizes),
        (
            "groups.assign",
            "column",
            "assign",
            has_column && has_assign,
        ),
        ("groups.assign", "sizes", "assign", has_sizes && has_assign),
        (
            "groups.exponent",
            "column",
            "exponent",
            has_column && has_exponent,
        ),
        (
            "groups.exponent",
            "sizes",
            "exponent",
            has_sizes && has_exponent,
        ),
    ];
    let mut excluded = excluded.into_iter();
    if let Some((key, one, other, _)) = excluded.find(|(.., are_given)| *are_given) {
        return Err((key, Problem::Either(one, other)));
    }
    let is_zipf = matches!(groups.assign, Some(Assign::Zipf));
    match groups.exponent {
        Some(_) if !is_zipf => Err((
            "groups.exponent",
            Problem::Needs("exponent", "assign = \"zipf\""),
        )),
        Some(exponent) if !(0.0..=10.0).contains(&exponent) => {
            Err(("groups.exponent", Problem::Exponent))
        }
        _ => Ok(()),
    }
}

fn flow(given: Flow, protocol: Protocol) -> Result<config::Flow, Wrong> {
    let places = [
        given.stamp_json.clone().map(StampPlace::Json),
        given.stamp_regex.clone().map(StampPlace::Pattern),
        given
            .stamp_offset
            .map(|offset| StampPlace::Offset(offset as usize)),
    ];
    let mut places = places.into_iter().flatten();
    let stamp = places.next().unwrap_or(StampPlace::Anywhere);
    if places.next().is_some() {
        return Err((FLOWS, Problem::StampPlaces));
    }
    let pace = match (&given.rate, &given.think) {
        (Some(rate), None) => Pace::Rate(rate.0),
        (None, Some(think)) => Pace::Think(think.0),
        (Some(_), Some(_)) => return Err((FLOWS, Problem::Either("rate", "think"))),
        (None, None) => return Err((FLOWS, Problem::NoPace(given.name))),
    };
    let (expect, name) = (given.expect, given.name.clone());
    let route = match &given.url {
        Some(_) => call(given)?,
        None if given.path.is_some() || protocol.has_requests() => request(given)?,
        None if protocol.has_session() || given.action.is_some() => command(given)?,
        None => message(given)?,
    };
    let audience = match expect {
        Some(Expect::Group) => Audience::Group,
        Some(Expect::Others) => Audience::Others,
        Some(Expect::Sender) => Audience::Sender,
        Some(Expect::All) => Audience::All,
        Some(Expect::Answer) => Audience::Answer,
        None if route.has_stamp() => Audience::Group,
        None => Audience::Answer,
    };
    Ok(config::Flow {
        name,
        pace,
        audience,
        stamp,
        route,
    })
}

/// The key under which what is wrong with the keys of a flow is shown.
const FLOWS: &str = "flows";

/// The first of these keys that is given.
fn given_of(keys: &[(&'static str, bool)]) -> Option<&'static str> {
    let given = keys.iter().find(|(_, is_given)| *is_given);
    given.map(|(key, _)| *key)
}

/// A request of callers.
fn call(given: Flow) -> Result<FlowRoute, Wrong> {
    let of_clients = [
        ("binary", given.binary),
        ("action", given.action.is_some()),
        ("channel", given.channel.is_some()),
        ("limit", given.limit.is_some()),
        ("path", given.path.is_some()),
    ];
    if let Some(key) = given_of(&of_clients) {
        return Err((FLOWS, Problem::Either(key, "url")));
    }
    Ok(FlowRoute::Http(Call {
        connections: given.connections.unwrap_or(CALL_CONNECTIONS_DEFAULT),
        url: given.url.clone().unwrap_or_default(),
        text: text(given),
    }))
}

/// What a request says.
fn text(given: Flow) -> RequestText {
    RequestText {
        method: given.method,
        headers: given.headers.into_iter().collect(),
        body: given.send,
        answer: given.answer,
        statuses: given.status,
    }
}

/// A request of clients.
fn request(given: Flow) -> Result<FlowRoute, Wrong> {
    let of_others = [
        ("binary", given.binary),
        ("action", given.action.is_some()),
        ("channel", given.channel.is_some()),
        ("limit", given.limit.is_some()),
    ];
    if let Some(key) = given_of(&of_others) {
        return Err((FLOWS, Problem::Either(key, "path")));
    }
    if given.connections.is_some() {
        return Err((FLOWS, Problem::Needs("connections", "url")));
    }
    let missing = || (FLOWS, Problem::MissingKey("path".to_owned()));
    Ok(FlowRoute::Request(ClientRequest {
        path: given.path.clone().ok_or_else(missing)?,
        text: text(given),
    }))
}

/// A command of clients with a session.
fn command(given: Flow) -> Result<FlowRoute, Wrong> {
    let of_requests = [
        ("headers", !given.headers.is_empty()),
        ("status", !given.status.is_empty()),
        ("connections", given.connections.is_some()),
    ];
    if let Some(key) = given_of(&of_requests) {
        return Err((FLOWS, Problem::Needs(key, "url")));
    }
    if given.binary {
        return Err((FLOWS, Problem::Either("binary", "action")));
    }
    let action = match given.action {
        None | Some(Action::Publish) => config::Action::Publish,
        Some(Action::Rpc) => config::Action::Rpc,
        Some(Action::History) => config::Action::History,
        Some(Action::Presence) => config::Action::Presence,
        Some(Action::PresenceStats) => config::Action::PresenceStats,
        Some(Action::Send) => config::Action::Send,
    };
    if given.limit.is_some() && action != config::Action::History {
        return Err((FLOWS, Problem::Needs("limit", "action = \"history\"")));
    }
    Ok(FlowRoute::Command(Command {
        action,
        channel: given.channel,
        data: given.send,
        method: given.method,
        limit: given.limit.unwrap_or(HISTORY_LIMIT_DEFAULT),
        answer: given.answer,
    }))
}

/// A message of clients that say what the scenario has.
fn message(given: Flow) -> Result<FlowRoute, Wrong> {
    let of_requests = [
        ("method", given.method.is_some()),
        ("headers", !given.headers.is_empty()),
        ("status", !given.status.is_empty()),
        ("answer", given.answer.is_some()),
        ("connections", given.connections.is_some()),
    ];
    if let Some(key) = given_of(&of_requests) {
        return Err((FLOWS, Problem::Needs(key, "url")));
    }
    let of_commands = [
        ("channel", given.channel.is_some()),
        ("limit", given.limit.is_some()),
    ];
    if let Some(key) = given_of(&of_commands) {
        return Err((FLOWS, Problem::Needs(key, "action")));
    }
    let missing = || (FLOWS, Problem::MissingKey("send".to_owned()));
    Ok(FlowRoute::Socket {
        send: given.send.ok_or_else(missing)?,
        is_binary: given.binary,
    })
}
