//! YAML, event by event: aliases repeat what they name only as far as the budget goes, and nothing is read past a limit.

use super::{Budget, Language, Node, SourceError, Value, table};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Reads the first document of a text; a second one is refused.
pub(super) fn read(text: &str) -> Result<Node, SourceError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        budget: Budget::new(),
        anchors: BTreeMap::new(),
        line: 1,
    };
    let mut document = None;
    loop {
        match reader.next()? {
            Event::StreamEnd => break,
            Event::DocumentStart(_) if document.is_some() => {
                let what = "there is a second document; a configuration is one";
                return Err(reader.odd(what));
            }
            Event::DocumentStart(_) => {
                let event = reader.next()?;
                document = Some(reader.value(event, 0)?);
            }
            _ => {}
        }
    }
    let mut node = document.unwrap_or_else(|| Node::at(1, Value::Null));
    node.name_all(String::new());
    Ok(node)
}

/// What an anchor names, and what it counts for.
struct Anchored {
    node: Node,
    values: usize,
    bytes: usize,
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    budget: Budget,
    anchors: BTreeMap<usize, Anchored>,
    line: usize,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Event<'t>, SourceError> {
        let (event, span) = match self.parser.next_event() {
            Some(Ok(event)) => event,
            Some(Err(error)) => return Err(syntax(&error)),
            None => return Ok(Event::StreamEnd),
        };
        self.line = span.start.line().max(1);
        Ok(event)
    }

    fn odd(&self, what: &'static str) -> SourceError {
        let line = self.line;
        SourceError::Odd { line, what }
    }

    fn value(&mut self, event: Event<'t>, depth: usize) -> Result<Node, SourceError> {
        let line = self.line;
        let before = (self.budget.values_left, self.budget.text_bytes_left);
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.take(text.len(), depth, line)?;
                (scalar(text, style, tag.as_deref()), anchor)
            }
            Event::SequenceStart(anchor, _) => {
                self.budget.take(0, depth + 1, line)?;
                (self.list(depth + 1)?, anchor)
            }
            Event::MappingStart(anchor, _) => {
                self.budget.take(0, depth + 1, line)?;
                (self.table(depth + 1)?, anchor)
            }
            Event::Alias(anchor) => return self.alias(anchor, depth),
            _ => return Err(self.odd("a value is missing")),
        };
        let node = Node::at(line, value);
        if anchor != 0 {
            let anchored = Anchored {
                node: node.clone(),
                values: before.0 - self.budget.values_left,
                bytes: before.1 - self.budget.text_bytes_left,
            };
            // The copy takes as much memory as an alias.
            self.budget
                .take_many(anchored.values, anchored.bytes, line)?;
            self.anchors.insert(anchor, anchored);
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, SourceError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Value::List(items)),
                event => items.push(self.value(event, depth)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Value, SourceError> {
        let mut entries = Vec::new();
        let mut merged = Vec::new();
        loop {
            let name = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(name, style, _, _) => (name.into_owned(), style),
                _ => return Err(self.odd("the name of an option is no text")),
            };
            let line = self.line;
            self.budget.take_many(0, name.0.len(), line)?;
            let event = self.next()?;
            let mut node = self.value(event, depth)?;
            if name.0 == "<<" && name.1 == ScalarStyle::Plain {
                merged.push(node);
            } else {
                node.place = super::Place::Line(line);
                entries.push((name.0, node));
            }
        }
        let Value::Table(mut entries) = table(entries)? else {
            unreachable!("a table is made of entries");
        };
        for node in merged {
            self.merge(&mut entries, node)?;
        }
        Ok(Value::Table(entries))
    }

    /// `<<`: what is written stands over what is merged, and the first table over those behind it.
    fn merge(&self, entries: &mut Vec<(String, Node)>, node: Node) -> Result<(), SourceError> {
        match node.value {
            Value::Table(inner) => {
                for (name, node) in inner {
                    if entries.iter().all(|(known, _)| *known != name) {
                        entries.push((name, node));
                    }
                }
                Ok(())
            }
            Value::List(items) => {
                let mut items = items.into_iter();
                items.try_for_each(|item| match item.value {
                    Value::Table(_) => self.merge(entries, item),
                    _ => Err(self.odd("<< needs a table")),
                })
            }
            _ => Err(self.odd("<< needs a table")),
        }
    }

    fn alias(&mut self, anchor: usize, depth: usize) -> Result<Node, SourceError> {
        let line = self.line;
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(self.odd("an alias stands in what it names"));
        };
        self.budget
            .take_many(anchored.values, anchored.bytes, line)?;
        // What an alias repeats is not deeper than a table may be; where it stands may be.
        if depth + height(&anchored.node) > super::DEPTH_MAX {
            let limit = "32 tables and lists in each other";
            return Err(SourceError::TooMuch { line, limit });
        }
        Ok(anchored.node.clone())
    }
}

