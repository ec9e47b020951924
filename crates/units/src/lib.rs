//! Quantities and units, for every command: [`parse`] reads them, [`option`] holds them as options, and the functions here
//! write them.
//!
//! Sizes are shown in KiB, MiB and GiB (powers of two), never in KB (1,000). Defaults and limits are powers of two
//! (`64KiB`, `1MiB`), the kernel counts pages, and people order machines by the GiB: with one family a figure in a report
//! is the figure that can be written as an option. Input takes both, because both are written; `10k` bytes is refused,
//! because it means 10,000 to some and 10,240 to others. Rates of networks stay decimal, as they are everywhere:
//! 1 Gbit/s is 1,000,000,000 bits a second.
//!
//! Figures that were measured have three significant digits; counts have all of theirs.
#![forbid(unsafe_code)]

pub mod option;
pub mod parse;
mod text;

pub use text::{
    bits_per_second, bytes, cores, count, counted, percent, rate, share, significant, time,
    time_or_dash, truncate, whole,
};
