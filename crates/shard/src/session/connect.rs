//! `connect`: the first command of a client.

use super::asks::Asking;
use super::granted::{Outcome, Wish, overridden, write_connect};
use super::publish::payload_of;
use super::recent::Moment;
use super::refresh::fingerprint;
use super::verify::{Later, check_readable};
use super::{Asked, Failure, bad_request};
use crate::access::{ConnectGrant, SubscribeGrant};
use crate::asks::Question;
use crate::events::ConnectionEvent;
use crate::mesh::Mesh;
use crate::shard::Shard;
use crate::transport::centrifuge::format_of;
use myriad_hub::{
    Chunk, CloseReason, NameError, Namespaces, Now, SessionState, SubscriptionFlags, SubscriptionId,
};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{
    ConnectRequest, ConnectResult, ErrorCode, EventId, SubscribeRequest,
};
use myriad_wire::sse::encode_id;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Who the server says it is.
const VERSION: &str = concat!("myriad ", env!("CARGO_PKG_VERSION"));

/// Bytes that a client may send while its connect command waits.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// A connect command that waits for the control plane, or for server-side subscriptions.
#[derive(Debug, Default)]
pub(super) struct Connecting {
    command: u32,
    /// When the command came, in the order of orders.
    pub(super) since: Moment,
    /// When it came, among all connects of the process; 0 where nobody asks.
    serial: u64,
    /// What is not done yet: subscriptions that are not made, and the handling of the command itself.
    waiting: usize,
    /// The subscriptions that are made, with their channels.
    done: Vec<(Arc<str>, Outcome)>,
    /// Messages that came meanwhile, in their order.
    held: Vec<Vec<u8>>,
    held_bytes: usize,
    /// Seconds until the client has to refresh the connection.
    ttl: Option<u32>,
    /// What the application says, in the client's format.
    data: Vec<u8>,
}

impl Connecting {
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// Bytes of the headers of a connect command that are kept for the application, as long as the connection lasts. A request's head
/// may have as many.
const EMULATED_BYTES_MAX: usize = 8 * 1024;

/// What a client is told whose token, or the application, subscribes it to a channel that cannot be.
const UNKNOWN_GRANTED: Failure = Failure::Caused(
    ErrorCode::UnknownChannel,
    "the token or the application names a channel whose namespace is not configured",
);

/// Signs in a user's id that stand between users where a channel's name lists them.
const IN_LISTS: [char; 2] = [Namespaces::USER_BOUNDARY, Namespaces::USER_SEPARATOR];

/// Who says that a client may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantedBy {
    /// The server's own rules.
    Rules,
    Token,
    Application,
}

impl<R: Reactor> Shard<R> {
    pub(super) fn handle_connect(
        &mut self,
        key: Key,
        id: u32,
        request: &ConnectRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        self.keep_emulated_headers(key, request)?;
        if !request.token.is_empty() {
            return match self.verify_connection(&request.token)? {
                Ok(grant) => self.begin_connect(key, id, request, grant, GrantedBy::Token, now),
                Err(Later) => self.ask_about_connect(key, id, request, text, now),
            };
        }
        if self.settings.access.connect_proxy {
            return self.ask_about_connect(key, id, request, text, now);
        }
        self.check_anonymous(self.is_anonymous(key))?;
        let grant = ConnectGrant {
            user: self.hub.session(key.index).user.clone(),
            ..ConnectGrant::default()
        };
        self.begin_connect(key, id, request, grant, GrantedBy::Rules, now)
    }

    /// Whether a client may connect that nothing but the server's rules speaks for.
    fn check_anonymous(&self, is_anonymous: bool) -> Result<(), Failure> {
        let client = &self.settings.client;
        let may = self.settings.anonymous
            || client.insecure
            || client.allow_anonymous_connect_without_token;
        if is_anonymous && !may {
            return Err(bad_request(
                "anonymous clients may not connect: show a token, start the server with --anonymous, let a proxy name the user (client.user_id_http_header), or give the client a certificate with the name that tls-client-user asks for (it has shown none, or one without that name)",
            ));
        }
        Ok(())
    }

