//! The percentile distribution in the text form that HdrHistogram's plotters read (`.hgrm`).
//!
//! Columns: value in milliseconds, percentile as a fraction, arrivals up to it, and 1/(1 - percentile),
//! which the last line leaves out because it is infinite there.

use crate::measure::figures::micros_as_millis;
use crate::report::float;
use hdrhistogram::Histogram;
use std::io::{self, Write};

/// Lines per halving of the distance to 100%, as other tools print them.
const TICKS_PER_HALF: u32 = 5;

/// Writes the distribution of a histogram of microseconds. The last line has `of`, which says what the times are: readers of the format pass
/// over lines that begin with `#`.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn write(of: &str, times: &Histogram<u64>, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total = 0;
    for step in times.iter_quantiles(TICKS_PER_HALF) {
        total += step.count_since_last_iteration();
        let value = micros_as_millis(step.value_iterated_to());
        let quantile = step.quantile_iterated_to();
        if quantile < 1.0 {
            writeln!(
                out,
                "{value:12.3} {quantile:2.12} {total:10} {:14.2}",
                1.0 / (1.0 - quantile)
            )?;
        } else {
            writeln!(out, "{value:12.3} {quantile:2.12} {total:10}")?;
        }
    }
    let (mean, deviation) = (times.mean() / 1000.0, times.stdev() / 1000.0);
    writeln!(
        out,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    )?;
    writeln!(
        out,
        "#[Max     = {:12.3}, Total count    = {:12}]",
        micros_as_millis(times.max()),
        times.len()
    )?;
    // With three digits a bucket has 2,048 sub-buckets; each further bucket doubles the range.
    let sub_buckets = 2048_u64;
    let buckets = (float(times.high().max(sub_buckets)) / float(sub_buckets))
        .log2()
        .ceil()
        + 1.0;
    writeln!(
        out,
        "#[Buckets = {buckets:12.0}, SubBuckets     = {sub_buckets:12}]"
    )?;
    writeln!(out, "#[Of      = {of}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::microseconds;

    fn written(times: &Histogram<u64>) -> String {
        let mut out = Vec::new();
        write("echo", times, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_distribution_has_the_form_plotters_read() {
        let mut times = microseconds();
        for micros in 1..=1000 {
            times.record(micros * 1000).unwrap();
        }
        let text = written(&times);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("       Value     Percentile TotalCount 1/(1-Percentile)")
        );
        assert_eq!(lines.next(), Some(""));
        let rows: Vec<Vec<f64>> = lines
            .by_ref()
            .take_while(|line| !line.starts_with('#'))
            .map(|line| {
                line.split_whitespace()
                    .map(|field| field.parse().unwrap())
                    .collect()
            })
            .collect();
        let (last, before) = rows.split_last().unwrap();
        assert!(before.iter().all(|row| row.len() == 4));
        assert_eq!(last.len(), 3);
        assert_eq!((last[1], last[2]), (1.0, 1000.0));
        assert!(
            rows.windows(2)
                .all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] < pair[1][1])
        );
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!(
            (median[0] - 500.0).abs() < 1.0 && median[2] >= 500.0,
            "{median:?}"
        );
        assert!(text.contains("#[Mean    =      500.5"), "{text}");
        assert!(text.contains("Total count    =         1000]"));
        assert!(text.ends_with("\n#[Of      = echo]\n"), "{text}");
    }

    #[test]
    fn an_empty_distribution_is_still_well_formed() {
        assert!(written(&microseconds()).contains("Total count    =            0]"));
    }
}
