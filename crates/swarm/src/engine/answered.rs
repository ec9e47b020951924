//! Answered messages: sent by a schedule over the whole crowd, and each of them answered by the server.
//!
//! The answer to an echo is the message itself, sent back. In a run with sessions the messages are commands that publish, and
//! the answer is the reply ([`Answer`]); what they publish comes to the subscribers in `session/publications.rs`.
//!
//! The schedule is open-loop: a message is due at its time, however many are unanswered. It goes out on the next open
//! terminal in turn, and its round trip counts from when it was due. If more messages are due in a turn than there are
//! terminals, each terminal has several of them, in one send. A message's number gives its time, so only unanswered
//! messages take memory. Past [`AnsweredPlan::outstanding_max`] unanswered ones, and while no terminal's socket takes
//! bytes, messages are held back. They are sent late, and count from when they were due. Those still held back when the
//! schedule has ended are never sent.
//!
//! A message without an answer for the settle time is lost, and so is one whose connection ended. If the terminal left
//! on purpose before the answer came, the message does not count.

use crate::clock::{Nanos, Ticks};
use crate::echo_stamp::{EchoStamp, Found};
use crate::engine::crowd::World;
use crate::engine::pacing::{HELD_STEP, Pacing, SEND_GRACE, Share};
use crate::engine::plan::{Answer, AnsweredPlan, Part, Plan};
use crate::engine::round_robin::{LOOKS_PER_TURN_MAX, RoundRobin};
use crate::engine::shared::{Shared, Span};
use crate::engine::terminal::{Phase, Terminal};
use crate::failure::Failure;
use crate::measure::round_trip::Counts;
use myriad_reactor::Token;
use myriad_wire::ws::{Kind, Opcode};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Messages sent in one turn, and their bytes. More wait for the next, so that receiving is never held up for long.
const PER_TURN_MAX: usize = 1024;
const PER_TURN_BYTES_MAX: usize = 1 << 20;
/// Bytes that a terminal sends at once of several messages.
const PER_TERMINAL_BYTES_MAX: usize = 8 << 10;

/// How often the unanswered are looked through while the schedule goes on, and after its end.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY_AT_END: Duration = Duration::from_millis(50);

/// A thread's part of the schedule.
#[derive(Debug)]
pub(super) struct AnsweredMessages {
    plan: AnsweredPlan,
    part: Part,
    run: u16,
    threads: u64,
    /// Of each thread.
    shares: Vec<Share>,
    /// None before the schedule is known.
    pacing: Option<Pacing>,
    until: Nanos,
    terminals: RoundRobin,
    /// By number: messages without an answer that were not given up.
    outstanding: HashMap<u64, Outstanding>,
    /// Connections that were lost since the last sweep, of terminals that come back.
    lost: HashSet<(u32, u8)>,
    swept: Nanos,
    /// Whether messages were held back because of the server, and not all of them are sent yet.
    held: bool,
    counts: Counts,
    /// The schedule is over, and nothing is outstanding.
    ended: bool,
}

/// A message without an answer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    token: Token,
    sent: Ticks,
}

/// What a message turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Nothing to do with the messages of this run.
    Other,
    /// The answer to the message of this number.
    Answer(u64),
    /// Has the stamp of such a message, but differs from what was sent.
    Wrong,
    /// An answer without an unanswered message on this connection.
    Unknown,
}

/// What became of a message that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Outstanding,
    Lost,
    /// Its terminal left on purpose.
    Departed,
}

impl AnsweredMessages {
    pub(super) fn new(plan: &Plan, part: Part) -> Option<Box<Self>> {
        let answered = plan.answered?;
        let share = |thread: u32| Share::of(answered.rate_per_s, plan, plan.part(thread));
        Some(Box::new(Self {
            plan: AnsweredPlan {
                outstanding_max: (answered.outstanding_max / plan.threads as usize).max(1),
                ..answered
            },
            part,
            run: plan.run,
            threads: u64::from(plan.threads),
            shares: (0..plan.threads).map(share).collect(),
            pacing: None,
            until: Nanos(0),
            terminals: RoundRobin::default(),
            outstanding: HashMap::new(),
            lost: HashSet::new(),
            swept: Nanos(0),
            held: false,
            counts: Counts::default(),
            ended: false,
        }))
    }

