//! Lines that fit.

use std::os::fd::AsFd;
use unicode_width::UnicodeWidthStr;

/// Columns of a page of sentences: longer lines are hard to read.
pub const WIDTH_MAX: usize = 100;

/// Columns of the terminal behind a descriptor; none where it is not one, or does not say.
pub fn terminal_columns(out: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(out).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Columns that a text without colours takes in a terminal.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.width()
}

/// The text in lines of at most `width` columns, broken between words. A longer word has a line of its own.
///
/// Several blanks within a line are kept, because they separate figures. A line feed counts as a blank: texts of other
/// programs may have some.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(char::is_whitespace) {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            // Blanks at the end of a line are dropped.
            Some(_) if word.is_empty() => {}
            _ => lines.push(word.to_owned()),
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one two  three", 9), ["one two", "three"]);
        assert_eq!(wrapped("p50 1  p99 2", 20), ["p50 1  p99 2"]);
        assert_eq!(wrapped("a verylongword b", 5), ["a", "verylongword", "b"]);
        assert_eq!(wrapped("first\nsecond", 80), ["first second"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
