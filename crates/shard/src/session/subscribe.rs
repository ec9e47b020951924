//! `subscribe` and `unsubscribe`, and subscriptions by the server.

use super::{Asked, Failure, INVALID_TOKEN, bad_request};
use crate::mesh::Message;
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{
    ChannelOptions, CloseReason, Content, ContentParts, DataForm, Kept, Now, Position,
    PresenceChange, PresenceEvent, Recover, Recovered, RecoveryMode, Since, SlowConsumer,
    Subscribed, SubscriptionFlags, SubscriptionId,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{
    ConnectResult, Encoding as Format, ErrorCode, Filter, FrameWriter, PublicationFields, Push,
    SubRefreshRequest, SubscribeRequest, SubscribeResult, UnsubscribeCode,
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

/// A subscription that waits for its home.
#[derive(Debug)]
pub(super) struct Pending {
    /// The client's command; 0 for a subscription by the server.
    command: u32,
    terms: Terms,
    /// Commands that end it as soon as it is made.
    unsubscribes: Vec<u32>,
}

/// What a client was granted.
#[derive(Clone, Copy, Debug)]
struct Terms {
    recoverable: bool,
    positioned: bool,
    /// The client gets what it missed since this offset.
    recover_from: Option<u64>,
    /// An error instead of a subscription that could not recover.
    fails_if_unrecoverable: bool,
    /// Publications may come as deltas.
    delta: bool,
}

/// A subscription that is made: what its client is told.
#[derive(Debug)]
pub(super) struct Outcome {
    terms: Terms,
    position: Position,
    /// What it missed; none if that was not asked for, or is not whole.
    recovered: Option<Vec<Kept>>,
}

impl Outcome {
    fn result(&self) -> SubscribeResult<'_> {
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
    fn missed(&self) -> Missed<'_> {
        Missed {
            kept: self.recovered.as_deref().unwrap_or_default(),
            with_deltas: self.terms.delta,
        }
    }
}

/// Publications that a client missed, in their order.
#[derive(Clone, Copy)]
struct Missed<'a> {
    kept: &'a [Kept],
    /// Each but the first may be told as a delta to the one before it.
    with_deltas: bool,
}

impl<'a> Missed<'a> {
    fn parts(self, format: Format) -> Vec<ContentParts<'a>> {
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

