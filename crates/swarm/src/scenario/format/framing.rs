//! The section about frames.

use crate::scenario::quantity::Size;
use schemars::JsonSchema;
use serde::Deserialize;

/// How messages are told apart where clients speak plain TCP. Without it, each line is a message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::scenario) struct Framing {
    /// What marks a message.
    pub by: FramedBy,
    /// Of `delimiter`: what follows each message; a line feed without it. `${hex:DIGITS}` stands for bytes.
    pub delimiter: Option<String>,
    /// Of `length`: its bytes, 1, 2, 4 or 8.
    pub length_bytes: Option<u32>,
    /// Of `length`: how it is written.
    pub length_form: Option<LengthFormName>,
    /// Of `length`: what it counts.
    pub length_counts: Option<LengthCountsName>,
    /// Of `length`: bytes of the message in front of it, where messages have a header.
    pub length_at: Option<u32>,
    /// Of `size`: bytes of each message.
    pub size: Option<Size>,
    /// The largest message. A larger one ends its connection.
    pub message_max: Option<Size>,
}

/// What marks a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::scenario) enum FramedBy {
    /// Bytes behind it.
    Delimiter,
    /// Its length in front of it, or in its header.
    Length,
    /// All have the same size. A shorter one that is sent is filled up with zeros.
    Size,
}

/// How a length is written.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::scenario) enum LengthFormName {
    /// The most significant byte first.
    Big,
    /// The least significant byte first.
    Little,
    /// As protobuf writes lengths: seven bits a byte.
    Varint,
}

/// What a length counts.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::scenario) enum LengthCountsName {
    /// What follows it.
    Rest,
    /// Itself and what follows it.
    Itself,
    /// The bytes in front of it too.
    All,
}
