//! Whole answers: to catch-up reads and to long polls.

use super::Persistence;
use crate::http::{push_field, write_status_line};

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Data, perhaps none.
    Ok,
    /// A long poll whose time is over, or at the end of a closed stream.
    NoContent,
    /// The client has what it asks for.
    NotModified,
}

impl Status {
    fn code(self) -> u16 {
        match self {
            Self::Ok => 200,
            Self::NoContent => 204,
            Self::NotModified => 304,
        }
    }
}

/// What caches may do with an answer (section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Data at an offset never changes, so an answer that a cursor names, or one that more data follows, can be kept for a while.
    Kept {
        /// Caches that are shared may keep it: it is for everybody.
        public: bool,
    },
    /// It ends at the end of the stream, which may grow: a cache has to ask whether it still holds.
    Revalidated,
    /// It says where the stream ends now.
    Never,
}

impl Caching {
    fn header(self) -> &'static str {
        match self {
            Self::Kept { public: true } => "public, max-age=60, stale-while-revalidate=300",
            Self::Kept { public: false } => "private, max-age=60, stale-while-revalidate=300",
            Self::Revalidated => "private, no-cache",
            Self::Never => "no-store",
        }
    }
}

/// The head of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its status.
    pub status: Status,
    /// The stream's content type.
    pub content_type: &'a str,
    /// The token of the position behind its data.
    pub next_offset: &'a str,
    /// Nothing comes behind its data yet.
    pub up_to_date: bool,
    /// Nothing will: the stream is closed, and its data is all that was left.
    pub closed: bool,
    /// The cursor that the client repeats; none where it needs none.
    pub cursor: Option<u64>,
    /// The entity tag, with its quotes.
    pub etag: Option<&'a str>,
    /// What caches may do.
    pub caching: Caching,
    /// What becomes of the connection.
    pub persistence: Persistence,
}

/// Whether a list of entity tags, as in If-None-Match, has this one (RFC 9110, section 13.1.2: weak comparison).
#[must_use]
pub fn etag_matches(list: &[u8], etag: &str) -> bool {
    let mut tags = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    tags.any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
}

/// What the server promises for data of streams, as `Stream-Durability`: it is in memory.
const DURABILITY: &str = "memory";

/// What every answer about a stream says, errors included (sections 8 and 10.7). Strangers write streams, and somebody may point a
/// browser at one: nothing in it is run, and no page of this origin is what they wrote.
pub const HEADERS: [(&str, &str); 4] = [
    ("stream-durability", DURABILITY),
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", "sandbox"),
    ("cross-origin-resource-policy", "cross-origin"),
];

/// What answers say besides to a page that is let in, and to programs that are no browser: scripts may read the answer, and these of its
/// headers.
///
/// Any origin may read, without credentials of the browser's: who may read is decided by the token, and by the list of allowed
/// origins before this is written. So the same bytes serve all pages.
pub const PAGE_HEADERS: [(&str, &str); 2] = [
    ("access-control-allow-origin", "*"),
    (
        "access-control-expose-headers",
        "ETag, Location, Producer-Epoch, Producer-Expected-Seq, Producer-Received-Seq, Producer-Seq, Retry-After, \
         Stream-Closed, Stream-Cursor, Stream-Durability, Stream-Expires-At, Stream-Next-Offset, Stream-SSE-Data-Encoding, \
         Stream-TTL, Stream-Up-To-Date",
    ),
];

/// How a client can show who it is, as WWW-Authenticate of a 401 says it.
pub const SCHEMES: &str = "Bearer, apikey";

/// The body of an error, in the form of the HTTP API's.
#[must_use]
pub fn error_body(code: &str, message: &str) -> String {
    let texts = [code, message].map(|text| serde_json::Value::from(text).to_string());
    let [code, message] = texts;
    format!("{{\"error\":{{\"code\":{code},\"message\":{message}}}}}")
}

