//! Where the forms of the report go: each is opened before the run, and written at its end.

use crate::run::RunError;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Where one form of the report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output, which then carries nothing else.
    StandardOutput,
    /// A file, a pipe or a device.
    File(PathBuf),
}

impl From<PathBuf> for Destination {
    /// As on the command line: `-` is standard output.
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::StandardOutput
        } else {
            Self::File(path)
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandardOutput => f.write_str("standard output"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A destination that is open.
#[derive(Debug)]
pub(crate) struct Output {
    destination: Destination,
    /// None stands for standard output.
    file: Option<File>,
}

impl Output {
    /// Opens a destination. What a file holds stays until [`Self::write`], so that a run that fails destroys nothing.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn open(destination: &Destination) -> Result<Self, RunError> {
        let file = match destination {
            Destination::StandardOutput => None,
            Destination::File(path) => {
                let opened = File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(path);
                Some(opened.map_err(|error| write_error(destination, error))?)
            }
        };
        Ok(Self {
            destination: destination.clone(),
            file,
        })
    }

    /// Replaces the content with `text`.
    ///
    /// # Errors
    /// It cannot be written. A reader that has seen enough, such as `head`, is no error.
    pub(crate) fn write(&mut self, text: &[u8]) -> Result<(), RunError> {
        let written = match &mut self.file {
            Some(file) => replace(file, text),
            None => {
                let mut out = io::stdout().lock();
                out.write_all(text).and_then(|()| out.flush())
            }
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|error| write_error(&self.destination, error)),
        }
    }
}

fn replace(file: &mut File, text: &[u8]) -> io::Result<()> {
    // Pipes and devices have no length to set.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}

fn write_error(destination: &Destination, error: io::Error) -> RunError {
    RunError::Write {
        path: destination.to_string().into(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("myriad-output-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_dash_is_standard_output() {
        assert_eq!(
            Destination::from(PathBuf::from("-")),
            Destination::StandardOutput
        );
        let file = PathBuf::from("./-");
        assert_eq!(Destination::from(file.clone()), Destination::File(file));
    }

    #[test]
    fn opening_keeps_the_content_and_writing_replaces_it() {
        let path = path("kept");
        std::fs::write(&path, "a long report of an earlier run").unwrap();
        let mut output = Output::open(&Destination::File(path.clone())).unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, "a long report of an earlier run");
        output.write(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_cannot_be_opened_says_which_file() {
        let folder = path("no-folder").join("report.json");
        let error = Output::open(&Destination::File(folder)).unwrap_err();
        assert!(error.to_string().contains("report.json"), "{error}");
    }

    #[test]
    fn a_device_that_is_full_fails_at_the_end() {
        let mut output = Output::open(&Destination::File("/dev/full".into())).unwrap();
        let error = output.write(b"{}").unwrap_err();
        assert!(error.to_string().contains("/dev/full"), "{error}");
    }
}
