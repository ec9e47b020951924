//! `CENTRIFUGO_...`: variables of the environment over what a file says.
//!
//! The name is the path in capitals, with `_` between its parts. Lists of texts have spaces between them; tables, and lists of
//! tables, are JSON. Of namespaces and proxies version 6 also takes the names alone, and a variable for each option of each.

use crate::layout::{self, Layout};
use crate::report::{Fate, Note};
use crate::source::{Node, Place, SourceError, Value, read_variable};
use crate::table::{How, LISTS, PRO_KEYS, PROXY_PLACES, Row, Scope, TOKEN_PLACES, UNNAMED};
use crate::value::plain;
use std::collections::BTreeMap;

/// Before the names of Centrifugo's variables.
const PREFIX: &str = "CENTRIFUGO_";

/// Bytes of all variables together.
const BYTES_MAX: usize = crate::source::FILE_BYTES_MAX;

/// Variables by name.
pub type Variables = BTreeMap<String, String>;

/// The variables of Centrifugo among these; empty ones count as not set.
///
/// Kubernetes and Docker set others that begin alike, for a service with that name.
pub(crate) fn ours(variables: &Variables) -> Variables {
    let of_others = |name: &str, value: &str| {
        let rest = &name[PREFIX.len()..];
        rest.starts_with("SERVICE_")
            || rest.starts_with("PORT_")
            || (rest == "PORT" && value.contains("://"))
    };
    let found = variables.iter().filter(|(name, value)| {
        name.starts_with(PREFIX) && !value.is_empty() && !of_others(name, value)
    });
    found
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The layout of variables alone: names that only one version has.
pub(crate) fn layout(variables: &Variables) -> Option<Layout> {
    let known = Known::v6(&Node::default(), variables);
    let [mut flat, mut nested] = [0, 0];
    for name in variables.keys() {
        let is_v6 = known.place(name).is_some();
        let is_v5 = layout::is_v5(&name[PREFIX.len()..].to_ascii_lowercase());
        flat += usize::from(is_v5 && !is_v6);
        nested += usize::from(is_v6 && !is_v5);
    }
    Layout::choose(flat, nested)
}

/// Puts variables over a tree in a layout.
///
/// # Errors
/// A variable with JSON that cannot be read.
pub(crate) fn overlay(
    tree: &mut Node,
    variables: &Variables,
    layout: Layout,
    notes: &mut Vec<Note>,
) -> Result<(), (String, SourceError)> {
    let bytes: usize = variables
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > BYTES_MAX {
        let limit = "4 MiB of variables";
        let error = SourceError::TooMuch { line: 0, limit };
        return Err(("environment".into(), error));
    }
    match layout {
        Layout::V5 => overlay_v5(tree, variables),
        Layout::V6 => overlay_v6(tree, variables, notes),
    }
}

fn overlay_v5(tree: &mut Node, variables: &Variables) -> Result<(), (String, SourceError)> {
    for (name, value) in variables {
        let node = node(name, value)?;
        tree.set(&name[PREFIX.len()..].to_ascii_lowercase(), node);
    }
    Ok(())
}

fn overlay_v6(
    tree: &mut Node,
    variables: &Variables,
    notes: &mut Vec<Note>,
) -> Result<(), (String, SourceError)> {
    // The names of lists come first: each has variables of its own.
    for (path, _) in LISTS {
        let name = variable(path);
        if let Some(value) = variables.get(&name) {
            tree.set(path, list(&name, value)?);
        }
    }
    let known = Known::v6(tree, variables);
    for (name, value) in variables {
        if LISTS.iter().any(|(path, _)| variable(path) == *name) {
            continue;
        }
        match known.place(name) {
            Some(Found::Path(path)) => tree.set(&path, node(name, value)?),
            Some(Found::Part) => notes.push(note(name, Fate::Idle)),
            None => notes.push(note(name, Fate::Unknown)),
        }
    }
    Ok(())
}

fn note(name: &str, fate: Fate) -> Note {
    let node = Node {
        value: Value::Null,
        place: Place::Variable(name.into()),
        name: name.into(),
    };
    Note::of(&node, fate)
}

/// The variable of a path.
fn variable(path: &str) -> String {
    format!("{PREFIX}{}", capitals(path))
}

fn capitals(text: &str) -> String {
    let sign = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_uppercase(),
        _ => '_',
    };
    text.chars().map(sign).collect()
}

/// The value of a variable: JSON if it looks so, and otherwise a text.
fn node(name: &str, value: &str) -> Result<Node, (String, SourceError)> {
    let begins = value.trim_start();
    if begins.starts_with('{') || begins.starts_with("[{") || begins.starts_with("[]") {
        return read_variable(value, name).map_err(|error| (name.to_owned(), error));
    }
    Ok(Node {
        value: Value::Text(value.to_owned()),
        place: Place::Variable(name.to_owned()),
        name: name.to_owned(),
    })
}

