//! A directory in memory that keeps no more than was synced, for tests: here and of whoever has a log.
//!
//! A crash leaves of each file what was synced, and any of the 512-byte sectors written since; of the directory what was synced, and any
//! of its changes since.

use super::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What goes wrong, until it is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Bytes that fit; none: any number.
    pub room: Option<u64>,
    /// Syncs of files fail, and what they should have made safe is lost.
    pub sync_fails: bool,
    /// Syncs succeed, and make nothing safe.
    pub sync_lies: bool,
    /// Nothing can be written.
    pub read_only: bool,
    /// Operations until the machine crashes: from then on each one fails.
    pub crash_after: Option<u64>,
    /// Virtual milliseconds that a sync takes.
    pub sync_ms: u64,
}

/// The directory. A clone is the same one.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, u64>,
    /// The names that a crash leaves, and what has been changed since.
    safe_names: BTreeMap<String, u64>,
    changes: Vec<Change>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    faults: Faults,
    is_locked: bool,
    /// Starts of the machine. Files that were open before one are closed.
    starts: u64,
    operations: u64,
    slept_ms: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Added(String, u64),
    Removed(String),
    Renamed(String, String, u64),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    safe: Vec<u8>,
    unsafe_writes: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    Bytes(usize, Vec<u8>),
    Cut(usize),
}

impl SimDisk {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what goes wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// What goes wrong now.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.state().faults
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Virtual milliseconds that syncs have taken.
    #[must_use]
    pub fn slept_ms(&self) -> u64 {
        self.state().slept_ms
    }

    /// The machine stops, and starts with what it finds. `random` gives numbers of 64 bits.
    pub fn crash(&self, mut random: impl FnMut() -> u64) {
        let mut state = self.state();
        let state = &mut *state;
        state.starts += 1;
        state.is_locked = false;
        state.faults = Faults::default();
        state.leave_names(&mut random);
        let names = &state.names;
        state
            .files
            .retain(|file, _| names.values().any(|one| one == file));
        for content in state.files.values_mut() {
            content.crash(&mut random);
        }
    }

    /// The process ends, and the machine goes on: everything written stays.
    pub fn kill(&self) {
        let mut state = self.state();
        state.starts += 1;
        state.is_locked = false;
        state.faults.crash_after = None;
    }

    /// Flips a bit of a file, as a bad disk does. False if there is no such byte.
    pub fn flip(&self, name: &str, at: usize, bit: u8) -> bool {
        let mut state = self.state();
        let Some(&file) = state.names.get(name) else {
            return false;
        };
        let Some(content) = state.files.get_mut(&file) else {
            return false;
        };
        for bytes in [&mut content.bytes, &mut content.safe] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
            }
        }
        at < content.bytes.len()
    }

    /// Bytes of a file, as they are now.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let file = state.names.get(name)?;
        state.files.get(file).map(|content| content.bytes.clone())
    }
}

