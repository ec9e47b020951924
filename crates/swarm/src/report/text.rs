//! Figures for people, as every command writes them, and lines of them.

pub(crate) use myriad_units::{count, counted, percent, rate, share, time, time_or_dash};

/// `a`, `a and b`, `a, b and c`; none of nothing.
pub(crate) fn listed(items: &[String]) -> Option<String> {
    match items {
        [] => None,
        [one] => Some(one.clone()),
        [before @ .., last] => Some(format!("{} and {last}", before.join(", "))),
    }
}

/// A size in bytes that was worked out as a mean.
pub(crate) fn bytes(value: f64) -> String {
    myriad_units::bytes(myriad_units::whole(value))
}
