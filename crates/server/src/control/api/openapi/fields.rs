//! Compares the fields of requests with what the readers of requests know, both ways.
//!
//! A reader is asked for its fields by a deserializer that has all of them: it notes each name that serde asks for, and of what
//! kind its value must be.

use super::super::batch::{self, Batch};
use super::super::method::{Command, Method};
use super::super::reading::Shape;
use super::super::{broadcast, connections, orders, publication, trace};
use super::DOCUMENT;
use serde::Deserialize;
use serde::de::value::{BorrowedStrDeserializer, Error, MapDeserializer, StrDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Fields by their paths: `.since.offset`, `.commands[]`, `.tags{}`.
type Fields = BTreeMap<String, Kind>;

/// What a field's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    Integer,
    List,
    /// Names of the client's choice.
    Map,
    /// Names that we know.
    Object,
    Any,
}

/// Stands for a value that is all right whatever it must be.
#[derive(Clone)]
struct Probe<'p> {
    found: &'p RefCell<Fields>,
    path: String,
}

impl Probe<'_> {
    fn note(&self, kind: Kind) {
        let other = self.found.borrow_mut().insert(self.path.clone(), kind);
        assert_eq!(other, None, "{} is read twice", self.path);
    }

    fn below(&self, name: &str) -> Self {
        let path = format!("{}{name}", self.path);
        Self {
            path,
            ..self.clone()
        }
    }
}

macro_rules! integers {
    ($($name:ident)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.note(Kind::Integer);
            visitor.visit_u64(1)
        }
    )*};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Kind::Any);
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Kind::Flag);
        visitor.visit_bool(false)
    }

    integers!(deserialize_u32 deserialize_u64 deserialize_i64);

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Kind::Text);
        visitor.visit_borrowed_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Kind::List);
        visitor.visit_seq(Values::of(&self, &["[]"]))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.note(Kind::Map);
        visitor.visit_map(Values::of(&self, &["{}"]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.note(Kind::Object);
        visitor.visit_map(Values::of(&self.below("."), fields))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        assert!(
            name.ends_with("::RawValue"),
            "{name} is no field of a request"
        );
        self.note(Kind::Any);
        // So the library marks JSON that it leaves as it is.
        let entry = (
            BorrowedStrDeserializer::new(name),
            BorrowedStrDeserializer::new("null"),
        );
        visitor.visit_map(MapDeserializer::new(std::iter::once(entry)))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.note(Kind::Object);
        for name in variants {
            self.below(".").below(name).note(Kind::Object);
        }
        // What is inside is asked for method by method.
        let elsewhere = RefCell::default();
        let inside = Probe {
            found: &elsewhere,
            path: String::new(),
        };
        visitor.visit_enum(Variant {
            name: variants[0],
            inside,
        })
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// Values below a probe, one of each name.
struct Values<'p> {
    above: Probe<'p>,
    names: &'static [&'static str],
}

impl<'p> Values<'p> {
    fn of(above: &Probe<'p>, names: &'static [&'static str]) -> Self {
        Self {
            above: above.clone(),
            names,
        }
    }

    fn next(&mut self) -> Option<Probe<'p>> {
        let (name, rest) = self.names.split_first()?;
        self.names = rest;
        Some(self.above.below(name))
    }
}

impl<'de> SeqAccess<'de> for Values<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        self.next().map(|value| seed.deserialize(value)).transpose()
    }
}

impl<'de> MapAccess<'de> for Values<'_> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let name = self.names.first();
        name.map(|name| seed.deserialize(BorrowedStrDeserializer::new(name)))
            .transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.next().expect("a key was asked for"))
    }
}

struct Variant<'p> {
    name: &'static str,
    inside: Probe<'p>,
}

impl<'de, 'p> EnumAccess<'de> for Variant<'p> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        panic!("{} has no request", self.name)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self.inside)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        panic!("{} has no request", self.name)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        panic!("{} has no request", self.name)
    }
}

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("JSON")
}

/// A schema, or the one that it names.
fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        None => schema,
        Some(path) => {
            let pointer = path.strip_prefix('#').expect("a place in the document");
            document
                .pointer(pointer)
                .unwrap_or_else(|| panic!("no {path}"))
        }
    }
}