/// A list of tables: JSON, or the names of its tables.
fn list(name: &str, value: &str) -> Result<Node, (String, SourceError)> {
    if value.trim_start().starts_with('[') {
        return read_variable(value, name).map_err(|error| (name.to_owned(), error));
    }
    let place = Place::Variable(name.to_owned());
    let made = |value| Node {
        value,
        place: place.clone(),
        name: name.to_owned(),
    };
    let names = value.split_whitespace();
    let tables = names.map(|own| {
        let own = made(Value::Text(own.to_owned()));
        made(Value::Table(vec![("name".into(), own)]))
    });
    Ok(made(Value::List(tables.collect())))
}

/// Where a variable belongs.
enum Found {
    /// To this path.
    Path(String),
    /// To what is not there, or only matters with another option.
    Part,
}

/// The variables that version 6 knows.
struct Known {
    paths: BTreeMap<String, String>,
    /// Beginnings of variables, of which each one with more behind it is known too; with their paths, if what is in them matters.
    wholes: Vec<(String, Option<String>)>,
}

impl Known {
    /// Those of a tree with these lists.
    fn v6(tree: &Node, variables: &Variables) -> Self {
        let mut known = Self {
            paths: BTreeMap::new(),
            wholes: PRO_KEYS.iter().map(|key| (variable(key), None)).collect(),
        };
        known.rows(Scope::Top, "", "");
        for place in TOKEN_PLACES {
            known.rows(Scope::Token, place, place);
        }
        for place in PROXY_PLACES {
            known.rows(Scope::Proxy, place, place);
        }
        for (place, scope) in UNNAMED {
            known.rows(scope, place, place);
        }
        for (path, scope) in LISTS {
            known.wholes_of_names(path, variables);
            for index in 0..tree.items(path) {
                let item = format!("{path}[{index}]");
                let name = tree.find(&format!("{item}.name"));
                if let Some(name) = name.and_then(|node| plain(&node.value)) {
                    known.rows(scope, &item, &format!("{path}.{name}"));
                }
            }
        }
        known
    }

    /// To tell the layout, the variables of a list's names count though there is no tree yet.
    fn wholes_of_names(&mut self, path: &str, variables: &Variables) {
        let name = variable(path);
        if variables.contains_key(&name) {
            self.paths.insert(name, path.to_owned());
        }
    }

    fn rows(&mut self, scope: Scope, place: &str, named: &str) {
        for row in scope.rows().filter(|row| !row.v6.is_empty()) {
            self.row(row, place, named);
        }
    }

    fn row(&mut self, row: &Row, place: &str, named: &str) {
        let below = |place: &str| crate::convert::join(place, row.v6);
        let name = variable(&below(named));
        if row.is_whole() {
            let path = matches!(row.how, How::Ruled(_)).then(|| below(place));
            self.wholes.push((name.clone(), path));
        }
        self.paths.insert(name, below(place));
    }

    fn place(&self, variable: &str) -> Option<Found> {
        if let Some(path) = self.paths.get(variable) {
            return Some(Found::Path(path.clone()));
        }
        self.wholes.iter().find_map(|(whole, path)| {
            let key = variable.strip_prefix(whole)?.strip_prefix('_')?;
            Some(match path {
                Some(path) => Found::Path(format!("{path}.{}", key.to_ascii_lowercase())),
                None => Found::Part,
            })
        })
    }
}

/// A line of an env file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct EnvFileError {
    /// Which one; the first is 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// Reads an env file: `NAME=VALUE` a line, as Docker and systemd take it, and with quotes, as shells and `defaultenv` write it. A value
