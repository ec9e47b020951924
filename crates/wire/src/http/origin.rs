//! Which web pages may connect: the Origin header (RFC 6454) against a list.
//!
//! A browser lets every page open a WebSocket to every server, and names the page in Origin
//! (RFC 6455, section 10.2). Other programs send no Origin, or any value.

use super::host::{Host, without_root_dot};
use std::fmt;
use std::str::FromStr;

/// One entry of the list of allowed origins.
///
/// `https://example.com`, `http://localhost:3000`, `https://*.example.com` (every name below `example.com`, but not
/// itself), `https://example.com:*` (every port), `null` (pages without an origin, such as files), or `*` (every page).
/// Without a port the scheme's default is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern {
    text: Box<str>,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Null,
    Page {
        /// In lower case.
        scheme: Box<str>,
        subdomains: bool,
        /// In lower case; without the `*.` of subdomains.
        host: Box<str>,
        /// None for every port.
        port: Option<u16>,
    },
}

/// Text that is not an [`OriginPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginPatternError;

impl fmt::Display for OriginPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write SCHEME://HOST or SCHEME://HOST:PORT without a path, such as https://example.com, \
             https://*.example.com or http://localhost:*",
        )
    }
}

impl std::error::Error for OriginPatternError {}

impl FromStr for OriginPattern {
    type Err = OriginPatternError;

    fn from_str(text: &str) -> Result<Self, OriginPatternError> {
        let kind = match text {
            "*" => Kind::Any,
            "null" => Kind::Null,
            _ => page(text).ok_or(OriginPatternError)?,
        };
        Ok(Self {
            text: text.into(),
            kind,
        })
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn page(text: &str) -> Option<Kind> {
    let (scheme, authority) = split_scheme(text)?;
    let (authority, any_port) = match authority.strip_suffix(":*") {
        Some(authority) => (authority, true),
        None => (authority, false),
    };
    let (authority, subdomains) = match authority.strip_prefix("*.") {
        Some(authority) => (authority, true),
        None => (authority, false),
    };
    let host = Host::parse(authority.as_bytes())?;
    let name = without_root_dot(host.name());
    // A star is a legal byte of a host's name; here it would be a wildcard that has no meaning.
    if name.is_empty() || name.contains('*') || any_port && host.port().is_some() {
        return None;
    }
    let port = host.port().or_else(|| default_port(scheme));
    // A scheme without a default port needs a port.
    if port.is_none() && !any_port {
        return None;
    }
    Some(Kind::Page {
        scheme: scheme.to_ascii_lowercase().into(),
        subdomains,
        host: name.to_ascii_lowercase().into(),
        port: if any_port { None } else { port },
    })
}

fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, authority) = text.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme.then_some((scheme, authority))
}

pub(super) fn default_port(scheme: &str) -> Option<u16> {
    let is = |known: &str| scheme.eq_ignore_ascii_case(known);
    if is("http") || is("ws") {
        Some(80)
    } else if is("https") || is("wss") {
        Some(443)
    } else {
        None
    }
}

impl OriginPattern {
    /// Whether this entry allows the value of an Origin header.
    fn matches(&self, origin: &[u8]) -> bool {
        match &self.kind {
            Kind::Any => true,
            Kind::Null => origin == b"null",
            Kind::Page {
                scheme,
                subdomains,
                host,
                port,
            } => {
                let Some((its_scheme, its_host)) = parse_origin(origin) else {
                    return false;
                };
                let its_port = its_host.port().or_else(|| default_port(its_scheme));
                its_scheme.eq_ignore_ascii_case(scheme)
                    && port.is_none_or(|port| its_port == Some(port))
                    && matches_host(its_host.name(), host, *subdomains)
            }
        }
    }
}

fn matches_host(name: &str, host: &str, subdomains: bool) -> bool {
    let name = without_root_dot(name);
    if !subdomains {
        return name.eq_ignore_ascii_case(host);
    }
    let below = name.len().checked_sub(host.len());
    let split = below.and_then(|below| name.split_at_checked(below));
    split.is_some_and(|(labels, end)| {
        end.eq_ignore_ascii_case(host) && labels.len() > 1 && labels.ends_with('.')
    })
}

fn parse_origin(origin: &[u8]) -> Option<(&str, Host<'_>)> {
    let (scheme, authority) = split_scheme(str::from_utf8(origin).ok()?)?;
    let host = Host::parse(authority.as_bytes())?;
    (!host.name().is_empty()).then_some((scheme, host))
}

/// A request from a web page that is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginRefused;

impl OriginRefused {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        403
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        "Pages of this origin are not allowed: open the page from this server's own host, or add its origin to allowed-origins."
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        "origin"
    }
}

impl fmt::Display for OriginRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for OriginRefused {}

