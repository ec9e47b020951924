//! Counts and times as figures: floats, shares, and histograms of microseconds.

use hdrhistogram::Histogram;
use std::time::Duration;

/// A count as a figure.
pub(crate) fn float(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a run stay far below 2^52"
    )]
    let float = count as f64;
    float
}

/// A part of a whole; none of nothing.
pub(crate) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

/// A histogram of microseconds that grows as needed: a few kilobytes while times are short.
pub(crate) fn microseconds() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are valid")
}

/// Records a time.
pub(crate) fn record(times: &mut Histogram<u64>, time: Duration) {
    record_count(times, time, 1);
}

/// Records the same time so often.
pub(crate) fn record_count(times: &mut Histogram<u64>, time: Duration, count: u64) {
    times
        .record_n(as_micros(time), count)
        .expect("a histogram that grows takes any value");
}

/// Adds the times of another one.
pub(crate) fn add(times: &mut Histogram<u64>, more: &Histogram<u64>) {
    times
        .add(more)
        .expect("a histogram that grows takes any other of its precision");
}

/// A duration in whole microseconds.
fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds, to the microsecond.
pub(crate) fn as_millis(duration: Duration) -> f64 {
    micros_as_millis(as_micros(duration))
}

/// Milliseconds of whole microseconds.
pub(crate) fn micros_as_millis(micros: u64) -> f64 {
    float(micros) / 1000.0
}