/// in quotes may have several lines.
///
/// # Errors
/// A line that sets nothing, or a quote without an end.
pub fn read_env_file(text: &str) -> Result<Variables, EnvFileError> {
    let mut variables = Variables::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let error = |what| EnvFileError { line: number, what };
        let (name, value) = line.split_once('=').ok_or(error("write NAME=VALUE"))?;
        let name = name.trim();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(error("a name has letters, digits and _"));
        }
        let mut value = value.trim().to_owned();
        let quote = value.chars().next().filter(|c| ['"', '\''].contains(c));
        let value = match quote {
            None => value,
            Some(quote) => loop {
                if let Some(inner) = unquoted(&value, quote) {
                    break inner;
                }
                let (next, _) = lines.next().ok_or(error("the quote has no end"))?;
                value.push('\n');
                value.push_str(next);
            },
        };
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// What is between quotes; nothing if the second one has not come yet. Only double ones know `\`.
fn unquoted(text: &str, quote: char) -> Option<String> {
    let mut inner = String::new();
    let mut signs = text.chars().skip(1);
    while let Some(sign) = signs.next() {
        match sign {
            sign if sign == quote => return Some(inner),
            '\\' if quote == '"' => match signs.next()? {
                'n' => inner.push('\n'),
                other => inner.push(other),
            },
            sign => inner.push(sign),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn an_env_file_is_what_docker_and_shells_read() {
        let text = "# c\n\nA=1\nexport B=\"x \\\"y\\\"\"\nC='a\nb'\nD=a=b\nE=\n";
        let expected = variables(&[
            ("A", "1"),
            ("B", "x \"y\""),
            ("C", "a\nb"),
            ("D", "a=b"),
            ("E", ""),
        ]);
        assert_eq!(read_env_file(text), Ok(expected));
        for (text, line) in [
            ("A=1\nnothing\n", 2),
            ("A B=1", 1),
            ("A=\"x\n", 1),
            ("=1", 1),
        ] {
            assert_eq!(read_env_file(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn variables_of_a_service_are_not_options() {
        let all = variables(&[
            ("CENTRIFUGO_PORT", "tcp://10.0.0.1:8000"),
            ("CENTRIFUGO_PORT_8000_TCP_ADDR", "10.0.0.1"),
            ("CENTRIFUGO_SERVICE_HOST", "10.0.0.1"),
            ("CENTRIFUGO_ENGINE", "memory"),
            ("CENTRIFUGO_NAME", ""),
            ("PATH", "/bin"),
        ]);
        assert_eq!(ours(&all).keys().collect::<Vec<_>>(), ["CENTRIFUGO_ENGINE"]);
    }

    #[test]
    fn the_layout_shows_in_names_of_one_version_alone() {
        for (name, expected) in [
            ("CENTRIFUGO_TOKEN_HMAC_SECRET_KEY", Some(Layout::V5)),
            ("CENTRIFUGO_NAMESPACES", Some(Layout::V5)),
            ("CENTRIFUGO_CLIENT_TOKEN_HMAC_SECRET_KEY", Some(Layout::V6)),
            ("CENTRIFUGO_CHANNEL_NAMESPACES", Some(Layout::V6)),
            ("CENTRIFUGO_CLIENT_CHANNEL_LIMIT", None),
            ("CENTRIFUGO_UNHEARD_OF", None),
        ] {
            assert_eq!(layout(&variables(&[(name, "x")])), expected, "{name}");
        }
    }

    #[test]
    fn names_of_a_list_have_variables_of_their_own() {
        let set = variables(&[
            ("CENTRIFUGO_CHANNEL_NAMESPACES", "chat-1 news"),
            ("CENTRIFUGO_CHANNEL_NAMESPACES_CHAT_1_PRESENCE", "true"),
            ("CENTRIFUGO_PROXIES", "[{\"name\": \"one\"}]"),
            ("CENTRIFUGO_PROXIES_ONE_TIMEOUT", "3s"),
            ("CENTRIFUGO_ENGINE_REDIS_ADDRESS", "a"),
            ("CENTRIFUGO_PROXIES_ONE_HTTP_TLS_CERT_PEM", "c"),
            ("CENTRIFUGO_CHANNEL_NAMESPACES_OTHER_PRESENCE", "true"),
        ]);
        let mut tree = Node::made(Value::Table(Vec::new()));
        let mut notes = Vec::new();
        overlay(&mut tree, &set, Layout::V6, &mut notes).unwrap();
        let value = |path: &str| tree.find(path).and_then(|node| plain(&node.value));
        assert_eq!(
            value("channel.namespaces[0].presence").as_deref(),
            Some("true")
        );
        assert_eq!(value("channel.namespaces[1].name").as_deref(), Some("news"));
        assert_eq!(value("proxies[0].timeout").as_deref(), Some("3s"));
        assert_eq!(value("proxies[0].http.tls.cert_pem").as_deref(), Some("c"));
        let fates: Vec<_> = notes.iter().map(|note| (note.fate, &*note.name)).collect();
        let unknown = "CENTRIFUGO_CHANNEL_NAMESPACES_OTHER_PRESENCE";
        let redis = "CENTRIFUGO_ENGINE_REDIS_ADDRESS";
        assert_eq!(fates, [(Fate::Unknown, unknown), (Fate::Idle, redis)]);
    }

    #[test]
    fn broken_json_names_its_variable() {
        let set = variables(&[("CENTRIFUGO_CHANNEL_NAMESPACES", "[{")]);
        let mut tree = Node::default();
        let error = overlay(&mut tree, &set, Layout::V6, &mut Vec::new()).unwrap_err();
        assert_eq!(error.0, "CENTRIFUGO_CHANNEL_NAMESPACES");
    }
}
