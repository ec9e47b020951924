//! What a log needs of a file system, and nothing else. [`real`] is a directory, [`sim`] one in memory that crashes and fails.

pub mod real;
pub mod sim;

use std::io::{self, ErrorKind};

/// A directory of files, which belongs to one process at a time.
///
/// A name is safe from a power cut only after [`Disk::sync_directory`], and a file's bytes only after [`DiskFile::sync`].
pub trait Disk {
    /// An open file. A clone is the same file.
    type File: DiskFile;

    /// Takes the directory for this process, until the disk is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it.
    fn lock(&mut self) -> io::Result<()>;

    /// Makes a file that does not exist yet.
    ///
    /// # Errors
    /// There is such a file, or the disk fails.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;

    /// Opens a file that exists.
    ///
    /// # Errors
    /// There is none, or the disk fails.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Names of the files, in any order.
    ///
    /// # Errors
    /// The disk fails.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a file. Whoever has it open can read on.
    ///
    /// # Errors
    /// There is none, or the disk fails.
    fn remove(&mut self, name: &str) -> io::Result<()>;

    /// Gives a file another name, and replaces what has that name.
    ///
    /// # Errors
    /// There is no such file, or the disk fails.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Returns when the names of all files are safe.
    ///
    /// # Errors
    /// The disk fails. What is safe is unknown then.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// A file of a [`Disk`].
pub trait DiskFile: Clone {
    /// Writes all of these bytes at a place, which may be the file's end.
    ///
    /// # Errors
    /// The disk is full or fails. Some of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Reads from a place, as much as fits and is there. Returns the number of bytes.
    ///
    /// # Errors
    /// The disk fails.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// The disk fails.
    fn size(&self) -> io::Result<u64>;

    /// Cuts the file.
    ///
    /// # Errors
    /// The disk fails.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Returns when the bytes of the file and its size are safe (fdatasync).
    ///
    /// # Errors
    /// The disk fails. What is safe is unknown then, and another call that succeeds does not change that: the kernel may have
    /// dropped the bytes that it could not write.
    fn sync(&self) -> io::Result<()>;
}

/// Whether a failed write may succeed later, when there is room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded
    )
}

/// Reads as much as there is, up to the end of the buffer.
pub(crate) fn read_full(file: &impl DiskFile, into: &mut [u8], mut at: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match file.read_at(&mut into[count..], at)? {
            0 => break,
            read => {
                count += read;
                at += read as u64;
            }
        }
    }
    Ok(count)
}
