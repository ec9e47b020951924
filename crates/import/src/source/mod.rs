//! A configuration in any of the three languages, as one tree. Each value knows where it stands.

mod json;
mod toml;
mod yaml;

use std::path::Path;
use thiserror::Error;

/// Bytes of a file. A configuration of Centrifugo with all its options has 28 KB.
pub const FILE_BYTES_MAX: usize = 4 << 20;

/// Values of one file, those that aliases of YAML repeat among them.
const VALUES_MAX: usize = 100_000;

/// Bytes of the texts of one file, those that aliases of YAML repeat among them.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Tables and lists in each other. Centrifugo's own options need six.
const DEPTH_MAX: usize = 32;

/// Where a value stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In this line of the file; the first is 1.
    Line(usize),
    /// In this variable of the environment.
    Variable(String),
    /// Nowhere: it follows from other values.
    #[default]
    Nowhere,
}

/// A value and where it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// What is written.
    pub value: Value,
    /// Where.
    pub place: Place,
    /// The path as it is written there, such as `namespaces[0].presence`; empty at the top.
    pub name: String,
}

/// A value of any of the three languages.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Nothing, which is an option that is not set.
    #[default]
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// Values in their order.
    List(Vec<Node>),
    /// Values by name, in their order.
    Table(Vec<(String, Node)>),
}

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

/// A text that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SourceError {
    /// It is not what its name says.
    #[error("line {line}: it is not {language}: {cause}")]
    Syntax {
        /// Where.
        line: usize,
        /// The language that was expected.
        language: &'static str,
        /// What is wrong.
        cause: String,
    },
    /// Two values have one name.
    #[error("line {line}: {} is written twice", crate::report::shown(.name))]
    Twice {
        /// Where the second is.
        line: usize,
        /// The name.
        name: String,
    },
    /// Something that no configuration has.
    #[error("line {line}: {what}")]
    Odd {
        /// Where.
        line: usize,
        /// What.
        what: &'static str,
    },
    /// More than any configuration has.
    #[error("line {line}: there are more than {limit}: this is no configuration of Centrifugo")]
    TooMuch {
        /// Where the limit was passed.
        line: usize,
        /// Which limit.
        limit: &'static str,
    },
    /// The top is no table.
    #[error("it has no options: a table of options is expected at the top")]
    NoTable,
}

impl Language {
    /// What the name of a file says, and otherwise what its text looks like.
    #[must_use]
    pub fn of(path: &Path, text: &str) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            _ => Self::of_text(text),
        }
    }

    fn of_text(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim_start);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        match first {
            Some(line) if line.starts_with('{') => Self::Json,
            Some(line) if line.starts_with('[') || is_assignment(line) => Self::Toml,
            _ => Self::Yaml,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Yaml => "YAML",
            Self::Toml => "TOML",
        }
    }
}

/// `key = value`, with no colon before the sign.
fn is_assignment(line: &str) -> bool {
    line.find('=')
        .is_some_and(|equals| !line[..equals].contains(':'))
}

/// Reads a text whose size has been checked.
///
/// # Errors
/// It is not in this language, or has more than [`VALUES_MAX`], [`TEXT_BYTES_MAX`] or [`DEPTH_MAX`] allow.
pub(crate) fn read(text: &str, language: Language) -> Result<Node, SourceError> {
    // Editors of other systems put it in front of a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = match language {
        Language::Json => json::read(text),
        Language::Yaml => yaml::read(text),
        Language::Toml => self::toml::read(text),
    }?;
    match tree.value {
        Value::Table(_) => Ok(tree),
        Value::Null => Ok(Node {
            value: Value::Table(Vec::new()),
            ..tree
        }),
        _ => Err(SourceError::NoTable),
    }
}

/// Reads the JSON that a variable of the environment has; its values stand where the variable does.
pub(crate) fn read_variable(text: &str, variable: &str) -> Result<Node, SourceError> {
    let mut node = json::read(text)?;
    node.stand_in(variable);
    Ok(node)
}

/// How much of a file has been read.
struct Budget {
    values_left: usize,
    text_bytes_left: usize,
}

