//! Colours for a terminal.

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
pub enum Tone {
    /// As it should be: green.
    Good,
    /// Worth a look: yellow.
    Warning,
    /// Not as it should be: red.
    Bad,
    /// A title: bold.
    Strong,
    /// Less important than what stands above it: dim.
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

    /// The text in that tone; the same text where nothing is coloured.
    #[must_use]
    pub fn over(self, tone: Tone, text: &str) -> String {
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
}
