//! The calling thread's descriptor table: its size, what is open in it, and a table of one's own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::RawFd;

/// Raises the soft RLIMIT_NOFILE to the hard one and returns it: the slots of one descriptor table.
///
/// # Errors
/// `getrlimit` or `setrlimit` failed.
pub fn descriptor_limit() -> io::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    // `None` is RLIM_INFINITY, which `fs.nr_open` keeps the kernel from ever granting for descriptors.
    Ok(limit
        .maximum
        .and_then(|maximum| usize::try_from(maximum).ok())
        .unwrap_or(usize::MAX))
}

/// Descriptors open in the calling thread's table.
pub(super) fn open_descriptors() -> io::Result<usize> {
    // Reading the directory holds one more descriptor, which is among those listed.
    Ok(std::fs::read_dir("/proc/thread-self/fd")?
        .count()
        .saturating_sub(1))
}

/// Gives the calling thread a descriptor table of its own (`unshare(CLONE_FILES)`), with only stdio and `keep` in it.
///
/// Everything else is closed in this table only, without its owners knowing: the thread must not own,
/// drop or use any other descriptor afterwards.
///
/// # Errors
/// The kernel refused.
pub fn unshare_descriptors(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: the caller is told above that this thread sees no descriptor but `keep` afterwards.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }?;
    let mut kept: Vec<u32> = keep
        .iter()
        .filter_map(|&fd| u32::try_from(fd).ok())
        .filter(|&fd| fd > 2)
        .collect();
    kept.sort_unstable();
    let mut first = 3;
    for fd in kept {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // The raw number, because musl has no wrapper.
    // SAFETY: the table is this thread's own, and what is closed in it is not used here any more.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
