//! The order of a client's commands about one channel.
//!
//! Commands of one connection about one channel take effect in the order in which they came. Most need no wait for that: what they
//! send to the channel's home goes one way, and arrives in that order. A command waits in a *line* where a later one could overtake an
//! earlier one: behind a question to the application, behind history, members or a recovery, and behind a subscription that is being
//! made. What reads or ends a subscription also waits for publications that are on their way.
//!
//! A client without such a command has no line, so that lines cost nothing but a look at an empty table.
//!
//! Changes `hub` and `sessions`; sends by `mesh`.

use super::Failure;
use crate::marks::hit;
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{Now, Overflown, Ticket, name_hash};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::ErrorCode;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Commands of a client about one channel that may wait behind another. Past it they are answered "too many requests".
const BEHIND_MAX: usize = 256;

/// What an idle table of lines keeps room for.
const IDLE_CAPACITY: usize = 1024;

/// The lines of a shard's clients.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// A client has few at a time, so that a list is as good as a table.
    by_client: FxHashMap<Key, Vec<Line>>,
    /// Publications that have no answer yet, by client and mark of the channel. Another channel with the same mark makes somebody
    /// wait without need, and nothing else. Each publication is entered and taken out. A keyed hash would cost two thirds of that,
    /// and no client chooses the index of its record.
    publishing: FxHashMap<(Key, u16), u32>,
    /// Bytes of the commands that wait.
    bytes: usize,
}

/// What a client has under way about one channel, and what waits for it.
#[derive(Debug)]
struct Line {
    channel: Box<str>,
    /// A command is asked about.
    is_asked: bool,
    /// Questions for members and history, and subscriptions that are being made.
    questions: u32,
    publications: Publications,
    /// Commands as their client wrote them, in their order. An empty one stands for the question whether the subscription goes on.
    behind: Vec<Box<[u8]>>,
}

/// Whether a line waits for its client's publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Publications {
    /// It does not.
    Free,
    /// Some have no answer yet.
    Unanswered,
    /// All have their place. They are delivered when the home's answer to this question has come.
    Undelivered,
}

impl Line {
    fn is_over(&self) -> bool {
        !self.is_asked && self.questions == 0 && self.publications == Publications::Free
    }
}

/// By what a ticket tells a channel from others.
pub(super) fn mark_of(channel: &str) -> u16 {
    let [low, high, ..] = name_hash(channel).to_le_bytes();
    u16::from_le_bytes([low, high])
}

impl Lines {
    fn line(&mut self, client: Key, channel: &str) -> Option<&mut Line> {
        if self.by_client.is_empty() {
            return None;
        }
        let lines = self.by_client.get_mut(&client)?;
        lines.iter_mut().find(|line| *line.channel == *channel)
    }

    fn line_made(&mut self, client: Key, channel: &str) -> &mut Line {
        let lines = self.by_client.entry(client).or_default();
        let at = lines.iter().position(|line| *line.channel == *channel);
        let at = at.unwrap_or_else(|| {
            lines.push(Line {
                channel: channel.into(),
                is_asked: false,
                questions: 0,
                publications: Publications::Free,
                behind: Vec::new(),
            });
            lines.len() - 1
        });
        &mut lines[at]
    }

    /// A command about a channel is asked about.
    pub(super) fn begin_ask(&mut self, client: Key, channel: &str) {
        let line = self.line_made(client, channel);
        // One command about a channel is asked about at a time. What waits behind another one would go with the first answer.
        debug_assert!(!line.is_asked);
        line.is_asked = true;
    }

    /// A question about a channel is under way, or a subscription to it.
    pub(super) fn begin_question(&mut self, client: Key, channel: &str) {
        self.line_made(client, channel).questions += 1;
    }

    /// Whether one more question may follow those that a client has under way: they keep their order by themselves.
    fn takes_question(&mut self, client: Key, channel: &str) -> bool {
        let line = self.line(client, channel);
        line.is_none_or(|line| {
            !line.is_asked && line.publications == Publications::Free && line.behind.is_empty()
        })
    }

    /// A publication is on its way.
    pub(super) fn begin_publication(&mut self, ticket: Ticket) {
        *self
            .publishing
            .entry((ticket.connection, ticket.mark))
            .or_default() += 1;
    }

    /// A publication is answered. The channels whose lines wait for nothing but their delivery now.
    fn end_publication(&mut self, ticket: Ticket) -> Vec<Box<str>> {
        let Entry::Occupied(mut count) = self.publishing.entry((ticket.connection, ticket.mark))
        else {
            return Vec::new();
        };
        *count.get_mut() -= 1;
        if *count.get() > 0 {
            return Vec::new();
        }
        count.remove();
        let lines = self.by_client.get_mut(&ticket.connection);
        let waiting = lines.into_iter().flatten().filter(|line| {
            line.publications == Publications::Unanswered && mark_of(&line.channel) == ticket.mark
        });
        waiting
            .map(|line| {
                line.publications = Publications::Undelivered;
                line.channel.clone()
            })
            .collect()
    }

