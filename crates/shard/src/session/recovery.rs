//! Recovery: what a client missed, or that it is lost. Changes `hub`, `sessions` and `turn_end`.

use super::Asked;
use super::granted::Outcome;
use super::subscribe::Pending;
use crate::shard::Shard;
use myriad_hub::{
    Content, ContentParts, DataForm, Kept, Now, Recovered, SubscriptionFlags, SubscriptionId,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Encoding as Format, ErrorCode, PublicationFields};
use std::sync::Arc;

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
    /// The home has answered what a client missed.
    pub(crate) fn handle_recovered(&mut self, recovered: Recovered, now: Now) {
        let client = recovered.ticket.connection;
        let channel = self.sessions.questions.finish(client);
        self.tell_recovered(recovered, now);
        self.end_question(client, &channel, now);
    }

    fn tell_recovered(&mut self, recovered: Recovered, now: Now) {
        let Some(key) = self.close_ticket(recovered.ticket) else {
            return;
        };
        let found = self.hub.find_subscription(key.index, &recovered.channel);
        let Some(subscription) = found else {
            return;
        };
        let pending = self.sessions.pending.get(&subscription);
        if pending.is_none_or(|pending| pending.command != recovered.ticket.command) {
            return;
        }
        if let Some(pending) = self.sessions.pending.remove(&subscription) {
            let (position, missed) = (recovered.position, recovered.publications);
            self.finish_subscribe(key, subscription, pending, position, missed, now);
            self.finish_replies(key, now);
        }
    }

    /// What a client missed has no room in its queue: it is told that it has not recovered.
    pub(super) fn forget_recovered(&mut self, subscription: SubscriptionId, outcome: &mut Outcome) {
        outcome.recovered = None;
        let flags = self.hub.subscription_flags(subscription);
        let flags = flags.without(SubscriptionFlags::HAS_BASE);
        self.hub.set_subscription_flags(subscription, flags);
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
