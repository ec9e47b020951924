//! Properties of what the control plane reads from strangers, for fuzz targets and for tests alike.
//!
//! Not part of the crate's interface.

use super::api::{Publication, Unusable, parse};
use axum::http::StatusCode;
use myriad_shard::{Payload, PublishOptions};
use myriad_wire::centrifuge::is_json;
use myriad_wire::fuzzing::Members;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Bytes of a refusal's sentence: whatever was sent, the answer does not repeat all of it.
const MESSAGE_BYTES_MAX: usize = 700;

/// Fuzz target: any bytes as the body of `POST /api/publish`.
///
/// # Panics
/// It is read differently than [`by_the_book`] reads it, or a refusal does not say what to send.
pub fn publish_body(body: &[u8]) {
    let expected = by_the_book(body);
    match parse(body) {
        Ok((channel, Publication { content, options })) => {
            let tags = content.tags.iter();
            let found = Book {
                channel: channel.into_owned(),
                payload: content.payload.clone(),
                tags: tags
                    .map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect(),
                options,
            };
            assert_eq!(Some(found), expected);
        }
        Err(Unusable::Fault(fault)) => {
            assert_eq!(expected, None, "{fault:?}");
            assert!(fault.detail().len() <= MESSAGE_BYTES_MAX, "{fault:?}");
        }
        Err(Unusable::Malformed(refusal)) => {
            assert_eq!(expected, None, "{refusal:?}");
            assert_eq!(refusal.status(), StatusCode::BAD_REQUEST);
            let message = refusal.message();
            assert!(message.contains("send {"), "{message}");
            assert!(message.len() <= MESSAGE_BYTES_MAX, "{message}");
        }
    }
}

/// What a body says.
#[derive(Debug, PartialEq, Eq)]
struct Book {
    channel: String,
    payload: Payload,
    tags: BTreeMap<String, String>,
    options: PublishOptions,
}

/// The same body read member by member, as the API's documentation says: what must be published, if anything.
fn by_the_book(body: &[u8]) -> Option<Book> {
    let Members::<Box<RawValue>>(members) =
        serde_json::from_str(str::from_utf8(body).ok()?).ok()?;
    let (mut channel, mut json, mut bytes) = (None, None, None);
    let (mut tags, mut key, mut skip_history, mut delta) = (None, None, None, None);
    let (mut version, mut version_epoch) = (None, None);
    for (name, value) in &members {
        let is_repeated = match &**name {
            "channel" => channel.replace(string(value)?).is_some(),
            "data" => json.replace(value.get()).is_some(),
            "b64data" => bytes.replace(optional::<String>(value)?).is_some(),
            "tags" => tags
                .replace(optional::<BTreeMap<String, String>>(value)?)
                .is_some(),
            "idempotency_key" => key.replace(optional::<String>(value)?).is_some(),
            "skip_history" => skip_history.replace(optional(value)?).is_some(),
            "delta" => delta.replace(optional(value)?).is_some(),
            "version" => version.replace(optional(value)?).is_some(),
            "version_epoch" => version_epoch.replace(optional::<String>(value)?).is_some(),
            _ => return None,
        };
        if is_repeated {
            return None;
        }
    }
    let payload = match (bytes.flatten(), json) {
        (Some(encoded), _) => Payload::of_bytes(decode_base64(&encoded)?),
        (None, json) => {
            let json = json?;
            is_json(json.as_bytes()).then_some(())?;
            if json.starts_with('"') {
                serde_json::from_str::<String>(json).ok()?;
            }
            Payload::Json(json.into())
        }
    };
    let tags = tags.flatten().unwrap_or_default();
    let key = key.flatten().unwrap_or_default();
    let version_epoch = version_epoch.flatten().unwrap_or_default();
    (tags.len() <= 64 && key.len() <= 255 && version_epoch.len() <= 255).then_some(())?;
    Some(Book {
        channel: channel?,
        payload,
        tags,
        options: PublishOptions {
            idempotency_key: (!key.is_empty()).then(|| key.into()),
            delta: delta.flatten().unwrap_or_default(),
            skip_history: skip_history.flatten().unwrap_or_default(),
            version: version.flatten().unwrap_or_default(),
            version_epoch: version_epoch.into(),
        },
    })
}

/// A value, or none for `null`.
fn optional<T: DeserializeOwned>(value: &RawValue) -> Option<Option<T>> {
    serde_json::from_str(value.get()).ok()
}

fn string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// RFC 4648, section 4; padding may be left out, and bits that encode nothing are zero.
fn decode_base64(encoded: &str) -> Option<Vec<u8>> {
    let digits = encoded.trim_end_matches('=');
    let padding = encoded.len() - digits.len();
    if digits.len() % 4 == 1 || padding > digits.len().next_multiple_of(4) - digits.len() {
        return None;
    }
    let (mut bits, mut count, mut decoded) = (0_u32, 0, Vec::new());
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count).to_le_bytes()[0]);
        }
    }
    let rest = bits & ((1 << count) - 1);
    (rest == 0).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Replays the committed corpus of `fuzz/`.
    #[test]
    fn bodies_are_read_by_the_book() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/publish_body");
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        files.sort();
        assert!(files.len() >= 35, "{} files", files.len());
        for file in files {
            // Shown only when a property fails: the last line names the culprit.
            println!("{}", file.display());
            super::publish_body(&std::fs::read(&file).expect("a readable file"));
        }
    }

    #[test]
    fn a_refusal_does_not_repeat_what_was_sent() {
        let long = "\u{1}é".repeat(100_000);
        for body in [
            format!(r#"{{"{long}": 1}}"#),
            format!(r#"{{"channel": "c", "data": 1}} {long}"#),
            format!(
                r#"{{"channel": "c", "b64data": "{}"}}"#,
                "é".repeat(100_000)
            ),
            format!(r#"{{"channel": {}, "data": 1}}"#, "[".repeat(100_000)),
            format!(r#"{{"{}": 1, "data": 1}}"#, "é".repeat(100_000)),
        ] {
            super::publish_body(body.as_bytes());
        }
    }
}