    /// Waits for a client's publications to a channel. False if it has none under way.
    fn awaits_publications(&mut self, client: Key, channel: &str) -> bool {
        let publishes = !self.publishing.is_empty()
            && self.publishing.contains_key(&(client, mark_of(channel)));
        if publishes {
            hit!(WaitsForPublications);
            self.line_made(client, channel).publications = Publications::Unanswered;
        }
        publishes
    }

    /// Something about a channel has ended. What waited, if it waits for nothing else.
    fn end(&mut self, client: Key, channel: &str, end: impl FnOnce(&mut Line)) -> Vec<Box<[u8]>> {
        let Some(lines) = self.by_client.get_mut(&client) else {
            return Vec::new();
        };
        let Some(at) = lines.iter().position(|line| *line.channel == *channel) else {
            return Vec::new();
        };
        end(&mut lines[at]);
        if !lines[at].is_over() {
            return Vec::new();
        }
        let line = lines.swap_remove(at);
        if lines.is_empty() {
            self.by_client.remove(&client);
            if self.by_client.is_empty() && self.by_client.capacity() > IDLE_CAPACITY {
                self.by_client.shrink_to(0);
            }
        }
        self.bytes -= bytes_of(&line.behind);
        line.behind
    }

    /// A client has gone. The bytes of what waited.
    fn forget(&mut self, client: Key) -> usize {
        let lines = self.by_client.remove(&client).unwrap_or_default();
        let bytes = lines.iter().map(|line| bytes_of(&line.behind)).sum();
        self.bytes -= bytes;
        bytes
    }

    /// Bytes of commands that wait, for checks.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Clients with a line, for checks.
    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }
}

fn bytes_of(commands: &[Box<[u8]>]) -> usize {
    commands.iter().map(|text| text.len()).sum()
}

impl<R: Reactor> Shard<R> {
    /// Keeps a command about a channel until those before it are carried out. False if it need not wait.
    pub(super) fn waits_behind(
        &mut self,
        key: Key,
        channel: &str,
        text: &[u8],
    ) -> Result<bool, Failure> {
        let Some(line) = self.sessions.lines.line(key, channel) else {
            return Ok(false);
        };
        if line.behind.len() >= BEHIND_MAX || !self.hub.reserve_buffered(text.len()) {
            let cause = "as many commands as may wait behind one about their channel";
            return Err(Failure::Caused(ErrorCode::TooManyRequests, cause));
        }
        line.behind.push(text.into());
        self.sessions.lines.bytes += text.len();
        Ok(true)
    }

    /// As [`Shard::waits_behind`], of a command whose outcome shows which of the client's publications came before it.
    pub(super) fn waits_for_publications(
        &mut self,
        key: Key,
        channel: &str,
        text: &[u8],
    ) -> Result<bool, Failure> {
        if self.sessions.lines.line(key, channel).is_none() {
            self.sessions.lines.awaits_publications(key, channel);
        }
        self.waits_behind(key, channel, text)
    }

    /// As [`Shard::waits_for_publications`], of a question. Questions of one client are asked one after the other, so one need not
    /// wait here for another.
    pub(super) fn question_waits(
        &mut self,
        key: Key,
        channel: &str,
        text: &[u8],
    ) -> Result<bool, Failure> {
        let lines = &mut self.sessions.lines;
        let follows = lines.line(key, channel).is_some() && lines.takes_question(key, channel);
        if follows && !lines.publishing.contains_key(&(key, mark_of(channel))) {
            return Ok(false);
        }
        self.waits_for_publications(key, channel, text)
    }

    /// Has the application asked whether a subscription goes on as soon as the command that waits about its channel is answered. False
    /// if none waits. The question stands before the client's commands: by sending more of them it could put its end off for ever.
    pub(super) fn expires_behind(&mut self, key: Key, channel: &str) -> bool {
        let Some(line) = self.sessions.lines.line(key, channel) else {
            return false;
        };
        if line.behind.first().is_none_or(|first| !first.is_empty()) {
            line.behind.insert(0, Box::default());
        }
        true
    }

    /// The control plane has answered what a command asked. What waited is to be carried out behind it, by [`Shard::carry_out_line`].
    pub(super) fn end_asked(&mut self, client: Key, channel: &str) -> Vec<Box<[u8]>> {
        let lines = &mut self.sessions.lines;
        lines.end(client, channel, |line| line.is_asked = false)
    }

