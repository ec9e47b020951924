//! `POST /api/publish`.

use super::error::Refusal;
use super::stream::BODY_TIMEOUT;
use super::{Control, Stage};
use crate::debug_log::PublishLog;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use myriad_shard::{
    Content, DataFormat, Mesh, Namespaces, Payload, PublishOptions, PublishRefused,
};
use myriad_wire::centrifuge::is_nested_too_deep;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use tokio::sync::SemaphorePermit;

/// Bytes of a publication's request.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// Kibibytes of request bodies that may be in memory at a time, so that many slow senders cannot fill it.
pub(crate) const BODIES_KIB_MAX: usize = 64 << 10;

/// Tags of a publication.
const TAGS_MAX: usize = 64;
/// Bytes of an idempotency key.
const KEY_BYTES_MAX: usize = 255;

const FORM: &str =
    r#"send {"channel": "name", "data": any JSON}, or "b64data": "base64" instead of "data""#;

/// Standard alphabet; padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The request's body, borrowed from its bytes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publication<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    b64data: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tags: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow, default)]
    idempotency_key: Cow<'a, str>,
    #[serde(default)]
    skip_history: bool,
    #[serde(default)]
    delta: bool,
}

/// What a request wants published.
#[derive(Debug)]
pub(super) struct NewPublication<'a> {
    pub(super) channel: Cow<'a, str>,
    pub(super) content: Content,
    pub(super) options: PublishOptions,
}

/// A field that is there has a value, `null` as any other: plain `Option` would take `"data": null` for no data.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The publication's position in its channel.
#[derive(Serialize)]
struct Answer<'a> {
    offset: u64,
    epoch: &'a str,
}

/// Publishes, and answers once the publication has its position in the channel.
pub(crate) async fn publish(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    if control.stage() != Stage::Serving {
        return Err(Refusal::draining());
    }
    // Held until the answer: the body's bytes live as long.
    let _permit = admit(&control, request.body())?;
    let body = read(request.into_body()).await?;
    let NewPublication {
        channel,
        content,
        options,
    } = parse(&body)?;
    check(&control.namespaces.load(), &channel, &content.payload)?;
    let bytes = PublishLog::bytes_shown(&content.payload);
    let (id, position) = control.publishers.begin();
    control
        .mesh
        .publish_content(&channel, content, options, Some(id))
        .map_err(|refused| {
            control.publishers.settle(id, None);
            control.publish_log.refused(&channel, bytes, refused);
            explain(refused, channel.len())
        })?;
    let position = position.await.map_err(|_| Refusal::draining())?;
    control.publish_log.published(&channel, bytes, &position);
    Ok((
        StatusCode::OK,
        Json(Answer {
            offset: position.offset,
            epoch: position.epoch.as_str(),
        }),
    )
        .into_response())
}

/// Room for the body: what its length says, or the most it can have.
fn admit<'a>(control: &'a Control, body: &Body) -> Result<SemaphorePermit<'a>, Refusal> {
    let length = body.size_hint().exact().unwrap_or(BODY_BYTES_MAX as u64);
    if length > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    let kib = u32::try_from(length.div_ceil(1024)).expect("a mebibyte has 1024 of them");
    control.body_kib.try_acquire_many(kib).map_err(|_| {
        Refusal::busy("too many publications are being received; send fewer at a time, or retry after a second")
    })
}

fn too_long() -> Refusal {
    Refusal::too_large(format!(
        "a publication's request has at most {BODY_BYTES_MAX} bytes; send less, or send a link to the data"
    ))
}

/// The whole body. Its time is judged where it is received.
pub(super) async fn read(body: Body) -> Result<Bytes, Refusal> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => Err(explain_broken_body(&*error)),
    }
}

