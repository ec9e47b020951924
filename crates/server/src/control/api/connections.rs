//! `connections`: which connections there are.

use super::super::Control;
use super::asking::{self, page_size};
use super::everywhere::{answer_node, deadline, parsed, told_of_checked, with_missing};
use super::fault::Fault;
use super::json::{push_named_bytes, push_string};
use super::method::{Method, Request, Scope};
use super::orders::{self, Selection};
use super::publication::options_of;
use super::reply::{Json, Reply};
use crate::nodes::{Wanted, Whom};
use myriad_shard::{
    ConnectionQuestion, Deed, Described, MetaFilter, Namespaces, TokenIdentity, Whose,
};
use myriad_wire::centrifuge::{is_json, json_without_line_breaks};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Connections of one result.
pub(super) const CONNECTIONS_MAX: usize = 1_000;
/// Connections of a result, unless the request says.
const CONNECTIONS_DEFAULT: i64 = 100;
/// Channels of a connection that are named. Their number is told in any case.
pub(super) const CHANNELS_MAX: usize = 32;
/// Entries of the field `meta`.
pub(super) const META_ENTRIES_MAX: usize = 8;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Connections<'a> {
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    channel: Option<Cow<'a, str>>,
    #[serde(default)]
    meta: Option<Map<String, Value>>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
    /// Centrifugo's libraries send it, also where nobody has written one.
    #[serde(borrow, default)]
    expression: Option<Cow<'a, str>>,
}

/// Where a page begins: a shard, and a session on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    shard: usize,
    from: u32,
}

impl Cursor {
    fn read(text: &str) -> Result<Self, Fault> {
        let read = || {
            let (shard, from) = text.split_once('-')?;
            Some(Self {
                shard: shard.parse().ok()?,
                from: from.parse().ok()?,
            })
        };
        match text {
            "" => Ok(Self::default()),
            _ => read().ok_or_else(Self::fault),
        }
    }

    fn fault() -> Fault {
        Fault::bad(
            "field \"cursor\" is no cursor of a result of connections; send that, or nothing",
        )
    }
}

/// Whether the JSON of a connection's `meta` has all these entries.
fn has_entries(meta: &[u8], wanted: &Map<String, Value>) -> bool {
    let Ok(Value::Object(meta)) = serde_json::from_slice::<Value>(meta) else {
        return false;
    };
    wanted
        .iter()
        .all(|(key, value)| meta.get(key) == Some(value))
}

/// What a request asks a node for.
#[derive(Debug)]
struct Asked {
    /// None if there can be no such connection.
    whose: Option<Whose>,
    channel: Option<Box<str>>,
    meta: Option<Map<String, Value>>,
    /// Connections of a page.
    max: usize,
    cursor: Cursor,
}

/// What a request asks all nodes for.
#[derive(Debug, PartialEq, Eq)]
struct Start {
    /// The node whose connections are the first, and where they begin there.
    node: String,
    from: String,
    /// Connections of a page.
    max: usize,
}

/// Connections of a node.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    connections: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow, default)]
    cursor: Option<&'a str>,
}

/// The page in another node's answer. None if it did not answer, or not with a page. `remark` gets the name of a node of another version,
/// and what is wrong.
fn page_of<'j>(
    node: &str,
    answer: Option<&'j [u8]>,
    remark: impl FnOnce(&str, &str),
) -> Option<Page<'j>> {
    match read_page(node, answer?) {
        Ok(page) => Some(page),
        Err(fault) => {
            if fault.is_of_another_version() {
                remark(node, fault.detail());
            }
            None
        }
    }
}

fn read_page<'j>(node: &str, answer: &'j [u8]) -> Result<Page<'j>, Fault> {
    let result = told_of_checked(node, answer)?;
    let page: Page<'_> = parsed(node, result.get())?;
    match page.cursor.map(Cursor::read) {
        // Whoever sent it back would be refused.
        Some(Err(_)) => Err(Fault::of_another_version(node, &"the cursor of its page")),
        Some(Ok(_)) | None => Ok(page),
    }
}

/// Where the connections of all nodes are read on: a node, and where a page begins there.
fn split_cursor(cursor: &str) -> Result<(&str, &str), Fault> {
    match cursor.split_once('-') {
        Some((node, from)) => Ok((node, from)),
        None if cursor.is_empty() => Ok(("", "")),
        None => Err(Cursor::fault()),
    }
}