    /// A question of a client is answered, or a subscription is made: what waited for that is carried out.
    pub(super) fn end_question(&mut self, client: Key, channel: &str, now: Now) {
        let behind = self.sessions.lines.end(client, channel, |line| {
            line.questions = line.questions.saturating_sub(1);
        });
        self.carry_out_line(client, channel, behind, now);
    }

    /// A client's publication has its place, or will have none.
    pub(super) fn end_publication(&mut self, ticket: Ticket) {
        for channel in self.sessions.lines.end_publication(ticket) {
            let home = self.mesh.home_of(&channel);
            let fence = Ticket {
                command: 0,
                ..ticket
            };
            let message = Message::Fence {
                channel,
                ticket: fence,
            };
            self.send_message(home, message);
        }
    }

    /// A channel's home has delivered everything that it took before it was asked: what waited is carried out.
    pub(crate) fn handle_fence(&mut self, ticket: Ticket, channel: &str, now: Now) {
        let client = ticket.connection;
        let behind = self.sessions.lines.end(client, channel, |line| {
            line.publications = Publications::Free;
        });
        self.carry_out_line(client, channel, behind, now);
    }

    /// Carries out commands that waited, in their order.
    pub(super) fn carry_out_line(
        &mut self,
        client: Key,
        channel: &str,
        behind: Vec<Box<[u8]>>,
        now: Now,
    ) {
        if behind.is_empty() {
            return;
        }
        hit!(LineMoves);
        for text in behind {
            self.hub.release_buffered(text.len());
            if !self.hub.contains(client) {
                continue;
            }
            if text.is_empty() {
                self.ask_about_subscription(client, channel, now);
            } else {
                self.handle_again(client, &text, now);
            }
        }
        if self.hub.contains(client) {
            self.finish_replies(client, now);
        }
    }

    /// A client has gone: nothing of it waits any more.
    pub(super) fn forget_lines(&mut self, client: Key) {
        let bytes = self.sessions.lines.forget(client);
        self.hub.release_buffered(bytes);
    }

    /// Ends connections and subscriptions that deliveries did not reach.
    pub(crate) fn end_overflown(&mut self, overflown: Vec<Overflown>, now: Now) {
        for overflown in overflown {
            match overflown {
                Overflown::Close { connection, reason } => {
                    self.close_index(connection, reason, now);
                }
                Overflown::Gap {
                    connection,
                    channel,
                } => self.end_gapped_subscription(connection, &channel, now),
                Overflown::Lost {
                    connection,
                    channel,
                } => self.end_lost_subscription(connection, &channel, now),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 1,
        }
    }

    fn publication(channel: &str) -> Ticket {
        Ticket {
            shard: 0,
            mark: mark_of(channel),
            connection: key(1),
            command: 1,
        }
    }

    #[test]
    fn a_line_ends_when_nothing_of_it_is_under_way() {
        let mut lines = Lines::default();
        lines.begin_question(key(1), "a");
        lines.begin_ask(key(1), "a");
        lines.begin_question(key(1), "b");
        lines.begin_question(key(2), "a");
        let line = lines.line(key(1), "a").expect("a line");
        line.behind.push(Box::new([7]));
        lines.bytes = 1;
        assert!(!lines.takes_question(key(1), "a"), "one waits already");
        assert!(lines.takes_question(key(1), "b"));
        let none: Vec<Box<[u8]>> = Vec::new();
        assert_eq!(lines.end(key(1), "a", |line| line.questions -= 1), none);
        let behind = lines.end(key(1), "a", |line| line.is_asked = false);
        assert_eq!(behind, [Box::from([7])]);
        assert_eq!((lines.bytes(), lines.len()), (0, 2));
        assert_eq!(lines.end(key(1), "a", |_| panic!("it is over")), none);
        lines.forget(key(1));
        lines.end(key(2), "a", |line| line.questions -= 1);
        assert_eq!(lines.len(), 0);
    }

    #[test]
    fn a_line_waits_for_the_last_publication_to_its_channel() {
        let mut lines = Lines::default();
        assert!(!lines.awaits_publications(key(1), "a"));
        lines.begin_publication(publication("a"));
        lines.begin_publication(publication("a"));
        lines.begin_publication(publication("b"));
        assert!(!lines.awaits_publications(key(2), "a"), "another client's");
        assert!(lines.awaits_publications(key(1), "a"));
        assert!(lines.end_publication(publication("a")).is_empty());
        assert!(lines.end_publication(publication("b")).is_empty());
        assert_eq!(lines.end_publication(publication("a")), ["a".into()]);
        let line = lines.line(key(1), "a").expect("it waits for the delivery");
        assert_eq!(line.publications, Publications::Undelivered);
        assert!(lines.publishing.is_empty());
    }
}
