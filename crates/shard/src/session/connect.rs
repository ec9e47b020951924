//! `connect`: the first command of a client.

use super::granted::{Outcome, Wish, write_connect};
use super::{Failure, INVALID_TOKEN, bad_request};
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{CloseReason, Now, SessionState, SubscriptionFlags};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{ConnectRequest, ConnectResult, SubscribeRequest};
use std::sync::Arc;

/// Who the server says it is.
const VERSION: &str = concat!("myriad ", env!("CARGO_PKG_VERSION"));

/// Bytes that a client may send while its connect command waits.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// A connect command that waits for server-side subscriptions.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    command: u32,
    /// What is not done yet: subscriptions that are not made, and the handling of the command itself.
    waiting: usize,
    /// The subscriptions that are made, with their channels.
    done: Vec<(Arc<str>, Outcome)>,
    /// Messages that came meanwhile, in their order.
    held: Vec<Vec<u8>>,
    held_bytes: usize,
}

impl Connecting {
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_connect(
        &mut self,
        key: Key,
        id: u32,
        request: &ConnectRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        if !request.token.is_empty() {
            return Err(INVALID_TOKEN);
        }
        let client = &self.settings.client;
        let may = self.settings.anonymous
            || client.insecure
            || client.allow_anonymous_connect_without_token;
        if self.is_anonymous(key) && !may {
            return Err(bad_request(
                "anonymous clients may not connect: start the server with --anonymous, or let a proxy name the user (client.user_id_http_header)",
            ));
        }
        self.hub.session_mut(key.index).state = SessionState::Connecting;
        let connecting = Connecting {
            command: id,
            // The command itself counts as one, so that no subscription that is made at once answers it.
            waiting: 1,
            ..Connecting::default()
        };
        self.sessions.connecting.insert(key.index, connecting);
        if let Some(channel) = self.personal_channel(key) {
            self.subscribe_server_side(key, &channel, request, now)?;
        }
        self.end_wait(key, now);
        Ok(())
    }

    /// The channel of the user's own.
    pub(super) fn personal_channel(&self, key: Key) -> Option<String> {
        let personal = self.settings.client.personal_channel.as_ref()?;
        let user = self.hub.session(key.index).user.as_ref()?;
        Some(personal.name_for(user))
    }

    fn subscribe_server_side(
        &mut self,
        key: Key,
        channel: &str,
        request: &ConnectRequest<'_>,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(options) = self.settings.namespaces.options_of(channel) else {
            return Err(bad_request("the personal channel has no namespace"));
        };
        let options = Arc::clone(options);
        let none = SubscribeRequest::default();
        let known = request.subs.get(channel);
        let flags = if options.force_push_join_leave {
            SubscriptionFlags::SERVER_SIDE.with(SubscriptionFlags::JOIN_LEAVE)
        } else {
            SubscriptionFlags::SERVER_SIDE
        };
        let wish = Wish {
            request: known.unwrap_or(&none),
            options: &options,
            flags,
            filter: None,
        };
        if let Some(connecting) = self.sessions.connecting.get_mut(&key.index) {
            connecting.waiting += 1;
        }
        self.begin_subscribe(key, 0, channel, wish, now)
    }

    /// A server-side subscription of a client that connects is made.
    pub(super) fn note_server_side(
        &mut self,
        key: Key,
        channel: Arc<str>,
        outcome: Outcome,
        now: Now,
    ) {
        if let Some(connecting) = self.sessions.connecting.get_mut(&key.index) {
            connecting.done.push((channel, outcome));
            self.end_wait(key, now);
        }
    }

    /// One of the things that a connect command waits for is done. After the last one the command is answered, and the messages
    /// that came meanwhile are handled.
    fn end_wait(&mut self, key: Key, now: Now) {
        let Some(connecting) = self.sessions.connecting.get_mut(&key.index) else {
            return;
        };
        connecting.waiting -= 1;
        if connecting.waiting > 0 {
            return;
        }
        let Some(mut connecting) = self.sessions.connecting.remove(&key.index) else {
            return;
        };
        self.hub.release_buffered(connecting.held_bytes);
        self.hub.note_connected(key.index, now);
        self.note_connected(key, now);
        let ping = self.settings.ping_interval;
        let client = self.client_id(key).to_string();
        let result = ConnectResult {
            client: &client,
            version: VERSION,
            // Whole seconds, rounded up: a client that is told too few would give up too early.
            ping: u32::try_from(ping.as_millis().div_ceil(1000)).unwrap_or(u32::MAX),
            pong: !ping.is_zero(),
            ..ConnectResult::default()
        };
        let format = format_of(self.hub.connection(key.index).transport());
        let command = connecting.command;
        let fits = self.reply_if_it_fits(key, |writer| {
            write_connect(writer, command, &result, format, connecting.done.iter());
        });
        if !fits {
            for (channel, outcome) in &mut connecting.done {
                if let Some(subscription) = self.hub.find_subscription(key.index, channel) {
                    self.forget_recovered(subscription, outcome);
                }
            }
            self.reply(format, |writer| {
                write_connect(writer, command, &result, format, connecting.done.iter());
            });
        }
        self.metrics().client_connects.add(1);
        self.end_older_connections(key);
        for (channel, _) in &connecting.done {
            self.announce_join(key, channel);
        }
        if !connecting.held.is_empty() {
            self.finish_replies(key, now);
        }
        for message in connecting.held {
            if self.hub.connection(key.index).phase == myriad_hub::Phase::Open {
                self.handle_commands(key, &message, now);
            }
        }
    }

    /// Keeps a message of a client until its connect command is answered.
    pub(super) fn hold_message(&mut self, key: Key, message: &[u8], now: Now) {
        let reserved = self.hub.reserve_buffered(message.len());
        let Some(connecting) = self.sessions.connecting.get_mut(&key.index) else {
            unreachable!("a client that connects is listed");
        };
        let fits = connecting.held_bytes + message.len() <= HELD_BYTES_MAX;
        if reserved && fits {
            connecting.held_bytes += message.len();
            connecting.held.push(message.to_vec());
            return;
        }
        if reserved {
            self.hub.release_buffered(message.len());
        }
        self.close_stream(key, CloseReason::Overloaded, now);
    }

    /// The connection of a client that connects ends.
    pub(super) fn forget_connecting(&mut self, index: u32) {
        if let Some(connecting) = self.sessions.connecting.remove(&index) {
            self.hub.release_buffered(connecting.held_bytes);
        }
    }
}
