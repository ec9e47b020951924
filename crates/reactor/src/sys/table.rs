//! The calling thread's descriptor table: its size, its open descriptors, and how to unshare it.

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
    // `None` is RLIM_INFINITY. The kernel never grants it for descriptors, because of `fs.nr_open`.
    Ok(limit
        .maximum
        .and_then(|maximum| usize::try_from(maximum).ok())
        .unwrap_or(usize::MAX))
}

/// Number of open descriptors in the calling thread's table.
pub(super) fn open_descriptors() -> io::Result<usize> {
    // The directory's own descriptor is in the list.
    Ok(std::fs::read_dir("/proc/thread-self/fd")?
        .count()
        .saturating_sub(1))
}

/// Gives the calling thread a descriptor table of its own (`unshare(CLONE_FILES)`), with only stdio and `keep` in it.
///
/// All other descriptors are closed in this table only, and their owners do not know it. Afterwards the thread must
/// not own, drop or use any other descriptor.
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
    // By number, because musl has no wrapper.
    // SAFETY: the table is this thread's own, and what is closed in it is not used here any more.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
