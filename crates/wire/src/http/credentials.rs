//! The Authorization header.

/// What an Authorization header shows by a scheme (RFC 9110, section 11.4), such as the token of `Bearer TOKEN` (RFC 6750, section
/// 2.1). None if its scheme is another one. Schemes are compared without regard to case.
#[must_use]
pub fn credentials<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let is_scheme = found.eq_ignore_ascii_case(scheme.as_bytes());
    let shown = rest.strip_prefix(b" ")?.trim_ascii();
    is_scheme.then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::credentials;

    #[test]
    fn credentials_have_their_scheme() {
        for (value, scheme, expected) in [
            ("Bearer a.b.c", "Bearer", Some("a.b.c")),
            ("bearer  a ", "Bearer", Some("a")),
            ("ApiKey k", "apikey", Some("k")),
            ("apikey k", "Bearer", None),
            ("Bearer", "Bearer", None),
            ("Bearerx a", "Bearer", None),
            ("", "Bearer", None),
        ] {
            let found = credentials(value.as_bytes(), scheme);
            assert_eq!(found, expected.map(str::as_bytes), "{value}");
        }
    }
}
