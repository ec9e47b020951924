//! TOML, with the line of every value.

use super::{Budget, Language, Lines, Node, SourceError, Value, table};
use ::toml::de::{DeTable, DeValue};

/// Reads a whole text.
pub(super) fn read(text: &str) -> Result<Node, SourceError> {
    let lines = Lines::of(text);
    // The parser makes a table of each part of a dotted key, one in the other, and dropping them would take as many calls.
    if let Some(line) = too_many_dots(text) {
        let limit = "32 tables and lists in each other";
        return Err(SourceError::TooMuch { line, limit });
    }
    if looks_too_long(text) {
        let (line, limit) = (1, "100,000 values");
        return Err(SourceError::TooMuch { line, limit });
    }
    let document = DeTable::parse(text).map_err(|error| SourceError::Syntax {
        line: error.span().map_or(1, |span| lines.at(span.start)),
        language: Language::Toml.name(),
        cause: error.message().trim_end().to_owned(),
    })?;
    let mut reader = Reader {
        lines,
        budget: Budget::new(),
    };
    let value = reader.table(document.get_ref(), 0, 1)?;
    let mut node = Node::at(1, value);
    node.name_all(String::new());
    Ok(node)
}

/// Whether there are more values than may be, by the signs between them. The parser makes all of them before one is counted, and
/// takes a hundred times the bytes of a short table.
fn looks_too_long(text: &str) -> bool {
    let signs = text.bytes().filter(|byte| b",=[".contains(byte));
    signs.count() > super::VALUES_MAX
}

/// The first line with more dots in its key than tables may be in each other.
fn too_many_dots(text: &str) -> Option<usize> {
    let mut lines = text.lines().zip(1..);
    let found = lines.find(|(line, _)| {
        let is_bare = |c: &char| c.is_ascii_alphanumeric() || " \t._-[\"'".contains(*c);
        let key = line.chars().take_while(is_bare);
        key.filter(|c| *c == '.').count() > 4 * super::DEPTH_MAX
    });
    found.map(|(_, line)| line)
}

struct Reader {
    lines: Lines,
    budget: Budget,
}

impl Reader {
    fn table(
        &mut self,
        written: &DeTable<'_>,
        depth: usize,
        line: usize,
    ) -> Result<Value, SourceError> {
        self.budget.take(0, depth, line)?;
        let mut entries = Vec::with_capacity(written.len());
        for (name, value) in written {
            let line = self.lines.at(name.span().start);
            let name = name.get_ref().to_string();
            self.budget.take_many(0, name.len(), line)?;
            entries.push((name, self.value(value.get_ref(), depth + 1, line)?));
        }
        // The parser sorts them; a person reads them in their order.
        entries.sort_by_key(|(_, node)| node.place.line());
        table(entries)
    }

    fn value(
        &mut self,
        written: &DeValue<'_>,
        depth: usize,
        line: usize,
    ) -> Result<Node, SourceError> {
        self.budget.take(0, depth, line)?;
        let value = match written {
            DeValue::Table(inner) => self.table(inner, depth, line)?,
            DeValue::Array(items) => {
                let items = items.iter().map(|item| {
                    let line = self.lines.at(item.span().start);
                    self.value(item.get_ref(), depth + 1, line)
                });
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::String(text) => {
                self.budget.take_many(0, text.len(), line)?;
                Value::Text(text.to_string())
            }
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Integer(number) => {
                let what = "a number is too large";
                let read = i64::from_str_radix(number.as_str(), number.radix());
                Value::Integer(read.map_err(|_| SourceError::Odd { line, what })?)
            }
            DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(_) => {
                let what = "a date stands where no option of Centrifugo has one";
                return Err(SourceError::Odd { line, what });
            }
        };
        Ok(Node::at(line, value))
    }
}