impl State {
    fn begin(&mut self) -> io::Result<()> {
        self.operations += 1;
        if let Some(left) = &mut self.faults.crash_after {
            if *left == 0 {
                return Err(io::Error::other("the machine has stopped"));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn begin_write(&mut self) -> io::Result<()> {
        self.begin()?;
        if self.faults.read_only {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    }

    fn used(&self) -> u64 {
        self.files.values().map(|one| one.bytes.len() as u64).sum()
    }

    /// Of the changes of names, any prefix and any of the rest stay: file systems with a journal keep their order, others do not.
    fn leave_names(&mut self, random: &mut impl FnMut() -> u64) {
        let kept = usize::try_from(random() % (self.changes.len() as u64 + 1)).unwrap_or(0);
        let any_of_rest = random().is_multiple_of(2);
        for (index, change) in std::mem::take(&mut self.changes).into_iter().enumerate() {
            if index < kept || any_of_rest && random().is_multiple_of(2) {
                change.apply(&mut self.safe_names);
            }
        }
        self.names = self.safe_names.clone();
    }
}

impl Change {
    fn apply(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Added(name, file) => {
                names.insert(name, file);
            }
            Self::Removed(name) => {
                names.remove(&name);
            }
            Self::Renamed(from, to, file) => {
                names.remove(&from);
                names.insert(to, file);
            }
        }
    }
}

impl Content {
    /// Makes safe what was written since the last sync. Bytes that a failed sync has dropped stay lost.
    fn sync(&mut self) {
        for write in std::mem::take(&mut self.unsafe_writes) {
            match write {
                Write::Cut(size) => self.safe.truncate(size),
                Write::Bytes(at, bytes) => put(&mut self.safe, at, &bytes),
            }
        }
    }

    fn crash(&mut self, random: &mut impl FnMut() -> u64) {
        // How likely a sector is there: none, all, or some of them.
        let share = [0, 4, 1, 2, 3][usize::try_from(random() % 5).unwrap_or(0)];
        for write in std::mem::take(&mut self.unsafe_writes) {
            match write {
                Write::Cut(size) if random() % 4 < share => self.safe.truncate(size),
                Write::Cut(_) => {}
                Write::Bytes(at, bytes) => {
                    for (from, sector) in sectors(at, &bytes) {
                        if random() % 4 < share {
                            put(&mut self.safe, from, sector);
                        }
                    }
                }
            }
        }
        self.bytes.clone_from(&self.safe);
    }
}

/// A write in the parts that lie in one sector each.
fn sectors(mut at: usize, mut bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let count = (SECTOR - at % SECTOR).min(bytes.len());
        parts.push((at, &bytes[..count]));
        bytes = &bytes[count..];
        at += count;
    }
    parts
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if into.len() < end {
        into.resize(end, 0);
    }
    into[at..end].copy_from_slice(bytes);
}

impl Disk for SimDisk {
    type File = SimFile;

    fn lock(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        if std::mem::replace(&mut state.is_locked, true) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(())
    }

    fn create(&mut self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        state.begin_write()?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        state.next_file += 1;
        let file = state.next_file;
        state.files.insert(file, Content::default());
        state.names.insert(name.to_owned(), file);
        state.changes.push(Change::Added(name.to_owned(), file));
        let start = state.starts;
        drop(state);
        Ok(SimFile {
            disk: self.clone(),
            file,
            start,
        })
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        state.begin()?;
        let Some(&file) = state.names.get(name) else {
            return Err(ErrorKind::NotFound.into());
        };
        Ok(SimFile {
            disk: self.clone(),
            file,
            start: state.starts,
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.begin()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin_write()?;
        if state.names.remove(name).is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        state.changes.push(Change::Removed(name.to_owned()));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.begin_write()?;
        let Some(file) = state.names.remove(from) else {
            return Err(ErrorKind::NotFound.into());
        };
        state.names.insert(to.to_owned(), file);
        let change = Change::Renamed(from.to_owned(), to.to_owned(), file);
        state.changes.push(change);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        if !state.faults.sync_lies {
            state.changes.clear();
            state.safe_names = state.names.clone();
        }
        Ok(())
    }
}

/// A file of a [`SimDisk`].
#[derive(Clone, Debug)]
pub struct SimFile {
    disk: SimDisk,
    file: u64,
    start: u64,
}

impl SimFile {
    fn with<T>(
        &self,
        is_write: bool,
        then: impl FnOnce(&mut State, u64) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.starts != self.start {
            return Err(io::Error::other("opened before the machine started"));
        }
        if is_write {
            state.begin_write()?;
        } else {
            state.begin()?;
        }
        then(&mut state, self.file)
    }
}

fn content(state: &mut State, file: u64) -> io::Result<&mut Content> {
    let found = state.files.get_mut(&file);
    found.ok_or_else(|| ErrorKind::NotFound.into())
}

fn index(at: u64) -> io::Result<usize> {
    usize::try_from(at).map_err(|_| ErrorKind::FileTooLarge.into())
}

impl DiskFile for SimFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.with(true, |state, file| {
            let at = index(at)?;
            let size = content(state, file)?.bytes.len();
            let grows = (at + bytes.len()).saturating_sub(size) as u64;
            let room = state
                .faults
                .room
                .map(|room| room.saturating_sub(state.used()));
            let lacking = room.map_or(0, |room| grows.saturating_sub(room));
            let fitting = bytes.len().saturating_sub(index(lacking)?);
            let content = content(state, file)?;
            let written = &bytes[..fitting];
            put(&mut content.bytes, at, written);
            content
                .unsafe_writes
                .push(Write::Bytes(at, written.to_vec()));
            if lacking > 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(())
        })
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(false, |state, file| {
            let bytes = &content(state, file)?.bytes;
            let from = index(at)?.min(bytes.len());
            let count = into.len().min(bytes.len() - from);
            into[..count].copy_from_slice(&bytes[from..from + count]);
            Ok(count)
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.with(false, |state, file| {
            Ok(content(state, file)?.bytes.len() as u64)
        })
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.with(true, |state, file| {
            let content = content(state, file)?;
            let size = index(size)?;
            content.bytes.truncate(size);
            content.unsafe_writes.push(Write::Cut(size));
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(true, |state, file| {
            state.slept_ms += state.faults.sync_ms;
            let Faults {
                sync_fails,
                sync_lies,
                ..
            } = state.faults;
            let content = content(state, file)?;
            if sync_lies {
                return Ok(());
            }
            if sync_fails {
                // The kernel counts the pages as clean, so that no later sync writes them.
                content.unsafe_writes.clear();
                return Err(io::Error::other("the disk does not write"));
            }
            content.sync();
            Ok(())
        })
    }
}
