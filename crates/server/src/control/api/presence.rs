//! `presence` and `presence_stats`: who is in a channel.

use super::super::Control;
use super::asking::{self, Turn, page_size};
use super::everywhere::{self, Everywhere, Merged, Results, parsed};
use super::fault::{Code, Fault};
use super::json::push_client;
use super::method::{Request, Scope};
use super::publication::options_of;
use super::reply::{Json, Reply};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use myriad_shard::{ClientId, ClientInfo, Inquiry, InquiryAnswer, MembersPage, UserHasher};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{Display, Write};
use std::sync::Arc;

/// Members of one result.
pub(super) const MEMBERS_MAX: usize = 10_000;

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Presence<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize, Serialize)]
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
    let pages = answers.into_iter().map(|answer| match answer {
        InquiryAnswer::Members(page) => Ok(page),
        other => Err(asking::defective("members", &other)),
    });
    Ok((pages.collect::<Result<_, _>>()?, turn))
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
        let has_more = pages.iter().any(|page| page.has_more);
        let mut members: Vec<_> = pages.into_iter().flat_map(|page| page.members).collect();
        members.sort_unstable_by_key(|info| info.client);
        let members = members.iter().map(|info| (info.client, info));
        list(members, has_more, (members_max, is_whole), push_client)
    }
}

/// The first of these members, which are in the order of their ids. `has_more` if there are others behind them. Where all are wanted,
/// part of the list must not pass for the whole.
fn list<C: Copy + Display, M>(
    members: impl ExactSizeIterator<Item = (C, M)>,
    has_more: bool,
    (members_max, is_whole): (usize, bool),
    push: impl Fn(M, &mut String),
) -> Reply {
    let has_more = has_more || members.len() > members_max;
    if has_more && is_whole {
        return Err(Fault::new(
            Code::LimitExceeded,
            format!(
                "the channel has more than {members_max} clients; read pages by \"limit\" and \"cursor\""
            ),
        ));
    }
    let mut json = String::with_capacity(32 + 160 * members.len().min(members_max));
    json.push_str(r#"{"presence":{"#);
    let mut last = None;
    for (client, member) in members.take(members_max) {
        let comma = if last.is_none() { "" } else { "," };
        write!(json, r#"{comma}"{client}":"#).expect("a String takes everything");
        push(member, &mut json);
        last = Some(client);
    }
    json.push('}');
    if let Some(last) = last.filter(|_| has_more) {
        write!(json, r#","cursor":"{last}""#).expect("a String takes everything");
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
        let seed = everywhere::seed();
        Ok(self.count(control, seed).await?.told())
    }
}

impl PresenceStats<'_> {
    /// Answers another node, with its seed.
    pub(super) async fn answer_node(self, control: &Control, seed: u64) -> Reply {
        Ok(Json::of(&self.count(control, seed).await?))
    }

    /// The members of this node.
    async fn count(self, control: &Control, seed: u64) -> Result<Counts, Fault> {
        check(control, &self.channel)?;
        let inquiry = Inquiry::MemberCounts {
            channel: self.channel.into(),
            hasher: UserHasher::new(seed),
        };
        let (pages, _turn) = ask(control, &inquiry).await?;
        Ok(Counts {
            clients: pages.iter().map(|page| page.clients).sum(),
            users: pages.into_iter().flat_map(|page| page.users).collect(),
        })
    }
}

/// How many members there are. Nodes tell each other this; the API tells only how many users there are.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Counts {
    clients: u32,
    /// Hashes of users, with one seed on all nodes.
    users: HashSet<u64>,
}

impl Counts {
    fn told(&self) -> Json {
        Json(format!(
            r#"{{"num_clients":{},"num_users":{}}}"#,
            self.clients,
            self.users.len()
        ))
    }
}

/// Members of a node, or of several: of each its JSON, by its client id.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    presence: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
}

impl<'a> Everywhere<'a> for Presence<'a> {
    fn merge(&self, results: &mut Results<'_>) -> Merged {
        let is_whole = self.limit.unwrap_or_default() == 0;
        let pages: Vec<Page<'_>> = results.read();
        let merge = || -> Reply {
            let members_max = page_size(self.limit, MEMBERS_MAX)?;
            let (mut members, mut has_more) = (BTreeMap::new(), false);
            for page in pages {
                members.extend(page.presence);
                has_more |= page.cursor.is_some();
            }
            let push = |member: &RawValue, json: &mut String| json.push_str(member.get());
            list(members.into_iter(), has_more, (members_max, is_whole), push)
        };
        Merged::List(merge())
    }
}

impl<'a> Everywhere<'a> for PresenceStats<'a> {
    fn merge(&self, results: &mut Results<'_>) -> Merged {
        let mut all = Counts::default();
        for counts in results.read::<Counts>() {
            all.clients = all.clients.saturating_add(counts.clients);
            all.users.extend(counts.users);
        }
        Merged::List(Ok(all.told()))
    }
}

/// The request for the first members of a channel after one.
pub(in super::super) fn members_of_node(
    channel: &str,
    after: Option<ClientId>,
    members_max: usize,
) -> String {
    let request = Presence {
        channel: channel.into(),
        limit: i64::try_from(members_max).ok(),
        cursor: after.map(|after| after.to_string().into()),
    };
    Json::of(&request).0
}

/// The request for the number of a channel's members.
pub(in super::super) fn counts_of_node(channel: &str) -> String {
    let request = PresenceStats {
        channel: channel.into(),
    };
    Json::of(&request).0
}

