//! Values that no log, error or debug output may show.

use super::ConfigError;
use serde::Deserialize;
use std::fmt;
use std::ops::Deref;
use std::path::Path;

/// A secret as written. Its `Debug` output says only whether there is one.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// The secret; none if the text is empty.
    pub(crate) fn secret(&self) -> Option<&str> {
        Some(&*self.0).filter(|text| !text.is_empty())
    }
}

impl SecretText {
    /// What to say of space at an end of the secret: files and `echo` add a line feed that nobody sees. It is kept, because it may
    /// be meant.
    pub(super) fn space_remark(&self, field: &str, consequence: &str) -> Option<String> {
        space_remark(&self.0, field, consequence)
    }
}

/// As [`SecretText::space_remark`].
pub(super) fn space_remark(text: &str, field: &str, consequence: &str) -> Option<String> {
    let what = match text.chars().next_back().filter(|sign| sign.is_whitespace()) {
        Some('\n' | '\r') => "ends in a line feed",
        Some(_) => "ends in a space",
        None if text.starts_with(char::is_whitespace) => "begins with a space",
        None => return None,
    };
    Some(format!("{field} {what}, which counts: {consequence}"))
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "none"
        } else {
            "(hidden)"
        })
    }
}

/// A URL as written. Its `Debug` output leaves out what may be secret.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct UrlText(String);

impl From<String> for UrlText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl Deref for UrlText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UrlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_url(self))
    }
}

/// Keys whose values are secrets end like this, written with `-` or `_`. URLs may have a password or a secret in their query.
const SECRETS: [&str; 7] = [
    "secret_key",
    "api_key",
    "private_key",
    "secret",
    "key_pem",
    "url",
    "endpoint",
];
/// A table whose keys are the operator's, such as `Authorization`. All of them may be secrets.
const STATIC_HEADERS: &str = "static_headers";

/// A URL as an error may repeat it: without a password, and without what is behind `?` or `#`.
pub(super) fn shown_url(text: &str) -> String {
    if text.contains('@') {
        return "(hidden)".into();
    }
    match text.find(['?', '#']) {
        Some(end) => format!("\"{}...(hidden)\"", text[..=end].escape_debug()),
        None => format!("{text:?}"),
    }
}

/// An error of the TOML parser at a secret, without the line that it would repeat.
pub(super) fn hidden(error: &toml::de::Error, text: &str, path: &Path) -> Option<ConfigError> {
    let offset = error.span()?.start.min(text.len());
    let before = text.get(..offset)?;
    // A string that is not closed is noticed after its line: the last key before the place is at fault, too.
    let end = text[offset..]
        .find('\n')
        .map_or(text.len(), |at| offset + at);
    let (number, key) = text[..end]
        .lines()
        .enumerate()
        .filter_map(|(number, line)| Some((number + 1, line.split_once('=')?.0.trim())))
        .filter(|(number, _)| *number <= before.matches('\n').count() + 1)
        .last()?;
    let name = key.replace('-', "_");
    let is_table = |line: &&str| line.starts_with('[');
    let table = text[..end].lines().map(str::trim).rfind(is_table);
    let is_header = |text: &str| text.contains(STATIC_HEADERS);
    let is_secret = SECRETS.iter().any(|secret| name.ends_with(secret))
        || name == "key"
        || is_header(&name)
        || table.is_some_and(is_header);
    is_secret.then(|| ConfigError::Key {
        path: path.into(),
        line: number,
        key: key.into(),
        advice: "write one text in quotes".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::changes::StartedWith;
    use super::super::written::Written;
    use super::shown_url;
    use crate::{Machine, Options};
    use std::path::Path;

    #[test]
    fn an_error_at_a_secret_does_not_repeat_it() {
        for text in [
            "[client.token]\nhmac_secret_key = sesame",
            "[client.token]\nhmac_secret_key = \"sesame",
            "[client.token]\nhmac_secret_key = [\"sesame\"]",
            "[client.token]\nhmac_secret_key = \"sesame\" sesame\n",
            "[client.token]\nhmac_previous_secret_key = \"\"\"sesame\n\n",
            "[client.token]\nhmac_secret_key = { sesame = 1 }",
            "api-key = sesame",
            "[[webhooks.endpoints]]\nsecret = sesame",
            "[client.proxy.connect.http.static_headers]\nAuthorization = \"Bearer sesame",
            "[client.proxy.connect.http]\nstatic_headers = { X = \"sesame }",
            "[client.proxy.connect.http]\nstatic_headers.X = \"sesame",
            "[client.proxy.connect.http.tls]\nkey_pem = \"sesame",
            "[client.proxy.connect]\nendpoint = \"http://a/?sesame",
            "[[webhooks.endpoints]]\nurl = \"http://a/?sesame",
            "[client.token]\njwks_public_endpoint = \"http://a/?sesame",
        ] {
            let error = Options::from_text(text, Path::new("f")).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(error.to_string().contains("write one text"), "{error}");
        }
    }

    #[test]
    fn an_error_about_a_url_does_not_repeat_its_query() {
        assert_eq!(shown_url("ftp://a/b"), "\"ftp://a/b\"");
        assert_eq!(shown_url("ftp://me:sesame@a/b"), "(hidden)");
        for text in [
            "[[webhooks.endpoints]]\nname = \"a\"\nurl = \"ftp://a/?sesame\"",
            "[[webhooks.endpoints]]\nname = \"a\"\nurl = \"https://a/?sesame#b\"",
            "[client.proxy.connect]\nenabled = true\nendpoint = \"ftp://a/?sesame\"",
            "[rpc.proxy]\nendpoint = \"a/#sesame\"",
            "[client.token]\njwks_public_endpoint = \"a?sesame\"",
            "[client.token]\nhmac_secret_key = \"a\"\njwks_public_endpoint = \"https://a/?sesame\"",
        ] {
            let options = Options::from_text(text, Path::new("f")).expect(text);
            let error = options.resolve(&Machine::here()).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(shown.contains("(hidden)"), "{shown}");
        }
    }

    #[test]
    fn a_secret_is_not_in_debug_output() {
        for text in [
            "[client.token]\nhmac_secret_key = \"sesame\"",
            "[client.token]\njwks_public_endpoint = \"https://a/?sesame\"",
            "[[webhooks.endpoints]]\nname = \"a\"\nurl = \"https://a/?sesame\"",
            "[client.proxy.connect]\nenabled = true\nendpoint = \"https://a/?sesame\"",
        ] {
            let text = format!("anonymous = true\n{text}");
            let options = Options::from_text(&text, Path::new("f")).unwrap();
            let shown = format!("{options:?}");
            assert!(!shown.contains("sesame"), "{shown}");
            let config = options.resolve(&Machine::here()).unwrap();
            let shown = format!("{config:?}");
            assert!(!shown.contains("sesame"), "{shown}");
        }
    }

    #[test]
    fn a_reload_does_not_say_what_a_url_was() {
        let written = |url: &str| {
            let text = format!(
                "[[webhooks.endpoints]]\nname = \"a\"\nurl = {url:?}\n[client.token]\njwks_public_endpoint = {url:?}\n\
                 [client.proxy.connect]\nendpoint = {url:?}"
            );
            Written::from_text(&text, Path::new("f")).unwrap()
        };
        let (old, new) = (written("https://a/?old"), written("https://a/?new"));
        let changes = new.changes_since(&old, StartedWith::default());
        assert_eq!(changes.len(), 3);
        for change in changes {
            assert!(change.sentence.ends_with(" changed"), "{change:?}");
        }
    }
}
