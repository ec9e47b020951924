//! The data of a publication, and how each kind of client reads it.

use myriad_wire::centrifuge::{
    Encoding as Format, is_json, json_without_line_breaks, make_delta, make_text_delta,
};
use std::borrow::Cow;
use std::fmt::Write;

/// The data of a publication, as a publisher gave it.
///
/// | | `raw` | Centrifuge, JSON | Centrifuge, protobuf |
/// | --- | --- | --- | --- |
/// | `Text` | a text frame | a JSON string | the bytes of that JSON string |
/// | `Json` | a text frame: of a string its content, of anything else its text | as it is, without line breaks | its bytes |
/// | `JsonBytes` | a binary frame | as it is, without line breaks | its bytes |
/// | `Binary` | a binary frame | not possible: it is left out | as it is |
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Text that its publisher did not write as JSON.
    Text(Box<str>),
    /// Valid JSON, as its publisher wrote it.
    Json(Box<str>),
    /// Bytes that are valid JSON: [`Payload::of_bytes`].
    JsonBytes(Box<str>),
    /// Bytes that are no JSON.
    Binary(Box<[u8]>),
}

impl Payload {
    /// Data that its publisher gave as bytes. Clients that read only JSON get it where it is JSON.
    #[must_use]
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        if !is_json(&bytes) {
            return Self::Binary(bytes.into());
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::JsonBytes(text.into()),
            Err(error) => Self::Binary(error.into_bytes().into()),
        }
    }

    /// The data's bytes, as they are stored.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) | Self::Json(text) | Self::JsonBytes(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// The content of its `raw` frame.
    #[must_use]
    pub fn raw(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Json(json) => string_content(json),
            Self::Text(_) | Self::JsonBytes(_) | Self::Binary(_) => Cow::Borrowed(self.bytes()),
        }
    }

    /// Whether clients that read only JSON can read it.
    #[must_use]
    pub fn is_json(&self) -> bool {
        !matches!(self, Self::Binary(_))
    }

    /// The data as JSON without line breaks, which separate the messages of the Centrifuge protocol; none where it is bytes.
    #[must_use]
    pub fn json(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Json(json) | Self::JsonBytes(json) => Some(json_without_line_breaks(json)),
            Self::Text(text) => Some(Cow::Owned(quoted(text))),
            Self::Binary(_) => None,
        }
    }

    /// The data as a client of a format is told it; none where it is bytes and the format is JSON.
    #[must_use]
    pub fn told(&self, format: Format) -> Option<Cow<'_, [u8]>> {
        match format {
            Format::Json => self.json().map(|json| match json {
                Cow::Borrowed(json) => Cow::Borrowed(json.as_bytes()),
                Cow::Owned(json) => Cow::Owned(json.into_bytes()),
            }),
            Format::Protobuf => Some(self.binary()),
        }
    }

    /// The data as the bytes that a protobuf client gets.
    #[must_use]
    pub(crate) fn binary(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Text(text) => Cow::Owned(quoted(text).into_bytes()),
            Self::Json(_) | Self::JsonBytes(_) | Self::Binary(_) => Cow::Borrowed(self.bytes()),
        }
    }

    /// The Fossil delta from `base`'s data to this one's, as clients of a format read them; none if it would not be smaller, or
    /// could not be written in the format.
    pub(crate) fn delta_to(&self, base: &Self, format: Format) -> Option<Vec<u8>> {
        match format {
            Format::Protobuf => make_delta(&base.binary(), &self.binary()).map(|delta| delta.0),
            Format::Json => make_text_delta(&base.json()?, &self.json()?).map(String::into_bytes),
        }
    }
}

/// The content of a JSON string; any other JSON as it is. A string whose escapes are no Unicode stays as it is, too: half of a
/// surrogate pair is valid JSON (RFC 8259, section 8.2).
fn string_content(json: &str) -> Cow<'_, [u8]> {
    let Some(inner) = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return Cow::Borrowed(json.as_bytes());
    };
    if !inner.contains('\\') {
        return Cow::Borrowed(inner.as_bytes());
    }
    match serde_json::from_str::<String>(json) {
        Ok(content) => Cow::Owned(content.into_bytes()),
        Err(_) => Cow::Borrowed(json.as_bytes()),
    }
}

/// Text as a JSON string (RFC 8259, section 7).
fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            control if control < ' ' => {
                write!(json, "\\u{:04x}", u32::from(control)).expect("a String takes everything");
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::Payload;

    #[test]
    fn each_client_reads_the_data_in_its_own_form() {
        let payload = |json: &str| Payload::Json(json.into());
        for (payload, raw, json) in [
            (
                Payload::Text("a \"b\"\n".into()),
                "a \"b\"\n",
                r#""a \"b\"\n""#,
            ),
            (payload(r#"{"a":1}"#), r#"{"a":1}"#, r#"{"a":1}"#),
            (payload(r#""plain""#), "plain", r#""plain""#),
            (payload(r#""\u00e9\"""#), "é\"", r#""\u00e9\"""#),
            (payload(r#""\ud800""#), r#""\ud800""#, r#""\ud800""#),
            (payload(r#""""#), "", r#""""#),
            (
                payload("{\r\n\"a\": 1\n}"),
                "{\r\n\"a\": 1\n}",
                "{\"a\": 1}",
            ),
        ] {
            assert_eq!(payload.raw(), raw.as_bytes());
            assert_eq!(payload.json().as_deref(), Some(json));
        }
        let bytes = Payload::of_bytes(b"\"a\\n\"\n".to_vec());
        assert_eq!(
            (bytes.raw().as_ref(), bytes.json().as_deref()),
            (&b"\"a\\n\"\n"[..], Some("\"a\\n\""))
        );
        let binary = Payload::of_bytes(vec![0, 255]);
        assert_eq!(
            (binary.raw().as_ref(), binary.json()),
            (&[0, 255][..], None)
        );
    }

    #[test]
    fn quoted_text_is_read_back_as_it_was() {
        let text: String = (0..0x2100).filter_map(char::from_u32).collect();
        let payload = Payload::Text(text.as_str().into());
        let json = payload.json().expect("text");
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
        assert!(!json.contains('\n'));
    }
}
