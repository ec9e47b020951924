//! `history` and `history_remove`: what a channel keeps.

use super::super::Control;
use super::asking;
use super::fault::{Code, Fault};
use super::json::{push_client, push_named_bytes, push_string};
use super::method::{Request, Scope};
use super::publication::options_of;
use super::reply::{Json, Reply};
use myriad_shard::{Content, HistoryAnswer, HistoryWish, InquiryAnswer, Kept, Mesh, Position};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write;

/// Bytes of one result.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// A position as a request names it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Since<'a> {
    #[serde(default)]
    pub(super) offset: Option<u64>,
    #[serde(borrow, default)]
    pub(super) epoch: Option<Cow<'a, str>>,
}

impl From<Since<'_>> for myriad_shard::Since {
    fn from(since: Since<'_>) -> Self {
        Self {
            offset: since.offset.unwrap_or_default(),
            epoch: since.epoch.unwrap_or_default().into(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct History<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(default)]
    limit: Option<i64>,
    #[serde(borrow, default)]
    since: Option<Since<'a>>,
    #[serde(default)]
    reverse: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct HistoryRemove<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
}

/// Refuses a channel that keeps nothing.
fn check(control: &Control, channel: &str) -> Result<(), Fault> {
    let namespaces = control.namespaces.load();
    if options_of(&namespaces, channel)?.has_history() {
        return Ok(());
    }
    Err(Fault::new(
        Code::NotAvailable,
        format!(
            "channel {channel:?} has no history; set history_size and history_ttl of its namespace"
        ),
    ))
}

impl<'a> Request<'a> for History<'a> {
    const FORM: &'static str = r#"send {"channel": "name", "limit": 10}, and perhaps "since": {"offset": 1, "epoch": "text"} and "reverse": true"#;

    fn scope(&self) -> Scope<'_> {
        Scope::channel(&self.channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        check(control, &self.channel)?;
        let since = self.since.map(myriad_shard::Since::from);
        let reverse = self.reverse.unwrap_or_default();
        if reverse && since.as_ref().is_some_and(|since| since.offset == 0) {
            return Err(Fault::bad(
                r#"field "since" has the offset 0 and "reverse" is true: nothing is before the first publication; leave "since" out"#,
            ));
        }
        let wish = HistoryWish {
            channel: self.channel.into(),
            // Any negative number stands for all.
            limit: u32::try_from(self.limit.unwrap_or_default()).ok(),
            since,
            reverse,
        };
        let deadline = Control::answers_deadline();
        let _turn = asking::turn(control, deadline).await?;
        match asking::home(control, deadline, |mesh, id| mesh.read_history(id, wish)).await? {
            InquiryAnswer::History(HistoryAnswer::Page {
                position,
                publications,
            }) => result(position, &publications),
            InquiryAnswer::History(HistoryAnswer::Unrecoverable) => Err(Fault::new(
                Code::UnrecoverablePosition,
                "the channel's history has another epoch by now; read it from the start, without \"since\"",
            )),
            InquiryAnswer::History(HistoryAnswer::Behind) => Err(Fault::new(
                Code::Internal,
                "this node has not read the channel up to its end yet; ask again",
            )),
            other => Err(asking::defective("history", &other)),
        }
    }
}

impl<'a> Request<'a> for HistoryRemove<'a> {
    const FORM: &'static str = r#"send {"channel": "name"}"#;

    fn scope(&self) -> Scope<'_> {
        Scope::channel(&self.channel)
    }

    async fn answer(self, control: &Control) -> Reply {
        check(control, &self.channel)?;
        let deadline = Control::answers_deadline();
        let _turn = asking::turn(control, deadline).await?;
        let remove = |mesh: &Mesh, id| mesh.remove_history(id, &self.channel);
        asking::home(control, deadline, remove).await?;
        Ok(Json::empty())
    }
}

fn result(position: Position, publications: &[Kept]) -> Reply {
    let mut json = String::from(r#"{"publications":["#);
    for (index, Kept { offset, content }) in publications.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        push_publication(content, *offset, &mut json);
        if json.len() > RESULT_BYTES_MAX {
            return Err(Fault::new(
                Code::LimitExceeded,
                format!(
                    "the result has more than {RESULT_BYTES_MAX} bytes; read pages by \"limit\" and \"since\""
                ),
            ));
        }
    }
    let Position { epoch, offset } = position;
    write!(json, r#"],"epoch":"{epoch}","offset":{offset}}}"#).expect("a String takes everything");
    Ok(Json(json))
}

fn push_publication(content: &Content, offset: u64, json: &mut String) {
    json.push_str(r#"{"data":"#);
    match content.payload.json() {
        Some(data) => json.push_str(&data),
        None => {
            // Bytes have no form in JSON.
            json.push_str("null");
            push_named_bytes("data", content.payload.bytes(), json);
        }
    }
    if let Some(publisher) = &content.publisher {
        json.push_str(",\"info\":");
        push_client(publisher, json);
    }
    write!(json, ",\"offset\":{offset}").expect("a String takes everything");
    for (index, (name, value)) in content.tags.iter().enumerate() {
        json.push_str(if index == 0 { ",\"tags\":{" } else { "," });
        push_string(name, json);
        json.push(':');
        push_string(value, json);
    }
    if !content.tags.is_empty() {
        json.push('}');
    }
    json.push('}');
}
