//! The stamp in a publication, by which clients know which push they are seeing.
//!
//! `myriad/RRRR/SSSS/QQQQQQQQ/` and padding: the run, the stream (one per channel) and the sequence, in lower-case
//! hexadecimal. It carries no time: every client of the crowd shares the publisher's clock, and one entry per
//! publication in the [`crate::measure`] ledger holds the time it was published. Its characters survive JSON strings
//! unescaped, so a client finds it by searching for the prefix, whatever the server wraps around it.

use crate::random::Random;
use memchr::memmem;

/// What every stamp begins with.
pub(crate) const PREFIX: &[u8] = b"myriad/";

/// Bytes of a stamp without padding: the smallest payload.
pub const STAMP_BYTES: usize = 26;

/// Payload size when none is asked for.
pub const PAYLOAD_BYTES_DEFAULT: usize = 32;

/// Largest sequence: clients keep 24 bits of it.
pub(crate) const SEQUENCE_MAX: u32 = (1 << 24) - 1;

/// What a payload has beside its stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filler {
    /// Dots: nearly nothing, once compressed.
    #[default]
    Dots,
    /// JSON records, which compress as such data does.
    Json,
}

/// One publication's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Which run published it, so that a second crowd on the same server is not mistaken for this one.
    pub run: u16,
    /// Which channel, as an index into the run's streams.
    pub stream: u16,
    /// Which publication of the stream, from 1.
    pub sequence: u32,
}

impl Stamp {
    /// The payload: the stamp, filled up to `size` bytes (at least [`STAMP_BYTES`]).
    pub(crate) fn filled(self, size: usize, filler: Filler) -> String {
        match filler {
            Filler::Dots => self.payload(size),
            Filler::Json => self.records(size),
        }
    }

    /// The stamp, and then JSON records as a price feed has them, which differ from one publication to the next; cut at
    /// `size`.
    fn records(self, size: usize) -> String {
        let mut payload = self.payload(STAMP_BYTES);
        let mut random = Random::new(u64::from(self.sequence) << 16 | u64::from(self.stream));
        while payload.len() < size {
            let [a, b, c, d] = random.mask().map(u32::from);
            let record = format!(
                r#"{{"id":{},"symbol":"{}{}","price":{}.{:02},"volume":{},"side":"{}"}},"#,
                100_000 + a * 256 + b,
                ["EUR", "USD", "GBP", "JPY"][(a % 4) as usize],
                ["CHF", "SEK", "NOK"][(b % 3) as usize],
                c * 2 + 1,
                d % 100,
                c * 256 + d,
                if d < 128 { "buy" } else { "sell" },
            );
            payload.push_str(&record);
        }
        payload.truncate(size.max(STAMP_BYTES));
        payload
    }

    /// The stamp, padded with dots to `size` bytes (at least [`STAMP_BYTES`]).
    pub(crate) fn payload(self, size: usize) -> String {
        let mut payload = format!(
            "myriad/{:04x}/{:04x}/{:08x}/",
            self.run, self.stream, self.sequence
        );
        assert_eq!(payload.len(), STAMP_BYTES);
        payload.extend(std::iter::repeat_n('.', size.saturating_sub(STAMP_BYTES)));
        payload
    }

    /// Finds the first whole stamp anywhere in a message.
    pub(crate) fn find(message: &[u8]) -> Option<Self> {
        if let Some(stamp) = Self::parse(message) {
            return Some(stamp);
        }
        memmem::find_iter(message, PREFIX).find_map(|at| Self::parse(&message[at..]))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let fields = bytes.get(..STAMP_BYTES)?.strip_prefix(PREFIX)?;
        if fields[4] != b'/' || fields[9] != b'/' || fields[18] != b'/' {
            return None;
        }
        Some(Self {
            run: u16::try_from(hexadecimal(&fields[..4])?).ok()?,
            stream: u16::try_from(hexadecimal(&fields[5..9])?).ok()?,
            sequence: hexadecimal(&fields[10..18])?,
        })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value: u32, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        run: 0xbeef,
        stream: 0x12,
        sequence: 0xabcde,
    };

    #[test]
    fn a_payload_is_as_long_as_asked_and_reads_back() {
        let payload = STAMP.payload(PAYLOAD_BYTES_DEFAULT);
        assert_eq!(payload, "myriad/beef/0012/000abcde/......");
        assert_eq!(Stamp::find(payload.as_bytes()), Some(STAMP));
        assert_eq!(STAMP.payload(0).len(), STAMP_BYTES);
    }

    #[test]
    fn records_are_as_long_as_asked_and_differ() {
        for size in [0, 30, 200, 1024, 50_000] {
            let payload = STAMP.filled(size, Filler::Json);
            assert_eq!(payload.len(), size.max(STAMP_BYTES));
            assert_eq!(Stamp::find(payload.as_bytes()), Some(STAMP));
        }
        let next = Stamp {
            sequence: STAMP.sequence + 1,
            ..STAMP
        };
        let tail = |stamp: Stamp| stamp.filled(1024, Filler::Json)[STAMP_BYTES..].to_owned();
        assert_ne!(tail(STAMP), tail(next));
        let record = tail(STAMP);
        let (record, _) = record.split_once("},").expect("several records");
        serde_json::from_str::<serde_json::Value>(&format!("{record}}}")).expect("JSON");
    }

    #[test]
    fn a_stamp_is_found_inside_what_a_server_wraps_around_it() {
        let wrapped = format!(
            r#"{{"note":"myriad/nope","push":{{"data":"{}"}}}}"#,
            STAMP.payload(40)
        );
        assert_eq!(Stamp::find(wrapped.as_bytes()), Some(STAMP));
    }

    #[test]
    fn what_is_not_a_stamp_is_not_taken_for_one() {
        assert_eq!(Stamp::find(b""), None);
        assert_eq!(Stamp::find(b"12:00:00"), None);
        assert_eq!(Stamp::find(b"myriad/beef/0012/000abcde"), None);
        assert_eq!(Stamp::find(b"myriad/BEEF/0012/000abcde/"), None);
        assert_eq!(Stamp::find(b"myriad/beef-0012-000abcde-"), None);
    }
}
