//! What clients speak.

use crate::engine::plan::HttpKind;
use myriad_wire::centrifuge::Encoding;

/// What clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing of their own: they listen over a WebSocket, and their URL says to what.
    #[default]
    Raw,
    /// The Centrifuge client protocol in JSON, over a WebSocket.
    CentrifugeJson,
    /// The same in protobuf.
    CentrifugeProtobuf,
    /// HTTP requests that the server holds until there is something to say.
    LongPoll,
    /// Server-sent events.
    Sse,
    /// An HTTP answer without end, with a message on each line.
    HttpStream,
}

impl Protocol {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::CentrifugeJson => "centrifuge-json",
            Self::CentrifugeProtobuf => "centrifuge-protobuf",
            Self::LongPoll => "long-poll",
            Self::Sse => "sse",
            Self::HttpStream => "http-stream",
        }
    }

    /// How messages are written; none where clients have no commands.
    pub(crate) fn encoding(self) -> Option<Encoding> {
        match self {
            Self::CentrifugeJson => Some(Encoding::Json),
            Self::CentrifugeProtobuf => Some(Encoding::Protobuf),
            Self::Raw | Self::LongPoll | Self::Sse | Self::HttpStream => None,
        }
    }

    /// Whether clients begin a session with commands.
    pub(crate) fn has_session(self) -> bool {
        self.encoding().is_some()
    }

    /// How clients get their messages over HTTP; none where they speak WebSocket.
    pub(crate) fn http(self) -> Option<HttpKind> {
        match self {
            Self::LongPoll => Some(HttpKind::LongPoll),
            Self::Sse => Some(HttpKind::EventStream),
            Self::HttpStream => Some(HttpKind::Lines),
            Self::Raw | Self::CentrifugeJson | Self::CentrifugeProtobuf => None,
        }
    }
}
