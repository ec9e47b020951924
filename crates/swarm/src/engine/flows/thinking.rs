//! Flows in a closed loop: each terminal sends, waits for the answer, thinks, and sends again.
//!
//! How many messages that makes depends on the server: one that answers late is asked less. So the load is that of so many people, and no
//! rate. A terminal is in one of two places here: among those that think, or among those that wait.

use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use crate::random::Random;
use myriad_reactor::Token;
use myriad_units::parse;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// Longest time to think that can be asked for.
const THINK_MAX: Duration = Duration::from_secs(86_400);

/// Stale entries are not looked for before there are so many more entries than twice those in use.
const STALE_MIN: usize = 1024;

/// How long a terminal thinks between an answer and its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// Always the same.
    Constant(Duration),
    /// Any time from the first to the second, each as likely.
    Between(Duration, Duration),
    /// Exponentially distributed with this mean: many short pauses and a few long ones.
    Exponential(Duration),
}

impl Think {
    /// Reads `2s`, `1s..5s` or `exp(2s)`.
    ///
    /// # Errors
    /// The text is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let time = |text: &str| match parse::duration(text.trim()) {
            Ok(time) if time > THINK_MAX => Err("nobody thinks for more than a day".to_owned()),
            read => read.map_err(|error| error.to_string()),
        };
        let mean = text
            .strip_prefix("exp(")
            .and_then(|rest| rest.strip_suffix(')'));
        if let Some(mean) = mean {
            return time(mean).map(Self::Exponential);
        }
        let Some((least, most)) = text.split_once("..") else {
            return time(text).map(Self::Constant);
        };
        match (time(least)?, time(most)?) {
            (least, most) if least <= most => Ok(Self::Between(least, most)),
            _ => Err("the first time is longer than the second; write it as in 1s..5s".to_owned()),
        }
    }

    /// The next pause.
    pub(super) fn next(self, random: &mut Random) -> Duration {
        match self {
            Self::Constant(time) => time,
            Self::Between(least, most) => least + (most - least).mul_f64(random.part()),
            // At most 37 times the mean, because what is left of one is at least 2^-53.
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - random.part()).ln()),
        }
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(time) => write!(f, "{time:?}"),
            Self::Between(least, most) => write!(f, "{least:?}..{most:?}"),
            Self::Exponential(mean) => write!(f, "exp({mean:?})"),
        }
    }
}

/// The terminals of a thread in one such flow.
#[derive(Debug)]
pub(super) struct Loop {
    think: Think,
    /// When terminals have thought, their connection, and the number of the entry.
    thinking: BinaryHeap<Reverse<(Nanos, u32, u8, u32)>>,
    /// By terminal: its last entry there. Those before it mean nothing any more.
    entries: HashMap<u32, u32>,
    entered: u32,
    /// By terminal: its message without an answer, and the attempt that sent it.
    waiting: HashMap<u32, (u64, u8)>,
    /// When they are given up, oldest first. One that was answered stays behind those that wait.
    over: VecDeque<(Nanos, u32, u64)>,
    /// Messages so far.
    issued: u64,
}

impl Loop {
    pub(super) fn new(think: Think) -> Self {
        Self {
            think,
            thinking: BinaryHeap::new(),
            entries: HashMap::new(),
            entered: 0,
            waiting: HashMap::new(),
            over: VecDeque::new(),
            issued: 0,
        }
    }

    /// A terminal has opened, or reads again. It does not begin at once: what opened together does not think in step.
    pub(super) fn begin(&mut self, token: Token, from: Nanos, random: &mut Random) {
        self.waiting.remove(&token.index);
        let wait = self.think.next(random).mul_f64(random.part());
        self.push(from.plus(wait), token);
    }

    fn push(&mut self, at: Nanos, token: Token) {
        self.entered = self.entered.wrapping_add(1);
        self.entries.insert(token.index, self.entered);
        let entry = (at, token.index, token.generation, self.entered);
        self.thinking.push(Reverse(entry));
        self.drop_stale();
    }

    /// Drops stale entries: those of terminals that have another entry by now. They would stay until they are due, which may be in a day.
    /// At least half of all entries go each time, so that an entry costs no more than a few steps.
    fn drop_stale(&mut self) {
        if self.thinking.len() > STALE_MIN + 2 * self.entries.len() {
            let entries = &self.entries;
            self.thinking
                .retain(|Reverse((_, index, _, entry))| entries.get(index) == Some(entry));
        }
    }

    /// The terminal that has thought for longest, if one has: its connection, and until when it thought.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<(Token, Nanos)> {
        while let Some(&Reverse((at, index, generation, entry))) = self.thinking.peek()
            && at <= now
        {
            self.thinking.pop();
            if self.entries.get(&index) == Some(&entry) {
                return Some((Token { index, generation }, at));
            }
        }
        None
    }

    /// It cannot send yet.
    pub(super) fn put_back(&mut self, token: Token, until: Nanos) {
        self.push(until, token);
    }

    /// The index of its message, which is on its way from now on and is given up at a time.
    pub(super) fn issue(&mut self, token: Token, number: impl Fn(u64) -> u64, until: Nanos) -> u64 {
        let number = number(self.issued);
        self.issued += 1;
        self.waiting.insert(token.index, (number, token.generation));
        self.over.push_back((until, token.index, number));
        number
    }

    /// A message of this number has come to a terminal, or was answered. If the terminal waits for that, it thinks now.
    pub(super) fn answer(&mut self, index: u32, number: u64, now: Nanos, random: &mut Random) {
        let Some(&(waiting, generation)) = self.waiting.get(&index) else {
            return;
        };
        if waiting == number {
            self.waiting.remove(&index);
            let at = now.plus(self.think.next(random));
            self.push(at, Token { index, generation });
        }
    }

    /// Has those think whose answer will not come any more.
    pub(super) fn give_up(&mut self, now: Nanos, random: &mut Random) {
        while let Some(&(at, index, number)) = self.over.front()
            && (at <= now || !self.is_waiting(index, number))
        {
            self.over.pop_front();
            self.answer(index, number, now, random);
        }
    }

    fn is_waiting(&self, index: u32, number: u64) -> bool {
        let waiting = self.waiting.get(&index);
        waiting.is_some_and(|(waiting, _)| *waiting == number)
    }

    /// Time until a terminal has thought, or is given up.
    pub(super) fn wait(&self, now: Nanos) -> Duration {
        let thinking = self.thinking.peek().map(|Reverse((at, ..))| *at);
        let over = self.over.front().map(|(at, ..)| *at);
        let next = thinking.into_iter().chain(over).min();
        next.map_or(Duration::MAX, |at| at.since(now))
    }
}

