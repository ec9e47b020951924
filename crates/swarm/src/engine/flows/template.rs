//! Messages with `${NAME}` in them, which each sender fills in.

use super::accounts::Accounts;
use super::mark::Mark;
use crate::random::Random;
use crate::target::percent_encoded;
use std::fmt;

/// Largest message that a template makes, in bytes.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 1 << 20;

/// What can be filled in, for those who wrote something else.
const VARIABLES: &str = "${terminal}, ${group}, ${sequence}, ${time}, ${stamp}, ${random:SIZE}, ${account:COLUMN}, ${hex:DIGITS} and ${match}";

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Bytes(Vec<u8>),
    Number(Number, Form),
    /// The mark as a text.
    Stamp,
    /// The mark as a number.
    StampNumber(Form),
    /// So many letters and digits.
    Random(usize),
    /// What the account has in this column, as it is or for a URL.
    Account(usize),
    EncodedAccount(usize),
    /// What the message that is answered has in the first group of the expression that it matches.
    Match,
}

/// A number that differs from message to message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// Of the client in the run, from 0.
    Terminal,
    /// Of its group, from 0.
    Group,
    /// Of the message in its flow, from 0.
    Sequence,
    /// Milliseconds since 1970.
    Time,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Decimal,
    /// In so many bytes, the most significant first.
    Bytes(usize),
}

/// A message with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

/// Where a template stands, which decides what it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A message of a flow.
    Flow,
    /// A URL of a flow.
    Url,
    /// The target of a client, and a header of its connection or of all its requests.
    OwnPath,
    OwnHeader,
    /// What clients say by themselves.
    Said,
    /// What they say because something came.
    Reply,
    /// The name of a group's channel, which is the same for all its members.
    Channel,
}

/// A template that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `${` without its `}`.
    Open,
    /// A variable that does not exist.
    Unknown(String),
    /// The size of a random text is no size, or too large.
    Size(String),
    /// What follows `hex:` is no sequence of bytes.
    Hex(String),
    /// The accounts have no such column: its name, and those that there are.
    Column(String, Vec<String>),
    /// A message of a flow without a stamp.
    NoStamp,
    /// A variable that has no value where the template stands.
    Misplaced(String),
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("`${` has no `}`; write ${NAME}"),
            Self::Unknown(name) => write!(
                f,
                "there is no variable ${{{name}}}; choose among {VARIABLES}, or write it in [variables]"
            ),
            Self::Size(size) => write!(
                f,
                "${{random:{size}}} has no size from 1 to {TEMPLATE_BYTES_MAX}; write one such as ${{random:100}}"
            ),
            Self::Hex(digits) => write!(
                f,
                "${{hex:{digits}}} is no sequence of bytes; write two hexadecimal digits for each, such as ${{hex:00ff}}"
            ),
            Self::Column(name, columns) if columns.is_empty() => write!(
                f,
                "there are no accounts that ${{account:{name}}} could be of; name their file in [accounts]"
            ),
            Self::Column(name, columns) => write!(
                f,
                "the accounts have no column {name}; choose among {}",
                columns.join(", ")
            ),
            Self::NoStamp => f.write_str(
                "a message of a flow needs ${stamp}, ${stamp:decimal} or ${stamp:bytes}: by it the one who gets the message knows it",
            ),
            Self::Misplaced(name) => write!(f, "${{{name}}} has no value here; leave it out"),
        }
    }
}

/// What takes the place of variables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values<'a> {
    pub terminal: u64,
    pub group: u32,
    /// Of a flow's message; none of others.
    pub mark: Option<Mark>,
    pub unix_ms: u64,
    pub accounts: &'a Accounts,
    /// Of a reply.
    pub matched: &'a [u8],
}

