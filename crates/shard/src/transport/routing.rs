//! The request head: which transport it asks for, or what is wrong with it. Changes `inputs`, `peers` and `hub`.

use super::centrifuge;
use super::over_http::{HttpPath, connect_parameter};
use super::refusals::Refused;
use super::streams::reads_stream;
use crate::access::CERTIFICATE_USER_HEADER;
use crate::input::{Input, PartialRequest};
use crate::limits::Limit;
use crate::listening::ListenRefused;
use crate::marks::{Happening, hit};
use crate::mesh::Mesh;
use crate::reading::Reading;
use crate::settings::Transports;
use crate::shard::Shard;
use myriad_hub::{Compression, Headers, NameError, Namespaces, Now, Phase, Transport};
use myriad_reactor::{Reactor, Socket};
use myriad_wheel::Key;
use myriad_wire::centrifuge::EventId;
use myriad_wire::deflate::Window;
use myriad_wire::handshake::{asks_for_websocket, check_upgrade};
use myriad_wire::http::{
    HeadLimits, RequestBody, RequestHead, check_request, cookies_count, is_ambient, parse_request,
    query_pairs,
};
use myriad_wire::reads::STREAM_PATH;
use std::sync::Arc;

/// Where commands of clients come whose connection takes replies only.
pub const EMULATION: &str = "/emulation";

/// Where load balancers ask whether to send clients here.
const HEALTH: &str = "/healthz";

/// What a client of `/raw` is advised whose channel is for some users only.
const OF_RAW: &str =
    "and /raw does not know who its clients are: subscribe at /connection/websocket";

/// Bytes of a head beyond which it is read again only when a line of it ends.
const LONG_HEAD_BYTES: usize = 8 << 10;

/// Characters of a path that an answer repeats.
const SHOWN_PATH_CHARS: usize = 100;

/// Where streams over WebSocket are.
enum Path {
    Raw,
    Echo,
    Centrifuge,
    UniWebSocket,
}

/// Which requests are for shards; all others are for the control plane.
///
/// A shard asks it of the first request of a connection, and the control plane of each later one. So both send a request to the
/// same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRequests {
    /// There is an echo: [`Settings::echo`].
    ///
    /// [`Settings::echo`]: crate::Settings::echo
    pub echo: bool,
    /// Transports beside WebSocket: [`Settings::transports`].
    ///
    /// [`Settings::transports`]: crate::Settings::transports
    pub transports: Transports,
}

impl ShardRequests {
    /// Whether a shard answers this request.
    ///
    /// That is any request to the path of a stream, any read of a channel as a stream, and any wish for a WebSocket: the control
    /// plane has no answer for one.
    #[must_use]
    pub fn contain(self, head: &RequestHead<'_>) -> bool {
        self.path(head).is_some()
            || self.http_path(head).is_some()
            || reads_stream(head)
            || asks_for_websocket(head)
    }

    /// The stream that it asks for, if it is one's path.
    fn path(self, head: &RequestHead<'_>) -> Option<Path> {
        match head.path() {
            "/raw" => Some(Path::Raw),
            "/echo" if self.echo => Some(Path::Echo),
            "/connection/websocket" => Some(Path::Centrifuge),
            "/connection/uni_websocket" if self.transports.uni_websocket => {
                Some(Path::UniWebSocket)
            }
            _ => None,
        }
    }

    /// The path whose answers go on, if it asks for one. What a browser asks before (`OPTIONS`) is for the control plane.
    fn http_path(self, head: &RequestHead<'_>) -> Option<HttpPath> {
        let path = HttpPath::at(head.path(), self.transports);
        path.filter(|_| head.method() != "OPTIONS")
    }

    /// Whether the control plane answers it for clients, also where the API has an address of its own.
    fn leave_to_clients_plane(self, head: &RequestHead<'_>) -> bool {
        head.path() == HEALTH
            || head.path() == EMULATION && self.transports.emulates()
            || head.path().starts_with(STREAM_PATH)
            || HttpPath::at(head.path(), self.transports).is_some()
    }
}

