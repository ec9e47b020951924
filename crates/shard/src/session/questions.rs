//! Questions whose answers cost a shard much: member lists, history and recoveries. They wait in turn.
//!
//! A client may ask hundreds of them in one message, and each may take milliseconds. So a shard has few of them under way, and
//! one of each client. It asks the next ones in a later turn. Other clients wait for the questions of one turn, and not for
//! everything that somebody has asked. A question that its home keeps, until it has read further in a log, holds nothing up: all
//! questions of a client may be kept at once. So a client that comes back to a node that is behind waits once, and not for each channel.
//!
//! Changes `sessions`; sends by `mesh`.

use super::members::MembersWish;
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{Asker, ReadHistory, Recover, RecoveryMode, Ticket};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The cost of all questions that may be under way at once.
const COST_MAX: usize = 64;

/// A page of history is read, written, and perhaps compressed: some milliseconds for a megabyte.
const HISTORY_COST: usize = 16;

/// Every shard walks its members of the channel: some milliseconds for 10,000.
const MEMBERS_COST: usize = 64;

/// What a client missed is written, perhaps as deltas, and perhaps compressed: some milliseconds for a megabyte. Most missed
/// little, and all may come back at once.
const STREAM_COST: usize = 8;

/// The newest publication alone.
const CACHE_COST: usize = 1;

/// What a recovery costs.
fn recovery_cost(mode: RecoveryMode) -> usize {
    match mode {
        RecoveryMode::Stream => STREAM_COST,
        RecoveryMode::Cache => CACHE_COST,
    }
}

#[derive(Debug)]
pub(super) enum Question {
    History(Box<ReadHistory>),
    Members(Box<MembersWish>),
    Recover(Box<Recover>),
}

impl Question {
    fn cost(&self) -> usize {
        match self {
            Self::History(_) => HISTORY_COST,
            Self::Members(_) => MEMBERS_COST,
            Self::Recover(recover) => recovery_cost(recover.mode),
        }
    }

    /// What tells it from the others of its client. Server-side subscriptions have one command.
    fn name(&self) -> Name {
        let (command, channel) = match self {
            Self::History(read) => (command_of(read.asker), (&*read.channel).into()),
            Self::Members(wish) => (wish.ticket.command, Arc::clone(&wish.channel)),
            Self::Recover(recover) => (recover.ticket.command, Arc::clone(&recover.channel)),
        };
        Name { command, channel }
    }
}

/// The command of a client that asks.
fn command_of(asker: Asker) -> u32 {
    match asker {
        Asker::Session(ticket) => ticket.command,
        Asker::Control(_) => 0,
    }
}

/// A question of a client.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    command: u32,
    channel: Arc<str>,
}

impl Name {
    /// Whether it is the question of this command, about this channel if one is named.
    fn is(&self, command: u32, channel: Option<&str>) -> bool {
        self.command == command && channel.is_none_or(|channel| channel == &*self.channel)
    }
}

/// What a client has asked and was not answered yet.
#[derive(Debug, Default)]
struct Asked {
    /// With its cost.
    under_way: Option<(Name, usize)>,
    /// Questions that homes keep.
    held: Vec<Name>,
}

/// The questions of a shard's clients. Each has an open ticket, which bounds how many a client has.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Clients whose turn it will be, each once: they have questions that wait and none under way. Clients that have gone are
    /// skipped.
    turns: VecDeque<Key>,
    /// What waits, by client; never empty.
    waiting: HashMap<Key, VecDeque<Question>>,
    /// Clients with questions under way. They may have gone.
    asked: HashMap<Key, Asked>,
    cost: usize,
}

impl Questions {
    pub(super) fn push(&mut self, client: Key, question: Question) {
        let waiting = self.waiting.entry(client).or_default();
        waiting.push_back(question);
        let asked = self.asked.get(&client);
        let is_free = asked.is_none_or(|asked| asked.under_way.is_none());
        if waiting.len() == 1 && is_free {
            self.turns.push_back(client);
        }
    }