/// The connection's own reason is deep inside of the library's.
fn explain_broken_body(error: &(dyn Error + 'static)) -> Refusal {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    let Some(cause) = causes.find_map(|cause| cause.downcast_ref::<io::Error>()) else {
        return Refusal::bad_request(
            "body",
            format!("the body broke off ({error}); check that Content-Length is right"),
        );
    };
    match cause.kind() {
        io::ErrorKind::TimedOut => Refusal::timeout(format!(
            "the body did not arrive within {} s; check that Content-Length is right",
            BODY_TIMEOUT.as_secs()
        )),
        // The sentence says what to do.
        _ => Refusal::bad_request("body", cause.to_string()),
    }
}

pub(super) fn parse(body: &[u8]) -> Result<NewPublication<'_>, Refusal> {
    let publication = parse_json(body)?;
    let payload = match (publication.data, publication.b64data) {
        (Some(data), None) => json(data)?,
        (None, Some(encoded)) => binary(&encoded)?,
        (Some(_), Some(_)) => {
            return Err(malformed(
                r#"fields "data" and "b64data" are both present; send only one of them"#,
            ));
        }
        (None, None) => return Err(malformed(r#"field "data" or "b64data" is missing"#)),
    };
    if publication.tags.len() > TAGS_MAX {
        return Err(malformed(format_args!(
            "field \"tags\" has {} tags; send at most {TAGS_MAX}",
            publication.tags.len()
        )));
    }
    let key = publication.idempotency_key;
    if key.len() > KEY_BYTES_MAX {
        return Err(malformed(format_args!(
            "field \"idempotency_key\" has {} bytes; send at most {KEY_BYTES_MAX}",
            key.len()
        )));
    }
    let tags = publication.tags.into_iter();
    Ok(NewPublication {
        channel: publication.channel,
        content: Content {
            tags: tags
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..Content::new(payload)
        },
        options: PublishOptions {
            idempotency_key: (!key.is_empty()).then(|| key.into()),
            delta: publication.delta,
            skip_history: publication.skip_history,
        },
    })
}

fn parse_json(body: &[u8]) -> Result<Publication<'_>, Refusal> {
    let body = std::str::from_utf8(body).map_err(|error| {
        malformed(format_args!(
            "the body is not UTF-8 at byte {}",
            error.valid_up_to()
        ))
    })?;
    if body.trim_ascii().is_empty() {
        return Err(malformed("the body is empty"));
    }
    // A list of the fields' values in their order would be read as well: nobody who sends one means it.
    if body.trim_ascii_start().starts_with('[') {
        return Err(malformed("the body is a list"));
    }
    let mut json = serde_json::Deserializer::from_str(body);
    let publication: Publication<'_> =
        serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            let fault = error.into_inner().to_string();
            // A value of the wrong kind is described without its field; other faults name it themselves.
            if fault.starts_with("invalid") && !matches!(path.as_str(), "." | "?") {
                malformed(format_args!("field \"{path}\": {fault}"))
            } else {
                malformed(fault)
            }
        })?;
    json.end().map_err(malformed)?;
    Ok(publication)
}

fn malformed(what: impl std::fmt::Display) -> Refusal {
    let what = shortened(what.to_string());
    Refusal::bad_request("malformed", format!("{what}; {FORM}"))
}

/// Faults quote what they found, which may be a mebibyte: the beginning says what it is, the end where.
fn shortened(what: String) -> String {
    const KEPT_BYTES: [usize; 2] = [300, 100];
    if what.len() <= KEPT_BYTES.iter().sum::<usize>() {
        return what;
    }
    let head = what.floor_char_boundary(KEPT_BYTES[0]);
    let tail = what.ceil_char_boundary(what.len() - KEPT_BYTES[1]);
    format!("{} ... {}", &what[..head], &what[tail..])
}