    /// The figures so far, and whether they are final.
    pub(super) fn account(&self) -> (Counts, bool) {
        (self.counts, self.ended)
    }

    /// Time until they need attention.
    pub(super) fn wait(&self, now: Nanos) -> Duration {
        match self.pacing.as_ref().filter(|_| !self.ended) {
            None => Duration::MAX,
            Some(_) if now >= self.until && self.is_sent(now) => SWEEP_EVERY_AT_END,
            Some(_) if self.held => HELD_STEP,
            Some(_) if now >= self.until => Duration::ZERO,
            Some(pacing) => pacing.wait(now).min(self.until.since(now)),
        }
    }

    pub(super) fn run(&self) -> u16 {
        self.run
    }

    pub(super) fn answer(&self) -> Answer {
        self.plan.answer
    }

    /// When a message was due whose schedule began at `from`, whichever thread sent it.
    pub(super) fn due_at(&self, from: Nanos, number: u64) -> Nanos {
        let thread = number % self.threads;
        let share = self.shares[usize::try_from(thread).expect("the index of a thread")];
        share.pacing(from).at(number / self.threads)
    }

    /// Whether any thread has sent the message of this number.
    pub(super) fn was_sent(&self, shared: &Shared, number: u64) -> bool {
        let thread = usize::try_from(number % self.threads).expect("the index of a thread");
        number / self.threads < shared.messages_sent(thread)
    }

    /// Takes the answer to a message on a connection. None if it has no unanswered message of that number.
    pub(super) fn take_answer(&mut self, token: Token, number: u64) -> Option<Outstanding> {
        let asked = self.outstanding.get(&number);
        if asked.is_none_or(|asked| asked.token != token) {
            return None;
        }
        self.outstanding.remove(&number)
    }

    /// The number at or before the next one to be sent whose lowest `bits` are these.
    pub(super) fn newest_like(&self, low: u64, bits: u32) -> Option<u64> {
        let next = self.number(self.pacing.as_ref()?.issued());
        next.checked_sub(next.wrapping_sub(low) % (1 << bits))
    }

    /// Counts an answer, and returns the time since its message was due.
    pub(super) fn note_answer(&mut self, number: u64, now: Nanos) -> Duration {
        self.counts.received += 1;
        self.counts.last = Some(now);
        let pacing = self.pacing.as_ref().expect("something was sent");
        now.since(pacing.at(number / self.threads))
    }

    /// Notes that a connection was lost whose terminal makes another: its messages are lost, and did not leave with it.
    pub(super) fn note_lost(&mut self, token: Token) {
        self.lost.insert((token.index, token.generation));
    }

    /// Has the unanswered looked through as soon as possible: an answer that comes later is none.
    pub(super) fn sweep_soon(&mut self) {
        self.swept = Nanos(0);
    }

    /// Counts a message that the server refused: it is lost.
    pub(super) fn note_refused(&mut self) {
        self.counts.errors += 1;
        self.counts.lost += 1;
    }

    /// Bytes by which an answer is told from a message that is longer.
    pub(super) fn answer_bytes_max(&self) -> usize {
        self.plan.payload_bytes + 1
    }

    /// Whether the schedule is over, and each due message was sent or never will be.
    fn is_sent(&self, now: Nanos) -> bool {
        self.counts.unsent() == 0 || now >= self.until.plus(SEND_GRACE)
    }

    fn number(&self, index: u64) -> u64 {
        index * self.threads + u64::from(self.part.thread)
    }

    /// Reads when the schedule begins and ends, and how many messages are due by now.
    fn keep_time(&mut self, window: Span, now: Nanos) -> u64 {
        let share = self.shares[self.part.thread as usize];
        let pacing = self.pacing.get_or_insert_with(|| share.pacing(window.from));
        self.until = window.until;
        let due = pacing.due_before(window.until, now);
        self.counts.due = self.counts.sent + due;
        if due == 0 {
            self.held = false;
        }
        due
    }

