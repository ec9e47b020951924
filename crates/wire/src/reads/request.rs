//! The request that reads a stream.

use crate::http::{
    BodyLength, QueryError, RequestHead, cookies_count_for_reading, credentials, query_pairs,
};
use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::fmt;

/// Where streams are. The rest of the path, decoded, is the channel's name.
pub const STREAM_PATH: &str = "/v1/stream/";

/// How a reader wishes to be told what comes later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Live {
    /// Not at all: it reads what is there.
    #[default]
    No,
    /// It waits for something to be there (section 5.7).
    LongPoll,
    /// It is told everything, as server-sent events (section 5.8).
    Events,
}

/// A request that reads a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    /// The channel's name.
    pub channel: Cow<'a, str>,
    /// From where on: the token of a position, `-1` for the beginning or `now` for the end; none: the beginning. Not checked beyond
    /// the characters that no token has.
    pub offset: Option<Cow<'a, str>>,
    /// The offset is the id of the last event that a browser's `EventSource` has seen.
    pub comes_back: bool,
    /// How it wishes to be told what comes later.
    pub live: Live,
    /// The cursor of the answer before this one, if it is a number. What is none was not made here, and says nothing.
    pub cursor: Option<u64>,
    /// The client's token: of the Authorization header, or else `token` in the query, or else of a cookie.
    pub token: Option<Cow<'a, str>>,
    /// Entity tags that the client has, as it wrote them.
    pub if_none_match: Option<Cow<'a, [u8]>>,
}

/// Why a request cannot read a stream. The client is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The path names no channel, or not in UTF-8.
    Channel,
    /// The query does not decode.
    Query(QueryError),
    /// `offset` is empty, repeated, or cannot be a token.
    Offset,
    /// `live` without `offset`.
    OffsetMissing,
    /// `live` is something else than `long-poll` and `sse`.
    Live,
    /// It announces a body.
    Body,
}

impl ReadError {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        400
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Channel => {
                "The path names no channel: ask for /v1/stream/NAME, with NAME percent-encoded UTF-8."
            }
            Self::Query(error) => error.sentence(),
            Self::Offset => {
                "The offset is malformed: send -1, now, or Stream-Next-Offset of an earlier answer, once. Last-Event-ID counts before it."
            }
            Self::OffsetMissing => {
                "A live read needs an offset: send -1, now, or Stream-Next-Offset of an earlier answer."
            }
            Self::Live => "Streams are live as long-poll or sse: send one of these, or no live.",
            Self::Body => "A request that reads a stream has no body: send none.",
        }
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Channel => "channel",
            Self::Query(error) => error.label(),
            Self::Offset | Self::OffsetMissing => "offset",
            Self::Live => "live",
            Self::Body => "body",
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for ReadError {}

impl From<QueryError> for ReadError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl<'a> ReadRequest<'a> {
    /// Reads it from a GET request whose path begins with [`STREAM_PATH`]. `cookie` is the name of the cookie that may have the
    /// client's token.
    ///
    /// `Last-Event-ID` stands for the offset where it is there: a browser's `EventSource` reconnects with the URL that it was
    /// made with, and says in this header how far it came.
    ///
    /// # Errors
    /// The request cannot be understood.
    pub fn of(head: &RequestHead<'a>, cookie: &str) -> Result<Self, ReadError> {
        if BodyLength::of(head) != Some(BodyLength::Bytes(0)) {
            return Err(ReadError::Body);
        }
        let mut request = Self {
            channel: channel_of(head.path())?,
            if_none_match: list_of(head.headers("if-none-match")),
            ..Self::default()
        };
        let (mut token, mut last_event_id) = (None, None);
        for pair in query_pairs(head.query().unwrap_or_default()) {
            let (name, value) = pair?;
            match &*name {
                "offset" if request.offset.is_some() => return Err(ReadError::Offset),
                "offset" => request.offset = Some(value),
                "live" => request.live = live_of(&value)?,
                "cursor" => request.cursor = value.parse().ok(),
                "token" => token = Some(value),
                // The second is what browsers' substitutes for EventSource send that cannot set a header.
                "last_event_id" | "lastEventId" => last_event_id = Some(value),
                _ => {}
            }
        }
        let said = head.header("last-event-id");
        let said = said
            .and_then(|id| str::from_utf8(id).ok())
            .map(Cow::Borrowed);
        if let Some(id) = said.or(last_event_id).filter(|id| !id.is_empty()) {
            request.offset = Some(id);
            request.comes_back = true;
        }
        match &request.offset {
            Some(offset) if !may_be_token(offset) => return Err(ReadError::Offset),
            None if request.live != Live::No => return Err(ReadError::OffsetMissing),
            _ => {}
        }
        request.token = bearer_of(head)
            .or(token)
            .or_else(|| cookie_of(head, cookie).filter(|_| cookies_count_for_reading(head)));
        Ok(request)
    }
}