    /// The next question, if it may be asked now.
    fn pop(&mut self) -> Option<Question> {
        while let Some(&client) = self.turns.front() {
            let Some(waiting) = self.waiting.get_mut(&client) else {
                self.turns.pop_front();
                continue;
            };
            let cost = waiting.front().map_or(0, Question::cost);
            if self.cost + cost > COST_MAX {
                return None;
            }
            let question = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&client);
            }
            self.turns.pop_front();
            let question = question?;
            let asked = self.asked.entry(client).or_default();
            asked.under_way = Some((question.name(), cost));
            self.cost += cost;
            return Some(question);
        }
        None
    }

    /// The home keeps a client's question. Others may be asked in its place, also of the same client.
    fn release(&mut self, ticket: Ticket) {
        let client = ticket.connection;
        let Some(asked) = self.asked.get_mut(&client) else {
            return;
        };
        let is_it = |(name, _): &mut (Name, usize)| name.is(ticket.command, None);
        if let Some((name, cost)) = asked.under_way.take_if(is_it) {
            asked.held.push(name);
            self.cost -= cost;
            self.note_free(client);
        }
    }

    /// A client's question is answered, about this channel if it is one of a server-side subscription. The next one waits for its turn.
    /// Returns the channel that it was about.
    pub(super) fn finish(&mut self, ticket: Ticket, channel: Option<&str>) -> Arc<str> {
        let client = ticket.connection;
        // Each question is answered once. An answer too many takes nothing back.
        let Some(asked) = self.asked.get_mut(&client) else {
            debug_assert!(false, "each question is answered once");
            return "".into();
        };
        let is_it = |(name, _): &mut (Name, usize)| name.is(ticket.command, channel);
        let finished = asked.under_way.take_if(is_it);
        let mut held = asked.held.iter();
        let index = held.position(|name| name.is(ticket.command, channel));
        let answered = match (&finished, index) {
            (None, Some(index)) => Some(asked.held.swap_remove(index)),
            _ => None,
        };
        if asked.under_way.is_none() && asked.held.is_empty() {
            self.asked.remove(&client);
        }
        let answered = match finished {
            Some((name, cost)) => {
                self.cost -= cost;
                self.note_free(client);
                Some(name)
            }
            None => answered,
        };
        debug_assert!(answered.is_some(), "each question is answered once");
        answered.map_or_else(|| "".into(), |name| name.channel)
    }

    /// A client has no question under way: its next one waits for its turn.
    fn note_free(&mut self, client: Key) {
        if self.waiting.contains_key(&client) {
            self.turns.push_back(client);
        }
    }

    /// Drops what waits of a client that has gone.
    pub(super) fn forget(&mut self, client: Key) {
        self.waiting.remove(&client);
    }

    /// Whether questions may be asked and none is under way. While one is, its answer wakes the shard.
    pub(super) fn has_next(&self) -> bool {
        self.cost == 0 && !self.turns.is_empty()
    }

    /// Questions that wait, and those that were asked and are not answered.
    pub(super) fn len(&self) -> usize {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        let asked = self.asked.values();
        let asked: usize = asked
            .map(|one| one.held.len() + usize::from(one.under_way.is_some()))
            .sum();
        waiting + asked
    }
}

impl<R: Reactor> Shard<R> {
    /// The home keeps a client's question until it has read further.
    pub(crate) fn handle_held(&mut self, ticket: Ticket) {
        self.sessions.questions.release(ticket);
    }

