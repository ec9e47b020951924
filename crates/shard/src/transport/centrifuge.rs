//! `/connection/websocket`: the Centrifuge client protocol, as JSON or as protobuf. Each WebSocket message is a list of commands.
//! Changes what `frames` and `session` change.

use super::{Methods, websocket};
use crate::shard::Shard;
use myriad_hub::{CloseReason, Encoding, Now, Protocol, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{DisconnectCode, Encoding as Format, EndReason, FrameWriter, Push};
use myriad_wire::ws::{CloseCode, Kind, encode_close};

/// The code and the reason of Centrifuge for a server that goes away: clients reconnect at once, to another one.
pub(super) const SHUTDOWN: DisconnectCode = DisconnectCode::Shutdown;

impl<R: Reactor> Methods<R> {
    pub(super) const CENTRIFUGE_JSON: Self = Self {
        handle_input: Shard::handle_centrifuge_input,
        ping: Some(|| ping_frame(Transport::CentrifugeJson)),
        close: close_frame,
        application_close: websocket::application_close_frame,
    };
    pub(super) const CENTRIFUGE_PROTOBUF: Self = Self {
        handle_input: Shard::handle_centrifuge_input,
        ping: Some(|| ping_frame(Transport::CentrifugeProtobuf)),
        close: close_frame,
        application_close: websocket::application_close_frame,
    };
}

/// The format of a transport that speaks Centrifuge.
pub(crate) fn format_of(transport: Transport) -> Format {
    debug_assert!(transport.has_sessions());
    // Whoever asks has asked for the session before. Where there is none, that is noted, and the connection ends with the turn.
    protocol_of(transport).format().unwrap_or(Format::Json)
}

/// What clients of a transport with sessions read.
pub(crate) fn protocol_of(transport: Transport) -> Protocol {
    debug_assert!(transport.has_sessions());
    // As in `format_of`.
    transport.protocol().unwrap_or(Protocol::CentrifugeJson)
}

/// What applications call a transport with sessions, and its format.
pub(crate) fn names_of(transport: Transport) -> (&'static str, &'static str) {
    let format = match format_of(transport) {
        Format::Json => "json",
        Format::Protobuf => "protobuf",
    };
    (transport.name(), format)
}

/// The transport that a client asks for: protobuf by its subprotocol or in the query, otherwise JSON. With it, the
/// subprotocol that the answer repeats.
pub(super) fn transport_of<'a>(
    protocols: impl Iterator<Item = &'a str>,
    query: &str,
) -> (Transport, Option<&'a str>) {
    for protocol in protocols {
        match protocol {
            "centrifuge-protobuf" => return (Transport::CentrifugeProtobuf, Some(protocol)),
            "centrifuge-json" => return (Transport::CentrifugeJson, Some(protocol)),
            _ => {}
        }
    }
    let is_protobuf = |pair: &str| matches!(pair, "format=protobuf" | "cf_protocol=protobuf");
    if query.split('&').any(is_protobuf) {
        (Transport::CentrifugeProtobuf, None)
    } else {
        (Transport::CentrifugeJson, None)
    }
}

/// A message to clients of a transport with sessions, as it travels there.
pub(super) fn framed(transport: Transport, write: impl FnOnce(&mut FrameWriter<'_>)) -> Vec<u8> {
    let protocol = protocol_of(transport);
    let mut message = Vec::new();
    write(&mut protocol.writer(&mut message));
    let kind = myriad_hub::kind_of(format_of(transport));
    let encoding = Encoding::new(protocol, None).with_framing(transport.framing());
    encoding.frame(kind, &message)
}

/// A ping of the protocol: an empty reply, or an empty push.
pub(super) fn ping_frame(transport: Transport) -> Vec<u8> {
    framed(transport, |writer| writer.ping())
}

/// What a client is told last that has no close frame to read. Empty where nobody is told.
pub(super) fn disconnect_push(transport: Transport, code: u16, reason: &str) -> Vec<u8> {
    if reason.is_empty() {
        return Vec::new();
    }
    let push = Push::Disconnect(EndReason {
        code: code.into(),
        text: reason,
    });
    framed(transport, |writer| writer.push("", &push))
}

pub(super) fn close_frame(reason: CloseReason) -> Vec<u8> {
    if reason != CloseReason::Drain {
        return websocket::close_frame(reason);
    }
    let mut frame = Vec::with_capacity(16);
    let code = CloseCode(SHUTDOWN.code());
    encode_close(&mut frame, code, SHUTDOWN.text(), None);
    frame
}

impl<R: Reactor> Shard<R> {
    fn handle_centrifuge_input(&mut self, key: Key, bytes: &mut [u8], now: Now) {
        self.handle_frames(key, bytes, Some(Self::centrifuge_message), now);
    }

    /// Text or binary, it does not matter: the format was agreed to.
    fn centrifuge_message(&mut self, key: Key, _kind: Kind, message: &[u8], now: Now) {
        self.handle_message_of(key, message, now);
    }

    /// A message of a client with a session, however it came: its connect request if it sends no commands, otherwise commands.
    pub(crate) fn handle_message_of(&mut self, key: Key, message: &[u8], now: Now) {
        if !self.traces.is_empty() {
            self.trace_said(key.index, message, now);
        }
        if self
            .hub
            .connection(key.index)
            .transport()
            .is_unidirectional()
        {
            self.handle_connect_request(key, message, now);
        } else {
            self.handle_commands(key, message, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Transport, ping_frame, transport_of};

    #[test]
    fn the_subprotocol_chooses_before_the_query() {
        let (json, protobuf) = (Transport::CentrifugeJson, Transport::CentrifugeProtobuf);
        for (protocols, query, expected) in [
            (&[][..], "", (json, None)),
            (&["chat"][..], "", (json, None)),
            (
                &["centrifuge-json"][..],
                "format=protobuf",
                (json, Some("centrifuge-json")),
            ),
            (
                &["chat", "centrifuge-protobuf"][..],
                "",
                (protobuf, Some("centrifuge-protobuf")),
            ),
            (&[][..], "a=1&format=protobuf", (protobuf, None)),
            (&[][..], "cf_protocol=protobuf", (protobuf, None)),
            (&[][..], "format=json", (json, None)),
        ] {
            assert_eq!(transport_of(protocols.iter().copied(), query), expected);
        }
    }

    #[test]
    fn a_ping_is_an_empty_reply() {
        assert_eq!(ping_frame(Transport::CentrifugeJson), [0x81, 2, b'{', b'}']);
        assert_eq!(ping_frame(Transport::CentrifugeProtobuf), [0x82, 1, 0]);
    }
}