/// The lines of a header whose value is a list, as one (RFC 9110, section 5.3).
fn list_of<'a>(mut lines: impl Iterator<Item = &'a [u8]>) -> Option<Cow<'a, [u8]>> {
    let mut list = Cow::Borrowed(lines.next()?);
    for line in lines {
        let list = list.to_mut();
        list.extend_from_slice(b", ");
        list.extend_from_slice(line);
    }
    Some(list)
}

fn channel_of(path: &str) -> Result<Cow<'_, str>, ReadError> {
    let name = path.strip_prefix(STREAM_PATH).unwrap_or_default();
    if name.is_empty() {
        return Err(ReadError::Channel);
    }
    percent_decode(name.as_bytes())
        .decode_utf8()
        .map_err(|_| ReadError::Channel)
}

fn live_of(value: &str) -> Result<Live, ReadError> {
    match value {
        "long-poll" => Ok(Live::LongPoll),
        "sse" => Ok(Live::Events),
        _ => Err(ReadError::Live),
    }
}

/// Whether a text has the characters of a token: none that means something in a query (section 6), none that ends a header.
fn may_be_token(text: &str) -> bool {
    const TOKEN_BYTES_MAX: usize = 256;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b",&=?/\"".contains(&byte);
    !text.is_empty() && text.len() < TOKEN_BYTES_MAX && text.bytes().all(is_plain)
}

fn bearer_of<'a>(head: &RequestHead<'a>) -> Option<Cow<'a, str>> {
    let token = credentials(head.header("authorization")?, "Bearer")?;
    str::from_utf8(token).ok().map(Cow::Borrowed)
}

