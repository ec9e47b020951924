//! The servers that follow the leader of the simulated log. They answer who reads, and may be behind: for a while, and by some messages.

use super::{Cloud, State, rolls_up};
use crate::broker::fill_budget::PAGE_MESSAGES_MAX;
use crate::broker::servers::{LastBySubject, Page, Stored};

/// Messages that a server may lack.
const BEHIND_MAX: usize = 6;
/// What was stored so long ago has come to all servers.
const BEHIND_NS_MAX: i128 = 2_000_000_000;
/// Messages in one answer.
const PAGE_SIZES: [usize; 4] = [1, 5, 50, 500];

impl Cloud {
    /// The last message of each of some subjects, as one of the servers has them.
    pub(super) fn last_by_subject(&self, state: &mut State, subjects: &[String]) -> LastBySubject {
        let watermark = self.watermark(state);
        let last_of = |subject: &String| {
            let kept = self.kept_up_to(state, subject, watermark);
            let last = kept.first()?;
            Some((subject.clone(), last.sequence))
        };
        let places = subjects.iter().filter_map(last_of).collect();
        LastBySubject { watermark, places }
    }

    /// Messages of a subject from a place on, as one of the servers has them.
    /// There are far fewer than there may be, so that channels have several pages.
    pub(super) fn page(
        &self,
        state: &mut State,
        subject: &str,
        from: u64,
        messages_max: usize,
    ) -> Page {
        let watermark = self.watermark(state);
        let fewer = PAGE_MESSAGES_MAX - *state.listeners.prng.pick(&PAGE_SIZES);
        let size = messages_max.saturating_sub(fewer);
        let newest_first = self.kept_up_to(state, subject, watermark).into_iter();
        let messages = newest_first.rev().filter(|one| one.sequence >= from);
        let mut messages: Vec<_> = messages.cloned().collect();
        let has_more = messages.len() > size;
        messages.truncate(size);
        Page { messages, has_more }
    }

    /// How far one of the servers has got.
    fn watermark(&self, state: &mut State) -> u64 {
        let prng = &mut state.listeners.prng;
        let lacks_at_most = if prng.one_in(3) {
            prng.between(1, BEHIND_MAX)
        } else {
            0
        };
        let since_ns = self.now_ns() - BEHIND_NS_MAX;
        let newest_first = state.stream.ever.iter().rev().take(lacks_at_most);
        let lacking = newest_first.take_while(|entry| entry.stored_ns > since_ns);
        let lacking = lacking.count() as u64;
        state.reached.stale += u64::from(lacking > 0);
        state.stream.last - lacking
    }

    /// What a server has of a subject that has got so far; the newest first.
    fn kept_up_to<'a>(&self, state: &'a State, subject: &str, watermark: u64) -> Vec<&'a Stored> {
        let oldest_ns = self.oldest_ns();
        let newest_first = state.stream.ever.iter().rev();
        let of_subject = newest_first
            .skip_while(|entry| entry.sequence > watermark)
            .take_while(|entry| entry.stored_ns >= oldest_ns)
            .filter(|entry| *entry.subject == *subject);
        let mut kept = Vec::new();
        for entry in of_subject.take(self.plan.kept_by_log) {
            kept.push(entry);
            if rolls_up(entry) {
                break;
            }
        }
        kept
    }
}
