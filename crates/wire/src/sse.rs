//! Event streams, as browsers' `EventSource` reads them (HTML Standard, section 9.2 "Server-sent events").

use memchr::memchr2;

/// The content type of an event stream. It is always UTF-8.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// Appends one event. `name` is its type; without one it is a `message`. The data may have several lines: each gets a field of its
/// own, and readers join them by line feeds.
///
/// A line end in `name` would begin another field, so a name has none.
pub fn encode_event(out: &mut Vec<u8>, name: Option<&str>, data: &[u8]) {
    if let Some(name) = name {
        debug_assert!(!name.contains(['\r', '\n']));
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    let mut rest = data;
    loop {
        // A carriage return ends a line too, alone or before a line feed.
        let end = memchr2(b'\r', b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
        let Some(end) = end else {
            break;
        };
        let is_pair = rest[end..].starts_with(b"\r\n");
        rest = &rest[end + 1 + usize::from(is_pair)..];
    }
    out.push(b'\n');
}

/// Appends the field that says where a reader stands once it has the event that follows. Alone in a block it says so without an
/// event.
///
/// A line end in `id` would begin another field, so an id has none.
pub fn encode_id(out: &mut Vec<u8>, id: &str) {
    debug_assert!(!id.contains(['\r', '\n', '\0']));
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.as_bytes());
    out.push(b'\n');
}

/// Appends a comment, which readers skip: a sign of life. It has one line.
pub fn encode_comment(out: &mut Vec<u8>, text: &str) {
    debug_assert!(!text.contains(['\r', '\n']));
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: Option<&str>, data: &str) -> String {
        let mut out = Vec::new();
        encode_event(&mut out, name, data.as_bytes());
        String::from_utf8(out).expect("text")
    }

    /// What a reader makes of one event, by the rules of the standard.
    fn read(text: &str) -> String {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .collect();
        let lines: Vec<&str> = lines
            .iter()
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        lines.join("\n")
    }

    #[test]
    fn an_event_ends_with_a_blank_line() {
        assert_eq!(event(None, "{}"), "data: {}\n\n");
        assert_eq!(event(Some("control"), "a"), "event: control\ndata: a\n\n");
        assert_eq!(event(None, ""), "data: \n\n");
    }

    #[test]
    fn lines_of_the_data_come_back_and_make_no_other_field() {
        for data in [
            "a\nb",
            "a\r\nb",
            "a\rb",
            "\n",
            "a\n\nid: 7\n",
            " a",
            "\r\r\n\n",
        ] {
            let text = event(None, data);
            let fields = text.strip_suffix("\n\n").expect("a blank line");
            assert!(
                fields.split('\n').all(|line| line.starts_with("data: ")),
                "{data:?}"
            );
            assert_eq!(read(&text), data.replace("\r\n", "\n").replace('\r', "\n"));
        }
    }

    #[test]
    fn a_comment_is_no_event() {
        let mut out = Vec::new();
        encode_comment(&mut out, "ping");
        assert_eq!(out, b": ping\n\n");
    }
}