/// Checks the web page that a request comes from. `origins` are the values of all Origin headers, `host` is the value
/// of the Host header.
///
/// Allowed are: requests without Origin, which no browser sends across origins; pages of the same host, on any port and
/// by either scheme; pages of this machine when the server is addressed as this machine, too; and what `allowed` lists.
///
/// # Errors
/// The page is none of these, or the request names several origins.
pub fn check_origin<'a>(
    origins: impl IntoIterator<Item = &'a [u8]>,
    host: Option<&[u8]>,
    allowed: &[OriginPattern],
) -> Result<(), OriginRefused> {
    let mut origins = origins.into_iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    if origins.next().is_some() {
        return Err(OriginRefused);
    }
    let is_own = || {
        let (Some((_, page)), Some(own)) = (parse_origin(origin), host.and_then(Host::parse))
        else {
            return false;
        };
        page.is_same_host(&own) || page.is_loopback() && own.is_loopback()
    };
    if is_own() || allowed.iter().any(|pattern| pattern.matches(origin)) {
        Ok(())
    } else {
        Err(OriginRefused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_let_in(origin: &str, host: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<OriginPattern> = allowed
            .iter()
            .map(|text| text.parse().expect("a pattern"))
            .collect();
        check_origin([origin.as_bytes()], Some(host.as_bytes()), &allowed).is_ok()
    }

    #[test]
    fn a_program_without_origin_is_let_in_and_two_origins_are_not() {
        assert_eq!(check_origin([], Some(b"a"), &[]), Ok(()));
        assert_eq!(check_origin([], None, &[]), Ok(()));
        let any = ["*".parse().unwrap()];
        let twice = [&b"http://a"[..], b"http://a"];
        assert_eq!(check_origin(twice, Some(b"a"), &any), Err(OriginRefused));
        assert_eq!(
            check_origin([&b"http://a"[..]], None, &[]),
            Err(OriginRefused)
        );
    }

    #[test]
    fn pages_of_the_same_host_are_let_in() {
        for (origin, host) in [
            ("http://example.com", "example.com"),
            ("https://Example.com:8443", "example.com:8000"),
            ("http://localhost:3000", "localhost:8000"),
            ("http://localhost:3000", "127.0.0.1:8000"),
            ("http://127.0.0.1", "[::1]:8000"),
            ("http://app.localhost:5173", "localhost:8000"),
            ("http://[0::1]:3000", "[::1]"),
        ] {
            assert!(is_let_in(origin, host, &[]), "{origin} {host}");
        }
        for (origin, host) in [
            ("http://evil.example", "localhost:8000"),
            ("http://localhost:3000", "example.com"),
            ("http://example.com.evil.example", "example.com"),
            ("http://evilexample.com", "example.com"),
            ("http://www.example.com", "example.com"),
            ("http://localhost.evil.example", "localhost"),
            ("http://localhost@evil.example", "localhost"),
            ("null", "localhost"),
            ("", "localhost"),
            ("file://", ""),
            ("localhost", "localhost"),
            ("http://localhost/path", "localhost"),
        ] {
            assert!(!is_let_in(origin, host, &[]), "{origin} {host}");
        }
    }

    #[test]
    fn pages_on_the_list_are_let_in() {
        let allowed = [
            "https://example.com",
            "https://*.example.com",
            "http://dev.test:*",
            "app://x:1",
        ];
        for origin in [
            "https://example.com",
            "https://EXAMPLE.com:443",
            "HTTPS://a.example.com",
            "https://a.b.example.com",
            "http://dev.test:5173",
            "http://dev.test",
            "app://x:1",
        ] {
            assert!(is_let_in(origin, "push.test", &allowed), "{origin}");
        }
        for origin in [
            "http://example.com",
            "https://example.com:8443",
            "https://evilexample.com",
            "https://.example.com",
            "https://example.com.evil.example",
            "https://dev.test",
            "http://x.dev.test",
            "app://x",
            "null",
        ] {
            assert!(!is_let_in(origin, "push.test", &allowed), "{origin}");
        }
        assert!(is_let_in("null", "push.test", &["null"]));
        assert!(is_let_in("http://anything", "push.test", &["*"]));
        assert!(!is_let_in(
            "https://example.com",
            "push.test",
            &["https://*.example.com"]
        ));
    }

    #[test]
    fn patterns_that_could_not_match_are_refused() {
        for text in [
            "",
            "example.com",
            "https://",
            "https://*",
            "https://*.",
            "https://a.*.com",
            "https://a/",
            "https://a b",
            "https://a:b",
            "https://a:80:*",
            "app://x",
            "://a",
            "https://*example.com",
            "**",
        ] {
            assert_eq!(
                text.parse::<OriginPattern>(),
                Err(OriginPatternError),
                "{text}"
            );
        }
        let pattern: OriginPattern = "https://*.example.com".parse().unwrap();
        assert_eq!(pattern.to_string(), "https://*.example.com");
    }
}
