//! The run's times as a histogram log, as HdrHistogram's tools read it (`.hlog`): a line for each interval and what was timed.
//!
//! Values are microseconds to three digits. The first columns of a line are seconds since the run began, the fourth is
//! milliseconds; the tag says what was timed, as in the report's `series`.

use crate::clock::Nanos;
use crate::measure::series::Interval;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use std::io::{self, Write};

/// Histograms of microseconds have milliseconds as their largest value's column.
const MAX_DIVISOR: f64 = 1000.0;

/// A log that is written while the run goes on.
pub(crate) struct HistogramLog<W> {
    out: W,
    serializer: V2DeflateSerializer,
    encoded: Vec<u8>,
}

impl<W: Write> HistogramLog<W> {
    /// Begins a log of a run that began at `started_unix_s`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn begin(mut out: W, started_unix_s: u64) -> io::Result<Self> {
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[times in microseconds, by myriad swarm]")?;
        for name in ["StartTime", "BaseTime"] {
            writeln!(out, "#[{name}: {started_unix_s}.000 (seconds since epoch)]")?;
        }
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        out.flush()?;
        Ok(Self {
            out,
            serializer: V2DeflateSerializer::new(),
            encoded: Vec::new(),
        })
    }

    /// Adds a line, whole at once: whoever follows the file sees no half of one.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn add(&mut self, interval: &Interval) -> io::Result<()> {
        self.encoded.clear();
        self.serializer
            .serialize(&interval.times, &mut self.encoded)
            .map_err(io::Error::other)?;
        let from = interval.from.since(Nanos(0)).as_secs_f64();
        let length = interval.to.since(interval.from).as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a column that people read, in milliseconds"
        )]
        let most = interval.times.max() as f64 / MAX_DIVISOR;
        writeln!(
            self.out,
            "Tag={},{from:.3},{length:.3},{most:.3},{}",
            interval.timed.name(),
            STANDARD.encode(&self.encoded)
        )?;
        self.out.flush()
    }
}

impl<W> std::fmt::Debug for HistogramLog<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistogramLog").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::microseconds;
    use crate::measure::series::Timed;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn what_is_written_can_be_read() {
        let mut times = microseconds();
        times.record_n(1_234, 3).unwrap();
        times.record(5_000_000).unwrap();
        let interval = Interval {
            timed: Timed::Echo,
            from: Nanos(2_000_000_000),
            to: Nanos(3_500_000_000),
            times: times.clone(),
        };
        let mut out = Vec::new();
        let mut log = HistogramLog::begin(&mut out, 1_700_000_000).unwrap();
        log.add(&interval).unwrap();
        log.add(&interval).unwrap();
        let entries = IntervalLogIterator::new(&out).map(Result::unwrap);
        let read: Vec<_> = entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(read.len(), 2);
        let first = &read[0];
        assert_eq!(
            first.tag().map(|tag| tag.as_str().to_owned()).as_deref(),
            Some("echo")
        );
        assert_eq!(first.start_timestamp().as_millis(), 2_000);
        assert_eq!(first.duration().as_millis(), 1_500);
        let bytes = STANDARD.decode(first.encoded_histogram()).unwrap();
        let again: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(again, times);
    }
}
