//! From a body to the publications that it is.

use super::super::Control;
use super::super::error::Refusal;
use super::access::Writer;
use super::answers;
use myriad_shard::{Content, MediaType, Payload, PublishRefused, StreamEntry, TooMany};
use myriad_wire::centrifuge::is_nested_too_deep;
use serde::Deserializer as _;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Bytes of one publication, as by the API.
const PUBLICATION_BYTES_MAX: usize = 1 << 20;
/// What a body that has bytes is in a stream of this type. An array of JSON is taken apart, one level of it: it may have no elements.
///
/// # Errors
/// It is no JSON where it should be, or has too much: an array more than `elements_max` elements, for one.
pub(super) fn of(
    body: &[u8],
    content_type: &MediaType,
    elements_max: usize,
) -> Result<Vec<Payload>, Refusal> {
    let payloads = if content_type.is_json() {
        json(body, elements_max)?
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

fn json(body: &[u8], elements_max: usize) -> Result<Vec<Payload>, Refusal> {
    let malformed = |error: &dyn std::fmt::Display| {
        Refusal::bad_request("malformed", format!("the body is no JSON: {error}"))
    };
    let text = str::from_utf8(body).map_err(|error| malformed(&error))?;
    let is_array = text.trim_ascii_start().starts_with('[');
    if !is_array {
        let one = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        return Ok(vec![value(one)?]);
    }
    let mut elements = Elements {
        found: Vec::new(),
        max: elements_max,
        is_over: false,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json
        .deserialize_seq(&mut elements)
        .and_then(|()| json.end());
    if elements.is_over {
        return Err(Refusal::too_large(format!(
            "the array has more than {elements_max} elements (append-elements-max); append them in parts"
        )));
    }
    read.map_err(|error| malformed(&error))?;
    elements.found.into_iter().map(value).collect()
}

/// The elements of an array. Reads no further than to the first that is too much: an array of a body can have millions of them.
struct Elements<'de> {
    found: Vec<&'de RawValue>,
    max: usize,
    is_over: bool,
}

impl<'de> Visitor<'de> for &mut Elements<'de> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            if self.found.len() == self.max {
                self.is_over = true;
                return Err(A::Error::custom("too many elements"));
            }
            self.found.push(element);
        }
        Ok(())
    }
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
            Payload::Text(_) | Payload::JsonBytes(_) | Payload::Binary(_) => "what is no JSON",
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

    const MANY: usize = 1_000;

    fn json_of(body: &str) -> Result<Vec<String>, u16> {
        let payloads = of(body.as_bytes(), &MediaType::json(), MANY);
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
        let array = |elements: usize| format!("[{}0]", "0,".repeat(elements - 1));
        assert_eq!(json_of(&array(MANY)).map(|values| values.len()), Ok(MANY));
        for over in [MANY + 1, 100 * MANY] {
            assert_eq!(json_of(&array(over)), Err(413));
        }
        let broken = array(MANY).replace(']', ",");
        assert_eq!(
            json_of(&broken),
            Err(400),
            "it breaks before it has too many"
        );
        let long = format!("[\"{}\"]", "x".repeat(PUBLICATION_BYTES_MAX));
        assert_eq!(json_of(&long), Err(413));
    }

    #[test]
    fn text_is_text_and_everything_else_is_bytes() {
        let payload = |body: &[u8], content_type: &str| {
            let content_type = MediaType::parse(content_type).expect("a media type");
            of(body, &content_type, 1).expect("taken").pop()
        };
        let text = payload(b"[1]", "text/plain");
        assert_eq!(text, Some(Payload::Text("[1]".into())));
        let broken = payload(&[0xff], "text/plain");
        assert_eq!(broken, Some(Payload::Binary([0xff].into())));
        let bytes = payload(b"a", "application/octet-stream");
        assert_eq!(bytes, Some(Payload::Binary((*b"a").into())));
    }
}