/// JSON is published as it was sent. `raw` clients get the content of a string, which must be text then.
fn json(data: &RawValue) -> Result<Payload, Refusal> {
    if data.get().starts_with('"') {
        // A string can be valid JSON and no text: half of a surrogate pair (RFC 8259 section 8.2).
        serde_json::from_str::<String>(data.get()).map_err(|error| {
            malformed(format_args!(
                "field \"data\": the string is not valid Unicode: {error}"
            ))
        })?;
    }
    if is_nested_too_deep(data.get()) {
        return Err(malformed(
            r#"field "data" is nested deeper than 128 arrays and objects"#,
        ));
    }
    Ok(Payload::Json(data.get().into()))
}

fn binary(encoded: &str) -> Result<Payload, Refusal> {
    let bytes = BASE64.decode(encoded).map_err(|error| {
        malformed(format_args!(
            "field \"b64data\" is not standard base64: {error}"
        ))
    })?;
    Ok(Payload::Binary(bytes.into()))
}

/// Refuses a channel that the configuration does not have, and data that the channel does not take.
fn check(namespaces: &Namespaces, channel: &str, payload: &Payload) -> Result<(), Refusal> {
    if channel.is_empty() || channel.len() > Mesh::CHANNEL_BYTES_MAX {
        return Err(explain(PublishRefused::Channel, channel.len()));
    }
    let Some(options) = namespaces.options_of(channel) else {
        let namespace = Namespaces::name_of(channel).unwrap_or_default();
        return Err(Refusal::bad_request(
            "namespace",
            format!(
                "channel {channel:?} is of the namespace {namespace:?}, which is not configured; add it to [[channel.namespaces]] in the config file, or use a name without a colon"
            ),
        ));
    };
    let format = options.data_format;
    if format.takes(payload) {
        return Ok(());
    }
    let (written, advice) = match format {
        DataFormat::NonEmpty | DataFormat::Binary => ("", "send at least one byte"),
        DataFormat::Json => ("json", "send JSON as \"data\", not \"b64data\""),
        DataFormat::JsonObject => ("json_object", "send an object as \"data\""),
    };
    Err(Refusal::bad_request(
        "data_format",
        format!(
            "channel {channel:?} does not take this data (publication_data_format = {written:?}); {advice}"
        ),
    ))
}

