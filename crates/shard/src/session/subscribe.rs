//! `subscribe`: who may, and how a subscription is made, also those by the server. Changes `hub` and `sessions`; sends by `mesh`.

use super::asks::Asking;
use super::granted::{Granted, Outcome, Terms, Wish, overridden};
use super::publish::payload_of;
use super::questions::Question;
use super::recovery::largest_of;
use super::refused::Act;
use super::sifting::Sifted;
use super::verify::{Later as LaterVerdict, check_readable, subscription_failure};
use super::{Failure, TICKETS_MAX, bad_request};
use crate::access::SubscribeGrant;
use crate::asks::Question as AskQuestion;
use crate::events::ConnectionEvent;
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{
    ChannelOptions, Kept, NameError, Now, Position, Recover, Subscribable, Subscribed,
    SubscriptionFlags, SubscriptionId,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ErrorCode, Filter, FilterNode, SubscribeRequest, UnsubscribeCode};
use std::borrow::Cow;
use std::sync::Arc;

/// A subscription that waits for its home.
#[derive(Debug)]
pub(super) struct Pending {
    /// The client's command; 0 for a subscription by the server.
    pub(super) command: u32,
    pub(super) terms: Terms,
    /// What its token or the application grants.
    pub(super) grant: Option<Box<SubscribeGrant>>,
    /// Later commands for the channel, in their order: the first of them ends the subscription as soon as it is made.
    pub(super) later: Vec<Later>,
    /// Missed publications that pass its filter, of answers that took more than one turn.
    pub(super) sifted: Option<Box<Sifted>>,
}

/// A command that waits until a subscription is made.
#[derive(Debug)]
pub(super) enum Later {
    Unsubscribe(u32),
    /// The application ends the subscription.
    End,
    /// Behind an unsubscribe.
    Subscribe(Box<Granted>),
}

impl Pending {
    /// Whether the subscription has ended when all commands are carried out that wait for it.
    fn ends(&self) -> bool {
        matches!(self.later.last(), Some(Later::Unsubscribe(_) | Later::End))
    }
}

/// A filter that would cost more than others may have to pay.
const TOO_MUCH_WORK: &str = "the filter compares more than client.tags_filter_work_limit allows: 1 for each value, 16 for ct";

