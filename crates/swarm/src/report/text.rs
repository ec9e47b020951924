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

/// Text in lines of at most `columns`, broken between words; a word that is longer stands alone.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            // Of several blanks those at the end of a line are dropped.
            Some(_) if word.is_empty() => {}
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A size in bytes that was worked out as a mean.
pub(crate) fn bytes(value: f64) -> String {
    myriad_units::bytes(myriad_units::whole(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two  three", 9), ["one two ", "three"]);
        assert_eq!(wrapped("longer than five", 5), ["longer", "than", "five"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
