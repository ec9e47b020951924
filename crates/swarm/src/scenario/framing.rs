//! From the section about frames to a [`Framing`].

use super::fault::Problem;
use super::fill::Wrong;
use super::format::{self, FramedBy, LengthCountsName, LengthFormName};
use super::quantity::Size;
use crate::config::FramingError;
use crate::config_error::ConfigError;
use crate::engine::flows::accounts::Accounts;
use crate::engine::flows::template::{Place, Template};
use crate::engine::framing::{FrameMark, Framing, LengthCounts, LengthField, LengthForm};

/// The width of a length where none is given.
const LENGTH_BYTES_DEFAULT: u32 = 4;

pub(super) fn framing(given: &format::Framing) -> Result<Framing, Wrong> {
    check_keys(given)?;
    let mark = match given.by {
        FramedBy::Delimiter => FrameMark::Delimiter(delimiter(given.delimiter.as_deref())?),
        FramedBy::Length => FrameMark::Length(length(given)?),
        FramedBy::Size => {
            let size = given.size.as_ref().ok_or_else(|| {
                let missing = Problem::MissingKey("size".to_owned());
                ("framing", missing)
            })?;
            FrameMark::Size(size.bytes())
        }
    };
    let most = given.message_max.as_ref().map(Size::bytes);
    let default = match &mark {
        FrameMark::Size(size) => *size,
        FrameMark::Delimiter(_) | FrameMark::Length(_) => Framing::default().message_bytes_max,
    };
    Ok(Framing {
        mark,
        message_bytes_max: most.unwrap_or(default),
    })
}

/// Each key goes with one way to mark messages.
fn check_keys(given: &format::Framing) -> Result<(), Wrong> {
    let (of_delimiter, of_length) = ("by = \"delimiter\"", "by = \"length\"");
    let keys = [
        (
            "framing.delimiter",
            "delimiter",
            given.delimiter.is_some(),
            (FramedBy::Delimiter, of_delimiter),
        ),
        (
            "framing.length-bytes",
            "length-bytes",
            given.length_bytes.is_some(),
            (FramedBy::Length, of_length),
        ),
        (
            "framing.length-form",
            "length-form",
            given.length_form.is_some(),
            (FramedBy::Length, of_length),
        ),
        (
            "framing.length-counts",
            "length-counts",
            given.length_counts.is_some(),
            (FramedBy::Length, of_length),
        ),
        (
            "framing.length-at",
            "length-at",
            given.length_at.is_some(),
            (FramedBy::Length, of_length),
        ),
        (
            "framing.size",
            "size",
            given.size.is_some(),
            (FramedBy::Size, "by = \"size\""),
        ),
    ];
    let mut wrong = keys.into_iter().filter(|(.., is_given, _)| *is_given);
    match wrong.find(|(.., (by, _))| *by != given.by) {
        Some((key, name, _, (_, needed))) => Err((key, Problem::Needs(name, needed))),
        None => Ok(()),
    }
}

/// The bytes behind each message.
fn delimiter(text: Option<&str>) -> Result<Vec<u8>, Wrong> {
    const KEY: &str = "framing.delimiter";
    let Some(text) = text else {
        return Ok(b"\n".to_vec());
    };
    let wrong = |error| (KEY, Problem::Config(ConfigError::Framing(KEY, error)));
    let template = Template::parse(text, Place::Channel, &Accounts::default());
    let fixed = template.ok().and_then(|template| template.fixed());
    fixed.ok_or_else(|| wrong(FramingError::Variables))
}

fn length(given: &format::Framing) -> Result<LengthField, Wrong> {
    let form = given.length_form.unwrap_or(LengthFormName::Big);
    if matches!(form, LengthFormName::Varint) && given.length_bytes.is_some() {
        let both = Problem::Either("length-bytes", "length-form = \"varint\"");
        return Err(("framing.length-bytes", both));
    }
    let width = given.length_bytes.unwrap_or(LENGTH_BYTES_DEFAULT) as usize;
    Ok(LengthField {
        at: given.length_at.unwrap_or(0) as usize,
        form: match form {
            LengthFormName::Big => LengthForm::BigEndian(width),
            LengthFormName::Little => LengthForm::LittleEndian(width),
            LengthFormName::Varint => LengthForm::Varint,
        },
        counts: match given.length_counts {
            None | Some(LengthCountsName::Rest) => LengthCounts::Rest,
            Some(LengthCountsName::Itself) => LengthCounts::Itself,
            Some(LengthCountsName::All) => LengthCounts::All,
        },
    })
}
