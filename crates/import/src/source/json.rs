//! JSON, with the line of every value.
//!
//! serde_json does not say where a value stands. So each table and list is read as raw texts, which are parts of the whole text,
//! and each raw text is read again: as often as it is deep, which [`super::DEPTH_MAX`] bounds.

use super::{Budget, Language, Lines, Node, SourceError, Value, table};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Reads a whole text.
pub(super) fn read(text: &str) -> Result<Node, SourceError> {
    let mut reader = Reader {
        text,
        lines: Lines::of(text),
        budget: Budget::new(),
    };
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| syntax(&error, 1))?;
    let mut node = reader.value(raw.get(), 0)?;
    node.name_all(String::new());
    Ok(node)
}

/// `first_line` is where the text begins that was read.
fn syntax(error: &serde_json::Error, first_line: usize) -> SourceError {
    let words = error.to_string();
    // It says the line and the column of the part that was read.
    let cause = words.split(" at line ").next().unwrap_or(&words).to_owned();
    SourceError::Syntax {
        line: first_line - 1 + error.line().max(1),
        language: Language::Json.name(),
        cause,
    }
}

struct Reader<'t> {
    text: &'t str,
    lines: Lines,
    budget: Budget,
}

impl<'t> Reader<'t> {
    /// The line of a part of the text.
    fn line(&self, part: &str) -> usize {
        let offset = part.as_ptr() as usize - self.text.as_ptr() as usize;
        self.lines.at(offset)
    }

    fn value(&mut self, raw: &'t str, depth: usize) -> Result<Node, SourceError> {
        let line = self.line(raw);
        self.budget.take(0, depth, line)?;
        let value = match raw.as_bytes().first() {
            Some(b'{') => {
                self.budget.take(0, depth + 1, line)?;
                self.table(raw, line, depth)?
            }
            Some(b'[') => {
                self.budget.take(0, depth + 1, line)?;
                let items: Items<'t> = self.parse(raw, line)?;
                let items = items.0.into_iter();
                let items = items.map(|item| self.value(item.get(), depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => {
                self.budget.take_many(0, raw.len(), line)?;
                Value::Text(self.parse(raw, line)?)
            }
            Some(b't') => Value::Flag(true),
            Some(b'f') => Value::Flag(false),
            Some(b'n') => Value::Null,
            _ => match raw.parse() {
                Ok(whole) => Value::Integer(whole),
                Err(_) => Value::Float(self.parse(raw, line)?),
            },
        };
        Ok(Node::at(line, value))
    }

    fn table(&mut self, raw: &'t str, line: usize, depth: usize) -> Result<Value, SourceError> {
        let entries: Entries<'t> = self.parse(raw, line)?;
        let mut read = Vec::with_capacity(entries.0.len());
        for (name, raw) in entries.0 {
            self.budget.take_many(0, name.len(), line)?;
            read.push((name, self.value(raw.get(), depth + 1)?));
        }
        table(read)
    }

    fn parse<T: Deserialize<'t>>(&self, raw: &'t str, line: usize) -> Result<T, SourceError> {
        serde_json::from_str(raw).map_err(|error| syntax(&error, line))
    }
}

/// The entries of a table, those with one name too.
struct Entries<'t>(Vec<(String, &'t RawValue)>);

impl<'t> Deserialize<'t> for Entries<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;
        impl<'t> Visitor<'t> for Table {
            type Value = Entries<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Entries<'t>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                    // Each entry takes memory before its value is counted.
                    if entries.len() > super::VALUES_MAX {
                        break;
                    }
                }
                while map.next_entry::<String, &RawValue>()?.is_some() {}
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Table)
    }
}

/// The items of a list.
struct Items<'t>(Vec<&'t RawValue>);

impl<'t> Deserialize<'t> for Items<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'t> Visitor<'t> for List {
            type Value = Items<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<Items<'t>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() <= super::VALUES_MAX {
                        items.push(item);
                    }
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(List)
    }
}
