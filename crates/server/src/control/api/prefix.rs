//! The path in front of the methods: `http_api.handler_prefix`.

use super::{BATCH, LEGACY, PATHS};
use std::sync::Arc;

/// Bytes of a prefix.
const BYTES_MAX: usize = 100;
/// What stands elsewhere: first parts of other paths.
const TAKEN: [&str; 5] = ["connection", "raw", "echo", "healthz", "metrics"];

/// The path in front of the methods, such as `/api`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(Arc<str>);

impl Default for Prefix {
    fn default() -> Self {
        Self(LEGACY.into())
    }
}

impl Prefix {
    /// None if no path can begin with it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parts = text.strip_prefix('/')?.split('/');
        let is_part = |part: &str| {
            let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !matches!(part, "" | "." | "..") && part.bytes().all(is_sign)
        };
        let mut first = parts.clone();
        let is_taken = first.next().is_some_and(|part| TAKEN.contains(&part));
        (text.len() <= BYTES_MAX && !is_taken && parts.clone().all(is_part))
            .then(|| Self(text.into()))
    }

    /// The path itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Where a path of the API is on this server.
    pub(super) fn path(&self, standard: &str) -> String {
        let rest = standard.strip_prefix(LEGACY);
        format!("{}{}", self.0, rest.expect("every path has it"))
    }

    /// Which path of the API this is, as it would be without a prefix of its own.
    pub(in super::super) fn standard(&self, path: &str) -> Option<&'static str> {
        let rest = path.strip_prefix(self.as_str())?;
        let mut paths = PATHS
            .iter()
            .copied()
            .chain([BATCH, LEGACY, super::openapi::PATH]);
        paths.find(|known| known.strip_prefix(LEGACY) == Some(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_path_that_is_free() {
        for good in ["/api", "/v1/push-api", "/a.b~c_d", "/api/raw"] {
            assert_eq!(Prefix::parse(good).expect(good).as_str(), good);
        }
        let long = format!("/{}", "x".repeat(BYTES_MAX));
        for bad in [
            "", "/", "api", "/api/", "//api", "/a//b", "/a b", "/{a}", "/:a", "/*a", "/../a", "/é",
            "/raw", "/metrics", &long,
        ] {
            assert_eq!(Prefix::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_are_known_behind_the_prefix() {
        let prefix = Prefix::parse("/v1").unwrap();
        assert_eq!(prefix.path("/api/publish"), "/v1/publish");
        assert_eq!(prefix.path("/api"), "/v1");
        assert_eq!(prefix.standard("/v1/publish"), Some("/api/publish"));
        assert_eq!(prefix.standard("/v1"), Some("/api"));
        for other in ["/api/publish", "/v1/nope", "/v12", "/v1/"] {
            assert_eq!(prefix.standard(other), None, "{other}");
        }
    }
}