/// The value of a cookie (RFC 6265, section 4.2.1). The first of the name counts.
fn cookie_of<'a>(head: &RequestHead<'a>, name: &str) -> Option<Cow<'a, str>> {
    // Another cookie beside it may have any bytes.
    let pairs = head
        .headers("cookie")
        .flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (known, value) = pair.split_at_checked(pair.iter().position(|byte| *byte == b'=')?)?;
        (known.trim_ascii() == name.as_bytes()).then(|| value[1..].trim_ascii())
    });
    str::from_utf8(values.next()?).ok().map(Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, parse_request};

    fn read(target: &str, headers: &str, check: impl FnOnce(Result<ReadRequest<'_>, ReadError>)) {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let head = parse_request(text.as_bytes(), HeadLimits::default());
        check(ReadRequest::of(
            &head.expect("well-formed").expect("whole"),
            "myriad_token",
        ));
    }

    #[test]
    fn a_request_is_read_in_full() {
        let target = "/v1/stream/chat:a%2Fb/c?offset=abc_1&live=long-poll&cursor=17&x=y";
        read(target, "If-None-Match: \"a\"\r\n", |request| {
            assert_eq!(
                request,
                Ok(ReadRequest {
                    comes_back: false,
                    channel: "chat:a/b/c".into(),
                    offset: Some("abc_1".into()),
                    live: Live::LongPoll,
                    cursor: Some(17),
                    token: None,
                    if_none_match: Some(Cow::Borrowed(b"\"a\"")),
                })
            );
        });
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for (target, headers, expected) in [
            ("/v1/stream/", "", ReadError::Channel),
            ("/v1/stream/%ff", "", ReadError::Channel),
            ("/v1/stream/a?offset=%ff", "", ReadError::Query(QueryError)),
            ("/v1/stream/a?offset=", "", ReadError::Offset),
            ("/v1/stream/a?offset=0,1", "", ReadError::Offset),
            ("/v1/stream/a?offset=0%201", "", ReadError::Offset),
            ("/v1/stream/a?offset=1&offset=1", "", ReadError::Offset),
            ("/v1/stream/a?live=sse", "", ReadError::OffsetMissing),
            ("/v1/stream/a?offset=1&live=yes", "", ReadError::Live),
            ("/v1/stream/a", "Content-Length: 1\r\n", ReadError::Body),
            (
                "/v1/stream/a",
                "Transfer-Encoding: chunked\r\n",
                ReadError::Body,
            ),
        ] {
            read(target, headers, |request| {
                assert_eq!(request, Err(expected), "{target}")
            });
        }
        read("/v1/stream/a", "Content-Length: 0\r\n", |request| {
            assert!(request.is_ok())
        });
    }

    #[test]
    fn a_browser_says_in_a_header_how_far_it_came() {
        let target = "/v1/stream/a?offset=-1&live=sse";
        read(target, "Last-Event-ID: e_2\r\n", |request| {
            let request = request.expect("good");
            assert_eq!(
                (request.offset.as_deref(), request.comes_back),
                (Some("e_2"), true)
            );
        });
        read(target, "Last-Event-ID:\r\n", |request| {
            let request = request.expect("good");
            assert_eq!(
                (request.offset.as_deref(), request.comes_back),
                (Some("-1"), false)
            );
        });
        read(target, "Last-Event-ID: a b\r\n", |request| {
            assert_eq!(request, Err(ReadError::Offset));
        });
    }

    #[test]
    fn polyfills_say_in_the_query_how_far_they_came() {
        for name in ["last_event_id", "lastEventId"] {
            let target = format!("/v1/stream/a?offset=-1&live=sse&{name}=e_2");
            read(&target, "", |request| {
                let request = request.expect("good");
                assert_eq!(
                    (request.offset.as_deref(), request.comes_back),
                    (Some("e_2"), true)
                );
            });
        }
    }

    #[test]
    fn entity_tags_come_in_several_lines() {
        let lines = "If-None-Match: \"a\", \"b\"\r\nIf-None-Match: \"c\"\r\n";
        read("/v1/stream/a", lines, |request| {
            let tags = request.expect("good").if_none_match;
            assert_eq!(tags.as_deref(), Some(&b"\"a\", \"b\", \"c\""[..]));
        });
    }

    #[test]
    fn bytes_of_another_cookie_hide_no_token() {
        let text = b"GET /v1/stream/a HTTP/1.1\r\nHost: a\r\nCookie: city=M\xFCnchen; myriad_token=t3\r\n\r\n";
        let head = parse_request(text, HeadLimits::default());
        let head = head.expect("well-formed").expect("whole");
        let request = ReadRequest::of(&head, "myriad_token").expect("good");
        assert_eq!(request.token.as_deref(), Some("t3"));
    }

    #[test]
    fn a_token_comes_in_one_of_three_places() {
        for (target, headers, expected) in [
            ("/v1/stream/a", "Authorization: bearer  t1\r\n", Some("t1")),
            ("/v1/stream/a?token=t2", "", Some("t2")),
            (
                "/v1/stream/a?token=t2",
                "Authorization: Bearer t1\r\n",
                Some("t1"),
            ),
            (
                "/v1/stream/a",
                "Cookie: a=b; myriad_token=t3; c=d\r\n",
                Some("t3"),
            ),
            (
                "/v1/stream/a",
                "Cookie: lang=en\r\nCookie: sid=1;myriad_token = t3\r\n",
                Some("t3"),
            ),
            (
                "/v1/stream/a",
                "Cookie: a=b; myriad_token=t3\r\nSec-Fetch-Site: same-origin\r\n",
                Some("t3"),
            ),
            // An image in a page of a stranger.
            (
                "/v1/stream/a",
                "Cookie: a=b; myriad_token=t3\r\nSec-Fetch-Site: cross-site\r\n",
                None,
            ),
            ("/v1/stream/a", "Authorization: Basic eA==\r\n", None),
            ("/v1/stream/a", "", None),
        ] {
            read(target, headers, |request| {
                assert_eq!(
                    request.expect("good").token.as_deref(),
                    expected,
                    "{headers}"
                );
            });
        }
    }
}