impl Template {
    /// Reads a template that stands at a place.
    pub(crate) fn parse(
        text: &str,
        place: Place,
        accounts: &Accounts,
    ) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if at > 0 {
                pieces.push(Piece::Bytes(rest[..at].into()));
            }
            let inner = &rest[at + 2..];
            let end = inner.find('}').ok_or(TemplateError::Open)?;
            let name = &inner[..end];
            let piece = variable(name, place, accounts)?;
            if !piece.has_value_at(place) {
                return Err(TemplateError::Misplaced(name.to_owned()));
            }
            pieces.push(piece);
            rest = &inner[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Bytes(rest.into()));
        }
        Ok(Self(pieces))
    }

    /// Whether it has a stamp.
    pub(crate) fn has_stamp(&self) -> bool {
        let is_stamp = |piece: &Piece| matches!(piece, Piece::Stamp | Piece::StampNumber(_));
        self.0.iter().any(is_stamp)
    }

    /// Whether it has something of the accounts.
    pub(crate) fn has_account(&self) -> bool {
        let of_accounts =
            |piece: &Piece| matches!(piece, Piece::Account(_) | Piece::EncodedAccount(_));
        self.0.iter().any(of_accounts)
    }

    /// Whether it has a number that is written as bytes, any of which it may be.
    pub(crate) fn has_numbers_as_bytes(&self) -> bool {
        self.0.iter().any(|piece| {
            matches!(piece, Piece::Number(_, form) | Piece::StampNumber(form) if *form != Form::Decimal)
        })
    }

    /// What it always is; none where it has variables.
    pub(crate) fn fixed(&self) -> Option<Vec<u8>> {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        pieces
            .collect::<Option<Vec<_>>>()
            .map(|pieces| pieces.concat())
    }

    /// Whether it may be no text.
    pub(crate) fn is_binary(&self) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Number(_, form) | Piece::StampNumber(form) => *form != Form::Decimal,
            Piece::Bytes(bytes) => std::str::from_utf8(bytes).is_err(),
            _ => false,
        })
    }

    /// Appends the message.
    pub(crate) fn write(&self, out: &mut Vec<u8>, values: &Values<'_>, random: &mut Random) {
        let account = |column: usize| values.accounts.cell(values.terminal, column);
        for piece in &self.0 {
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(bytes),
                Piece::Number(number, form) => write_number(out, values.number(*number), *form),
                Piece::Stamp => out.extend_from_slice(values.stamp().text().as_bytes()),
                Piece::StampNumber(form) => write_number(out, values.stamp().value(), *form),
                Piece::Random(size) => write_random(out, *size, random),
                Piece::Account(column) => out.extend_from_slice(account(*column).as_bytes()),
                Piece::EncodedAccount(column) => {
                    out.extend_from_slice(percent_encoded(account(*column)).as_bytes());
                }
                Piece::Match => out.extend_from_slice(values.matched),
            }
        }
    }
}

impl<'a> Values<'a> {
    /// Something for every variable, to see what a template makes.
    pub(crate) fn sample(accounts: &'a Accounts) -> Self {
        Self {
            terminal: 0,
            group: 0,
            mark: Some(Mark::new(0, 0, 0)),
            unix_ms: 0,
            accounts,
            matched: b"",
        }
    }

    /// The longest that variables may be in a crowd of so many, but for random texts and accounts, which differ.
    pub(crate) fn longest(accounts: &'a Accounts, terminals: u32) -> Self {
        let last = terminals.saturating_sub(1);
        Self {
            terminal: u64::from(last),
            group: last,
            mark: Some(Mark::new(0, 0, 999_999_999)),
            unix_ms: 9_999_999_999_999,
            ..Self::sample(accounts)
        }
    }

    fn stamp(&self) -> Mark {
        self.mark.expect("only messages of flows have stamps")
    }

    fn number(&self, number: Number) -> u64 {
        match number {
            Number::Terminal => self.terminal,
            Number::Group => u64::from(self.group),
            Number::Sequence => self.stamp().number,
            Number::Time => self.unix_ms,
        }
    }
}

