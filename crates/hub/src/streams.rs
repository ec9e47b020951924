//! How a channel is told to those who read it as a stream: whole HTTP answers, and server-sent events.
//!
//! What a reader gets depends on what it has, on how its connection goes on, and on the time (its cursor). So each shard makes it
//! for its own readers, once for all of them that are alike.

use crate::encoding::{Encoding, Protocol};
use crate::time::ticks;
use crate::{Content, Epoch, Now, Payload, Position, StreamEndKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use myriad_wheel::{TICK_MS, Tick};
use myriad_wire::http::{LAST_CHUNK, encode_chunk};
use myriad_wire::reads::{
    Answer, CURSOR_EPOCH_S, CURSOR_INTERVAL_S, Caching, Control, Persistence, Status, write_answer,
    write_control, write_data, write_data_base64, write_events_head,
};
use myriad_wire::streams::MediaType;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How answers of readers of one stream differ: what becomes of the connection, and how a body ends whose length is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant(u8);

impl Variant {
    const PERSISTENCE: u8 = 3;
    const CHUNKED: u8 = 4;
    const OWN_CURSOR: u8 = 8;

    /// Of a client whose connection goes on like this, and that reads chunks or not.
    #[must_use]
    pub fn new(persistence: Persistence, is_chunked: bool) -> Self {
        let chunked = if is_chunked { Self::CHUNKED } else { 0 };
        Self(persistence as u8 | chunked)
    }

    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// What becomes of the connection.
    #[must_use]
    pub fn persistence(self) -> Persistence {
        Persistence::ALL[usize::from(self.0 & Self::PERSISTENCE).min(2)]
    }

    /// Whether the client reads chunks: those of HTTP/1.1 do.
    #[must_use]
    pub fn is_chunked(self) -> bool {
        self.0 & Self::CHUNKED != 0
    }

    /// Whether the reader needs a cursor of its own.
    #[must_use]
    pub fn has_own_cursor(self) -> bool {
        self.0 & Self::OWN_CURSOR != 0
    }

    pub(crate) fn with_own_cursor(self) -> Self {
        Self(self.0 | Self::OWN_CURSOR)
    }

    pub(crate) fn without_own_cursor(self) -> Self {
        Self(self.0 & !Self::OWN_CURSOR)
    }

    /// The same for a connection that ends with its answer.
    #[must_use]
    pub fn closing(self) -> Self {
        Self(self.0 & !Self::PERSISTENCE | Persistence::Close as u8)
    }
}

/// How long a request is held where nobody says otherwise. Below 30 s, after which clients (`durable-streams` of PyPI) and proxies
/// give up who keep their defaults, by more than the way to them takes.
const POLL: Duration = Duration::from_secs(25);

/// How long readers of streams are held, and how they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderSettings {
    /// A held request is answered after a time from here ...
    pub poll_min: Duration,
    /// ... to here, if nothing comes before.
    pub poll_max: Duration,
    /// Time that a connection may be idle between two requests.
    pub keep_alive: Duration,
    /// Time after which a stream of events ends, so that its client comes back; zero: never.
    pub events_max: Duration,
    /// Everybody may read. Shared caches may keep answers, but those of channels that are for some users only.
    pub is_public: bool,
    /// The Unix time at which the clock of [`Now`](crate::Now) was zero, s. Cursors count Unix time.
    pub unix_offset_s: u64,
}

impl Default for ReaderSettings {
    fn default() -> Self {
        Self {
            poll_min: POLL,
            poll_max: POLL,
            keep_alive: Duration::from_secs(75),
            events_max: Duration::ZERO,
            is_public: false,
            unix_offset_s: 0,
        }
    }
}

impl ReaderSettings {
    /// Ticks that a poll is held, for a `phase` that is a numerator of 2^32.
    pub(crate) fn poll_ticks(&self, phase: u32) -> u32 {
        let min = ticks(self.poll_min).max(1);
        let span = u64::from(ticks(self.poll_max).saturating_sub(min)) + 1;
        let added = (u64::from(phase) * span) >> u32::BITS;
        min.saturating_add(u32::try_from(added).unwrap_or(u32::MAX))
    }

