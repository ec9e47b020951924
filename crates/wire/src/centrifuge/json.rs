//! Reading JSON without copying, and what else the protocol needs to know of JSON texts.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::CommandError;
use super::message::{Message, Value};

/// How deep arrays and objects of a payload may be nested. Most parsers refuse more than some hundreds.
const DEPTH_MAX: usize = 128;

/// A value of a message's field, read where serde wants a seed.
pub(super) struct Seed<T>(PhantomData<T>);

impl<T> Seed<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'a, T: Value<'a>> DeserializeSeed<'a> for Seed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<T, D::Error> {
        T::from_json(deserializer)
    }
}

/// The value of the entry whose key was read. An error names the field.
pub(super) fn field<'a, T: Value<'a>, A: MapAccess<'a>>(
    map: &mut A,
    name: &str,
) -> Result<T, A::Error> {
    map.next_value_seed(Seed::new())
        .map_err(|error| A::Error::custom(format_args!("{name}: {error}")))
}

/// Skips the value of the entry whose key was read.
pub(super) fn skip<'a, A: MapAccess<'a>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// A string. It borrows unless it has escapes.
pub(super) struct Text;

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_string()))
    }
}

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

/// An object with the fields of a message.
pub(super) struct Object<T>(PhantomData<T>);

impl<T> Object<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'a, T: Message<'a>> Visitor<'a> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<T, A::Error> {
        let mut message = T::default();
        while let Some(key) = map.next_key_seed(Text)? {
            message.read_json(&key, &mut map)?;
        }
        Ok(message)
    }
}

/// A value for which null stands for its absence.
pub(super) struct OrNull<V>(pub(super) V);

impl<'a, V: NotNull<'a>> Visitor<'a> for OrNull<V> {
    type Value = Option<V::Output>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.read(deserializer).map(Some)
    }
}

/// How to read a value that is not null.
pub(super) trait NotNull<'a> {
    type Output;
    fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Output, D::Error>;
}

impl<'a> NotNull<'a> for Text {
    type Output = Cow<'a, str>;

    fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Output, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a, T: Message<'a>> NotNull<'a> for Object<T> {
    type Output = T;

    fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// An array, each of whose values is given to a closure.
pub(super) struct Array<T, F>(pub(super) F, pub(super) PhantomData<T>);

impl<'a, T, F> NotNull<'a> for Array<T, F>
where
    T: Value<'a>,
    F: FnMut(T) -> Result<(), CommandError>,
{
    type Output = ();

    fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a, T, F> Visitor<'a> for Array<T, F>
where
    T: Value<'a>,
    F: FnMut(T) -> Result<(), CommandError>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element_seed(Seed::new())? {
            self.0(item).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// An object whose keys are data. Of equal keys the last counts.
pub(super) struct Entries<T>(pub(super) PhantomData<T>);

impl<'a, T: Value<'a>> NotNull<'a> for Entries<T> {
    type Output = std::collections::BTreeMap<Cow<'a, str>, T>;

    fn read<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Output, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a, T: Value<'a>> Visitor<'a> for Entries<T> {
    type Value = std::collections::BTreeMap<Cow<'a, str>, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Self::Value::new();
        while let Some(key) = map.next_key_seed(Text)? {
            let value = map.next_value_seed(Seed::new())?;
            entries.insert(key, value);
        }
        Ok(entries)
    }
}

/// Whether these bytes are one JSON value (RFC 8259) that is nested no deeper than 128 arrays and objects.
#[must_use]
pub fn is_json(bytes: &[u8]) -> bool {
    let Ok(text) = simdutf8::basic::from_utf8(bytes) else {
        return false;
    };
    // serde_json skips a value without recursion, however deep it is.
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok() && !is_nested_too_deep(text)
}

/// Whether a valid JSON text is nested deeper than 128 arrays and objects, which [`is_json`] refuses: parsers that read with
/// recursion fail on it, or crash.
#[must_use]
pub fn is_nested_too_deep(json: &str) -> bool {
    // Most texts are too short, or have too few brackets: to find that takes 0.04 ns a byte, to follow them 0.5 ns.
    json.len() > 2 * DEPTH_MAX
        && opening_brackets(json.as_bytes()) > DEPTH_MAX
        && exceeds_depth(json.as_bytes())
}

/// Opening brackets of arrays and objects, those in strings too.
fn opening_brackets(json: &[u8]) -> usize {
    /// Sums of so many fit a byte, so that the compiler counts 16 or more at a time.
    const CHUNK_BYTES: usize = 255;
    // The two brackets differ in this bit only, and no other byte becomes one of them by it.
    let is_opening = |byte: &u8| u8::from(byte | 0x20 == b'{');
    let count = |chunk: &[u8]| usize::from(chunk.iter().map(is_opening).sum::<u8>());
    json.chunks(CHUNK_BYTES).map(count).sum()
}

/// Whether the arrays and objects of a valid JSON text are nested too deep.
fn exceeds_depth(json: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' if depth == DEPTH_MAX => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The rest of a string, with its closing quote.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// The same JSON value in one line, as a frame of several messages requires. Valid JSON has line breaks only between its
/// tokens, where they mean nothing.
#[must_use]
pub fn json_without_line_breaks(json: &str) -> Cow<'_, str> {
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        return Cow::Borrowed(json);
    }
    Cow::Owned(json.replace(['\n', '\r'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised() {
        for json in [
            "1",
            "\"\"",
            " {\"a\":[1,2,{}]} ",
            "null",
            "-0.5e7",
            "\"\\\"[\"",
        ] {
            assert!(is_json(json.as_bytes()), "{json}");
        }
        for json in ["", "{", "01", "1 2", "{\"a\"}", "'a'", "nul", "\"\n\""] {
            assert!(!is_json(json.as_bytes()), "{json}");
        }
        assert!(!is_json(b"\"\xff\""));
    }

    #[test]
    fn json_may_be_nested_to_a_depth() {
        let nested = |count| "[".repeat(count) + &"]".repeat(count);
        assert!(is_json(nested(128).as_bytes()));
        assert!(!is_json(nested(129).as_bytes()));
        assert!(!is_json(nested(1_000_000).as_bytes()));
        let in_a_string = format!("\"{}\\\"[\"", "[".repeat(300));
        assert!(is_json(in_a_string.as_bytes()));
        let objects = |count| "{\"a\":".repeat(count) + "1" + &"}".repeat(count);
        assert!(!is_nested_too_deep(&objects(128)));
        assert!(is_nested_too_deep(&objects(129)));
        let side_by_side = format!("[{}[]]", "[[]],".repeat(1_000));
        assert!(!is_nested_too_deep(&side_by_side));
    }

    #[test]
    fn line_breaks_are_removed() {
        assert!(matches!(
            json_without_line_breaks("{\"a\": 1}"),
            Cow::Borrowed(_)
        ));
        assert_eq!(
            json_without_line_breaks("{\r\n\"a\": \"\\n\"\n}"),
            "{\"a\": \"\\n\"}"
        );
    }
}
