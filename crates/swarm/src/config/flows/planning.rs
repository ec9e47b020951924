//! From flows as they are given to flows as threads need them.

use super::calls::{call, request};
use super::{Flow, FlowError, FlowRoute, Flows, Reply, Said, StampPlace, Wrong};
use crate::config::commands;
use crate::config::{Config, LOAD_RATE_MAX};
use crate::config_error::ConfigError;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::groups::{GroupRule, Groups};
use crate::engine::flows::mark::{FLOWS_MAX, MarkPlace};
use crate::engine::flows::plan::{self, Audience, FlowPlan, FlowsPlan, ReplyPlan, Route};
use crate::engine::flows::template::{Place, Template, TemplateError, Values};
use crate::engine::framing::{FrameMark, Framing};
use crate::protocol::{Protocol, Speech};
use crate::random::Random;
use myriad_wire::centrifuge::Encoding;
use regex::bytes::{Regex, RegexBuilder};
use std::sync::Arc;

/// Most messages that a client says when it opens, and most replies that it knows.
const SAID_MAX: usize = 16;

impl Config {
    /// The flows as threads need them.
    pub(in crate::config) fn plan_flows(&self) -> Result<Option<Arc<FlowsPlan>>, ConfigError> {
        let Some(flows) = &self.flows else {
            return Ok(None);
        };
        self.check_flows(flows)?;
        let connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        let (accounts, writing) = (&flows.accounts, self.writing(flows));
        let slices = self.dealt.as_ref().map(|dealt| dealt.deal.slices());
        let parts: Vec<u32> = match slices {
            Some(slices) if flows.keep_groups() => slices.iter().map(|it| it.terminals).collect(),
            _ => vec![connections],
        };
        let groups = Groups::deal(&flows.groups, connections, accounts, &parts);
        let groups = groups.ok_or_else(|| {
            let misfit = flows.groups.misfit(connections, accounts);
            at(misfit.key().to_owned())(FlowError::Groups(misfit))
        })?;
        let opening = flows.opening.iter().enumerate().map(|(index, one)| {
            let error = |(key, error): Wrong| match key {
                "answer" => at(format!("opening.answers[{index}]"))(error),
                _ => at(format!("opening.send[{index}]"))(error),
            };
            writing.said(one).map_err(error)
        });
        let heartbeat = flows.heartbeat.as_ref().map(|one| {
            writing
                .said(one)
                .map_err(|(key, error)| at(format!("heartbeat.{key}"))(error))
        });
        let replies = flows.replies.iter().enumerate().map(|(index, one)| {
            let error = |(key, error): Wrong| at(format!("replies[{index}].{key}"))(error);
            writing.reply(one).map_err(error)
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
            let wrong = |error| Err(at(format!("flows[{index}].name"))(error));
            if name.is_empty() || name.contains(':') {
                return wrong(FlowError::Name(name.clone()));
            }
            if flows.flows[..index].iter().any(|other| other.name == *name) {
                return wrong(FlowError::NameTaken(name.clone()));
            }
        }
        let with = |key: &str, what, other| Err(at(key.to_owned())(FlowError::With(what, other)));
        if !self.protocol.has_messages()
            && let Some((key, what)) = flows.of_messages(self.protocol)
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

    fn writing<'a>(&self, flows: &'a Flows) -> Writing<'a> {
        Writing {
            accounts: &flows.accounts,
            framing: self.planned_framing(),
            terminals: u32::try_from(self.connections).unwrap_or(u32::MAX),
        }
    }

