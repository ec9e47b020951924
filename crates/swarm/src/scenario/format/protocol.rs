//! What clients speak, by the name in the list of protocols.

use crate::protocol::Protocol;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use std::borrow::Cow;

/// What clients speak.
#[derive(Clone, Copy, Debug)]
pub(in crate::scenario) struct Spoken(pub Protocol);

impl<'de> Deserialize<'de> for Spoken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let unknown = || D::Error::unknown_variant(&name, &Protocol::NAMES);
        Protocol::named(&name).map(Self).ok_or_else(unknown)
    }
}

impl JsonSchema for Spoken {
    fn schema_name() -> Cow<'static, str> {
        "Protocol".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let named = Protocol::ALL.into_iter().flat_map(|protocol| {
            let names = [protocol.name()]
                .into_iter()
                .chain(protocol.other_names().iter().copied());
            names.map(move |name| {
                json_schema!({ "description": protocol.summary(), "type": "string", "const": name })
            })
        });
        let named: Vec<Schema> = named.collect();
        json_schema!({ "description": "What clients speak.", "oneOf": named })
    }
}