    fn ask_about_connect(
        &mut self,
        key: Key,
        id: u32,
        request: &ConnectRequest<'_>,
        text: &[u8],
        now: Now,
    ) -> Result<(), Failure> {
        let token = (!request.token.is_empty()).then(|| request.token.as_ref().into());
        let asks_application = token.is_none();
        let data = asks_application && !request.data.is_empty();
        let channels = request.subs.keys().filter(|_| asks_application);
        let question = Question::Connect {
            token,
            data: data.then(|| payload_of(request.data)),
            name: request.name.as_ref().into(),
            version: request.version.as_ref().into(),
            channels: channels.map(|channel| channel.as_ref().into()).collect(),
        };
        let asking = Asking {
            command: id,
            channel: None,
            text,
            question,
        };
        self.ask_control_plane(key, asking, now)?;
        self.hub.session_mut(key.index).state = SessionState::Connecting;
        let connecting = self.begun();
        self.sessions.connecting.insert(key.index, connecting);
        Ok(())
    }

    /// A connect command that has just come.
    fn begun(&self) -> Connecting {
        Connecting {
            since: self.sessions.recent.now(),
            serial: self.next_connect(),
            ..Connecting::default()
        }
    }

    /// Keeps those of the command's headers that the application is to be sent.
    fn keep_emulated_headers(
        &mut self,
        key: Key,
        request: &ConnectRequest<'_>,
    ) -> Result<(), Failure> {
        let wanted = Arc::clone(&self.settings.access.emulated_headers);
        if wanted.is_empty() || request.headers.is_empty() {
            return Ok(());
        }
        let kept: Vec<(Box<str>, Box<[u8]>)> = request
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .filter(|(name, _)| wanted.iter().any(|wanted| **wanted == **name))
            .map(|(name, value)| (name.into(), value.as_bytes().into()))
            .collect();
        let bytes: usize = kept
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > EMULATED_BYTES_MAX {
            return Err(bad_request(
                "connect.headers: those that the application is sent have more than 8 KiB",
            ));
        }
        let mut names = HashSet::new();
        if !kept.iter().all(|(name, _)| names.insert(name)) {
            return Err(bad_request(
                "connect.headers: one name stands twice, in upper and lower case",
            ));
        }
        if !kept.is_empty() {
            let details = self.hub.session_mut(key.index).details_mut();
            details.emulated_headers = Some(kept.into());
        }
        Ok(())
    }

    /// The control plane has verified the client's token, or the application has answered.
    pub(super) fn connect_granted(
        &mut self,
        key: Key,
        id: u32,
        request: &ConnectRequest<'_>,
        grant: ConnectGrant,
        now: Now,
    ) -> Result<(), Failure> {
        if !request.token.is_empty() {
            return self.begin_connect(key, id, request, grant, GrantedBy::Token, now);
        }
        self.begin_connect(key, id, request, grant, GrantedBy::Application, now)
    }