/// Tables and lists in each other.
fn height(node: &Node) -> usize {
    match &node.value {
        Value::Table(entries) => {
            1 + entries
                .iter()
                .map(|(_, node)| height(node))
                .max()
                .unwrap_or(0)
        }
        Value::List(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

fn syntax(error: &ScanError) -> SourceError {
    SourceError::Syntax {
        line: error.marker().line().max(1),
        language: Language::Yaml.name(),
        cause: error.info().to_owned(),
    }
}

/// A text without quotes is what the core schema of YAML 1.2 makes of it, as Centrifugo reads it.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return Value::Text(text.into_owned());
    }
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Flag(true),
        "false" | "False" | "FALSE" => Value::Flag(false),
        _ => number(&text).unwrap_or_else(|| Value::Text(text.into_owned())),
    }
}

fn number(text: &str) -> Option<Value> {
    let begins_as_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
    if !text.starts_with(begins_as_number) {
        return None;
    }
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix)?;
        i64::from_str_radix(digits, radix).ok()
    };
    let whole = text.parse().ok();
    let whole = whole.or_else(|| radix("0x", 16)).or_else(|| radix("0o", 8));
    if let Some(whole) = whole {
        return Some(Value::Integer(whole));
    }
    let is_decimal = text.contains(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    is_decimal
        .then(|| text.parse().ok().map(Value::Float))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::{Language, Node, SourceError, Value, read};

    fn value(text: &str, path: &str) -> Value {
        let tree = read(text, Language::Yaml).unwrap();
        tree.find(path).map(|node| node.value.clone()).unwrap()
    }

    #[test]
    fn plain_scalars_have_types_and_quoted_ones_are_text() {
        let text = "a: 08\nb: \"7\"\nc: 0x10\nd: yes\ne: ~\nf: 1e3\ng: 1.2.3\nh: !!str 5\ni: -4\nj: |\n  x\n  y\n";
        for (path, expected) in [
            ("a", Value::Integer(8)),
            ("b", Value::Text("7".into())),
            ("c", Value::Integer(16)),
            ("d", Value::Text("yes".into())),
            ("e", Value::Null),
            ("f", Value::Float(1000.0)),
            ("g", Value::Text("1.2.3".into())),
            ("h", Value::Text("5".into())),
            ("i", Value::Integer(-4)),
            ("j", Value::Text("x\ny\n".into())),
        ] {
            assert_eq!(value(text, path), expected, "{path}");
        }
    }

    #[test]
    fn aliases_and_merges_repeat_what_they_name() {
        let text = "base: &b {size: 1, ttl: 2}\none: *b\ntwo:\n  <<: *b\n  ttl: 9\nthree:\n  <<: [{ttl: 5}, *b]\n";
        assert_eq!(value(text, "one.size"), Value::Integer(1));
        assert_eq!(value(text, "two.size"), Value::Integer(1));
        assert_eq!(value(text, "two.ttl"), Value::Integer(9));
        assert_eq!(value(text, "three.ttl"), Value::Integer(5));
    }

    #[test]
    fn a_bomb_of_aliases_is_refused_in_little_memory() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let before = level - 1;
            let many = format!("*a{before}, ").repeat(9);
            text += &format!("a{level}: &a{level} [{many}*a{before}]\n");
        }
        let error = read(&text, Language::Yaml).unwrap_err();
        assert!(matches!(error, SourceError::TooMuch { .. }), "{error}");
        let long = format!(
            "a: &a \"{}\"\nb: [{}*a]\n",
            "x".repeat(1 << 20),
            "*a, ".repeat(50)
        );
        let error = read(&long, Language::Yaml).unwrap_err();
        assert!(error.to_string().contains("16 MiB of text"), "{error}");
        // Each alias adds a level.
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..50 {
            text += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
        }
        let error = read(&text, Language::Yaml).unwrap_err();
        assert!(error.to_string().contains("32 tables"), "{error}");
    }

    #[test]
    fn what_no_configuration_has_is_refused() {
        for text in [
            "a: *unknown\n",
            "a: &a [*a]\n",
            "a: 1\n---\nb: 2\n",
            "? [a]\n: 1\n",
            "a:\n  <<: 5\n",
        ] {
            let read: Result<Node, _> = read(text, Language::Yaml);
            assert!(read.is_err(), "{text}: {read:?}");
        }
    }
}