/// What a request head asks for.
pub(super) enum Route {
    Stream(Box<Stream>),
    /// A channel as a stream over HTTP. With a token that takes long to verify.
    Read(Box<Reading>, Option<Box<str>>),
    ControlPlane,
}

/// A stream that a request asks for and may have.
pub(super) struct Stream {
    pub(super) transport: Transport,
    pub(super) opening: Opening,
    /// The head of the answer, and what stands before the first message.
    pub(super) response: Vec<u8>,
    /// What was agreed to of compression.
    pub(super) window: Option<Window>,
    /// The user whom a trusted proxy names; only on transports with sessions.
    pub(super) user: Option<Arc<str>>,
    /// Headers that the application is sent.
    pub(super) headers: Option<Headers>,
}

/// How a stream begins.
pub(super) enum Opening {
    /// With subscriptions to these channels.
    Channels(Vec<String>),
    /// With the answer. The client says what it wants on its connection.
    Answer,
    /// With this message of the client, which its request has in the query.
    Message(Vec<u8>),
    /// With a message of the client in the body of the request, and where it goes on by the head.
    Body(RequestBody, Option<EventId<'static>>),
}

impl<R: Reactor> Shard<R> {
    /// Bytes of a connection whose request head is not whole.
    pub(crate) fn handle_head_bytes(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let connection = self.hub.connection(key.index);
        if connection.is_kept_alive() && connection.has_outbound() {
            return self.keep_behind(key, bytes, now);
        }
        match self.inputs.take(&mut self.hub, key.index) {
            Input::Head(mut head) => {
                hit!(HeadInPieces);
                let is_long = head.len() > LONG_HEAD_BYTES;
                head.extend_from_slice(bytes);
                // Read for every byte, a long head would take time by the square of its length.
                if is_long && !bytes.contains(&b'\n') && head.len() < self.settings.head_bytes_max {
                    return self.keep_head(key, &head, now);
                }
                self.handle_request(key, &mut head, now);
            }
            Input::Body(partial) => {
                hit!(BodyInPieces);
                self.handle_body(key, partial, bytes, now);
            }
            _ => self.handle_request(key, bytes, now),
        }
    }

    pub(crate) fn handle_request(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        let Some(header_bytes) = self.take_proxy_header(key, bytes, now) else {
            return;
        };
        let bytes = &mut bytes[header_bytes..];
        let limits = HeadLimits {
            bytes_max: self.settings.head_bytes_max,
            headers_max: self.settings.headers_max,
        };
        let (route, head_bytes) = match parse_request(bytes, limits) {
            Ok(Some(head)) => {
                self.note_forwarded(key, &head, now);
                (self.route(key, &head, now), head.head_bytes())
            }
            Ok(None) => return self.keep_head(key, bytes, now),
            Err(error) => return self.refuse(key, error.into(), now),
        };
        let has_ended = self.hub.connection(key.index).has_received_fin();
        if has_ended && matches!(route, Ok(Route::Stream(_))) {
            // Nobody would end a connection whose client says nothing any more.
            return self.end_by_client(key, now);
        }
        let is_read = matches!(route, Ok(Route::Read(..)));
        let is_next = self.hub.connection(key.index).is_kept_alive();
        self.hub.end_keep_alive(key.index);
        if !is_read {
            self.leave_streams(key);
        }
        match route {
            Ok(Route::Read(reading, token)) => {
                self.begin_read(key, reading, token, &bytes[head_bytes..], now);
            }
            Ok(Route::Stream(stream)) => {
                if is_next && matches!(stream.opening, Opening::Body(..)) {
                    self.hub.begin_next_body(key.index, now);
                }
                self.begin_stream(key, *stream, &mut bytes[head_bytes..], now);
            }
            Ok(Route::ControlPlane) => self.begin_handover(key, bytes, is_next, now),
            Err(refused) => {
                let behind = &bytes[head_bytes..];
                if refused.keeps_connection() && !behind.is_empty() {
                    self.keep_behind(key, behind, now);
                    if self.hub.connection(key.index).phase == Phase::Closing {
                        return;
                    }
                }
                self.refuse(key, refused, now);
            }
        }
    }

