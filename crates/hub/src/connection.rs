//! The record of one connection: what an idle client costs.

use crate::encoding::{Encoding, Framing, Protocol};
use crate::streams::Variant;
use myriad_wheel::{NONE, Tick, Timed, Timer};
use myriad_wire::deflate::Window;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Phase {
    /// The request head has not come whole.
    #[default]
    Handshake,
    /// The request is accepted; its channels' homes have not all confirmed.
    Joining,
    /// Upgraded: receives deliveries.
    Open,
    /// Ended by us or by the client: what is queued still leaves, input is discarded, a timer waits for the peer's FIN.
    Closing,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Transport {
    /// Not known yet: HTTP.
    #[default]
    Http,
    /// One publication, one WebSocket frame; what the client sends is ignored.
    Raw,
    /// Messages come back as they are.
    Echo,
    /// The Centrifuge client protocol as JSON, over WebSocket.
    CentrifugeJson,
    /// The Centrifuge client protocol as protobuf, over WebSocket.
    CentrifugeProtobuf,
    /// The Centrifuge client protocol as JSON, in an HTTP response that goes on. Commands come in requests of their own.
    HttpStreamJson,
    /// The same as protobuf.
    HttpStreamProtobuf,
    /// The Centrifuge client protocol as an event stream. Commands come in requests of their own.
    Sse,
    /// Bare pushes over WebSocket, for a client that sends its connect request and no commands.
    UniWebSocket,
    /// The same as an event stream.
    UniSse,
    /// The same as lines of an HTTP response that goes on.
    UniHttpStream,
    /// A request that reads a stream, and is held until something is there or its time is over.
    LongPoll,
    /// A stream as server-sent events.
    Events,
}

/// What the clients of a transport are to us. Each transport is of one kind, so a new one has to be given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Not known yet.
    Unknown,
    /// They receive frames, and have no session.
    Plain,
    /// They have a session, and send commands on their connection.
    Commands,
    /// They have a session, and send commands in requests of their own.
    Emulated,
    /// They have a session, and send one connect request and no commands.
    Unidirectional,
    /// They read a stream, and have no session.
    Reader,
}

