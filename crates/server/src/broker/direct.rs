//! Messages of a stream as any of its servers has them: direct gets.
//!
//! One question gives many messages, and any server that has the stream answers, whether it leads or not. So an answer may be behind
//! (measured: 2 to 13 % of the answers right after an acknowledgement). For many subjects it says how far its server has got.

use super::asker::Asker;
use super::servers::{FeedError, LastBySubject, Page, PageSize, Stored};
use async_nats::Subject;
use bytes::Bytes;
use myriad_nats::raw::{Headers, RawMessage};
use serde::Serialize;
use std::collections::HashMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Messages of an answer about last messages, and their bytes: an answer is put together in memory.
const LAST_SIZE: PageSize = PageSize {
    messages_max: 1_024,
    bytes_max: 4 << 20,
};
/// Headers of JetStream's own.
const OWN: [&str; 9] = [
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Last-Sequence",
    "Nats-Msg-Size",
    "Nats-Time-Stamp",
    "Nats-Num-Pending",
    "Nats-UpTo-Sequence",
    "Nats-Last-Consumer",
    "Nats-Consumer-Stalled",
];
/// The stream has no message that the question is about.
const NO_MESSAGE: u16 = 404;
/// The end of an answer.
const END: u16 = 204;

/// What a server is asked; JetStream knows these names.
#[derive(Debug, Default, Serialize)]
pub(super) struct Question<'a> {
    /// The first place.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// Messages of this subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
    /// The last message of each of these subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    multi_last: Option<&'a [String]>,
    batch: usize,
    max_bytes: usize,
}

/// What a server answers to a direct get.
#[derive(Debug, Default)]
pub(super) struct DirectAnswer {
    messages: Vec<Stored>,
    /// Messages that did not fit.
    pending: u64,
    /// How far the server had got, where it says so.
    up_to: Option<u64>,
    /// The server has no such message.
    is_empty: bool,
}

/// The place of the last message of each subject. The first subject must have one.
///
/// # Errors
/// There is no answer.
pub(super) async fn last_by_subject(
    asker: &Asker,
    stream: &str,
    subjects: &[String],
) -> Result<LastBySubject, FeedError> {
    let mut found = LastBySubject {
        watermark: u64::MAX,
        places: HashMap::new(),
    };
    let mut left = subjects.to_vec();
    loop {
        let question = Question {
            multi_last: Some(&left),
            ..Question::of_size(LAST_SIZE)
        };
        let answer = ask(asker, stream, &question).await?;
        let Some(up_to) = answer.up_to.filter(|_| !answer.is_empty) else {
            return Err(FeedError::look(&"the answer does not say how far it goes"));
        };
        // Another server may answer for the rest, and have less. So what is left is asked for anew, and the least counts.
        found.watermark = found.watermark.min(up_to);
        let before = found.places.len();
        let places = answer.messages.iter();
        let places = places.map(|message| (message.subject.to_string(), message.sequence));
        found.places.extend(places);
        if answer.pending == 0 {
            return Ok(found);
        }
        if found.places.len() == before {
            return Err(FeedError::look(&"the answer has less than it says"));
        }
        left.retain(|subject| !found.places.contains_key(subject));
        // There is always a message there: an answer without one is a mistake.
        left.insert(0, subjects[0].clone());
    }
}

/// Messages of a subject from a place on.
///
/// # Errors
/// There is no answer.
pub(super) async fn page(
    asker: &Asker,
    stream: &str,
    subject: &str,
    from: u64,
    size: PageSize,
) -> Result<Page, FeedError> {
    let question = Question::for_page(subject, from, size);
    let answer = ask(asker, stream, &question).await?;
    Ok(Page {
        has_more: answer.pending > 0 && !answer.messages.is_empty(),
        messages: answer.messages,
    })
}

impl<'a> Question<'a> {
    fn of_size(size: PageSize) -> Self {
        Self {
            batch: size.messages_max,
            max_bytes: size.bytes_max,
            ..Self::default()
        }
    }