    /// Begins a stream. `early` is what came behind the head.
    fn begin_stream(&mut self, key: Key, stream: Stream, early: &mut [u8], now: Now) {
        let connection = self.hub.connection_mut(key.index);
        connection.set_transport(stream.transport);
        connection.set_window(stream.window);
        if stream.transport.has_sessions() {
            self.hub.open_session(key.index, stream.user);
            if stream.headers.is_some() {
                self.hub.session_mut(key.index).details_mut().headers = stream.headers;
            }
        }
        match stream.opening {
            Opening::Channels(channels) => self.join(key, stream.response, &channels, early, now),
            Opening::Answer => self.admit(key, stream.response, early, now),
            Opening::Message(message) => {
                self.admit_with(key, stream.response, &message, early, now);
            }
            Opening::Body(body, position) => {
                let partial = Box::new(PartialRequest {
                    body,
                    position,
                    response: stream.response.into(),
                });
                self.handle_body(key, partial, early, now);
            }
        }
    }

    /// Opens a connection whose first message has come with its request.
    pub(super) fn admit_with(
        &mut self,
        key: Key,
        response: Vec<u8>,
        message: &[u8],
        early: &mut [u8],
        now: Now,
    ) {
        self.admit(key, response, &mut [], now);
        if self.hub.connection(key.index).phase == Phase::Open {
            self.handle_message_of(key, message, now);
        }
        if !early.is_empty() && self.hub.connection(key.index).phase == Phase::Open {
            self.handle_input(key, early, now);
        }
    }

    /// Keeps the beginning of a head until more of it comes.
    pub(super) fn keep_head(&mut self, key: Key, bytes: &[u8], now: Now) {
        if self.hub.connection(key.index).has_received_fin() {
            return self.end_by_client(key, now);
        }
        if self.hub.connection(key.index).is_kept_alive() {
            self.hub.begin_next_head(key.index, now);
        }
        let head = Input::Head(bytes.to_vec());
        if !self.keep_input(key, head, now) {
            self.note_happening(key.index, Happening::Overloaded);
            self.refuse(key, Refused::overloaded(), now);
        }
    }

    fn route(&mut self, key: Key, head: &RequestHead<'_>, now: Now) -> Result<Route, Refused> {
        check_request(head).map_err(|error| self.refused_head(head, error))?;
        self.check_host(head)?;
        if reads_stream(head) {
            let (reading, token) = self.route_read(key, head, now)?;
            return Ok(Route::Read(reading, token));
        }
        let for_shards = ShardRequests {
            echo: self.settings.echo,
            transports: self.settings.transports,
        };
        if !for_shards.contain(head)
            && (self.settings.hands_over || for_shards.leave_to_clients_plane(head))
        {
            return Ok(Route::ControlPlane);
        }
        if let Some(path) = for_shards.http_path(head) {
            return self.route_over_http(key, head, path, now);
        }
        let Some(path) = for_shards.path(head) else {
            return Err(self.unknown_path(head));
        };
        let upgrade = check_upgrade(head)?;
        let query = head.query().unwrap_or_default();
        let (transport, subprotocol) = match path {
            Path::Raw => (Transport::Raw, None),
            Path::Echo => (Transport::Echo, None),
            Path::Centrifuge => centrifuge::transport_of(upgrade.protocols(), query),
            Path::UniWebSocket => (Transport::UniWebSocket, None),
        };
        self.check_visitor(key, head)?;
        // A client with a session says who it is by its first command.
        if !self.settings.anonymous && !transport.has_sessions() {
            return Err(Refused::anonymous());
        }
        let opening = match transport {
            Transport::Raw => Opening::Channels(self.channels_of(query)?),
            Transport::UniWebSocket => match connect_parameter(query)? {
                Some(request) => Opening::Message(request),
                None => Opening::Answer,
            },
            _ => Opening::Answer,
        };
        let deflate = match self.settings.compression {
            Compression::Off => None,
            Compression::Shared => upgrade.deflate(),
        };
        // Last, so that only a request that can be served counts.
        self.take_connection(now)?;
        let mut response = Vec::with_capacity(256);
        upgrade.write_response(subprotocol, deflate.as_ref(), &mut response);
        Ok(Route::Stream(Box::new(Stream {
            transport,
            opening,
            response,
            window: deflate.map(|deflate| deflate.window()),
            user: self.user_of(key, head, transport),
            headers: self.headers_of(key, head, transport),
        })))
    }