    /// The cursor of an answer to one reader, which has shown this one: the current interval's, or a higher one than was shown.
    #[must_use]
    pub fn cursor(&self, shown: Option<u64>, now: Now) -> u64 {
        let interval = self.cursor_interval(now.tick());
        shown.map_or(interval, |shown| interval.max(shown.saturating_add(1)))
    }

    /// The number of the interval of cursors that a tick lies in.
    pub(crate) fn cursor_interval(&self, tick: Tick) -> u64 {
        let now_s = self.unix_offset_s + u64::from(tick.0) * u64::from(TICK_MS) / 1000;
        now_s.saturating_sub(CURSOR_EPOCH_S) / CURSOR_INTERVAL_S
    }
}

/// A part of a stream that a reader is told.
#[derive(Clone, Copy, Debug)]
pub struct StreamPart<'a> {
    /// The stream's content type.
    pub media_type: &'a MediaType,
    /// The channel's epoch.
    pub epoch: Epoch,
    /// The offset of the last publication before the part.
    pub from: u64,
    /// The offset of the last publication in it; `from` if it is empty.
    pub to: u64,
    /// Nothing comes behind it yet.
    pub is_up_to_date: bool,
    /// Nothing ever will.
    pub is_closed: bool,
}

impl StreamPart<'_> {
    /// The token of the position behind it.
    fn token(&self) -> String {
        let position = Position {
            epoch: self.epoch,
            offset: self.to,
        };
        position.stream_offset().to_string()
    }

    /// The entity tag of an answer with this part. Data at an offset never changes, so where it begins and ends names it.
    #[must_use]
    pub fn etag(&self) -> String {
        let closed = if self.is_closed { ":c" } else { "" };
        format!("\"{}:{:x}:{:x}{closed}\"", self.epoch, self.from, self.to)
    }

    /// The body of an answer with these publications: a JSON array, or the bytes of all of them one after another.
    pub fn body<'c>(&self, contents: impl Iterator<Item = &'c Content>) -> Vec<u8> {
        body_of(self.media_type, contents)
    }

    /// A whole answer with these publications.
    pub fn answer<'c>(
        &self,
        contents: impl Iterator<Item = &'c Content>,
        status: Status,
        cursor: Option<u64>,
        caching: Caching,
        persistence: Persistence,
    ) -> Vec<u8> {
        let body = match status {
            Status::Ok => self.body(contents),
            Status::NoContent | Status::NotModified => Vec::new(),
        };
        let etag = self.etag();
        let answer = Answer {
            status,
            content_type: self.media_type.as_str(),
            next_offset: &self.token(),
            up_to_date: self.is_up_to_date,
            closed: self.is_closed,
            cursor,
            etag: (caching != Caching::Never).then_some(&etag),
            caching,
            persistence,
        };
        let mut out = Vec::new();
        write_answer(&mut out, &answer, &body);
        out
    }

    /// The head of a stream of events, and when its client is to come back after its end, ms.
    #[must_use]
    pub fn events_head(media_type: &MediaType, variant: Variant, retry_ms: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let is_binary = !is_readable(media_type);
        write_events_head(
            &mut out,
            Persistence::Close,
            variant.is_chunked(),
            is_binary,
        );
        // One line, not an event: clients read it as it comes, and the first event follows.
        let retry = format!("retry:{retry_ms}\n");
        out.extend(chunk_of(retry.into_bytes(), variant.is_chunked()));
        out
    }

    /// An event with these publications, and one that says where the reader is then. Without publications the second only.
    pub fn events<'c>(
        &self,
        contents: impl Iterator<Item = &'c Content>,
        cursor: u64,
        variant: Variant,
    ) -> Vec<u8> {
        let mut events = Vec::new();
        if self.to > self.from {
            let body = self.body(contents);
            if is_readable(self.media_type) {
                write_data(&mut events, &body);
            } else {
                write_data_base64(&mut events, &body);
            }
        }
        let control = Control {
            next_offset: &self.token(),
            cursor,
            up_to_date: self.is_up_to_date,
            closed: self.is_closed,
        };
        write_control(&mut events, &control);
        chunk_of(events, variant.is_chunked())
    }
}

