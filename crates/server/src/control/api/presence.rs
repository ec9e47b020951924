//! `presence` and `presence_stats`: who is in a channel.

use super::super::Control;
use super::asking::{self, Turn, page_size};
use super::fault::{Code, Fault};
use super::json::push_client;
use super::method::{Request, Scope};
use super::publication::options_of;
use super::reply::{Json, Reply};
use myriad_shard::{ClientId, Inquiry, InquiryAnswer, MembersPage};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write;
use std::hash::RandomState;

/// Members of one result.
pub(super) const MEMBERS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Presence<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PresenceStats<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
}

fn check(control: &Control, channel: &str) -> Result<(), Fault> {
    let namespaces = control.namespaces.load();
    if options_of(&namespaces, channel)?.presence {
        return Ok(());
    }
    Err(Fault::new(
        Code::NotAvailable,
        format!("channel {channel:?} has no presence; set presence of its namespace"),
    ))
}

/// What each shard says of its members, and the turn to ask for it.
async fn ask<'c>(
    control: &'c Control,
    inquiry: &Inquiry,
) -> Result<(Vec<MembersPage>, Turn<'c>), Fault> {
    let deadline = Control::answers_deadline();
    let turn = asking::turn(control, deadline).await?;
    let answers = asking::every_shard(control, inquiry, deadline).await?;
    let pages = answers
        .into_iter()
        .map(|answer| match answer {
            InquiryAnswer::Members(page) => page,
            other => unreachable!("a shard was asked for members, and answers {other:?}"),
        })
        .collect();
    Ok((pages, turn))
}

impl<'a> Request<'a> for Presence<'a> {
    const FORM: &'static str =
        r#"send {"channel": "name"}, and for a page of members "limit": 100 and "cursor": "text""#;

    fn scope(&self) -> Scope<'_> {
        Scope::channel(&self.channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        check(control, &self.channel)?;
        let is_whole = self.limit.unwrap_or_default() == 0;
        let members_max = page_size(self.limit, MEMBERS_MAX)?;
        let after = match self.cursor.as_deref().unwrap_or_default() {
            "" => None,
            cursor => Some(ClientId::parse(cursor).ok_or_else(|| {
                Fault::bad(
                    "field \"cursor\" is no cursor of a result of presence; send that, or nothing",
                )
            })?),
        };
        let inquiry = Inquiry::Members {
            channel: self.channel.into(),
            after,
            members_max,
        };
        let (pages, _turn) = ask(control, &inquiry).await?;
        members(pages, members_max, is_whole)
    }
}

/// The members of all shards, or the first of them.
fn members(pages: Vec<MembersPage>, members_max: usize, is_whole: bool) -> Reply {
    let has_more = pages.iter().any(|page| page.has_more);
    let mut members: Vec<_> = pages.into_iter().flat_map(|page| page.members).collect();
    let has_more = has_more || members.len() > members_max;
    if has_more && is_whole {
        // Part of a list must not pass for the whole.
        return Err(Fault::new(
            Code::LimitExceeded,
            format!(
                "the channel has more than {members_max} clients; read pages by \"limit\" and \"cursor\""
            ),
        ));
    }
    members.sort_unstable_by_key(|info| info.client);
    members.truncate(members_max);
    let mut json = String::with_capacity(32 + 160 * members.len());
    json.push_str(r#"{"presence":{"#);
    for (index, info) in members.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(json, "{comma}\"{}\":", info.client).expect("a String takes everything");
        push_client(info, &mut json);
    }
    json.push('}');
    if let Some(last) = members.last().filter(|_| has_more) {
        write!(json, r#","cursor":"{}""#, last.client).expect("a String takes everything");
    }
    json.push('}');
    Ok(Json(json))
}

impl<'a> Request<'a> for PresenceStats<'a> {
    const FORM: &'static str = r#"send {"channel": "name"}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::channel(&self.channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        check(control, &self.channel)?;
        let inquiry = Inquiry::MemberCounts {
            channel: self.channel.into(),
            hasher: RandomState::new(),
        };
        let (pages, _turn) = ask(control, &inquiry).await?;
        let clients: u64 = pages.iter().map(|page| u64::from(page.clients)).sum();
        let users: HashSet<u64> = pages.into_iter().flat_map(|page| page.users).collect();
        Ok(Json(format!(
            r#"{{"num_clients":{clients},"num_users":{}}}"#,
            users.len()
        )))
    }
}