    /// Whether a visitor may have a stream at all, whatever it asks for.
    pub(super) fn check_visitor(&self, key: Key, head: &RequestHead<'_>) -> Result<(), Refused> {
        self.check_page(head)?;
        if self.admission.drain.is_some() {
            return Err(Refused::draining());
        }
        self.check_admission(key)
    }

    /// The user whom the client's certificate names, or a trusted proxy in a header. A browser shows a certificate by itself, and a proxy
    /// knows the user by a cookie. So both count where cookies do.
    ///
    /// None if the header came several times and the lines differ: a proxy has added its own to the client's.
    pub(super) fn user_of(
        &self,
        key: Key,
        head: &RequestHead<'_>,
        transport: Transport,
    ) -> Option<Arc<str>> {
        if !transport.has_sessions() || !cookies_count(head) {
            return None;
        }
        if let Some(user) = self.certificate_user(key) {
            return Some(user);
        }
        let name = self.settings.client.user_id_http_header.as_deref()?;
        let mut values = head.headers(name);
        let value = values.next()?;
        let user = str::from_utf8(value).ok()?;
        (!user.is_empty() && values.all(|other| other == value)).then(|| user.into())
    }

    /// The user whom the certificate of a connection names.
    fn certificate_user(&self, key: Key) -> Option<Arc<str>> {
        let socket = Socket::from_bits(self.hub.connection(key.index).socket);
        self.reactor.certificate_user(socket)
    }

    /// Those of a request's headers that the application is to be sent: every line of them (RFC 9110, section 5.3).
    pub(super) fn headers_of(
        &self,
        key: Key,
        head: &RequestHead<'_>,
        transport: Transport,
    ) -> Option<Headers> {
        let wanted = &self.settings.access.headers;
        if wanted.is_empty() || !transport.has_sessions() {
            return None;
        }
        let has_cookies = cookies_count(head);
        let user_header = self.settings.client.user_id_http_header.as_deref();
        let names_user =
            |name: &str| user_header.is_some_and(|header| header.eq_ignore_ascii_case(name));
        let says_who =
            |name: &str| is_ambient(name) || names_user(name) || name == CERTIFICATE_USER_HEADER;
        let mut kept: Vec<(Box<str>, Box<[u8]>)> = Vec::new();
        for name in wanted.iter().filter(|name| has_cookies || !says_who(name)) {
            if **name == *CERTIFICATE_USER_HEADER {
                let user = self.certificate_user(key);
                kept.extend(user.map(|user| (name.clone(), user.as_bytes().into())));
            } else if **name == *"cookie" {
                kept.extend(cookies_of(head).map(|cookies| (name.clone(), cookies)));
            } else {
                kept.extend(head.headers(name).map(|value| (name.clone(), value.into())));
            }
        }
        (!kept.is_empty()).then(|| kept.into())
    }

    /// Whether the client's address, and the server, may have one more connection.
    pub(super) fn check_admission(&self, key: Key) -> Result<(), Refused> {
        if let Some(refused) = self.refused_address(key) {
            return Err(refused);
        }
        if self.hub.connection(key.index).is_surplus() {
            return Err(Refused::full());
        }
        Ok(())
    }

    /// Counts a client that connects against the rate of all.
    pub(super) fn take_connection(&self, now: Now) -> Result<(), Refused> {
        match self.settings.limits.connection_rate {
            Some(limit) if !self.mesh.tallies().take_connection(limit, now) => {
                self.metrics().count_limited(Limit::ConnectionRate);
                Err(Refused::limited(Limit::ConnectionRate))
            }
            _ => Ok(()),
        }
    }