/// Bytes of a stream as one chunk (RFC 9112, section 7.1), where the client reads chunks.
fn chunk_of(bytes: Vec<u8>, is_chunked: bool) -> Vec<u8> {
    if !is_chunked {
        return bytes;
    }
    let mut chunk = Vec::new();
    encode_chunk(&mut chunk, &[&bytes]);
    chunk
}

/// A comment in a stream of events, which keeps it from being taken for dead.
pub(crate) fn comment(is_chunked: bool) -> Vec<u8> {
    chunk_of(b":\n\n".to_vec(), is_chunked)
}

/// The last bytes of a stream of events.
pub(crate) fn end_of_events(is_chunked: bool) -> Vec<u8> {
    if is_chunked {
        LAST_CHUNK.to_vec()
    } else {
        comment(false)
    }
}

/// Whether data of this type can stand in an event as it is.
fn is_readable(media_type: &MediaType) -> bool {
    media_type.is_json() || media_type.is_text()
}

/// The body of an answer: a JSON array, or the bytes of all publications one after another.
fn body_of<'c>(media_type: &MediaType, contents: impl Iterator<Item = &'c Content>) -> Vec<u8> {
    let mut body = Vec::new();
    if !media_type.is_json() {
        for content in contents {
            body.extend_from_slice(content.payload.bytes());
        }
        return body;
    }
    body.push(b'[');
    for (nth, content) in contents.enumerate() {
        if nth > 0 {
            body.push(b',');
        }
        push_json(&mut body, &content.payload);
    }
    body.push(b']');
    body
}

/// Appends data as JSON. Bytes, which somebody published past the rules of the stream, become a string in base64.
fn push_json(body: &mut Vec<u8>, payload: &Payload) {
    if let Some(json) = payload.json() {
        body.extend_from_slice(json.as_bytes());
    } else {
        body.push(b'"');
        body.extend_from_slice(STANDARD.encode(payload.bytes()).as_bytes());
        body.push(b'"');
    }
}

/// What was made for all readers that are alike.
#[derive(Debug)]
struct Made {
    from: u64,
    to: u64,
    /// Cursor of an answer without data; none with data, which only readers that already wait get.
    cursor: u64,
    encoding: Encoding,
    bytes: Arc<[u8]>,
}

/// What a shard knows of a channel as a stream.
#[derive(Debug)]
pub(crate) struct StreamSide {
    pub(crate) media_type: Arc<MediaType>,
    pub(crate) is_closed: bool,
    /// The channel's name lets everybody read it who may read anything.
    pub(crate) is_open: bool,
    /// The stream has gone: its home has to be asked whether there is another one. Readers who wait for that one may be here already.
    pub(crate) has_gone: bool,
    /// The highest cursor that a reader has shown which may share its answers.
    shown_cursor: u64,
    /// The highest cursor that was given.
    given_cursor: u64,
    made: VecDeque<Made>,
}

/// Answers that are kept for readers that are alike.
const MADE_MAX: usize = 8;
/// A cursor from elsewhere that is so far ahead is no reason to move everybody's: a day.
const CURSORS_AHEAD_MAX: u64 = 24 * 3600 / CURSOR_INTERVAL_S;

impl StreamSide {
    pub(crate) fn new(media_type: Arc<MediaType>, is_closed: bool, is_open: bool) -> Self {
        Self {
            media_type,
            is_closed,
            is_open,
            has_gone: false,
            shown_cursor: 0,
            given_cursor: 0,
            made: VecDeque::new(),
        }
    }

