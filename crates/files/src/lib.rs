//! Small files that an operator names: configurations, certificates, keys, credentials.
//!
//! A program that runs reads them again. At that moment a name may be a pipe, a device or a file without an end. A plain read would
//! wait for ever, or take all memory. A file system that hangs still blocks: read on a thread that may block.
#![forbid(unsafe_code)]

use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// For [`OpenOptionsExt::custom_flags`]. With it `open` does not wait for the other end of a pipe.
#[expect(clippy::cast_possible_wrap, reason = "the flags of open(2) are an int")]
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// The content of a file that has `mebibytes_max` MiB at most.
///
/// # Errors
/// It cannot be read, or is larger, or is a pipe or a device: reading that could last for ever.
pub fn read(path: &Path, mebibytes_max: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(NONBLOCK);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is a pipe or a device, and no file"));
    }
    // The length that the file system tells is no bound: files of /proc have 0, and others may grow.
    let bytes_max = mebibytes_max << 20;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let advice = format!("it has more than {mebibytes_max} MiB");
        return Err(io::Error::other(advice));
    }
    Ok(bytes)
}

/// The same of a text.
///
/// # Errors
/// As [`read()`], or it is no text in UTF-8.
pub fn read_text(path: &Path, mebibytes_max: u64) -> io::Result<String> {
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
    String::from_utf8(read(path, mebibytes_max)?).map_err(no_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;

    #[test]
    fn what_is_no_small_file_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("myriad-files-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        let file = folder.join("file");
        fs::write(&file, "text").expect("a file");
        assert_eq!(read_text(&file, 1).expect("text"), "text");
        let pipe = folder.join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let (large, junk) = (folder.join("large"), folder.join("junk"));
        let sparse = fs::File::create(&large).expect("a file");
        sparse.set_len((1 << 20) + 1).expect("a length");
        fs::write(&junk, [0xff, 0xfe]).expect("a file");
        for (path, said) in [
            (&*pipe, "it is a pipe or a device, and no file"),
            (
                Path::new("/dev/zero"),
                "it is a pipe or a device, and no file",
            ),
            (&*folder, "is a directory"),
            (&*folder.join("none"), "No such file"),
            (&*large, "it has more than 1 MiB"),
            (&*junk, "it is no text in UTF-8"),
        ] {
            let error = read_text(path, 1).expect_err(said).to_string();
            assert!(error.contains(said), "{}: {error}", path.display());
        }
        assert_eq!(read(&large, 2).expect("bytes").len(), (1 << 20) + 1);
        fs::remove_dir_all(&folder).expect("a folder");
    }
}
