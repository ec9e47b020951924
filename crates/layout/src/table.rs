//! How our tables look: plain columns two blanks apart, without boxes, numbers to the right.
//!
//! `comfy-table` places the cells: it works out widths, wraps and aligns. It draws a private character between columns and
//! between rows. Each of them is replaced here, because it says where a cell ends that has a colour, and where a row ends
//! that has a note. So neither colours nor notes count as width.

use crate::lines::columns;
use crate::paint::{Paint, Tone};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};
use comfy_table::{ContentLineStyle, LineStyle, TableStyle};

/// Drawn between columns and between rows; no text for people has it.
const BORDER: char = '\u{e000}';
/// Blanks between two columns.
const GAP: usize = 2;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    alignment: CellAlignment,
    columns_min: usize,
}

impl Column {
    /// Text: to the left, and wrapped where the table is too wide.
    pub const TEXT: Self = Self {
        alignment: CellAlignment::Left,
        columns_min: 0,
    };
    /// Figures: to the right, and never broken.
    pub const NUMBER: Self = Self {
        alignment: CellAlignment::Right,
        columns_min: 0,
    };

    /// The same, but at least so wide where there is room: tables below each other then have the same columns.
    #[must_use]
    pub const fn at_least(self, columns_min: usize) -> Self {
        Self {
            columns_min,
            ..self
        }
    }
}

/// What stands in one column of one row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Option<Tone>,
    /// Only the first character has the tone.
    is_marked: bool,
}

impl Cell {
    /// All of it in that tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone: Some(tone),
            is_marked: false,
        }
    }

    /// A mark in that tone before the text, which has none.
    #[must_use]
    pub fn marked(mark: char, tone: Tone, text: &str) -> Self {
        Self {
            text: format!("{mark} {text}"),
            tone: Some(tone),
            is_marked: true,
        }
    }

    /// The part of this cell that one line has, coloured. `line` counts the lines of the row.
    fn painted(&self, part: &str, line: usize, paint: Paint) -> String {
        let Some(tone) = self.tone else {
            return part.to_owned();
        };
        let text = part.trim();
        let (before, after) = match part.split_once(text) {
            Some(around) if !text.is_empty() => around,
            _ => return part.to_owned(),
        };
        let text = match text.split_once(' ') {
            _ if !self.is_marked => paint.over(tone, text),
            Some((mark, rest)) if line == 0 => format!("{} {rest}", paint.over(tone, mark)),
            _ => text.to_owned(),
        };
        format!("{before}{text}{after}")
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug)]
struct Row {
    cells: Vec<Cell>,
    notes: Vec<String>,
}

