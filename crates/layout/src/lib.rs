//! Text for a terminal: colours, and lines that fit.
#![forbid(unsafe_code)]

mod lines;
mod paint;

pub use lines::{columns, wrapped};
pub use paint::{Paint, Tone};
