//! Text for a terminal: colours, lines that fit, and tables.
#![forbid(unsafe_code)]

mod lines;
mod paint;
mod table;

pub use lines::{WIDTH_MAX, columns, terminal_columns, wrapped};
pub use paint::{Paint, Tone};
pub use table::{Cell, Column, Table};
