//! A threshold of a scenario: a condition, or a table as k6 has it.

use crate::measure::threshold::Threshold;
use crate::scenario::quantity::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// A threshold.
#[derive(Clone, Debug)]
pub(crate) struct Limit(pub(crate) Threshold);

/// A threshold that says what follows when it fails.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Table {
    /// The condition, such as `echo:p99<200ms`.
    threshold: Condition,
    /// It ends the run when it fails.
    #[serde(default, alias = "abort_on_fail", alias = "abortOnFail")]
    abort_on_fail: bool,
    /// Not before that time after the end of connecting. Without it, at once.
    #[serde(alias = "delay_abort_eval", alias = "delayAbortEval")]
    delay_abort_eval: Option<Time>,
}

/// Either form, for the schema alone.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what `Limit` reads")]
enum Form {
    /// A condition.
    Condition(Condition),
    /// The same with what follows when it fails.
    Table(Table),
}

impl TryFrom<Table> for Limit {
    type Error = &'static str;

    fn try_from(table: Table) -> Result<Self, Self::Error> {
        let Condition(threshold) = table.threshold;
        match (table.abort_on_fail, table.delay_abort_eval) {
            (true, delay) => {
                let delay = delay.map_or(Duration::ZERO, |time| time.0);
                Ok(Self(threshold.aborting_after(delay)))
            }
            (false, None) => Ok(Self(threshold)),
            (false, Some(_)) => Err(
                "delay-abort-eval is for thresholds that end the run; write abort-on-fail = true too",
            ),
        }
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a condition such as reach>=100%, or a table with `threshold`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        let read = Threshold::parse(text).map_err(|error| E::custom(error.to_string()));
        read.map(Limit)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Limit, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        table.try_into().map_err(A::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

impl JsonSchema for Limit {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Form::json_schema(generator)
    }
}
