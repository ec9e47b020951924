//! The file of the report: opened before the run, and written at its end.

use crate::report::Report;
use crate::run::DemoError;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// A file that is open.
#[derive(Debug)]
pub(crate) struct JsonFile<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> JsonFile<'a> {
    /// Opens the file. What it holds stays until [`Self::write`], so that a run that fails destroys nothing.
    pub(crate) fn open(path: &'a Path) -> Result<Self, DemoError> {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = opened.map_err(|source| error(path, source))?;
        Ok(Self { path, file })
    }

    /// Replaces the content with the report.
    pub(crate) fn write(mut self, report: &Report) -> Result<(), DemoError> {
        let text = serde_json::to_string_pretty(report).expect("a report has only string keys");
        let written = self.replace(&(text + "\n"));
        written.map_err(|source| error(self.path, source))
    }

    fn replace(&mut self, text: &str) -> io::Result<()> {
        // Pipes and devices have no length to set.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }
}

fn error(path: &Path, source: io::Error) -> DemoError {
    DemoError::Json {
        path: path.to_owned(),
        source,
    }
}