    /// Connects a client that may connect. It is answered when its server-side subscriptions are made.
    fn begin_connect(
        &mut self,
        key: Key,
        id: u32,
        request: &ConnectRequest<'_>,
        grant: ConnectGrant,
        by: GrantedBy,
        now: Now,
    ) -> Result<(), Failure> {
        let is_anonymous = grant.user.is_none();
        let refuses_anonymous = self.settings.access.disallow_anonymous_connection_tokens;
        if by == GrantedBy::Token && is_anonymous && refuses_anonymous {
            return Err(Failure::Close(
                CloseReason::PermissionDenied,
                "its token names no user (client.disallow_anonymous_connection_tokens)",
            ));
        }
        // Before anything is begun: a client that is told an error has no subscription.
        let mut granted = grant.subscriptions.iter();
        if granted.any(|(channel, _)| self.settings.namespaces.options_of(channel).is_none()) {
            return Err(UNKNOWN_GRANTED);
        }
        let format = format_of(self.hub.connection(key.index).transport());
        check_readable(format, grant.data.as_ref())?;
        let data = grant.data.as_ref().and_then(|data| data.told(format));
        let data = data.map(Cow::into_owned).unwrap_or_default();
        let (left, mut wanted) = (grant.expires_in, Vec::new());
        self.note_grant(key, grant, &mut wanted);
        if let Some(connecting) = self.sessions.connecting.get(&key.index) {
            let ordered = self.ordered_since(key, connecting.since)?;
            if self.end_as_ordered(key, &ordered, now) {
                return Ok(());
            }
        }
        let ttl = self.set_connection_expiry(key, left, now);
        self.add_own_subscriptions(key, request, by, &mut wanted, now);
        if wanted.len() > self.subscriptions_max() {
            return Err(Failure::Close(
                CloseReason::ChannelLimit,
                "more server-side subscriptions than client.channel_limit",
            ));
        }
        self.count_user(key, now)?;
        self.hub.session_mut(key.index).state = SessionState::Connecting;
        let begun = self.begun();
        let connecting = self.sessions.connecting.entry(key.index).or_insert(begun);
        connecting.command = id;
        // The command itself counts as one, so that no subscription that is made at once answers it.
        connecting.waiting = 1;
        connecting.ttl = ttl;
        connecting.data = data;
        for (channel, grant) in wanted {
            self.subscribe_server_side(key, &channel, request, grant, now)?;
        }
        self.end_wait(key, now);
        Ok(())
    }

    /// Notes what a session is granted, and appends the subscriptions that it is granted.
    fn note_grant(
        &mut self,
        key: Key,
        grant: ConnectGrant,
        wanted: &mut Vec<(Arc<str>, Option<Box<SubscribeGrant>>)>,
    ) {
        let granted = fingerprint(grant.subscriptions.iter().map(|(channel, _)| channel));
        self.hub.set_user(key.index, grant.user);
        let session = self.hub.session_mut(key.index);
        let has_details = grant.info.is_some() || grant.meta.is_some() || grant.token.is_some();
        if has_details || granted != 0 {
            let details = session.details_mut();
            details.info = grant.info;
            details.meta = grant.meta;
            details.token = grant.token;
            details.granted_channels = granted;
        }
        let subscriptions = grant.subscriptions.into_iter();
        wanted.extend(subscriptions.map(|(channel, grant)| (channel, Some(Box::new(grant)))));
    }

    /// Appends the user's personal channel, and channels that the client had and may subscribe to by itself. The application knows
    /// which ones it wants: it is told of them.
    fn add_own_subscriptions(
        &self,
        key: Key,
        request: &ConnectRequest<'_>,
        by: GrantedBy,
        wanted: &mut Vec<(Arc<str>, Option<Box<SubscribeGrant>>)>,
        now: Now,
    ) {
        let mut known: HashSet<Arc<str>> =
            wanted.iter().map(|(channel, _)| channel.clone()).collect();
        if known.len() < wanted.len() {
            wanted.retain(|(channel, _)| known.remove(channel));
            known = wanted.iter().map(|(channel, _)| channel.clone()).collect();
        }
        if let Some(channel) = self.personal_channel(key, now)
            && known.insert(channel.as_str().into())
        {
            wanted.push((channel.into(), None));
        }
        let had = request.subs.keys().filter(|_| by != GrantedBy::Application);
        let limit = self.subscriptions_max();
        for channel in had {
            if wanted.len() >= limit {
                break;
            }
            if !known.contains(&**channel) && self.may_have(key, channel, now) {
                wanted.push((channel.as_ref().into(), None));
            }
        }
    }

    /// Notes for the log that a client connects without a subscription that it or the configuration wants. It is not ended for that:
    /// only the operator can mend the cause, and a final close would keep it away when he has.
    fn note_left_out(
        &self,
        key: Key,
        channel: &str,
        code: ErrorCode,
        cause: &'static str,
        now: Now,
    ) {
        let asked = || Asked::command("subscription at connect", channel);
        self.note_refused(key, asked, Failure::Caused(code, cause), now);
    }

