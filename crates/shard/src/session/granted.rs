//! What a client is granted with a subscription, and how it is told. Changes nothing.

use super::recovery::{Missed, largest_of};
use crate::access::{OptionOverrides, SubscribeGrant};
use crate::shard::Shard;
use myriad_hub::{
    ChannelOptions, Kept, Position, RecoveryMode, Since, SlowConsumer, SubscriptionFlags,
};
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
    /// What its token or the application grants; none without either.
    pub(super) grant: Option<Box<SubscribeGrant>>,
}

/// The options of a channel for one subscription.
pub(super) fn overridden(
    options: &Arc<ChannelOptions>,
    overrides: OptionOverrides,
) -> Arc<ChannelOptions> {
    if overrides == OptionOverrides::default() {
        return Arc::clone(options);
    }
    let mut own = ChannelOptions::clone(options);
    let set = |option: &mut bool, value: Option<bool>| *option = value.unwrap_or(*option);
    set(&mut own.presence, overrides.presence);
    set(&mut own.join_leave, overrides.join_leave);
    set(
        &mut own.force_push_join_leave,
        overrides.force_push_join_leave,
    );
    set(&mut own.force_positioning, overrides.force_positioning);
    set(&mut own.force_recovery, overrides.force_recovery);
    set(&mut own.auto_cache_recover, overrides.cache_recover);
    Arc::new(own)
}

/// What a client was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) recoverable: bool,
    pub(super) positioned: bool,
    /// The client gets what it missed since this offset.
    pub(super) recover_from: Option<u64>,
    /// The client asked for what it missed, whether the channel recovers or not.
    pub(super) asks_recovery: bool,
    /// What it missed is the newest publication alone.
    pub(super) is_cache: bool,
    /// An error instead of a subscription that could not recover.
    pub(super) fails_if_unrecoverable: bool,
    /// Publications may come as deltas.
    pub(super) delta: bool,
    /// Its join is announced.
    pub(super) is_announced: bool,
}

/// A subscription that may be made: who asked, and for what.
#[derive(Debug)]
pub(super) struct Granted {
    /// The client's command; 0 for a subscription by the server.
    pub(super) command: u32,
    pub(super) terms: Terms,
    pub(super) flags: SubscriptionFlags,
    pub(super) filter: Option<Filter>,
    /// What the client has, and how it recovers.
    pub(super) since: Since,
    pub(super) mode: RecoveryMode,
    pub(super) is_asked: bool,
    /// What its token or the application grants.
    pub(super) grant: Option<Box<SubscribeGrant>>,
}

/// Bytes of an epoch that are kept. Ours have eight, so that a longer one is no epoch of ours whatever follows.
const EPOCH_BYTES_MAX: usize = 64;

/// A client's position, to be kept while its command waits.
pub(super) fn since(offset: u64, epoch: &str) -> Since {
    Since {
        offset,
        epoch: epoch[..epoch.floor_char_boundary(EPOCH_BYTES_MAX)].into(),
    }
}

/// A subscription that is made: what its client is told.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) terms: Terms,
    pub(super) position: Position,
    /// What it missed; none if that was not asked for, or is not whole.
    pub(super) recovered: Option<Vec<Kept>>,
    /// Seconds until the client has to refresh the subscription.
    pub(super) ttl: Option<u32>,
    /// What the application says, in the client's format.
    pub(super) data: Vec<u8>,
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
                // The client counts on from its own offset, by the publications it gets. In a cache its own may be one of another
                // epoch.
                Some(offset) if is_recovered && !terms.is_cache => offset,
                _ => self.position.offset,
            },
            recovered: is_recovered,
            was_recovering: terms.asks_recovery || terms.recover_from.is_some(),
            delta: terms.delta,
            ttl: self.ttl,
            data: &self.data,
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

/// Writes the answer to `connect`, with the server-side subscriptions that were made. Returns the bytes of its largest publication.
pub(super) fn write_connect<'s>(
    writer: &mut FrameWriter<'_>,
    command: u32,
    result: &ConnectResult<'_>,
    format: Format,
    subs: impl ExactSizeIterator<Item = &'s (Arc<str>, Outcome)>,
) -> usize {
    let made: Vec<_> = subs
        .map(|(channel, outcome)| (channel, outcome, outcome.missed().parts(format)))
        .collect();
    let subs = made.iter().map(|(channel, outcome, parts)| {
        let publications = outcome.missed().fields(parts);
        (&***channel, (outcome.result(), publications))
    });
    writer.connect(command, result, subs);
    let largest = made.iter().map(|(.., parts)| largest_of(parts)).max();
    largest.unwrap_or_default()
}

impl<R: Reactor> Shard<R> {
    /// A subscription as it may be made.
    pub(super) fn grant(&self, key: Key, command: u32, wish: Wish<'_>) -> Granted {
        let terms = self.terms_of(key, &wish);
        let mut flags = wish.flags;
        if terms.positioned {
            flags = flags.with(SubscriptionFlags::POSITIONED);
        }
        if terms.delta {
            flags = flags.with(SubscriptionFlags::DELTA);
        }
        Granted {
            command,
            terms,
            flags,
            filter: wish.filter,
            since: since(wish.request.offset, &wish.request.epoch),
            mode: wish.options.recovery_mode,
            is_asked: wish.request.recover,
            grant: wish.grant,
        }
    }

    /// What a client is granted of what it asks for.
    fn terms_of(&self, key: Key, wish: &Wish<'_>) -> Terms {
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
            asks_recovery: request.recover,
            is_cache: options.recovery_mode == RecoveryMode::Cache,
            fails_if_unrecoverable: request.flag & FAIL_IF_UNRECOVERABLE != 0,
            delta: options.allow_fossil_delta
                && &*request.delta == "fossil"
                && positioned
                && !drops,
            is_announced: options.join_leave,
        }
    }
}