impl Transport {
    /// In the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Http,
        Self::Raw,
        Self::Echo,
        Self::CentrifugeJson,
        Self::CentrifugeProtobuf,
        Self::HttpStreamJson,
        Self::HttpStreamProtobuf,
        Self::Sse,
        Self::UniWebSocket,
        Self::UniSse,
        Self::UniHttpStream,
        Self::LongPoll,
        Self::Events,
    ];

    /// What its clients read publications as; `None` where they get none, and so cannot subscribe.
    #[must_use]
    pub const fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Raw => Some(Protocol::Raw),
            Self::CentrifugeJson | Self::HttpStreamJson | Self::Sse => {
                Some(Protocol::CentrifugeJson)
            }
            Self::CentrifugeProtobuf | Self::HttpStreamProtobuf => {
                Some(Protocol::CentrifugeProtobuf)
            }
            Self::UniWebSocket | Self::UniSse | Self::UniHttpStream => {
                Some(Protocol::CentrifugePush)
            }
            Self::LongPoll => Some(Protocol::Answer),
            Self::Events => Some(Protocol::Events),
            Self::Http | Self::Echo => None,
        }
    }

    /// How messages travel to its clients.
    #[must_use]
    pub const fn framing(self) -> Framing {
        match self {
            Self::Http
            | Self::Raw
            | Self::Echo
            | Self::CentrifugeJson
            | Self::CentrifugeProtobuf
            | Self::UniWebSocket
            | Self::LongPoll
            | Self::Events => Framing::WebSocket,
            Self::HttpStreamJson | Self::HttpStreamProtobuf | Self::UniHttpStream => Framing::Chunk,
            Self::Sse | Self::UniSse => Framing::Event,
        }
    }

    /// What applications, logs and metrics call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Raw => "raw",
            Self::Echo => "echo",
            Self::CentrifugeJson | Self::CentrifugeProtobuf => "websocket",
            Self::HttpStreamJson | Self::HttpStreamProtobuf => "http_stream",
            Self::Sse => "sse",
            Self::UniWebSocket => "uni_websocket",
            Self::UniSse => "uni_sse",
            Self::UniHttpStream => "uni_http_stream",
            Self::LongPoll => "long_poll",
            Self::Events => "events",
        }
    }

    /// The path of its requests.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Http => "",
            Self::Raw => "/raw",
            Self::Echo => "/echo",
            Self::CentrifugeJson | Self::CentrifugeProtobuf => "/connection/websocket",
            Self::HttpStreamJson | Self::HttpStreamProtobuf => "/connection/http_stream",
            Self::Sse => "/connection/sse",
            Self::UniWebSocket => "/connection/uni_websocket",
            Self::UniSse => "/connection/uni_sse",
            Self::UniHttpStream => "/connection/uni_http_stream",
            Self::LongPoll | Self::Events => "/v1/stream",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Http => Kind::Unknown,
            Self::Raw | Self::Echo => Kind::Plain,
            Self::CentrifugeJson | Self::CentrifugeProtobuf => Kind::Commands,
            Self::HttpStreamJson | Self::HttpStreamProtobuf | Self::Sse => Kind::Emulated,
            Self::UniWebSocket | Self::UniSse | Self::UniHttpStream => Kind::Unidirectional,
            Self::LongPoll | Self::Events => Kind::Reader,
        }
    }

    /// Whether its clients send their commands in requests of their own, because their connection takes replies only.
    #[must_use]
    pub const fn is_emulated(self) -> bool {
        matches!(self.kind(), Kind::Emulated)
    }

    /// Whether its clients send a connect request and no commands.
    #[must_use]
    pub const fn is_unidirectional(self) -> bool {
        matches!(self.kind(), Kind::Unidirectional)
    }

    /// Whether something comes back after a ping. Where nothing can, silence says nothing.
    #[must_use]
    pub const fn answers_pings(self) -> bool {
        match self {
            Self::Http
            | Self::Raw
            | Self::Echo
            | Self::CentrifugeJson
            | Self::CentrifugeProtobuf
            | Self::HttpStreamJson
            | Self::HttpStreamProtobuf
            | Self::Sse
            | Self::UniWebSocket => true,
            Self::UniSse | Self::UniHttpStream | Self::LongPoll | Self::Events => false,
        }
    }

    /// Whether its clients have a session and read nothing but JSON.
    #[must_use]
    pub const fn reads_only_json(self) -> bool {
        matches!(
            self.protocol(),
            Some(Protocol::CentrifugeJson | Protocol::CentrifugePush)
        )
    }

    /// Whether its clients read a stream: what they are given is HTTP, made for a whole channel.
    #[must_use]
    pub const fn reads_streams(self) -> bool {
        matches!(self.kind(), Kind::Reader)
    }

    /// Whether its clients have a session: they say who they are, and what they want, by commands or by a connect request.
    #[must_use]
    pub const fn has_sessions(self) -> bool {
        match self.kind() {
            Kind::Commands | Kind::Emulated | Kind::Unidirectional => true,
            Kind::Unknown | Kind::Plain | Kind::Reader => false,
        }
    }
}

/// One connection, plain data: indices, never pointers, so that another process could read it.
#[derive(Debug)]
pub struct Connection {
    timer: Timer,
    /// The reactor's name of the socket.
    pub socket: u32,
    /// When the last bytes came.
    pub last_input: Tick,
    /// When it was accepted.
    pub opened: Tick,
    /// When the next ping is due; while one is unanswered, when its pong is.
    pub(crate) ping_at: Tick,
    /// On transports with commands, its session, which has the subscriptions; on others, the first of its subscriptions. Or
    /// `NONE`. One field for both keeps the record at 44 bytes.
    session_or_subscriptions: u32,
    /// Its outbound queue, or `NONE` while nothing waits.
    pub(crate) outbound: u32,
    /// The shard's record of input that is not whole yet, or `NONE`.
    pub input: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// Its transport in the low four bits. In the high four the window it takes compressed messages with, or 0; of a transport that
    /// reads streams, how its answers differ.
    transport_and_window: u8,
    pub(crate) flags: u8,
    /// Channels whose home has not confirmed yet.
    pub(crate) joins_pending: u8,
}