    fn for_page(subject: &'a str, from: u64, size: PageSize) -> Self {
        Self {
            seq: Some(from),
            next_by_subj: Some(subject),
            ..Self::of_size(size)
        }
    }
}

async fn ask(
    asker: &Asker,
    stream: &str,
    question: &Question<'_>,
) -> Result<DirectAnswer, FeedError> {
    let payload = serde_json::to_vec(question).expect("numbers and strings");
    asker
        .ask(format!("$JS.API.DIRECT.GET.{stream}"), payload)
        .await
}

impl DirectAnswer {
    /// A message of an answer comes. Returns whether it is the last one.
    ///
    /// # Errors
    /// It is no part of an answer.
    pub(super) fn take(&mut self, message: RawMessage) -> Result<bool, FeedError> {
        let RawMessage {
            headers: block,
            payload,
            ..
        } = message;
        let block = block.unwrap_or_default();
        // The headers of a message may look like a status. JetStream writes behind them where it stands.
        if let Some(stored) = stored(&block, &payload) {
            self.messages.push(stored);
            return Ok(false);
        }
        match status_of(&block) {
            None => Err(FeedError::look(&"it does not say where it stands")),
            Some(END) => {
                let own = own_headers(&block);
                self.pending = number(&own, "Nats-Num-Pending").unwrap_or(0);
                self.up_to = number(&own, "Nats-UpTo-Sequence");
                Ok(true)
            }
            Some(NO_MESSAGE) => {
                self.is_empty = true;
                Ok(true)
            }
            Some(status) => Err(FeedError::look(&format!("status {status}"))),
        }
    }
}

/// The status of an answer; none of a message.
pub(super) fn status_of(block: &[u8]) -> Option<u16> {
    let line = block.split(|byte| *byte == b'\r').next()?;
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("NATS/1.0 ")?;
    rest.split(' ').next()?.parse().ok()
}

/// A message of a stream that is sent with its place. Its own headers may be none of NATS.
///
/// It has a copy of its payload: a piece of the buffer that it was read to would keep all of that in memory, and whoever counts the bytes
/// of messages would count too few.
pub(super) fn stored(block: &Bytes, payload: &[u8]) -> Option<Stored> {
    let headers = Headers::parse(block);
    let Place {
        subject,
        sequence,
        stored_ns,
    } = match &headers {
        Some(headers) => Place::read(headers),
        None => Place::read(&own_headers(block)),
    }?;
    Some(Stored {
        sequence,
        stored_ns,
        subject,
        is_spoiled: headers.is_none(),
        headers,
        payload: Bytes::copy_from_slice(payload),
    })
}

/// What JetStream has written behind the headers of a publisher. Its lines are sound, whatever stands before them.
pub(super) fn own_headers(block: &[u8]) -> Headers {
    let lines = block.split(|byte| *byte == b'\n');
    let values = lines.filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        // A publisher may have written the same names, and a CR that may not stand in a value.
        let is_own = OWN.contains(&name) && !value.trim().contains('\r');
        is_own.then(|| (name, value.trim()))
    });
    values.collect()
}

/// Where a message stands that comes by itself, or by a direct get.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) subject: Subject,
    pub(super) sequence: u64,
    pub(super) stored_ns: i128,
}

impl Place {
    /// Reads what JetStream adds to a message's headers.
    pub(super) fn read(headers: &Headers) -> Option<Self> {
        let time = headers.last("Nats-Time-Stamp")?;
        let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
        Some(Self {
            subject: headers.last("Nats-Subject")?.into(),
            sequence: number(headers, "Nats-Sequence")?,
            stored_ns: time.unix_timestamp_nanos(),
        })
    }
}

