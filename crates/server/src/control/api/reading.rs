//! Requests as JSON: what is wrong with one that cannot be read, and where.

use super::super::error::Refusal;
use serde_json::de::{Deserializer, StrRead};
use std::borrow::Cow;

/// The deserializer that names the path of what it could not read.
pub(super) type Json<'p, 'j, 'a> =
    serde_path_to_error::Deserializer<'p, 'p, &'j mut Deserializer<StrRead<'a>>>;

/// Reads a body. `form` says what to send instead of one that cannot be read.
pub(super) fn read<'a, T>(
    body: &'a [u8],
    form: &str,
    as_what: impl FnOnce(Json<'_, '_, 'a>) -> Result<T, serde_json::Error>,
) -> Result<T, Refusal> {
    let malformed = |what: String| malformed(&what, form);
    let body = std::str::from_utf8(body).map_err(|error| {
        let place = error.valid_up_to();
        malformed(format!("the body is not UTF-8 at byte {place}"))
    })?;
    if body.trim_ascii().is_empty() {
        return Err(malformed("the body is empty".into()));
    }
    // A list of the fields' values in their order would be read as well: nobody who sends one means it.
    if body.trim_ascii_start().starts_with('[') {
        return Err(malformed("the body is a list".into()));
    }
    let mut json = Deserializer::from_str(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let read = as_what(tracked).map_err(|error| {
        let (path, fault) = (track.path().to_string(), error.to_string());
        // A value of the wrong kind is described without its field; other faults name it themselves, but not the place in a list.
        if (fault.starts_with("invalid") || path.contains('[')) && !matches!(&*path, "." | "?") {
            malformed(format!("field \"{path}\": {fault}"))
        } else {
            malformed(fault)
        }
    })?;
    json.end().map_err(|error| malformed(error.to_string()))?;
    Ok(read)
}

/// A body that cannot be read, and what to send instead.
pub(super) fn malformed(what: &str, form: &str) -> Refusal {
    Refusal::bad_request("malformed", format!("{}; {form}", shortened(what)))
}

/// Faults quote what they found, which may be a mebibyte: the beginning says what it is, the end where.
pub(super) fn shortened(what: &str) -> Cow<'_, str> {
    const KEPT_BYTES: [usize; 2] = [300, 100];
    if what.len() <= KEPT_BYTES.iter().sum::<usize>() {
        return Cow::Borrowed(what);
    }
    let head = what.floor_char_boundary(KEPT_BYTES[0]);
    let tail = what.ceil_char_boundary(what.len() - KEPT_BYTES[1]);
    Cow::Owned(format!("{} ... {}", &what[..head], &what[tail..]))
}
