//! What the application does to a connection: it ends it, subscribes and unsubscribes it, and refreshes it. The client is told by
//! pushes. Changes `hub`, `sessions` and `turn_end`; sends by `mesh`.

use super::TICKETS_MAX;
use super::granted::{Outcome, Wish, overridden};
use super::recovery::largest_of;
use super::subscribe::Later;
use super::verify::check_readable;
use crate::access::Refreshed;
use crate::orders::{Deed, RevokedTokens, ServerSubscribe};
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{
    CloseReason, Now, SessionState, SubscriptionFlags, SubscriptionId, TokenIdentity,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{Push, ServerSubscription, SubscribeRequest, UnsubscribeCode};
use std::borrow::Cow;
use std::sync::Arc;

impl<R: Reactor> Shard<R> {
    /// Does something to an open connection. False if it could not be done, none if there was nothing to do.
    pub(super) fn carry_out_deed(&mut self, deed: &Deed, key: Key, now: Now) -> Option<bool> {
        let done = match deed {
            Deed::Disconnect(close) => {
                self.close_by_application(key, close, now);
                Some(true)
            }
            Deed::EndRevoked(tokens) => self.end_revoked(tokens, key, now),
            Deed::Unsubscribe(Some(channel)) => {
                self.unsubscribe_by_server(key, channel, now);
                Some(true)
            }
            Deed::Unsubscribe(None) => {
                let channels: Vec<Arc<str>> = self
                    .hub
                    .subscriptions_of(key.index)
                    .map(|(_, channel, _)| Arc::clone(channel))
                    .collect();
                for channel in channels {
                    self.unsubscribe_by_server(key, &channel, now);
                }
                Some(true)
            }
            Deed::Subscribe(wanted) => self.subscribe_by_server(key, wanted, now),
            Deed::Refresh { refreshed, info } => {
                self.refresh_by_server(key, *refreshed, info.as_ref(), now);
                Some(true)
            }
            Deed::Describe(_) => None,
        };
        self.finish_replies(key, now);
        done
    }

    /// Ends a connection that was opened with a revoked token, or its subscriptions that were made with one.
    fn end_revoked(&mut self, tokens: &RevokedTokens, key: Key, now: Now) -> Option<bool> {
        let details = self.hub.session(key.index).details.as_deref();
        let token = details.and_then(|details| details.token.as_deref());
        if token.is_some_and(|token| tokens.contain(token)) {
            self.close_stream(key, CloseReason::InvalidToken, now);
            return Some(true);
        }
        let subscriptions = self.hub.subscriptions_of(key.index);
        let revoked: Vec<Arc<str>> = subscriptions
            .filter(|(subscription, ..)| {
                let token = self.token_of(*subscription);
                token.is_some_and(|token| tokens.contain(token))
            })
            .map(|(_, channel, _)| Arc::clone(channel))
            .collect();
        for channel in &revoked {
            self.unsubscribe_by_server(key, channel, now);
        }
        (!revoked.is_empty()).then_some(true)
    }

    /// The token that grants a subscription, or one that is being made.
    fn token_of(&self, subscription: SubscriptionId) -> Option<&TokenIdentity> {
        let Some(pending) = self.sessions.pending.get(&subscription) else {
            return self.hub.details(subscription)?.token.as_deref();
        };
        let grant = match pending.later.last() {
            None => pending.grant.as_ref(),
            Some(Later::Subscribe(granted)) => granted.grant.as_ref(),
            // It ends anyway.
            Some(Later::Unsubscribe(_) | Later::End) => None,
        };
        grant?.token.as_deref()
    }

    /// The client is told even if it has no subscription: it may believe that it has.
    fn unsubscribe_by_server(&mut self, key: Key, channel: &Arc<str>, now: Now) {
        if let Some(subscription) = self.hub.find_subscription(key.index, channel) {
            if let Some(pending) = self.sessions.pending.get_mut(&subscription) {
                // The subscription is told of first. With as many commands behind it, the last one is the client's own end.
                if pending.later.len() <= usize::from(TICKETS_MAX) {
                    pending.later.push(Later::End);
                }
                return;
            }
            self.drop_subscription(key, channel);
        }
        self.push_unsubscribed(key, channel, UnsubscribeCode::Server);
        self.finish_replies(key, now);
    }

    /// Appends the push of a subscription that has ended to what its client is told next.
    pub(super) fn push_unsubscribed(&mut self, key: Key, channel: &str, code: UnsubscribeCode) {
        let push = Push::Unsubscribe(code.into());
        self.reply(key, |writer| writer.push(channel, &push));
    }

    fn subscribe_by_server(
        &mut self,
        key: Key,
        wanted: &ServerSubscribe,
        now: Now,
    ) -> Option<bool> {
        let channel = &*wanted.channel;
        if self.hub.find_subscription(key.index, channel).is_some() {
            return None;
        }
        let limit = self.subscriptions_max();
        if self.hub.channel_count_of(key.index) >= limit {
            return Some(false);
        }
        let Some(options) = self.settings.namespaces.options_of(channel) else {
            return Some(false);
        };
        let options = overridden(options, wanted.grant.overrides);
        let format = format_of(self.hub.connection(key.index).transport());
        // It is left out, and its connection left alone: who orders for many does not know what each client reads.
        if check_readable(format, wanted.grant.data.as_ref()).is_err() {
            return Some(false);
        }
        let request = match &wanted.since {
            Some((offset, epoch)) => SubscribeRequest {
                recover: true,
                offset: *offset,
                epoch: Cow::Borrowed(epoch),
                ..SubscribeRequest::default()
            },
            None => SubscribeRequest::default(),
        };
        let flags = if options.force_push_join_leave {
            SubscriptionFlags::SERVER_SIDE.with(SubscriptionFlags::JOIN_LEAVE)
        } else {
            SubscriptionFlags::SERVER_SIDE
        };
        let wish = Wish {
            request: &request,
            options: &options,
            flags,
            filter: None,
            grant: Some(Box::new(wanted.grant.clone())),
        };
        Some(self.begin_subscribe(key, 0, channel, wish, now).is_ok())
    }

    /// A subscription by the server is made. A client that connects is told of it with the answer to that; another one now.
    pub(super) fn tell_server_side(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        mut outcome: Outcome,
        later: Vec<Later>,
        now: Now,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        if self.hub.session(key.index).state != SessionState::Connected {
            return self.note_server_side(key, subscription, outcome, now);
        }
        if !self.push_subscribed(key, &channel, &outcome) {
            self.forget_recovered(subscription, &mut outcome);
            self.push_subscribed(key, &channel, &outcome);
        }
        self.announce_join(key, &channel, outcome.terms.is_announced);
        self.carry_out(key, &channel, later, now);
    }

    /// Appends the push of a subscription, and what its client has missed, to what the client is told next. False if that has no
    /// room in its queue: then nothing is appended.
    fn push_subscribed(&mut self, key: Key, channel: &str, outcome: &Outcome) -> bool {
        let format = format_of(self.hub.connection(key.index).transport());
        let result = outcome.result();
        let push = Push::Subscribe(ServerSubscription {
            recoverable: result.recoverable,
            positioned: result.positioned,
            epoch: result.epoch,
            offset: result.offset,
            data: result.data,
        });
        if outcome.recovered.is_none() {
            self.reply(key, |writer| writer.push(channel, &push));
            return true;
        }
        let parts = outcome.missed().parts(format);
        let publications = outcome.missed().fields(&parts);
        self.reply_kept_if_it_fits(key, |writer| {
            writer.push(channel, &push);
            for publication in publications {
                writer.push(channel, &Push::Publication(publication));
            }
            largest_of(&parts)
        })
    }

    fn refresh_by_server(
        &mut self,
        key: Key,
        refreshed: Refreshed,
        info: Option<&Arc<[u8]>>,
        now: Now,
    ) {
        let left = match refreshed {
            Refreshed::Expired => return self.close_stream(key, CloseReason::Expired, now),
            Refreshed::For(left) => left,
        };
        if let Some(info) = info {
            let details = self.hub.session_mut(key.index).details_mut();
            details.info = Some(Arc::clone(info));
        }
        let ttl = self.set_connection_expiry(key, left, now);
        self.reply(key, |writer| writer.push("", &Push::Refresh(ttl)));
    }
}