impl Connections<'_> {
    /// What is asked, if it can be.
    fn checked(self, namespaces: &Namespaces) -> Result<Asked, Fault> {
        if self.expression.is_some_and(|text| !text.is_empty()) {
            return Err(Fault::bad(
                "field \"expression\" cannot be used here; send \"meta\": {\"key\": value} for connections whose meta has this entry",
            ));
        }
        let max = page_size(self.limit.or(Some(CONNECTIONS_DEFAULT)), CONNECTIONS_MAX)?;
        let cursor = Cursor::read(self.cursor.as_deref().unwrap_or_default())?;
        let channel = self.channel.filter(|name| !name.is_empty());
        if let Some(channel) = channel.as_deref() {
            options_of(namespaces, channel)?;
        }
        let meta = self.meta.filter(|meta| !meta.is_empty());
        if meta
            .as_ref()
            .is_some_and(|meta| meta.len() > META_ENTRIES_MAX)
        {
            return Err(Fault::bad(format!(
                "field \"meta\" has more than {META_ENTRIES_MAX} entries; send fewer"
            )));
        }
        let selection = Selection {
            all_users: Some(self.user.is_none()),
            user: self.user,
            client: self.client,
            ..Selection::default()
        };
        Ok(Asked {
            whose: selection.whose()?,
            channel: channel.map(Into::into),
            meta,
            max,
            cursor,
        })
    }

    /// What is asked of all nodes, if it can be. So a bad request is refused here and at once, whatever the other nodes know.
    fn start(&self, namespaces: &Namespaces) -> Result<Start, Fault> {
        let (node, from) = split_cursor(self.cursor.as_deref().unwrap_or_default())?;
        let (node, from) = (node.to_owned(), from.to_owned());
        let of_node = Self {
            cursor: Some(from.clone().into()),
            ..self.clone()
        };
        let Asked { max, .. } = of_node.checked(namespaces)?;
        Ok(Start { node, from, max })
    }

    /// The connections of all nodes, one node after the other in the order of their names, until a page is full.
    pub(super) async fn answer_for_all(mut self, control: &Control) -> Reply {
        let Some(nodes) = &control.nodes else {
            return self.answer(control).await;
        };
        let Start {
            node: first,
            from: first_from,
            max,
        } = self.start(&control.namespaces.load())?;
        let mut names = nodes.others();
        names.push(nodes.name().to_owned());
        names.sort_unstable();
        names.retain(|name| *name >= first);
        let deadline = deadline();
        let (mut all, mut count, mut missing) = (String::new(), 0, Vec::new());
        let mut next = None;
        for name in &names {
            if count == max {
                next = Some(format!("{name}-"));
                break;
            }
            // Where the node of the cursor has gone, the next one is read from its beginning.
            let from = if *name == first { &*first_from } else { "" };
            self.cursor = Some(from.to_owned().into());
            self.limit = i64::try_from(max - count).ok();
            let request = Json::of(&self).0;
            let (own, gathered);
            let page = if name == nodes.name() {
                own = answer_node(control, Method::Connections, 0, &request).await?;
                Some(parsed(name, &own.0)?)
            } else {
                let wanted = Wanted {
                    what: Method::Connections.name(),
                    seed: 0,
                    payload: request.into(),
                };
                gathered = nodes.ask(Whom::One(name), wanted, deadline).await;
                let answer = gathered.answers.first();
                let answer = answer.map(|(_, answer)| &**answer);
                let remark = |node: &str, why: &str| nodes.remark_other_version(node, why);
                page_of(name, answer, remark)
            };
            let Some(page) = page else {
                missing.push(&**name);
                continue;
            };
            count += page.connections.len();
            for (client, connection) in page.connections {
                let comma = if all.is_empty() { "" } else { "," };
                write!(all, r#"{comma}"{client}":{connection}"#)
                    .expect("a String takes everything");
            }
            if let Some(from) = page.cursor {
                next = Some(format!("{name}-{from}"));
                break;
            }
        }
        let mut json = format!(r#"{{"connections":{{{all}}}"#);
        if let Some(next) = next {
            write!(json, r#","cursor":"{next}""#).expect("a String takes everything");
        }
        json.push('}');
        Ok(with_missing(Json(json), &missing))
    }
}

impl<'a> Request<'a> for Connections<'a> {
    const FORM: &'static str = r#"send {"user": "id"}, "client", "channel" or "meta": {"key": value}, and for more pages "limit" and "cursor""#;

    fn scope(&self) -> Scope<'_> {
        Scope::Server
    }

    async fn answer(self, control: &Control) -> Reply {
        let Asked {
            whose,
            channel,
            meta,
            max,
            mut cursor,
        } = self.checked(&control.namespaces.load())?;
        let Some(whose) = whose else {
            return Ok(page(&[], None));
        };
        let deadline = Control::answers_deadline();
        let _turn = asking::turn(control, deadline).await?;
        let shards = control.mesh.shards_of(&whose);
        let mut found = Vec::new();
        for shard in shards.start.max(cursor.shard)..shards.end {
            let from = if shard == cursor.shard {
                cursor.from
            } else {
                0
            };
            let question = ConnectionQuestion {
                channel: channel.clone(),
                meta: meta.clone().map(|wanted| {
                    MetaFilter(Box::new(move |meta: &[u8]| has_entries(meta, &wanted)))
                }),
                from,
                max: max - found.len(),
            };
            let deed = Deed::Describe(question);
            let done =
                orders::order(control, whose.clone(), deed, shard..shard + 1, deadline).await?;
            for done in done {
                found.extend(done.connections);
                if let Some(from) = done.next {
                    cursor = Cursor { shard, from };
                    return Ok(page(&found, Some(cursor)));
                }
            }
            if found.len() >= max && shard + 1 < shards.end {
                let next = Cursor {
                    shard: shard + 1,
                    from: 0,
                };
                return Ok(page(&found, Some(next)));
            }
        }
        Ok(page(&found, None))
    }
}