impl Piece {
    fn has_value_at(&self, place: Place) -> bool {
        let is_of_flow = matches!(place, Place::Flow | Place::Url);
        let is_of_head = matches!(place, Place::OwnPath | Place::OwnHeader);
        match self {
            Self::Number(_, Form::Bytes(_)) if is_of_head => false,
            Self::Stamp | Self::StampNumber(_) | Self::Number(Number::Sequence, _) => is_of_flow,
            Self::Match => place == Place::Reply,
            Self::Bytes(_) | Self::Number(Number::Group, Form::Decimal) | Self::Account(_) => true,
            _ => place != Place::Channel,
        }
    }
}

fn variable(name: &str, place: Place, accounts: &Accounts) -> Result<Piece, TemplateError> {
    let (name, more) = match name.split_once(':') {
        Some((name, more)) => (name, Some(more)),
        None => (name, None),
    };
    let unknown = || TemplateError::Unknown(whole_name(name, more));
    let form = || match more {
        None => Some(Form::Decimal),
        Some("u16") => Some(Form::Bytes(2)),
        Some("u32") => Some(Form::Bytes(4)),
        Some("u64") => Some(Form::Bytes(8)),
        Some(_) => None,
    };
    let number = |number| {
        let form = form().ok_or_else(unknown)?;
        Ok(Piece::Number(number, form))
    };
    match (name, more) {
        ("terminal", _) => number(Number::Terminal),
        ("group", _) => number(Number::Group),
        ("sequence", _) => number(Number::Sequence),
        ("time", _) => number(Number::Time),
        ("stamp", None) => Ok(Piece::Stamp),
        ("stamp", Some("decimal")) => Ok(Piece::StampNumber(Form::Decimal)),
        ("stamp", Some("bytes")) => Ok(Piece::StampNumber(Form::Bytes(8))),
        ("random", Some(size)) => {
            let found = size.parse().ok();
            let found = found.filter(|size| (1..=TEMPLATE_BYTES_MAX).contains(size));
            let error = || TemplateError::Size(size.to_owned());
            found.map(Piece::Random).ok_or_else(error)
        }
        ("hex", Some(_)) if matches!(place, Place::OwnPath | Place::OwnHeader) => {
            Err(TemplateError::Misplaced(whole_name(name, more)))
        }
        ("hex", Some(digits)) => {
            let error = || TemplateError::Hex(digits.to_owned());
            of_hex(digits).map(Piece::Bytes).ok_or_else(error)
        }
        ("account", Some(column)) => {
            let error = || TemplateError::Column(column.to_owned(), accounts.columns().to_vec());
            let found = accounts.column(column).ok_or_else(error)?;
            Ok(match place {
                Place::Url | Place::OwnPath => Piece::EncodedAccount(found),
                _ => Piece::Account(found),
            })
        }
        ("match", None) => Ok(Piece::Match),
        _ => Err(unknown()),
    }
}

fn whole_name(name: &str, more: Option<&str>) -> String {
    more.map_or_else(|| name.to_owned(), |more| format!("{name}:{more}"))
}

fn of_hex(digits: &str) -> Option<Vec<u8>> {
    let is_whole = !digits.is_empty() && digits.len().is_multiple_of(2) && digits.is_ascii();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    is_whole.then(|| (0..digits.len()).step_by(2).map(byte).collect())?
}