    /// Asks the questions whose turn it is; once in a turn of the shard.
    pub(crate) fn ask_questions(&mut self) {
        while let Some(question) = self.sessions.questions.pop() {
            match question {
                Question::History(read) => {
                    let home = self.mesh.home_of(&read.channel);
                    self.send_message(home, Message::ReadHistory(read));
                }
                Question::Members(wish) => self.gather_members(*wish),
                Question::Recover(recover) => {
                    let home = self.mesh.home_of(&recover.channel);
                    self.send_message(home, Message::Recover(recover));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_hub::Since;

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 1,
        }
    }

    fn ticket(client: u32, command: u32) -> Ticket {
        Ticket {
            mark: 0,
            shard: 0,
            connection: key(client),
            command,
        }
    }

    fn history(client: Key, command: u32) -> Question {
        let ticket = ticket(client.index, command);
        Question::History(Box::new(ReadHistory {
            channel: "c".into(),
            asker: Asker::Session(ticket),
            limit: None,
            since: None,
            reverse: false,
        }))
    }

    /// Client and command of what may be asked now.
    fn popped(questions: &mut Questions) -> Vec<(u32, u32)> {
        let asked = std::iter::from_fn(|| questions.pop());
        asked
            .map(|question| match question {
                Question::History(read) => match read.asker {
                    Asker::Session(ticket) => (ticket.connection.index, ticket.command),
                    other => panic!("{other:?}"),
                },
                Question::Members(_) | Question::Recover(_) => panic!("none was asked"),
            })
            .collect()
    }

    #[test]
    fn clients_take_turns_and_one_waits_for_its_own_answer() {
        let mut questions = Questions::default();
        for command in 1..=3 {
            questions.push(key(1), history(key(1), command));
        }
        for client in 2..=6 {
            questions.push(key(client), history(key(client), 1));
        }
        assert_eq!(popped(&mut questions), [(1, 1), (2, 1), (3, 1), (4, 1)]);
        assert!(!questions.has_next(), "answers have to come first");
        questions.finish(ticket(1, 1), None);
        questions.finish(ticket(2, 1), None);
        assert_eq!(popped(&mut questions), [(5, 1), (6, 1)]);
        for client in 3..=6 {
            questions.finish(ticket(client, 1), None);
        }
        assert!(questions.has_next());
        assert_eq!(popped(&mut questions), [(1, 2)]);
        // It goes while one is under way and one waits.
        questions.forget(key(1));
        questions.finish(ticket(1, 2), None);
        assert!(!questions.has_next());
        assert_eq!(questions.len(), 0);
    }

    #[test]
    fn recoveries_take_turns_too_and_those_of_a_cache_are_cheap() {
        for (mode, at_once) in [(RecoveryMode::Stream, 8), (RecoveryMode::Cache, 64)] {
            let mut questions = Questions::default();
            for client in 0..100 {
                let ticket = ticket(client, 1);
                questions.push(key(client), recover(ticket, "c", mode));
            }
            let asked = std::iter::from_fn(|| questions.pop()).count();
            assert_eq!(asked, at_once);
            questions.finish(ticket(0, 1), Some("c"));
            assert_eq!(std::iter::from_fn(|| questions.pop()).count(), 1);
        }
    }

    fn recover(ticket: Ticket, channel: &str, mode: RecoveryMode) -> Question {
        Question::Recover(Box::new(Recover {
            channel: channel.into(),
            ticket,
            since: Since {
                offset: 0,
                epoch: "".into(),
            },
            mode,
            is_asked: true,
            max: 300,
        }))
    }

    #[test]
    fn questions_that_homes_keep_hold_up_nothing() {
        let mut questions = Questions::default();
        for client in 1..=4 {
            questions.push(key(client), history(key(client), 1));
            questions.push(key(client), history(key(client), 2));
        }
        assert_eq!(popped(&mut questions).len(), 4);
        for client in 1..=4 {
            questions.release(ticket(client, 1));
        }
        assert!(questions.has_next(), "their own next ones, too");
        assert_eq!(popped(&mut questions), [(1, 2), (2, 2), (3, 2), (4, 2)]);
        assert_eq!(questions.len(), 8);
        // The one that is kept is answered first, and then once more kept for another reason.
        questions.release(ticket(1, 1));
        questions.finish(ticket(1, 1), None);
        questions.push(key(1), history(key(1), 3));
        assert_eq!(popped(&mut questions), [], "one of a client at once");
        questions.finish(ticket(1, 2), None);
        assert_eq!(popped(&mut questions), [(1, 3)]);
        questions.finish(ticket(1, 3), None);
        for client in 2..=4 {
            questions.finish(ticket(client, 1), None);
            questions.finish(ticket(client, 2), None);
        }
        assert_eq!((questions.len(), questions.cost), (0, 0));
    }

    #[test]
    fn recoveries_of_one_command_are_told_apart_by_their_channels() {
        let mut questions = Questions::default();
        let mode = RecoveryMode::Stream;
        for channel in ["a", "b", "c"] {
            questions.push(key(1), recover(ticket(1, 0), channel, mode));
        }
        assert!(questions.pop().is_some() && questions.pop().is_none());
        questions.release(ticket(1, 0));
        assert!(questions.pop().is_some() && questions.pop().is_none());
        questions.finish(ticket(1, 0), Some("a"));
        assert_eq!(questions.cost, STREAM_COST, "b is under way");
        questions.finish(ticket(1, 0), Some("b"));
        assert!(questions.pop().is_some());
        questions.finish(ticket(1, 0), Some("c"));
        assert_eq!((questions.len(), questions.cost), (0, 0));
    }

    #[test]
    fn who_has_gone_is_skipped_in_turn() {
        let mut questions = Questions::default();
        for client in [1, 2] {
            questions.push(key(client), history(key(client), 7));
        }
        questions.forget(key(1));
        assert_eq!(popped(&mut questions), [(2, 7)]);
        questions.finish(ticket(2, 7), None);
        assert_eq!(questions.len(), 0);
    }
}