    fn fields(self, parts: &'a [ContentParts<'a>]) -> impl Iterator<Item = PublicationFields<'a>> {
        let kept = self.kept.iter().zip(parts);
        kept.map(|(kept, parts)| kept.content.fields(parts, kept.offset))
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
    pub(super) fn handle_subscribe(
        &mut self,
        key: Key,
        id: u32,
        request: &SubscribeRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(bad_request("it names no channel"));
        }
        if !matches!(&*request.delta, "" | "fossil") {
            return Err(bad_request("the only type of deltas is fossil"));
        }
        if channel.len() > self.settings.namespaces.name_bytes_max() {
            return Err(ErrorCode::BadRequest.into());
        }
        if self.hub.find_subscription(key.index, channel).is_some() {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        let limit = self.settings.subscriptions_max.min(u32::from(u8::MAX));
        if self.hub.channel_count_of(key.index) >= limit as usize {
            return Err(ErrorCode::LimitExceeded.into());
        }
        let session = self.hub.session(key.index);
        let namespaces = &self.settings.namespaces;
        let user = session.user.as_deref();
        let named = namespaces.check_subscribable(channel, user.unwrap_or_default(), false)?;
        let (options, names_user) = (Arc::clone(named.options), named.names_user);
        let is_anonymous = user.is_none();
        if request.kind != 0 || self.is_anothers(key, channel, &options) {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let may = names_user
            || self.settings.client.insecure
            || options.subscribe.allows(is_anonymous, false);
        if !may {
            return Err(ErrorCode::PermissionDenied.into());
        }
        let filter = match &request.filter {
            None => None,
            Some(_) if !options.allow_tags_filter => return Err(ErrorCode::BadRequest.into()),
            Some(node) => Some(Filter::new(node).map_err(|_| ErrorCode::BadRequest)?),
        };
        let may_see_members = self.may(options.presence_read, is_anonymous, true);
        let wishes_joins = options.join_leave && request.join_leave && may_see_members;
        let flags = if wishes_joins || options.force_push_join_leave {
            SubscriptionFlags::JOIN_LEAVE
        } else {
            SubscriptionFlags::NONE
        };
        let wish = Wish {
            request,
            options: &options,
            flags,
            filter,
        };
        self.begin_subscribe(key, id, channel, wish, now)
    }

    /// Whether a channel is the personal one of another user. Where names may list users, that list decides.
    pub(super) fn is_anothers(&self, key: Key, channel: &str, options: &ChannelOptions) -> bool {
        let personal = self.settings.client.personal_channel.as_ref();
        let user = self.hub.session(key.index).user.as_deref();
        !options.allow_user_limited_channels
            && personal
                .is_some_and(|personal| personal.is_of_another(channel, user.unwrap_or_default()))
    }

    /// Whether a client has a right that an option gives.
    pub(super) fn may(
        &self,
        right: myriad_hub::Right,
        is_anonymous: bool,
        is_subscribed: bool,
    ) -> bool {
        self.settings.client.insecure || right.allows(is_anonymous, is_subscribed)
    }

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
            fails_if_unrecoverable: request.flag & FAIL_IF_UNRECOVERABLE != 0,
            delta: options.allow_fossil_delta
                && &*request.delta == "fossil"
                && positioned
                && !drops,
        }
    }

    /// Subscribes a client that may subscribe. It is answered at once, or when the home has answered.
    pub(super) fn begin_subscribe(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        wish: Wish<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let terms = self.terms_of(key, &wish);
        let ticket = match terms.recover_from {
            Some(_) => Some(self.open_ticket(key, id)?),
            None => None,
        };
        let filter_bytes = wish.filter.as_ref().map_or(0, Filter::bytes);
        if !self.hub.reserve_buffered(filter_bytes) {
            if let Some(ticket) = ticket {
                self.close_ticket(ticket);
            }
            return Err(ErrorCode::LimitExceeded.into());
        }
        let mut flags = wish.flags;
        if terms.positioned {
            flags = flags.with(SubscriptionFlags::POSITIONED);
        }
        if terms.delta {
            flags = flags.with(SubscriptionFlags::DELTA);
        }
        let subscribed = self.hub.subscribe(key.index, channel);
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            unreachable!("just subscribed");
        };
        let ready = match subscribed {
            Subscribed::Ready { position, .. } if ticket.is_none() => Some(position),
            Subscribed::Ready { .. } | Subscribed::Pending => None,
            Subscribed::Ask { name, serial } => {
                self.send_join(name, serial);
                None
            }
            Subscribed::Already(_) => return Err(ErrorCode::AlreadySubscribed.into()),
        };
        let pending = Pending {
            command: id,
            terms,
            unsubscribes: Vec::new(),
        };
        let waiting = flags.with(SubscriptionFlags::WAITING);
        self.hub.set_subscription_flags(subscription, waiting);
        if let Some(filter) = wish.filter {
            self.hub.set_filter(subscription, filter);
        }
        if let Some(position) = ready {
            self.finish_subscribe(key, subscription, pending, position, None, now);
            return Ok(());
        }
        self.sessions.pending.insert(subscription, pending);
        if let Some(ticket) = ticket {
            let home = self.mesh.home_of(channel);
            let recover = Recover {
                channel: channel.into(),
                ticket,
                since: Since {
                    offset: wish.request.offset,
                    epoch: wish.request.epoch.as_ref().into(),
                },
                mode: wish.options.recovery_mode,
                is_asked: wish.request.recover,
                max: self.settings.client.recovery_max_publication_limit,
            };
            self.send_message(home, Message::Recover(Box::new(recover)));
        }
        Ok(())
    }

    /// The home has confirmed the shard's interest in a channel: those who do not recover are answered.
    pub(crate) fn handle_session_joined(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        position: Position,
        now: Now,
    ) {
        let pending = self.sessions.pending.get(&subscription);
        if pending.is_none_or(|pending| pending.terms.recover_from.is_some()) {
            return;
        }
        if let Some(pending) = self.sessions.pending.remove(&subscription) {
            self.finish_subscribe(key, subscription, pending, position, None, now);
            self.finish_replies(key, now);
        }
    }

    /// The home has answered what a client missed.
    pub(crate) fn handle_recovered(&mut self, recovered: Recovered, now: Now) {
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

    /// A subscription is made: everything after `position` is delivered to it. Answers its command.
    fn finish_subscribe(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        pending: Pending,
        position: Position,
        recovered: Option<Vec<Kept>>,
        now: Now,
    ) {
        let terms = pending.terms;
        let recovered = recovered.filter(|kept| self.may_fit(key, kept));
        let is_lost = terms.recover_from.is_some() && recovered.is_none();
        if is_lost && terms.fails_if_unrecoverable && pending.command != 0 {
            return self.refuse_unrecoverable(key, subscription, &pending, now);
        }
        self.hub.end_waiting(subscription, position.offset);
        let filter = self
            .hub
            .details(subscription)
            .and_then(|details| details.filter.clone());
        let recovered = recovered.map(|mut kept| {
            kept.retain(|kept| {
                filter
                    .as_ref()
                    .is_none_or(|filter| filter.passes(&kept.content.tags))
            });
            kept
        });
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let missed = recovered.as_deref().unwrap_or_default();
        let asked = || Asked::command("subscribe", &channel);
        if self.close_if_unreadable(key, missed, asked, now) {
            return;
        }
        let newest = missed.last();
        if terms.delta && newest.is_some_and(|kept| kept.offset == position.offset) {
            let flags = self.hub.subscription_flags(subscription);
            let flags = flags.with(SubscriptionFlags::HAS_BASE);
            self.hub.set_subscription_flags(subscription, flags);
        }
        let mut outcome = Outcome {
            terms,
            position,
            recovered,
        };
        if pending.command == 0 {
            return self.note_server_side(key, channel, outcome, now);
        }
        let format = format_of(self.hub.connection(key.index).transport());
        if !self.reply_subscribed(key, pending.command, &outcome) {
            if terms.fails_if_unrecoverable {
                return self.refuse_unrecoverable(key, subscription, &pending, now);
            }
            self.forget_recovered(subscription, &mut outcome);
            let result = outcome.result();
            self.reply(format, |writer| {
                writer.subscribe(pending.command, &result, std::iter::empty());
            });
        }
        self.metrics().subscribes.add(1);
        self.announce_join(key, &channel);
        for command in pending.unsubscribes {
            self.end_subscription(key, &channel, now);
            self.reply(format, |writer| writer.unsubscribe(command));
        }
    }

    /// Answers a subscribe command. False if what the client missed has no room in its queue: then nothing is written.
    fn reply_subscribed(&mut self, key: Key, command: u32, outcome: &Outcome) -> bool {
        let format = format_of(self.hub.connection(key.index).transport());
        let parts = outcome.missed().parts(format);
        let publications = outcome.missed().fields(&parts);
        self.reply_if_it_fits(key, |writer| {
            writer.subscribe(command, &outcome.result(), publications);
        })
    }

    /// What a client missed has no room in its queue: it is told that it has not recovered.
    pub(super) fn forget_recovered(&mut self, subscription: SubscriptionId, outcome: &mut Outcome) {
        outcome.recovered = None;
        let flags = self.hub.subscription_flags(subscription);
        let flags = flags.without(SubscriptionFlags::HAS_BASE);
        self.hub.set_subscription_flags(subscription, flags);
    }

    fn refuse_unrecoverable(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        pending: &Pending,
        now: Now,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let emptied = &mut self.turn_end.emptied_channels;
        self.hub.unsubscribe(key.index, &channel, emptied);
        let format = format_of(self.hub.connection(key.index).transport());
        let code = ErrorCode::UnrecoverablePosition;
        self.note_refused(
            key,
            || Asked::command("subscribe", &channel),
            code.into(),
            now,
        );
        self.metrics().command_errors[code.index()].add(1);
        self.reply(format, |writer| {
            writer.error(pending.command, code);
            for command in &pending.unsubscribes {
                writer.unsubscribe(*command);
            }
        });
    }

    pub(super) fn handle_unsubscribe(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        now: Now,
    ) -> Result<(), Failure> {
        if channel.is_empty() {
            return Err(bad_request("it names no channel"));
        }
        if let Some(subscription) = self.hub.find_subscription(key.index, channel)
            && let Some(pending) = self.sessions.pending.get_mut(&subscription)
        {
            // The subscription is answered first.
            if pending.unsubscribes.len() >= usize::from(super::TICKETS_MAX) {
                return Err(ErrorCode::TooManyRequests.into());
            }
            pending.unsubscribes.push(id);
            return Ok(());
        }
        self.end_subscription(key, channel, now);
        let format = format_of(self.hub.connection(key.index).transport());
        self.reply(format, |writer| writer.unsubscribe(id));
        Ok(())
    }

    /// Ends a subscription that is made, if there is one, and announces that the client has left.
    pub(super) fn end_subscription(&mut self, key: Key, channel: &str, _now: Now) {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        self.announce_leave(key, subscription);
        let emptied = &mut self.turn_end.emptied_channels;
        self.hub.unsubscribe(key.index, channel, emptied);
    }

    /// Ends a subscription that has missed something, so that the client subscribes anew and recovers. Clients do not do that for
    /// subscriptions by the server: they have to connect anew.
    pub(crate) fn end_gapped_subscription(&mut self, index: u32, channel: &str, now: Now) {
        let Some(key) = self.hub.key_of(index) else {
            return;
        };
        let Some(subscription) = self.hub.find_subscription(index, channel) else {
            return;
        };
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::SERVER_SIDE) {
            return self.close_stream(key, CloseReason::InsufficientState, now);
        }
        self.end_subscription(key, channel, now);
        let format = format_of(self.hub.connection(index).transport());
        let mut message = Vec::new();
        let push = Push::Unsubscribe(UnsubscribeCode::InsufficientState.into());
        FrameWriter::new(format, &mut message).push(channel, &push);
        self.send_message_to(key, &message, now);
    }

    /// Tells subscribers who wish it that a client has joined, if the channel announces that.
    pub(super) fn announce_join(&mut self, key: Key, channel: &Arc<str>) {
        let options = self.settings.namespaces.options_of(channel);
        if !options.is_some_and(|options| options.join_leave) {
            return;
        }
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        let flags = self.hub.subscription_flags(subscription);
        let announced = flags.with(SubscriptionFlags::ANNOUNCED);
        self.hub.set_subscription_flags(subscription, announced);
        self.send_presence_event(key, subscription, PresenceChange::Joined);
    }

    fn announce_leave(&mut self, key: Key, subscription: SubscriptionId) {
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::ANNOUNCED) {
            self.send_presence_event(key, subscription, PresenceChange::Left);
        }
    }

    fn send_presence_event(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        change: PresenceChange,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        let info = self.client_info(key, Some(subscription));
        let home = self.mesh.home_of(&channel);
        let event = PresenceEvent {
            channel,
            change,
            info: Arc::new(info),
        };
        self.send_message(home, Message::PresenceEvent(Box::new(event)));
    }

    /// A connection with a session ends: its subscriptions are announced as left, and nothing waits for it any more.
    pub(crate) fn end_session(&mut self, key: Key) {
        if !self.hub.connection(key.index).has_session() {
            return;
        }
        self.forget_connecting(key.index);
        self.sessions.questions.forget(key);
        let subscriptions: Vec<_> = self
            .hub
            .subscriptions_of(key.index)
            .map(|(subscription, _, flags)| (subscription, flags))
            .collect();
        for (subscription, flags) in subscriptions {
            if flags.has(SubscriptionFlags::WAITING) {
                self.sessions.pending.remove(&subscription);
            }
            self.announce_leave(key, subscription);
        }
    }

    /// Only subscriptions with a token expire, and there are none yet.
    pub(super) fn handle_sub_refresh(
        &mut self,
        key: Key,
        request: &SubRefreshRequest<'_>,
    ) -> Result<(), Failure> {
        let found = self.hub.find_subscription(key.index, &request.channel);
        match found {
            None => Err(ErrorCode::PermissionDenied.into()),
            Some(_) if request.token.is_empty() => Err(ErrorCode::BadRequest.into()),
            Some(_) => Err(INVALID_TOKEN),
        }
    }
}