/// A member as the API tells it.
#[derive(Deserialize)]
struct Member<'a> {
    #[serde(borrow)]
    user: Cow<'a, str>,
    client: &'a str,
    #[serde(borrow, default)]
    conn_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    b64conn_info: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    chan_info: Option<&'a RawValue>,
    #[serde(borrow, default)]
    b64chan_info: Option<Cow<'a, str>>,
}

/// What a node says of a channel's members: the result of [`Presence`] or of [`PresenceStats`].
pub(in super::super) fn page_of_node(node: &str, result: &RawValue) -> Result<MembersPage, Fault> {
    let json = result.get();
    if let Ok(counts) = serde_json::from_str::<Counts>(json) {
        return Ok(MembersPage {
            clients: counts.clients,
            users: counts.users.into_iter().collect(),
            ..MembersPage::default()
        });
    }
    let page: Page<'_> = parsed(node, json)?;
    let members = page.presence.values();
    let members = members.map(|member| info_of(node, member.get()));
    Ok(MembersPage {
        members: members.collect::<Result<_, _>>()?,
        has_more: page.cursor.is_some(),
        ..MembersPage::default()
    })
}

fn info_of(node: &str, json: &str) -> Result<ClientInfo, Fault> {
    let member: Member<'_> = parsed(node, json)?;
    let decoded = |encoded: &str| {
        let bytes = BASE64_STANDARD.decode(encoded);
        bytes.map_err(|error| Fault::of_another_version(node, &error))
    };
    let bytes =
        |json: Option<&RawValue>, encoded: Option<&str>| -> Result<Option<Arc<[u8]>>, Fault> {
            Ok(match (json, encoded) {
                (_, Some(encoded)) => Some(Arc::from(decoded(encoded)?)),
                (Some(json), None) => Some(Arc::from(json.get().as_bytes())),
                (None, None) => None,
            })
        };
    let client = ClientId::parse(member.client);
    Ok(ClientInfo {
        user: (*member.user).into(),
        client: client.ok_or_else(|| Fault::of_another_version(node, &"the id of a client"))?,
        connection_info: bytes(member.conn_info, member.b64conn_info.as_deref())?,
        channel_info: bytes(member.chan_info, member.b64chan_info.as_deref())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    fn merged<'a>(request: &impl Everywhere<'a>, results: &[&str]) -> Reply {
        let results: Vec<_> = results.iter().map(|json| raw(json)).collect();
        let mut of_nodes = Results::new("a", &results[0]);
        for theirs in &results[1..] {
            of_nodes.push("b", theirs);
        }
        match request.merge(&mut of_nodes) {
            Merged::List(reply) => reply,
            Merged::Done => unreachable!("members are a list"),
        }
    }

    #[test]
    fn members_of_nodes_are_one_list_in_pages() {
        let request = |limit| Presence {
            channel: "a".into(),
            limit,
            cursor: None,
        };
        let ours = r#"{"presence":{"a":{"user":"1"},"d":{"user":"2"}}}"#;
        let theirs = r#"{"presence":{"b":{"user":"3"},"c":{"user":"4"}},"cursor":"c"}"#;
        assert_eq!(
            merged(&request(Some(2)), &[ours, theirs]),
            Ok(Json(
                r#"{"presence":{"a":{"user":"1"},"b":{"user":"3"}},"cursor":"b"}"#.into()
            ))
        );
        let whole = merged(&request(None), &[ours, theirs]).unwrap_err();
        assert_eq!(whole.code, Code::LimitExceeded);
        assert_eq!(
            merged(&request(None), &[ours]),
            Ok(Json(
                r#"{"presence":{"a":{"user":"1"},"d":{"user":"2"}}}"#.into()
            ))
        );
        let without_theirs = merged(&request(None), &[ours, "{}"]);
        assert_eq!(without_theirs, merged(&request(None), &[ours]));
    }

    #[test]
    fn users_of_several_nodes_count_once() {
        let request = PresenceStats {
            channel: "a".into(),
        };
        let results = [
            r#"{"clients":2,"users":[1,18446744073709551615]}"#,
            r#"{"clients":3,"users":[1,2]}"#,
        ];
        assert_eq!(
            merged(&request, &results),
            Ok(Json(r#"{"num_clients":5,"num_users":3}"#.into()))
        );
    }

    #[test]
    fn a_member_is_read_as_it_was_written() {
        let member = ClientInfo {
            user: "\u{1F600}\"".into(),
            client: ClientId([7; 16]),
            connection_info: Some(br#"{"name":"Ada"}"#[..].into()),
            channel_info: Some([0xff, 0][..].into()),
        };
        let mut json = String::new();
        push_client(&member, &mut json);
        let read = info_of("b", &json).unwrap();
        assert_eq!(
            (
                read.user,
                read.client,
                read.connection_info,
                read.channel_info
            ),
            (
                member.user,
                member.client,
                member.connection_info,
                member.channel_info
            )
        );
        let fault = info_of("b", r#"{"user":"1","client":"x"}"#).unwrap_err();
        assert!(
            fault.detail().ends_with("version: the id of a client"),
            "{fault:?}"
        );
        let fault = page_of_node("b", &raw("7")).unwrap_err();
        assert!(fault.is_of_another_version());
        assert!(
            fault.detail().contains("invalid type: integer `7`"),
            "{fault:?}"
        );
    }
}
