//! What is wrong with a scenario, shown as a compiler does: the file, the line, its text, and what to do.

use crate::config::CaError;
use crate::config_error::{ConfigError, ThresholdRefused};
use crate::nearest::nearest;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// A scenario that cannot be used.
#[derive(Debug)]
pub enum ScenarioError {
    /// The file cannot be read.
    Read {
        /// As given.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is larger than a scenario is.
    Large {
        /// As given.
        path: PathBuf,
        /// The most, in bytes.
        bytes_max: u64,
    },
    /// `--set` does not have the form `KEY=VALUE`, or its key goes through something that is no table: as given.
    Set(String),
    /// The key of `--set` goes through a list of tables that has none of that name.
    SetName {
        /// As given.
        given: String,
        /// The list.
        list: String,
        /// The name.
        name: String,
        /// All names in it.
        known: Vec<String>,
    },
    /// A threshold of the command line, and why it cannot be judged.
    Threshold(String, ThresholdRefused),
    /// Something in it is wrong.
    Fault(Box<Fault>),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, error } => write!(
                f,
                "{} cannot be read ({error}); check the path, or write a first scenario with `myriad swarm init`",
                path.display()
            ),
            Self::Large { path, bytes_max } => write!(
                f,
                "{} has more than {bytes_max} bytes, which no scenario needs; check the path",
                path.display()
            ),
            Self::Set(given) => write!(
                f,
                "--set {given}: write KEY=VALUE with a key of the scenario, such as terminals.count=200"
            ),
            Self::SetName {
                given,
                list,
                name,
                known,
            } => {
                write!(f, "--set {given}: nothing in {list} is named `{name}`; ")?;
                write_choice(f, nearest(name, known), known)
            }
            Self::Threshold(expression, problem) => {
                write!(f, "--threshold '{expression}': {problem}")
            }
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// Something that is wrong at one place of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The file, as given.
    pub path: PathBuf,
    /// Where in it; none for a value that `--set` gave.
    pub place: Option<Place>,
    /// The key, such as `terminals.count`; empty where it is not known.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

/// A place in a text, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// How many characters it has; at least 1.
    pub width: usize,
    /// The line's text.
    pub text: String,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// The file is no TOML.
    Syntax(String),
    /// A key that does not exist, and the known one that is nearest to it.
    UnknownKey {
        /// As written.
        key: String,
        /// One that exists.
        nearest: Option<String>,
        /// All that exist there.
        known: Vec<String>,
    },
    /// A value has a variable that the scenario does not have.
    NoVariable {
        /// As written.
        name: String,
        /// One that it has.
        nearest: Option<String>,
        /// All that it has.
        known: Vec<String>,
    },
    /// A variable that stands nowhere in the scenario.
    UnknownVariable {
        /// As given.
        name: String,
        /// One that it has.
        nearest: Option<String>,
        /// All that it has.
        known: Vec<String>,
    },
    /// A key that must be there.
    MissingKey(String),
    /// A value that the key cannot have.
    Value(String),
    /// `terminals` has no target.
    NoTarget,
    /// `publish` or `requests` has no URL.
    NoEndpoint,
    /// Both `token` and `tokens-file` are given.
    BothTokens,
    /// Two keys that exclude each other are given.
    Both(&'static str, &'static str),
    /// A file that the scenario names cannot be read.
    File(PathBuf, String),
    /// Such a file is larger than is read: the most, in bytes.
    LargeFile(PathBuf, u64),
    /// A file of CAs cannot be used.
    Ca(CaError),
    /// A file of tokens cannot be used, and why.
    Tokens(String),
    /// Two keys of which only one may be given.
    Either(&'static str, &'static str),
    /// A key that only goes with another one.
    Needs(&'static str, &'static str),
    /// A key that is about what clients and callers say, in a scenario in which nobody says anything.
    NothingSaid(&'static str),
    /// A flow says nothing of when it is sent: its name.
    NoPace(String),
    /// Another number of answers than of messages: both.
    Answers(usize, usize),
    /// The exponent of groups is out of range.
    Exponent,
    /// A flow has several places of its stamp.
    StampPlaces,
    /// The section of a list of tables has one bracket: its name.
    OneBracket(String),
    /// A threshold cannot be judged.
    Threshold(ThresholdRefused),
    /// What is asked for cannot be done together.
    Config(ConfigError),
}

/// Says which name was probably meant, or which there are.
fn write_choice(
    f: &mut fmt::Formatter<'_>,
    nearest: Option<String>,
    known: &[String],
) -> fmt::Result {
    match nearest {
        Some(nearest) => write!(f, "did you mean `{nearest}`?"),
        None => write!(f, "choose among {}", known.join(", ")),
    }
}

/// Says that the scenario does not have a variable, and which it has.
fn write_unknown_variable(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    nearest: Option<&str>,
    known: &[String],
) -> fmt::Result {
    write!(f, "the scenario has no variable `{name}`; ")?;
    if known.is_empty() {
        return write!(f, "write ${{{name}}} where its value is to stand");
    }
    write_choice(f, nearest.map(|it| format!("variables.{it}")), known)
}

fn write_no_variable(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    nearest: Option<String>,
    known: &[String],
) -> fmt::Result {
    write!(f, "[variables] has no `{name}`; ")?;
    match known {
        [] => write!(f, "write its value there"),
        _ => write_choice(f, nearest, known),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(said) => write!(f, "this is no TOML: {said}"),
            Self::UnknownKey {
                key,
                nearest,
                known,
            } => {
                write!(f, "there is no key `{key}`; ")?;
                write_choice(f, nearest.clone(), known)
            }
            Self::UnknownVariable {
                name,
                nearest,
                known,
            } => write_unknown_variable(f, name, nearest.as_deref(), known),
            Self::NoVariable {
                name,
                nearest,
                known,
            } => write_no_variable(f, name, nearest.clone(), known),
            Self::MissingKey(key) => write!(f, "the key `{key}` is missing; write it too"),
            Self::Value(said) => f.write_str(said),
            Self::NoTarget => f.write_str(
                "no target is given; write targets = [\"ws://127.0.0.1:8000/raw?channel=news\"] in [terminals]",
            ),
            Self::NoEndpoint => f.write_str(
                "no URL is given; write one such as http://127.0.0.1:8000/api/publish",
            ),
            Self::BothTokens => {
                f.write_str("`token` and `tokens-file` exclude each other; leave one out")
            }
            Self::Both(one, other) | Self::Either(one, other) => {
                write!(f, "`{one}` and `{other}` exclude each other; leave one out")
            }
            Self::File(path, said) => write!(
                f,
                "{} cannot be read ({said}); its path counts from the scenario's folder",
                path.display()
            ),
            Self::LargeFile(path, most) => write!(
                f,
                "{} has more than {most} bytes; give a shorter list, which clients take in turn",
                path.display()
            ),
            Self::Ca(error) => write!(f, "{error}"),
            Self::Tokens(said) => f.write_str(said),
            Self::Needs(key, other) => write!(f, "`{key}` needs `{other}`; write it too"),
            Self::NothingSaid(key) => write!(
                f,
                "nobody says anything that `{key}` could be for; write [[flows]], [opening], [[replies]] or `send` in [heartbeat], or leave it out"
            ),
            Self::NoPace(name) => write!(
                f,
                "the flow {name} needs a `rate` or a time to `think`; write one of them"
            ),
            Self::Answers(answers, messages) => write!(
                f,
                "{answers} answers are given to {messages} messages; write one for each, or \"\" where none is awaited"
            ),
            Self::Exponent => f.write_str("this is out of range; write 0 to 10, such as 1.0"),
            Self::StampPlaces => f.write_str(
                "a flow has one of `stamp-json`, `stamp-regex` and `stamp-offset`; leave the others out",
            ),
            Self::OneBracket(name) => write!(
                f,
                "`{name}` is a list of tables; write [[{name}]], with two brackets, above each of them"
            ),
            Self::Threshold(problem) => f.write_str(&super::keys::in_keys(&problem.to_string())),
            Self::Config(error) => f.write_str(&super::keys::in_keys(&error.to_string())),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(
                f,
                "{}:{}:{}: ",
                self.path.display(),
                place.line,
                place.column
            )?,
            None => write!(f, "--set {}: ", self.key)?,
        }
        let said = self.problem.to_string();
        // A check of the run names its option first, which became the key, or lies around it: it is said once.
        let is_named = said.starts_with(&format!("{} ", self.key));
        let is_around = |option: &str| {
            let rest = self.key.strip_prefix(option);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let said = match said.split_once(": ") {
            Some((option, rest)) if is_around(option) => rest,
            _ => &*said,
        };
        if !self.key.is_empty() && !is_named && self.place.is_some() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(said)?;
        let Some(place) = &self.place else {
            return Ok(());
        };
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(place.column - 1);
        write!(
            f,
            "\n {margin} |\n {number} | {}\n {margin} | {indent}{}",
            place.text,
            "^".repeat(place.width)
        )
    }
}

impl std::error::Error for Fault {}

impl Place {
    /// The place of some bytes of a text. What goes on in later lines is marked up to the end of the first.
    pub(super) fn of(text: &str, bytes: Range<usize>) -> Self {
        let floor = |at: usize| {
            let at = at.min(text.len());
            (0..=at)
                .rev()
                .find(|at| text.is_char_boundary(*at))
                .unwrap_or(0)
        };
        let (start, end) = (floor(bytes.start), floor(bytes.end));
        let line_start = text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = text[start..]
            .find('\n')
            .map_or(text.len(), |end| start + end);
        let width = text[start..end.clamp(start, line_end)]
            .trim_end()
            .chars()
            .count();
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: width.max(1),
            text: text[line_start..line_end].trim_end().replace('\t', " "),
        }
    }
}
