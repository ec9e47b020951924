//! A scenario's text with the place of each key and value.

use super::COUNT_KEY;
use super::fault::{Fault, Place, Problem, ScenarioError};
use super::format::Scenario;
use super::misread::{list_begun_as_table, problem_of};
use crate::nearest::nearest;
use serde::Deserialize as _;
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text of a scenario that is TOML, and what `--set` changes in it.
///
/// Tables of TOML borrow from their text, so they are read again when somebody asks for a place: only after a mistake.
#[derive(Clone, Debug)]
pub(super) struct Document {
    path: PathBuf,
    text: String,
    /// Keys and values. The places of these values are behind the text, in their order.
    sets: Vec<(String, String)>,
}

impl Document {
    /// Takes a text, if it is TOML and `sets` can be put into it.
    pub(super) fn parse(path: &Path, text: &str, sets: &[String]) -> Result<Self, ScenarioError> {
        let sets = sets.iter().map(|given| {
            let refused = || ScenarioError::Set(given.clone());
            let (key, value) = given.split_once('=').ok_or_else(refused)?;
            let (key, value) = (key.trim(), value.trim());
            if key.split('.').any(str::is_empty) {
                return Err(refused());
            }
            Ok((key.to_owned(), value.to_owned()))
        });
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            sets: sets.collect::<Result<_, _>>()?,
        })
    }

    /// The scenario in it.
    pub(super) fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let table = self.table()?;
        self.check_variables()?;
        let spanned = Spanned::new(0..self.text.len(), table.clone());
        let deserializer = toml::Deserializer::from(spanned);
        Scenario::deserialize(deserializer).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let key = path_at(&table, span.start).unwrap_or_default();
            let mut problem = problem_of(error.message(), &key);
            if let Problem::Value(said) = &problem
                && let Some(unknown) = unknown_variable(&table, said)
            {
                problem = unknown;
            }
            // The name of a variable is taken for a key of the scenario.
            if let Problem::UnknownKey { key, nearest, .. } = &mut problem
                && text_at(&table, &format!("variables.{key}")).is_some()
            {
                *nearest = Some(format!("variables.{key}"));
            }
            self.fault_at(span, key, problem)
        })
    }

    /// Refuses variables of `--set` that stand nowhere in the scenario: the run would be another than the one that was asked for.
    fn check_variables(&self) -> Result<(), ScenarioError> {
        let parsed = DeTable::parse(&self.text).map_err(|error| self.syntax(&error))?;
        let known: Vec<String> = match parsed.get_ref().get("variables").map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => {
                table.keys().map(|it| it.get_ref().to_string()).collect()
            }
            _ => Vec::new(),
        };
        for ((key, _), number) in self.sets.iter().zip(1..) {
            let Some(name) = key.strip_prefix("variables.") else {
                continue;
            };
            let written = format!("${{{name}}}");
            let mut values = self.sets.iter().map(|(_, value)| value);
            let is_used = self.text.contains(&written) || values.any(|it| it.contains(&written));
            if is_used || known.iter().any(|it| it == name) {
                continue;
            }
            let at = self.text.len() + number;
            let problem = Problem::UnknownVariable {
                name: name.to_owned(),
                nearest: nearest(name, &known),
                known,
            };
            return Err(self.fault_at(at..at, key.clone(), problem));
        }
        Ok(())
    }

    /// What is wrong at a key; its place is that of the nearest key above it that is there.
    pub(super) fn fault(&self, key: &str, problem: Problem) -> ScenarioError {
        let span = self.table().map_or(0..0, |table| span_of(&table, key));
        self.fault_at(span, key.to_owned(), problem)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// What `--set` changes, as it was given.
    pub(super) fn sets(&self) -> Vec<String> {
        let sets = self.sets.iter();
        sets.map(|(key, value)| format!("{key}={value}")).collect()
    }

    /// The text or number that the scenario has at a key, with variables in their places.
    pub(super) fn value_of(&self, key: &str) -> Option<String> {
        text_at(&self.table().ok()?, key)
    }

    /// The key to change for another number of clients: the variable that `terminals.count` is, where it is one, so that everything
    /// that depends on it follows.
    pub(super) fn count_key(&self) -> String {
        let name = self.variable_of(COUNT_KEY);
        name.map_or_else(|| COUNT_KEY.to_owned(), |name| format!("variables.{name}"))
    }

    /// The variable that a key is and nothing else, such as `rooms` of `groups.count = "${rooms}"`.
    pub(super) fn variable_of(&self, key: &str) -> Option<String> {
        let text = text_at(&self.written().ok()?, key)?;
        let name = text.strip_prefix("${")?.strip_suffix('}')?;
        (!name.contains(['$', '.'])).then(|| name.to_owned())
    }

    /// The key of a threshold of the file, as it is written after variables took their places.
    pub(super) fn threshold_key(&self, expression: &str) -> Option<String> {
        let table = self.table().ok()?;
        let DeValue::Array(items) = table.get("thresholds")?.get_ref() else {
            return None;
        };
        let index = items.iter().position(|item| match item.get_ref() {
            DeValue::String(text) => text == expression,
            DeValue::Table(inner) => text_at(inner, "threshold").as_deref() == Some(expression),
            _ => false,
        })?;
        Some(format!("thresholds[{index}]"))
    }

    fn table(&self) -> Result<DeTable<'_>, ScenarioError> {
        let mut table = self.written()?;
        put_variables(&mut table);
        Ok(table)
    }

    /// The table before variables take their places.
    fn written(&self) -> Result<DeTable<'_>, ScenarioError> {
        let parsed = DeTable::parse(&self.text).map_err(|error| self.syntax(&error))?;
        let mut table = parsed.into_inner();
        for ((key, value), number) in self.sets.iter().zip(1..) {
            let at = self.text.len() + number;
            let parsed = DeValue::parse(value).map(Spanned::into_inner);
            // Variables are texts, and so is a value that is no TOML.
            let parsed = parsed.ok().filter(|_| !key.starts_with("variables."));
            let parsed = parsed.unwrap_or(DeValue::String(Cow::Borrowed(value)));
            let unknown = unknown_name(&table, key);
            put(&mut table, key, placed(parsed, at), at).ok_or_else(|| {
                let given = format!("{key}={value}");
                match unknown {
                    Some((list, name, known)) => ScenarioError::SetName {
                        given,
                        list,
                        name,
                        known,
                    },
                    None => ScenarioError::Set(given),
                }
            })?;
        }
        Ok(table)
    }

    fn syntax(&self, error: &toml::de::Error) -> ScenarioError {
        let span = error.span().unwrap_or(0..0);
        let line = Place::of(&self.text, span.clone()).text;
        let problem = match list_begun_as_table(&line) {
            Some(list) => Problem::OneBracket(list.to_owned()),
            None => Problem::Syntax(error.message().to_owned()),
        };
        self.fault_at(span, String::new(), problem)
    }

    fn fault_at(&self, span: Range<usize>, key: String, problem: Problem) -> ScenarioError {
        let (place, key) = match span.start.checked_sub(self.text.len() + 1) {
            Some(number) if number < self.sets.len() => (None, self.sets[number].0.clone()),
            _ => (Some(Place::of(&self.text, span)), key),
        };
        ScenarioError::Fault(Box::new(Fault {
            path: self.path.clone(),
            place,
            key,
            problem,
        }))
    }
}