    /// A reader shows the cursor it was given; `interval` is the current one. False if it needs a cursor of its own.
    ///
    /// A cursor must grow from answer to answer (section 8.1 of the protocol). Where all readers get the same answer, it must be
    /// higher than what any of them has shown.
    pub(crate) fn note_cursor(&mut self, cursor: u64, interval: u64) -> bool {
        let is_ours = cursor <= self.given_cursor || cursor <= interval + CURSORS_AHEAD_MAX;
        if is_ours {
            self.shown_cursor = self.shown_cursor.max(cursor);
        }
        is_ours
    }

    /// The stream has ended, and its readers are to be told. For whoever asks from now on, ask the home: it may know another
    /// stream of that name by now.
    pub(crate) fn note_end(&mut self, kind: StreamEndKind) {
        self.is_closed = kind == StreamEndKind::Closed;
        self.has_gone = kind == StreamEndKind::Deleted;
    }

    /// Whether shared caches may keep answers.
    pub(crate) fn is_public(&self, settings: &ReaderSettings) -> bool {
        settings.is_public && self.is_open
    }

    /// A cursor that is no lower than what any reader has shown.
    pub(crate) fn shown_cursor(&self) -> u64 {
        self.shown_cursor
    }

    /// The cursor of an answer that goes to all.
    pub(crate) fn cursor(&mut self, interval: u64) -> u64 {
        let cursor = interval.max(self.shown_cursor + 1);
        self.given_cursor = self.given_cursor.max(cursor);
        cursor
    }

    /// What was made before, or is made now. `cursor` is none for an answer with data: those who wait for it are there already.
    pub(crate) fn made(
        &mut self,
        (from, to): (u64, u64),
        cursor: Option<u64>,
        encoding: Encoding,
        make: impl FnOnce(&mut Self) -> Vec<u8>,
    ) -> Arc<[u8]> {
        let cursor = cursor.unwrap_or(0);
        let is_alike = |made: &&Made| {
            (made.from, made.to, made.cursor, made.encoding) == (from, to, cursor, encoding)
        };
        if let Some(made) = self.made.iter().find(is_alike) {
            return Arc::clone(&made.bytes);
        }
        let bytes: Arc<[u8]> = make(self).into();
        if self.made.len() >= MADE_MAX {
            self.made.pop_front();
        }
        self.made.push_back(Made {
            from,
            to,
            cursor,
            encoding,
            bytes: Arc::clone(&bytes),
        });
        bytes
    }

    /// Forgets what was made: nobody is left who could get it.
    pub(crate) fn forget_made(&mut self) {
        self.made = VecDeque::new();
    }

