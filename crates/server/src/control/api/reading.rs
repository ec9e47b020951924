//! Requests as JSON: what is wrong with one that cannot be read, and where.

use super::super::error::Refusal;
use super::debugging;
use super::fault::Fault;
use serde::Deserializer;
use serde::de::IgnoredAny;
use serde_json::de::Deserializer as Json;
use std::borrow::Cow;

/// What a body is to be.
pub(super) trait Shape<'a>: Copy {
    type Read;

    fn read<D: Deserializer<'a>>(self, json: D) -> Result<Self::Read, D::Error>;
}

/// A body that is no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not JSON, or a value has the wrong form.
    Malformed(Refusal),
    /// A field is missing. Libraries take that for an error of the method.
    Incomplete(Fault),
}

/// Reads a body. `form` says what to send instead of one that cannot be read. Fields that do not exist are ignored, unless the request
/// asks for everything that is wrong with it.
pub(super) fn read<'a, S: Shape<'a>>(
    body: &'a [u8],
    form: &str,
    shape: S,
) -> Result<S::Read, Unread> {
    let malformed = |what: String| Unread::Malformed(malformed(&what, form));
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
    if let Some(kind) = scalar_kind(body) {
        return Err(malformed(format!("the body is {kind}")));
    }
    if debugging::is_on()
        && let Some(unknown) = unknown_field(body, shape)
    {
        return Err(malformed(format!("unknown field `{unknown}`")));
    }
    let mut json = Json::from_str(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let read = shape.read(tracked).map_err(|error| {
        let (path, fault) = (track.path().to_string(), words(&error));
        if fault.starts_with("missing field") {
            return Unread::Incomplete(Fault::bad(format!("{}; {form}", shortened(&fault))));
        }
        let is_in_a_list = path.contains('[');
        let is_of_a_field = !is_in_a_list && !matches!(&*path, "." | "?");
        // A field that is null counts as left out. One that need not be there reads null itself.
        if fault.starts_with("invalid type: null") && is_of_a_field {
            return Unread::Incomplete(Fault::bad(format!("field `{path}` is null; {form}")));
        }
        // A value of the wrong kind is described without its field; other faults name it themselves, but not the place in a list.
        if is_in_a_list || (fault.starts_with("invalid") && is_of_a_field) {
            malformed(format!("field \"{path}\": {fault}"))
        } else {
            malformed(fault)
        }
    })?;
    json.end().map_err(|error| malformed(words(&error)))?;
    Ok(read)
}

/// What a body is that is JSON, and neither an object nor a list.
fn scalar_kind(body: &str) -> Option<&'static str> {
    let kind = match body.trim_ascii_start().as_bytes().first()? {
        b'{' | b'[' => return None,
        b'n' => "null",
        b't' | b'f' => "a boolean",
        b'"' => "a string",
        _ => "a number",
    };
    let is_json = serde_json::from_str::<IgnoredAny>(body).is_ok();
    is_json.then_some(kind)
}

/// A fault in words of JSON. The parser has some of Rust's, and does not say that a body is no JSON at all.
fn words(error: &serde_json::Error) -> String {
    let fault = error.to_string();
    // What is nested too deep is JSON.
    if !error.is_data() && !fault.starts_with("recursion limit") {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let what = fault.strip_suffix(&*place).unwrap_or(&fault);
        let what = what.replace("expected ident", "expected value");
        return format!("the body is not JSON{place}: {what}");
    }
    let Some((found, expected)) = fault.rsplit_once(", expected ") else {
        return fault;
    };
    let (expected, place) = match expected.rfind(" at line ") {
        Some(at) => expected.split_at(at),
        None => (expected, ""),
    };
    let expected = match expected {
        "a map" => "an object",
        "a sequence" => "a list",
        "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" => "a whole number",
        _ if expected.starts_with("struct ") => "an object",
        _ => expected,
    };
    format!("{found}, expected {expected}{place}")
}

/// The path of the first field that does not exist; none of a body that cannot be read.
fn unknown_field<'a>(body: &'a str, shape: impl Shape<'a>) -> Option<String> {
    let mut unknown = None;
    let mut note = |path: serde_ignored::Path<'_>| {
        unknown.get_or_insert_with(|| path.to_string());
    };
    let mut json = Json::from_str(body);
    let noting = serde_ignored::Deserializer::new(&mut json, &mut note);
    let is_read = shape.read(noting).is_ok();
    unknown.filter(|_| is_read)
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

#[cfg(test)]
mod tests {
    use super::super::method::Method;
    use super::*;

    #[test]
    fn a_body_that_cannot_be_read_is_told_in_words_of_json() {
        for (body, expected) in [
            (
                "nope",
                "the body is not JSON at line 1 column 2: expected value; send",
            ),
            (
                "channel=c&data=1",
                "the body is not JSON at line 1 column 1: expected value; send",
            ),
            (
                "{\"channel\": ",
                "the body is not JSON at line 1 column 12: EOF while parsing",
            ),
            (
                r#"{"channel":"c","data":1} {}"#,
                "the body is not JSON at line 1 column 26: trailing characters; send",
            ),
            (" null", "the body is null; send"),
            ("7", "the body is a number; send"),
            ("\"a\"", "the body is a string; send"),
            ("true", "the body is a boolean; send"),
            ("[]", "the body is a list; send"),
            (
                r#"{"channel": "c", "data": 1, "tags": 5}"#,
                "field \"tags\": invalid type: integer `5`, expected an object at line 1",
            ),
            (
                r#"{"channel": 5, "data": 1}"#,
                "field \"channel\": invalid type: integer `5`, expected a",
            ),
        ] {
            let read = read(body.as_bytes(), Method::Publish.form(), Method::Publish);
            match read.err() {
                Some(Unread::Malformed(refusal)) => {
                    let said = refusal.message();
                    assert!(said.starts_with(expected), "{body}: {said}");
                    assert!(!said.contains("struct"), "{body}: {said}");
                }
                other => panic!("{body}: {other:?}"),
            }
        }
    }
}