/// Names that are made up would take memory, or questions to all.
const TOO_MANY_NAMES: &str =
    "it has named as many channels that nobody has here as client.rate_limits.new_channels allows";

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_subscribe(
        &mut self,
        key: Key,
        id: u32,
        request: &SubscribeRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        self.check_subscribe(request)?;
        if self.waits_for_publications(key, channel, text)? {
            return Ok(());
        }
        self.check_room(key, request)?;
        let (token, data, proxy) = if request.token.is_empty() {
            let named = self.check_named(key, request, false)?;
            match &named.options.proxies.subscribe {
                Some(name) if !named.names_user => {
                    let data = (!request.data.is_empty()).then(|| payload_of(request.data));
                    (None, data, Some(Arc::clone(name)))
                }
                _ => return self.subscribe_checked(key, id, request, None, now),
            }
        } else {
            self.check_named(key, request, true)?;
            let verified = self.verify_subscription(key, &request.token, channel);
            match verified.map_err(subscription_failure)? {
                Ok(grant) => return self.subscribe_granted(key, id, request, grant, now),
                Err(LaterVerdict) => (Some(request.token.as_ref().into()), None, None),
            }
        };
        let asking = Asking {
            command: id,
            channel: Some(channel),
            text,
            question: AskQuestion::Subscribe {
                channel: channel.into(),
                token,
                data,
                proxy,
            },
        };
        self.ask_control_plane(key, asking, now)
    }

    /// A token or the application grants a client what it asks for.
    pub(super) fn subscribe_granted(
        &mut self,
        key: Key,
        id: u32,
        request: &SubscribeRequest<'_>,
        grant: SubscribeGrant,
        now: Now,
    ) -> Result<(), Failure> {
        self.check_room(key, request)?;
        self.subscribe_checked(key, id, request, Some(Box::new(grant)), now)
    }

    /// What is wrong with a subscribe command by itself.
    fn check_subscribe(&self, request: &SubscribeRequest<'_>) -> Result<(), Failure> {
        let channel = &*request.channel;
        if channel.is_empty() {
            return Err(bad_request("it names no channel"));
        }
        if !matches!(&*request.delta, "" | "fossil") {
            return Err(bad_request("the only type of deltas is fossil"));
        }
        if channel.len() > self.settings.namespaces.name_bytes_max() {
            return Err(NameError::TooLong.into());
        }
        Ok(())
    }

    /// Channels that a connection may have: its record counts them in a byte.
    pub(super) fn subscriptions_max(&self) -> usize {
        self.settings.subscriptions_max.min(u32::from(u8::MAX)) as usize
    }

    /// Whether a client may have one more subscription, and has none to the channel that stays.
    fn check_room(&self, key: Key, request: &SubscribeRequest<'_>) -> Result<(), Failure> {
        let channel = &*request.channel;
        // A filter may be large, so that none is kept for later.
        let can_wait = request.filter.is_none();
        let has_one = self.hub.find_subscription(key.index, channel).is_some();
        if has_one && !(can_wait && self.ends_first(key, channel)?) {
            return Err(ErrorCode::AlreadySubscribed.into());
        }
        if !has_one && self.hub.channel_count_of(key.index) >= self.subscriptions_max() {
            let cause = "it has as many channels as client.channel_limit allows";
            return Err(Failure::Caused(ErrorCode::LimitExceeded, cause));
        }
        Ok(())
    }

    /// What the channel's name allows.
    fn check_named(
        &self,
        key: Key,
        request: &SubscribeRequest<'_>,
        is_granted: bool,
    ) -> Result<Subscribable<'_>, Failure> {
        let user = self.hub.session(key.index).user.as_deref();
        let user = user.unwrap_or_default();
        let channel = &*request.channel;
        let named = self.settings.check_visible(channel, user, is_granted)?;
        if request.kind != 0 {
            let cause = "there are no map and shared-poll subscriptions here";
            return Err(Failure::Caused(ErrorCode::PermissionDenied, cause));
        }
        Ok(named)
    }

    /// The options of a channel in which a client publishes, or whose history or members it wants, and whether it is subscribed. An
    /// error if it may not see the channel.
    pub(super) fn check_seen(
        &self,
        key: Key,
        channel: &str,
    ) -> Result<(Arc<ChannelOptions>, bool), Failure> {
        let user = self.hub.session(key.index).user.as_deref();
        let is_subscribed = self.hub.find_subscription(key.index, channel).is_some();
        let seen = self
            .settings
            .check_visible(channel, user.unwrap_or_default(), is_subscribed)?;
        Ok((Arc::clone(seen.options), is_subscribed))
    }

    /// Subscribes a client that may have one more subscription, if it may have this one.
    fn subscribe_checked(
        &mut self,
        key: Key,
        id: u32,
        request: &SubscribeRequest<'_>,
        grant: Option<Box<SubscribeGrant>>,
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        let named = self.check_named(key, request, grant.is_some())?;
        let names_user = named.names_user;
        let overrides = grant.as_ref().map(|grant| grant.overrides);
        let options = overridden(named.options, overrides.unwrap_or_default());
        let is_anonymous = self.is_anonymous(key);
        let format = format_of(self.hub.connection(key.index).transport());
        check_readable(format, grant.as_ref().and_then(|grant| grant.data.as_ref()))?;
        if grant.is_none() && !names_user {
            self.check_may(key, Act::Subscribe, options.subscribe, false)?;
        }
        let filter = match &request.filter {
            None => None,
            Some(_) if !options.allow_tags_filter => {
                let cause = "it filters by tags, and its namespace lacks allow_tags_filter";
                return Err(Failure::Caused(ErrorCode::BadRequest, cause));
            }
            Some(node) => Some(self.checked_filter(node)?),
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
            grant,
        };
        self.begin_subscribe(key, id, channel, wish, now)
    }

    fn checked_filter(&self, node: &FilterNode<'_>) -> Result<Filter, Failure> {
        let filter = Filter::new(node).map_err(|_| {
            Failure::Caused(ErrorCode::BadRequest, "its filter by tags cannot be used")
        })?;
        if filter.work() > self.settings.client.tags_filter_work_limit {
            return Err(Failure::Explained(ErrorCode::BadRequest, TOO_MUCH_WORK));
        }
        Ok(filter)
    }

    /// Whether a subscription that waits for its home ends before a command that comes now. An error if as many commands wait as
    /// may.
    fn ends_first(&self, key: Key, channel: &str) -> Result<bool, Failure> {
        let subscription = self.hub.find_subscription(key.index, channel);
        let pending =
            subscription.and_then(|subscription| self.sessions.pending.get(&subscription));
        match pending {
            Some(pending) if pending.later.len() >= usize::from(TICKETS_MAX) => {
                Err(ErrorCode::TooManyRequests.into())
            }
            Some(pending) => Ok(pending.ends()),
            None => Ok(false),
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
        let granted = self.grant(key, id, wish);
        if let Some(subscription) = self.hub.find_subscription(key.index, channel)
            && let Some(pending) = self.sessions.pending.get_mut(&subscription)
        {
            pending.later.push(Later::Subscribe(Box::new(granted)));
            return Ok(());
        }
        self.make_subscription(key, channel, granted, now)
    }

    /// Counts a channel that a command names, if it is new to the shard.
    pub(super) fn check_new_name(
        &mut self,
        key: Key,
        channel: &str,
        now: Now,
    ) -> Result<(), Failure> {
        if self.take_new_name(key, channel, now) {
            return Ok(());
        }
        Err(Failure::Caused(ErrorCode::TooManyRequests, TOO_MANY_NAMES))
    }

    /// Makes a subscription, or asks the channel's home for what that needs.
    fn make_subscription(
        &mut self,
        key: Key,
        channel: &str,
        granted: Granted,
        now: Now,
    ) -> Result<(), Failure> {
        let Granted { command, terms, .. } = granted;
        if terms.is_announced && self.sessions.leaves.are_too_many(key, now) {
            return Err(ErrorCode::TooManyRequests.into());
        }
        // What the server subscribes to has no command. Without a history, a name is forgotten with its last subscriber.
        let options = self.settings.namespaces.options_of(channel);
        if command != 0 && options.is_some_and(|options| options.has_history()) {
            self.check_new_name(key, channel, now)?;
        }
        let ticket = match terms.recover_from {
            Some(_) => Some(self.open_ticket(key, command)?),
            None => None,
        };
        let filter_bytes = granted.filter.as_ref().map_or(0, Filter::bytes);
        if !self.hub.reserve_buffered(filter_bytes) {
            if let Some(ticket) = ticket {
                self.close_ticket(ticket);
            }
            return Err(ErrorCode::LimitExceeded.into());
        }
        let subscribed = self.hub.subscribe(key.index, channel);
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            self.note_defect_of(key.index, "it has just subscribed");
            self.hub.release_buffered(filter_bytes);
            return Err(ErrorCode::Internal.into());
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
            command,
            terms,
            grant: granted.grant,
            later: Vec::new(),
            sifted: None,
        };
        let waiting = granted.flags.with(SubscriptionFlags::WAITING);
        self.hub.set_subscription_flags(subscription, waiting);
        if let Some(filter) = granted.filter {
            self.hub.set_filter(subscription, filter);
        }
        if let Some(position) = ready {
            self.finish_subscribe(key, subscription, pending, position, None, now);
            return Ok(());
        }
        // Subscriptions by the server have no place among the commands of their client.
        if ticket.is_some() || command != 0 {
            self.sessions.lines.begin_question(key, channel);
        }
        self.sessions.pending.insert(subscription, pending);
        if let Some(ticket) = ticket {
            let recover = Recover {
                channel: channel.into(),
                ticket,
                since: granted.since,
                mode: granted.mode,
                is_asked: granted.is_asked,
                max: self.settings.client.recovery_max_publication_limit,
            };
            // In its turn: what hundreds of clients missed takes seconds to write.
            let question = Question::Recover(Box::new(recover));
            self.sessions.questions.push(key, question);
        }
        Ok(())
    }

    /// Carries out the commands that waited for a subscription.
    pub(super) fn carry_out(&mut self, key: Key, channel: &Arc<str>, later: Vec<Later>, now: Now) {
        let mut later = later.into_iter();
        while let Some(next) = later.next() {
            match next {
                Later::Unsubscribe(command) => {
                    self.end_behind_own(key, channel, now);
                    self.reply(key, |writer| writer.unsubscribe(command));
                }
                Later::End => {
                    self.drop_subscription(key, channel);
                    self.push_unsubscribed(key, channel, UnsubscribeCode::Server);
                }
                Later::Subscribe(granted) => {
                    let command = granted.command;
                    let made = self.make_subscription(key, channel, *granted, now);
                    if let Err(failure) = made {
                        self.tell_failure(key, command, failure, now);
                        continue;
                    }
                    let subscription = self.hub.find_subscription(key.index, channel);
                    let pending = subscription
                        .and_then(|subscription| self.sessions.pending.get_mut(&subscription));
                    if let Some(pending) = pending {
                        pending.later.extend(later);
                        return;
                    }
                }
            }
        }
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
            let is_clients = pending.command != 0;
            let channel = Arc::clone(self.hub.channel_name(subscription));
            self.finish_subscribe(key, subscription, pending, position, None, now);
            if is_clients {
                self.end_question(key, &channel, now);
            }
            self.finish_replies(key, now);
        }
    }

    /// A subscription is made: everything after `position` is delivered to it. Answers its command, with those that its client missed and
    /// that pass its filter.
    pub(super) fn finish_subscribe(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        mut pending: Pending,
        position: Position,
        recovered: Option<Vec<Kept>>,
        now: Now,
    ) {
        let terms = pending.terms;
        let recovered = recovered.filter(|kept| self.may_fit(key, kept));
        let is_lost = terms.recover_from.is_some() && recovered.is_none();
        if is_lost && terms.fails_if_unrecoverable && pending.command != 0 {
            return self.refuse_unrecoverable(key, subscription, pending, now);
        }
        self.hub.end_waiting(subscription, position.offset);
        let recovered = recovered.map(|mut kept| {
            self.leave_out_unreadable(key, &mut kept);
            kept
        });
        let channel = Arc::clone(self.hub.channel_name(subscription));
        self.note_event(Some(key), now, |shard| ConnectionEvent::Subscribed {
            client: shard.client_id(key),
            channel: Arc::clone(&channel),
        });
        let missed = recovered.as_deref().unwrap_or_default();
        let newest = missed.last();
        if terms.delta && newest.is_some_and(|kept| kept.offset == position.offset) {
            let flags = self.hub.subscription_flags(subscription);
            let flags = flags.with(SubscriptionFlags::HAS_BASE);
            self.hub.set_subscription_flags(subscription, flags);
        }
        let (ttl, data) = match pending.grant.take() {
            Some(grant) => self.apply_grant(key, subscription, &channel, *grant, now),
            None => (None, Vec::new()),
        };
        let mut outcome = Outcome {
            terms,
            position,
            recovered,
            ttl,
            data,
        };
        if pending.command == 0 {
            return self.tell_server_side(key, subscription, outcome, pending.later, now);
        }
        if !self.reply_subscribed(key, pending.command, &outcome) {
            if terms.fails_if_unrecoverable {
                return self.refuse_unrecoverable(key, subscription, pending, now);
            }
            self.forget_recovered(subscription, &mut outcome);
            let result = outcome.result();
            self.reply(key, |writer| {
                writer.subscribe(pending.command, &result, std::iter::empty());
            });
        }
        self.metrics().subscribes.add(1);
        self.announce_join(key, &channel, terms.is_announced);
        self.carry_out(key, &channel, pending.later, now);
    }

    /// Notes what a token or the application grants a subscription that is made. Seconds until its client has to refresh it, and what
    /// the client is told.
    fn apply_grant(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        channel: &str,
        grant: SubscribeGrant,
        now: Now,
    ) -> (Option<u32>, Vec<u8>) {
        let is_hidden = grant.overrides.presence == Some(false);
        if is_hidden || grant.info.is_some() || grant.token.is_some() {
            let details = self.hub.details_mut(subscription);
            details.info = grant.info;
            details.token = grant.token;
            details.is_hidden = is_hidden;
        }
        let ttl = self.set_subscription_expiry(key, subscription, channel, grant.expires_in, now);
        let format = format_of(self.hub.connection(key.index).transport());
        let data = grant.data.as_ref().and_then(|data| data.told(format));
        (ttl, data.map(Cow::into_owned).unwrap_or_default())
    }

    /// Answers a subscribe command. False if what the client missed has no room in its queue: then nothing is written.
    fn reply_subscribed(&mut self, key: Key, command: u32, outcome: &Outcome) -> bool {
        let format = format_of(self.hub.connection(key.index).transport());
        let parts = outcome.missed().parts(format);
        let publications = outcome.missed().fields(&parts);
        self.reply_kept_if_it_fits(key, |writer| {
            writer.subscribe(command, &outcome.result(), publications);
            largest_of(&parts)
        })
    }
}