fn write_number(out: &mut Vec<u8>, number: u64, form: Form) {
    match form {
        Form::Decimal => out.extend_from_slice(number.to_string().as_bytes()),
        Form::Bytes(count) => out.extend_from_slice(&number.to_be_bytes()[8 - count..]),
    }
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

    fn accounts() -> Accounts {
        Accounts::parse("user,key\nann,a b\nbob,c\n").expect("a table")
    }

    fn written(text: &str, place: Place) -> Vec<u8> {
        let accounts = accounts();
        let template = Template::parse(text, place, &accounts).expect("a template");
        let is_of_flow = matches!(place, Place::Flow | Place::Url);
        let values = Values {
            terminal: 4,
            group: 5,
            mark: is_of_flow.then(|| Mark::new(1, 2, 3)),
            unix_ms: 6,
            accounts: &accounts,
            matched: b"77",
        };
        let mut out = Vec::new();
        template.write(&mut out, &values, &mut Random::new(1));
        out
    }

    #[test]
    fn variables_are_filled_in() {
        let text = "{\"u\":${terminal},\"g\":\"${group}\",\"n\":${sequence},\"id\":\"${stamp}\",\"t\":${time},\"x\":\"${random:9}\",\"a\":\"${account:key}\"}";
        let out = written(text, Place::Flow);
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            (&value["u"], &value["n"], &value["t"]),
            (&4.into(), &3.into(), &6.into())
        );
        let mark = Mark::new(1, 2, 3).text();
        assert_eq!(
            (value["g"].as_str(), value["id"].as_str()),
            (Some("5"), Some(&*mark))
        );
        assert_eq!(value["x"].as_str().map(str::len), Some(9));
        assert_eq!(value["a"].as_str(), Some("a b"));
        assert_eq!(
            written("/k?key=${account:key}", Place::Url),
            b"/k?key=a%20b"
        );
        assert_eq!(written("ack ${match}", Place::Reply), b"ack 77");
        let head = "${account:key}-${terminal}";
        assert_eq!(written(head, Place::OwnPath), b"a%20b-4");
        assert_eq!(written(head, Place::OwnHeader), b"a b-4");
    }

    #[test]
    fn numbers_and_bytes_are_written_for_binary_protocols() {
        let out = written(
            "${hex:00ff}${terminal:u16}${group:u32}${stamp:bytes}",
            Place::Flow,
        );
        let stamp = Mark::new(1, 2, 3).value().to_be_bytes();
        let wanted = [&[0, 0xff, 0, 4, 0, 0, 0, 5], &stamp[..]].concat();
        assert_eq!(out, wanted);
        let is_binary = |text: &str| {
            let template = Template::parse(text, Place::Flow, &Accounts::default());
            template.expect("a template").is_binary()
        };
        assert!(is_binary("${stamp:bytes}") && is_binary("${hex:ff}") && is_binary("${time:u64}"));
        assert!(!is_binary("${stamp:decimal}${hex:41}${time}"));
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        let refused =
            |text: &str, place| Template::parse(text, place, &accounts()).expect_err("a mistake");
        let flow = |text: &str| refused(text, Place::Flow);
        assert_eq!(flow("${stamp"), TemplateError::Open);
        assert_eq!(flow("${user}"), TemplateError::Unknown("user".to_owned()));
        assert_eq!(
            flow("${group:u8}"),
            TemplateError::Unknown("group:u8".to_owned())
        );
        assert_eq!(flow("${random:0}"), TemplateError::Size("0".to_owned()));
        assert_eq!(flow("${hex:0}"), TemplateError::Hex("0".to_owned()));
        for name in ["stamp", "sequence", "match", "hex:0d0a", "terminal:u16"] {
            let misplaced = TemplateError::Misplaced(name.to_owned());
            let text = format!("/${{{name}}}");
            assert_eq!(refused(&text, Place::OwnPath), misplaced);
            assert_eq!(refused(&text, Place::OwnHeader), misplaced);
        }
        let columns = ["user", "key"].map(str::to_owned).to_vec();
        assert_eq!(
            flow("${account:room}"),
            TemplateError::Column("room".to_owned(), columns)
        );
        let misplaced = |name: &str| TemplateError::Misplaced(name.to_owned());
        assert_eq!(refused("${stamp}", Place::Said), misplaced("stamp"));
        assert_eq!(refused("${sequence}", Place::Reply), misplaced("sequence"));
        assert_eq!(flow("${match}"), misplaced("match"));
    }
}
