//! Colours for a terminal, and text that fits one.

/// Whether and how to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Text only.
    Plain,
    /// With the escape sequences of ANSI terminals.
    Coloured,
}

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
    Strong,
    Faint,
}

impl Paint {
    /// As the environment wishes: `NO_COLOR` set to anything, or a terminal that cannot, means none.
    #[must_use]
    pub fn choose(is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> Self {
        let unwanted = no_color.is_some_and(|value| !value.is_empty());
        if is_terminal && !unwanted && term != Some("dumb") {
            Self::Coloured
        } else {
            Self::Plain
        }
    }

    pub(crate) fn over(self, tone: Tone, text: &str) -> String {
        let code = match (self, tone) {
            (Self::Plain, _) => return text.to_owned(),
            (_, Tone::Good) => "32",
            (_, Tone::Warning) => "33",
            (_, Tone::Bad) => "31;1",
            (_, Tone::Strong) => "1",
            (_, Tone::Faint) => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The text in lines of at most `width` characters, broken at spaces. A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_that_wants_them() {
        assert_eq!(Paint::choose(true, None, Some("xterm")), Paint::Coloured);
        assert_eq!(Paint::choose(true, Some(""), None), Paint::Coloured);
        for (terminal, no_color, term) in [
            (false, None, None),
            (true, Some("1"), None),
            (true, None, Some("dumb")),
        ] {
            assert_eq!(Paint::choose(terminal, no_color, term), Paint::Plain);
        }
        assert_eq!(Paint::Plain.over(Tone::Bad, "no"), "no");
        assert_eq!(
            Paint::Coloured.over(Tone::Good, "yes"),
            "\x1b[32myes\x1b[0m"
        );
    }

    #[test]
    fn long_text_is_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("a verylongword b", 5), ["a", "verylongword", "b"]);
        assert!(wrapped("", 5).is_empty());
    }
}