    /// Bytes of a part for readers with this encoding.
    pub(crate) fn tell<'c>(
        part: &StreamPart<'_>,
        contents: impl Iterator<Item = &'c Content>,
        cursor: u64,
        encoding: Encoding,
        is_public: bool,
    ) -> Vec<u8> {
        let variant = encoding.variant();
        if encoding.protocol() == Protocol::Events {
            return part.events(contents, cursor, variant);
        }
        let has_data = part.to > part.from;
        let (status, caching) = if has_data {
            (Status::Ok, Caching::Kept { public: is_public })
        } else {
            (Status::NoContent, Caching::Never)
        };
        let cursor = Some(cursor);
        part.answer(contents, status, cursor, caching, variant.persistence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_wire::http::{HeadLimits, parse_response};
    use myriad_wire::streams::StreamOffset;

    fn content(payload: Payload) -> Content {
        Content::new(payload)
    }

    fn page(media_type: &MediaType, from: u64, to: u64) -> StreamPart<'_> {
        StreamPart {
            media_type,
            epoch: Epoch::new(7),
            from,
            to,
            is_up_to_date: true,
            is_closed: false,
        }
    }

    #[test]
    fn a_body_is_an_array_or_all_bytes() {
        let json = content(Payload::Json("{\"a\":\n1}".into()));
        let text = content(Payload::Text("b\"".into()));
        let binary = content(Payload::Binary([0, 255].into()));
        let all = || [&json, &text, &binary].into_iter();
        let body = body_of(&MediaType::json(), all());
        assert_eq!(str::from_utf8(&body), Ok(r#"[{"a":1},"b\"","AP8="]"#));
        assert_eq!(body_of(&MediaType::json(), [].into_iter()), b"[]");
        let body = body_of(&MediaType::octets(), all());
        assert_eq!(body, b"{\"a\":\n1}b\"\x00\xff");
    }

    #[test]
    fn an_answer_says_where_it_ends() {
        let media_type = MediaType::json();
        let one = content(Payload::Json("1".into()));
        let caching = Caching::Kept { public: true };
        let bytes = page(&media_type, 1, 2).answer(
            [&one].into_iter(),
            Status::Ok,
            Some(3),
            caching,
            Persistence::KeepAlive,
        );
        let head = parse_response(&bytes, HeadLimits::default());
        let head = head.expect("well-formed").expect("whole");
        let token = page(&media_type, 1, 2).token();
        assert_eq!(head.header("stream-next-offset"), Some(token.as_bytes()));
        assert_eq!(
            StreamOffset::parse(&token).map(|position| position.offset),
            Some(2)
        );
        assert_eq!(&bytes[head.head_bytes()..], b"[1]");
    }

    #[test]
    fn events_come_in_chunks_where_the_client_reads_them() {
        let media_type = MediaType::octets();
        let one = content(Payload::Binary([1].into()));
        let events = |chunked| {
            let variant = Variant::new(Persistence::Close, chunked);
            let bytes = page(&media_type, 0, 1).events([&one].into_iter(), 9, variant);
            String::from_utf8(bytes).expect("text")
        };
        let plain = events(false);
        assert!(plain.starts_with("event: data\ndata:AQ==\n\nevent: control\n"));
        assert_eq!(events(true), format!("{:x}\r\n{plain}\r\n", plain.len()));
        assert_eq!(end_of_events(true), b"0\r\n\r\n");
        assert_eq!(comment(true), b"3\r\n:\n\n\r\n");
        let head = |chunked| {
            let variant = Variant::new(Persistence::Close, chunked);
            String::from_utf8(StreamPart::events_head(&media_type, variant, 1_234)).expect("text")
        };
        assert!(head(false).ends_with("\r\n\r\nretry:1234\n"));
        assert!(head(true).ends_with("\r\n\r\nb\r\nretry:1234\n\r\n"));
    }

    #[test]
    fn cursors_grow_for_those_who_show_them() {
        let mut side = StreamSide::new(Arc::new(MediaType::json()), false, true);
        assert_eq!(side.cursor(100), 100);
        assert!(side.note_cursor(99, 100));
        assert_eq!(side.cursor(100), 100);
        for _ in 0..3 {
            let given = side.cursor(100);
            assert!(side.note_cursor(given, 100));
            assert!(side.cursor(100) > given);
        }
        // Nobody moves the cursors of all by more than a day.
        assert!(!side.note_cursor(1 << 50, 100));
        assert_eq!(side.cursor(100), 103);
        assert_eq!(side.cursor(200), 200);
    }

    #[test]
    fn polls_are_held_for_a_time_within_the_range() {
        let settings = ReaderSettings {
            poll_min: Duration::from_secs(30),
            poll_max: Duration::from_secs(90),
            ..ReaderSettings::default()
        };
        assert_eq!(settings.poll_ticks(0), 600);
        assert_eq!(settings.poll_ticks(u32::MAX), 1800);
        let same = ReaderSettings {
            poll_max: Duration::from_secs(30),
            ..settings
        };
        assert_eq!(same.poll_ticks(u32::MAX), 600);
    }

    #[test]
    fn a_variant_keeps_its_parts() {
        for persistence in Persistence::ALL {
            for chunked in [false, true] {
                let variant = Variant::new(persistence, chunked);
                assert_eq!(
                    (variant.persistence(), variant.is_chunked()),
                    (persistence, chunked)
                );
                assert_eq!(variant.closing().persistence(), Persistence::Close);
                assert!(variant.with_own_cursor().has_own_cursor() && !variant.has_own_cursor());
                assert!(variant.with_own_cursor().bits() < 16);
            }
        }
    }
}
