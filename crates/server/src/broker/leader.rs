//! Messages of a stream as its leader has them, one by one and as text.

use super::servers::{FeedError, Stored, Which};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::RawMessage;
use async_nats::jetstream::{Context, ErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use myriad_nats::raw::Headers;
use serde::Deserialize;
use serde_json::json;

/// The answer to a question for a message.
#[derive(Debug, Deserialize)]
struct Found {
    message: RawMessage,
}

/// A message as the stream's leader has it; none if there is none. It comes as text, so that it can be read whatever stands in it.
///
/// # Errors
/// There is no answer.
pub(super) async fn look(
    context: &Context,
    stream: &str,
    which: Which<'_>,
) -> Result<Option<Stored>, FeedError> {
    let question = match which {
        Which::From(sequence) => json!({ "seq": sequence, "next_by_subj": ">" }),
        Which::OfFrom(subject, sequence) => json!({ "seq": sequence, "next_by_subj": subject }),
        Which::LastOf(subject) => json!({ "last_by_subj": subject }),
    };
    let subject = format!("STREAM.MSG.GET.{stream}");
    let answer = context.request(subject, &question).await;
    let answer: Response<Found> = answer.map_err(|error| FeedError::look(&error))?;
    match answer {
        Response::Ok(found) => Ok(Some(read(found.message))),
        Response::Err { error } if error.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
        Response::Err { error } => Err(FeedError::look(&error)),
    }
}

fn read(message: RawMessage) -> Stored {
    let headers = message.headers.map(|text| {
        let block = BASE64.decode(text).ok()?;
        Headers::parse(&block)
    });
    let payload = BASE64.decode(message.payload).ok();
    let is_spoiled = matches!(headers, Some(None)) || payload.is_none();
    Stored {
        sequence: message.sequence,
        stored_ns: message.time.unix_timestamp_nanos(),
        subject: message.subject.into(),
        headers: headers.flatten(),
        payload: payload.map(Bytes::from).unwrap_or_default(),
        is_spoiled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(headers: Option<&[u8]>) -> Stored {
        let mut message = json!({
            "subject": "my.h.~.a",
            "seq": 7,
            "data": BASE64.encode("1"),
            "time": "2026-11-22T10:00:00.000000005Z",
        });
        if let Some(headers) = headers {
            message["hdrs"] = BASE64.encode(headers).into();
        }
        read(serde_json::from_value(message).unwrap())
    }

    #[test]
    fn a_message_is_read_whatever_its_headers_are() {
        for (headers, is_spoiled) in [
            (None, false),
            (Some(&b"NATS/1.0\r\nA: b\r\n\r\n"[..]), false),
            (Some(&b"NATS/1.0\r\nName: \xe9\r\n\r\n"[..]), true),
            (Some(&b"NATS/1.0 503\r\n\r\n"[..]), true),
            (Some(&b"NATS/1.0\r\nno colon\r\n\r\n"[..]), true),
            (Some(&b"HTTP/1.1\r\n\r\n"[..]), true),
        ] {
            let stored = stored(headers);
            assert_eq!(stored.is_spoiled, is_spoiled, "{headers:?}");
            assert_eq!((stored.sequence, &*stored.subject), (7, "my.h.~.a"));
            assert_eq!(stored.stored_ns % 1_000_000_000, 5);
            assert_eq!(*stored.payload, *b"1");
        }
    }
}