    /// The answer to a path where nothing is.
    fn unknown_path(&self, head: &RequestHead<'_>) -> Refused {
        let sentence = if asks_for_websocket(head) {
            let shown: String = head.path().chars().take(SHOWN_PATH_CHARS).collect();
            let streams = if self.settings.echo {
                "/connection/websocket, /raw?channel=NAME or /echo"
            } else {
                "/connection/websocket or /raw?channel=NAME (/echo needs --dev)"
            };
            format!("No WebSocket is at {shown}: connect to {streams}.")
        } else {
            "Nothing is here: connections are at /connection/websocket and /raw?channel=NAME, streams at /v1/stream/CHANNEL. The API has an address of its own.".to_owned()
        };
        Refused::new(404, "path", sentence)
    }

    fn channels_of(&self, query: &str) -> Result<Vec<String>, Refused> {
        let max = (self.settings.subscriptions_max as usize).min(usize::from(u8::MAX));
        let refused = |sentence: String| Refused::new(400, "channel", sentence);
        let too_many = || {
            refused(format!(
                "More than {max} channels: name at most {max} a connection."
            ))
        };
        let mut named = 0;
        let mut channels: Vec<String> = Vec::new();
        for pair in query_pairs(query) {
            let (name, value) = pair?;
            if name != "channel" {
                continue;
            }
            // Repeated ones are counted too, with room for some: each is compared with all before it.
            named += 1;
            if named > 2 * max || channels.len() > max {
                return Err(too_many());
            }
            if !channels.iter().any(|known| *known == value) {
                channels.push(value.into_owned());
            }
        }
        if channels.len() > max {
            return Err(too_many());
        }
        if channels.is_empty() {
            let sentence = "No channel: name at least one, as in /raw?channel=news.";
            return Err(refused(sentence.to_owned()));
        }
        let is_name = |name: &String| (1..=Mesh::CHANNEL_BYTES_MAX).contains(&name.len());
        if !channels.iter().all(is_name) {
            return Err(refused(format!(
                "A channel's name has 1 to {} bytes of UTF-8.",
                Mesh::CHANNEL_BYTES_MAX
            )));
        }
        for name in &channels {
            self.check_open(name, OF_RAW)?;
        }
        Ok(channels)
    }

    /// Whether everybody may listen to a channel.
    pub(crate) fn is_open(&self, channel: &str) -> bool {
        self.settings.check_stranger(channel).is_ok()
    }

    /// Lets in whoever has no user and no token: a client of `/raw`, or a reader who shows none.
    ///
    /// # Errors
    /// The channel is for some users only, or its namespace does not exist. `advice` says how to get there all the same.
    pub(super) fn check_open(&self, channel: &str, advice: &str) -> Result<(), Refused> {
        let Err(refused) = self.settings.check_stranger(channel) else {
            return Ok(());
        };
        let sentence = match refused {
            ListenRefused::Name(NameError::UnknownNamespace) => {
                let namespace = Namespaces::name_of(channel).unwrap_or_default();
                let sentence = format!(
                    "Channel {channel:?} is of the namespace {namespace:?}, which is not configured: add it to [[channel.namespaces]] in the config file, or use a name without a colon."
                );
                return Err(Refused::new(400, "namespace", sentence));
            }
            ListenRefused::Name(NameError::Private) => {
                format!("Channel {channel:?} is private, {advice}.")
            }
            ListenRefused::Name(_) => {
                format!("Channel {channel:?} is for some users only, {advice}.")
            }
            ListenRefused::Application | ListenRefused::Right { .. } => refused.sentence(channel),
        };
        Err(Refused::new(403, "permission", sentence))
    }
}

/// The cookies of a request in one line. A proxy that speaks HTTP/2 to the client passes several lines on, which mean what one line
/// with `; ` between them means (RFC 9113, section 8.2.3). Few programs read several.
fn cookies_of(head: &RequestHead<'_>) -> Option<Box<[u8]>> {
    let mut lines = head.headers("cookie").filter(|line| !line.is_empty());
    let mut cookies = lines.next()?.to_vec();
    for line in lines {
        cookies.extend_from_slice(b"; ");
        cookies.extend_from_slice(line);
    }
    Some(cookies.into())
}
