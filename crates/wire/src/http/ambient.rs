//! Whether what a browser adds to a request by itself may say who its user is.
//!
//! A browser sends cookies, and what it knows of HTTP authentication, with every request to their host, also with one that a page of
//! a stranger has caused. A page may cause a GET by an image, and then no Origin says so. `Sec-Fetch-Site` does (Fetch Metadata, W3C),
//! where the browser trusts the address: over HTTPS, and on the own machine.

use super::RequestHead;

/// Whether cookies of a request that was let in say who its user is.
///
/// They do where the request names its page in Origin, because that one was checked before. Without Origin they do if the browser
/// says that the page is of the same origin. A browser that says neither may have been made to send the request, if it is a GET that
/// asks for no WebSocket: every other request of a page has an Origin.
#[must_use]
pub fn cookies_count(head: &RequestHead<'_>) -> bool {
    if head.header("origin").is_some() {
        return true;
    }
    let mut sites = head.headers("sec-fetch-site").peekable();
    if sites.peek().is_some() {
        return sites.all(|site| site == b"same-origin");
    }
    head.method() != "GET" || head.header("upgrade").is_some()
}

/// As [`cookies_count`], for a request that reads and changes nothing. Its answer is hidden from the pages of strangers. So only a
/// browser that says that such a page is behind it is not believed, and programs may send cookies.
#[must_use]
pub fn cookies_count_for_reading(head: &RequestHead<'_>) -> bool {
    head.header("sec-fetch-site").is_none() || cookies_count(head)
}

/// Whether a header's value is what a browser adds by itself.
#[must_use]
pub fn is_ambient(name: &str) -> bool {
    matches!(name, "cookie" | "authorization")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{HeadLimits, parse_request};

    fn count(line: &str, headers: &str) -> (bool, bool) {
        let text = format!("{line} /a HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let head = parse_request(text.as_bytes(), HeadLimits::default());
        let head = head.expect("well-formed").expect("whole");
        (cookies_count(&head), cookies_count_for_reading(&head))
    }

    #[test]
    fn a_get_that_a_page_may_have_caused_has_no_cookies() {
        for site in ["cross-site", "same-site", "none", "same-origin-not"] {
            let line = format!("Sec-Fetch-Site: {site}\r\n");
            assert_eq!(count("GET", &line), (false, false), "{site}");
            assert_eq!(count("POST", &line), (false, false), "{site}");
        }
        let twice = "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n";
        assert_eq!(count("GET", twice), (false, false));
        assert_eq!(count("GET", ""), (false, true));
        for headers in [
            "Sec-Fetch-Site: same-origin\r\n",
            "Origin: https://b\r\nSec-Fetch-Site: cross-site\r\n",
            "Origin: https://b\r\n",
            "Upgrade: websocket\r\n",
        ] {
            assert_eq!(count("GET", headers), (true, true), "{headers}");
        }
        assert_eq!(count("POST", ""), (true, true));
    }
}