/// Replaces `${NAME}` in all texts but the variables themselves.
fn put_variables(table: &mut DeTable<'_>) {
    let variables: Vec<(String, String)> = match table.get("variables") {
        Some(value) => texts(value.get_ref()),
        None => return,
    };
    for (key, value) in table {
        if key.get_ref() != "variables" {
            replace(value.get_mut(), &variables);
        }
    }
}

/// A value of `--set`, with all its places behind the text.
fn placed(value: DeValue<'_>, at: usize) -> Spanned<DeValue<'_>> {
    let value = match value {
        DeValue::Array(items) => {
            let items = items.into_iter().map(|item| placed(item.into_inner(), at));
            DeValue::Array(items.collect())
        }
        DeValue::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| {
                let key = Spanned::new(at..at, key.into_inner());
                (key, placed(value.into_inner(), at))
            });
            DeValue::Table(entries.collect())
        }
        other => other,
    };
    Spanned::new(at..at, value)
}

fn put<'a>(
    table: &mut DeTable<'a>,
    key: &'a str,
    value: Spanned<DeValue<'a>>,
    at: usize,
) -> Option<()> {
    let spanned = |name: &'a str| Spanned::new(at..at, Cow::Borrowed(name));
    let Some((section, rest)) = key.split_once('.') else {
        table.remove(key);
        table.insert(spanned(key), value);
        return Some(());
    };
    if !table.contains_key(section) {
        let empty = Spanned::new(at..at, DeValue::Table(DeTable::new()));
        table.insert(spanned(section), empty);
    }
    match table.get_mut(section)?.get_mut() {
        DeValue::Table(inner) => put(inner, rest, value, at),
        DeValue::Array(items) => {
            let (name, rest) = rest.split_once('.')?;
            let item = items.iter_mut().find(|item| is_named(item, name))?;
            let DeValue::Table(inner) = item.get_mut() else {
                return None;
            };
            put(inner, rest, value, at)
        }
        _ => None,
    }
}