    /// Notes how late the next message is, and whether crowd or server is the cause.
    fn note_lateness(&mut self, now: Nanos) {
        let lateness = self
            .pacing
            .as_ref()
            .map_or(Duration::ZERO, |p| p.lateness(now));
        let late = if self.held {
            &mut self.counts.held
        } else {
            &mut self.counts.late
        };
        *late = lateness.max(*late);
    }

    fn hear(&mut self, token: Token, kind: Kind, message: &[u8]) -> Heard {
        let stamp = match EchoStamp::find(message) {
            Found::Nothing => return Heard::Other,
            Found::Broken => return Heard::Wrong,
            Found::Stamp(stamp) => stamp,
        };
        if stamp.run != self.run {
            return Heard::Other;
        }
        let asked = self.outstanding.get(&stamp.number);
        if asked.is_none_or(|asked| asked.token != token) {
            return Heard::Unknown;
        }
        if kind != Kind::Text || !stamp.is_whole(message, self.plan.payload_bytes) {
            return Heard::Wrong;
        }
        self.outstanding.remove(&stamp.number);
        Heard::Answer(stamp.number)
    }

    /// Gives up messages that can no longer be answered, and calls `give_up` with the terminal of each.
    fn sweep(&mut self, terminals: &[Terminal], now: Nanos, mut give_up: impl FnMut(Token)) {
        let (counts, settle) = (&mut self.counts, self.plan.settle);
        let lost = std::mem::take(&mut self.lost);
        self.outstanding.retain(|_, asked| {
            let fate = match lost.contains(&(asked.token.index, asked.token.generation)) {
                true => Fate::Lost,
                false => fate(asked, &terminals[asked.token.index as usize], now, settle),
            };
            match fate {
                Fate::Outstanding => return true,
                Fate::Lost => counts.lost += 1,
                Fate::Departed => counts.departed += 1,
            }
            give_up(asked.token);
            false
        });
        self.swept = now;
    }
}

fn fate(asked: &Outstanding, terminal: &Terminal, now: Nanos, settle: Duration) -> Fate {
    // Only those that left on purpose connect again, and those that were lost: the caller knows them. Who stalls does so on
    // purpose, too.
    let left = terminal.attempt != asked.token.generation
        || matches!(
            terminal.phase,
            Phase::Leaving | Phase::Waiting | Phase::Stalled | Phase::Vanished
        );
    if left {
        Fate::Departed
    } else if terminal.phase != Phase::Open || now.ticks().since(asked.sent) >= settle {
        Fate::Lost
    } else {
        Fate::Outstanding
    }
}

/// Messages that each of so many terminals sends at once, so that all of them have a part of the `wanted` ones.
fn per_terminal(wanted: usize, terminals: usize, payload_bytes: usize) -> usize {
    let bytes_allow = PER_TERMINAL_BYTES_MAX / payload_bytes.max(1);
    wanted.div_ceil(terminals.max(1)).min(bytes_allow).max(1)
}

impl World {
    /// Sends the messages that are due, and ends the schedule when it is over.
    pub(super) fn send_messages(&mut self, now: Nanos) {
        let Some(mut answered) = self.answered.take() else {
            return;
        };
        if let Some(window) = self.shared.schedule()
            && !answered.ended
        {
            let due = answered.keep_time(window, now);
            if now < window.until.plus(SEND_GRACE) {
                self.send_due_messages(&mut answered, due, now);
            }
            self.sweep_unanswered(&mut answered, now);
        }
        self.answered = Some(answered);
    }

