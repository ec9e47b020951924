//! The pairs of a query string (`application/x-www-form-urlencoded`).

use percent_encoding::percent_decode;
use std::borrow::Cow;
use std::fmt;

/// A name or value that does not decode to UTF-8. The client is the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueryError;

impl QueryError {
    /// The status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        400
    }

    /// What was wrong and what to do about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        "The query string decodes to bytes that are not UTF-8: percent-encode the UTF-8 form of each name and value."
    }

    /// The value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        "malformed_query"
    }
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl std::error::Error for QueryError {}

/// The decoded names and values of a query string, in order, repeated names included.
///
/// `+` is a space, as browsers' forms and `URLSearchParams` write it. A `%` without two hexadecimal
/// digits stands for itself, as in the WHATWG URL standard. A name without `=` has an empty value;
/// empty pairs (`a=1&&b=2`) are skipped. Only names and values that need decoding are copied.
pub fn query_pairs<'a>(
    query: &'a str,
) -> impl Iterator<Item = Result<(Cow<'a, str>, Cow<'a, str>), QueryError>> + use<'a> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
}

fn decode(text: &str) -> Result<Cow<'_, str>, QueryError> {
    if !text.contains('+') {
        return percent_decode(text.as_bytes())
            .decode_utf8()
            .map_err(|_| QueryError);
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode(spaced.as_bytes())
        .decode_utf8()
        .map_err(|_| QueryError)?;
    Ok(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &str) -> Result<Vec<(String, String)>, QueryError> {
        query_pairs(query)
            .map(|pair| pair.map(|(name, value)| (name.into_owned(), value.into_owned())))
            .collect()
    }

    fn expect(query: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        assert_eq!(pairs(query), Ok(expected), "{query}");
    }

    #[test]
    fn pairs_are_decoded_in_order() {
        expect("", &[]);
        expect("channel=a&channel=b", &[("channel", "a"), ("channel", "b")]);
        expect(
            "a=1&&b&=c&d==",
            &[("a", "1"), ("b", ""), ("", "c"), ("d", "=")],
        );
        expect("a+b=c%20d%2Be+%2b", &[("a b", "c d+e +")]);
        expect("k=%E4%B8%87&%e4%b8%87=v", &[("k", "万"), ("万", "v")]);
        expect(
            "a=100%&b=%zz&c=%4",
            &[("a", "100%"), ("b", "%zz"), ("c", "%4")],
        );
        expect("a=%26%3D%00", &[("a", "&=\0")]);
    }

    #[test]
    fn what_needs_no_decoding_is_borrowed() {
        let (name, value) = query_pairs("channel=news").next().unwrap().unwrap();
        assert!(matches!(
            (name, value),
            (Cow::Borrowed("channel"), Cow::Borrowed("news"))
        ));
    }

    #[test]
    fn bytes_that_are_no_utf8_are_an_error() {
        for query in ["a=%ff", "%C3=x", "a=+%ED%A0%80"] {
            assert_eq!(pairs(query), Err(QueryError), "{query}");
        }
        assert_eq!(query_pairs("a=1&b=%ff").filter(Result::is_ok).count(), 1);
    }
}
