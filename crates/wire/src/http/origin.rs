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
///
/// Apps and extensions have schemes of their own, without a port: `capacitor://localhost`, `tauri://localhost`,
/// `chrome-extension://ID`, `app://.`, `file://`. With such a scheme `moz-extension://*` means every host, because each
/// installation of an extension has another one.
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
        port: Port,
    },
    /// An app or an extension: a scheme that is no scheme of the web, and no port.
    App {
        /// In lower case.
        scheme: Box<str>,
        /// As it is written; none for every host.
        host: Option<Box<str>>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Any,
    This(u16),
}

/// Text that is not an [`OriginPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginPatternError;

impl fmt::Display for OriginPatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write SCHEME://HOST or SCHEME://HOST:PORT without a path, such as https://example.com, \
             https://*.example.com, http://localhost:* or capacitor://localhost",
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
    if default_port(scheme).is_none()
        && let Some(host) = host_of_app(authority)
    {
        return Some(Kind::App {
            scheme: scheme.to_ascii_lowercase().into(),
            host: (host != "*").then(|| host.to_ascii_lowercase().into()),
        });
    }
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
    let port = match any_port {
        true => Port::Any,
        false => Port::This(host.port().or_else(|| default_port(scheme))?),
    };
    Some(Kind::Page {
        scheme: scheme.to_ascii_lowercase().into(),
        subdomains,
        host: name.to_ascii_lowercase().into(),
        port,
    })
}

/// The host of an app's origin, or `*` in a pattern. RFC 6454, section 4, asks for a port only where the scheme has a default one,
/// and a file has no host. None if it is more than a host, or cannot be one.
fn host_of_app(authority: &str) -> Option<&str> {
    let is_whole = authority == "*" || !authority.contains('*');
    let host = Host::parse(authority.as_bytes())?;
    (is_whole && host.name() == authority).then_some(authority)
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
                let is_port = match port {
                    Port::Any => true,
                    Port::This(port) => its_port == Some(*port),
                };
                its_scheme.eq_ignore_ascii_case(scheme)
                    && is_port
                    && matches_host(its_host.name(), host, *subdomains)
            }
            Kind::App { scheme, host } => {
                let split = str::from_utf8(origin).ok().and_then(split_scheme);
                let Some((its_scheme, authority)) = split else {
                    return false;
                };
                let its_host = host_of_app(authority).filter(|host| !host.contains('*'));
                its_scheme.eq_ignore_ascii_case(scheme)
                    && its_host.is_some_and(|its_host| match host {
                        Some(host) => its_host.eq_ignore_ascii_case(host),
                        None => !its_host.is_empty(),
                    })
            }
        }
    }

    /// Whether every page is allowed.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.kind == Kind::Any
    }

    /// Whether a page of a host with this name may be allowed, by some scheme and at some port.
    #[must_use]
    pub fn names_host(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Any => true,
            Kind::Null | Kind::App { .. } => false,
            Kind::Page {
                subdomains, host, ..
            } => matches_host(name, host, *subdomains),
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
    fn apps_and_extensions_are_let_in_by_scheme_and_host() {
        let id = "chrome-extension://abcdefghijklmnopabcdefghijklmnop";
        for (pattern, origin) in [
            ("capacitor://localhost", "capacitor://localhost"),
            ("ionic://localhost", "ionic://LOCALHOST"),
            ("ionic://", "ionic://"),
            ("tauri://localhost", "tauri://localhost"),
            (id, id),
            ("chrome-extension://*", id),
            (
                "moz-extension://*",
                "moz-extension://6c1b1d2c-4f39-4f9e-b3a5-0123456789ab",
            ),
            ("file://", "file://"),
            ("app://.", "app://."),
            ("app://obsidian.md", "APP://obsidian.md"),
        ] {
            assert!(is_let_in(origin, "push.test", &[pattern]), "{pattern}");
        }
        for (pattern, origin) in [
            ("capacitor://localhost", "http://localhost"),
            ("capacitor://localhost", "capacitor://localhost:80"),
            ("capacitor://localhost", "ionic://localhost"),
            (id, "chrome-extension://ponmlkjihgfedcbaponmlkjihgfedcba"),
            ("chrome-extension://*", "https://evil.example"),
            ("chrome-extension://*", "chrome-extension://"),
            ("chrome-extension://*", "chrome-extension://a/b"),
            ("file://", "null"),
            ("file://", "file://host"),
            ("app://.", "app://"),
        ] {
            assert!(!is_let_in(origin, "push.test", &[pattern]), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_names_hosts() {
        let names = |pattern: &str, name: &str| {
            let pattern: OriginPattern = pattern.parse().expect("a pattern");
            pattern.names_host(name)
        };
        assert!(names("http://myriad:*", "myriad") && names("*", "anything"));
        assert!(names("https://*.example.com", "a.example.com"));
        assert!(!names("https://*.example.com", "example.com"));
        assert!(!names("null", "null") && !names("app://x", "x"));
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
            "app://x/y",
            "app://*.x",
            "capacitor://a*",
            "file:///",
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
