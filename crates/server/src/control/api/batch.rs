//! `batch`: many commands in one request.
//!
//! Publications are sent one after another without a wait. Every other command waits for its answer before the next one begins, unless
//! the request says that they may run side by side.

use super::super::Control;
use super::broadcast;
use super::fault::{Code, Fault};
use super::method::{Command, Method};
use super::reading::{Shape, Unread, read, shortened};
use super::reply::{self, Json, Reply};
use super::sending::Sending;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

/// Commands of one request.
pub(super) const COMMANDS_MAX: usize = 10_000;
/// Publications of one request, with those of its broadcasts.
pub(super) const PUBLICATIONS_MAX: usize = 100_000;
/// Commands other than publications that run side by side.
const PARALLEL_MAX: usize = 8;
/// After so long no further command begins: whoever has sent them has given up soon.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the results of one request, after which nothing long is read.
const RESULTS_BYTES_MAX: usize = 64 << 20;

/// What to send instead of a command that is none.
const COMMAND_FORM: &str =
    r#"send {"publish": {"channel": "name", "data": any JSON}}, or another method"#;

pub(super) const FORM: &str =
    r#"send {"commands": [{"publish": {"channel": "name", "data": any JSON}}, ..]}"#;

/// The request, borrowed from its bytes.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Batch<'a> {
    #[serde(borrow)]
    commands: Commands<'a>,
    #[serde(default)]
    parallel: Option<bool>,
    /// Libraries may ask for what is done in any case.
    #[serde(default, rename = "group_publications")]
    _group_publications: Option<bool>,
}

/// The body of such a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole;

impl<'a> Shape<'a> for Whole {
    type Read = Batch<'a>;

    fn read<D: Deserializer<'a>>(self, json: D) -> Result<Batch<'a>, D::Error> {
        Batch::deserialize(json)
    }
}

/// A command; or why it is none. The others of its request are carried out all the same.
#[derive(Debug)]
pub(super) struct Entry<'a>(pub(super) Result<Command<'a>, Fault>);

/// A command as batches have it: `{"publish": {..}}`.
#[derive(Clone, Copy, Debug)]
struct Named;

impl<'a> Shape<'a> for Named {
    type Read = Command<'a>;

    fn read<D: Deserializer<'a>>(self, json: D) -> Result<Command<'a>, D::Error> {
        Command::deserialize(json)
    }
}

impl<'a> Entry<'a> {
    pub(super) fn read<S: Shape<'a, Read = Command<'a>>>(
        json: &'a str,
        form: &str,
        shape: S,
    ) -> Self {
        Self(
            read(json.as_bytes(), form, shape).map_err(|unread| match unread {
                Unread::Malformed(refusal) => Fault::bad(refusal.message()),
                Unread::Incomplete(fault) => fault,
            }),
        )
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entry<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        if !json.starts_with('{') {
            let what = format!("`{}` is no command; {COMMAND_FORM}", shortened(json));
            return Ok(Self(Err(Fault::bad(what))));
        }
        Ok(Self::read(json, COMMAND_FORM, Named))
    }
}

/// The commands that could be read.
pub(super) fn readable<'c, 'a>(entries: &'c [Entry<'a>]) -> impl Iterator<Item = &'c Command<'a>> {
    entries.iter().filter_map(|entry| entry.0.as_ref().ok())
}

/// Commands, as many as there may be. A command in memory is many times as long as the shortest text of one.
#[derive(Debug)]
struct Commands<'a> {
    kept: Vec<Entry<'a>>,
    /// With those that were not kept.
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Commands<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsList;

        impl<'de> Visitor<'de> for AsList {
            type Value = Commands<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of commands")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Commands<'de>, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < COMMANDS_MAX {
                    match list.next_element()? {
                        Some(command) => kept.push(command),
                        None => break,
                    }
                }
                let mut count = kept.len();
                // No `IgnoredAny`: a reader that looks for unknown fields takes that for one.
                while count >= COMMANDS_MAX && list.next_element::<&RawValue>()?.is_some() {
                    count += 1;
                }
                Ok(Commands { kept, count })
            }
        }

        deserializer.deserialize_seq(AsList)
    }
}

/// A command's name and its answer. What is no command has no name.
pub(super) type Answer = (Option<Method>, Reply);

/// The answers to a request's commands, and their share of the memory for results.
pub(super) struct Answered<'c> {
    pub(super) replies: Vec<Answer>,
    _share: Option<SemaphorePermit<'c>>,
}

