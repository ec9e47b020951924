//! A histogram of microseconds on its way to another machine: for each bucket the distance to the one before and its count, as
//! numbers of seven bits a byte, in base64. Some four bytes a bucket.

use crate::measure::figures::microseconds;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hdrhistogram::Histogram;
use myriad_wire::varint::{push_varint, split_varint};
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Largest text: more than all buckets of three digits.
const TEXT_BYTES_MAX: usize = 512 << 10;

pub(crate) fn serialize<S: Serializer>(
    times: &Histogram<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let (mut bytes, mut before) = (Vec::new(), 0);
    for step in times.iter_recorded() {
        push_varint(&mut bytes, step.value_iterated_to() - before);
        push_varint(&mut bytes, step.count_at_value());
        before = step.value_iterated_to();
    }
    serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
}

/// Reads it; what no histogram has is an error, because strangers may have written it.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Histogram<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(D::Error::custom("more buckets than a histogram has"));
    }
    let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
    read(&bytes).ok_or_else(|| D::Error::custom("no histogram"))
}

fn read(mut bytes: &[u8]) -> Option<Histogram<u64>> {
    let (mut times, mut value, mut sum) = (microseconds(), 0_u64, 0_u64);
    while !bytes.is_empty() {
        value = value.checked_add(take(&mut bytes)?)?;
        let count = take(&mut bytes)?;
        sum = sum.checked_add(count)?;
        times.record_n(value, count).ok()?;
    }
    Some(times)
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = split_varint(bytes).ok()?;
    *bytes = rest;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize)]
    struct Times(#[serde(with = "super")] Histogram<u64>);

    #[test]
    fn a_histogram_arrives_as_it_left() {
        let mut times = microseconds();
        for (value, count) in [
            (0, 3),
            (1, 1),
            (1_500, 7),
            (99_000_000, 1),
            (u64::MAX / 2, 200),
        ] {
            times.record_n(value, count).unwrap();
        }
        let text = serde_json::to_string(&Times(times.clone())).unwrap();
        let read: Times = serde_json::from_str(&text).unwrap();
        assert_eq!(read.0, times);
        let empty = serde_json::to_string(&Times(microseconds())).unwrap();
        assert_eq!(empty, "\"\"");
    }

    #[test]
    fn what_no_histogram_wrote_is_refused() {
        let refused = |bytes: &[u8]| super::read(bytes).is_none();
        assert!(refused(&[0x80]) && refused(&[1]) && refused(&[0xff; 40]));
        let mut large = Vec::new();
        for _ in 0..2 {
            push_varint(&mut large, 1);
            push_varint(&mut large, u64::MAX);
        }
        assert!(refused(&large), "more than can be counted");
        assert!(serde_json::from_str::<Times>("\"!\"").is_err());
        assert!(serde_json::from_str::<Times>("[[1,2]]").is_err());
    }
}