    /// Whether a client may subscribe to a channel that it had, without a token and without asking the application.
    fn may_have(&self, key: Key, channel: &str, now: Now) -> bool {
        let user = self.hub.session(key.index).user.as_deref();
        let user = user.unwrap_or_default();
        let named = match self.settings.check_visible(channel, user, false) {
            Ok(named) => named,
            Err(NameError::UnknownNamespace) => {
                let cause = "the client had it, and its namespace is not configured any more";
                self.note_left_out(key, channel, ErrorCode::UnknownChannel, cause, now);
                return false;
            }
            Err(_) => return false,
        };
        let options = named.options;
        let asks = options.proxies.subscribe.is_some();
        named.names_user || !asks && self.may(options.subscribe, self.is_anonymous(key), false)
    }

    /// The channel of the user's own. None if its name would let others in, or could not be one.
    fn personal_channel(&self, key: Key, now: Now) -> Option<String> {
        let personal = self.settings.client.personal_channel.as_ref()?;
        let user = self.hub.session(key.index).user.as_ref()?;
        let channel = personal.name_for(user);
        let (code, cause) = match self.settings.namespaces.options_of(&channel) {
            None => (
                ErrorCode::UnknownChannel,
                "the namespace of personal channels is not configured any more",
            ),
            Some(options) if options.allow_user_limited_channels && user.contains(IN_LISTS) => (
                ErrorCode::PermissionDenied,
                "the user's id has a sign of lists of users, and allow_user_limited_channels would let others into his personal channel",
            ),
            Some(_) if channel.len() > Mesh::CHANNEL_BYTES_MAX => (
                ErrorCode::BadRequest,
                "the user's id is too long for the name of a personal channel",
            ),
            Some(_) => return Some(channel),
        };
        self.note_left_out(key, &channel, code, cause, now);
        None
    }