    fn send_due_messages(&mut self, answered: &mut AnsweredMessages, due: u64, now: Nanos) {
        let room = answered
            .plan
            .outstanding_max
            .saturating_sub(answered.outstanding.len())
            .min(PER_TURN_MAX)
            .min((PER_TURN_BYTES_MAX / answered.plan.payload_bytes).max(1));
        let wanted = usize::try_from(due).unwrap_or(usize::MAX).min(room);
        if due > 0 {
            answered.note_lateness(now);
        }
        let payload_bytes = answered.plan.payload_bytes;
        let at_once = per_terminal(wanted, self.terminals.len(), payload_bytes);
        // At most one walk, so that each terminal has one send in a batch.
        let mut looks = self.terminals.len().min(LOOKS_PER_TURN_MAX);
        let mut sent = 0;
        while sent < wanted
            && let Some(index) =
                answered
                    .terminals
                    .next(self.terminals.len(), &mut looks, |index| {
                        self.is_free(index)
                    })
        {
            let count = at_once.min(wanted - sent);
            for _ in 0..count {
                self.send_message(answered, index, now);
            }
            sent += count;
        }
        answered.held |= due > 0 && sent == 0;
        // Before they leave: whoever hears of one finds it among those that were sent.
        self.shared
            .note_messages_sent(self.part.thread as usize, answered.counts.sent);
    }

    fn send_message(&mut self, answered: &mut AnsweredMessages, index: u32, now: Nanos) {
        let token = self.terminals[index as usize].token(index);
        let pacing = answered.pacing.as_mut().expect("the schedule has begun");
        let issued = pacing.issued();
        pacing.issue(1);
        let number = answered.number(issued);
        let stamp = EchoStamp {
            run: answered.run,
            number,
        };
        let payload_bytes = answered.plan.payload_bytes;
        match answered.plan.answer {
            Answer::Echo => {
                let payload = stamp.payload(payload_bytes);
                self.queue_message(token, Opcode::Text, payload.as_bytes());
            }
            Answer::Reply => self.send_publication(token, stamp, payload_bytes),
        }
        let sent = now.ticks();
        answered
            .outstanding
            .insert(number, Outstanding { token, sent });
        assert!(answered.outstanding.len() <= answered.plan.outstanding_max);
        answered.counts.sent += 1;
    }

    fn sweep_unanswered(&mut self, answered: &mut AnsweredMessages, now: Nanos) {
        let after_end = now >= answered.until;
        let every = if after_end {
            SWEEP_EVERY_AT_END
        } else {
            SWEEP_EVERY
        };
        if now.since(answered.swept) >= every {
            let is_published = answered.answer() == Answer::Reply;
            let mut possible = 0;
            answered.sweep(&self.terminals, now, |token| {
                if is_published {
                    possible += self.subscribers_of_first(token);
                }
            });
            self.notes.deliveries_possible += possible;
        }
        answered.ended = after_end && answered.is_sent(now) && answered.outstanding.is_empty();
    }

    /// Takes a message for the answer to an echo, if it is one.
    pub(super) fn hear_answer(
        &mut self,
        token: Token,
        kind: Kind,
        message: &[u8],
        now: Nanos,
    ) -> bool {
        let is_excused = self.excuses_answer(token.index, now);
        let Some(answered) = &mut self.answered else {
            return false;
        };
        match answered.hear(token, kind, message) {
            Heard::Other => return false,
            Heard::Answer(number) => {
                let time = answered.note_answer(number, now);
                self.notes.answer_times.push(time);
            }
            Heard::Wrong => {
                answered.counts.errors += 1;
                self.note_failure(Failure::EchoWrong);
            }
            // It came while the terminal did not read, or was given up with it.
            Heard::Unknown if is_excused => self.totals.unwell.late_answers += 1,
            Heard::Unknown => {
                answered.counts.errors += 1;
                self.note_failure(Failure::EchoUnknown);
            }
        }
        self.totals.messages += 1;
        self.totals.message_bytes += message.len() as u64;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_share_what_is_due_and_send_little_at_once() {
        for (wanted, terminals, payload_bytes, expected) in [
            (0, 250, 64, 1),
            (250, 250, 64, 1),
            (251, 250, 64, 2),
            (1_024, 250, 64, 5),
            (1_024, 1, 64, 128),
            (1_024, 1, 5_000, 1),
            (1_024, 1, 1 << 20, 1),
            (1, 0, 0, 1),
        ] {
            let found = per_terminal(wanted, terminals, payload_bytes);
            assert_eq!(found, expected, "{wanted} of {terminals}");
        }
    }
}
