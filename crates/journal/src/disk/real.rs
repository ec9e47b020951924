//! A directory of the file system.

use super::{Disk, DiskFile};
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// A directory. Its lock is an flock of the directory itself, which ends with the process, whatever ends that.
#[derive(Debug)]
pub struct RealDisk {
    directory: OwnedFd,
    access: OFlags,
}

impl RealDisk {
    /// A directory that exists.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_access(path, OFlags::RDWR)
    }

    /// A directory whose files are only read.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn read_only(path: &Path) -> io::Result<Self> {
        Self::with_access(path, OFlags::RDONLY)
    }

    fn with_access(path: &Path, access: OFlags) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty())?;
        Ok(Self { directory, access })
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn lock(&mut self) -> io::Result<()> {
        Ok(fs::flock(
            &self.directory,
            FlockOperation::NonBlockingLockExclusive,
        )?)
    }

    fn create(&mut self, name: &str) -> io::Result<RealFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        let file = fs::openat(&self.directory, name, flags, mode)?;
        Ok(RealFile(Arc::new(file)))
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let flags = self.access | OFlags::CLOEXEC;
        let file = fs::openat(&self.directory, name, flags, Mode::empty())?;
        Ok(RealFile(Arc::new(file)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::Dir::read_from(&self.directory)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            // A name that is no text is none of ours.
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        Ok(fs::fsync(&self.directory)?)
    }
}

/// A file of a [`RealDisk`].
#[derive(Clone, Debug)]
pub struct RealFile(Arc<OwnedFd>);

impl DiskFile for RealFile {
    fn write_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = rustix::io::retry_on_intr(|| rustix::io::pwrite(&*self.0, bytes, at))?;
            if count == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes = &bytes[count..];
            at += count as u64;
        }
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let count = rustix::io::retry_on_intr(|| rustix::io::pread(&*self.0, &mut *into, at))?;
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        let size = fs::fstat(&*self.0)?.st_size;
        u64::try_from(size).map_err(|_| ErrorKind::InvalidData.into())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&*self.0, size)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&*self.0)?)
    }
}