fn page(found: &[Described], next: Option<Cursor>) -> Json {
    let mut json = String::with_capacity(32 + 256 * found.len());
    json.push_str(r#"{"connections":{"#);
    for (index, connection) in found.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_connection(connection, &mut json);
    }
    json.push('}');
    if let Some(Cursor { shard, from }) = next {
        write!(json, r#","cursor":"{shard}-{from}""#).expect("a String takes everything");
    }
    json.push('}');
    Json(json)
}

fn push_connection(connection: &Described, json: &mut String) {
    write!(json, r#""{}":{{"user":"#, connection.client).expect("a String takes everything");
    push_string(connection.user.as_deref().unwrap_or_default(), json);
    write!(
        json,
        r#","transport":"{}","protocol":"{}","open_ms":{},"num_channels":{}"#,
        connection.transport,
        connection.protocol,
        connection.open_ms,
        connection.channels.len()
    )
    .expect("a String takes everything");
    if let Some(address) = connection.address {
        write!(json, r#","address":"{address}""#).expect("a String takes everything");
    }
    push_value("info", connection.info.as_deref(), json);
    json.push_str(r#","state":{"channels":{"#);
    for (index, channel) in connection.channels.iter().take(CHANNELS_MAX).enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_string(channel, json);
        json.push_str(":{}");
    }
    json.push('}');
    push_value("meta", connection.meta.as_deref(), json);
    if let Some(token) = connection.token.as_deref() {
        push_token(token, json);
    }
    json.push_str("}}");
}

/// What the application has said: JSON as it is, other bytes as base64.
fn push_value(name: &str, value: Option<&[u8]>, json: &mut String) {
    match value.map(|bytes| (bytes, str::from_utf8(bytes))) {
        Some((bytes, Ok(text))) if is_json(bytes) => {
            let text = json_without_line_breaks(text);
            write!(json, r#","{name}":{text}"#).expect("a String takes everything");
        }
        Some((bytes, _)) => push_named_bytes(name, bytes, json),
        None => {}
    }
}

fn push_token(token: &TokenIdentity, json: &mut String) {
    json.push_str(r#","connection_token":{"#);
    if let Some(id) = &token.id {
        json.push_str(r#""uid":"#);
        push_string(id, json);
    }
    if let Some(at) = token.issued_at {
        let comma = if token.id.is_some() { "," } else { "" };
        write!(json, r#"{comma}"issued_at":{at}"#).expect("a String takes everything");
    }
    json.push('}');
}

#[cfg(test)]
mod tests {
    use super::super::fault::Code;
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let Json(json) = page(&[], Some(Cursor { shard: 3, from: 70 }));
        assert_eq!(json, r#"{"connections":{},"cursor":"3-70"}"#);
        let read = Cursor::read("3-70").unwrap();
        assert_eq!(read, Cursor { shard: 3, from: 70 });
        assert_eq!(Cursor::read("").unwrap(), Cursor::default());
        for text in ["3", "-", "a-1", "1-", "1--1", "-1-1"] {
            assert!(Cursor::read(text).is_err(), "{text}");
        }
        assert_eq!(split_cursor("").unwrap(), ("", ""));
        assert_eq!(split_cursor("0f1e-3-70").unwrap(), ("0f1e", "3-70"));
        assert_eq!(split_cursor("0f1e-").unwrap(), ("0f1e", ""));
        assert!(split_cursor("0f1e").is_err());
    }

    #[test]
    fn a_node_without_a_page_of_this_version_is_missing() {
        let read = |answer: Option<&'static str>| {
            let mut remarks = Vec::new();
            let page = page_of("b", answer.map(str::as_bytes), |node, _| {
                remarks.push(node.to_owned());
            });
            (page.map(|page| page.connections.len()), remarks)
        };
        let good = r#"{"result":{"connections":{"x":{}},"cursor":"0-1"}}"#;
        assert_eq!(read(Some(good)), (Some(1), vec![]));
        assert_eq!(read(None), (None, vec![]));
        let busy = r#"{"error":{"code":111,"detail":"wait"}}"#;
        assert_eq!(read(Some(busy)), (None, vec![]));
        for other in [
            "",
            "7",
            r#"{"result":{}}"#,
            r#"{"result":{"connections":[]}}"#,
            r#"{"result":{"connections":{"x":{}},"cursor":"x"}}"#,
            r#"{"error":{"code":107,"detail":"unknown field `since`"}}"#,
        ] {
            assert_eq!(read(Some(other)), (None, vec!["b".to_owned()]), "{other}");
        }
        let mut said = String::new();
        let refused = br#"{"error":{"code":107,"detail":"unknown field `since`"}}"#;
        page_of("b", Some(&refused[..]), |_, why| why.clone_into(&mut said));
        assert_eq!(
            said,
            "node b refuses a request that this node takes: unknown field `since`"
        );
    }

    #[test]
    fn a_bad_request_is_refused_before_any_node_is_asked() {
        let namespaces = Namespaces::development();
        let start = |request: &str| {
            let request: Connections<'_> = serde_json::from_str(request).unwrap();
            request.start(&namespaces).map_err(|fault| fault.code)
        };
        let long = format!("{{\"user\":{:?}}}", "x".repeat(256));
        let entries: Vec<_> = (0..9).map(|key| format!("\"{key}\":1")).collect();
        let many = format!("{{\"meta\":{{{}}}}}", entries.join(","));
        for request in [
            r#"{"cursor":"x"}"#,
            r#"{"cursor":"b-x"}"#,
            r#"{"cursor":"b-1-2-3"}"#,
            r#"{"limit":-1}"#,
            r#"{"expression":"true"}"#,
            long.as_str(),
            many.as_str(),
        ] {
            assert_eq!(start(request), Err(Code::BadRequest), "{request}");
        }
        let unknown = start(r#"{"channel":"none:a"}"#);
        assert_eq!(unknown, Err(Code::UnknownChannel));
        let begins = |node: &str, from: &str, max| {
            let (node, from) = (node.to_owned(), from.to_owned());
            Ok(Start { node, from, max })
        };
        assert_eq!(start("{}"), begins("", "", 100));
        let later = start(r#"{"user":"7","cursor":"b-1-2","limit":5}"#);
        assert_eq!(later, begins("b", "1-2", 5));
    }

    #[test]
    fn meta_has_entries_at_its_top() {
        let wanted = |text: &str| serde_json::from_str(text).unwrap();
        let meta = br#"{"device": "ios", "n": 1, "deep": {"a": 2}}"#;
        for (text, has) in [
            (r#"{"device": "ios"}"#, true),
            (r#"{"device": "ios", "n": 1}"#, true),
            (r#"{"deep": {"a": 2}}"#, true),
            (r#"{"device": "android"}"#, false),
            (r#"{"a": 2}"#, false),
            (r#"{"n": "1"}"#, false),
        ] {
            assert_eq!(has_entries(meta, &wanted(text)), has, "{text}");
        }
        assert!(!has_entries(b"[1]", &wanted(r#"{"n": 1}"#)));
    }
}
