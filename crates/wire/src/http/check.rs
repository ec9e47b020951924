//! Checks of a well-formed request before a server acts on it.

use super::body::decimal;
use super::host::Host;
use super::origin::default_port;
use super::target::check_target;
use super::{HeadError, RequestHead};

/// Checks the host, the target and the body's framing of a request head.
///
/// If a proxy and a server read these differently, they see different requests in the same bytes (request smuggling).
/// So every case that RFC 9112 leaves to the server is an error here:
///
/// * Host exactly once, and valid (section 3.2); an HTTP/1.0 request may lack it.
/// * A target in absolute form names the host that Host names. Servers have to go by the target (section 3.2.2), and a proxy
///   that goes by Host would have let the request through to another host.
/// * A target in the form that its method has, without bytes and escapes that readers treat differently, and without a fragment
///   (section 3.2).
/// * One transfer coding, `chunked`, in one Transfer-Encoding, not in HTTP/1.0 and not beside Content-Length (section 6.1).
/// * Content-Length at most once, and a number below 2^63 (section 6.3).
/// * No expectation but `100-continue` (RFC 9110, section 10.1.1): who waits for something else waits with the body.
///
/// # Errors
/// The first of these rules that the request breaks.
pub fn check_request(head: &RequestHead<'_>) -> Result<(), HeadError> {
    check_target(head)?;
    let (mut host, mut coding, mut length, mut expectations) = (0, 0, 0, 0);
    for (name, value) in head.header_lines() {
        if name.eq_ignore_ascii_case("host") {
            host += 1;
            if host > 1 || Host::parse(value).is_none() {
                return Err(HeadError::Host);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            coding += 1;
            check_coding(value)?;
        } else if name.eq_ignore_ascii_case("content-length") {
            length += 1;
            check_length(value)?;
        } else if name.eq_ignore_ascii_case("expect") {
            expectations += 1;
            if expectations > 1 || !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(HeadError::Expectation);
            }
        }
    }
    if host == 0 && head.minor_version() > 0 {
        return Err(HeadError::Host);
    }
    let is_ambiguous =
        coding > 1 || length > 1 || coding > 0 && (length > 0 || head.minor_version() == 0);
    if is_ambiguous {
        return Err(HeadError::Framing);
    }
    check_authority(head)
}

/// Compares the authority of the target with Host. A client sends both alike, but for a user's name, which is an error from
/// strangers (RFC 9110, section 4.2.4).
fn check_authority(head: &RequestHead<'_>) -> Result<(), HeadError> {
    let Some((scheme, authority)) = head.scheme_and_authority() else {
        return Ok(());
    };
    let asked = Host::parse(authority.as_bytes()).ok_or(HeadError::Authority)?;
    let port = |host: Host<'_>| host.port().or_else(|| default_port(scheme));
    let is_same = match head.header("host").map(Host::parse) {
        None => !asked.name().is_empty(),
        Some(Some(own)) => asked.is_same_host(&own) && port(asked) == port(own),
        Some(None) => false,
    };
    if is_same {
        Ok(())
    } else {
        Err(HeadError::Authority)
    }
}

fn check_coding(value: &[u8]) -> Result<(), HeadError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let is_chunked = |element: &[u8]| element.trim_ascii().eq_ignore_ascii_case(b"chunked");
    if value.is_empty() || value.split(|byte| *byte == b',').all(is_chunked) {
        Err(HeadError::Framing)
    } else {
        Err(HeadError::TransferCoding)
    }
}

