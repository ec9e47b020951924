//! `refresh` and `sub_refresh`, and what expires. Who refreshes follows from the configuration: the application where it is asked,
//! otherwise the client by a new token. Changes `hub` and `sessions`; sends by `mesh`.

use super::asks::Asking;
use super::verify::{Later, subscription_failure, time_to_refresh, ttl_of};
use super::{Failure, bad_request};
use crate::access::{ConnectGrant, RefreshGrant, Refreshed, SubscribeGrant, TokenFault};
use crate::asks::Question;
use crate::shard::Shard;
use crate::transport::centrifuge::protocol_of;
use myriad_hub::{CloseReason, NEVER, Now, Phase, SubscriptionFlags, SubscriptionId};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, Tick};
use myriad_wire::centrifuge::{
    ErrorCode, Push, RefreshRequest, SubRefreshRequest, UnsubscribeCode,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Extensions in a row of what has expired while the application cannot be asked. Nothing that has expired goes on for ever,
/// whatever keeps the application from answering.
const EXTENSIONS_MAX: u8 = 10;

/// What a client is told that refreshes a subscription with a token that has expired: an error would end the subscription for good.
/// It tries again with another token, and its time goes on meanwhile.
const TRY_AGAIN_TTL: u32 = 1;

/// What a client is told that refreshes what it does not have.
const NOT_SUBSCRIBED: Failure = Failure::Caused(
    ErrorCode::PermissionDenied,
    "the client is not subscribed to the channel",
);

/// What a client is told whose token for a refresh is at fault.
pub(super) fn failure(fault: TokenFault) -> Failure {
    match fault {
        TokenFault::Expired => Failure::Close(CloseReason::Expired, fault.cause()),
        fault => Failure::Close(CloseReason::InvalidToken, fault.cause()),
    }
}

/// A fingerprint of the channels that a token grants; 0 for none. Their order does not matter.
pub(super) fn fingerprint<'c>(channels: impl Iterator<Item = &'c Arc<str>>) -> u64 {
    channels.fold(0, |sum, channel| {
        let mut hasher = DefaultHasher::new();
        channel.hash(&mut hasher);
        sum.wrapping_add(hasher.finish() | 1)
    })
}

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_refresh(
        &mut self,
        key: Key,
        id: u32,
        request: &RefreshRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        if request.token.is_empty() {
            return Err(bad_request("it has no token"));
        }
        if self.settings.access.refresh_proxy {
            return Err(bad_request("the server refreshes connections"));
        }
        let Some(tokens) = &self.settings.access.tokens else {
            return Err(super::INVALID_TOKEN);
        };
        match tokens.connection(&request.token) {
            crate::access::Verdict::Now(Ok(grant)) => self.refresh_connection(key, id, grant, now),
            crate::access::Verdict::Now(Err(fault)) => Err(failure(fault)),
            crate::access::Verdict::Later => {
                let question = Question::Refresh {
                    token: Some(request.token.as_ref().into()),
                };
                let asking = Asking {
                    command: id,
                    channel: None,
                    text,
                    question,
                };
                self.ask_control_plane(key, asking, now)
            }
        }
    }

    /// A client has shown a new token for its connection.
    pub(super) fn refresh_connection(
        &mut self,
        key: Key,
        id: u32,
        grant: ConnectGrant,
        now: Now,
    ) -> Result<(), Failure> {
        let session = self.hub.session(key.index);
        if session.user.as_deref().unwrap_or_default() != grant.user.as_deref().unwrap_or_default()
        {
            return Err(failure(TokenFault::OtherUser));
        }
        let granted = fingerprint(grant.subscriptions.iter().map(|(channel, _)| channel));
        let details = session.details.as_deref();
        if details.map_or(0, |details| details.granted_channels) != granted {
            return Err(Failure::Close(
                CloseReason::InsufficientState,
                "the new token grants other channels",
            ));
        }
        let session = self.hub.session_mut(key.index);
        if grant.info.is_some() || grant.meta.is_some() || grant.token.is_some() {
            let details = session.details_mut();
            details.info = grant.info;
            details.meta = grant.meta;
            details.token = grant.token;
        }
        let ttl = self.set_connection_expiry(key, grant.expires_in, now);
        self.reply(key, |writer| writer.refresh(id, ttl));
        Ok(())
    }

    /// Sets when a connection expires, as the token or the application says. The seconds that its client is told, if it is the one
    /// to refresh.
    pub(super) fn set_connection_expiry(
        &mut self,
        key: Key,
        left: Option<Duration>,
        now: Now,
    ) -> Option<u32> {
        let by_server = self.settings.access.refresh_proxy;
        let delay = self.settings.client.expired_close_delay;
        let deadline = left.map_or(NEVER, |left| {
            now.tick_after(time_to_refresh(left, by_server, delay))
        });
        self.hub.set_expiry(key.index, deadline, now);
        left.filter(|_| !by_server).map(ttl_of)
    }

    /// A connection, or one of its subscriptions, has expired.
    pub(crate) fn handle_expired(&mut self, index: u32, now: Now) {
        let Some(key) = self.hub.key_of(index) else {
            return;
        };
        if self.hub.session(index).expires_at <= now.tick() {
            if !self.settings.access.refresh_proxy {
                return self.close_stream(key, CloseReason::Expired, now);
            }
            // The answer, or the end of the wait for it, sets another.
            self.hub.set_expiry(index, NEVER, now);
            let asking = Asking {
                command: 0,
                channel: None,
                text: &[],
                question: Question::Refresh { token: None },
            };
            if self.ask_control_plane(key, asking, now).is_err() {
                self.refresh_later(key, now);
            }
            if self.hub.connection(index).phase != Phase::Open {
                return;
            }
        }
        if self.hub.session(index).subscription_expires_at <= now.tick() {
            self.end_expired_subscriptions(key, now);
        }
    }

    /// The application could not be asked whether a connection goes on, or has not answered.
    pub(super) fn refresh_later(&mut self, key: Key, now: Now) {
        let extensions = &mut self.hub.session_mut(key.index).extensions;
        if *extensions >= EXTENSIONS_MAX {
            return self.close_stream(key, CloseReason::Expired, now);
        }
        *extensions += 1;
        self.hub
            .set_expiry(key.index, now.tick_after(self.settings.refresh_grace), now);
    }

    /// The application has said whether a connection goes on.
    pub(super) fn handle_refreshed(&mut self, key: Key, grant: RefreshGrant, now: Now) {
        let left = match grant.refreshed {
            Refreshed::Expired => return self.close_stream(key, CloseReason::Expired, now),
            Refreshed::For(left) => left,
        };
        let session = self.hub.session_mut(key.index);
        session.extensions = 0;
        if let Some(info) = grant.info {
            session.details_mut().info = Some(info);
        }
        if let Some(meta) = grant.meta {
            session.details_mut().meta = Some(meta);
        }
        self.set_connection_expiry(key, left, now);
    }

    pub(super) fn handle_sub_refresh(
        &mut self,
        key: Key,
        id: u32,
        request: &SubRefreshRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        let channel = &*request.channel;
        if self.waits_behind(key, channel, text)? {
            return Ok(());
        }
        if self.hub.find_subscription(key.index, channel).is_none() {
            return Err(NOT_SUBSCRIBED);
        }
        if request.token.is_empty() {
            return Err(Failure::Caused(ErrorCode::BadRequest, "it has no token"));
        }
        if self.is_refreshed_by_server(channel) {
            return Err(bad_request(
                "the server refreshes subscriptions of this channel",
            ));
        }
        match self.verify_subscription(key, &request.token, channel) {
            Ok(Ok(grant)) => self.refresh_subscription(key, id, channel, grant, now),
            Ok(Err(Later)) => {
                let question = Question::SubRefresh {
                    channel: channel.into(),
                    token: Some(request.token.as_ref().into()),
                    proxy: None,
                };
                let asking = Asking {
                    command: id,
                    channel: Some(channel),
                    text,
                    question,
                };
                self.ask_control_plane(key, asking, now)
            }
            Err(fault) => self.fail_sub_refresh(key, id, channel, fault),
        }
    }

    fn is_refreshed_by_server(&self, channel: &str) -> bool {
        let options = self.settings.namespaces.options_of(channel);
        options.is_some_and(|options| options.proxies.sub_refresh.is_some())
    }

    /// A client has shown a new token for a subscription.
    pub(super) fn refresh_subscription(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        grant: SubscribeGrant,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return Err(NOT_SUBSCRIBED);
        };
        if grant.info.is_some() {
            self.hub.details_mut(subscription).info = grant.info;
        }
        if grant.token.is_some() || self.hub.details(subscription).is_some() {
            self.hub.details_mut(subscription).token = grant.token;
        }
        let ttl = self.set_subscription_expiry(key, subscription, channel, grant.expires_in, now);
        self.reply(key, |writer| writer.sub_refresh(id, ttl));
        Ok(())
    }

    /// The token that a client has shown for a subscription is at fault.
    pub(super) fn fail_sub_refresh(
        &mut self,
        key: Key,
        id: u32,
        channel: &str,
        fault: TokenFault,
    ) -> Result<(), Failure> {
        match fault {
            TokenFault::Expired if self.hub.find_subscription(key.index, channel).is_some() => {
                self.reply(key, |writer| writer.sub_refresh(id, Some(TRY_AGAIN_TTL)));
                Ok(())
            }
            TokenFault::Invalid(_) | TokenFault::Revoked => {
                Err(Failure::Close(CloseReason::InvalidToken, fault.cause()))
            }
            fault => Err(subscription_failure(fault)),
        }
    }

    /// Sets when a subscription expires. The seconds that its client is told, if it is the one to refresh.
    pub(super) fn set_subscription_expiry(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        channel: &str,
        left: Option<Duration>,
        now: Now,
    ) -> Option<u32> {
        let by_server = self.is_refreshed_by_server(channel);
        let delay = self.settings.client.expired_sub_close_delay;
        let deadline = left.map(|left| now.tick_after(time_to_refresh(left, by_server, delay)));
        if deadline.is_some() || self.hub.details(subscription).is_some() {
            self.hub.details_mut(subscription).expires_at = deadline;
        }
        if let Some(deadline) = deadline {
            self.note_subscription_expiry(key, deadline, now);
        }
        left.filter(|_| !by_server).map(ttl_of)
    }

    fn note_subscription_expiry(&mut self, key: Key, deadline: Tick, now: Now) {
        let first = self.hub.session(key.index).subscription_expires_at;
        if deadline < first {
            self.hub.set_subscription_expiry(key.index, deadline, now);
        }
    }

    /// Ends the subscriptions of a connection that have expired, or asks the application about them.
    fn end_expired_subscriptions(&mut self, key: Key, now: Now) {
        let expires_at = |subscription| self.hub.details(subscription)?.expires_at;
        let mut expired = Vec::new();
        let mut next = NEVER;
        for (subscription, channel, flags) in self.hub.subscriptions_of(key.index) {
            match expires_at(subscription) {
                Some(at) if at <= now.tick() => expired.push((Arc::clone(channel), flags)),
                Some(at) => next = next.min(at),
                None => {}
            }
        }
        self.hub.set_subscription_expiry(key.index, next, now);
        for (channel, flags) in expired {
            if self.hub.connection(key.index).phase != Phase::Open {
                return;
            }
            if self.is_refreshed_by_server(&channel) {
                self.ask_about_subscription(key, &channel, now);
            } else if flags.has(SubscriptionFlags::SERVER_SIDE) {
                return self.close_stream(key, CloseReason::SubscriptionExpired, now);
            } else {
                self.end_expired_subscription(key, &channel, now);
            }
        }
    }

    fn end_expired_subscription(&mut self, key: Key, channel: &str, now: Now) {
        self.end_subscription(key, channel, now);
        let protocol = protocol_of(self.hub.connection(key.index).transport());
        let mut message = Vec::new();
        let push = Push::Unsubscribe(UnsubscribeCode::Expired.into());
        protocol.writer(&mut message).push(channel, &push);
        self.send_message_to(key, &message, now);
    }

    /// Asks the application whether a subscription goes on that has expired.
    pub(super) fn ask_about_subscription(&mut self, key: Key, channel: &str, now: Now) {
        // A command before it may have ended the connection or the subscription.
        if self.hub.connection(key.index).phase != Phase::Open {
            return;
        }
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        // The answer, or the end of the wait for it, sets another.
        self.hub.details_mut(subscription).expires_at = None;
        if self.expires_behind(key, channel) {
            return;
        }
        let options = self.settings.namespaces.options_of(channel);
        let proxy = options.and_then(|options| options.proxies.sub_refresh.clone());
        let asking = Asking {
            command: 0,
            channel: Some(channel),
            text: &[],
            question: Question::SubRefresh {
                channel: channel.into(),
                token: None,
                proxy,
            },
        };
        if self.ask_control_plane(key, asking, now).is_err() {
            self.refresh_subscription_later(key, channel, now);
        }
    }

    /// The application could not be asked whether a subscription goes on, or has not answered.
    pub(super) fn refresh_subscription_later(&mut self, key: Key, channel: &str, now: Now) {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        let extensions = &mut self.hub.details_mut(subscription).extensions;
        if *extensions >= EXTENSIONS_MAX {
            return self.expire_subscription(key, subscription, channel, now);
        }
        *extensions += 1;
        let grace = self.settings.refresh_grace;
        self.set_subscription_expiry(key, subscription, channel, Some(grace), now);
    }

    /// The application says that a subscription is over, or has not said for too long that it goes on.
    fn expire_subscription(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        channel: &str,
        now: Now,
    ) {
        let flags = self.hub.subscription_flags(subscription);
        if flags.has(SubscriptionFlags::SERVER_SIDE) {
            return self.close_stream(key, CloseReason::SubscriptionExpired, now);
        }
        self.end_expired_subscription(key, channel, now);
    }

    /// The application has said whether a subscription goes on.
    pub(super) fn handle_sub_refreshed(
        &mut self,
        key: Key,
        channel: &str,
        grant: RefreshGrant,
        now: Now,
    ) {
        let Some(subscription) = self.hub.find_subscription(key.index, channel) else {
            return;
        };
        let left = match grant.refreshed {
            Refreshed::For(left) => left,
            Refreshed::Expired => return self.expire_subscription(key, subscription, channel, now),
        };
        let details = self.hub.details_mut(subscription);
        details.extensions = 0;
        if grant.info.is_some() {
            details.info = grant.info;
        }
        self.set_subscription_expiry(key, subscription, channel, left, now);
    }
}

#[cfg(test)]
mod tests {
    use super::fingerprint;
    use std::sync::Arc;

    #[test]
    fn a_fingerprint_is_of_a_set_of_names() {
        let names: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).to_vec();
        let all = fingerprint(names.iter());
        assert_eq!(all, fingerprint(names.iter().rev()));
        assert_ne!(all, fingerprint(names.iter().take(2)));
        assert_eq!(fingerprint([].into_iter()), 0);
    }
}
