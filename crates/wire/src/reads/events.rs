//! Server-sent events (WHATWG HTML, section 9.2; section 5.8 of the protocol), and the head that comes before them.

use super::Persistence;
use super::answer::push_common;
use crate::http::{push_field, write_status_line};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::Write;

/// Appends the head of an answer that is a stream of events. HTTP/1.1 clients get it in chunks; for others it ends with the
/// connection. `binary` says that data is told in base64.
///
/// `x-accel-buffering` asks nginx to pass each event on at once.
pub fn write_events_head(out: &mut Vec<u8>, persistence: Persistence, chunked: bool, binary: bool) {
    write_status_line(out, 200);
    if let Some(connection) = persistence.header() {
        push_field(out, "connection", connection);
    }
    push_field(out, "content-type", "text/event-stream");
    if chunked {
        push_field(out, "transfer-encoding", "chunked");
    }
    if binary {
        push_field(out, "stream-sse-data-encoding", "base64");
    }
    push_field(out, "cache-control", "no-cache, no-transform");
    push_field(out, "x-accel-buffering", "no");
    push_common(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends an event with data that is text: a line of the event for each line of the data. An event cannot tell how a line
/// ended, so that the reader sees a line feed for each end.
pub fn write_data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"event: data\n");
    let mut rest = data;
    loop {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (line, next) = match end {
            None => (rest, None),
            Some(end) if rest[end..].starts_with(b"\r\n") => (&rest[..end], Some(&rest[end + 2..])),
            Some(end) => (&rest[..end], Some(&rest[end + 1..])),
        };
        out.extend_from_slice(b"data:");
        // The reader takes one space off.
        if line.first() == Some(&b' ') {
            out.push(b' ');
        }
        out.extend_from_slice(line);
        out.push(b'\n');
        match next {
            Some(next) => rest = next,
            None => break,
        }
    }
    out.push(b'\n');
}

/// Appends an event with data that is bytes.
pub fn write_data_base64(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"event: data\ndata:");
    out.extend_from_slice(STANDARD.encode(data).as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// What an event says of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// The token of the position behind the data so far. It is the event's id too, so that a browser comes back with it.
    pub next_offset: &'a str,
    /// The cursor that the client repeats when it comes back. Not told at the end of a closed stream: nobody comes back.
    pub cursor: u64,
    /// Nothing comes behind the data yet.
    pub up_to_date: bool,
    /// Nothing will.
    pub closed: bool,
}

/// Appends an event that says where the reader is.
pub fn write_control(out: &mut Vec<u8>, control: &Control<'_>) {
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(control.next_offset.as_bytes());
    out.push(b'"');
    if !control.closed {
        write!(out, ",\"streamCursor\":\"{}\"", control.cursor).expect("a Vec takes everything");
    }
    if control.up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    out.extend_from_slice(b"}\nid:");
    out.extend_from_slice(control.next_offset.as_bytes());
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> String {
        let mut out = Vec::new();
        write_data(&mut out, text.as_bytes());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn no_data_begins_another_event() {
        for (text, expected) in [
            ("", "data:\n"),
            ("a", "data:a\n"),
            (" a", "data:  a\n"),
            ("a\nb", "data:a\ndata:b\n"),
            (
                "a\r\n\r\nevent: control\r\rb\n",
                "data:a\ndata:\ndata:event: control\ndata:\ndata:b\ndata:\n",
            ),
        ] {
            assert_eq!(data(text), format!("event: data\n{expected}\n"), "{text:?}");
        }
    }

    #[test]
    fn a_control_event_says_where_the_reader_is() {
        let control = Control {
            next_offset: "e_2",
            cursor: 7,
            up_to_date: true,
            closed: false,
        };
        let text = |control: &Control<'_>| {
            let mut out = Vec::new();
            write_control(&mut out, control);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(
            text(&control),
            "event: control\ndata:{\"streamNextOffset\":\"e_2\",\"streamCursor\":\"7\",\"upToDate\":true}\nid:e_2\n\n"
        );
        let closed = Control {
            closed: true,
            ..control
        };
        assert_eq!(
            text(&closed),
            "event: control\ndata:{\"streamNextOffset\":\"e_2\",\"upToDate\":true,\"streamClosed\":true}\nid:e_2\n\n"
        );
    }

    #[test]
    fn bytes_are_told_in_base64() {
        let mut out = Vec::new();
        write_data_base64(&mut out, &[0, 255]);
        assert_eq!(out, b"event: data\ndata:AP8=\n\n");
    }
}
