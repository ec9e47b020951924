//! The arrival curve that the crowd writes.

/// A point of the arrival curve: the share of all deliveries that had arrived at a time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Arrival {
    /// From the clock of the push.
    pub ms: f64,
    /// Between 0 and 1.
    pub share: f64,
}

/// Reads HdrHistogram's percentile text, the columns value and percentile.
pub(super) fn arrivals(hgrm: &str) -> Vec<Arrival> {
    hgrm.lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace().map(str::parse::<f64>);
            let (ms, share) = (columns.next()?.ok()?, columns.next()?.ok()?);
            Some(Arrival { ms, share })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_read_from_percentile_text() {
        let text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n\
                    0.500 0.000000000000          1           1.00\n\
                    1.250 0.500000000000         50           2.00\n\
                    9.000 1.000000000000        100\n\
                    #[Mean    =        1.300, StdDeviation   =        0.100]\n";
        let points: Vec<_> = arrivals(text)
            .iter()
            .map(|point| (point.ms, point.share))
            .collect();
        assert_eq!(points, [(0.5, 0.0), (1.25, 0.5), (9.0, 1.0)]);
        assert_eq!(arrivals(""), []);
    }
}
