//! Words of somebody else, for a line of a log.

/// Text as it stands in one line: characters that are not printed are escaped, and it ends after so many bytes.
pub(super) fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let before = line.len();
        match character {
            '"' | '\'' | '\\' => line.push(character),
            _ => line.extend(character.escape_debug()),
        }
        if line.len() > bytes_max {
            line.truncate(before);
            line.push_str("...");
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_and_bounded() {
        assert_eq!(one_line("\"Ärger\" \\", 100), "\"Ärger\" \\");
        assert_eq!(
            one_line("a\r\nb\u{1b}[31m\u{202e}", 100),
            "a\\r\\nb\\u{1b}[31m\\u{202e}"
        );
        assert_eq!(one_line("abcdef", 3), "abc...");
        assert_eq!(one_line("ab\u{1}", 4), "ab...");
    }
}
