//! What the reading of the format says of a mistake, with the key that was probably meant.

use super::fault::Problem;
use crate::nearest::nearest;

/// Words that other tools and the options of the command line have for keys of scenarios.
const OTHER_WORDS: [(&str, &str); 18] = [
    ("clients", "count"),
    ("connections", "count"),
    ("users", "count"),
    ("vus", "count"),
    ("url", "targets"),
    ("urls", "targets"),
    ("clients", "terminals"),
    ("connections", "terminals"),
    ("options", "terminals"),
    ("connect", "arrival"),
    ("ping", "heartbeat"),
    ("env", "variables"),
    ("vars", "variables"),
    ("url", "urls"),
    ("interval", "every"),
    ("interval", "rate"),
    ("message", "send"),
    ("time", "duration"),
];

/// Lists of tables, whose sections have two brackets.
const LISTS: [&str; 3] = ["flows", "replies", "storm"];

/// What is wrong, as the reading of the value at `key` said it.
pub(super) fn problem_of(said: &str, key: &str) -> Problem {
    let mut quoted = said.split('`').skip(1).step_by(2).map(str::to_owned);
    if said.starts_with("missing field") {
        return Problem::MissingKey(quoted.next().unwrap_or_default());
    }
    if said.starts_with("invalid type: map, expected a sequence") && LISTS.contains(&key) {
        return Problem::OneBracket(key.to_owned());
    }
    let text = said.strip_prefix("invalid type: string ");
    if let Some(text) = text.and_then(|it| it.strip_suffix(", expected a sequence")) {
        return Problem::Value(format!("this is a list; write [{text}]"));
    }
    let Some(key) = quoted.next().filter(|_| said.starts_with("unknown field")) else {
        return Problem::Value(said.to_owned());
    };
    let known: Vec<String> = quoted.collect();
    Problem::UnknownKey {
        nearest: meant(&key.replace('_', "-"), &known),
        key,
        known,
    }
}

/// The list whose section was begun as a table, where the text is no TOML because of that: its name is in `line`.
pub(super) fn list_begun_as_table(line: &str) -> Option<&'static str> {
    let name = line.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    LISTS.into_iter().find(|list| *list == name)
}

/// The key that somebody has probably meant: another word for it, or one that is spelled nearly so.
fn meant(key: &str, known: &[String]) -> Option<String> {
    let mut words = OTHER_WORDS.iter().filter(|(word, _)| *word == key);
    let is_known = |own: &str| known.iter().any(|it| it == own);
    let own = words.find_map(|(_, own)| is_known(own).then(|| (*own).to_owned()));
    own.or_else(|| nearest(key, known))
}