/// The list of tables that a key goes through, the name that is not in it, and those that are.
fn unknown_name(table: &DeTable<'_>, key: &str) -> Option<(String, String, Vec<String>)> {
    let (list, rest) = key.split_once('.')?;
    let (name, _) = rest.split_once('.')?;
    let DeValue::Array(items) = table.get(list)?.get_ref() else {
        return None;
    };
    let known = items.iter().filter_map(|item| {
        let DeValue::Table(table) = item.get_ref() else {
            return None;
        };
        Some(table.get("name")?.get_ref().as_str()?.to_owned())
    });
    let known: Vec<String> = known.collect();
    let is_unknown = !known.is_empty() && !known.iter().any(|it| it == name);
    is_unknown.then(|| (list.to_owned(), name.to_owned(), known))
}

/// The variable in a value that cannot be read, if the scenario does not have it. What was said quotes the value.
fn unknown_variable(table: &DeTable<'_>, said: &str) -> Option<Problem> {
    let (_, rest) = said.split_once("${")?;
    let (name, _) = rest.split_once('}')?;
    let variables = table.get("variables").map(Spanned::get_ref);
    let known: Vec<String> = match variables {
        Some(DeValue::Table(table)) => table.keys().map(|it| it.get_ref().to_string()).collect(),
        _ => Vec::new(),
    };
    let is_unknown = !known.iter().any(|it| it == name);
    is_unknown.then(|| Problem::NoVariable {
        name: name.to_owned(),
        nearest: nearest(name, &known),
        known,
    })
}

/// Whether one of several tables has that name, as flows have: `flows.chat.rate` is a key of the flow `chat`.
fn is_named(item: &Spanned<DeValue<'_>>, name: &str) -> bool {
    let DeValue::Table(table) = item.get_ref() else {
        return false;
    };
    let own = table.get("name").and_then(|it| it.get_ref().as_str());
    own == Some(name)
}

