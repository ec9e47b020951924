//! Recovery: what a client missed, or that it is lost. Changes `hub`, `sessions` and `turn_end`.

use super::granted::Outcome;
use super::subscribe::Pending;
use super::{Asked, Failure};
use crate::shard::Shard;
use myriad_hub::{
    CloseReason, Content, ContentParts, DataForm, Kept, NotRecovered, Now, Recovered,
    SubscriptionFlags, SubscriptionId,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Encoding as Format, ErrorCode, PublicationFields};
use std::sync::Arc;

/// A temporary error: SDKs ask again with the same position.
pub(super) const BEHIND: Failure = Failure::Explained(
    ErrorCode::Internal,
    "this node has not read the channel far enough; ask again",
);

/// A subscription by the server cannot be asked for again. The client connects anew, and keeps its position.
const BEHIND_AT_CONNECT: Failure = Failure::Close(
    CloseReason::InsufficientState,
    "this node has not read a channel of the client far enough",
);

/// Publications that a client missed, in their order.
#[derive(Clone, Copy)]
pub(super) struct Missed<'a> {
    pub(super) kept: &'a [Kept],
    /// Each but the first may be told as a delta to the one before it.
    pub(super) with_deltas: bool,
}

impl<'a> Missed<'a> {
    pub(super) fn parts(self, format: Format) -> Vec<ContentParts<'a>> {
        let mut before: Option<&Content> = None;
        let parts = self.kept.iter().map(|kept| {
            let form = match (self.with_deltas, before) {
                (false, _) => DataForm::Plain,
                (true, None) => DataForm::Whole,
                (true, Some(_)) => DataForm::Delta,
            };
            let parts = kept.content.parts(format, form, before);
            before = Some(&kept.content);
            parts
        });
        parts.collect()
    }

    pub(super) fn fields(
        self,
        parts: &'a [ContentParts<'a>],
    ) -> impl Iterator<Item = PublicationFields<'a>> {
        let kept = self.kept.iter().zip(parts);
        kept.map(|(kept, parts)| kept.content.fields(parts, kept.offset))
    }
}

/// Bytes of the largest publication of a reply.
pub(super) fn largest_of(parts: &[ContentParts<'_>]) -> usize {
    parts
        .iter()
        .map(ContentParts::data_bytes)
        .max()
        .unwrap_or_default()
}

impl<R: Reactor> Shard<R> {
    /// A client is told what it missed.
    pub(super) fn end_recovery(&mut self, recovered: Recovered, now: Now) {
        let ticket = recovered.ticket;
        let channel = self
            .sessions
            .questions
            .finish(ticket, Some(&recovered.channel));
        self.tell_recovered(recovered, now);
        self.end_question(ticket.connection, &channel, now);
    }

    fn tell_recovered(&mut self, recovered: Recovered, now: Now) {
        let Some(key) = self.close_ticket(recovered.ticket) else {
            return;
        };
        let Some(subscription) = self.awaiting(&recovered) else {
            return;
        };
        if let Some(pending) = self.sessions.pending.remove(&subscription) {
            if recovered.publications == Err(NotRecovered::Behind) {
                self.refuse_behind(key, subscription, pending, now);
            } else {
                let (position, missed) = (recovered.position, recovered.publications.ok());
                self.finish_subscribe(key, subscription, pending, position, missed, now);
            }
            self.finish_replies(key, now);
        }
    }

    /// The subscription that waits for this answer, if it is still there.
    pub(super) fn awaiting(&self, recovered: &Recovered) -> Option<SubscriptionId> {
        let ticket = recovered.ticket;
        if !self.hub.contains(ticket.connection) {
            return None;
        }
        let index = ticket.connection.index;
        let subscription = self.hub.find_subscription(index, &recovered.channel)?;
        let pending = self.sessions.pending.get(&subscription)?;
        (pending.command == ticket.command).then_some(subscription)
    }

    /// What a client missed has no room in its queue: it is told that it has not recovered.
    pub(super) fn forget_recovered(&mut self, subscription: SubscriptionId, outcome: &mut Outcome) {
        outcome.recovered = None;
        let flags = self.hub.subscription_flags(subscription);
        let flags = flags.without(SubscriptionFlags::HAS_BASE);
        self.hub.set_subscription_flags(subscription, flags);
    }

    /// This node has not read as far as the client. It must not be told that it has lost something, nor the older position, from which it
    /// would be given the same publications again. So it asks again, here or elsewhere.
    fn refuse_behind(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        pending: Pending,
        now: Now,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let asked = || Asked::command("subscribe", &channel);
        if pending.command == 0 {
            self.note_refused(key, asked, BEHIND_AT_CONNECT, now);
            return self.close_stream(key, CloseReason::InsufficientState, now);
        }
        let emptied = &mut self.turn_end.emptied_channels;
        self.hub.unsubscribe(key.index, &channel, emptied);
        self.note_refused(key, asked, BEHIND, now);
        self.tell_failure(key, pending.command, BEHIND, now);
        self.carry_out(key, &channel, pending.later, now);
    }

    /// The home cannot confirm the shard's interest in a channel. Whoever recovers has been answered before, as a home does it.
    pub(crate) fn handle_session_not_joined(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        now: Now,
    ) {
        let Some(pending) = self.sessions.pending.remove(&subscription) else {
            return;
        };
        // The answer to a recovery ends its question, also if it has not been sent yet.
        let ends_question = pending.command != 0 && pending.terms.recover_from.is_none();
        let channel = Arc::clone(self.hub.channel_name(subscription));
        self.refuse_behind(key, subscription, pending, now);
        if ends_question {
            self.end_question(key, &channel, now);
        }
        self.finish_replies(key, now);
    }

    pub(super) fn refuse_unrecoverable(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        pending: Pending,
        now: Now,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let emptied = &mut self.turn_end.emptied_channels;
        self.hub.unsubscribe(key.index, &channel, emptied);
        let code = ErrorCode::UnrecoverablePosition;
        self.note_refused(
            key,
            || Asked::command("subscribe", &channel),
            code.into(),
            now,
        );
        self.metrics().command_errors[code.index()].add(1);
        self.reply(key, |writer| writer.error(pending.command, code));
        self.carry_out(key, &channel, pending.later, now);
    }
}