    fn subscribe_server_side(
        &mut self,
        key: Key,
        channel: &str,
        request: &ConnectRequest<'_>,
        grant: Option<Box<SubscribeGrant>>,
        now: Now,
    ) -> Result<(), Failure> {
        let Some(options) = self.settings.namespaces.options_of(channel) else {
            return Err(UNKNOWN_GRANTED);
        };
        let overrides = grant.as_ref().map(|grant| grant.overrides);
        let options = overridden(options, overrides.unwrap_or_default());
        let format = format_of(self.hub.connection(key.index).transport());
        check_readable(format, grant.as_ref().and_then(|grant| grant.data.as_ref()))?;
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
            grant,
        };
        if let Some(connecting) = self.sessions.connecting.get_mut(&key.index) {
            connecting.waiting += 1;
        }
        let made = self.begin_subscribe(key, 0, channel, wish, now);
        made.map_err(|_| {
            Failure::Close(
                CloseReason::Overloaded,
                "a server-side subscription could not be made",
            )
        })
    }

    /// A server-side subscription of a client that connects is made.
    pub(super) fn note_server_side(
        &mut self,
        key: Key,
        subscription: SubscriptionId,
        outcome: Outcome,
        now: Now,
    ) {
        let channel = Arc::clone(self.hub.channel_name(subscription));
        if let Some(connecting) = self.sessions.connecting.get_mut(&key.index) {
            if connecting.waiting > 1 {
                self.hub.hold(key.index, subscription);
            }
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
        self.hub
            .release_buffered_of(key.index, connecting.held_bytes);
        let Ok(ordered) = self.ordered_since(key, connecting.since) else {
            return self.end_forgotten(key, now);
        };
        if self.end_as_ordered(key, &ordered, now) {
            return;
        }
        self.tell_connected(key, &mut connecting, now);
        if !connecting.held.is_empty() {
            self.finish_replies(key, now);
        }
        for message in connecting.held {
            if self.hub.connection(key.index).phase == myriad_hub::Phase::Open {
                self.handle_commands(key, &message, now);
            }
        }
        self.carry_out_ordered(key, ordered, now);
        self.forget_orders();
    }

    /// Answers a connect command, and tells others of the client.
    fn tell_connected(&mut self, key: Key, connecting: &mut Connecting, now: Now) {
        self.hub.note_connected(key.index, now);
        self.note_connected(key, now);
        let ping = self.settings.ping_interval;
        let client = self.client_id(key).to_string();
        let transport = self.hub.connection(key.index).transport();
        let is_emulated = transport.is_emulated();
        let session = if is_emulated {
            Some(self.session_id(key).to_string())
        } else {
            // By this name the API takes a client without commands.
            transport.is_unidirectional().then(|| client.clone())
        };
        let mesh = self.mesh.clone();
        let result = ConnectResult {
            client: &client,
            version: VERSION,
            // Whole seconds, rounded up: a client that is told too few would give up too early.
            ping: u32::try_from(ping.as_millis().div_ceil(1000)).unwrap_or(u32::MAX),
            pong: !ping.is_zero() && !transport.is_unidirectional(),
            ttl: connecting.ttl,
            data: &connecting.data,
            session: session.as_deref().unwrap_or_default(),
            node: if is_emulated { mesh.node() } else { "" },
            ..ConnectResult::default()
        };
        let format = format_of(self.hub.connection(key.index).transport());
        let command = connecting.command;
        let fits = self.reply_kept_if_it_fits(key, |writer| {
            write_connect(writer, command, &result, format, connecting.done.iter())
        });
        if !fits {
            for (channel, outcome) in &mut connecting.done {
                if let Some(subscription) = self.hub.find_subscription(key.index, channel) {
                    self.forget_recovered(subscription, outcome);
                }
            }
            self.reply(key, |writer| {
                write_connect(writer, command, &result, format, connecting.done.iter());
            });
        }
        self.tell_event_id(key, &connecting.done, now);
        if self.hub.holds(key.index) {
            self.finish_replies(key, now);
            self.hub.release_held(key.index);
        }
        self.metrics().client_connects.add(1);
        self.note_event(Some(key), now, |shard| {
            ConnectionEvent::Connected(Box::new(shard.who(key)))
        });
        self.end_older_connections(key, connecting.serial);
        for (channel, outcome) in &connecting.done {
            self.announce_join(key, channel, outcome.terms.is_announced);
        }
    }

    /// Says where a reader of events stands before the first publication comes, if it has one channel to recover.
    fn tell_event_id(&mut self, key: Key, done: &[(Arc<str>, Outcome)], now: Now) {
        let encoding = self.hub.connection(key.index).encoding();
        let mut recoverable = done.iter().filter(|(_, outcome)| outcome.terms.recoverable);
        let (Some((channel, outcome)), None) = (recoverable.next(), recoverable.next()) else {
            return;
        };
        if !encoding.has_event_ids() {
            return;
        }
        self.finish_replies(key, now);
        let id = EventId {
            channel: channel.as_ref().into(),
            position: outcome.position.stream_offset(),
        };
        let frame = encoding.events(|events| {
            encode_id(events, &id.to_string());
            events.push(b'\n');
        });
        if self.hub.connection(key.index).phase == myriad_hub::Phase::Open
            && let Err(overflow) = self.hub.enqueue(key.index, Chunk::Owned(frame.into()))
        {
            self.close_stream(key, overflow.into(), now);
        }
    }

    /// Keeps a message of a client until its connect command is answered.
    pub(super) fn hold_message(&mut self, key: Key, message: &[u8], now: Now) {
        self.make_unconnected_room(Some(key), message.len() as u64, now);
        let reserved = self.hub.reserve_input(key.index, message.len());
        let Some(connecting) = self.sessions.connecting.get_mut(&key.index) else {
            if reserved {
                self.hub.release_buffered_of(key.index, message.len());
            }
            return self.note_defect_of(key.index, "a client that connects is listed");
        };
        let fits = connecting.held_bytes + message.len() <= HELD_BYTES_MAX;
        if reserved && fits {
            connecting.held_bytes += message.len();
            connecting.held.push(message.to_vec());
            return;
        }
        if reserved {
            self.hub.release_buffered_of(key.index, message.len());
        }
        self.close_stream(key, CloseReason::Overloaded, now);
    }

    /// The connection of a client that connects ends.
    pub(super) fn forget_connecting(&mut self, index: u32) {
        if let Some(connecting) = self.sessions.connecting.remove(&index) {
            self.hub.release_buffered_of(index, connecting.held_bytes);
        }
    }
}
