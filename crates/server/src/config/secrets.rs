//! Values that no log, error or debug output may show.

use super::ConfigError;
use serde::Deserialize;
use std::fmt;
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

/// Keys whose values are secrets end like this, written with `-` or `_`.
const SECRETS: [&str; 5] = ["secret_key", "api_key", "private_key", "secret", "key_pem"];
/// A table whose keys are the operator's, such as `Authorization`. All of them may be secrets.
const STATIC_HEADERS: &str = "static_headers";

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
    use crate::Options;
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
        ] {
            let error = Options::from_text(text, Path::new("f")).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("sesame"), "{shown}");
            assert!(error.to_string().contains("write one text"), "{error}");
        }
    }

    #[test]
    fn a_secret_is_not_in_debug_output() {
        let text = "[client.token]\nhmac_secret_key = \"sesame\"";
        let options = Options::from_text(text, Path::new("f")).unwrap();
        let shown = format!("{options:?}");
        assert!(
            !shown.contains("sesame") && shown.contains("(hidden)"),
            "{shown}"
        );
    }
}
