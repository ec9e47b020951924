//! What was changed, on disk before it is.
//!
//! One JSON object a line. A line that ends early is the last one a killed process began, and its change was
//! not made: changes follow only when their line is safely on disk.

use super::steps::{Made, Target};
use super::{Root, World};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The journal cannot be used, and nothing goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be opened or read. Nothing was changed.
    #[error("the journal {path} cannot be used: {source}; name another place with --journal", path = path.display())]
    Unusable {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It could be written before, and cannot any more.
    #[error(
        "the journal {path} cannot be written any more: {source}. What was changed before is in it, and nothing further is \
         changed; make room for it, and take that back with --undo --journal {path}",
        path = path.display()
    )]
    Cut {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody has it open.
    #[error("another doctor is changing settings (it holds {path}); wait for its end", path = path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// A line in the midst of it is not ours.
    #[error("line {line} of the journal {path} is damaged ({reason}); restore what it says by hand, then remove it", path = path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// A change that is about to be made.
    Intent(Intent),
    /// It was made, or refused: what was read afterwards.
    Done { number: u64, became: Option<String> },
    /// It was taken back.
    Undone { number: u64 },
}

/// A change, and what it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    pub(super) number: u64,
    pub(super) target: Target,
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// The folder of a file, where it had to be made too.
    pub(super) new_folder: Option<PathBuf>,
    pub(super) world: World,
}

/// A change that was not taken back yet, as the journal tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) intent: Intent,
    /// What was read after the change; none where the process ended before it could.
    pub(super) became: Option<Option<String>>,
}

/// An open journal. Nobody else can open it meanwhile.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl Journal {
    /// Opens a journal, and makes it where there is none.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let unusable = |source| JournalError::Unusable {
            path: path.to_path_buf(),
            source,
        };
        let folder = folder_of(path);
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        loop {
            let file = options.open(path).map_err(unusable)?;
            if let Some(journal) = Self::lock(path, file)? {
                sync_folder(folder).map_err(unusable)?;
                return Ok(journal);
            }
        }
    }

    /// Opens a journal that is there; none where there is none.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub fn open_existing(path: &Path) -> Result<Option<Self>, JournalError> {
        loop {
            match OpenOptions::new().read(true).append(true).open(path) {
                Ok(file) => {
                    if let Some(journal) = Self::lock(path, file)? {
                        return Ok(Some(journal));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(source) => {
                    return Err(JournalError::Unusable {
                        path: path.to_path_buf(),
                        source,
                    });
                }
            }
        }
    }

    /// None where the file was taken away between opening and locking it: another run had settled it. What would be
    /// written to it then would be nowhere.
    pub(super) fn lock(path: &Path, mut file: File) -> Result<Option<Self>, JournalError> {
        let path = path.to_path_buf();
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(JournalError::Busy { path }),
            Err(std::fs::TryLockError::Error(source)) => {
                return Err(JournalError::Unusable { path, source });
            }
        }
        match is_at(&file, &path) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(source) => return Err(JournalError::Unusable { path, source }),
        }
        let mut bytes = Vec::new();
        if let Err(source) = file.read_to_end(&mut bytes) {
            return Err(JournalError::Unusable { path, source });
        }
        let (records, whole_bytes) =
            parse(&bytes).map_err(|(line, reason)| JournalError::Damaged {
                path: path.clone(),
                line,
                reason,
            })?;
        let mut journal = Self {
            path,
            file,
            records,
        };
        if whole_bytes < bytes.len() {
            // What follows must begin on a line of its own.
            let cut = journal.file.set_len(whole_bytes as u64);
            cut.and_then(|()| journal.file.seek(io::SeekFrom::End(0)).map(drop))
                .map_err(|source| journal.cut(source))?;
        }
        Ok(Some(journal))
    }

    fn cut(&self, source: io::Error) -> JournalError {
        JournalError::Cut {
            path: self.path.clone(),
            source,
        }
    }

    /// Writes a record, and returns when it is on disk.
    pub(super) fn write(&mut self, record: Record) -> Result<(), JournalError> {
        let mut line = serde_json::to_string(&record).expect("text and numbers");
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written
            .and_then(|()| self.file.sync_all())
            .map_err(|source| self.cut(source))?;
        self.records.push(record);
        Ok(())
    }

    /// The number of the next change.
    pub(super) fn next_number(&self) -> u64 {
        let numbers = self.records.iter().map(|record| match record {
            Record::Intent(intent) => intent.number,
            Record::Done { number, .. } | Record::Undone { number } => *number,
        });
        numbers.max().map_or(1, |most| most + 1)
    }

    /// Changes not taken back, the latest first.
    pub(super) fn pending(&self) -> Vec<Pending> {
        let mut pending: Vec<Pending> = Vec::new();
        for record in &self.records {
            match record {
                Record::Intent(intent) => pending.push(Pending {
                    intent: intent.clone(),
                    became: None,
                }),
                Record::Done { number, became } => {
                    let made = pending.iter_mut().find(|one| one.intent.number == *number);
                    if let Some(one) = made {
                        one.became = Some(became.clone());
                    }
                }
                Record::Undone { number } => pending.retain(|one| one.intent.number != *number),
            }
        }
        pending.reverse();
        pending
    }

    /// Settings that were changed, not taken back, and are still what they were made.
    #[must_use]
    pub fn made(&self, root: &Root) -> Vec<Made> {
        let mut made: Vec<Made> = Vec::new();
        for Pending { intent, .. } in self.pending() {
            let Target::Sysctl(key) = &intent.target else {
                continue;
            };
            let now = intent.target.read(root).ok().flatten();
            let is_known = made.iter().any(|one| one.key == *key);
            if !is_known && intent.target.same(now.as_deref(), Some(&intent.after)) {
                made.push(Made {
                    key: key.clone(),
                    value: intent.after.clone(),
                });
            }
        }
        made
    }

    /// Takes the journal away when nothing in it is left to undo.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove_if_settled(self) -> Result<(), JournalError> {
        if !self.pending().is_empty() {
            return Ok(());
        }
        let removed = std::fs::remove_file(&self.path);
        removed
            .and_then(|()| sync_folder(folder_of(&self.path)))
            .map_err(|source| self.cut(source))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether that file is still what the path names.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The records, and the bytes that they are; the rest is a line that ends early. Fails with a line and what is wrong.
fn parse(bytes: &[u8]) -> Result<(Vec<Record>, usize), (usize, String)> {
    let whole_bytes = bytes
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut records = Vec::new();
    for (index, line) in bytes[..whole_bytes]
        .split(|&byte| byte == b'\n')
        .enumerate()
    {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice(line) {
            Ok(record) => records.push(record),
            Err(error) => return Err((index + 1, error.to_string())),
        }
    }
    Ok((records, whole_bytes))
}

pub(super) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file's name is on disk only when its folder is.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
