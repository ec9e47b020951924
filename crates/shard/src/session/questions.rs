//! Questions whose answers cost a shard much: member lists, history and recoveries. They wait in turn.
//!
//! A client may ask hundreds of them in one message, and each may take milliseconds. So a shard has few of them under way, and
//! one of each client. It asks the next ones in a later turn. Other clients wait for the questions of one turn, and not for
//! everything that somebody has asked. A question that its home keeps, until it has read further in a log, holds nobody else up.
//!
//! Changes `sessions`; sends by `mesh`.

use super::members::MembersWish;
use crate::mesh::Message;
use crate::shard::Shard;
use myriad_hub::{ReadHistory, Recover, RecoveryMode, Ticket};
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
    fn channel(&self) -> Arc<str> {
        match self {
            Self::History(read) => (&*read.channel).into(),
            Self::Members(wish) => Arc::clone(&wish.channel),
            Self::Recover(recover) => Arc::clone(&recover.channel),
        }
    }

    fn cost(&self) -> usize {
        match self {
            Self::History(_) => HISTORY_COST,
            Self::Members(_) => MEMBERS_COST,
            Self::Recover(recover) => recovery_cost(recover.mode),
        }
    }
}

/// The questions of a shard's clients. Each has an open ticket, which bounds how many a client has.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Clients whose turn it will be, each once: they have questions that wait and none under way. Clients that have gone are
    /// skipped.
    turns: VecDeque<Key>,
    /// What waits, by client; never empty.
    waiting: HashMap<Key, VecDeque<Question>>,
    /// Clients with a question under way, its cost and its channel. They may have gone.
    asked: HashMap<Key, (usize, Arc<str>)>,
    cost: usize,
}

impl Questions {
    pub(super) fn push(&mut self, client: Key, question: Question) {
        let waiting = self.waiting.entry(client).or_default();
        waiting.push_back(question);
        if waiting.len() == 1 && !self.asked.contains_key(&client) {
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
            self.cost += cost;
            let question = question?;
            self.asked.insert(client, (cost, question.channel()));
            return Some(question);
        }
        None
    }

    /// The home keeps a client's question. Others may be asked in its place; the client's own next one waits for its answer.
    fn release(&mut self, client: Key) {
        if let Some((cost, _)) = self.asked.get_mut(&client) {
            self.cost -= std::mem::take(cost);
        }
    }

    /// A client's question is answered. Its next one waits for its turn. The channel that it was about.
    pub(super) fn finish(&mut self, client: Key) -> Arc<str> {
        // Each question is answered once. An answer too many takes nothing back.
        let asked = self.asked.remove(&client);
        debug_assert!(asked.is_some());
        let (cost, channel) = asked.unwrap_or_else(|| (0, "".into()));
        self.cost -= cost;
        if self.waiting.contains_key(&client) {
            self.turns.push_back(client);
        }
        channel
    }

    /// Drops what waits of a client that has gone.
    pub(super) fn forget(&mut self, client: Key) {
        self.waiting.remove(&client);
    }

    /// Whether questions may be asked and none is under way. While one is, its answer wakes the shard.
    pub(super) fn has_next(&self) -> bool {
        self.cost == 0 && !self.turns.is_empty()
    }

    /// Questions that wait, and clients that wait for an answer.
    pub(super) fn len(&self) -> usize {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        waiting + self.asked.len()
    }
}

impl<R: Reactor> Shard<R> {
    /// The home keeps a client's question until it has read further.
    pub(crate) fn handle_held(&mut self, ticket: Ticket) {
        self.sessions.questions.release(ticket.connection);
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
    use myriad_hub::{Asker, Since};

    fn key(index: u32) -> Key {
        Key {
            index,
            generation: 1,
        }
    }

    fn history(client: Key, command: u32) -> Question {
        let ticket = Ticket {
            mark: 0,
            shard: 0,
            connection: client,
            command,
        };
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
        questions.finish(key(1));
        questions.finish(key(2));
        assert_eq!(popped(&mut questions), [(5, 1), (6, 1)]);
        for client in 3..=6 {
            questions.finish(key(client));
        }
        assert!(questions.has_next());
        assert_eq!(popped(&mut questions), [(1, 2)]);
        // It goes while one is under way and one waits.
        questions.forget(key(1));
        questions.finish(key(1));
        assert!(!questions.has_next());
        assert_eq!(questions.len(), 0);
    }

    #[test]
    fn recoveries_take_turns_too_and_those_of_a_cache_are_cheap() {
        let recover = |client: u32, mode: RecoveryMode| {
            let ticket = Ticket {
                mark: 0,
                shard: 0,
                connection: key(client),
                command: 1,
            };
            Question::Recover(Box::new(Recover {
                channel: "c".into(),
                ticket,
                since: Since {
                    offset: 0,
                    epoch: "".into(),
                },
                mode,
                is_asked: true,
                max: 300,
            }))
        };
        for (mode, at_once) in [(RecoveryMode::Stream, 8), (RecoveryMode::Cache, 64)] {
            let mut questions = Questions::default();
            for client in 0..100 {
                questions.push(key(client), recover(client, mode));
            }
            let asked = std::iter::from_fn(|| questions.pop()).count();
            assert_eq!(asked, at_once);
            questions.finish(key(0));
            assert_eq!(std::iter::from_fn(|| questions.pop()).count(), 1);
        }
    }

    #[test]
    fn a_question_that_its_home_keeps_holds_up_nobody_but_its_client() {
        let mut questions = Questions::default();
        for client in 1..=4 {
            questions.push(key(client), history(key(client), 1));
            questions.push(key(client), history(key(client), 2));
        }
        assert_eq!(popped(&mut questions).len(), 4);
        for client in 1..=4 {
            questions.release(key(client));
        }
        assert!(!questions.has_next(), "they wait for their own answers");
        questions.push(key(5), history(key(5), 1));
        assert!(questions.has_next());
        assert_eq!(popped(&mut questions), [(5, 1)]);
        questions.finish(key(1));
        assert_eq!(popped(&mut questions), [(1, 2)]);
    }

    #[test]
    fn who_has_gone_is_skipped_in_turn() {
        let mut questions = Questions::default();
        for client in [1, 2] {
            questions.push(key(client), history(key(client), 7));
        }
        questions.forget(key(1));
        assert_eq!(popped(&mut questions), [(2, 7)]);
        questions.finish(key(2));
        assert_eq!(questions.len(), 0);
    }
}
