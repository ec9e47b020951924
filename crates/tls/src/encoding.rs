//! Writing what rustls encodes behind what a buffer contains.

use crate::end::End;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError};

/// Room that most messages of rustls fit in, beside long data.
const ROOM: usize = 512;

/// What an attempt to encode came to.
pub(crate) enum Encoded {
    /// So many bytes were written.
    Written(usize),
    /// So many bytes of room are needed.
    Needs(usize),
    /// There is nothing to write.
    Nothing,
}

impl From<Result<usize, EncodeError>> for Encoded {
    fn from(result: Result<usize, EncodeError>) -> Self {
        match result {
            Ok(written) => Self::Written(written),
            Err(EncodeError::InsufficientSize(needed)) => Self::Needs(needed.required_size),
            Err(EncodeError::AlreadyEncoded) => Self::Nothing,
        }
    }
}

impl From<Result<usize, EncryptError>> for Encoded {
    fn from(result: Result<usize, EncryptError>) -> Self {
        match result {
            Ok(written) => Self::Written(written),
            Err(EncryptError::InsufficientSize(needed)) => Self::Needs(needed.required_size),
            Err(EncryptError::EncryptExhausted) => Self::Nothing,
        }
    }
}

/// Lets `encode` write behind what is in `buffer`, into as many bytes as it needs. False if it writes nothing.
pub(crate) fn write(buffer: &mut Vec<u8>, mut encode: impl FnMut(&mut [u8]) -> Encoded) -> bool {
    let start = buffer.len();
    let mut room = ROOM;
    loop {
        buffer.resize(start + room, 0);
        let (is_written, length) = match encode(&mut buffer[start..]) {
            Encoded::Written(written) => (true, written),
            Encoded::Needs(needed) if needed > room => {
                room = needed;
                continue;
            }
            Encoded::Needs(_) | Encoded::Nothing => (false, 0),
        };
        buffer.truncate(start + length);
        return is_written;
    }
}

/// Writes the alert that rustls has queued. It must not read any more, so it is asked only while it has something.
pub(crate) fn take_alert<E: End>(connection: &mut E, answers: &mut Vec<u8>) {
    while connection.state().wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut alert)) = connection.process(&mut []).state
        else {
            return;
        };
        write(answers, |room| Encoded::from(alert.encode(room)));
    }
}
