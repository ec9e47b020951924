//! `batch`: many commands in one request.
//!
//! Publications are sent one after another without a wait. Every other command waits for its answer before the next one begins, unless
//! the request says that they may run side by side.

use super::super::Control;
use super::broadcast;
use super::fault::Fault;
use super::method::{Command, Method};
use super::reply::{self, Reply};
use super::sending::Sending;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;

/// Commands of one request.
pub(super) const COMMANDS_MAX: usize = 10_000;
/// Publications of one request, with those of its broadcasts.
pub(super) const PUBLICATIONS_MAX: usize = 100_000;
/// Commands other than publications that run side by side.
const PARALLEL_MAX: usize = 32;

pub(super) const FORM: &str =
    r#"send {"commands": [{"publish": {"channel": "name", "data": any JSON}}, ..]}"#;

/// The request, borrowed from its bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch<'a> {
    #[serde(borrow)]
    commands: Vec<Command<'a>>,
    #[serde(default)]
    parallel: Option<bool>,
}

/// A command's name and its answer.
pub(super) type Answered = (Method, Reply);

impl<'a> Batch<'a> {
    /// What it asks for.
    pub(super) fn commands(&self) -> &[Command<'a>] {
        &self.commands
    }

    /// Carries it out. The answers are in the order of the commands.
    pub(super) async fn answer(self, control: &Control) -> Result<Vec<Answered>, Fault> {
        if self.commands.len() > COMMANDS_MAX {
            return Err(Fault::bad(format!(
                "field \"commands\" has {} commands; send at most {COMMANDS_MAX}",
                self.commands.len()
            )));
        }
        let publications: usize = self.commands.iter().map(publications).sum();
        if publications > PUBLICATIONS_MAX {
            return Err(Fault::bad(format!(
                "field \"commands\" has {publications} publications; send at most {PUBLICATIONS_MAX}"
            )));
        }
        Ok(if self.parallel.unwrap_or_default() {
            side_by_side(control, self.commands).await
        } else {
            in_order(control, self.commands).await
        })
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
    async fn finish(self, replies: &mut [Option<Answered>]) {
        let answers = self.sending.replies().await;
        let mut answers = answers.into_iter();
        for Part { index, kind } in self.commands {
            replies[index] = Some(match kind {
                Kind::Publish => {
                    let reply = answers.next().unwrap_or_else(|| Err(Fault::unanswered()));
                    (Method::Publish, reply)
                }
                Kind::Broadcast(count) => {
                    let part: Vec<Reply> = answers.by_ref().take(count).collect();
                    (Method::Broadcast, Ok(broadcast::result(&part)))
                }
                Kind::Refused(fault) => (Method::Broadcast, Err(fault)),
            });
        }
    }
}

fn publishes(command: &Command<'_>) -> bool {
    matches!(command, Command::Publish(_) | Command::Broadcast(_))
}

/// Publications that follow each other are sent together: those of one channel keep their order.
pub(super) async fn in_order(control: &Control, commands: Vec<Command<'_>>) -> Vec<Answered> {
    let mut replies: Vec<_> = commands.iter().map(|_| None).collect();
    let mut run = Vec::new();
    for (index, command) in commands.into_iter().enumerate() {
        if publishes(&command) {
            run.push((index, command));
            continue;
        }
        let before = std::mem::take(&mut run);
        if !before.is_empty() {
            Run::new(control, before).finish(&mut replies).await;
        }
        let method = command.method();
        replies[index] = Some((method, command.answer(control).await));
    }
    if !run.is_empty() {
        Run::new(control, run).finish(&mut replies).await;
    }
    replies.into_iter().flatten().collect()
}

async fn side_by_side(control: &Control, commands: Vec<Command<'_>>) -> Vec<Answered> {
    let mut replies: Vec<_> = commands.iter().map(|_| None).collect();
    let (publishing, others): (Vec<_>, Vec<_>) = commands
        .into_iter()
        .enumerate()
        .partition(|(_, command)| publishes(command));
    let run = Run::new(control, publishing);
    let mut others = others.into_iter();
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < PARALLEL_MAX
            && let Some(command) = others.next()
        {
            under_way.push(one(control, command));
        }
        match under_way.next().await {
            Some((index, answered)) => replies[index] = Some(answered),
            None => break,
        }
    }
    run.finish(&mut replies).await;
    replies.into_iter().flatten().collect()
}

async fn one(control: &Control, (index, command): (usize, Command<'_>)) -> (usize, Answered) {
    let method = command.method();
    (index, (method, command.answer(control).await))
}

/// `{"replies": [..]}`: no `result` is around them.
pub(super) fn body(answered: &[Answered]) -> String {
    let mut body = String::with_capacity(16 + 64 * answered.len());
    body.push_str("{\"replies\":[");
    for (index, (method, reply)) in answered.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        reply::write_named(*method, reply, &mut body);
    }
    body.push_str("]}");
    body
}