impl Budget {
    fn new() -> Self {
        Self {
            values_left: VALUES_MAX,
            text_bytes_left: TEXT_BYTES_MAX,
        }
    }

    /// Takes one value, with so many bytes of text, at this depth.
    fn take(&mut self, bytes: usize, depth: usize, line: usize) -> Result<(), SourceError> {
        self.take_many(1, bytes, line)?;
        if depth > DEPTH_MAX {
            let limit = "32 tables and lists in each other";
            return Err(SourceError::TooMuch { line, limit });
        }
        Ok(())
    }

    fn take_many(&mut self, values: usize, bytes: usize, line: usize) -> Result<(), SourceError> {
        let left = self.values_left.checked_sub(values);
        let limit = "100,000 values";
        self.values_left = left.ok_or(SourceError::TooMuch { line, limit })?;
        let left = self.text_bytes_left.checked_sub(bytes);
        let limit = "16 MiB of text";
        self.text_bytes_left = left.ok_or(SourceError::TooMuch { line, limit })?;
        Ok(())
    }
}

/// A table whose names have been checked.
fn table(entries: Vec<(String, Node)>) -> Result<Value, SourceError> {
    let mut names: Vec<&str> = entries.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    if let Some(name) = twice.map(|pair| pair[0]) {
        let mut found = entries.iter().rev();
        let last = found.find(|(other, _)| other == name);
        let line = last.map_or(0, |(_, node)| node.place.line());
        let name = name.to_owned();
        return Err(SourceError::Twice { line, name });
    }
    Ok(Value::Table(entries))
}

impl Place {
    /// The line, or 0.
    fn line(&self) -> usize {
        match self {
            Self::Line(line) => *line,
            Self::Variable(_) | Self::Nowhere => 0,
        }
    }
}

impl Node {
    /// A value in a line, without a name yet.
    fn at(line: usize, value: Value) -> Self {
        Self {
            value,
            place: Place::Line(line),
            name: String::new(),
        }
    }

    /// A value that follows from others.
    pub(crate) fn made(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// Gives every value in it the path to it, below this one's.
    fn name_all(&mut self, name: String) {
        match &mut self.value {
            Value::Table(entries) => {
                for (key, node) in entries {
                    let inner = match &*name {
                        "" => key.clone(),
                        outer => format!("{outer}.{key}"),
                    };
                    node.name_all(inner);
                }
            }
            Value::List(items) => {
                for (index, node) in items.iter_mut().enumerate() {
                    node.name_all(format!("{name}[{index}]"));
                }
            }
            _ => {}
        }
        self.name = name;
    }

    fn stand_in(&mut self, variable: &str) {
        self.place = Place::Variable(variable.to_owned());
        match &mut self.value {
            Value::Table(entries) => {
                for (_, node) in entries {
                    node.stand_in(variable);
                }
            }
            Value::List(items) => {
                for node in items {
                    node.stand_in(variable);
                }
            }
            _ => {}
        }
    }

    /// Lines of the values in it, if all are in a file; for tests.
    #[cfg(test)]
    fn line_of(&self, path: &str) -> Option<usize> {
        self.find(path).map(|node| node.place.line())
    }
}

/// A line of a text by an offset in it.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.bytes().enumerate();
        Self(
            ends.filter(|(_, byte)| *byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        )
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Language; 3] = [Language::Json, Language::Yaml, Language::Toml];

    fn texts() -> [&'static str; 3] {
        [
            "{\n\"client\": {\n \"channel_limit\": 7,\n \"insecure\": true},\n\"list\": [1, 2.5, \"a\"]\n}\n",
            "# c\nclient:\n  channel_limit: 7\n  insecure: true\nlist: [1, 2.5, a]\n",
            "list = [1, 2.5, \"a\"]\n[client]\nchannel_limit = 7\ninsecure = true\n",
        ]
    }

