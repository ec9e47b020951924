//! Short responses that end a connection, and the heads of responses that go on.

/// Appends a whole response: status line, `headers`, and a plain-text body with its length.
///
/// Adds `content-length`, `content-type: text/plain; charset=utf-8` and `connection: close`; the last
/// two only when `headers` does not have them. Statuses that have no body (RFC 9110, section 6.4.1)
/// lose it. A control character in a value becomes a space, so that nothing a value was made of can add a
/// header.
pub fn write_response(out: &mut Vec<u8>, status: u16, headers: &[(&str, &str)], body: &str) {
    let has = |wanted: &str| {
        headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
    };
    let bodiless = matches!(status, 100..=199 | 204 | 304);

    write_status_line(out, status);
    for (name, value) in headers {
        push_field(out, name, value);
    }
    if !has("connection") {
        push_field(out, "connection", "close");
    }
    if !bodiless {
        if !has("content-type") {
            push_field(out, "content-type", "text/plain; charset=utf-8");
        }
        push_field(out, "content-length", &body.len().to_string());
    }
    out.extend_from_slice(b"\r\n");
    if !bodiless {
        out.extend_from_slice(body.as_bytes());
    }
}

/// Appends the head of a response whose body comes in chunks (RFC 9112, section 7.1): status line, `headers`, and
/// `transfer-encoding: chunked`. For clients of HTTP/1.1 only. Of values, as [`write_response`].
pub fn write_stream_head(out: &mut Vec<u8>, status: u16, headers: &[(&str, &str)]) {
    write_status_line(out, status);
    for (name, value) in headers {
        push_field(out, name, value);
    }
    push_field(out, "transfer-encoding", "chunked");
    out.extend_from_slice(b"\r\n");
}

/// Appends a status line.
pub(crate) fn write_status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one header line. Control characters but the tab become spaces (RFC 9110, section 5.5).
pub(crate) fn push_field(out: &mut Vec<u8>, name: &str, value: &str) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    for byte in &mut out[start..] {
        if byte.is_ascii_control() && *byte != b'\t' {
            *byte = b' ';
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// The registered phrase of a status, or that of its class (RFC 9110, section 15).
fn reason_phrase(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => match status / 100 {
            1 => "Informational",
            2 => "Success",
            3 => "Redirection",
            4 => "Client Error",
            _ => "Server Error",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_response};
    use super::*;

    fn written(status: u16, headers: &[(&str, &str)], body: &str) -> String {
        let mut out = Vec::new();
        write_response(&mut out, status, headers, body);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_response_is_whole_and_reads_back() {
        let text = written(503, &[("retry-after", "5")], "Full: try again, büro.\n");
        assert_eq!(
            text,
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\
             content-type: text/plain; charset=utf-8\r\ncontent-length: 24\r\n\r\nFull: try again, büro.\n"
        );
        let head = parse_response(text.as_bytes(), HeadLimits::default())
            .unwrap()
            .unwrap();
        assert_eq!(head.header("content-length"), Some(&b"24"[..]));
        assert_eq!(text.len() - head.head_bytes(), 24);
    }

    #[test]
    fn the_callers_headers_win() {
        let text = written(
            426,
            &[
                ("Connection", "upgrade, close"),
                ("Content-Type", "application/json"),
            ],
            "{}",
        );
        assert_eq!(text.matches("onnection:").count(), 1);
        assert_eq!(text.matches("ontent-").count(), 2);
    }

    #[test]
    fn a_value_cannot_add_a_header() {
        let text = written(400, &[("x", "a\r\nset-cookie: b\0")], "");
        let head = parse_response(text.as_bytes(), HeadLimits::default())
            .unwrap()
            .unwrap();
        assert_eq!(head.header("set-cookie"), None);
        assert_eq!(head.header("x"), Some(&b"a  set-cookie: b"[..]));
    }

    #[test]
    fn a_stream_begins_with_a_head_that_reads_back() {
        let mut out = Vec::new();
        write_stream_head(&mut out, 200, &[("content-type", "text/event-stream")]);
        let head = parse_response(&out, HeadLimits::default())
            .unwrap()
            .unwrap();
        assert_eq!((head.status(), head.head_bytes()), (200, out.len()));
        assert_eq!(head.header("transfer-encoding"), Some(&b"chunked"[..]));
        assert_eq!(head.header("content-length"), None);
    }

    #[test]
    fn bodiless_statuses_have_no_body() {
        let text = written(204, &[], "dropped");
        assert_eq!(text, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        assert!(written(799, &[], "").starts_with("HTTP/1.1 799 Server Error\r\n"));
    }
}
