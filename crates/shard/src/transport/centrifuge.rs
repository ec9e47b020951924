//! `/connection/websocket`: the Centrifuge client protocol, as JSON or as protobuf. Each WebSocket message is a list of commands.
//! Changes what `frames` and `session` change.

use super::{Methods, websocket};
use crate::shard::Shard;
use myriad_hub::{CloseReason, Now, Transport};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::{DisconnectCode, Encoding as Format, FrameWriter};
use myriad_wire::ws::{CloseCode, Kind, encode_close, encode_frame};

/// The code and the reason of Centrifuge for a server that goes away: clients reconnect at once, to another one.
pub(super) const SHUTDOWN: DisconnectCode = DisconnectCode::Shutdown;

impl<R: Reactor> Methods<R> {
    pub(super) const CENTRIFUGE_JSON: Self = Self {
        handle_input: Shard::handle_centrifuge_input,
        ping: || ping_frame(Format::Json),
        close: close_frame,
        application_close: websocket::application_close_frame,
    };
    pub(super) const CENTRIFUGE_PROTOBUF: Self = Self {
        handle_input: Shard::handle_centrifuge_input,
        ping: || ping_frame(Format::Protobuf),
        close: close_frame,
        application_close: websocket::application_close_frame,
    };
}

/// The format of a transport that speaks Centrifuge.
pub(crate) fn format_of(transport: Transport) -> Format {
    match transport {
        Transport::CentrifugeJson => Format::Json,
        Transport::CentrifugeProtobuf => Format::Protobuf,
        Transport::Http | Transport::Raw | Transport::Echo => {
            unreachable!("no transport with sessions")
        }
    }
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

/// The frame of a message that a server sends.
pub(crate) fn message_frame(format: Format, message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(message.len() + 10);
    let kind = myriad_hub::kind_of(format);
    encode_frame(&mut frame, kind.into(), true, None, message);
    frame
}

fn ping_frame(format: Format) -> Vec<u8> {
    let mut message = Vec::with_capacity(2);
    FrameWriter::new(format, &mut message).ping();
    message_frame(format, &message)
}

fn close_frame(reason: CloseReason) -> Vec<u8> {
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
        if !self.traces.is_empty() {
            self.trace_said(key.index, message, now);
        }
        self.handle_commands(key, message, now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Transport, ping_frame, transport_of};
    use myriad_wire::centrifuge::Encoding as Format;

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
        assert_eq!(ping_frame(Format::Json), [0x81, 2, b'{', b'}']);
        assert_eq!(ping_frame(Format::Protobuf), [0x82, 1, 0]);
    }
}
