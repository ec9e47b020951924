//! Charts in pages that need no network.
//!
//! A [`Chart`] has bars or curves, axes with titles, and the same figures as a table. [`figure`] turns one into HTML, and
//! [`document`] puts figures and text into a page. The page contains Chart.js, which draws the charts, and loads nothing: its
//! content security policy allows the two scripts of this crate and nothing else. A reader without scripts sees the tables.
//!
//! [`drawing`] has charts that are drawn beforehand, as SVG, for a [`static_document`], which has no script at all.
//!
//! Colours come from a [`Mark`]: the same mark in all charts of a page means the same subject. They differ for colour-blind
//! readers, on light and dark backgrounds; past six subjects, dashes and hatching tell marks apart.
#![forbid(unsafe_code)]

mod axis;
mod chart;
pub mod drawing;
mod figure;
mod library;
mod mark;
mod page;

pub use axis::{Axis, LOGARITHMIC, Scale, Steps};
pub use chart::{Bar, Bars, Body, Chart, Curve, Curves, Point, Reading};
pub use figure::figure;
pub use mark::Mark;
pub use page::{document, escape, static_document, table};