    #[test]
    fn the_three_languages_say_the_same() {
        for (language, text) in ALL.into_iter().zip(texts()) {
            let tree = read(text, language).unwrap();
            let value = |path: &str| tree.find(path).map(|node| node.value.clone());
            assert_eq!(value("client.channel_limit"), Some(Value::Integer(7)));
            assert_eq!(value("client.insecure"), Some(Value::Flag(true)));
            let Some(Value::List(items)) = value("list") else {
                panic!("{language:?}");
            };
            let items: Vec<_> = items.iter().map(|item| &item.value).collect();
            let text = Value::Text("a".into());
            assert_eq!(items, [&Value::Integer(1), &Value::Float(2.5), &text]);
            assert_eq!(
                tree.line_of("client.channel_limit"),
                Some(3),
                "{language:?}"
            );
            assert_eq!(
                tree.find("client.insecure").unwrap().name,
                "client.insecure"
            );
            assert_eq!(
                Language::of(Path::new("a.conf"), texts()[language as usize]),
                language
            );
        }
    }

    #[test]
    fn a_name_that_is_written_twice_is_named() {
        for (language, text) in [
            (Language::Json, "{\"a\": 1,\n\"a\": 2}"),
            (Language::Yaml, "a: 1\na: 2\n"),
        ] {
            let error = read(text, language).unwrap_err();
            let name = "a".to_owned();
            assert_eq!(error, SourceError::Twice { line: 2, name });
        }
        let error = read("a = 1\na = 2\n", Language::Toml).unwrap_err();
        assert!(
            matches!(error, SourceError::Syntax { line: 2, .. }),
            "{error}"
        );
    }

    #[test]
    fn depth_is_bounded_in_each_language() {
        let deep =
            |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(40), close.repeat(40));
        for (language, text) in [
            (Language::Json, format!("{{\"a\": {}}}", deep("[", "]"))),
            (Language::Json, format!("{{\"a\": {}}}", nested("[", "]"))),
            (
                Language::Json,
                format!("{{\"a\": {}}}", deep("{\"a\":", "}")),
            ),
            (Language::Yaml, format!("a: {}", deep("[", "]"))),
            (Language::Yaml, format!("a: {}", nested("[", "]"))),
            (Language::Yaml, format!("a: {}", nested("{a: ", "}"))),
            (Language::Yaml, "- ".repeat(100_000)),
            (Language::Toml, format!("a = {}", deep("[", "]"))),
            (Language::Toml, format!("a = {}", nested("[", "]"))),
            (Language::Toml, format!("a{} = 1", ".a".repeat(40))),
            (Language::Toml, format!("a{} = 1", ".a".repeat(100_000))),
        ] {
            let error = read(&text, language).unwrap_err();
            assert!(error.to_string().len() < 300, "{error}");
        }
    }

    #[test]
    fn broken_texts_are_refused_with_their_line() {
        for (language, text, line) in [
            (Language::Json, "{\n\"a\": 1,\n}", 3),
            (Language::Json, "{\"a\": 1}\n{}", 2),
            (Language::Yaml, "a: 1\nb: [1\n", 3),
            (Language::Yaml, "a: 1\n  b: 2\n", 2),
            (Language::Toml, "a = 1\nb = \n", 2),
        ] {
            let error = read(text, language).unwrap_err();
            let SourceError::Syntax { line: found, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(found, line, "{language:?}: {text}");
        }
    }

    #[test]
    fn only_a_table_has_options() {
        assert_eq!(read("[1]", Language::Json), Err(SourceError::NoTable));
        assert_eq!(read("- a\n", Language::Yaml), Err(SourceError::NoTable));
        assert_eq!(read("text\n", Language::Yaml), Err(SourceError::NoTable));
        for (language, text) in [(Language::Yaml, "\n# nothing\n"), (Language::Toml, "")] {
            let tree = read(text, language).unwrap();
            assert_eq!(tree.value, Value::Table(Vec::new()));
        }
        assert!(read("", Language::Json).is_err());
    }

    #[test]
    fn many_values_are_too_many() {
        let many = "1,".repeat(VALUES_MAX);
        for (language, text) in [
            (Language::Json, format!("{{\"a\": [{many}1]}}")),
            (Language::Yaml, format!("a: [{many}1]")),
            (Language::Toml, format!("a = [{many}1]")),
        ] {
            let error = read(&text, language).unwrap_err();
            assert!(error.to_string().contains("100,000 values"), "{error}");
        }
    }
}
