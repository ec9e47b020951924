//! Request heads and response heads, and their parsers.

use super::headers::Headers;
use super::{HeadError, HeadLimits, Malformed};

/// A request's line and headers, borrowed from the bytes they were read from.
#[derive(Clone, Debug)]
pub struct RequestHead<'a> {
    bytes: &'a [u8],
    method: &'a str,
    target: &'a str,
    minor_version: u8,
    headers: Headers<'a>,
}

impl<'a> RequestHead<'a> {
    /// The method as sent; methods are case-sensitive (RFC 9110, section 9.1).
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The request target as sent, in any of its four forms (RFC 9112, section 3.2).
    #[must_use]
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The path of the target without its query, still percent-encoded.
    ///
    /// A target in absolute form (`GET http://host/path`) has its scheme and authority taken off,
    /// which RFC 9112, section 3.2.2, asks of every server. `*` and `host:port` are returned as they are.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path_and_query().0
    }

    /// What follows the first `?` of the target, still percent-encoded.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.path_and_query().1
    }

    /// Scheme and authority of a target in absolute form; of other targets none.
    pub(super) fn scheme_and_authority(&self) -> Option<(&'a str, &'a str)> {
        if self.target.starts_with('/') {
            return None;
        }
        let (before, _) = self
            .target
            .split_once(['?', '#'])
            .unwrap_or((self.target, ""));
        let (scheme, rest) = before.split_once("://")?;
        let authority = rest
            .split_once('/')
            .map_or(rest, |(authority, _)| authority);
        Some((scheme, authority))
    }

    fn path_and_query(&self) -> (&'a str, Option<&'a str>) {
        // `check_request` refuses a fragment; for those who do not ask it, a fragment is part of neither.
        let target = self.target.split('#').next().unwrap_or_default();
        let (before, query) = match target.split_once('?') {
            Some((before, query)) => (before, Some(query)),
            None => (target, None),
        };
        if before.starts_with('/') {
            return (before, query);
        }
        let path = match before.split_once("://") {
            Some((_, rest)) => rest.find('/').map_or("/", |start| &rest[start..]),
            None => before,
        };
        (path, query)
    }

    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    #[must_use]
    pub fn minor_version(&self) -> u8 {
        self.minor_version
    }

    /// The value of the first header of that name, in any case; without the space around it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.first(name)
    }

    /// The values of all headers of that name, in any case, in the order they came.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.all(name)
    }

    /// All headers, names as sent, in the order they came.
    pub fn header_lines(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        self.headers.iter()
    }

    /// Bytes of the head, from the first given to [`parse_request`] to the blank line, that line included.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The head as it was sent.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// A response's line and headers, borrowed from the bytes they were read from.
#[derive(Clone, Debug)]
pub struct ResponseHead<'a> {
    bytes: &'a [u8],
    status: u16,
    minor_version: u8,
    headers: Headers<'a>,
}

impl<'a> ResponseHead<'a> {
    /// The three digits of the status code, whatever they are.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether the real answer follows this one (RFC 9110, section 15.2). After 101 another protocol does.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    #[must_use]
    pub fn minor_version(&self) -> u8 {
        self.minor_version
    }

    /// The value of the first header of that name, in any case; without the space around it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers.first(name)
    }

    /// The values of all headers of that name, in any case, in the order they came.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.all(name)
    }

    /// All headers, names as sent, in the order they came.
    pub fn header_lines(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + '_ {
        self.headers.iter()
    }

    /// Bytes of the head, from the first given to [`parse_response`] to the blank line, that line included.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Reads a request head from the front of `bytes`. `None` while the head is incomplete.