/// What the commands of one request may still take.
struct Allowance<'c> {
    control: &'c Control,
    ends_at: Instant,
    bytes_left: usize,
    share: Option<SemaphorePermit<'c>>,
}

impl<'c> Allowance<'c> {
    fn new(control: &'c Control) -> Self {
        Self {
            control,
            ends_at: Instant::now() + TIMEOUT,
            bytes_left: RESULTS_BYTES_MAX,
            share: None,
        }
    }

    /// Whether another command may begin.
    fn check(&self, command: &Command<'_>) -> Result<(), Fault> {
        let over = |what: String| {
            let detail =
                format!("{what}; this command was not carried out: send it in another request");
            Err(Fault::new(Code::LimitExceeded, detail))
        };
        if Instant::now() >= self.ends_at {
            return over(format!(
                "the commands before have taken {} s",
                TIMEOUT.as_secs()
            ));
        }
        if self.bytes_left == 0 && is_long(command.method()) {
            return over(format!(
                "the results before have more than {RESULTS_BYTES_MAX} bytes"
            ));
        }
        Ok(())
    }

    /// Takes an answer in, if there is memory for it.
    fn keep(&mut self, (method, reply): Answer) -> Answer {
        let Ok(Json(json)) = &reply else {
            return (method, reply);
        };
        if !method.is_some_and(is_long) {
            return (method, reply);
        }
        let bytes = json.len();
        let kib = u32::try_from(json.len().div_ceil(1024)).expect("a few mebibytes");
        match self.control.api.result_kib.try_acquire_many(kib) {
            Ok(more) => match &mut self.share {
                Some(share) => share.merge(more),
                None => self.share = Some(more),
            },
            Err(_) => {
                let fault = Fault::busy(
                    "the results of all batches have too many bytes; send smaller batches, or retry later",
                );
                return (method, Err(fault));
            }
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        (method, reply)
    }

    fn end(self, replies: Vec<Option<Answer>>) -> Answered<'c> {
        Answered {
            replies: replies.into_iter().flatten().collect(),
            _share: self.share,
        }
    }
}

/// Methods whose results may be long.
fn is_long(method: Method) -> bool {
    matches!(
        method,
        Method::History | Method::Presence | Method::Channels | Method::Connections
    )
}

impl<'a> Batch<'a> {
    /// What it asks for.
    pub(super) fn commands(&self) -> impl Iterator<Item = &Command<'a>> {
        readable(&self.commands.kept)
    }

    /// Carries it out. The answers are in the order of the commands.
    pub(super) async fn answer(self, control: &Control) -> Result<Answered<'_>, Fault> {
        let Commands { kept, count } = self.commands;
        if count > COMMANDS_MAX {
            return Err(Fault::bad(format!(
                "field \"commands\" has {count} commands; send at most {COMMANDS_MAX}"
            )));
        }
        check_publications(&kept)
            .map_err(|what| Fault::bad(format!("field \"commands\" has {what}")))?;
        Ok(if self.parallel.unwrap_or_default() {
            side_by_side(control, kept).await
        } else {
            in_order(control, kept).await
        })
    }
}

