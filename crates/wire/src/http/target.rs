//! The request target: which of its four forms it has, and bytes of it that two readers would read differently.

use super::origin::default_port;
use super::{HeadError, Malformed, RequestHead};

/// Checks the target of a request (RFC 9112, section 3.2).
///
/// * A method other than CONNECT has a path, or a whole URL of the schemes that are served here. CONNECT is for proxies.
/// * `*` belongs to OPTIONS alone.
/// * No fragment: a client never sends it.
/// * Each `%` of the path begins an escape, and none means NUL. Readers disagree on what else they stand for.
/// * Nothing in the path that some readers take for a slash, or that RFC 3986 forbids. Text that is not ASCII is let through, because
///   people type it. The query may have more, because browsers send more; `"`, `<` and `>` they encode.
///
/// # Errors
/// The first of these rules that the target breaks.
pub(super) fn check_target(head: &RequestHead<'_>) -> Result<(), HeadError> {
    let target = head.target();
    if head.method() == "CONNECT" {
        return Err(HeadError::Connect);
    }
    if target.contains('#') {
        return Err(HeadError::Malformed(Malformed::Fragment));
    }
    let has_its_form = match target {
        "*" => head.method() == "OPTIONS",
        _ => {
            target.starts_with('/')
                || head
                    .scheme_and_authority()
                    .is_some_and(|(scheme, _)| default_port(scheme).is_some())
        }
    };
    let query = head.query().unwrap_or_default();
    if has_its_form && is_path(head.path()) && !query.contains(['"', '<', '>']) {
        Ok(())
    } else {
        Err(HeadError::Malformed(Malformed::Target))
    }
}

fn is_path(path: &str) -> bool {
    let is_escape = |piece: &str| {
        matches!(piece.as_bytes(), [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
            && !piece.starts_with("00")
    };
    !path.contains(['"', '<', '>', '\\', '^', '`', '{', '}'])
        && path.split('%').skip(1).all(is_escape)
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_request};
    use super::*;

    fn verdict(method: &str, target: &str) -> Result<(), HeadError> {
        let text = format!("{method} {target} HTTP/1.1\r\n\r\n");
        let head = parse_request(text.as_bytes(), HeadLimits::default());
        check_target(&head.expect("well-formed").expect("whole"))
    }

    #[test]
    fn a_target_has_the_form_of_its_method() {
        for (method, target) in [
            ("GET", "/"),
            ("GET", "//a"),
            ("get", "/a:b@c/d;e=f,g"),
            ("GET", "http://a"),
            ("GET", "WSS://a:1/b?c"),
            ("OPTIONS", "*"),
            ("OPTIONS", "/"),
        ] {
            assert_eq!(verdict(method, target), Ok(()), "{method} {target}");
        }
        for (method, target) in [
            ("GET", "*"),
            ("OPTIONS", "*/"),
            ("GET", "a"),
            ("GET", "a:443"),
            ("GET", "?a"),
            ("GET", "http:/a"),
            ("GET", "urn:a"),
            ("GET", "ftp://a/"),
            ("GET", "a/http://b"),
            ("GET", "?http://b"),
        ] {
            let malformed = HeadError::Malformed(Malformed::Target);
            assert_eq!(verdict(method, target), Err(malformed), "{method} {target}");
        }
        for target in ["a:443", "/", "*", "http://a/"] {
            assert_eq!(verdict("CONNECT", target), Err(HeadError::Connect));
        }
    }

    #[test]
    fn a_path_has_one_reading() {
        for target in [
            "/%41%e4%B8%87",
            "/万",
            "/[a]|~",
            "/?a=%zz&b=%",
            "/?{a}|\\^`",
        ] {
            assert_eq!(verdict("GET", target), Ok(()), "{target}");
        }
        for target in [
            "/%",
            "/%4",
            "/a%/",
            "/%zz",
            "/%4g",
            "/%00",
            "/a%00b",
            "/%%41",
            "/a\\b",
            "/a\"b",
            "/<",
            "/>",
            "/^",
            "/`",
            "/{",
            "/}",
            "http://a/%",
            "/?\"",
            "/?<",
            "/?a>",
        ] {
            let malformed = HeadError::Malformed(Malformed::Target);
            assert_eq!(verdict("GET", target), Err(malformed), "{target}");
        }
    }

    #[test]
    fn a_fragment_is_never_sent() {
        let fragment = HeadError::Malformed(Malformed::Fragment);
        assert_eq!(verdict("GET", "/a#b"), Err(fragment));
        assert_eq!(verdict("GET", "/a?b%23c"), Ok(()));
    }
}