///
/// Call it again with the same bytes and more. An error is final, and is found as soon as the bytes contain it.
///
/// # Errors
/// The peer's head is malformed or larger than `limits`.
pub fn parse_request<'a>(
    bytes: &'a [u8],
    limits: HeadLimits,
) -> Result<Option<RequestHead<'a>>, HeadError> {
    let mut headers = Headers::EMPTY;
    let bytes_within = within(bytes, limits);
    // The parser takes a line feed alone for the end of a line. It reads up to the first one, so that an error before it
    // is found first, as it is when the bytes come one by one.
    let bare_line_feed = find_bare_line_feed(bytes_within);
    let readable = bare_line_feed.map_or(bytes_within.len(), |position| position + 1);
    let parsed = headers.parse(limits.headers_max, |storage| {
        let mut request = httparse::Request::new(storage);
        let status = request.parse(&bytes_within[..readable])?;
        let line = (request.method, request.path, request.version);
        Ok(((status, line), request.headers.len()))
    });
    let (status, (method, target, minor_version)) = parsed.map_err(|error| match error {
        httparse::Error::Version if is_other_version(bytes_within) => HeadError::Version,
        error => error.into(),
    })?;
    let end = match (status, bare_line_feed) {
        // A line feed behind the head belongs to the body.
        (httparse::Status::Complete(end), None) => end,
        (httparse::Status::Complete(end), Some(position)) if end <= position => end,
        (_, Some(_)) => return Err(HeadError::Malformed(Malformed::LineEnd)),
        (httparse::Status::Partial, None) => return incomplete(bytes, limits),
    };
    Ok(Some(RequestHead {
        bytes: &bytes[..end],
        method: method.expect("a whole request has a method"),
        target: target.expect("a whole request has a target"),
        minor_version: minor_version.expect("a whole request has a version"),
        headers,
    }))
}

/// Whether the third word of a request line is a version that is not ours. The parser has refused the word, so the bytes contain
/// the first character that is wrong, and the answer does not depend on what follows it.
fn is_other_version(bytes: &[u8]) -> bool {
    let line = bytes.trim_ascii_start();
    let word = line.splitn(3, |byte| *byte == b' ').nth(2);
    match word.and_then(|word| word.strip_prefix(b"HTTP/")) {
        Some([b'1', rest @ ..]) => matches!(rest, [b'.', minor, ..] if minor.is_ascii_digit()),
        Some([major, ..]) => major.is_ascii_digit(),
        _ => false,
    }
}

/// Reads a response head from the front of `bytes`. `None` while the head is incomplete.
///
/// # Errors
/// The server's head is malformed or larger than `limits`.
pub fn parse_response<'a>(
    bytes: &'a [u8],
    limits: HeadLimits,
) -> Result<Option<ResponseHead<'a>>, HeadError> {
    let mut headers = Headers::EMPTY;
    let bytes_within = within(bytes, limits);
    let parsed = headers.parse(limits.headers_max, |storage| {
        let mut response = httparse::Response::new(storage);
        let end = response.parse(bytes_within)?;
        let line = (response.code, response.version);
        Ok(((end, line), response.headers.len()))
    });
    let (end, (status, minor_version)) = parsed?;
    let httparse::Status::Complete(end) = end else {
        return incomplete(bytes, limits);
    };
    Ok(Some(ResponseHead {
        bytes: &bytes[..end],
        status: status.expect("a whole response has a status"),
        minor_version: minor_version.expect("a whole response has a version"),
        headers,
    }))
}

/// The bytes that may contain the head. Reading no further makes the result independent of how many bytes after the head
/// have already arrived.
fn within(bytes: &[u8], limits: HeadLimits) -> &[u8] {
    &bytes[..bytes.len().min(limits.bytes_max)]
}

/// The first line feed that does not follow a carriage return. Some servers end a line there and some do not, so that
/// a head with one can be two different requests (RFC 9112, section 2.2, lets a server choose).
fn find_bare_line_feed(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes)
        .find(|position| position.checked_sub(1).map(|before| bytes[before]) != Some(b'\r'))
}