/// What is wrong with commands that have too many publications together.
pub(super) fn check_publications(commands: &[Entry<'_>]) -> Result<(), String> {
    match readable(commands).map(publications).sum() {
        0..=PUBLICATIONS_MAX => Ok(()),
        count => Err(format!(
            "{count} publications; send at most {PUBLICATIONS_MAX}"
        )),
    }
}

/// Publications that a command sends.
fn publications(command: &Command<'_>) -> usize {
    match command {
        Command::Publish(_) => 1,
        Command::Broadcast(broadcast) => broadcast.count(),
        _ => 0,
    }
}

/// Commands that publish, and what became of them.
struct Run<'c, 'a> {
    sending: Sending<'c, 'a>,
    commands: Vec<Part>,
}

/// A command of a run.
struct Part {
    /// Its place in the batch.
    index: usize,
    kind: Kind,
}

enum Kind {
    Publish,
    /// With its number of channels.
    Broadcast(usize),
    Refused(Fault),
}

impl<'c, 'a> Run<'c, 'a> {
    /// Sends the publications of all these commands, which publish.
    fn new(control: &'c Control, commands: Vec<(usize, Command<'a>)>) -> Self {
        let mut sending = Sending::new(control);
        let mut parts = Vec::with_capacity(commands.len());
        for (index, command) in commands {
            let kind = match command {
                Command::Publish(publish) => {
                    publish.send(&mut sending);
                    Kind::Publish
                }
                Command::Broadcast(broadcast) => {
                    let count = broadcast.count();
                    match broadcast.send(&mut sending) {
                        Ok(()) => Kind::Broadcast(count),
                        Err(fault) => Kind::Refused(fault),
                    }
                }
                _ => unreachable!("it publishes"),
            };
            parts.push(Part { index, kind });
        }
        Self {
            sending,
            commands: parts,
        }
    }

    /// Waits for all, and puts the answers in their places.
    async fn finish(self, replies: &mut [Option<Answer>]) {
        let answers = self.sending.replies().await;
        let mut answers = answers.into_iter();
        for Part { index, kind } in self.commands {
            replies[index] = Some(match kind {
                Kind::Publish => {
                    let reply = answers.next().unwrap_or_else(|| Err(Fault::unanswered()));
                    (Some(Method::Publish), reply)
                }
                Kind::Broadcast(count) => {
                    let part: Vec<Reply> = answers.by_ref().take(count).collect();
                    (Some(Method::Broadcast), Ok(broadcast::result(&part)))
                }
                Kind::Refused(fault) => (Some(Method::Broadcast), Err(fault)),
            });
        }
    }
}

fn publishes(command: &Command<'_>) -> bool {
    matches!(command, Command::Publish(_) | Command::Broadcast(_))
}

/// Publications that follow each other are sent together: those of one channel keep their order.
pub(super) async fn in_order<'c>(control: &'c Control, commands: Vec<Entry<'_>>) -> Answered<'c> {
    let mut replies: Vec<_> = commands.iter().map(|_| None).collect();
    let (mut allowance, mut run) = (Allowance::new(control), Vec::new());
    for (index, entry) in commands.into_iter().enumerate() {
        let command = match entry.0 {
            Ok(command) => command,
            Err(fault) => {
                replies[index] = Some((None, Err(fault)));
                continue;
            }
        };
        let method = Some(command.method());
        if let Err(fault) = allowance.check(&command) {
            replies[index] = Some((method, Err(fault)));
            continue;
        }
        if publishes(&command) {
            run.push((index, command));
            continue;
        }
        let before = std::mem::take(&mut run);
        if !before.is_empty() {
            Run::new(control, before).finish(&mut replies).await;
        }
        let reply = command.answer(control).await;
        replies[index] = Some(allowance.keep((method, reply)));
    }
    if !run.is_empty() {
        Run::new(control, run).finish(&mut replies).await;
    }
    allowance.end(replies)
}

async fn side_by_side<'c>(control: &'c Control, commands: Vec<Entry<'_>>) -> Answered<'c> {
    let mut replies: Vec<_> = commands.iter().map(|_| None).collect();
    let mut allowance = Allowance::new(control);
    let (mut publishing, mut others) = (Vec::new(), Vec::new());
    for (index, entry) in commands.into_iter().enumerate() {
        match entry.0 {
            Ok(command) if publishes(&command) => publishing.push((index, command)),
            Ok(command) => others.push((index, command)),
            Err(fault) => replies[index] = Some((None, Err(fault))),
        }
    }
    let run = Run::new(control, publishing);
    let mut others = others.into_iter();
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < PARALLEL_MAX
            && let Some((index, command)) = others.next()
        {
            match allowance.check(&command) {
                Ok(()) => under_way.push(one(control, (index, command))),
                Err(fault) => replies[index] = Some((Some(command.method()), Err(fault))),
            }
        }
        match under_way.next().await {
            Some((index, answer)) => replies[index] = Some(allowance.keep(answer)),
            None => break,
        }
    }
    run.finish(&mut replies).await;
    allowance.end(replies)
}

async fn one(control: &Control, (index, command): (usize, Command<'_>)) -> (usize, Answer) {
    let method = Some(command.method());
    (index, (method, command.answer(control).await))
}

/// `{"replies": [..]}`: no `result` is around them.
pub(super) fn body(answers: &[Answer]) -> String {
    let mut body = String::with_capacity(16 + 64 * answers.len());
    body.push_str("{\"replies\":[");
    for (index, (method, reply)) in answers.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        reply::write_named(*method, reply, &mut body);
    }
    body.push_str("]}");
    body
}
