//! Files that a run is told to read: bounded, and never waited for.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// Largest file of tokens: 64 bytes for each of four million clients.
pub(crate) const TOKENS_BYTES_MAX: u64 = 256 << 20;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The content of a file; none where it is larger than so many bytes.
///
/// A pipe is refused: nobody may ever write to it, and a fleet reads files twice.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    if std::fs::metadata(path)?.file_type().is_fifo() {
        let said = "it is a pipe; write what comes out of it into a file first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, said));
    }
    let file = File::open(path)?;
    if file.metadata()?.len() > bytes_max {
        return Ok(None);
    }
    // Devices have no size, and may have no end.
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= bytes_max).then_some(content))
}

/// The same of a text. A byte order mark before it is no part of it: Windows writes one.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let content = read_bounded(path, bytes_max)?;
    let text = content.map(|mut content| {
        if content.starts_with(BYTE_ORDER_MARK) {
            content.drain(..BYTE_ORDER_MARK.len());
        }
        String::from_utf8(content)
    });
    let no_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
    text.transpose().map_err(no_text)
}

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read.
    #[error("{} cannot be read ({error}); check its name and permissions", path.display())]
    Unreadable {
        /// As given.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is larger than is read.
    #[error(
        "{} has more than {TOKENS_BYTES_MAX} bytes; give a shorter list, which clients take in turn",
        .0.display()
    )]
    TooLarge(PathBuf),
    /// It has no token.
    #[error("{} has no token; write one on each line", .0.display())]
    Empty(PathBuf),
}

/// Reads a file with a token on each line. Empty lines do not count.
///
/// # Errors
/// It cannot be read, is too large, or has no token.
pub fn read_tokens(path: &Path) -> Result<Vec<String>, TokensError> {
    let text = read_text(path, TOKENS_BYTES_MAX)
        .map_err(|error| TokensError::Unreadable {
            path: path.to_owned(),
            error,
        })?
        .ok_or_else(|| TokensError::TooLarge(path.to_owned()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<String> = lines.map(str::to_owned).collect();
    if tokens.is_empty() {
        return Err(TokensError::Empty(path.to_owned()));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let path = std::env::temp_dir().join(format!("myriad-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo").success());
        let refused = read_tokens(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(refused.contains("it is a pipe; write"), "{refused}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_token() {
        let path = std::env::temp_dir().join(format!("myriad-bom-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}first\r\nsecond\u{feff}\r\n").unwrap();
        let read = read_tokens(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, ["first", "second\u{feff}"]);
    }

    #[test]
    fn a_device_without_an_end_is_read_up_to_the_limit() {
        assert_eq!(read_bounded("/dev/zero".as_ref(), 100_000).unwrap(), None);
        let read = read_tokens("/dev/null".as_ref()).unwrap_err();
        assert!(matches!(read, TokensError::Empty(_)), "{read}");
    }
}
