//! What a client is granted with a subscription, and how it is told. Changes nothing.

use super::recovery::Missed;
use crate::shard::Shard;
use myriad_hub::{ChannelOptions, Kept, Position, RecoveryMode, SlowConsumer, SubscriptionFlags};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{
    ConnectResult, Encoding as Format, Filter, FrameWriter, SubscribeRequest, SubscribeResult,
};
use std::sync::Arc;

/// Bit of a subscribe request's flags: an error instead of a subscription that could not recover.
const FAIL_IF_UNRECOVERABLE: i64 = 2;

/// What a subscription is to be: what the client asks for, and what the channel allows.
pub(super) struct Wish<'a> {
    pub(super) request: &'a SubscribeRequest<'a>,
    pub(super) options: &'a Arc<ChannelOptions>,
    pub(super) flags: SubscriptionFlags,
    pub(super) filter: Option<Filter>,
}

/// What a client was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) recoverable: bool,
    pub(super) positioned: bool,
    /// The client gets what it missed since this offset.
    pub(super) recover_from: Option<u64>,
    /// An error instead of a subscription that could not recover.
    pub(super) fails_if_unrecoverable: bool,
    /// Publications may come as deltas.
    pub(super) delta: bool,
}

/// A subscription that is made: what its client is told.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) terms: Terms,
    pub(super) position: Position,
    /// What it missed; none if that was not asked for, or is not whole.
    pub(super) recovered: Option<Vec<Kept>>,
}

impl Outcome {
    pub(super) fn result(&self) -> SubscribeResult<'_> {
        let terms = &self.terms;
        let is_recovered = self.recovered.is_some();
        SubscribeResult {
            recoverable: terms.recoverable,
            positioned: terms.positioned,
            epoch: if terms.positioned {
                self.position.epoch.as_str()
            } else {
                ""
            },
            offset: match terms.recover_from {
                _ if !terms.positioned => 0,
                // The client counts on from its own offset, by the publications it gets.
                Some(offset) if is_recovered => offset,
                _ => self.position.offset,
            },
            recovered: is_recovered,
            was_recovering: terms.recover_from.is_some(),
            delta: terms.delta,
            ..SubscribeResult::default()
        }
    }

    /// What it missed.
    pub(super) fn missed(&self) -> Missed<'_> {
        Missed {
            kept: self.recovered.as_deref().unwrap_or_default(),
            with_deltas: self.terms.delta,
        }
    }
}

/// Writes the answer to `connect`, with the server-side subscriptions that were made.
pub(super) fn write_connect<'s>(
    writer: &mut FrameWriter<'_>,
    command: u32,
    result: &ConnectResult<'_>,
    format: Format,
    subs: impl ExactSizeIterator<Item = &'s (Arc<str>, Outcome)>,
) {
    let made: Vec<_> = subs
        .map(|(channel, outcome)| (channel, outcome, outcome.missed().parts(format)))
        .collect();
    let subs = made.iter().map(|(channel, outcome, parts)| {
        let publications = outcome.missed().fields(parts);
        (&***channel, (outcome.result(), publications))
    });
    writer.connect(command, result, subs);
}

impl<R: Reactor> Shard<R> {
    /// What a client is granted of what it asks for.
    pub(super) fn terms_of(&self, key: Key, wish: &Wish<'_>) -> Terms {
        let Wish {
            request, options, ..
        } = wish;
        let may_read = self.may(options.history_read, self.is_anonymous(key), true);
        let has_history = options.has_history();
        let recoverable = has_history
            && (options.force_recovery
                || request.recoverable && (options.allow_recovery || may_read));
        let positioned = has_history
            && (recoverable
                || options.force_positioning
                || request.positioned && (options.allow_positioning || may_read));
        // Where publications may be left out, the next one could be a delta to one that the client has not got.
        let drops = matches!(
            options.slow_consumer,
            SlowConsumer::DropOldest | SlowConsumer::KeepLatest
        );
        let from_cache = options.recovery_mode == RecoveryMode::Cache && options.auto_cache_recover;
        Terms {
            recoverable,
            positioned,
            recover_from: (recoverable && (request.recover || from_cache))
                .then_some(request.offset),
            fails_if_unrecoverable: request.flag & FAIL_IF_UNRECOVERABLE != 0,
            delta: options.allow_fossil_delta
                && &*request.delta == "fossil"
                && positioned
                && !drops,
        }
    }
}