    fn flow(&self, given: &Flow, flows: &Flows) -> Result<FlowPlan, Wrong> {
        let name = self.protocol.name();
        match (&given.route, self.protocol.speech()) {
            (
                FlowRoute::Request(_),
                Speech::Messages | Speech::Commands(_) | Speech::Listening(_),
            ) => {
                return Err(("path", FlowError::NoRequests(name)));
            }
            (FlowRoute::Socket { .. } | FlowRoute::Command(_), Speech::Requests) => {
                return Err(("send", FlowError::Requests(name)));
            }
            (FlowRoute::Socket { .. } | FlowRoute::Command(_), Speech::Listening(_)) => {
                return Err(("send", FlowError::Receiver(name)));
            }
            (FlowRoute::Socket { .. }, Speech::Commands(_)) => {
                return Err(("send", FlowError::With("messages of any form", name)));
            }
            (FlowRoute::Http(_), _)
            | (FlowRoute::Request(_), Speech::Requests)
            | (FlowRoute::Command(_), Speech::Commands(_) | Speech::Messages)
            | (FlowRoute::Socket { .. }, Speech::Messages) => {}
        }
        let groups_have_channels = flows.channel.is_some();
        flow(
            given,
            self.protocol.encoding(),
            groups_have_channels,
            &self.writing(flows),
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
    fn of_messages(&self, protocol: Protocol) -> Option<(&'static str, &'static str)> {
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

    /// Whether the answers to requests of clients are looked at.
    pub(in crate::config) fn read_answers(&self) -> bool {
        self.flows.iter().any(|flow| match &flow.route {
            FlowRoute::Request(request) => request.text.answer.is_some(),
            FlowRoute::Socket { .. } | FlowRoute::Command(_) | FlowRoute::Http(_) => false,
        })
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

pub(in crate::config) fn template(
    key: &'static str,
    text: &str,
    place: Place,
    accounts: &Accounts,
) -> Result<Template, Wrong> {
    Template::parse(text, place, accounts).map_err(|error| (key, FlowError::Template(error)))
}

/// An expression that messages are looked through with. With an escape from `\x80` to `\xff` it is one of bytes, as those who write the
/// bytes of a binary protocol mean it: the crate would take such an escape for a letter, which is two bytes long.
pub(in crate::config) fn pattern(key: &'static str, text: &str) -> Result<Regex, Wrong> {
    let regex = RegexBuilder::new(text).unicode(!names_a_byte(text)).build();
    regex.map_err(|error| (key, FlowError::Pattern(error.to_string())))
}

/// Whether it has an escape of two hexadecimal digits for a byte that is no letter of ASCII.
fn names_a_byte(text: &str) -> bool {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let escaped = &rest[at + 1..];
        let digits = escaped.strip_prefix('x').and_then(|after| after.get(..2));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if byte.is_some_and(|byte| !byte.is_ascii()) {
            return true;
        }
        // An escaped backslash begins no escape.
        rest = escaped.get(1..).unwrap_or_default();
    }
    false
}

/// What messages over connections are written with.
struct Writing<'a> {
    accounts: &'a Accounts,
    /// Where clients speak plain TCP.
    framing: Option<Framing>,
    terminals: u32,
}

impl Writing<'_> {
    /// A template of a message over a connection, at the key `send`.
    fn message(&self, text: &str, is_binary: bool, place: Place) -> Result<Template, Wrong> {
        let template = template("send", text, place, self.accounts)?;
        let Some(framing) = &self.framing else {
            return match template.is_binary() && !is_binary {
                true => Err(("send", FlowError::Bytes)),
                false => Ok(template),
            };
        };
        let is_delimited = matches!(framing.mark, FrameMark::Delimiter(_));
        if is_delimited && template.has_numbers_as_bytes() {
            return Err(("send", FlowError::DelimiterInBytes));
        }
        let (mut sample, mut frame) = (Vec::new(), Vec::new());
        let values = Values::longest(self.accounts, self.terminals);
        template.write(&mut sample, &values, &mut Random::new(0));
        match framing.write(&mut frame, &sample) {
            Ok(()) => Ok(template),
            Err(unfit) => Err(("send", FlowError::Unfit(unfit))),
        }
    }

    fn said(&self, given: &Said) -> Result<plan::Said, Wrong> {
        let answer = given.answer.as_ref();
        Ok(plan::Said {
            template: self.message(&given.send, given.is_binary, Place::Said)?,
            is_binary: given.is_binary,
            answer: answer.map(|text| pattern("answer", text)).transpose()?,
        })
    }

    fn reply(&self, given: &Reply) -> Result<ReplyPlan, Wrong> {
        Ok(ReplyPlan {
            to: pattern("to", &given.to)?,
            template: self.message(&given.send, given.is_binary, Place::Reply)?,
            is_binary: given.is_binary,
        })
    }
}

fn flow(
    given: &Flow,
    encoding: Option<Encoding>,
    groups_have_channels: bool,
    writing: &Writing<'_>,
) -> Result<FlowPlan, Wrong> {
    let accounts = writing.accounts;
    if let Some(rate) = given.pace.rate_per_s()
        && !(rate > 0.0 && rate <= LOAD_RATE_MAX)
    {
        return Err(("rate", FlowError::Rate(rate)));
    }
    check_think(given)?;
    let (route, has_stamp) = match &given.route {
        FlowRoute::Socket { send, is_binary } => {
            if given.audience == Audience::Answer {
                return Err(("expect", FlowError::Answer));
            }
            let template = writing.message(send, *is_binary, Place::Flow)?;
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
        FlowRoute::Request(given_request) => {
            if given.audience != Audience::Answer {
                return Err(("expect", FlowError::OnlyAnswers));
            }
            (
                Route::Request(Box::new(request(given_request, accounts)?)),
                false,
            )
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
        FlowRoute::Socket { .. } | FlowRoute::Command(_) | FlowRoute::Request(_) => return Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_of_a_byte_is_that_byte() {
        let is_match =
            |text: &str, message: &[u8]| pattern("answer", text).unwrap().is_match(message);
        assert!(is_match(r"^\x90\x03$", b"\x90\x03"));
        assert!(!is_match(r"^\x90\x03$", "\u{90}\x03".as_bytes()));
        assert!(is_match(r"^[\x80-\xff]+$", b"\x80\xc0\xff"));
        assert!(is_match(r"(?s)^\xe0.{4}$", b"\xe0\x00\xff\n\xfe"));
        // Letters stay letters where no byte is named, and where one is written as a letter.
        assert!(is_match("^gr.n$", "grün".as_bytes()));
        assert!(is_match(r"^\x{fc}$", "ü".as_bytes()));
        assert!(is_match(r"^\\x90$", b"\\x90"));
        assert!(is_match(r"^\x41\w$", "Aü".as_bytes()));
    }
}
