//! Scenario files: a run as a TOML file, which fills the same [`Config`] as the options of the command line.
//!
//! * `format`: the sections and keys, and their JSON schema; `arrival` has those about how clients come,
//!   `incidents` those about how they drop and come back;
//! * `quantity`: values that are written as options are;
//! * `document`: the text with the place of each key, what `--set` changes, and variables;
//! * `fill`: from the format to a [`Config`]; `talk` has what clients and callers say, `framing` how messages are told apart;
//! * `fault`: what is wrong, with its line; `keys` has the keys by the options that the checks of a run speak of, `misread` what
//!   somebody has probably meant.

mod arrival;
mod document;
mod fault;
mod fill;
mod format;
mod framing;
mod incidents;
mod keys;
mod misread;
mod quantity;
mod talk;

pub use fault::{Fault, Place, Problem, ScenarioError};
pub use keys::key_of_option;
pub(crate) use keys::nearest_key;
pub use quantity::{position, time_range};

use crate::config::{About, Config, FlowError};
use crate::config_error::ConfigError;
use crate::engine::flows::groups::GroupsMisfit;
use crate::files::read_text;
use document::Document;
use std::path::Path;

/// Largest scenario file, in bytes.
const SCENARIO_BYTES_MAX: u64 = 4 << 20;

/// The number of clients.
pub(crate) const COUNT_KEY: &str = "terminals.count";

/// A commented scenario that runs as it is against `myriad serve --dev`.
pub const STARTER: &str = include_str!("starter.toml");

/// A scenario that can be read. Whether it can be run says [`crate::run`].
#[derive(Clone, Debug)]
pub struct Scenario {
    document: Document,
    /// The run that it describes.
    pub config: Config,
}

impl Scenario {
    /// Reads a file. Each of `sets` is `KEY=VALUE`, and takes the place of what the file says.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is wrong.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, ScenarioError> {
        let unreadable = |error| ScenarioError::Read {
            path: path.to_owned(),
            error,
        };
        let text = read_text(path, SCENARIO_BYTES_MAX).map_err(unreadable)?;
        let text = text.ok_or_else(|| ScenarioError::Large {
            path: path.to_owned(),
            bytes_max: SCENARIO_BYTES_MAX,
        })?;
        Self::parse(path, &text, sets)
    }

    /// The same with the text of the file.
    ///
    /// # Errors
    /// Something in it is wrong.
    pub fn parse(path: &Path, text: &str, sets: &[String]) -> Result<Self, ScenarioError> {
        let document = Document::parse(path, text, sets)?;
        let scenario = document.scenario()?;
        Self::filled(document, scenario)
    }

    /// The same with the text of somebody who may not read this machine's files: those that it names have to be in `folder`.
    ///
    /// # Errors
    /// Something in it is wrong, or it names another file, which is not looked at.
    pub(crate) fn parse_handed(
        folder: &Path,
        path: &Path,
        text: &str,
        sets: &[String],
    ) -> Result<Self, ScenarioError> {
        let document = Document::parse(path, text, sets)?;
        let scenario = document.scenario()?;
        let is_strange = |(_, file): &(&str, &str)| Path::new(file).parent() != Some(folder);
        if let Some((key, file)) = scenario.files().find(is_strange) {
            let said = "it was not handed over".to_owned();
            return Err(document.fault(key, Problem::File(file.into(), said)));
        }
        Self::filled(document, scenario)
    }

    fn filled(document: Document, scenario: format::Scenario) -> Result<Self, ScenarioError> {
        let folder = document.path().parent().unwrap_or(Path::new(""));
        let stem = document.path().file_stem();
        let about = About {
            scenario: stem.map(|stem| stem.to_string_lossy().into_owned()),
            description: scenario.description.clone(),
            command: None,
        };
        let mut config = fill::config(scenario, folder)
            .map_err(|(key, problem)| document.fault(key, problem))?;
        config.about = about;
        Ok(Self { document, config })
    }

    /// The key to change for another number of clients: `terminals.count`, or the variable that it is. Thresholds that name the
    /// same variable follow then.
    pub(crate) fn count_key(&self) -> String {
        self.document.count_key()
    }

    /// The same scenario with another number of clients.
    ///
    /// # Errors
    /// Something in it is wrong with that number.
    pub fn with_count(&self, count: u64) -> Result<Self, ScenarioError> {
        let mut sets = self.sets();
        sets.push(format!("{}={count}", self.count_key()));
        Self::parse(self.path(), self.text(), &sets)
    }

    /// What was changed, as `KEY=VALUE` each.
    pub(crate) fn sets(&self) -> Vec<String> {
        self.document.sets()
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.document.path()
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> &str {
        self.document.text()
    }

    /// The text or number that the scenario has at a key, such as `terminals.count` or `flows.NAME.rate`.
    #[must_use]
    pub fn value_of(&self, key: &str) -> Option<String> {
        self.document.value_of(key)
    }

    /// What is wrong with the scenario where its run cannot be begun.
    #[must_use]
    pub fn explain(&self, error: ConfigError) -> ScenarioError {
        if let ConfigError::Flow(key, FlowError::Groups(misfit)) = &error {
            let problem = Problem::Value(self.explained_groups(misfit));
            return self.document.fault(key, problem);
        }
        if let ConfigError::Flow(key, _) = &error {
            let key = key.clone();
            return self.document.fault(&key, Problem::Config(error));
        }
        if let ConfigError::Header(name) | ConfigError::LengthHeader(name) = &error {
            let key = format!("terminals.headers.{name}");
            return self.document.fault(&key, Problem::Config(error));
        }
        if let ConfigError::Variable("targets", problem) = error {
            let problem = Problem::Value(problem.to_string());
            return self.document.fault("terminals.targets", problem);
        }
        if let ConfigError::Threshold(expression, problem) = error {
            return match self.document.threshold_key(&expression) {
                Some(key) => self.document.fault(&key, Problem::Threshold(problem)),
                None => ScenarioError::Threshold(expression, problem),
            };
        }
        if let ConfigError::Framing(key, _) = error {
            return self.document.fault(key, Problem::Config(error));
        }
        let message = error.to_string();
        let key = keys::first_key(&message).unwrap_or("terminals");
        self.document.fault(key, Problem::Config(error))
    }

    /// Why clients cannot be dealt out to groups, with the variable to change where the number of groups is one.
    fn explained_groups(&self, misfit: &GroupsMisfit) -> String {
        match self.document.variable_of("groups.count") {
            Some(name) => misfit.said(&format!("--var {name}=N")),
            None => misfit.to_string(),
        }
    }
}

/// The JSON schema of scenarios.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(format::Scenario);
    serde_json::to_string_pretty(&schema).expect("a schema is JSON")
}

#[cfg(test)]
mod tests;
