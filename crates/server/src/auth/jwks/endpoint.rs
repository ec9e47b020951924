//! Where sets of keys are: a URL that may have names of groups in it, such as `https://login.example/{{realm}}/certs`.

use super::super::claims::Claims;
use super::super::rules::{Demand, Rules};
use regex::Regex;
use std::fmt;

/// Bytes of what a token puts into a URL.
const VALUE_BYTES_MAX: usize = 128;

/// The URL of a set of keys.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint(Vec<Piece>);

/// Without the text, which may be secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    /// The value of a group of `issuer_regex` or `audience_regex`.
    Group(Box<str>),
}

impl Endpoint {
    /// # Errors
    /// What to write instead.
    pub(crate) fn new(
        template: &str,
        issuer: Option<&Demand>,
        audience: Option<&Demand>,
    ) -> Result<Self, String> {
        let known = |name: &str| {
            [issuer, audience]
                .into_iter()
                .filter_map(pattern)
                .filter(|pattern| pattern.capture_names().flatten().any(|known| known == name))
                .count()
        };
        let mut pieces = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once("{{") {
            let Some((name, after)) = after.split_once("}}") else {
                return Err("close each {{ with }}".into());
            };
            let name = name.trim();
            match known(name) {
                0 => {
                    return Err(format!(
                        "issuer_regex and audience_regex have no group {name:?}; add (?P<{name}>...) to one of them"
                    ));
                }
                1 => {}
                _ => {
                    return Err(format!(
                        "issuer_regex and audience_regex both have a group {name:?}; give one another name"
                    ));
                }
            }
            pieces.push(Piece::Text(text.into()));
            pieces.push(Piece::Group(name.into()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.into()));
        let endpoint = Self(pieces);
        let url = reqwest::Url::parse(&endpoint.filled(|_| "x".into()));
        match url {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(endpoint),
            _ => Err("choose a URL that begins with https:// or http://".into()),
        }
    }

    /// The URL, if it is the same for all tokens.
    pub(crate) fn fixed(&self) -> Option<&str> {
        match &self.0[..] {
            [Piece::Text(url)] => Some(url),
            _ => None,
        }
    }

    /// Whether keys come by a way on which others could change them.
    pub(crate) fn is_open(&self) -> bool {
        let url = self.filled(|_| "x".into());
        let Ok(url) = reqwest::Url::parse(&url) else {
            return true;
        };
        let host = url.host_str().unwrap_or_default();
        let is_here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        url.scheme() != "https" && !is_here
    }

    /// The URL for a token whose claims nobody has verified yet. They decide only which of the operator's endpoints is asked:
    /// the patterns must match them, and what they put into the URL cannot lead out of its place.
    ///
    /// # Errors
    /// The cause, for the log.
    pub(in super::super) fn url(
        &self,
        rules: &Rules,
        claims: &Claims<'_>,
    ) -> Result<String, &'static str> {
        if let Some(url) = self.fixed() {
            return Ok(url.into());
        }
        let mut values = Vec::new();
        if let Some(pattern) = pattern(rules.issuer.as_ref()) {
            let issuer = claims.issuer()?.unwrap_or_default();
            collect(pattern, [&*issuer], &mut values)
                .ok_or("the claim iss is not the configured issuer")?;
        }
        if let Some(pattern) = pattern(rules.audience.as_ref()) {
            let audiences = claims.audiences()?;
            collect(pattern, audiences.iter().map(|one| &**one), &mut values)
                .ok_or("the claim aud does not have the configured audience")?;
        }
        let value = |name: &str| {
            let found = values.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        for piece in &self.0 {
            if let Piece::Group(name) = piece
                && !is_plain(&value(name))
            {
                return Err(
                    "a group of issuer_regex or audience_regex matched a text that is not letters, digits, - . _ and ~",
                );
            }
        }
        Ok(self.filled(value))
    }

    fn filled(&self, value: impl Fn(&str) -> String) -> String {
        let mut url = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => url.push_str(text),
                Piece::Group(name) => url.push_str(&value(name)),
            }
        }
        url
    }
}

fn pattern(demand: Option<&Demand>) -> Option<&Regex> {
    match demand {
        Some(Demand::Pattern(pattern)) => Some(pattern),
        _ => None,
    }
}

/// The groups of the first text that the pattern matches; none if it matches none.
fn collect<'a>(
    pattern: &Regex,
    texts: impl IntoIterator<Item = &'a str>,
    values: &mut Vec<(String, String)>,
) -> Option<()> {
    let captures = texts.into_iter().find_map(|text| pattern.captures(text))?;
    for name in pattern.capture_names().flatten() {
        if let Some(value) = captures.name(name) {
            values.push((name.into(), value.as_str().into()));
        }
    }
    Some(())
}

/// Whether a text stays one part of a URL's path, or of a host's name, whatever it is.
fn is_plain(text: &str) -> bool {
    (1..=VALUE_BYTES_MAX).contains(&text.len())
        && text != "."
        && text != ".."
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(pattern: &str) -> Option<Demand> {
        Some(Demand::Pattern(Regex::new(pattern).unwrap()))
    }

    #[test]
    fn groups_of_patterns_fill_the_url() {
        let rules = Rules {
            issuer: demand("^https://login\\.example/(?P<realm>.*)$"),
            audience: demand("^(?P<app>[a-z]+)$"),
            ..Rules::default()
        };
        let template = "https://login.example/{{realm}}/{{ app }}/certs";
        let endpoint =
            Endpoint::new(template, rules.issuer.as_ref(), rules.audience.as_ref()).unwrap();
        assert_eq!(endpoint.fixed(), None);
        let url = |issuer: &str, audience: &str| {
            let text = serde_json::json!({"iss": issuer, "aud": ["9", audience]}).to_string();
            endpoint.url(&rules, &Claims::read(&text).unwrap())
        };
        assert_eq!(
            url("https://login.example/one", "web").unwrap(),
            "https://login.example/one/web/certs"
        );
        for (issuer, audience) in [
            ("https://evil.example/one", "web"),
            ("https://login.example/one", "8"),
            ("https://login.example/", "web"),
            ("https://login.example/..", "web"),
            ("https://login.example/a/b", "web"),
            ("https://login.example/a?b", "web"),
            ("https://login.example/a%2fb", "web"),
            ("https://login.example/a@b", "web"),
            ("https://login.example/\u{e4}", "web"),
        ] {
            url(issuer, audience).expect_err(issuer);
        }
    }

    #[test]
    fn a_url_that_cannot_be_meant_is_refused_with_advice() {
        let issuer = demand("^(?P<realm>a)$");
        for (template, advice) in [
            ("", "https://"),
            ("keys.json", "https://"),
            ("file:///etc/passwd", "https://"),
            ("https://", "https://"),
            ("https://a.example/{{realm", "close each"),
            ("https://a.example/{{tenant}}", "(?P<tenant>...)"),
        ] {
            let found = Endpoint::new(template, issuer.as_ref(), None).expect_err(template);
            assert!(found.contains(advice), "{template}: {found}");
        }
        let twice = Endpoint::new("http://a/{{realm}}", issuer.as_ref(), issuer.as_ref());
        assert!(twice.unwrap_err().contains("both have a group"));
        let open = |url| Endpoint::new(url, None, None).unwrap().is_open();
        assert!(open("http://keys.example/a"));
        assert!(!open("http://127.0.0.1:9/a") && !open("https://keys.example/a"));
    }
}
