//! Held requests: from the list of those that wait, and out of it.

use super::Bearer;
use crate::channel::{Membership, SubscriptionFlags};
use crate::connection::{Phase, Transport};
use crate::hub::{Hub, SubscriptionId};
use crate::marks::hit;
use crate::streams::Variant;
use crate::timers::{GOLDEN_SECTION, after};
use crate::{Epoch, Now};
use myriad_wheel::Tick;
use std::sync::Arc;

/// A reader that waits for what comes.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Its subscription.
    pub subscription: SubscriptionId,
    /// It gets what comes after this offset.
    pub last: u64,
    /// The cursor that it has shown.
    pub cursor: Option<u64>,
    /// How its answers differ from those of others.
    pub variant: Variant,
    /// It is held no longer than until then: the end of its token, or of the time for which it was held first; [`NEVER`] without.
    pub expires_at: Tick,
    /// Who has shown a token for it.
    pub bearer: Option<Bearer>,
}

impl Hub {
    /// Holds a request until something comes, or its time is over.
    pub fn park(&mut self, index: u32, reader: Reader, now: Now) {
        let variant = self.shared_variant(index, &reader, now);
        let phase = self.next_phase();
        // The tick that has begun does not count: no poll ends before its time.
        let held = self.readers.settings.poll_ticks(phase);
        let deadline = after(now.tick(), held.saturating_add(1));
        let deadline = deadline.min(reader.expires_at).max(after(now.tick(), 1));
        self.begin_delivering(reader.subscription, reader.last);
        let connection = &mut self.connections[index];
        connection.set_reader(Transport::LongPoll, variant);
        connection.phase = Phase::Open;
        connection.ping_at = deadline;
        self.wheel.arm(&mut self.connections, index, deadline);
        self.readers.parked += 1;
        self.note_bearer(index, reader.bearer);
    }

    /// A reader's variant, with a mark if its cursor is one that it cannot share.
    fn shared_variant(&mut self, index: u32, reader: &Reader, now: Now) -> Variant {
        let Some(cursor) = reader.cursor else {
            return reader.variant;
        };
        let interval = self.readers.settings.cursor_interval(now.tick());
        let channel = self.subscriptions[reader.subscription.0].channel;
        let side = self.channels[channel].stream.as_mut();
        if cursor < interval || side.is_some_and(|side| side.note_cursor(cursor, interval)) {
            return reader.variant;
        }
        hit!(ReaderHasOwnCursor);
        self.readers.own_cursors.insert(index, cursor);
        reader.variant.with_own_cursor()
    }

    /// A numerator of 2^32, each far from those before.
    pub(super) fn next_phase(&mut self) -> u32 {
        self.readers.poll_phase = self.readers.poll_phase.wrapping_add(GOLDEN_SECTION);
        self.readers.poll_phase.wrapping_add(self.spread_from)
    }

    /// Whether a held request was answered by a delivery of this turn.
    #[must_use]
    pub fn is_answered(&self, index: u32) -> bool {
        let mut subscriptions = self.subscriptions_of(index);
        subscriptions
            .next()
            .is_none_or(|(.., flags)| flags.has(SubscriptionFlags::WAITING))
    }

    /// When a held request is to be answered if nothing comes.
    #[must_use]
    pub fn poll_end(&self, index: u32) -> Now {
        let connection = &self.connections[index];
        debug_assert!(connection.transport() == Transport::LongPoll);
        Now::at(connection.ping_at)
    }

    /// Takes a held request out of the list of those that wait, to ask its home again. It has `last`, and is held again no longer
    /// than it was to be.
    ///
    /// Returns the channel's name and the reader as it was.
    pub fn unpark(&mut self, index: u32, now: Now) -> (Arc<str>, Epoch, Reader) {
        let connection = &self.connections[index];
        debug_assert!(connection.transport() == Transport::LongPoll);
        let (variant, expires_at) = (connection.variant(), connection.ping_at);
        let subscription = SubscriptionId(self.first_subscription(index));
        let record = &self.subscriptions[subscription.0];
        let channel = &self.channels[record.channel];
        let shown = channel.stream.as_ref().map(|side| side.shown_cursor());
        let reader = Reader {
            subscription,
            last: record.last(),
            cursor: self.readers.own_cursors.get(&index).copied().or(shown),
            variant: variant.without_own_cursor(),
            expires_at,
            bearer: self.readers.bearers.get(&index).cloned(),
        };
        let epoch = match channel.membership {
            Membership::Joined { epoch } => epoch,
            // Its home knows no such position, and says so.
            Membership::Joining { .. } => Epoch::new(0),
        };
        let name = Arc::clone(&channel.name);
        self.end_answer(index, now);
        self.end_keep_alive(index);
        (name, epoch, reader)
    }
}
