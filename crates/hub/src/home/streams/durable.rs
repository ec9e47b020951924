//! A stream's record as bytes, for the disk.
//!
//! It is JSON: it is written when a stream is created or closed and with each append of a producer, and read once a start. What a name
//! means must not change.

use super::life::{Closed, Stream};
use super::producers::Producers;
use super::{Appender, Producer, StreamExpiry};
use crate::Now;
use myriad_wire::streams::MediaType;
use serde_json::{Value, json};
use std::time::Duration;

/// What is known of a stream.
pub(in crate::home) fn write_stream(stream: &Stream) -> Vec<u8> {
    let expiry = match stream.expiry {
        StreamExpiry::Never => Value::Null,
        StreamExpiry::Idle(seconds) => json!({ "idle_s": seconds }),
        StreamExpiry::At(ms) => json!({ "at_ms": ms }),
    };
    let closed = match &stream.closed {
        Closed::Not => Value::Null,
        Closed::Plainly => json!({}),
        Closed::By(by, producer) => write_producer(by, producer),
    };
    let producers: Vec<Value> = stream
        .producers
        .all()
        .map(|(by, producer)| write_producer(by, &producer))
        .collect();
    let state = json!({
        "content_type": stream.content_type.as_str(),
        "created": stream.is_created,
        "begins_after": stream.begins_after,
        "expiry": expiry,
        "closed": closed,
        "producers": producers,
        "seq": stream.last_seq,
        "seq_of_clients": stream.last_seq_of_clients,
    });
    state.to_string().into_bytes()
}

fn write_producer(by: &Appender, producer: &Producer) -> Value {
    let (kind, name) = match by {
        Appender::Application(key) => ("application", &**key),
        Appender::User(user) => ("user", &**user),
        Appender::Anonymous => ("anonymous", ""),
    };
    json!([kind, name, producer.id, producer.epoch, producer.seq])
}

fn read_producer(value: &Value) -> Option<(Appender, Producer)> {
    let text = |index: usize| value[index].as_str();
    let by = match (text(0)?, text(1)?) {
        ("application", key) => Appender::Application(key.into()),
        ("user", user) => Appender::User(user.into()),
        _ => Appender::Anonymous,
    };
    let producer = Producer {
        id: text(2)?.into(),
        epoch: value[3].as_u64()?,
        seq: value[4].as_u64()?,
    };
    Some((by, producer))
}

/// How many producers these bytes have.
pub(in crate::home) fn producers_in(bytes: &[u8]) -> usize {
    let state: Option<Value> = serde_json::from_slice(bytes).ok();
    let producers = state.and_then(|state| state["producers"].as_array().map(Vec::len));
    producers.unwrap_or(0)
}

/// The stream that these bytes say; none if they are none of ours. `number` gives each producer its use. Times of idle streams and of
/// producers begin again.
pub(in crate::home) fn read_stream(
    bytes: &[u8],
    unix_now_ms: u64,
    now: Now,
    mut number: impl FnMut() -> u64,
) -> Option<Stream> {
    let state: Value = serde_json::from_slice(bytes).ok()?;
    let mut stream = Stream::published_after(state["begins_after"].as_u64()?);
    stream.content_type = MediaType::parse(state["content_type"].as_str()?)?;
    stream.is_created = state["created"].as_bool()?;
    if let Some(seconds) = state["expiry"]["idle_s"].as_u64() {
        stream.expiry = StreamExpiry::Idle(seconds);
    } else if let Some(ms) = state["expiry"]["at_ms"].as_u64() {
        stream.expiry = StreamExpiry::At(ms);
        let left = Duration::from_millis(ms.saturating_sub(unix_now_ms));
        stream.deadline = Some(now.tick_after(left));
    }
    stream.closed = match &state["closed"] {
        Value::Null => Closed::Not,
        closed => match read_producer(closed) {
            Some((by, producer)) => Closed::By(by, producer),
            None => Closed::Plainly,
        },
    };
    let mut producers = Producers::default();
    for value in state["producers"].as_array()? {
        let (by, producer) = read_producer(value)?;
        producers.note(&by, &producer, number(), now.tick());
    }
    stream.producers = producers;
    let seq = |name: &str| state[name].as_str().map(Box::from);
    stream.last_seq = seq("seq");
    stream.last_seq_of_clients = seq("seq_of_clients");
    stream.touch(now);
    Some(stream)
}