/// The number in a header of JetStream's own. The last one counts: JetStream writes its own behind those of the publisher, who may have
/// written the same names.
pub(super) fn number(headers: &Headers, name: &str) -> Option<u64> {
    headers.last(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_nats::raw::Sid;

    #[test]
    fn a_message_says_where_it_stands() {
        let all = [
            ("Nats-Subject", "my.h.~.a"),
            ("Nats-Sequence", "7"),
            ("Nats-Time-Stamp", "2026-11-22T10:00:00.000000005Z"),
        ];
        let place = Place::read(&Headers::from_iter(all)).expect("all of it is there");
        assert_eq!((&*place.subject, place.sequence), ("my.h.~.a", 7));
        assert_eq!(place.stored_ns % 1_000_000_000, 5);
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(missing);
            assert_eq!(Place::read(&Headers::from_iter(some)), None);
        }
    }

    #[test]
    fn what_jetstream_writes_is_found_behind_broken_headers() {
        let block = Bytes::from_static(
            b"NATS/1.0 503 XX\r\nName: \xe9\r\nNats-Sequence: 1\r2\r\nNats-Subject: my.h.~.a\r\nNats-Sequence: 7\r\nNats-Time-Stamp: 2026-11-22T10:00:00Z\r\nNats-Last-Sequence: 5\r\n\r\n",
        );
        let stored = stored(&block, b"").expect("it says where it stands");
        assert_eq!((&*stored.subject, stored.sequence), ("my.h.~.a", 7));
        assert!(stored.is_spoiled);
        let own = own_headers(&block);
        assert_eq!(number(&own, "Nats-Last-Sequence"), Some(5));
    }

    #[test]
    fn an_answer_has_an_end() {
        let message = |block: &'static [u8]| RawMessage {
            subject: "inbox".into(),
            sid: Sid(1),
            reply: None,
            headers: Some(Bytes::from_static(block)),
            payload: Bytes::from_static(b"7"),
        };
        let mut answer = DirectAnswer::default();
        let one = message(
            b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: 3\r\nNats-Time-Stamp: 2026-11-22T10:00:00Z\r\n\r\n",
        );
        assert!(matches!(answer.take(one), Ok(false)));
        let end =
            message(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 2\r\nNats-UpTo-Sequence: 9\r\n\r\n");
        assert!(matches!(answer.take(end), Ok(true)));
        let DirectAnswer {
            messages,
            pending,
            up_to,
            ..
        } = &answer;
        assert_eq!((messages.len(), *pending, *up_to), (1, 2, Some(9)));
        let none = message(b"NATS/1.0 404 Message Not Found\r\n\r\n");
        assert!(matches!(answer.take(none), Ok(true)));
        for bad in [&b"NATS/1.0 503\r\n\r\n"[..], b"NATS/1.0\r\n\r\n", b""] {
            assert!(answer.take(message(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_message_does_not_keep_the_buffer_that_it_was_read_to() {
        let block = b"NATS/1.0\r\nNats-Subject: a\r\nNats-Sequence: 3\r\nNats-Time-Stamp: 2026-11-22T10:00:00Z\r\n\r\n";
        let buffer = Bytes::from(vec![7_u8; 1_000]);
        let message = RawMessage {
            subject: "inbox".into(),
            sid: Sid(1),
            reply: None,
            headers: Some(Bytes::from_static(block)),
            payload: buffer.slice(..10),
        };
        let mut answer = DirectAnswer::default();
        assert!(matches!(answer.take(message), Ok(false)));
        assert_eq!(answer.messages[0].payload, buffer[..10]);
        assert!(buffer.is_unique(), "nobody else has a piece of it");
    }

    #[test]
    fn a_question_says_what_is_meant() {
        let subjects = ["a".to_owned()];
        let last = Question {
            multi_last: Some(&subjects),
            ..Question::of_size(LAST_SIZE)
        };
        let size = PageSize {
            messages_max: 65,
            bytes_max: 33_828,
        };
        let page = Question::for_page("a", 7, size);
        for (question, json) in [
            (
                last,
                serde_json::json!({ "multi_last": ["a"], "batch": 1_024, "max_bytes": 4_194_304 }),
            ),
            (
                page,
                serde_json::json!({ "seq": 7, "next_by_subj": "a", "batch": 65, "max_bytes": 33_828 }),
            ),
        ] {
            let said = serde_json::to_value(&question).expect("plain data");
            assert_eq!(said, json);
        }
    }
}
