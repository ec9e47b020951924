//! What the config file and the environment say as one table, and where each value stands.

use super::ConfigError;
use super::environment::{PREFIX, capitals};
use super::keys::{LISTS_OF_TABLES, Table, faults};
use super::secrets::hidden;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In this line of the file; the first is 1.
    Line(usize),
    /// In this variable of the environment.
    Variable(String),
}

/// What the config file and the environment say.
#[derive(Clone, Default)]
pub struct Written {
    pub(super) values: toml::Table,
    /// By path, such as `channel.namespaces[0].presence`. Tables have places too.
    pub(super) places: BTreeMap<String, Place>,
    /// The file that lines are of.
    file: PathBuf,
    /// The file has not one key.
    is_of_empty_file: bool,
    /// Keys at the top that a flag stands over.
    pub(super) flags: Vec<String>,
    /// What somebody should know who wrote it.
    pub(super) remarks: Vec<String>,
}

impl fmt::Debug for Written {
    /// Without values: some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Written {
    /// Reads the text of the file at `path`. Keys that do not exist or whose values cannot be read are left out, and named beside.
    ///
    /// # Errors
    /// Where the text is no TOML; or all faults of keys, if one of them cannot be left out.
    pub(super) fn read_text(
        text: &str,
        path: &Path,
    ) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let syntax = |source| {
            if let Some(language) = other_language(text, path) {
                let path = path.into();
                return ConfigError::Language { path, language };
            }
            hidden(&source, text, path).unwrap_or_else(|| ConfigError::Syntax {
                path: path.into(),
                source: Box::new(source),
            })
        };
        let document = DeTable::parse(text).map_err(syntax)?;
        let values: toml::Table = toml::from_str(text).map_err(syntax)?;
        let lines = Lines::of(text);
        let found = faults(document.get_ref(), &values);
        let paths: Vec<String> = found.iter().map(|fault| fault.path.clone()).collect();
        let faults = found.into_iter().map(|fault| ConfigError::Key {
            path: path.into(),
            line: lines.at(fault.offset),
            key: fault.path,
            advice: fault.advice,
        });
        let faults: Vec<_> = faults.collect();
        let mut places = BTreeMap::new();
        note_places(document.get_ref(), "", &lines, &mut places);
        let mut written = Self {
            is_of_empty_file: values.is_empty(),
            values,
            places,
            file: path.into(),
            ..Self::default()
        };
        for fault in &paths {
            match written.without(fault) {
                Some(left) => written = left,
                None => return Err(ConfigError::Several(faults)),
            }
        }
        Ok((written, faults))
    }

    /// As [`Written::read_text`], where nothing may be at fault.
    ///
    /// # Errors
    /// Also all keys that do not exist or whose values cannot be read.
    #[cfg(test)]
    pub(super) fn from_text(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let (written, faults) = Self::read_text(text, path)?;
        ConfigError::several(faults)?;
        Ok(written)
    }

    /// Whether the file has something, if it had something `before`.
    ///
    /// # Errors
    /// It is empty now.
    pub(super) fn check_file(&self, before: &Self) -> Result<(), ConfigError> {
        if self.is_of_empty_file && !before.is_of_empty_file {
            let path = self.file.clone();
            return Err(ConfigError::Emptied { path });
        }
        Ok(())
    }

    /// Adds to an error where the value stands that is at fault.
    pub(super) fn place(&self, error: ConfigError) -> ConfigError {
        let (field, value, advice) = match error {
            ConfigError::Value {
                field,
                value,
                advice,
            } => (field, value, advice),
            ConfigError::Several(errors) => {
                let placed = errors.into_iter().map(|error| self.place(error));
                return ConfigError::Several(placed.collect());
            }
            error => return error,
        };
        let path = path_in(&field);
        if self.flags.iter().any(|flag| flag == path) {
            let field = format!("--{path}").into();
            return ConfigError::Value {
                field,
                value,
                advice,
            };
        }
        if let Some(name) = self.variable_for(path) {
            return ConfigError::Variable {
                name,
                field: field.into_owned(),
                value,
                advice,
            };
        }
        match self.nearest_place(path) {
            Some((_, Place::Line(line))) => ConfigError::Line {
                path: self.file.clone(),
                line: *line,
                field: field.into_owned(),
                value,
                advice,
            },
            Some((found, Place::Variable(name))) => ConfigError::Variable {
                name: match path[found.len()..].trim_start_matches('.') {
                    "" => name.clone(),
                    // The variable holds a whole table.
                    inner => format!("{name}: {inner}"),
                },
                field: field.into_owned(),
                value,
                advice,
            },
            None => ConfigError::Value {
                field,
                value,
                advice,
            },
        }
    }

    /// The variable that a value is missing in, of a table that was made by a variable: not the one that names the table.
    fn variable_for(&self, path: &str) -> Option<String> {
        if self.places.contains_key(path) {
            return None;
        }
        let Some((_, Place::Variable(maker))) = self.nearest_place(path) else {
            return None;
        };
        let prefix = maker.split('_').next().unwrap_or(PREFIX);
        let (mut name, mut table) = (prefix.to_owned(), &self.values);
        for part in path.split('.') {
            let (key, index) = match part.split_once('[') {
                Some((key, index)) => (key, index.strip_suffix(']')?.parse::<usize>().ok()),
                None => (part, None),
            };
            name = format!("{name}_{}", capitals(key));
            let value = table.get(key);
            let inner = match index {
                Some(index) => value.and_then(|value| value.as_array()?.get(index)?.as_table()),
                None => value.and_then(toml::Value::as_table),
            };
            if let Some(inner) = inner {
                if index.is_some() {
                    name = format!("{name}_{}", capitals(inner.get("name")?.as_str()?));
                }
                table = inner;
            }
        }
        Some(name)
    }

    /// Where a value stands, or the table that it is missing in, with the path of what was found.
    fn nearest_place<'a>(&self, path: &'a str) -> Option<(&'a str, &Place)> {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return Some((path, place));
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// The same without the value that an error names, so that the next mistake shows; none if that would show nothing new.
    pub(super) fn without(&self, field: &str) -> Option<Self> {
        let mut left = self.clone();
        let path = path_in(field);
        if is_of_tls(field) {
            let is_other = |key: &str| key != "tls" && !key.starts_with("tls-");
            left.values.retain(|key, _| is_other(key));
            return (left.values.len() < self.values.len()).then_some(left);
        }
        let (table, key) = match path.rsplit_once('.') {
            Some((table, key)) => (table_at(&mut left.values, table)?, key),
            None => (&mut left.values, path),
        };
        // A namespace without a name would be the next mistake. Only tables of lists have names.
        let removed = table.remove(key)?;
        if path.ends_with("].name") {
            let other = format!("unnamed-{}", path.len() + self.values.len());
            if removed.as_str() == Some(&other) {
                return None;
            }
            table.insert(key.into(), other.into());
        }
        Some(left)
    }
}

