//! The form of older clients, such as gocent: `POST /api` with commands `{"method": .., "params": {..}}`, one behind the other.

use super::super::Control;
use super::super::error::Refusal;
use super::batch::{self, Entry};
use super::fault::Fault;
use super::method::Method;
use super::reading;
use super::reply::{self, Reply};
use myriad_wire::centrifuge::json_without_line_breaks;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

const FORM: &str = r#"send {"method": "publish", "params": {"channel": "name", "data": any JSON}}, one command a line"#;

/// A command.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    /// Comes back in the answer.
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

/// Ids of commands, as they were sent.
type Ids<'a> = Vec<Option<&'a RawValue>>;

/// The commands of a body, and their ids.
pub(super) fn commands(body: &[u8]) -> Result<(Ids<'_>, Vec<Entry<'_>>), Refusal> {
    let (mut ids, mut commands) = (Vec::new(), Vec::new());
    for line in lines(body)? {
        ids.push(line.id);
        commands.push(line.into_command());
    }
    batch::check_publications(&commands)
        .map_err(|what| malformed(&format!("the body has {what}")))?;
    Ok((ids, commands))
}

/// Answers every command, in order: one line each.
pub(super) async fn answer(control: &Control, ids: Ids<'_>, commands: Vec<Entry<'_>>) -> String {
    let answered = batch::in_order(control, commands).await;
    let answered = &answered.replies;
    let mut answers = String::new();
    for (id, (_, reply)) in ids.into_iter().zip(answered) {
        write(id, reply, &mut answers);
    }
    answers
}

/// The lines of a body.
fn lines(body: &[u8]) -> Result<Vec<Line<'_>>, Refusal> {
    let lines = serde_json::Deserializer::from_slice(body).into_iter();
    let lines: Vec<Line<'_>> = lines
        .take(batch::COMMANDS_MAX + 1)
        .collect::<Result<_, _>>()
        .map_err(|error| malformed(&error.to_string()))?;
    match lines.len() {
        0 => Err(malformed("the body is empty")),
        1..=batch::COMMANDS_MAX => Ok(lines),
        _ => {
            let most = batch::COMMANDS_MAX;
            Err(malformed(&format!(
                "the body has more than {most} commands"
            )))
        }
    }
}

fn malformed(what: &str) -> Refusal {
    reading::malformed(what, FORM)
}

impl<'a> Line<'a> {
    fn into_command(self) -> Entry<'a> {
        let Some(method) = Method::named(&self.method) else {
            let what = format!("method {:?} does not exist", self.method);
            return Entry(Err(Fault::bad(format!("{what}; {FORM}"))));
        };
        let params = self.params.map_or("{}", RawValue::get);
        Entry::read(params, method.form(), method)
    }
}

/// A line: the answer, with the id of its command if that had one.
fn write(id: Option<&RawValue>, reply: &Reply, into: &mut String) {
    if !into.is_empty() {
        into.push('\n');
    }
    let begin = into.len();
    reply::write(reply, into);
    if let Some(id) = id {
        // Behind the brace that opens the answer.
        into.insert_str(
            begin + 1,
            &format!("\"id\":{},", json_without_line_breaks(id.get())),
        );
    }
}
