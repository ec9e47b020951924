//! What became of each option: for people on stderr, and for programs as JSON.

use crate::source::{Node, Place};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// What became of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is written, and means the same.
    Taken,
    /// It is not in the source, and is written because the defaults differ.
    Stated,
    /// It is written, with another value or another meaning.
    Changed,
    /// It is not there.
    Missing,
    /// It is no option of Centrifugo that we know.
    Unknown,
    /// It has the default of both servers, or does nothing there either: nothing is written.
    Idle,
}

/// An option, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What became of it.
    pub fate: Fate,
    /// Its path as it is written.
    pub name: String,
    /// Where.
    pub place: Place,
    /// Its path here, if it is there.
    pub ours: Option<String>,
    /// What that means, if it means something.
    pub meaning: Option<String>,
    /// The operator has to decide something before clients come.
    pub needs_decision: bool,
}

/// What became of all options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Which version's layout the source has: 5 or 6.
    pub version: u8,
    /// Its options, in the order in which they were converted.
    pub notes: Vec<Note>,
}

/// Groups of a report, in their order, with their headings and the keys of the JSON form.
const GROUPS: [(&[Fate], &str); 4] = [
    (&[Fate::Taken, Fate::Stated], "taken over"),
    (&[Fate::Changed], "taken over with a difference"),
    (&[Fate::Missing], "not there"),
    (
        &[Fate::Unknown],
        "not an option of Centrifugo v5 or v6 that this program knows",
    ),
];

/// Signs of a name in a report.
const NAME_CHARS_MAX: usize = 200;

/// Lines of one group for people. What follows is in the JSON form.
const LINES_MAX: usize = 500;

/// A name without what a terminal would take for orders, and not longer than a line.
pub(crate) fn shown(name: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    if name.len() <= NAME_CHARS_MAX && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let short = name.chars().take(NAME_CHARS_MAX);
    short.flat_map(char::escape_debug).collect()
}

impl Note {
    /// A note on a value that was read.
    pub(crate) fn of(node: &Node, fate: Fate) -> Self {
        let variable = match &node.place {
            Place::Variable(name) => Some(name),
            Place::Line(_) | Place::Nowhere => None,
        };
        Self {
            fate,
            name: shown(variable.unwrap_or(&node.name)),
            place: node.place.clone(),
            ours: None,
            meaning: None,
            needs_decision: false,
        }
    }

    /// Where it is here.
    pub(crate) fn at(mut self, ours: impl Into<String>) -> Self {
        self.ours = Some(ours.into());
        self
    }

    /// What that means.
    pub(crate) fn meaning(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = Some(meaning.into());
        self
    }

    /// The operator has to decide.
    pub(crate) fn decide(mut self) -> Self {
        self.needs_decision = true;
        self
    }

    fn line(&self) -> String {
        let sign = if self.needs_decision { "! " } else { "  " };
        let mut line = format!("{sign}{}{}", self.name, self.place.words());
        if self.fate == Fate::Stated {
            line.push_str(" (its default)");
        }
        if let Some(ours) = &self.ours {
            let _ = write!(line, " -> {ours}");
        }
        if let Some(meaning) = &self.meaning {
            let _ = write!(line, ": {meaning}");
        }
        line
    }

    fn json(&self) -> Json {
        let mut note = json!({ "option": self.name });
        match &self.place {
            Place::Line(line) => note["line"] = json!(line),
            Place::Variable(name) => note["variable"] = json!(name),
            Place::Nowhere => {}
        }
        for (key, value) in [("here", &self.ours), ("meaning", &self.meaning)] {
            if let Some(value) = value {
                note[key] = json!(value);
            }
        }
        if self.needs_decision {
            note["decide"] = json!(true);
        }
        note
    }
}

impl Report {
    /// The notes with one of these fates.
    pub fn with<'n>(&'n self, fates: &'n [Fate]) -> impl Iterator<Item = &'n Note> {
        let notes = self.notes.iter();
        notes.filter(move |note| fates.contains(&note.fate))
    }

    /// How many options the operator has to decide about.
    #[must_use]
    pub fn decisions(&self) -> usize {
        let notes = self.notes.iter();
        notes.filter(|note| note.needs_decision).count()
    }

    /// A line for each option, under the heading of its group.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (fates, heading) in GROUPS {
            let many = self.with(fates).count();
            if many == 0 {
                continue;
            }
            let _ = writeln!(text, "{heading} ({many}):");
            for note in self.with(fates).take(LINES_MAX) {
                let _ = writeln!(text, "{}", note.line());
            }
            if many > LINES_MAX {
                let _ = writeln!(text, "  and {} more", many - LINES_MAX);
            }
        }
        let idle = self.with(&[Fate::Idle]).count();
        if idle > 0 {
            let _ = writeln!(
                text,
                "left out, because it changes nothing ({idle}): defaults of both servers, and options of what is off"
            );
        }
        match self.decisions() {
            0 => {}
            1 => text.push_str("1 option (!) needs a decision before clients come\n"),
            many => {
                let _ = writeln!(
                    text,
                    "{many} options (!) need a decision before clients come"
                );
            }
        }
        text
    }

    /// The same for programs; no values, because some are secrets.
    #[must_use]
    pub fn json(&self) -> Json {
        let notes = |fate| -> Vec<Json> { self.with(&[fate]).map(Note::json).collect() };
        json!({
            "version": self.version,
            "decisions": self.decisions(),
            "taken": notes(Fate::Taken),
            "stated": notes(Fate::Stated),
            "changed": notes(Fate::Changed),
            "missing": notes(Fate::Missing),
            "unknown": notes(Fate::Unknown),
            "idle": notes(Fate::Idle),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_orders_to_a_terminal_and_fit_a_line() {
        assert_eq!(shown("client.a[0]"), "client.a[0]");
        assert_eq!(shown("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\nb");
        assert_eq!(shown(&"x".repeat(1 << 20)).len(), NAME_CHARS_MAX);
    }

    #[test]
    fn groups_have_headings_and_decisions_a_sign() {
        let note = |fate, name: &str| Note {
            fate,
            name: name.into(),
            place: Place::Line(3),
            ours: None,
            meaning: None,
            needs_decision: false,
        };
        let report = Report {
            version: 6,
            notes: vec![
                note(Fate::Missing, "a").meaning("gone").decide(),
                note(Fate::Taken, "b").at("c"),
                note(Fate::Idle, "d"),
            ],
        };
        let expected = "taken over (1):\n  b (line 3) -> c\nnot there (1):\n! a (line 3): gone\n\
                        left out, because it changes nothing (1): defaults of both servers, and options of what is off\n\
                        1 option (!) needs a decision before clients come\n";
        assert_eq!(report.text(), expected);
        let json = report.json();
        assert_eq!(json["missing"][0]["decide"], true);
        assert_eq!(
            json["taken"][0],
            json!({"option": "b", "line": 3, "here": "c"})
        );
        assert_eq!(json["decisions"], 1);
    }
}
