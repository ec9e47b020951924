//! What clients with sessions do in flows: commands of the Centrifuge protocol; and the channels of groups.

use super::flows::{FlowError, Wrong, pattern, template};
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::groups::Groups;
use crate::engine::flows::plan::CommandPlan;
use crate::engine::flows::template::{Place, Template, Values};
use crate::random::Random;
use myriad_wire::centrifuge::Encoding;
use std::collections::HashMap;

/// What a command asks of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Publish to a channel.
    Publish,
    /// Call a method of the application.
    Rpc,
    /// Ask for publications that a channel keeps.
    History,
    /// Ask who is subscribed to a channel.
    Presence,
    /// Ask how many are.
    PresenceStats,
    /// Send something to the application, which is never answered.
    Send,
}

impl Action {
    /// As scenarios write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Rpc => "rpc",
            Self::History => "history",
            Self::Presence => "presence",
            Self::PresenceStats => "presence-stats",
            Self::Send => "send",
        }
    }

    /// Whether it is about a channel.
    pub(crate) fn has_channel(self) -> bool {
        !matches!(self, Self::Rpc | Self::Send)
    }

    /// Whether it carries data.
    pub(crate) fn has_data(self) -> bool {
        matches!(self, Self::Publish | Self::Rpc | Self::Send)
    }
}

/// A command of clients with sessions. All its texts but the method are templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What it asks.
    pub action: Action,
    /// What it is about; none: the channel of the sender's group.
    pub channel: Option<String>,
    /// What it carries.
    pub data: Option<String>,
    /// Of `rpc`.
    pub method: Option<String>,
    /// Of `history`: the most publications that are asked for.
    pub limit: u32,
    /// Of `rpc`: a regular expression that the data of its reply matches.
    pub answer: Option<String>,
}

/// The commands of a flow, and whether their data has a stamp.
pub(super) fn planned(
    given: &Command,
    encoding: Option<Encoding>,
    groups_have_channels: bool,
    accounts: &Accounts,
) -> Result<(CommandPlan, bool), Wrong> {
    let action = given.action;
    let encoding = encoding.ok_or(("action", FlowError::NoSession(action.name())))?;
    let mut needed = [
        ("send", action.has_data(), given.data.is_some()),
        ("method", action == Action::Rpc, given.method.is_some()),
    ]
    .into_iter();
    if let Some((key, needs, _)) = needed.find(|(_, needs, has)| needs != has) {
        let wrong = FlowError::OfAction(action.name(), key, needs);
        return Err((if needs { "action" } else { key }, wrong));
    }
    if given.answer.is_some() && action != Action::Rpc {
        let wrong = FlowError::OfAction(action.name(), "answer", false);
        return Err(("answer", wrong));
    }
    let channel = given.channel.as_ref();
    match (action.has_channel(), channel) {
        (false, Some(_)) => {
            let wrong = FlowError::OfAction(action.name(), "channel", false);
            return Err(("channel", wrong));
        }
        (true, None) if !groups_have_channels => return Err(("action", FlowError::NoChannel)),
        _ => {}
    }
    let channel = channel.map(|text| template("channel", text, Place::Said, accounts));
    let data = given.data.as_ref();
    let data = data.map(|text| data_of(text, encoding, accounts));
    let data = data.transpose()?;
    let has_stamp = data.as_ref().is_some_and(Template::has_stamp);
    let answer = given.answer.as_ref();
    let plan = CommandPlan {
        action,
        channel: channel.transpose()?,
        data,
        method: given.method.clone().unwrap_or_default(),
        limit: given.limit,
        answer: answer.map(|text| pattern("answer", text)).transpose()?,
    };
    Ok((plan, has_stamp))
}

/// The data of a command. In JSON it is a JSON value, which is checked with something in place of each variable.
fn data_of(text: &str, encoding: Encoding, accounts: &Accounts) -> Result<Template, Wrong> {
    let data = template("send", text, Place::Flow, accounts)?;
    if encoding == Encoding::Json {
        if data.is_binary() {
            return Err(("send", FlowError::BytesOfJson));
        }
        let mut sample = Vec::new();
        data.write(&mut sample, &Values::sample(accounts), &mut Random::new(0));
        let read: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&sample);
        read.map_err(|error| ("send", FlowError::NoJson(error.to_string())))?;
    }
    Ok(data)
}

/// The channel of each group, by a template in which all members of a group must agree. A group without members has no channel.
pub(super) fn channels_of_groups(
    text: &str,
    groups: &Groups,
    accounts: &Accounts,
) -> Result<Vec<String>, FlowError> {
    let template = Template::parse(text, Place::Channel, accounts).map_err(FlowError::Template)?;
    let mut names = vec![String::new(); groups.count()];
    let (mut owners, mut random) = (HashMap::new(), Random::new(0));
    for terminal in 0..u64::from(groups.terminals()) {
        let (group, place) = groups.of(terminal);
        if place > 0 && !template.has_account() {
            continue;
        }
        let values = Values {
            terminal,
            group,
            ..Values::sample(accounts)
        };
        let mut name = Vec::new();
        template.write(&mut name, &values, &mut random);
        let name = String::from_utf8(name).map_err(|_| FlowError::NoChannelName)?;
        if name.is_empty() {
            return Err(FlowError::NoChannelName);
        }
        let known = &mut names[group as usize];
        if place > 0 {
            if *known != name {
                return Err(FlowError::SplitGroup(group, known.clone(), name));
            }
            continue;
        }
        if let Some(other) = owners.insert(name.clone(), group) {
            return Err(FlowError::SharedChannel(name, other, group));
        }
        *known = name;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::flows::groups::GroupRule;

    fn channels(text: &str, rule: GroupRule) -> Result<Vec<String>, FlowError> {
        let accounts = Accounts::parse("room,user\nred,a\nblue,b\n").expect("a table");
        let groups = Groups::deal(&rule, 6, &accounts, &[6]).expect("it fits");
        channels_of_groups(text, &groups, &accounts)
    }

    #[test]
    fn every_group_has_a_channel_of_its_own() {
        let even = || GroupRule::Even(3);
        let names = channels("im:room-${group}", even());
        assert_eq!(
            names,
            Ok(["im:room-0", "im:room-1", "im:room-2"]
                .map(str::to_owned)
                .to_vec())
        );
        let shared = channels("news", even());
        assert_eq!(
            shared,
            Err(FlowError::SharedChannel("news".to_owned(), 0, 1))
        );
        assert_eq!(channels("", even()), Err(FlowError::NoChannelName));
    }

    #[test]
    fn members_of_a_group_agree_on_its_channel() {
        let by_room = || GroupRule::Column("room".to_owned());
        let names = channels("room:${account:room}", by_room());
        assert_eq!(
            names,
            Ok(["room:red", "room:blue"].map(str::to_owned).to_vec())
        );
        let split = channels("${account:user}", GroupRule::Even(1));
        let wanted = FlowError::SplitGroup(0, "a".to_owned(), "b".to_owned());
        assert_eq!(split, Err(wanted));
        let misplaced = |name: &str| {
            let error = crate::TemplateError::Misplaced(name.to_owned());
            Err(FlowError::Template(error))
        };
        assert_eq!(channels("${terminal}", by_room()), misplaced("terminal"));
        assert_eq!(channels("${random:4}", by_room()), misplaced("random:4"));
    }
}
