//! A configuration of Centrifugo as one of ours, and what changes with it.
//!
//! [`import`] takes what somebody wrote for Centrifugo 5 or 6 (JSON, YAML, TOML, variables of the environment), and makes a config file
//! and a [`Report`]. It touches no file and no network. The steps: `source` reads a text, `environment` puts variables over it,
//! `layout` turns version 5 into version 6, and `convert` goes through the rows of [`table`].
#![forbid(unsafe_code)]

mod convert;
mod environment;
mod layout;
mod output;
#[cfg(test)]
mod page;
mod report;
mod source;
pub mod table;
mod tree;
mod value;

pub use environment::{EnvFileError, Variables, read_env_file};
pub use layout::Layout;
pub use report::{Fate, Note, Report};
pub use source::{FILE_BYTES_MAX, Language, Node, Place, SourceError, Value};

use std::fmt;
use std::path::Path;
use thiserror::Error;

/// Whether a file can be read where the server will run. What cannot be read is written as a comment.
pub type Files<'f> = &'f dyn Fn(&str) -> bool;

/// What somebody wrote.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'s> {
    /// The name and the text of the config file, if there is one; at most [`FILE_BYTES_MAX`].
    pub file: Option<(&'s Path, &'s str)>,
    /// Variables; those that do not begin with `CENTRIFUGO_` mean nothing.
    pub variables: Option<&'s Variables>,
    /// The layout, if it is known; otherwise the names tell it.
    pub layout: Option<Layout>,
}

/// A config file of ours, and what became of each option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The file. It may have secrets in it.
    pub text: String,
    /// What became of each option; without values, and so without secrets.
    pub report: Report,
}

/// A value that its option cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The option's path as it is written.
    pub name: String,
    /// Where.
    pub place: Place,
    /// What is written; hidden if it is secret.
    pub value: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(line) => write!(f, "line {line}: ")?,
            Place::Variable(name) if *name == self.name => f.write_str("variable ")?,
            Place::Variable(name) => write!(f, "variable {name}: ")?,
            Place::Nowhere => {}
        }
        let name = report::shown(&self.name);
        write!(f, "{name} = {}: {}", self.value, self.advice)
    }
}

/// Something that cannot be imported. Whoever wrote it erred.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ImportError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] SourceError),
    /// A variable cannot be read.
    #[error("variable {name}: {cause}")]
    Variable {
        /// Its name.
        name: String,
        /// Why.
        cause: SourceError,
    },
    /// Values that their options cannot have.
    #[error("{} values cannot be used", .0.len())]
    Values(Vec<Fault>),
    /// There is not one option.
    #[error("there is no option of Centrifugo in it")]
    Nothing,
}

/// The most faults that are told.
const FAULTS_MAX: usize = 50;

/// Makes a config file of what somebody wrote for Centrifugo.
///
/// # Errors
/// It cannot be read, or values cannot be used.
pub fn import(source: Source<'_>, files: Files<'_>) -> Result<Imported, ImportError> {
    let none = Variables::new();
    let variables = environment::ours(source.variables.unwrap_or(&none));
    let mut tree = match source.file {
        Some((path, text)) => source::read(text, Language::of(path, text))?,
        None => Node::made(Value::Table(Vec::new())),
    };
    let is_empty = tree.value == Value::Table(Vec::new());
    if is_empty && variables.is_empty() {
        return Err(ImportError::Nothing);
    }
    let layout = source
        .layout
        .or_else(|| Layout::of(&tree))
        .or_else(|| environment::layout(&variables))
        .unwrap_or(Layout::V6);
    let mut notes = Vec::new();
    environment::overlay(&mut tree, &variables, layout, &mut notes)
        .map_err(|(name, cause)| ImportError::Variable { name, cause })?;
    if layout == Layout::V5 {
        tree = layout::to_v6(tree, &mut notes);
    }
    let done = convert::Import::run(tree, layout, files);
    if !done.faults.is_empty() {
        let mut faults = done.faults;
        faults.sort_by(|one, other| one.place.cmp(&other.place));
        faults.truncate(FAULTS_MAX);
        return Err(ImportError::Values(faults));
    }
    notes.extend(done.notes);
    Ok(Imported {
        text: done.output.text(&head(layout)),
        report: Report {
            version: layout.version(),
            notes,
        },
    })
}

/// What stands at the top of the file.
fn head(layout: Layout) -> String {
    format!(
        "Made by `myriad config import` from a configuration of Centrifugo {}. docs/centrifugo.md says what is different.\n\
         It may have secrets in it: let nobody else read it.",
        layout.version()
    )
}