/// The schema of what a path takes.
fn request<'d>(document: &'d Value, path: &str) -> &'d Value {
    let body = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
    resolved(document, &body["schema"])
}

/// Fields of a schema, up to those of commands.
fn fields(document: &Value, schema: &Value, path: &str, into: &mut Fields) {
    let schema = resolved(document, schema);
    let kind = match schema["type"].as_str() {
        None => Kind::Any,
        Some("string") => Kind::Text,
        Some("boolean") => Kind::Flag,
        Some("integer") => Kind::Integer,
        Some("array") => Kind::List,
        Some("object") if schema["properties"].is_object() => Kind::Object,
        Some("object") => Kind::Map,
        Some(other) => panic!("{path} has the type {other}"),
    };
    into.insert(path.to_owned(), kind);
    match kind {
        Kind::List => fields(document, &schema["items"], &format!("{path}[]"), into),
        Kind::Map => fields(
            document,
            &schema["additionalProperties"],
            &format!("{path}{{}}"),
            into,
        ),
        Kind::Object => {
            let others = &schema["additionalProperties"];
            assert_eq!(*others, Value::Null, "{path} ignores others");
            for (name, schema) in schema["properties"].as_object().expect("properties") {
                let path = format!("{path}.{name}");
                if path.starts_with(".commands[].") {
                    into.insert(path, Kind::Object);
                } else {
                    fields(document, schema, &path, into);
                }
            }
        }
        Kind::Text | Kind::Flag | Kind::Integer | Kind::Any => {}
    }
}

/// What the readers know.
fn known(read: impl FnOnce(Probe<'_>)) -> Fields {
    let found = RefCell::default();
    read(Probe {
        found: &found,
        path: String::new(),
    });
    found.into_inner()
}

#[test]
fn every_field_is_described_and_every_described_field_is_known() {
    let document = document();
    let described = |path: &str| {
        let mut found = Fields::new();
        fields(&document, request(&document, path), "", &mut found);
        found
    };
    for method in Method::ALL {
        let known = known(|probe| {
            method.read(probe).expect("all fields");
        });
        assert_eq!(described(method.path()), known, "{}", method.name());
    }
    let mut batch = known(|probe| {
        Batch::deserialize(probe).expect("all fields");
    });
    // Each command is read by itself, so that one that is none does not spoil the others.
    assert_eq!(batch.remove(".commands[]"), Some(Kind::Any));
    batch.extend(known(|probe| {
        Command::deserialize(probe.below(".commands[]")).expect("all fields");
    }));
    assert_eq!(described(super::super::BATCH), batch);
}

/// A value as the schema has it, with every field.
fn sample(document: &Value, schema: &Value) -> Value {
    let schema = resolved(document, schema);
    match schema["type"].as_str() {
        None => json!([1]),
        Some("string") => json!("x"),
        Some("boolean") => json!(true),
        Some("integer") => json!(1),
        Some("array") => json!([sample(document, &schema["items"])]),
        _ => {
            let none = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&none);
            let properties = properties.iter();
            properties
                .map(|(name, schema)| (name.clone(), sample(document, schema)))
                .collect()
        }
    }
}

/// Pointers to all fields of objects, and whether they are required.
fn pointers(document: &Value, schema: &Value, above: &str, into: &mut Vec<(String, bool)>) {
    let schema = resolved(document, schema);
    let none = Map::new();
    for (name, below) in schema["properties"].as_object().unwrap_or(&none) {
        let required = schema["required"].as_array();
        let pointer = format!("{above}/{name}");
        into.push((
            pointer.clone(),
            required.is_some_and(|names| names.contains(&json!(name))),
        ));
        pointers(document, below, &pointer, into);
    }
}