/// Rows of cells, and lines of notes below a row.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Table {
    /// Without rows yet.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has a cell for each column.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(Row {
            cells,
            notes: Vec::new(),
        });
    }

    /// Adds a line below the last row, as it is: across all columns, and not counted as their width.
    pub fn note(&mut self, line: impl Into<String>) {
        let row = self.rows.last_mut().expect("a note is about a row");
        row.notes.push(line.into());
    }

    /// Columns of the terminal that all of it takes where nothing is wrapped.
    #[must_use]
    pub fn natural_width(&self) -> usize {
        let gaps = GAP * self.columns.len().saturating_sub(1);
        self.natural_widths().sum::<usize>() + gaps
    }

    /// The same of each column alone.
    pub fn natural_widths(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().enumerate().map(|(index, column)| {
            let cells = self.rows.iter().map(|row| columns(&row.cells[index].text));
            cells.fold(column.columns_min, usize::max)
        })
    }

    /// The same rows with these columns alone.
    #[must_use]
    pub fn only(&self, chosen: &[usize]) -> Self {
        let rows = self.rows.iter().map(|row| Row {
            cells: chosen.iter().map(|&i| row.cells[i].clone()).collect(),
            notes: row.notes.clone(),
        });
        Self {
            columns: chosen.iter().map(|&i| self.columns[i]).collect(),
            rows: rows.collect(),
        }
    }

    /// All lines, each after so many blanks and at most `width` columns wide where the figures leave room for that.
    /// Lines end with a line feed.
    #[must_use]
    pub fn draw(&self, indent: usize, width: usize, paint: Paint) -> String {
        let mut text = String::new();
        let (mut rows, mut line_of_row) = (self.rows.iter(), 0);
        let mut row = rows.next();
        let mut push = |line: &str| {
            text.push_str(line.trim_end());
            text.push('\n');
        };
        for line in self.placed(width.saturating_sub(indent)).lines() {
            let Some(current) = row else {
                break;
            };
            if !line.is_empty() && line.chars().all(|character| character == BORDER) {
                current.notes.iter().for_each(|note| push(note));
                (row, line_of_row) = (rows.next(), 0);
                continue;
            }
            let parts = line.split(BORDER).zip(&current.cells);
            let parts = parts.map(|(part, cell)| cell.painted(part, line_of_row, paint));
            push(&format!(
                "{:indent$}{}",
                "",
                parts.collect::<Vec<_>>().join(" ")
            ));
            line_of_row += 1;
        }
        if let Some(last) = row {
            last.notes.iter().for_each(|note| push(note));
        }
        text
    }

    /// The cells with borders between them.
    fn placed(&self, width: usize) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(
            TableStyle::new()
                .content_lines(ContentLineStyle::none().junction(BORDER))
                .row_separator(LineStyle::none().fill(BORDER).junction(BORDER)),
        );
        for row in &self.rows {
            table.add_row(row.cells.iter().map(|cell| cell.text.as_str()));
        }
        let is_too_wide = self.natural_width() > width;
        if let Ok(width) = u16::try_from(width)
            && is_too_wide
        {
            table.set_width(width);
            table.set_content_arrangement(ContentArrangement::Dynamic);
        }
        for (index, column) in self.columns.iter().enumerate() {
            let Some(placed) = table.column_mut(index) else {
                continue;
            };
            let left = if index == 0 { 0 } else { GAP - 1 };
            placed.set_padding((u16::try_from(left).unwrap_or(0), 0));
            placed.set_cell_alignment(column.alignment);
            if is_too_wide && column.alignment == CellAlignment::Right {
                placed.set_constraint(ColumnConstraint::ContentWidth);
            } else if !is_too_wide {
                let columns_min = u16::try_from(column.columns_min + left).unwrap_or(u16::MAX);
                placed.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(columns_min)));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[Column::TEXT, Column::TEXT, Column::NUMBER]);
        table.row(["name", "what it is", "figure"]);
        table.row(["a", "some words that can be wrapped", "1,000"]);
        table.note("    a note that is wider than all of the columns of the table together");
        table.row(["bcd", "short", "20"]);
        table
    }

    #[test]
    fn numbers_stand_to_the_right_and_notes_are_no_width() {
        assert_eq!(
            table().draw(2, usize::MAX, Paint::Plain),
            "  \
  name  what it is                      figure
  a     some words that can be wrapped   1,000
    a note that is wider than all of the columns of the table together
  bcd   short                               20
"
        );
    }

    #[test]
    fn a_narrow_terminal_wraps_texts_and_no_figures() {
        assert_eq!(table().natural_width(), 44);
        assert_eq!(
            table().draw(0, 30, Paint::Plain),
            "\
name  what it is        figure
a     some words that    1,000
      can be wrapped
    a note that is wider than all of the columns of the table together
bcd   short                 20
"
        );
    }

    #[test]
    fn colours_are_no_width() {
        let mut table = Table::new(&[Column::TEXT.at_least(6), Column::NUMBER.at_least(3)]);
        table.row([
            Cell::marked('✗', Tone::Bad, "no"),
            Cell::toned("7", Tone::Good),
        ]);
        table.row(["yes", "12"]);
        assert_eq!(
            table.draw(0, 80, Paint::Plain),
            "✗ no      7\nyes      12\n"
        );
        assert_eq!(
            table.draw(0, 80, Paint::Coloured),
            "\x1b[31;1m✗\x1b[0m no      \x1b[32m7\x1b[0m\nyes      12\n"
        );
    }

    #[test]
    fn some_columns_can_be_left_out() {
        let table = table().only(&[0, 2]);
        assert_eq!(table.natural_width(), 12);
        assert!(
            table
                .draw(0, 80, Paint::Plain)
                .starts_with("name  figure\na      1,000\n    a note")
        );
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(Table::new(&[Column::TEXT]).draw(2, 80, Paint::Plain), "");
    }
}
