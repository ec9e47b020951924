//! Small files of numbers, and errors that name the file.

use std::io;
use std::path::{Path, PathBuf};

/// A machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The file is missing, or we may not read it.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file does not say what every kernel we know says there.
    #[error("{path} does not hold {expected}, it says {found:?}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// The beginning of what is there.
        found: String,
    },
}

/// Files under one directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn text(&self, path: impl AsRef<Path>) -> Result<String, ProbeError> {
        let path = self.root.join(path);
        std::fs::read_to_string(&path).map_err(|source| ProbeError::Unreadable { path, source })
    }

    /// The text, or nothing where there is no such file.
    pub(super) fn text_if_present(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Option<String>, ProbeError> {
        match self.text(path) {
            Ok(text) => Ok(Some(text)),
            Err(ProbeError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn number(&self, path: &str) -> Result<u64, ProbeError> {
        let [number] = self.numbers(path)?;
        Ok(number)
    }

    pub(super) fn number_if_present(
        &self,
        path: impl AsRef<Path>,
    ) -> Result<Option<u64>, ProbeError> {
        let path = path.as_ref();
        let Some(text) = self.text_if_present(path)? else {
            return Ok(None);
        };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.malformed(path, "a number", &text)),
        }
    }

    /// Whether there is anything of that name.
    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.root.join(path).exists()
    }

    /// Names in a directory, sorted; none where there is no such directory.
    pub(super) fn names_in(&self, path: impl AsRef<Path>) -> Result<Vec<String>, ProbeError> {
        let path = self.root.join(path);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(ProbeError::Unreadable { path, source }),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|source| ProbeError::Unreadable {
                path: path.clone(),
                source,
            })?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Exactly `N` numbers, or nothing where there is no such file.
    pub(super) fn numbers_if_present<const N: usize>(
        &self,
        path: &str,
    ) -> Result<Option<[u64; N]>, ProbeError> {
        match self.numbers(path) {
            Ok(numbers) => Ok(Some(numbers)),
            Err(ProbeError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Exactly `N` numbers.
    pub(super) fn numbers<const N: usize>(&self, path: &str) -> Result<[u64; N], ProbeError> {
        let text = self.text(path)?;
        let numbers: Option<Vec<u64>> = text
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        numbers
            .and_then(|numbers| <[u64; N]>::try_from(numbers).ok())
            .ok_or_else(|| self.malformed(path, "that many numbers", &text))
    }

    pub(super) fn malformed(
        &self,
        path: impl AsRef<Path>,
        expected: &'static str,
        found: &str,
    ) -> ProbeError {
        let found = found.chars().take(80).collect();
        ProbeError::Malformed {
            path: self.root.join(path),
            expected,
            found,
        }
    }
}