/// The language that a file is written in, if it looks like another one than TOML.
fn other_language(text: &str, path: &Path) -> Option<&'static str> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        _ if text.trim_start().starts_with('{') => Some("JSON"),
        Some("yaml" | "yml") => Some("YAML"),
        _ => None,
    }
}

/// Whether a field is an option of TLS. These options need each other. If one alone is left out, the others look wrong too.
pub(super) fn is_of_tls(field: &str) -> bool {
    let path = path_in(field);
    let path = path.strip_prefix("--").unwrap_or(path);
    path == "tls" || path.starts_with("tls-") || path.starts_with("tls.")
}

/// The path in a field such as `namespace "chat": channel.namespaces[0].presence`.
fn path_in(field: &str) -> &str {
    field.rsplit_once(": ").map_or(field, |(_, path)| path)
}

/// The table at a path such as `channel.namespaces[0]`.
fn table_at<'a>(values: &'a mut toml::Table, path: &str) -> Option<&'a mut toml::Table> {
    path.split('.').try_fold(values, |table, part| {
        let (key, index) = match part.split_once('[') {
            Some((key, index)) => (key, Some(index.strip_suffix(']')?.parse::<usize>().ok()?)),
            None => (part, None),
        };
        let value = table.get_mut(key)?;
        match index {
            Some(index) => value.as_array_mut()?.get_mut(index)?.as_table_mut(),
            None => value.as_table_mut(),
        }
    })
}

/// Where the lines of a text begin.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end);
        Self(ends.collect())
    }

    /// The line of a byte.
    fn at(&self, offset: usize) -> usize {
        1 + self.0.partition_point(|end| *end < offset)
    }
}

fn note_places(
    table: &DeTable<'_>,
    prefix: &str,
    lines: &Lines,
    places: &mut BTreeMap<String, Place>,
) {
    for (key, value) in table {
        let path = format!("{prefix}{}", key.get_ref());
        places.insert(path.clone(), Place::Line(lines.at(key.span().start)));
        match value.get_ref() {
            DeValue::Table(table) => note_places(table, &format!("{path}."), lines, places),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    places.insert(path.clone(), Place::Line(lines.at(item.span().start)));
                    if let DeValue::Table(table) = item.get_ref() {
                        note_places(table, &format!("{path}."), lines, places);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Every value that is written, by a path that names namespaces, with the table that its key is of.
pub(super) fn flat(values: &toml::Table) -> BTreeMap<String, (Table, String, String)> {
    let mut found = BTreeMap::new();
    flatten(values, Table::Top, "", &mut found);
    found
}

fn flatten(
    values: &toml::Table,
    kind: Table,
    prefix: &str,
    found: &mut BTreeMap<String, (Table, String, String)>,
) {
    for (key, value) in values {
        let path = format!("{prefix}{key}");
        match (kind.inner(key), value) {
            (Some(inner), toml::Value::Table(table)) => {
                flatten(table, inner, &format!("{path}."), found);
            }
            (Some(inner), toml::Value::Array(items)) if LISTS_OF_TABLES.contains(&&**key) => {
                for table in items.iter().filter_map(toml::Value::as_table) {
                    let name = table.get("name").and_then(toml::Value::as_str);
                    let path = format!("{path}[{:?}].", name.unwrap_or_default());
                    flatten(table, inner, &path, found);
                }
            }
            (_, value) => {
                found.insert(path, (kind, key.clone(), value.to_string()));
            }
        }
    }
}
