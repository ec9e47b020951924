//! What requests about streams say in their headers.

use super::super::error::Refusal;
use axum::http::{HeaderMap, StatusCode, header};
use myriad_shard::{MediaType, Producer, StreamExpiry};
use myriad_wire::streams::parse_timestamp;

/// Bytes of a `Stream-Seq`.
const SEQ_BYTES_MAX: usize = 255;

/// A stream to create.
#[derive(Debug)]
pub(super) struct Create {
    /// None: the request does not say.
    pub(super) content_type: Option<MediaType>,
    pub(super) expiry: StreamExpiry,
    pub(super) is_closed: bool,
}

impl Create {
    /// # Errors
    /// A header is not valid.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        if headers.contains_key("stream-forked-from")
            || headers.contains_key("stream-fork-offset")
            || headers.contains_key("stream-fork-sub-offset")
        {
            return Err(Refusal::new(
                StatusCode::NOT_IMPLEMENTED,
                "unsupported",
                "forks are not supported; read the stream, create another one, and append what it is to begin with",
            ));
        }
        Ok(Self {
            content_type: content_type(headers)?,
            expiry: expiry(headers)?,
            is_closed: closes(headers)?,
        })
    }
}

/// Data to append, or an end.
#[derive(Debug)]
pub(super) struct Append {
    /// Looked at only if there is data.
    pub(super) content_type: Result<MediaType, Refusal>,
    pub(super) producer: Option<Producer>,
    pub(super) stream_seq: Option<Box<str>>,
    pub(super) closes: bool,
}

impl Append {
    /// # Errors
    /// A header is not valid.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let missing = || invalid("Content-Type is missing; send the stream's");
        Ok(Self {
            content_type: content_type(headers).and_then(|found| found.ok_or_else(missing)),
            producer: producer(headers)?,
            stream_seq: stream_seq(headers)?,
            closes: closes(headers)?,
        })
    }
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::bad_request("header", message)
}

/// The only value of a header.
fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(invalid(format!("{name} is there twice; send it once")));
    }
    let text = str::from_utf8(value.as_bytes());
    let text = text.map_err(|_| invalid(format!("{name} is not UTF-8")))?;
    Ok(Some(text))
}

fn content_type(headers: &HeaderMap) -> Result<Option<MediaType>, Refusal> {
    let Some(text) = single(headers, header::CONTENT_TYPE.as_str())? else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(None);
    }
    MediaType::parse(text).map(Some).ok_or_else(|| {
        invalid(format!(
            "Content-Type is no media type of at most {} bytes; send one such as application/json",
            MediaType::BYTES_MAX
        ))
    })
}

/// Only the value `true` closes (section "Stream Closure"); others are as good as none.
pub(super) fn closes(headers: &HeaderMap) -> Result<bool, Refusal> {
    let value = single(headers, "stream-closed")?;
    Ok(value.is_some_and(|value| value.eq_ignore_ascii_case("true")))
}

fn expiry(headers: &HeaderMap) -> Result<StreamExpiry, Refusal> {
    let ttl = single(headers, "stream-ttl")?;
    let at = single(headers, "stream-expires-at")?;
    match (ttl, at) {
        (None, None) => Ok(StreamExpiry::Never),
        (Some(ttl), None) => decimal(ttl).map(StreamExpiry::Idle).ok_or_else(|| {
            invalid("Stream-TTL is not a number of seconds in digits alone; send one such as 3600")
        }),
        (None, Some(at)) => parse_timestamp(at).map(StreamExpiry::At).ok_or_else(|| {
            invalid(
                "Stream-Expires-At is no time of RFC 3339; send one such as 2027-01-01T00:00:00Z",
            )
        }),
        (Some(_), Some(_)) => Err(invalid(
            "Stream-TTL and Stream-Expires-At exclude each other; send one of them",
        )),
    }
}

/// A number in decimal notation, without leading zeros or signs.
fn decimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    (is_plain && !has_zeros)
        .then(|| text.parse().ok())
        .flatten()
}

fn stream_seq(headers: &HeaderMap) -> Result<Option<Box<str>>, Refusal> {
    match single(headers, "stream-seq")? {
        Some(seq) if seq.len() > SEQ_BYTES_MAX => Err(invalid(format!(
            "Stream-Seq has {} bytes; send at most {SEQ_BYTES_MAX}",
            seq.len()
        ))),
        seq => Ok(seq.map(Into::into)),
    }
}