impl World {
    /// Notes that a terminal opened, or reads again, where terminals think.
    pub(in crate::engine) fn note_newcomer(&mut self, index: u32) {
        let flows = self.plan.flows.as_ref();
        if flows.is_some_and(|flows| flows.has_thinking()) {
            let terminal = &self.terminals[index as usize];
            self.newcomers.push(terminal.token(index));
        }
    }

    /// Whether a terminal may send on this connection, now or later. One that sends requests may do so on any.
    pub(super) fn may_send(&self, token: Token) -> bool {
        if self.is_requesting() {
            return self.is_free(token.index) || self.is_waiting_for_answer(token.index);
        }
        self.current(token)
            .is_some_and(|index| self.terminals[index].phase == Phase::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    #[test]
    fn a_time_to_think_is_one_a_range_or_a_mean() {
        assert_eq!(Think::parse("2s"), Ok(Think::Constant(SECOND * 2)));
        assert_eq!(
            Think::parse("1s..5s"),
            Ok(Think::Between(SECOND, SECOND * 5))
        );
        assert_eq!(Think::parse("exp(1s)"), Ok(Think::Exponential(SECOND)));
        for text in [
            "",
            "2",
            "5s..1s",
            "exp(2s",
            "exp()",
            "1s..",
            "25h",
            "exp(1e9h)",
        ] {
            Think::parse(text).expect_err(text);
        }
    }

    #[test]
    fn pauses_are_distributed_as_they_should_be() {
        let mut random = Random::new(7);
        let mut pauses = |think: Think| -> Vec<f64> {
            let pauses = (0..10_000).map(|_| think.next(&mut random).as_secs_f64());
            pauses.collect()
        };
        let mean = |pauses: &[f64]| pauses.iter().sum::<f64>() / 10_000.0;
        let between = pauses(Think::Between(SECOND, SECOND * 3));
        assert!(between.iter().all(|pause| (1.0..=3.0).contains(pause)));
        assert!((1.95..2.05).contains(&mean(&between)));
        let exponential = pauses(Think::Exponential(SECOND));
        assert!((0.95..1.05).contains(&mean(&exponential)));
        // As many are shorter than the mean as the distribution says: 1 - 1/e.
        let shorter = exponential.iter().filter(|&&pause| pause < 1.0).count();
        assert!((6_100..6_550).contains(&shorter), "{shorter}");
        assert_eq!(pauses(Think::Constant(SECOND)).last(), Some(&1.0));
    }

    #[test]
    fn terminals_that_are_replaced_leave_nothing_behind() {
        let mut random = Random::new(1);
        let mut own = Loop::new(Think::Constant(THINK_MAX));
        for round in 0..1000_u32 {
            for index in 0..100 {
                let generation = round.to_le_bytes()[0];
                own.begin(Token { index, generation }, at(0), &mut random);
            }
            assert!(own.thinking.len() <= STALE_MIN + 200);
        }
        let mut due: Vec<Token> = Vec::new();
        while let Some((token, _)) = own.take_due(at(86_400_000)) {
            due.push(token);
        }
        due.sort_by_key(|token| token.index);
        let last = 999_u32.to_le_bytes()[0];
        let expected = (0..100).map(|index| Token {
            index,
            generation: last,
        });
        assert_eq!(due, expected.collect::<Vec<_>>());
    }

    #[test]
    fn who_is_answered_thinks_and_who_is_not_does_so_later() {
        let mut random = Random::new(1);
        let token = |index| Token {
            index,
            generation: 1,
        };
        let mut own = Loop::new(Think::Constant(SECOND));
        own.begin(token(0), at(0), &mut random);
        own.begin(token(1), at(0), &mut random);
        assert!(own.take_due(at(0)).is_none() && own.wait(at(0)) <= SECOND);
        let mut due = || own.take_due(at(1000)).expect("it has thought").0;
        let (first, second) = (due(), due());
        assert!(own.take_due(at(1000)).is_none());
        let number = |issued: u64| issued * 2;
        let until = at(6000);
        assert_eq!(own.issue(first, number, until), 0);
        assert_eq!(own.issue(second, number, until), 2);
        // The answer to somebody else, the own one, and the own one again.
        own.answer(first.index, 2, at(1500), &mut random);
        own.answer(first.index, 0, at(2000), &mut random);
        own.answer(first.index, 0, at(2100), &mut random);
        assert_eq!(own.take_due(at(3000)), Some((first, at(3000))));
        assert_eq!(own.take_due(at(5999)), None);
        own.give_up(at(6000), &mut random);
        assert_eq!(own.take_due(at(7000)), Some((second, at(7000))));
        assert_eq!(own.wait(at(7000)), Duration::MAX);
    }
}
