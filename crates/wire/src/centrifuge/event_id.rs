//! Ids of events for clients without commands: where their channel stood. A browser's `EventSource` that comes back sends the last one
//! (HTML Standard, section 9.2.4), and the server goes on from there.

use crate::streams::StreamOffset;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// What a line of an event stream, or of a header, cannot have.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// A position in a channel, as the id of an event.
///
/// It is written as the position's token, `:` and the channel's name, with control characters percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// Where the client stands in it.
    pub position: StreamOffset,
}

impl fmt::Display for EventId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channel = utf8_percent_encode(&self.channel, ESCAPED);
        write!(f, "{}:{channel}", self.position)
    }
}

impl<'a> EventId<'a> {
    /// Reads an id; none if the text is not one that was made here.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (token, channel) = text.split_once(':')?;
        Some(Self {
            channel: percent_decode_str(channel).decode_utf8().ok()?,
            position: StreamOffset::parse(token)?,
        })
    }

    /// The same id, which borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> EventId<'static> {
        EventId {
            channel: self.channel.into_owned().into(),
            position: self.position,
        }
    }

    /// A connect request that recovers the channel from here. What the request itself says of the channel is older, because a
    /// browser comes back with the URL that it was made with. None if the request is no JSON object.
    #[must_use]
    pub fn resume(&self, request: &[u8]) -> Option<Vec<u8>> {
        type Object = BTreeMap<String, Box<RawValue>>;
        let mut object: Object = serde_json::from_slice(request).ok()?;
        let subs = object.get("subs").map(|subs| subs.get());
        let mut subs: Object = serde_json::from_str(subs.unwrap_or("{}")).ok()?;
        let epoch = str::from_utf8(&self.position.epoch).ok()?;
        let offset = self.position.offset;
        let position = serde_json::json!({ "recover": true, "epoch": epoch, "offset": offset });
        let position = RawValue::from_string(position.to_string()).ok()?;
        subs.insert(self.channel.clone().into_owned(), position);
        let subs = serde_json::to_string(&subs).ok()?;
        object.insert("subs".to_owned(), RawValue::from_string(subs).ok()?);
        serde_json::to_vec(&object).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(channel: &str, offset: u64) -> EventId<'_> {
        EventId {
            channel: channel.into(),
            position: StreamOffset {
                epoch: *b"ab234567",
                offset,
            },
        }
    }

    fn resumed(request: &str) -> Option<serde_json::Value> {
        let bytes = id("news", 5).resume(request.as_bytes())?;
        Some(serde_json::from_slice(&bytes).expect("JSON"))
    }

    #[test]
    fn an_id_is_a_token_and_a_channel() {
        let text = id("a:b\n%ü", 10).to_string();
        assert_eq!(text, "ab234567_000000000000000a:a:b%0A%25%C3%BC");
        assert_eq!(EventId::parse(&text), Some(id("a:b\n%ü", 10)));
        for other in ["", "7", "news", "ab234567_000000000000000a", "x:news", ":"] {
            assert_eq!(EventId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_request_goes_on_where_the_client_stood() {
        let position = serde_json::json!({ "recover": true, "epoch": "ab234567", "offset": 5 });
        let expected = serde_json::json!({ "token": "t", "subs": { "news": position } });
        for request in [
            r#"{"token":"t"}"#,
            r#"{"token":"t","subs":{}}"#,
            r#"{"subs":{"news":{"recover":true,"epoch":"ab234567","offset":1}},"token":"t"}"#,
        ] {
            assert_eq!(resumed(request).as_ref(), Some(&expected), "{request}");
        }
        let two = resumed(r#"{"subs":{"chat":{"offset":2}}}"#).expect("an object");
        assert_eq!(two["subs"]["chat"]["offset"], 2);
        assert_eq!(two["subs"]["news"], position);
        for other in ["", "[]", "{", r#"{"subs":[]}"#] {
            assert_eq!(resumed(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn ids_are_read_back_and_have_one_line(channel in ".{1,40}", offset in any::<u64>()) {
            let text = id(&channel, offset).to_string();
            prop_assert!(!text.contains(['\r', '\n', '\0']));
            prop_assert_eq!(EventId::parse(&text), Some(id(&channel, offset)));
        }
    }
}
