//! Placeholders such as `{port}` in the manifest's commands.

/// An unknown name in braces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` has an unknown placeholder; there are {known}")]
pub(crate) struct UnknownPlaceholder {
    text: String,
    known: String,
}

/// What placeholders stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Values(Vec<(&'static str, String)>);

impl Values {
    pub(crate) fn new(values: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(values.into_iter().collect())
    }

    /// The same values with one more.
    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.push((name, value.to_string()));
        self
    }

    /// All names of a run without TLS, to check a text against.
    pub(crate) fn example() -> Self {
        let names = [
            "host",
            "port",
            "processes",
            "connections",
            "mode",
            "push_every_ms",
            "heap_mb",
            "myriad",
            "pid",
        ];
        Self::new(names.map(|name| (name, "0".to_owned())))
    }

    /// All names of a run with TLS.
    pub(crate) fn example_with_tls() -> Self {
        Self::example().with("certificate", "0").with("key", "0")
    }

    fn value(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The text with its placeholders filled in; a brace itself is written twice.
pub(crate) fn fill(text: &str, values: &Values) -> Result<String, UnknownPlaceholder> {
    let unknown = || UnknownPlaceholder {
        text: text.to_owned(),
        known: values
            .0
            .iter()
            .map(|(name, _)| format!("{{{name}}}"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(['{', '}']) {
        filled.push_str(&rest[..place]);
        let (brace, behind) = rest[place..].split_at(1);
        rest = if let Some(behind) = behind.strip_prefix(brace) {
            filled.push_str(brace);
            behind
        } else {
            let (name, behind) = behind.split_once('}').ok_or_else(unknown)?;
            filled.push_str(values.value(name).ok_or_else(unknown)?);
            behind
        };
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values::default().with("port", 9000).with("host", "h")
    }

    #[test]
    fn names_are_filled_in_and_doubled_braces_are_braces() {
        assert_eq!(fill("{host}:{port}", &values()).unwrap(), "h:9000");
        assert_eq!(fill("{{port}}", &values()).unwrap(), "{port}");
        assert_eq!(fill("plain", &values()).unwrap(), "plain");
        assert_eq!(fill("", &values()).unwrap(), "");
    }

    #[test]
    fn what_nobody_fills_in_is_named_with_what_there_is() {
        for text in ["{prot}", "{port", "a}b", "{}"] {
            let error = fill(text, &values()).unwrap_err().to_string();
            assert!(
                error.contains(text) && error.contains("{port}, {host}"),
                "{error}"
            );
        }
    }
}
