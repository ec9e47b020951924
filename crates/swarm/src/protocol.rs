//! What clients speak over their WebSocket.

use myriad_wire::centrifuge::Encoding;

/// What clients speak over their WebSocket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Nothing of their own: they listen, and their URL says to what.
    #[default]
    Raw,
    /// The Centrifuge client protocol in JSON.
    CentrifugeJson,
    /// The same in protobuf.
    CentrifugeProtobuf,
}

impl Protocol {
    /// Its name, as on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::CentrifugeJson => "centrifuge-json",
            Self::CentrifugeProtobuf => "centrifuge-protobuf",
        }
    }

    /// How messages are written; none where clients have no commands.
    pub(crate) fn encoding(self) -> Option<Encoding> {
        match self {
            Self::Raw => None,
            Self::CentrifugeJson => Some(Encoding::Json),
            Self::CentrifugeProtobuf => Some(Encoding::Protobuf),
        }
    }
}
