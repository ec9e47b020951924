//! Messages with `${NAME}` in them, which each sender fills in.

use super::mark::Mark;
use crate::random::Random;
use std::fmt;

/// Largest message that a template makes, in bytes.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The number of the client in the run, from 0.
    Terminal,
    /// The number of its group, from 0.
    Group,
    /// The number of the message in its flow, from 0.
    Sequence,
    /// The mark, as a text, as a decimal number, or as eight bytes.
    Stamp,
    StampDecimal,
    StampBytes,
    /// Milliseconds since 1970.
    Time,
    /// So many letters and digits.
    Random(usize),
}

/// A message with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

/// A template that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `${` without its `}`.
    Open,
    /// A variable that does not exist.
    Unknown(String),
    /// The size of a random text is no size, or too large.
    Size(String),
    /// A message of a flow without a stamp.
    NoStamp,
    /// A stamp, or a sequence, in what a client says when it opens.
    NoMessage(String),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("`${` has no `}`; write ${NAME}"),
            Self::Unknown(name) => write!(
                f,
                "there is no variable ${{{name}}}; choose among ${{terminal}}, ${{group}}, ${{sequence}}, ${{stamp}}, ${{stamp:decimal}}, ${{stamp:bytes}}, ${{time}} and ${{random:SIZE}}, or write it in [variables]"
            ),
            Self::Size(size) => write!(
                f,
                "${{random:{size}}} has no size from 1 to {TEMPLATE_BYTES_MAX}; write one such as ${{random:100}}"
            ),
            Self::NoStamp => f.write_str(
                "a message of a flow needs ${stamp}, ${stamp:decimal} or ${stamp:bytes}: by it the one who gets the message knows it",
            ),
            Self::NoMessage(name) => write!(
                f,
                "${{{name}}} is of messages of flows; leave it out of what clients say when they open"
            ),
        }
    }
}

/// What takes the place of variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub terminal: u64,
    pub group: u32,
    pub sequence: u64,
    pub mark: Mark,
    pub unix_ms: u64,
}

impl Template {
    /// Reads the template of a flow's messages.
    pub(crate) fn of_flow(text: &str) -> Result<Self, TemplateError> {
        let template = Self::parse(text)?;
        let is_stamp = |piece: &Piece| {
            matches!(
                piece,
                Piece::Stamp | Piece::StampDecimal | Piece::StampBytes
            )
        };
        match template.0.iter().any(is_stamp) {
            true => Ok(template),
            false => Err(TemplateError::NoStamp),
        }
    }

    /// Reads the template of what clients say when they open.
    pub(crate) fn of_opening(text: &str) -> Result<Self, TemplateError> {
        let template = Self::parse(text)?;
        for piece in &template.0 {
            match piece {
                Piece::Stamp | Piece::StampDecimal | Piece::StampBytes => {
                    return Err(TemplateError::NoMessage("stamp".to_owned()));
                }
                Piece::Sequence => return Err(TemplateError::NoMessage("sequence".to_owned())),
                _ => {}
            }
        }
        Ok(template)
    }

    fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            let inner = &rest[at + 2..];
            let end = inner.find('}').ok_or(TemplateError::Open)?;
            pieces.push(variable(&inner[..end])?);
            rest = &inner[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    /// Whether it has bytes that may be no text.
    pub(crate) fn has_bytes(&self) -> bool {
        self.0.contains(&Piece::StampBytes)
    }

    /// Appends the message.
    pub(crate) fn write(&self, out: &mut Vec<u8>, values: Values, random: &mut Random) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Terminal => out.extend_from_slice(values.terminal.to_string().as_bytes()),
                Piece::Group => out.extend_from_slice(values.group.to_string().as_bytes()),
                Piece::Sequence => out.extend_from_slice(values.sequence.to_string().as_bytes()),
                Piece::Stamp => out.extend_from_slice(values.mark.text().as_bytes()),
                Piece::StampDecimal => {
                    out.extend_from_slice(values.mark.value().to_string().as_bytes());
                }
                Piece::StampBytes => out.extend_from_slice(&values.mark.value().to_be_bytes()),
                Piece::Time => out.extend_from_slice(values.unix_ms.to_string().as_bytes()),
                Piece::Random(size) => write_random(out, *size, random),
            }
        }
    }
}

fn variable(name: &str) -> Result<Piece, TemplateError> {
    if let Some(size) = name.strip_prefix("random:") {
        let found = size.parse().ok();
        let found = found.filter(|size| (1..=TEMPLATE_BYTES_MAX).contains(size));
        return found
            .map(Piece::Random)
            .ok_or_else(|| TemplateError::Size(size.to_owned()));
    }
    Ok(match name {
        "terminal" => Piece::Terminal,
        "group" => Piece::Group,
        "sequence" => Piece::Sequence,
        "stamp" => Piece::Stamp,
        "stamp:decimal" => Piece::StampDecimal,
        "stamp:bytes" => Piece::StampBytes,
        "time" => Piece::Time,
        _ => return Err(TemplateError::Unknown(name.to_owned())),
    })
}

fn write_random(out: &mut Vec<u8>, size: usize, random: &mut Random) {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let end = out.len() + size;
    while out.len() < end {
        for byte in random.next().to_le_bytes() {
            out.push(LETTERS[usize::from(byte % 32)]);
        }
    }
    out.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in() {
        let text = "{\"u\":${terminal},\"g\":\"${group}\",\"n\":${sequence},\"id\":\"${stamp}\",\"t\":${time},\"x\":\"${random:9}\"}";
        let template = Template::of_flow(text).expect("a template");
        let mark = Mark::new(1, 2, 3);
        let values = Values {
            terminal: 4,
            group: 5,
            sequence: 3,
            mark,
            unix_ms: 6,
        };
        let mut out = Vec::new();
        template.write(&mut out, values, &mut Random::new(1));
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            (&value["u"], &value["n"], &value["t"]),
            (&4.into(), &3.into(), &6.into())
        );
        assert_eq!(
            (value["g"].as_str(), value["id"].as_str()),
            (Some("5"), Some(&*mark.text()))
        );
        assert_eq!(value["x"].as_str().map(str::len), Some(9));
        assert!(!template.has_bytes());
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        let flow = |text| Template::of_flow(text).expect_err("a mistake");
        assert_eq!(flow("${stamp"), TemplateError::Open);
        assert_eq!(flow("${user}"), TemplateError::Unknown("user".to_owned()));
        assert_eq!(flow("${random:0}"), TemplateError::Size("0".to_owned()));
        assert_eq!(flow("{\"a\":1}"), TemplateError::NoStamp);
        let opening = Template::of_opening("${stamp}").expect_err("a mistake");
        assert_eq!(opening, TemplateError::NoMessage("stamp".to_owned()));
    }
}
