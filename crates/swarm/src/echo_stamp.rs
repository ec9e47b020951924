//! The stamp in a message that the server is to send back, by which the answer is known.
//!
//! `myriad-echo/RRRR/NNNNNNNNNNNN/` and dots: the run and the message's number in it, in lower-case hexadecimal. It
//! carries no time: messages fall due by a schedule, so that the number says when. It is no part of what
//! [`crate::stamp`] looks for, so that a publication is never taken for an answer.

use memchr::memmem;

/// What every stamp begins with.
const PREFIX: &[u8] = b"myriad-echo/";

/// Bytes of a stamp without padding: the smallest message.
pub const ECHO_STAMP_BYTES: usize = 30;

/// Message size when none is asked for.
pub const ECHO_BYTES_DEFAULT: usize = 64;

/// One message's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EchoStamp {
    /// So that another crowd on the same server is not mistaken for this one.
    pub run: u16,
    /// Of the message, in the run; 48 bits of it.
    pub number: u64,
}

/// Bytes of the stamp of a publication without padding: the smallest one.
pub(crate) const PUBLISH_STAMP_BYTES: usize = ECHO_STAMP_BYTES + 9;

/// A publication of a terminal: the stamp, and behind it the index of its channel in the run, in the form `CCCCCCCC/`. So whoever gets
/// it knows where it was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublishStamp {
    pub stamp: EchoStamp,
    pub channel: u32,
}

impl PublishStamp {
    /// The publication, padded with dots to `size` bytes (at least [`PUBLISH_STAMP_BYTES`]).
    pub(crate) fn payload(self, size: usize) -> String {
        let stamp = self.stamp.payload(ECHO_STAMP_BYTES);
        let mut payload = format!("{stamp}{:08x}/", self.channel);
        assert_eq!(payload.len(), PUBLISH_STAMP_BYTES);
        payload.extend(std::iter::repeat_n(
            '.',
            size.saturating_sub(PUBLISH_STAMP_BYTES),
        ));
        payload
    }

    /// Looks for a publication anywhere in a message.
    pub(crate) fn find(message: &[u8]) -> Option<Self> {
        let bytes = &message[memmem::find(message, PREFIX)?..];
        let stamp = EchoStamp::parse(bytes)?;
        let channel = bytes.get(ECHO_STAMP_BYTES..PUBLISH_STAMP_BYTES)?;
        let channel = hexadecimal(channel.strip_suffix(b"/")?)?;
        Some(Self {
            stamp,
            channel: u32::try_from(channel).ok()?,
        })
    }
}

impl EchoStamp {
    /// The message: the stamp, padded with dots to `size` bytes (at least [`ECHO_STAMP_BYTES`]).
    pub(crate) fn payload(self, size: usize) -> String {
        let mut payload = format!("myriad-echo/{:04x}/{:012x}/", self.run, self.number);
        assert_eq!(payload.len(), ECHO_STAMP_BYTES);
        payload.extend(std::iter::repeat_n(
            '.',
            size.saturating_sub(ECHO_STAMP_BYTES),
        ));
        payload
    }

    /// Whether an answer is this message of `size` bytes, byte for byte.
    pub(crate) fn is_whole(self, answer: &[u8], size: usize) -> bool {
        answer.len() == size
            && Self::parse(answer) == Some(self)
            && answer[ECHO_STAMP_BYTES..].iter().all(|&byte| byte == b'.')
    }

    /// Looks for a stamp anywhere in a message.
    pub(crate) fn find(message: &[u8]) -> Found {
        match memmem::find(message, PREFIX) {
            None => Found::Nothing,
            Some(at) => Self::parse(&message[at..]).map_or(Found::Broken, Found::Stamp),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let fields = bytes.get(..ECHO_STAMP_BYTES)?.strip_prefix(PREFIX)?;
        if fields[4] != b'/' || fields[17] != b'/' {
            return None;
        }
        Some(Self {
            run: u16::try_from(hexadecimal(&fields[..4])?).ok()?,
            number: hexadecimal(&fields[5..17])?,
        })
    }
}

/// What a message has to do with echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// The beginning of a stamp, and then something else.
    Broken,
    Stamp(EchoStamp),
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value: u64, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    const STAMP: EchoStamp = EchoStamp {
        run: 0xbeef,
        number: 0x12_3456_789a,
    };

    #[test]
    fn a_message_is_as_long_as_asked_and_known_again() {
        for size in [ECHO_STAMP_BYTES, 31, ECHO_BYTES_DEFAULT, 100_000] {
            let payload = STAMP.payload(size);
            assert_eq!(payload.len(), size);
            assert_eq!(EchoStamp::find(payload.as_bytes()), Found::Stamp(STAMP));
            assert!(STAMP.is_whole(payload.as_bytes(), size));
        }
    }

    #[test]
    fn an_answer_that_differs_in_one_byte_is_not_the_message() {
        let payload = STAMP.payload(64).into_bytes();
        for at in 0..payload.len() {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            assert!(!STAMP.is_whole(&changed, 64), "byte {at}");
        }
        assert!(!STAMP.is_whole(&payload[..63], 64));
        assert!(!STAMP.is_whole(&[&payload[..], b"."].concat(), 64));
        assert!(!STAMP.is_whole(b"", 64));
    }

    #[test]
    fn what_a_server_wraps_is_found_and_what_it_cuts_is_broken() {
        let payload = STAMP.payload(40);
        let wrapped = format!("{{\"echo\":\"{payload}\"}}");
        assert_eq!(EchoStamp::find(wrapped.as_bytes()), Found::Stamp(STAMP));
        for cut in PREFIX.len()..ECHO_STAMP_BYTES {
            assert_eq!(
                EchoStamp::find(&payload.as_bytes()[..cut]),
                Found::Broken,
                "cut at {cut}"
            );
        }
        assert_eq!(
            EchoStamp::find(&payload.as_bytes()[..PREFIX.len() - 1]),
            Found::Nothing
        );
        assert_eq!(EchoStamp::find(b"myriad-echo/BEEF"), Found::Broken);
    }

    #[test]
    fn a_publication_names_its_channel() {
        let published = PublishStamp {
            stamp: STAMP,
            channel: 0x00ab_cdef,
        };
        for size in [PUBLISH_STAMP_BYTES, ECHO_BYTES_DEFAULT] {
            let payload = published.payload(size);
            assert_eq!(payload.len(), size);
            let wrapped = format!("\"{payload}\"");
            assert_eq!(PublishStamp::find(wrapped.as_bytes()), Some(published));
            for cut in 0..PUBLISH_STAMP_BYTES {
                assert_eq!(PublishStamp::find(&payload.as_bytes()[..cut]), None);
            }
        }
        assert_eq!(PublishStamp::find(STAMP.payload(64).as_bytes()), None);
    }

    #[test]
    fn echoes_and_publications_are_never_taken_for_each_other() {
        let publication = Stamp {
            run: 1,
            stream: 2,
            sequence: 3,
        };
        let payload = publication.payload(64);
        assert_eq!(EchoStamp::find(payload.as_bytes()), Found::Nothing);
        assert_eq!(Stamp::find(STAMP.payload(64).as_bytes()), None);
    }
}
