//! The body of a request: some events, and what names them.

use super::Event;
use super::queue::Queue;
use crate::config::event_name;
use bytes::Bytes;
use myriad_shard::Notice;
use serde::Serialize;
use std::io::Write as _;

/// Bytes at which a body gets no further event.
const BODY_BYTES_MAX: usize = 256 << 10;

/// Events on their way. The body of a batch stays the same however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Names it, among all batches of all servers.
    pub(super) id: String,
    pub(super) body: Bytes,
    /// Events in it.
    pub(super) count: u64,
    /// Events that it says were dropped.
    pub(super) dropped: u64,
    /// When the oldest of its events happened.
    pub(super) oldest_ms: Option<u64>,
}

/// An event, as a receiver reads it.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    at: u64,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'a> {
    Channel {
        channel: &'a str,
    },
    Client {
        client: String,
        /// Null of an anonymous client.
        user: Option<&'a str>,
        transport: &'static str,
        protocol: &'static str,
        #[serde(flatten)]
        end: Option<End<'a>>,
    },
}

#[derive(Serialize)]
struct End<'a> {
    code: u16,
    reason: &'a str,
    cause: &'static str,
    duration_ms: u64,
}

impl Batch {
    /// Takes the oldest events out of a queue. None if there is nothing to tell. `server` names this run of the server, and
    /// `sequence` the batch in it.
    pub(super) fn take(queue: &mut Queue, max: usize, server: &str, sequence: u64) -> Option<Self> {
        if !queue.has_news() {
            return None;
        }
        let id = format!("{server}-{sequence}");
        let dropped = queue.take_untold();
        let oldest_ms = queue.front().map(|event| event.at_ms);
        let mut body = format!(
            "{{\"id\":\"{id}\",\"server\":\"{server}\",\"sequence\":{sequence},\"dropped\":{dropped},\"events\":["
        )
        .into_bytes();
        let mut count = 0;
        while count < max && body.len() < BODY_BYTES_MAX {
            let Some(event) = queue.pop() else {
                break;
            };
            if count > 0 {
                body.push(b',');
            }
            write_event(&event, &mut body);
            count += 1;
        }
        let _ = body.write_all(b"]}");
        Some(Self {
            id,
            body: body.into(),
            count: count as u64,
            dropped,
            oldest_ms,
        })
    }
}

fn write_event(event: &Event, body: &mut Vec<u8>) {
    let (client, end) = match &event.what {
        Notice::Occupied(_) | Notice::Vacated(_) => (None, None),
        Notice::Connected(client) => (Some(client), None),
        Notice::Disconnected(client, end) => (Some(client), Some(end)),
    };
    let what = match (&event.what, client) {
        (Notice::Occupied(channel) | Notice::Vacated(channel), _) => What::Channel { channel },
        (_, Some(client)) => What::Client {
            client: client.client.to_string(),
            user: client.user.as_deref(),
            transport: client.transport,
            protocol: client.protocol,
            end: end.map(|end| End {
                code: end.code,
                reason: &end.reason,
                cause: end.cause.label(),
                duration_ms: u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            }),
        },
        (_, None) => unreachable!("an event is of a channel or of a client"),
    };
    let line = Line {
        kind: event_name(event.what.kind()),
        at: event.at_ms,
        what,
    };
    // Text and numbers, into memory: neither can fail.
    serde_json::to_writer(body, &line).expect("events are JSON");
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_shard::{ClientEnd, ClientId, CloseReason, NoticedClient};
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    fn queue(notices: impl IntoIterator<Item = Notice>) -> Queue {
        let mut queue = Queue::new(10_000);
        for (nth, what) in notices.into_iter().enumerate() {
            let at_ms = 1_700_000_000_000 + nth as u64;
            queue.push(Arc::new(Event { at_ms, what }));
        }
        queue
    }

    fn client(user: Option<&str>) -> NoticedClient {
        NoticedClient {
            client: ClientId([0x11; 16]),
            user: user.map(Into::into),
            transport: "websocket",
            protocol: "json",
        }
    }

    #[test]
    fn every_event_is_written_as_the_page_says() {
        let end = ClientEnd {
            cause: CloseReason::SlowConsumer,
            code: 3008,
            reason: "slow \"consumer\"".into(),
            duration: Duration::from_millis(61_500),
        };
        let mut queue = queue([
            Notice::Occupied("chat:1".into()),
            Notice::Vacated("a\"\u{e9}".into()),
            Notice::Connected(client(Some("42"))),
            Notice::Connected(client(None)),
            Notice::Disconnected(client(Some("42")), end),
        ]);
        queue.note_dropped(2);
        let batch = Batch::take(&mut queue, 256, "5eed", 7).expect("events");
        assert_eq!((batch.count, batch.dropped), (5, 2));
        assert_eq!(batch.oldest_ms, Some(1_700_000_000_000));
        let value: Value = serde_json::from_slice(&batch.body).expect("JSON");
        let id = "11111111-1111-1111-1111-111111111111";
        let expected = json!({
            "id": "5eed-7",
            "server": "5eed",
            "sequence": 7,
            "dropped": 2,
            "events": [
                {"type": "channel_occupied", "at": 1_700_000_000_000_u64, "channel": "chat:1"},
                {"type": "channel_vacated", "at": 1_700_000_000_001_u64, "channel": "a\"\u{e9}"},
                {"type": "client_connected", "at": 1_700_000_000_002_u64, "client": id, "user": "42", "transport": "websocket", "protocol": "json"},
                {"type": "client_connected", "at": 1_700_000_000_003_u64, "client": id, "user": null, "transport": "websocket", "protocol": "json"},
                {"type": "client_disconnected", "at": 1_700_000_000_004_u64, "client": id, "user": "42", "transport": "websocket", "protocol": "json", "code": 3008, "reason": "slow \"consumer\"", "cause": "slow_consumer", "duration_ms": 61_500},
            ],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_batch_is_bounded_by_events_and_by_bytes() {
        let mut many = queue((0..600).map(|_| Notice::Occupied("a".into())));
        let counts: Vec<u64> = (0..3)
            .filter_map(|sequence| Batch::take(&mut many, 256, "s", sequence))
            .map(|batch| batch.count)
            .collect();
        assert_eq!(counts, [256, 256, 88]);
        assert_eq!(Batch::take(&mut many, 256, "s", 3), None);
        let long = "x".repeat(100 << 10);
        let mut large = queue((0..5).map(|_| Notice::Occupied(long.as_str().into())));
        let batch = Batch::take(&mut large, 256, "s", 0).expect("events");
        assert_eq!(batch.count, 3, "the third one reaches the bound");
    }

    #[test]
    fn what_was_dropped_is_told_without_events() {
        let mut empty = queue([]);
        empty.note_dropped(9);
        let batch = Batch::take(&mut empty, 256, "s", 1).expect("something to tell");
        let value: Value = serde_json::from_slice(&batch.body).expect("JSON");
        assert_eq!(
            (&value["dropped"], &value["events"]),
            (&json!(9), &json!([]))
        );
    }
}
