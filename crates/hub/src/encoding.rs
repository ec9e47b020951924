//! How a publication is encoded for a connection.

use crate::connection::Transport;
use crate::streams::Variant;
use myriad_wire::centrifuge::{Encoding as Format, FrameWriter};
use myriad_wire::deflate::Window;

/// What a client reads publications as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// `raw`: one publication is one message, text or binary.
    Raw,
    /// The Centrifuge client protocol: replies with pushes in them, as lines of JSON.
    CentrifugeJson,
    /// The same as protobuf, each reply after its length.
    CentrifugeProtobuf,
    /// The same for clients that send no commands: bare pushes, as lines of JSON. In WebSocket each has a frame of its own.
    CentrifugePush,
    /// A whole HTTP answer to a held request.
    Answer,
    /// Server-sent events.
    Events,
}

impl Protocol {
    /// In the order of their numbers.
    const ALL: [Self; 6] = [
        Self::Raw,
        Self::CentrifugeJson,
        Self::CentrifugeProtobuf,
        Self::CentrifugePush,
        Self::Answer,
        Self::Events,
    ];
    /// The first of them: their frames depend on the delivery alone, and all shards share them.
    pub(crate) const COUNT: usize = 4;

    /// Whether its clients read a stream. What they get depends on the time too, so each shard makes it for its own.
    #[must_use]
    pub const fn reads_streams(self) -> bool {
        matches!(self, Self::Answer | Self::Events)
    }

    /// The format of its messages; none of `raw`, and of those that read streams.
    #[must_use]
    pub const fn format(self) -> Option<Format> {
        match self {
            Self::Raw | Self::Answer | Self::Events => None,
            Self::CentrifugeJson | Self::CentrifugePush => Some(Format::Json),
            Self::CentrifugeProtobuf => Some(Format::Protobuf),
        }
    }

    /// Writes what its clients are told to the end of `message`. Clients of `raw`, and readers of streams, are told nothing but
    /// publications, and those are not written so: nobody asks for theirs.
    pub fn writer(self, message: &mut Vec<u8>) -> FrameWriter<'_> {
        match self {
            Self::CentrifugePush => FrameWriter::of_pushes(message),
            _ => {
                debug_assert!(self.format().is_some(), "{self:?} has no messages");
                FrameWriter::new(self.format().unwrap_or(Format::Json), message)
            }
        }
    }
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Framing {
    /// In frames (RFC 6455, section 5).
    WebSocket,
    /// As the body of an HTTP response: each message is a chunk (RFC 9112, section 7.1). Behind text stands a line feed.
    Chunk,
    /// As an event stream, in chunks: each line of a message is an event.
    Event,
}

impl Framing {
    /// In the order of their numbers.
    const ALL: [Self; 3] = [Self::WebSocket, Self::Chunk, Self::Event];
    /// All but WebSocket.
    pub(crate) const HTTP_COUNT: usize = Self::ALL.len() - 1;
}

/// How the data of a publication is told to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DataForm {
    /// As it is.
    Plain,
    /// Whole, in a subscription with deltas. JSON clients get it as a JSON string with the text of the data in it.
    Whole,
    /// As its difference to the publication before it, which the subscriber has. Whole where a difference is not smaller.
    Delta,
}

impl DataForm {
    /// In the order of their numbers.
    const ALL: [Self; 3] = [Self::Plain, Self::Whole, Self::Delta];
    pub(crate) const COUNT: usize = Self::ALL.len();
}

/// The one key of encoded publications: connections with equal encodings get the very same frame.
///
/// Targets of a batch are sorted by it, and a publication caches its frames by it. An integer, because the sort compares
/// it for each delivery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Encoding(
    /// The window's bits in the low four bits, or 0; of readers of streams their variant. The form of the data in the next two, the
    /// framing in the two after them; the protocol in the high eight.
    u16,
);

impl Encoding {
    const PROTOCOL_SHIFT: u32 = 8;
    const FORM_SHIFT: u32 = 4;
    const FORM_MASK: u16 = 0b11;
    const FRAMING_SHIFT: u32 = 6;
    const FRAMING_MASK: u16 = 0b11;
    const WINDOW_MASK: u16 = 0x0f;