/// Appends the headers that every answer has.
pub(super) fn push_common(out: &mut Vec<u8>) {
    for (name, value) in HEADERS.into_iter().chain(PAGE_HEADERS) {
        push_field(out, name, value);
    }
}

/// Appends a whole answer with this body. A 204 and a 304 lose it.
pub fn write_answer(out: &mut Vec<u8>, answer: &Answer<'_>, body: &[u8]) {
    let has_body = answer.status == Status::Ok;
    out.reserve(512 + body.len());
    write_status_line(out, answer.status.code());
    if let Some(connection) = answer.persistence.header() {
        push_field(out, "connection", connection);
    }
    if has_body {
        push_field(out, "content-type", answer.content_type);
        push_field(out, "content-length", &body.len().to_string());
    }
    push_field(out, "stream-next-offset", answer.next_offset);
    if answer.up_to_date {
        push_field(out, "stream-up-to-date", "true");
    }
    if answer.closed {
        push_field(out, "stream-closed", "true");
    }
    if let Some(cursor) = answer.cursor {
        push_field(out, "stream-cursor", &cursor.to_string());
    }
    if let Some(etag) = answer.etag {
        push_field(out, "etag", etag);
    }
    push_field(out, "cache-control", answer.caching.header());
    push_common(out);
    out.extend_from_slice(b"\r\n");
    if has_body {
        out.extend_from_slice(body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, parse_response};

    const ANSWER: Answer<'_> = Answer {
        status: Status::Ok,
        content_type: "application/json",
        next_offset: "e_2",
        up_to_date: true,
        closed: false,
        cursor: Some(7),
        etag: Some("\"e_1:e_2\""),
        caching: Caching::Kept { public: false },
        persistence: Persistence::KeepAlive,
    };

    fn written(answer: &Answer<'_>, body: &str) -> String {
        let mut out = Vec::new();
        write_answer(&mut out, answer, body.as_bytes());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn an_answer_is_whole_and_reads_back() {
        let text = written(&ANSWER, "[1]");
        let head = parse_response(text.as_bytes(), HeadLimits::default());
        let head = head.expect("well-formed").expect("whole");
        let header = |name| {
            head.header(name)
                .map(|value| str::from_utf8(value).expect("text"))
        };
        assert_eq!(head.status(), 200);
        for (name, expected) in [
            ("content-type", Some("application/json")),
            ("content-length", Some("3")),
            ("stream-next-offset", Some("e_2")),
            ("stream-up-to-date", Some("true")),
            ("stream-closed", None),
            ("stream-cursor", Some("7")),
            ("etag", Some("\"e_1:e_2\"")),
            ("connection", None),
            ("x-content-type-options", Some("nosniff")),
            ("content-security-policy", Some("sandbox")),
        ] {
            assert_eq!(header(name), expected, "{name}");
        }
        assert_eq!(&text[head.head_bytes()..], "[1]");
    }

    #[test]
    fn an_error_is_json() {
        let body = error_body("offset", "a \"b\" \\ \n");
        let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(read["error"]["code"], "offset");
        assert_eq!(read["error"]["message"], "a \"b\" \\ \n");
    }

    #[test]
    fn entity_tags_are_compared_as_weak_ones() {
        for (list, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(etag_matches(list.as_bytes(), "\"a\""), expected, "{list}");
        }
    }

    #[test]
    fn an_answer_without_content_has_no_length() {
        for (status, line) in [
            (Status::NoContent, "HTTP/1.1 204 No Content\r\n"),
            (Status::NotModified, "HTTP/1.1 304 Not Modified\r\n"),
        ] {
            let answer = Answer {
                status,
                closed: true,
                persistence: Persistence::Close,
                ..ANSWER
            };
            let text = written(&answer, "dropped");
            assert!(
                text.starts_with(line) && text.ends_with("\r\n\r\n"),
                "{text}"
            );
            assert!(!text.contains("content-length"));
            assert!(
                text.contains("stream-closed: true\r\n") && text.contains("connection: close\r\n")
            );
        }
    }
}
