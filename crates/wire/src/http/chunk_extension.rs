//! The extension of a chunk's size: `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`
//! (RFC 9112, section 7.1.1).
//!
//! Nobody reads extensions, and still two readers must agree on where the line ends. One that knows quoted strings
//! does not end it inside of one; one that skips to a line feed takes any byte. So what is not the grammar is refused.

use super::headers::is_token_byte;

/// Which part of the extensions comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Space in front of a semicolon.
    Space,
    /// Behind a semicolon.
    NameStart,
    Name,
    /// Space behind a name.
    NameEnd,
    /// Behind an equals sign.
    ValueStart,
    Value,
    Quoted,
    QuotedPair,
    QuotedEnd,
}

/// What a byte of an extension leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Next(Part),
    /// The carriage return of the line's end.
    LineEnd,
    /// Not the grammar.
    Broken,
}

impl Part {
    pub(super) fn next(self, byte: u8) -> Step {
        let is_space = matches!(byte, b' ' | b'\t');
        let is_token = is_token_byte(byte);
        let part = match (self, byte) {
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, _) if !byte.is_ascii_control() || byte == b'\t' => {
                Self::Quoted
            }
            (Self::Name | Self::Value | Self::QuotedEnd, b'\r') => return Step::LineEnd,
            (Self::Space | Self::Name | Self::NameEnd | Self::Value | Self::QuotedEnd, b';') => {
                Self::NameStart
            }
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::NameStart | Self::Name, _) if is_token => Self::Name,
            (Self::ValueStart | Self::Value, _) if is_token => Self::Value,
            (Self::Name | Self::NameEnd, _) if is_space => Self::NameEnd,
            (Self::Space | Self::Value | Self::QuotedEnd, _) if is_space => Self::Space,
            (Self::NameStart | Self::ValueStart, _) if is_space => self,
            _ => return Step::Broken,
        };
        Step::Next(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes behind the size, and whether its line ends where the text ends.
    fn is_whole(text: &str) -> bool {
        let (mut part, mut bytes) = (Part::Space, text.bytes());
        for byte in bytes.by_ref() {
            match part.next(byte) {
                Step::Next(next) => part = next,
                Step::LineEnd => return bytes.next().is_none(),
                Step::Broken => return false,
            }
        }
        false
    }

    #[test]
    fn extensions_are_the_grammar_of_rfc_9112() {
        for good in [
            ";a\r",
            " ; a\r",
            ";a=b\r",
            ";a = b;c\r",
            ";a=\"\"\r",
            ";a=\"b;\\\"\\\\ c\t\u{e9}\" ;d=e\r",
            ";a;b;c=d\r",
        ] {
            assert!(is_whole(good), "{good:?}");
        }
        for bad in [
            "\r",
            " \r",
            ";\r",
            ";a \r",
            ";a=\r",
            ";=b\r",
            ";a;\r",
            ";a b\r",
            ";a=b c\r",
            ";a=\"b\r",
            ";a=\"b\"c\r",
            ";a=\"b\\\r",
            ";a=\"\n\"\r",
            ";a=\u{e9}\r",
            "a\r",
            ";a\n",
        ] {
            assert!(!is_whole(bad), "{bad:?}");
        }
    }
}
