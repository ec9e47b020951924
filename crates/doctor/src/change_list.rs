//! Changes for a person to read: a setting, its value now and then, and why.

use myriad_layout::{Column, Paint, Table, WIDTH_MAX, wrapped};

/// The setting, its value now, an arrow, and the value then.
const COLUMNS: [Column; 4] = [Column::TEXT, Column::NUMBER, Column::TEXT, Column::TEXT];
/// Blanks before the reason, which is below its row.
const INDENT: usize = 4;
/// Texts are not broken into shorter lines than this.
pub(crate) const WIDTH_MIN: usize = 40;

/// The list, in the order in which changes are added.
#[derive(Debug)]
pub(crate) struct ChangeList {
    table: Table,
    width: usize,
}

impl ChangeList {
    /// Without changes yet, for lines of at most `width` columns and never more than [`WIDTH_MAX`].
    pub(crate) fn new(width: usize) -> Self {
        Self {
            table: Table::new(&COLUMNS),
            width: width.clamp(WIDTH_MIN, WIDTH_MAX),
        }
    }

    /// Adds a row, and below it lines of a file as they are.
    pub(crate) fn add(&mut self, name: &str, from: &str, to: &str, file: &str, why: &str) {
        let from = match from {
            "" => "(empty)",
            from => from,
        };
        self.table.row([name, from, "->", to]);
        for line in file.lines() {
            self.table.note(format!("{:INDENT$}| {line}", ""));
        }
        for line in wrapped(&format!("because {why}"), self.width - INDENT) {
            self.table.note(format!("{:INDENT$}{line}", ""));
        }
    }

    pub(crate) fn draw(&self) -> String {
        self.table.draw(2, self.width, Paint::Plain)
    }
}