const _: () = assert!(size_of::<Connection>() == 44);

impl Connection {
    pub(crate) const AWAITS_PONG: u8 = 1;
    const AWAITS_WRITABLE: u8 = 2;
    pub(crate) const FLUSH_LISTED: u8 = 4;
    const FIN_AFTER_FLUSH: u8 = 8;
    const FIN_SENT: u8 = 16;
    const FIN_RECEIVED: u8 = 32;
    /// It is in the batch of sends that is being built. A batch holds at most one send per socket, so another frame goes to
    /// its queue.
    pub(crate) const IN_BATCH: u8 = 64;
    const SURPLUS: u8 = 128;
    /// In the handshake: an earlier request was answered, and `ping_at` is when the next one must be whole. The same bit as
    /// `AWAITS_PONG`, which is of open connections only.
    pub(crate) const KEPT_ALIVE: u8 = Self::AWAITS_PONG;

    pub(crate) fn new(socket: u32, now: Tick) -> Self {
        Self {
            socket,
            last_input: now,
            opened: now,
            ..Self::default()
        }
    }

    /// What it speaks.
    #[must_use]
    pub fn transport(&self) -> Transport {
        Transport::ALL[usize::from(self.transport_and_window & 0x0f)]
    }

    /// Sets what it speaks.
    pub fn set_transport(&mut self, transport: Transport) {
        self.transport_and_window = self.transport_and_window & 0xf0 | transport as u8;
    }

