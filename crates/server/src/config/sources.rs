//! Where options come from, in their order: flags stand over the file.

use super::{ConfigError, Options};
use std::path::PathBuf;

/// Where the options of a server come from, so that they can be read again.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// What the command line says.
    pub flags: Options,
    /// The config file.
    pub file: Option<PathBuf>,
}

impl Sources {
    /// Reads all of them, as they are now.
    ///
    /// # Errors
    /// The file cannot be read, or something in it cannot be understood; the error says where.
    pub fn read(&self) -> Result<Options, ConfigError> {
        let file = match &self.file {
            Some(path) => Options::from_file(path)?,
            None => Options::default(),
        };
        Ok(self.flags.clone().over(file))
    }
}
