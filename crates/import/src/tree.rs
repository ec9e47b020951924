//! Finding, taking and setting values by paths such as `channel.namespaces[0].presence`.

use crate::source::{Node, Place, Value};

/// A part of a path: a name, or an index in a list.
enum Part<'p> {
    Name(&'p str),
    Index(usize),
}

fn parts(path: &str) -> impl Iterator<Item = Part<'_>> {
    path.split('.').flat_map(|part| {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.strip_suffix(']')),
            None => (part, None),
        };
        let index = index.and_then(|index| index.parse().ok());
        [Some(Part::Name(name)), index.map(Part::Index)]
            .into_iter()
            .flatten()
    })
}

impl Node {
    /// The value of a path, whatever the case of its letters: Centrifugo's parser does not look at it.
    pub(crate) fn find(&self, path: &str) -> Option<&Self> {
        parts(path).try_fold(self, |node, part| node.inner(&part))
    }

    fn inner(&self, part: &Part<'_>) -> Option<&Self> {
        match (&self.value, part) {
            (Value::Table(entries), Part::Name(name)) => {
                let mut entries = entries.iter();
                let found = entries.find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, node)| node)
            }
            (Value::List(items), Part::Index(index)) => items.get(*index),
            _ => None,
        }
    }

    fn inner_mut(&mut self, part: &Part<'_>) -> Option<&mut Self> {
        match (&mut self.value, part) {
            (Value::Table(entries), Part::Name(name)) => {
                let mut entries = entries.iter_mut();
                let found = entries.find(|(known, _)| known.eq_ignore_ascii_case(name));
                found.map(|(_, node)| node)
            }
            (Value::List(items), Part::Index(index)) => items.get_mut(*index),
            _ => None,
        }
    }

    pub(crate) fn find_mut(&mut self, path: &str) -> Option<&mut Self> {
        parts(path).try_fold(self, |node, part| node.inner_mut(&part))
    }

    /// Takes a value out. What is not set counts as not there.
    pub(crate) fn take(&mut self, path: &str) -> Option<Self> {
        let (table, name) = match path.rsplit_once('.') {
            Some((table, name)) => (self.find_mut(table)?, name),
            None => (self, path),
        };
        let Value::Table(entries) = &mut table.value else {
            return None;
        };
        let at = entries
            .iter()
            .position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        let (_, node) = entries.remove(at);
        (node.value != Value::Null).then_some(node)
    }

    /// Sets a value, in tables that are made for it. A value that is no table gives way to one.
    pub(crate) fn set(&mut self, path: &str, node: Self) {
        let mut at = self;
        for part in parts(path) {
            at = match part {
                Part::Name(name) => at.entry(name),
                Part::Index(index) => match &mut at.value {
                    Value::List(items) if index < items.len() => &mut items[index],
                    _ => return,
                },
            };
        }
        *at = node;
    }

    fn entry(&mut self, name: &str) -> &mut Self {
        if !matches!(self.value, Value::Table(_)) {
            self.value = Value::Table(Vec::new());
        }
        let Value::Table(entries) = &mut self.value else {
            unreachable!("it was made a table");
        };
        let known = entries
            .iter()
            .position(|(known, _)| known.eq_ignore_ascii_case(name));
        let at = known.unwrap_or_else(|| {
            entries.push((name.to_owned(), Self::default()));
            entries.len() - 1
        });
        &mut entries[at].1
    }

    /// The items of a list at a path, if it is one.
    pub(crate) fn items(&self, path: &str) -> usize {
        match self.find(path).map(|node| &node.value) {
            Some(Value::List(items)) => items.len(),
            _ => 0,
        }
    }

    /// All values in it that are neither tables nor lists of tables, and not empty.
    pub(crate) fn leaves<'n>(&'n self, found: &mut Vec<&'n Self>) {
        match &self.value {
            Value::Null => {}
            Value::Table(entries) => {
                for (_, node) in entries {
                    node.leaves(found);
                }
            }
            Value::List(items)
                if items
                    .iter()
                    .all(|item| matches!(item.value, Value::Table(_))) =>
            {
                for item in items {
                    item.leaves(found);
                }
            }
            _ => found.push(self),
        }
    }
}

impl Place {
    /// A line or a variable in words, with a space in front; nothing if it follows from others.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Line(line) => format!(" (line {line})"),
            Self::Variable(_) | Self::Nowhere => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Language, read};

    fn tree(text: &str) -> Node {
        read(text, Language::Json).unwrap()
    }

    #[test]
    fn values_are_found_taken_and_set() {
        let mut tree = tree("{\"Client\": {\"A\": 1, \"b\": null}, \"list\": [{\"x\": 2}]}");
        assert_eq!(tree.find("client.a").unwrap().value, Value::Integer(1));
        assert_eq!(tree.find("list[0].x").unwrap().name, "list[0].x");
        assert!(tree.find("list[1].x").is_none());
        assert!(tree.find("client.a.b").is_none());
        assert!(tree.take("client.b").is_none());
        assert_eq!(tree.take("list[0].x").unwrap().value, Value::Integer(2));
        assert!(tree.take("list[0].x").is_none());
        tree.set("a.b.c", Node::made(Value::Flag(true)));
        tree.set("list[0].y", Node::made(Value::Flag(true)));
        tree.set("list[7].y", Node::made(Value::Flag(true)));
        let mut leaves = Vec::new();
        tree.leaves(&mut leaves);
        assert_eq!(leaves.len(), 3);
        assert_eq!(tree.items("list"), 1);
    }
}