fn explain(refused: PublishRefused, channel_bytes: usize) -> Refusal {
    match refused {
        PublishRefused::Channel => Refusal::bad_request(
            "channel",
            format!(
                "field \"channel\" has {channel_bytes} bytes; a channel's name has 1 to {}",
                Mesh::CHANNEL_BYTES_MAX
            ),
        ),
        PublishRefused::TooLarge => too_long(),
        PublishRefused::Busy => Refusal::busy(
            "publications arrive faster than they can be delivered; send fewer, or retry after a second",
        ),
        PublishRefused::Draining => Refusal::draining(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        let refusal = parse(body.as_bytes()).expect_err(body);
        format!("{refusal:?}")
    }

    fn payload(body: &str) -> Payload {
        let publication = parse(body.as_bytes()).expect(body);
        assert_eq!(publication.options, PublishOptions::default());
        publication.content.payload
    }

    #[test]
    fn raw_clients_get_the_content_of_strings_and_other_json_as_it_was_sent() {
        for (data, text) in [
            (r#""plain""#, "plain"),
            (
                r#""a \"quote\" \u00e9 \ud83d\ude00""#,
                "a \"quote\" \u{e9} \u{1f600}",
            ),
            (r#""""#, ""),
            ("null", "null"),
            ("1.50", "1.50"),
            ("{\"b\":1,  \"a\":[ ]}", "{\"b\":1,  \"a\":[ ]}"),
        ] {
            let body = format!(r#"{{"channel": "c", "data": {data}}}"#);
            let payload = payload(&body);
            assert_eq!(payload, Payload::Json(data.into()));
            assert_eq!(payload.raw(), text.as_bytes(), "{data}");
        }
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for encoded in ["AP8=", "AP8"] {
            let body = format!(r#"{{"b64data": "{encoded}", "channel": "c"}}"#);
            assert_eq!(payload(&body), Payload::Binary([0, 255].into()));
        }
        assert!(refusal(r#"{"channel": "c", "b64data": "*"}"#).contains("not standard base64"));
    }

    #[test]
    fn escaped_channel_names_are_read() {
        let publication = parse(br#"{"channel": "a\u0062", "data": 1}"#).unwrap();
        assert_eq!(publication.channel, "ab");
    }

    #[test]
    fn wishes_and_tags_are_read_within_bounds() {
        let body = r#"{"channel": "c", "data": 1, "tags": {"b": "2", "a": "\u00e9"},
            "idempotency_key": "k", "skip_history": true, "delta": true}"#;
        let NewPublication {
            content, options, ..
        } = parse(body.as_bytes()).unwrap();
        let tags = [("a".into(), "é".into()), ("b".into(), "2".into())];
        assert_eq!(*content.tags, tags);
        assert_eq!(
            options,
            PublishOptions {
                idempotency_key: Some("k".into()),
                delta: true,
                skip_history: true,
            }
        );
        let key = "k".repeat(KEY_BYTES_MAX + 1);
        let body = format!(r#"{{"channel": "c", "data": 1, "idempotency_key": "{key}"}}"#);
        assert!(refusal(&body).contains("256 bytes; send at most 255"));
        let tags: Vec<_> = (0..=TAGS_MAX).map(|n| format!("\"{n}\": \"\"")).collect();
        let tags = tags.join(",");
        let body = format!(r#"{{"channel": "c", "data": 1, "tags": {{{tags}}}}}"#);
        assert!(refusal(&body).contains("65 tags; send at most 64"));
        let body = r#"{"channel": "c", "data": 1, "tags": {"a": 1}}"#;
        assert!(refusal(body).contains("tags"));
    }

    #[test]
    fn data_is_nested_to_a_depth() {
        let body = |depth| {
            let data = "[".repeat(depth) + &"]".repeat(depth);
            format!(r#"{{"channel": "c", "data": {data}}}"#)
        };
        assert!(parse(body(128).as_bytes()).is_ok());
        assert!(refusal(&body(129)).contains("nested deeper than 128"));
    }

    #[test]
    fn faults_name_the_field_and_the_place() {
        for (body, parts) in [
            ("", &["the body is empty"][..]),
            ("{", &["line 1 column 1"]),
            ("{\"channel\": \"c\",\n \"data\": }", &["line 2"]),
            (r#"{"data": 1}"#, &["missing field `channel`"]),
            (r#"{"channel": "c"}"#, &["is missing"]),
            (r#"{"channel": "c", "data": 1, "b64data": "AA"}"#, &["both"]),
            (
                r#"{"channel": 5, "data": 1}"#,
                &["field \\\"channel\\\"", "integer `5`", "line 1 column 13"],
            ),
            (
                r#"{"channel": "c", "b64data": null}"#,
                &["field \\\"b64data\\\"", "null"],
            ),
            (
                r#"{"channel": "c", "date": 1}"#,
                &["unknown field `date`", "line 1"],
            ),
            (
                r#"{"channel": "c", "data": 1, "data": 2}"#,
                &["duplicate field `data`"],
            ),
            (r#"{"channel": "c", "data": 1} x"#, &["trailing characters"]),
            (
                r#"{"channel": "c", "data": "\ud800"}"#,
                &["not valid Unicode"],
            ),
            ("channel=c&data=1", &["expected value"]),
            ("[]", &["the body is a list"]),
            (r#"["c", 1]"#, &["the body is a list"]),
        ] {
            let refusal = refusal(body);
            for part in parts {
                assert!(refusal.contains(part), "{body}: {refusal}");
            }
            assert!(refusal.contains("send {"), "{body}: {refusal}");
        }
        let refusal = format!("{:?}", parse(b"{\"channel\": \"\xff\"}").unwrap_err());
        assert!(refusal.contains("not UTF-8 at byte 13"), "{refusal}");
    }
}