/// The text or number at a key.
fn text_at(table: &DeTable<'_>, key: &str) -> Option<String> {
    let (name, rest) = match key.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (key, None),
    };
    match (table.get(name)?.get_ref(), rest) {
        (DeValue::Table(inner), Some(rest)) => text_at(inner, rest),
        (DeValue::Array(items), Some(rest)) => {
            let (name, rest) = rest.split_once('.')?;
            let item = items.iter().find(|item| is_named(item, name))?;
            match item.get_ref() {
                DeValue::Table(inner) => text_at(inner, rest),
                _ => None,
            }
        }
        (DeValue::String(text), None) => Some(text.clone().into_owned()),
        (DeValue::Integer(number), None) => Some(number.as_str().to_owned()),
        (DeValue::Float(number), None) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

fn texts(variables: &DeValue<'_>) -> Vec<(String, String)> {
    let DeValue::Table(table) = variables else {
        return Vec::new();
    };
    let entries = table.iter().filter_map(|(name, value)| {
        let text = value.get_ref().as_str()?;
        Some((format!("${{{}}}", name.get_ref()), text.to_owned()))
    });
    entries.collect()
}

fn replace(value: &mut DeValue<'_>, variables: &[(String, String)]) {
    match value {
        DeValue::String(text) => {
            if let Some(replaced) = replaced(text, variables) {
                *text = Cow::Owned(replaced);
            }
        }
        DeValue::Array(items) => items
            .iter_mut()
            .for_each(|item| replace(item.get_mut(), variables)),
        DeValue::Table(table) => table
            .iter_mut()
            .for_each(|(_, value)| replace(value.get_mut(), variables)),
        _ => {}
    }
}

/// A text with the variables in it replaced; none if it has none. What was put in is not looked at again: a variable in a variable
/// could grow without end.
fn replaced(text: &str, variables: &[(String, String)]) -> Option<String> {
    let mut out = String::new();
    let (mut rest, mut has_any) = (text, false);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut known = variables.iter();
        rest = match known.find(|(name, _)| from.starts_with(name.as_str())) {
            Some((name, by)) => {
                has_any = true;
                out.push_str(by);
                &from[name.len()..]
            }
            None => {
                out.push_str("${");
                &from["${".len()..]
            }
        };
    }
    out.push_str(rest);
    has_any.then_some(out)
}

/// The key, with all above it, in or behind whose place a byte is.
fn path_at(table: &DeTable<'_>, at: usize) -> Option<String> {
    let has = |span: Range<usize>| span.contains(&at);
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        let inner = match value.get_ref() {
            DeValue::Table(inner) => path_at(inner, at).map(|path| format!("{name}.{path}")),
            DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| match item
                .get_ref()
            {
                DeValue::Table(inner) => {
                    path_at(inner, at).map(|path| format!("{name}[{index}].{path}"))
                }
                _ => has(item.span()).then(|| format!("{name}[{index}]")),
            }),
            _ => None,
        };
        let here = || (has(key.span()) || has(value.span())).then(|| name.to_string());
        inner.or_else(here)
    })
}

/// The place of a key's value, or of the nearest table above it.
fn span_of(table: &DeTable<'_>, key: &str) -> Range<usize> {
    let (name, rest) = match key.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (key, None),
    };
    let (name, index) = match name.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
        None => (name, None),
    };
    let Some((found, value)) = table.get_key_value(name) else {
        return 0..0;
    };
    let value = match (value.get_ref(), index) {
        (DeValue::Array(items), Some(index)) => items.get(index).unwrap_or(value),
        _ => value,
    };
    let own = match value.get_ref() {
        DeValue::Table(_) if index.is_none() => found.span(),
        _ => value.span(),
    };
    match (value.get_ref(), rest) {
        (DeValue::Table(inner), Some(rest)) => match span_of(inner, rest) {
            Range { start: 0, end: 0 } => own,
            inner => inner,
        },
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn what_takes_the_place_of_a_variable_is_not_looked_at_again() {
        let variables = [("${a}", "${b}${b}"), ("${b}", "1"), ("${long}", "x")];
        let variables = variables.map(|(name, by)| (name.to_owned(), by.to_owned()));
        for (text, expected) in [
            ("none", None),
            ("${stamp}", None),
            ("${b}", Some("1")),
            ("a ${a} b", Some("a ${b}${b} b")),
            ("${${b}", Some("${1")),
            ("${long}${stamp}${b}", Some("x${stamp}1")),
        ] {
            assert_eq!(replaced(text, &variables).as_deref(), expected, "{text}");
        }
    }
}
