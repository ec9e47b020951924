//! What terminals publish over their own connections: the command, its reply, and the publication at its subscribers.
//!
//! The schedule and the unanswered commands are those of [`crate::engine::answered`]. A publication carries its number, which says
//! when it was due. So each delivery has its time, and none of them takes memory.

use crate::clock::Nanos;
use crate::echo_stamp::{EchoStamp, PublishStamp};
use crate::engine::crowd::World;
use crate::engine::plan::Answer;
use crate::failure::Failure;
use myriad_reactor::Token;
use myriad_wire::centrifuge::client::Failure as Refusal;
use std::sync::Arc;
use std::time::Duration;

/// From this id on commands publish: the id and the lowest bits of the publication's number.
const PUBLISH_ID: u32 = 1 << NUMBER_BITS;
const NUMBER_BITS: u32 = 30;

/// Deliveries of one turn that came at the same time, and how many they are.
pub(in crate::engine) type Delivered = (Duration, u64);

/// The id of the command that publishes this.
fn publish_id(number: u64) -> u32 {
    let low = number % (1 << NUMBER_BITS);
    PUBLISH_ID + u32::try_from(low).expect("it has NUMBER_BITS")
}

impl World {
    /// Publishes to the first channel of a terminal.
    pub(in crate::engine) fn send_publication(
        &mut self,
        token: Token,
        stamp: EchoStamp,
        payload_bytes: usize,
    ) {
        let plan = Arc::clone(&self.plan);
        let session = plan.session.as_ref().expect("the run has sessions");
        let first = self.target(token.index).subscriptions.first();
        let channel = first.expect("each terminal has a channel").channel;
        let payload = PublishStamp { stamp, channel }.payload(payload_bytes);
        let channel = &session.channels[channel as usize];
        // JSON in both encodings: a server may have subscribers of either.
        let data = format!("\"{payload}\"");
        let id = publish_id(stamp.number);
        let sessions = self.sessions_mut();
        let command = sessions.commands(|writer| writer.publish(id, channel, data.as_bytes()));
        self.send_commands(token, &command);
    }

    /// Takes the reply to a command that publishes. False if it is none, or not awaited.
    pub(super) fn take_publish_reply(
        &mut self,
        token: Token,
        id: u32,
        refusal: Option<&Refusal<'_>>,
        now: Nanos,
    ) -> bool {
        let Some(low) = id.checked_sub(PUBLISH_ID) else {
            return false;
        };
        let Some(answered) = self.answered.as_mut() else {
            return false;
        };
        let number = answered.newest_like(u64::from(low), NUMBER_BITS);
        let Some(number) = number.filter(|&number| answered.take_answer(token, number).is_some())
        else {
            return false;
        };
        if let Some(refusal) = refusal {
            answered.note_refused();
            let failure = Failure::ClientPublish(super::replies::code(refusal.code));
            self.keep_example(failure, &format!("{} {}", refusal.code, refusal.message));
            self.note_failure(failure);
            return true;
        }
        let time = answered.note_answer(number, now);
        self.notes.answer_times.push(time);
        self.notes.deliveries_expected += self.subscribers_of_first(token);
        true
    }

    /// How many terminals of the crowd get what this one publishes.
    pub(in crate::engine) fn subscribers_of_first(&self, token: Token) -> u64 {
        let session = self.plan.session.as_ref().expect("the run has sessions");
        let first = self.target(token.index).subscriptions.first();
        let channel = first.expect("each terminal has a channel").channel;
        u64::from(session.subscribers[channel as usize])
    }

    /// What a publication says that a terminal of this run made; none of any other.
    pub(super) fn recognise_published(&self, data: &[u8]) -> Option<PublishStamp> {
        let answered = self.answered.as_ref()?;
        if answered.answer() != Answer::Reply {
            return None;
        }
        PublishStamp::find(data).filter(|published| published.stamp.run == answered.run())
    }

    /// Counts a publication of a terminal at one of the subscribers of a channel, which may be another than its own.
    ///
    /// It is a delivery the first time only. Otherwise who gets it twice would make up for who does not get it.
    pub(super) fn note_published(
        &mut self,
        token: Token,
        published: PublishStamp,
        is_in_place: bool,
        payload_bytes: usize,
        now: Nanos,
    ) {
        self.totals.messages += 1;
        self.totals.message_bytes += payload_bytes as u64;
        let (Some(answered), Some(window)) = (self.answered.as_ref(), self.shared.schedule())
        else {
            return;
        };
        // The number comes from the network. One that nobody sent says nothing of a time.
        let number = published.stamp.number;
        if !answered.was_sent(&self.shared, number) {
            self.totals.unmeasured += 1;
            return;
        }
        if !is_in_place {
            self.totals.unexpected += 1;
            return;
        }
        let time = now.since(answered.due_at(window.from, number));
        let receipts = &mut self.sessions_mut().receipts;
        if !receipts.note(number, token.index, now) {
            self.totals.duplicates += 1;
            return;
        }
        // All members of a room get a publication in the same turn, or nearly so.
        match self.notes.delivered.last_mut() {
            Some((known, count)) if *known == time => *count += 1,
            _ => self.notes.delivered.push((time, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_publications_are_apart_from_all_others_and_wrap() {
        assert_eq!(publish_id(0), PUBLISH_ID);
        assert_eq!(publish_id((1 << 30) - 1), u32::MAX >> 1);
        assert_eq!(publish_id(1 << 30), PUBLISH_ID);
        assert_eq!(publish_id((5 << 30) + 7), PUBLISH_ID + 7);
    }
}