#[test]
fn fields_are_required_as_described_and_others_may_be_null() {
    let document = document();
    for method in Method::ALL {
        let schema = request(&document, method.path());
        let whole = sample(&document, schema);
        let is_read = |value: &Value| {
            let text = value.to_string();
            let mut json = serde_json::Deserializer::from_str(&text);
            method.read(&mut json).is_ok()
        };
        assert!(is_read(&whole), "{whole}");
        let mut all = Vec::new();
        pointers(&document, schema, "", &mut all);
        for (pointer, is_required) in all {
            let mut with_null = whole.clone();
            *with_null.pointer_mut(&pointer).expect("a field") = Value::Null;
            assert_eq!(is_read(&with_null), !is_required, "{with_null}");
            let mut without = whole.clone();
            let (above, name) = pointer.rsplit_once('/').expect("a pointer");
            let above = without.pointer_mut(above).and_then(Value::as_object_mut);
            above.expect("an object").remove(name);
            assert_eq!(is_read(&without), !is_required, "{without}");
        }
    }
}

#[test]
fn bounds_are_described() {
    let document = document();
    for (place, bound) in [
        (
            "BroadcastRequest/properties/channels/maxItems",
            broadcast::CHANNELS_MAX,
        ),
        (
            "BatchRequest/properties/commands/maxItems",
            batch::COMMANDS_MAX,
        ),
        ("Tags/maxProperties", publication::TAGS_MAX),
        ("IdempotencyKey/maxLength", publication::KEY_BYTES_MAX),
        ("Channel/maxLength", myriad_shard::Mesh::CHANNEL_BYTES_MAX),
        ("WhoseUser/maxLength", orders::USER_BYTES_MAX),
        (
            "DisconnectRequest/properties/whitelist/maxItems",
            orders::KEPT_MAX,
        ),
        (
            "ConnectionsRequest/properties/meta/maxProperties",
            connections::META_ENTRIES_MAX,
        ),
        (
            "Connection/properties/state/properties/channels/maxProperties",
            connections::CHANNELS_MAX,
        ),
        (
            "TraceRequest/properties/seconds/maximum",
            trace::SECONDS.0.try_into().expect("a count"),
        ),
        (
            "TraceRequest/properties/bytes/maximum",
            trace::BYTES.0.try_into().expect("a count"),
        ),
    ] {
        let found = document.pointer(&format!("/components/schemas/{place}"));
        assert_eq!(found, Some(&json!(bound)), "{place}");
    }
}

#[test]
fn the_page_for_people_has_every_field_and_the_same_errors() {
    const PAGE: &str = include_str!("../../../../../../docs/api.md");
    let document = document();
    for method in Method::ALL {
        let mut found = Fields::new();
        fields(&document, request(&document, method.path()), "", &mut found);
        let names = found.keys().filter_map(|path| path.rsplit_once('.'));
        for (_, name) in names.filter(|(_, name)| !name.ends_with(['}', ']'])) {
            let is_there = [format!("`{name}`"), format!("\"{name}\"")]
                .iter()
                .any(|word| PAGE.contains(word));
            assert!(is_there, "{} {name}", method.name());
        }
        let row = PAGE
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| `{}` |", method.name())));
        let errors = row
            .unwrap_or_else(|| panic!("no row of {}", method.name()))
            .rsplit('|')
            .nth(1)
            .expect("a cell");
        let of_method = errors.split(';').next().unwrap_or_default();
        let listed: Vec<u32> = of_method
            .split(',')
            .filter_map(|code| code.trim().parse().ok())
            .collect();
        let described = &document["paths"][method.path()]["post"]["x-errors"];
        let described = described
            .as_array()
            .expect("codes")
            .iter()
            .filter_map(Value::as_u64);
        let described: Vec<_> = described
            .filter(|code| ![100, 111].contains(code))
            .collect();
        assert_eq!(json!(listed), json!(described), "{}", method.name());
    }
}

#[test]
fn codes_are_described() {
    use super::super::fault::Code;
    let document = document();
    let schemas = &document["components"]["schemas"];
    let error = &schemas["Error"]["properties"];
    assert_eq!(error["code"]["enum"], json!(Code::ALL.map(Code::number)));
    assert_eq!(error["message"]["enum"], json!(Code::ALL.map(Code::text)));
    let refusals = crate::control::error::api_codes();
    let described = &schemas["Refusal"]["properties"]["error"]["properties"]["code"]["enum"];
    assert_eq!(*described, json!(refusals));
}