fn check_length(value: &[u8]) -> Result<(), HeadError> {
    match decimal(value) {
        Some(_) => Ok(()),
        None => Err(HeadError::Framing),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, parse_request};
    use super::*;

    fn verdict(line: &str, headers: &str) -> Result<(), HeadError> {
        let text = format!("{line}\r\n{headers}\r\n");
        let head = parse_request(text.as_bytes(), HeadLimits::default())
            .expect("well-formed")
            .expect("whole");
        check_request(&head)
    }

    #[test]
    fn host_is_there_once_and_valid() {
        let new = |headers| verdict("GET / HTTP/1.1", headers);
        for good in [
            "Host: a\r\n",
            "hOsT:a:8000\r\n",
            "Host: [::1]:80\r\n",
            "Host:\r\n",
        ] {
            assert_eq!(new(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: a\r\nX: y\r\nHOST: b\r\n",
            "Host: a b\r\n",
            "Host: a/b\r\n",
            "Host: a, b\r\n",
            "Host: u@a\r\n",
            "Host: a:99999\r\n",
            "Host: http://a\r\n",
        ] {
            assert_eq!(new(bad), Err(HeadError::Host), "{bad}");
        }
        let old = |headers| verdict("GET / HTTP/1.0", headers);
        assert_eq!(old(""), Ok(()));
        assert_eq!(old("Host: a\r\nHost: a\r\n"), Err(HeadError::Host));
        assert_eq!(old("Host: a b\r\n"), Err(HeadError::Host));
    }

    #[test]
    fn an_absolute_target_names_the_host_that_host_names() {
        let asked = |target: &str, host: &str| {
            verdict(
                &format!("GET {target} HTTP/1.1"),
                &format!("Host: {host}\r\n"),
            )
        };
        for (target, host) in [
            ("http://a", "a"),
            ("http://a/metrics", "a"),
            ("http://A.example:8000?x=://b", "a.EXAMPLE:8000"),
            ("http://a:80/", "a"),
            ("wss://a/", "a:443"),
            ("http://[::1]:8000/", "[0::1]:8000"),
            ("/metrics?from=http://evil/", "a"),
        ] {
            assert_eq!(asked(target, host), Ok(()), "{target} {host}");
        }
        for (target, host) in [
            ("http://evil/metrics", "a"),
            ("http://evil", "a"),
            ("http://evil?a/", "a"),
            ("http://a:8001/", "a:8000"),
            ("http://a:8000/", "a"),
            ("https://a/", "a:80"),
            ("http://u@a/", "a"),
            ("http://a@evil/", "a"),
            ("http:///metrics", ""),
            ("http://a/", ""),
        ] {
            assert_eq!(
                asked(target, host),
                Err(HeadError::Authority),
                "{target} {host}"
            );
        }
        assert_eq!(verdict("GET http://a/ HTTP/1.0", ""), Ok(()));
        for target in ["http:///", "http://u@a/"] {
            let line = format!("GET {target} HTTP/1.0");
            assert_eq!(verdict(&line, ""), Err(HeadError::Authority), "{target}");
        }
    }

    #[test]
    fn only_a_hundred_is_expected() {
        let expects = |headers: &str| verdict("POST / HTTP/1.1", &format!("Host: a\r\n{headers}"));
        assert_eq!(expects("Expect: 100-Continue\r\n"), Ok(()));
        for bad in [
            "Expect:\r\n",
            "Expect: 100-continue, x\r\n",
            "Expect: x 100-continue\r\n",
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
        ] {
            assert_eq!(expects(bad), Err(HeadError::Expectation), "{bad}");
        }
    }

    #[test]
    fn a_body_has_one_length() {
        let body = |headers: &str| verdict("POST / HTTP/1.1", &format!("Host: a\r\n{headers}"));
        for good in [
            "Content-Length: 0\r\n",
            "Content-Length: 9223372036854775807\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\tCHUNKED \r\n",
        ] {
            assert_eq!(body(good), Ok(()), "{good}");
        }
        for bad in [
            "Content-Length:\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: 1 1\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: 9223372036854775808\r\n",
            "Content-Length: 18446744073709551617\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\r\n",
        ] {
            assert_eq!(body(bad), Err(HeadError::Framing), "{bad}");
        }
        for unknown in ["gzip, chunked", "identity", "chunked, gzip", "chunked;a=b"] {
            let headers = format!("Transfer-Encoding: {unknown}\r\n");
            assert_eq!(body(&headers), Err(HeadError::TransferCoding), "{unknown}");
        }
        let old = verdict("POST / HTTP/1.0", "Transfer-Encoding: chunked\r\n");
        assert_eq!(old, Err(HeadError::Framing));
    }
}