fn producer(headers: &HeaderMap) -> Result<Option<Producer>, Refusal> {
    let parts = (
        single(headers, "producer-id")?,
        single(headers, "producer-epoch")?,
        single(headers, "producer-seq")?,
    );
    let (id, epoch, seq) = match parts {
        (None, None, None) => return Ok(None),
        (Some(id), Some(epoch), Some(seq)) => (id, epoch, seq),
        _ => {
            return Err(invalid(
                "Producer-Id, Producer-Epoch and Producer-Seq belong together; send all of them, or none",
            ));
        }
    };
    if !(1..=Producer::ID_BYTES_MAX).contains(&id.len()) {
        return Err(invalid(format!(
            "Producer-Id has {} bytes; send 1 to {}",
            id.len(),
            Producer::ID_BYTES_MAX
        )));
    }
    let number = |name: &str, text: &str| {
        let number = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.then(|| text.parse::<u64>().ok()).flatten();
        number
            .filter(|number| *number <= Producer::NUMBER_MAX)
            .ok_or_else(|| {
                invalid(format!(
                    "{name} is not a number from 0 to 2^53 - 1 in digits alone"
                ))
            })
    };
    Ok(Some(Producer {
        id: id.into(),
        epoch: number("Producer-Epoch", epoch)?,
        seq: number("Producer-Seq", seq)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            let value = HeaderValue::from_str(value).expect("a value");
            (HeaderName::from_static(name), value)
        };
        let mut headers = HeaderMap::new();
        for (name, value) in pairs.iter().map(pair) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_time_to_live_is_a_plain_number() {
        let expiry = |name, value| Create::of(&headers(&[(name, value)])).map(|one| one.expiry);
        assert_eq!(expiry("stream-ttl", "3600"), Ok(StreamExpiry::Idle(3600)));
        assert_eq!(expiry("stream-ttl", "0"), Ok(StreamExpiry::Idle(0)));
        for other in [
            "+1",
            "01",
            "-1",
            "1.0",
            "1e3",
            "",
            "abc",
            "99999999999999999999",
        ] {
            assert!(expiry("stream-ttl", other).is_err(), "{other}");
        }
        let at = expiry("stream-expires-at", "1970-01-01T00:00:01Z");
        assert_eq!(at, Ok(StreamExpiry::At(1000)));
        assert!(expiry("stream-expires-at", "tomorrow").is_err());
        let both = [
            ("stream-ttl", "1"),
            ("stream-expires-at", "2027-01-01T00:00:00Z"),
        ];
        assert!(Create::of(&headers(&both)).is_err());
    }

    #[test]
    fn only_true_closes() {
        for (value, expected) in [
            ("true", true),
            ("TRUE", true),
            ("false", false),
            ("1", false),
            ("", false),
        ] {
            let append = Append::of(&headers(&[("stream-closed", value)])).expect("valid");
            assert_eq!(append.closes, expected, "{value}");
        }
    }

    #[test]
    fn a_producer_is_three_headers() {
        let of = |id, epoch, seq| {
            let pairs = [
                ("producer-id", id),
                ("producer-epoch", epoch),
                ("producer-seq", seq),
            ];
            Append::of(&headers(&pairs)).map(|append| append.producer)
        };
        let producer = of("p", "0", "9007199254740991").expect("valid");
        assert_eq!(producer.expect("one").seq, Producer::NUMBER_MAX);
        for (id, epoch, seq) in [
            ("", "0", "0"),
            ("p", "-1", "0"),
            ("p", "0", "1e3"),
            ("p", "0xyz", "0"),
            ("p", "0", "9007199254740992"),
            ("p", "", "0"),
            (&*"p".repeat(256), "0", "0"),
        ] {
            assert!(of(id, epoch, seq).is_err(), "{epoch} {seq}");
        }
        let part = headers(&[("producer-id", "p")]);
        assert!(Append::of(&part).is_err());
    }

    #[test]
    fn a_header_that_comes_twice_means_nothing() {
        let twice = headers(&[("stream-seq", "a"), ("stream-seq", "b")]);
        assert!(Append::of(&twice).is_err());
    }

    #[test]
    fn forks_are_refused() {
        let fork = headers(&[("stream-forked-from", "/v1/stream/a")]);
        let refusal = Create::of(&fork).expect_err("refused");
        assert_eq!(refusal.status(), StatusCode::NOT_IMPLEMENTED);
    }
}