    /// For bytes that are no publication, such as a ping. Nothing is encoded by it.
    pub const NO_PUBLICATION: Self = Self(0);

    /// WebSocket frames of `protocol`, compressed for peers with `window`.
    #[must_use]
    pub fn new(protocol: Protocol, window: Option<Window>) -> Self {
        let window = window.map_or(0, Window::bits);
        Self((protocol as u16) << Self::PROTOCOL_SHIFT | u16::from(window))
    }

    /// What readers of streams get whose answers differ in this way.
    pub(crate) fn of_reader(transport: Transport, variant: Variant) -> Self {
        let protocol = match transport {
            Transport::LongPoll => Protocol::Answer,
            _ => Protocol::Events,
        };
        Self((protocol as u16) << Self::PROTOCOL_SHIFT | u16::from(variant.bits()))
    }

    /// How the answers of a reader of a stream differ.
    pub(crate) fn variant(self) -> Variant {
        debug_assert!(self.protocol().reads_streams());
        Variant::from_bits((self.0 & Self::WINDOW_MASK) as u8)
    }

    /// The same with the data in this form.
    #[must_use]
    pub fn with_form(self, form: DataForm) -> Self {
        Self(self.0 & !(Self::FORM_MASK << Self::FORM_SHIFT) | (form as u16) << Self::FORM_SHIFT)
    }

    /// The same in this framing.
    #[must_use]
    pub fn with_framing(self, framing: Framing) -> Self {
        let others = self.0 & !(Self::FRAMING_MASK << Self::FRAMING_SHIFT);
        Self(others | (framing as u16) << Self::FRAMING_SHIFT)
    }

    /// How messages travel to the client.
    #[must_use]
    pub fn framing(self) -> Framing {
        Framing::ALL[usize::from(self.0 >> Self::FRAMING_SHIFT & Self::FRAMING_MASK)]
    }

    /// How data is told to the client.
    #[must_use]
    pub fn form(self) -> DataForm {
        DataForm::ALL[usize::from(self.0 >> Self::FORM_SHIFT & Self::FORM_MASK)]
    }

    /// What the client reads publications as.
    #[must_use]
    pub fn protocol(self) -> Protocol {
        Protocol::ALL[usize::from(self.0 >> Self::PROTOCOL_SHIFT)]
    }

    /// The window it takes compressed messages with (RFC 7692); none where it takes none.
    #[must_use]
    pub fn window(self) -> Option<Window> {
        if self.protocol().reads_streams() {
            return None;
        }
        Window::new((self.0 & Self::WINDOW_MASK) as u8)
    }
}

impl std::fmt::Debug for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoding")
            .field("protocol", &self.protocol())
            .field("framing", &self.framing())
            .field("form", &self.form())
            .field("window", &self.window())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{DataForm, Encoding, Framing, Protocol};
    use myriad_wire::deflate::Window;

    #[test]
    fn an_encoding_keeps_its_parts_and_differs_by_each() {
        let windows = || (9..=15).map(Window::new).chain([None]);
        let mut encodings = std::collections::HashSet::new();
        for (protocol, window) in Protocol::ALL[..Protocol::COUNT]
            .iter()
            .copied()
            .flat_map(|protocol| windows().map(move |window| (protocol, window)))
        {
            let forms = DataForm::ALL.into_iter();
            for (form, framing) in
                forms.flat_map(|form| Framing::ALL.map(move |framing| (form, framing)))
            {
                let encoding = Encoding::new(protocol, window)
                    .with_form(form)
                    .with_framing(framing);
                let parts = (encoding.protocol(), encoding.window(), encoding.form());
                assert_eq!(parts, (protocol, window, form));
                assert_eq!(encoding.framing(), framing);
                assert_eq!(encoding.with_form(form).with_framing(framing), encoding);
                assert!(encodings.insert(encoding));
            }
        }
    }
}
