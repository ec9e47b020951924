//! From a body to the publications that it is.

use super::super::Control;
use super::super::error::Refusal;
use super::access::Writer;
use super::answers;
use myriad_shard::{Content, MediaType, Payload, PublishRefused, StreamEntry, TooMany};
use myriad_wire::centrifuge::is_nested_too_deep;
use serde_json::value::RawValue;

/// Bytes of one publication, as by the API.
const PUBLICATION_BYTES_MAX: usize = 1 << 20;
/// Publications of one request.
const PUBLICATIONS_MAX: usize = 100_000;

/// What a body that has bytes is in a stream of this type. An array of JSON is taken apart, one level of it: it may have no elements.
///
/// # Errors
/// It is no JSON where it should be, or has too much.
pub(super) fn of(body: &[u8], content_type: &MediaType) -> Result<Vec<Payload>, Refusal> {
    let payloads = if content_type.is_json() {
        json(body)?
    } else {
        vec![match str::from_utf8(body) {
            Ok(text) if content_type.is_text() => Payload::Text(text.into()),
            _ => Payload::Binary(body.into()),
        }]
    };
    if payloads
        .iter()
        .any(|payload| payload.bytes().len() > PUBLICATION_BYTES_MAX)
    {
        return Err(Refusal::too_large(format!(
            "one publication has at most {PUBLICATION_BYTES_MAX} bytes; append it in parts"
        )));
    }
    Ok(payloads)
}

fn json(body: &[u8]) -> Result<Vec<Payload>, Refusal> {
    let malformed = |error: &dyn std::fmt::Display| {
        Refusal::bad_request("malformed", format!("the body is no JSON: {error}"))
    };
    let text = str::from_utf8(body).map_err(|error| malformed(&error))?;
    let is_array = text.trim_ascii_start().starts_with('[');
    let values: Vec<&RawValue> = if is_array {
        serde_json::from_str(text).map_err(|error| malformed(&error))?
    } else {
        vec![serde_json::from_str(text).map_err(|error| malformed(&error))?]
    };
    if values.len() > PUBLICATIONS_MAX {
        return Err(Refusal::too_large(format!(
            "the array has {} elements; send at most {PUBLICATIONS_MAX}",
            values.len()
        )));
    }
    values.into_iter().map(value).collect()
}

/// A value as it was written. `raw` clients get the content of a string, which must be text then.
fn value(json: &RawValue) -> Result<Payload, Refusal> {
    let text = json.get();
    if text.starts_with('"')
        && let Err(error) = serde_json::from_str::<String>(text)
    {
        // A string can be valid JSON and no text: half of a surrogate pair (RFC 8259, section 8.2).
        let message = format!("a string is not valid Unicode: {error}");
        return Err(Refusal::bad_request("malformed", message));
    }
    if is_nested_too_deep(text) {
        let message = "the JSON is nested deeper than 128 arrays and objects";
        return Err(Refusal::bad_request("malformed", message));
    }
    Ok(Payload::Json(text.into()))
}

/// The publications with their shares of the limit of publication bytes.
///
/// # Errors
/// The channel does not take such data, or the server has no room for it.
pub(super) fn admitted(
    control: &Control,
    channel: &str,
    writer: Writer,
    payloads: Vec<Payload>,
) -> Result<Vec<StreamEntry>, Refusal> {
    let namespaces = control.namespaces.load();
    if let Some(options) = namespaces.options_of(channel)
        && let Some(refused) = payloads
            .iter()
            .find(|payload| !options.data_format.takes(payload))
    {
        let what = match refused {
            Payload::Json(_) => "this JSON",
            Payload::Text(_) | Payload::Binary(_) => "what is no JSON",
        };
        return Err(Refusal::bad_request(
            "malformed",
            format!("channel {channel:?} does not take {what} (publication_data_format)"),
        ));
    }
    let is_client = writer.is_client();
    if is_client && !payloads.is_empty() {
        let taken = control.take_publications(channel, payloads.len());
        taken.map_err(|too_many| over_rate(too_many, payloads.len()))?;
    }
    let contents = payloads.into_iter().map(Content::new).collect();
    control
        .mesh
        .stream_entries(contents, is_client)
        .map_err(|refused| match refused {
            PublishRefused::Channel => answers::unanswered(),
            PublishRefused::TooLarge => Refusal::too_large(
                "the body has more bytes than all publications in flight may have; append it in parts",
            ),
            PublishRefused::Busy => Refusal::busy(
                "publications arrive faster than they can be delivered; send fewer, or retry after a second",
            ),
            PublishRefused::Draining => Refusal::draining(),
        })
}

/// Each element of an array is a publication. All of them are taken, or none.
fn over_rate(too_many: TooMany, count: usize) -> Refusal {
    match too_many {
        TooMany::For(time) => Refusal::limited(
            time,
            "clients publish to the channel faster than publishes_per_channel allows; retry later",
        ),
        TooMany::Ever => Refusal::too_large(format!(
            "publishes_per_channel does not allow {count} publications at once; append them in parts"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json_of(body: &str) -> Result<Vec<String>, u16> {
        let payloads = of(body.as_bytes(), &MediaType::json());
        let text = |payload: Payload| match payload {
            Payload::Json(json) => json.into_string(),
            other => panic!("{other:?}"),
        };
        payloads
            .map(|payloads| payloads.into_iter().map(text).collect())
            .map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn one_level_of_an_array_is_taken_apart() {
        for (body, values) in [
            ("1", &["1"][..]),
            (" [1, 2 ,3] ", &["1", "2", "3"]),
            ("[[1,2],[3]]", &["[1,2]", "[3]"]),
            (r#"{"a":[1]}"#, &[r#"{"a":[1]}"#]),
            (r#""text""#, &[r#""text""#]),
            ("null", &["null"]),
            ("[]", &[]),
        ] {
            assert_eq!(
                json_of(body),
                Ok(values.iter().map(|one| (*one).to_owned()).collect())
            );
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for body in [
            "",
            "{",
            "[1,",
            "[1] 2",
            "[1,]",
            "\"\\ud800\"",
            "nul",
            "\u{feff}1",
        ] {
            assert_eq!(json_of(body), Err(400), "{body}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(json_of(&deep), Err(400));
        let many = format!("[{}0]", "0,".repeat(PUBLICATIONS_MAX));
        assert_eq!(json_of(&many), Err(413));
        let long = format!("[\"{}\"]", "x".repeat(PUBLICATION_BYTES_MAX));
        assert_eq!(json_of(&long), Err(413));
    }

    #[test]
    fn text_is_text_and_everything_else_is_bytes() {
        let payload = |body: &[u8], content_type: &str| {
            let content_type = MediaType::parse(content_type).expect("a media type");
            of(body, &content_type).expect("taken").pop()
        };
        let text = payload(b"[1]", "text/plain");
        assert_eq!(text, Some(Payload::Text("[1]".into())));
        let broken = payload(&[0xff], "text/plain");
        assert_eq!(broken, Some(Payload::Binary([0xff].into())));
        let bytes = payload(b"a", "application/octet-stream");
        assert_eq!(bytes, Some(Payload::Binary((*b"a").into())));
    }
}