    /// The window it takes compressed messages with (RFC 7692); none where it takes none.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        if self.transport().reads_streams() {
            return None;
        }
        Window::new(self.transport_and_window >> 4)
    }

    /// How the answers of a reader of a stream differ from those of others.
    pub(crate) fn variant(&self) -> Variant {
        debug_assert!(self.transport().reads_streams());
        Variant::from_bits(self.transport_and_window >> 4)
    }

    /// Makes it a reader of a stream.
    pub(crate) fn set_reader(&mut self, transport: Transport, variant: Variant) {
        debug_assert!(transport.reads_streams());
        self.transport_and_window = transport as u8 | variant.bits() << 4;
    }

    /// Makes it a connection without a transport again: its request was answered.
    pub(crate) fn set_answered(&mut self) {
        self.transport_and_window = Transport::Http as u8;
        self.set(Self::KEPT_ALIVE, true);
        self.phase = Phase::Handshake;
    }

    /// Whether an earlier request of it was answered, and the next one has not come whole.
    #[must_use]
    pub fn is_kept_alive(&self) -> bool {
        self.phase == Phase::Handshake && self.is(Self::KEPT_ALIVE)
    }

    /// Sets what was negotiated of compression.
    pub fn set_window(&mut self, window: Option<Window>) {
        self.transport_and_window =
            self.transport_and_window & 0x0f | window.map_or(0, Window::bits) << 4;
    }

    /// How publications, and other messages of their protocol, are encoded for it. Only subscribers have an encoding.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        let transport = self.transport();
        if transport.reads_streams() {
            return Encoding::of_reader(transport, self.variant());
        }
        debug_assert!(transport.protocol().is_some());
        let protocol = transport.protocol().unwrap_or(Protocol::Raw);
        Encoding::new(protocol, self.window()).with_framing(transport.framing())
    }

    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn set(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag
        } else {
            self.flags &= !flag
        }
    }

    /// Whether it has a session.
    #[must_use]
    pub fn has_session(&self) -> bool {
        self.session().is_some()
    }

    /// The index of its session.
    pub(crate) fn session(&self) -> Option<u32> {
        let session = self.session_or_subscriptions;
        (session != NONE && self.transport().has_sessions()).then_some(session)
    }

    /// Sets its session, or ends it. Its transport must have sessions. Answers what it had instead.
    pub(crate) fn set_session(&mut self, session: u32) -> u32 {
        debug_assert!(self.transport().has_sessions());
        std::mem::replace(&mut self.session_or_subscriptions, session)
    }

    /// First of its subscriptions, or `NONE`. It has no session.
    pub(crate) fn subscriptions(&self) -> u32 {
        debug_assert!(!self.has_session());
        self.session_or_subscriptions
    }

    /// Sets [`Connection::subscriptions`].
    pub(crate) fn set_subscriptions(&mut self, first: u32) {
        // Before its session opens, a connection has no subscription: it may only be told that.
        debug_assert!(first == NONE || !self.transport().has_sessions());
        self.session_or_subscriptions = first;
    }

    /// Channels it has subscribed to whose home has not confirmed yet.
    #[must_use]
    pub fn joins_pending(&self) -> u8 {
        self.joins_pending
    }

    /// Whether bytes wait in its outbound queue.
    #[must_use]
    pub fn has_outbound(&self) -> bool {
        self.outbound != NONE
    }

    /// Whether the shard keeps input of it.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.input != NONE
    }

    /// The socket was full: nothing is sent until the reactor says that it takes bytes again.
    #[must_use]
    pub fn awaits_writable(&self) -> bool {
        self.is(Self::AWAITS_WRITABLE)
    }

    /// Sets [`Connection::awaits_writable`]; the caller lists it for a flush when it clears the mark.
    pub fn set_awaits_writable(&mut self, on: bool) {
        self.set(Self::AWAITS_WRITABLE, on);
    }

    /// Accepted beyond the limit of connections, only to be answered.
    #[must_use]
    pub fn is_surplus(&self) -> bool {
        self.is(Self::SURPLUS)
    }

    /// Marks it as [`Connection::is_surplus`].
    pub fn set_surplus(&mut self) {
        self.set(Self::SURPLUS, true);
    }

    /// Our FIN follows the last queued byte.
    #[must_use]
    pub fn fin_is_due(&self) -> bool {
        self.is(Self::FIN_AFTER_FLUSH) && !self.is(Self::FIN_SENT) && !self.has_outbound()
    }

    /// Asks for FIN once the queue is empty.
    pub fn want_fin(&mut self) {
        self.set(Self::FIN_AFTER_FLUSH, true);
    }

    /// Notes that our FIN has been sent.
    pub fn note_fin_sent(&mut self) {
        self.set(Self::FIN_SENT, true);
    }

    /// Notes the peer's FIN.
    pub fn note_fin_received(&mut self) {
        self.set(Self::FIN_RECEIVED, true);
    }

    /// The peer has sent its FIN. It may still read.
    #[must_use]
    pub fn has_received_fin(&self) -> bool {
        self.is(Self::FIN_RECEIVED)
    }

    /// Both sides have ended: the socket can be closed without losing anything.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is(Self::FIN_SENT) && self.is(Self::FIN_RECEIVED)
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            timer: Timer::default(),
            socket: 0,
            last_input: Tick(0),
            opened: Tick(0),
            ping_at: Tick(0),
            session_or_subscriptions: NONE,
            outbound: NONE,
            input: NONE,
            phase: Phase::Handshake,
            transport_and_window: 0,
            flags: 0,
            joins_pending: 0,
        }
    }
}

impl Timed for Connection {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn timer_mut(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, Transport};
    use myriad_wheel::Tick;
    use myriad_wire::deflate::Window;

    #[test]
    fn transport_and_window_share_a_byte_and_do_not_meet() {
        let mut connection = Connection::new(7, Tick(0));
        assert_eq!(
            (connection.transport(), connection.window()),
            (Transport::Http, None)
        );
        for (number, transport) in Transport::ALL.into_iter().enumerate() {
            assert_eq!(transport as usize, number);
            if transport.reads_streams() {
                continue;
            }
            for window in (9..=15).map(Window::new).chain([None]) {
                connection.set_window(window);
                connection.set_transport(transport);
                assert_eq!(
                    (connection.transport(), connection.window()),
                    (transport, window)
                );
                connection.set_window(None);
                connection.set_window(window);
                assert_eq!(
                    (connection.transport(), connection.window()),
                    (transport, window)
                );
            }
        }
    }
}
