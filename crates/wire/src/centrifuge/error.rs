//! What can be wrong with a frame of the protocol.

use std::fmt;

/// Why a frame cannot be read. The peer made the mistake, and the connection ends with
/// [`DisconnectCode::BadRequest`](super::DisconnectCode::BadRequest).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The frame has no command at all.
    EmptyFrame,
    /// There is nothing between two line feeds.
    BlankLine,
    /// The JSON text is malformed, or a value has the wrong type or is out of range.
    Json {
        /// The field's path, and what is wrong there.
        sentence: String,
    },
    /// The frame, or a string in it, is not UTF-8.
    NotUtf8 {
        /// The field with the string.
        field: &'static str,
    },
    /// A protobuf message ends inside a field.
    Truncated {
        /// The field, or the message whose next field is unknown.
        field: &'static str,
    },
    /// A varint has more than 64 bits.
    Varint {
        /// The field with the varint.
        field: &'static str,
    },
    /// A protobuf field has a wire type that does not fit its type, or one that is not supported (groups).
    WireType {
        /// The field.
        field: &'static str,
    },
    /// A protobuf field has the number 0, or one above 536,870,911.
    FieldNumber,
    /// Messages are nested too deep, or a tags filter has too many nodes.
    TooDeep {
        /// The field that holds the message.
        field: &'static str,
    },
    /// A command asks for something unknown, or for nothing.
    NoRequest {
        /// The command's id.
        id: u32,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyFrame => f.write_str("the frame is empty"),
            Self::BlankLine => f.write_str("the frame has a blank line"),
            Self::Json { sentence } => write!(f, "the JSON is wrong: {sentence}"),
            Self::NotUtf8 { field } => write!(f, "{field} is not UTF-8"),
            Self::Truncated { field } => write!(f, "the message ends within {field}"),
            Self::Varint { field } => write!(f, "the number in {field} has more than 64 bits"),
            Self::WireType { field } => write!(f, "{field} has a wrong wire type"),
            Self::FieldNumber => f.write_str("a field has a number that protobuf does not allow"),
            Self::TooDeep { field } => write!(f, "{field} has too many parts, or too deep ones"),
            Self::NoRequest { id } => write!(f, "command {id} asks for nothing known"),
        }
    }
}

impl std::error::Error for CommandError {}