/// The limit is reached, not exceeded: an incomplete head of this size needs at least one more byte.
fn incomplete<T>(bytes: &[u8], limits: HeadLimits) -> Result<Option<T>, HeadError> {
    if bytes.len() >= limits.bytes_max {
        Err(HeadError::TooLong)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HEADERS_MAX;

    fn request(text: &str) -> RequestHead<'_> {
        parse_request(text.as_bytes(), HeadLimits::default())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_request_is_read_in_full() {
        let text = "GET /raw?channel=a&channel=b HTTP/1.1\r\nHost: example.com\r\nX-One: 1\r\nx-one:  2 \r\n\r\nrest";
        let head = request(text);
        assert_eq!(head.method(), "GET");
        assert_eq!(head.target(), "/raw?channel=a&channel=b");
        assert_eq!(head.path(), "/raw");
        assert_eq!(head.query(), Some("channel=a&channel=b"));
        assert_eq!(head.minor_version(), 1);
        assert_eq!(head.header("HOST"), Some(&b"example.com"[..]));
        assert_eq!(head.headers("X-ONE").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(head.header("absent"), None);
        assert_eq!(
            head.header_lines()
                .map(|(name, _)| name)
                .collect::<Vec<_>>(),
            ["Host", "X-One", "x-one"]
        );
        assert_eq!(&text[head.head_bytes()..], "rest");
    }

    #[test]
    fn every_prefix_of_a_head_is_incomplete() {
        let text = b"POST /api/publish HTTP/1.0\r\nhost: a\r\nempty:\r\n\r\n";
        for cut in 0..text.len() {
            assert!(
                parse_request(&text[..cut], HeadLimits::default())
                    .unwrap()
                    .is_none(),
                "{cut}"
            );
        }
        let head = parse_request(text, HeadLimits::default()).unwrap().unwrap();
        assert_eq!((head.minor_version(), head.head_bytes()), (0, text.len()));
        assert_eq!(head.header("empty"), Some(&b""[..]));
    }

    #[test]
    fn targets_have_four_forms() {
        let cases = [
            ("/", "/", None),
            ("/?", "/", Some("")),
            ("/a?b?c", "/a", Some("b?c")),
            ("http://example.com", "/", None),
            ("http://example.com?x=/y", "/", Some("x=/y")),
            ("ws://example.com:80/a/b?c", "/a/b", Some("c")),
            ("/a?u=http://b/c", "/a", Some("u=http://b/c")),
            ("/a#f?x", "/a", None),
            ("*", "*", None),
            ("example.com:443", "example.com:443", None),
        ];
        for (target, path, query) in cases {
            let text = format!("GET {target} HTTP/1.1\r\n\r\n");
            let head = request(&text);
            assert_eq!((head.path(), head.query()), (path, query), "{target}");
        }
    }

    #[test]
    fn the_length_limit_counts_the_blank_line() {
        let text = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let limits = |bytes_max| HeadLimits {
            bytes_max,
            ..HeadLimits::default()
        };
        assert!(parse_request(text, limits(text.len())).unwrap().is_some());
        assert_eq!(
            parse_request(text, limits(text.len() - 1)).unwrap_err(),
            HeadError::TooLong
        );
        // The verdict does not wait for the byte that would prove it.
        assert_eq!(
            parse_request(&text[..10], limits(10)).unwrap_err(),
            HeadError::TooLong
        );
        assert!(parse_request(&text[..9], limits(10)).unwrap().is_none());
        // A long body behind a short head is not the head's fault.
        let mut with_body = text.to_vec();
        with_body.resize(100_000, b'x');
        assert!(
            parse_request(&with_body, HeadLimits::default())
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn the_header_limit_is_exact_and_bounded_by_the_storage() {
        let text = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
        for headers_max in [0, 3, 63, 64, 65, HEADERS_MAX, 2000] {
            let limits = HeadLimits {
                headers_max,
                ..HeadLimits::default()
            };
            let most = headers_max.min(HEADERS_MAX);
            let accepted = parse_request(text(most).as_bytes(), limits)
                .unwrap()
                .unwrap()
                .header_lines()
                .count();
            assert_eq!(accepted, most);
            assert_eq!(
                parse_request(text(most + 1).as_bytes(), limits).unwrap_err(),
                HeadError::TooManyHeaders
            );
        }
    }

    #[test]
    fn malformed_requests_say_where() {
        let cases = [
            ("G\u{0}T / HTTP/1.1\r\n\r\n", Malformed::RequestLine),
            ("GET  / HTTP/1.1\r\n\r\n", Malformed::RequestLine),
            (" GET / HTTP/1.1\r\n\r\n", Malformed::RequestLine),
            ("\u{16}\u{3}\u{1}\u{2}", Malformed::RequestLine),
            ("GET / HTTP/x\r\n\r\n", Malformed::Version),
            ("GET / HTTP/1,1\r\n\r\n", Malformed::Version),
            ("GET / HTTP/11\r\n\r\n", Malformed::Version),
            ("GET / http/1.1\r\n\r\n", Malformed::Version),
            ("GET /a b HTTP/1.1\r\n\r\n", Malformed::Version),
            ("GET / HTTP/1.1\r\nno colon\r\n\r\n", Malformed::HeaderName),
            ("GET / HTTP/1.1\r\nhost : a\r\n\r\n", Malformed::HeaderName),
            (
                "GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n",
                Malformed::HeaderName,
            ),
            (
                "GET / HTTP/1.1\r\na: b\u{0}\r\n\r\n",
                Malformed::HeaderValue,
            ),
            (
                "GET / HTTP/1.1\r\na: b\rc: d\r\n\r\n",
                Malformed::HeaderValue,
            ),
            ("GET / HTTP/1.1\rx", Malformed::LineEnd),
            ("GET / HTTP/1.1\n", Malformed::LineEnd),
            ("\nGET / HTTP/1.1\r\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\r\na: b\r\n\n", Malformed::LineEnd),
            ("GET / HTTP/1.1\na: b\n\n", Malformed::LineEnd),
            // The first error is told.
            ("GET / HTTPS/2.0\n\n", Malformed::Version),
        ];
        for (text, what) in cases {
            let error = parse_request(text.as_bytes(), HeadLimits::default()).unwrap_err();
            assert_eq!(error, HeadError::Malformed(what), "{text:?}");
            assert_eq!(error.status(), 400);
            assert!(error.sentence().ends_with('.') && !error.label().is_empty());
        }
        assert_eq!(
            (
                HeadError::TooLong.status(),
                HeadError::TooManyHeaders.status()
            ),
            (431, 431)
        );
    }

    #[test]
    fn other_versions_are_known_and_not_spoken() {
        for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3", "HTTP/2"] {
            for text in [
                format!("PRI * {version}\r\n\r\n"),
                format!("\r\nGET / {version}"),
            ] {
                let error = parse_request(text.as_bytes(), HeadLimits::default()).unwrap_err();
                assert_eq!((error, error.status()), (HeadError::Version, 505), "{text}");
            }
        }
    }

    #[test]
    fn a_line_feed_behind_the_head_is_not_its_fault() {
        let text = "POST / HTTP/1.1\r\na: b\r\n\r\n\nbody\n";
        assert_eq!(&text[request(text).head_bytes()..], "\nbody\n");
    }

    #[test]
    fn a_response_is_read_in_full() {
        let text = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\r\nbody";
        let head = parse_response(text, HeadLimits::default())
            .unwrap()
            .unwrap();
        assert_eq!(
            (head.status(), head.minor_version(), head.head_bytes()),
            (503, 1, text.len() - 4)
        );
        assert_eq!(head.header("retry-after"), Some(&b"5"[..]));
        for cut in 0..text.len() - 4 {
            assert!(
                parse_response(&text[..cut], HeadLimits::default())
                    .unwrap()
                    .is_none(),
                "{cut}"
            );
        }
        assert_eq!(
            parse_response(b"HTTP/1.1 2x0 OK\r\n\r\n", HeadLimits::default()).unwrap_err(),
            HeadError::Malformed(Malformed::Status)
        );
    }
}
