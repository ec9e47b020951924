//! The content type of a stream.

/// A media type (RFC 9110, section 8.3.1), as its stream's creator wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaType {
    written: Box<str>,
    /// Bytes of `type/subtype`; parameters follow.
    essence_len: usize,
}

impl MediaType {
    /// Bytes of a media type with its parameters: more are refused.
    pub const BYTES_MAX: usize = 255;
    const JSON: &str = "application/json";

    /// Reads a media type; none if the text is not one, or is too long. Parameters are not looked at, but for the characters
    /// that a header may not have.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        let essence = text.split(';').next()?.trim_end_matches([' ', '\t']);
        let (kind, subtype) = essence.split_once('/')?;
        let is_token = |token: &str| !token.is_empty() && token.bytes().all(is_token_byte);
        let is_written = text
            .bytes()
            .all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..));
        (text.len() <= Self::BYTES_MAX && is_token(kind) && is_token(subtype) && is_written).then(
            || Self {
                essence_len: essence.len(),
                written: text.into(),
            },
        )
    }

    /// `application/json`.
    #[must_use]
    pub fn json() -> Self {
        Self {
            written: Self::JSON.into(),
            essence_len: Self::JSON.len(),
        }
    }

    /// `application/octet-stream`: of a stream whose creator did not say.
    #[must_use]
    pub fn octets() -> Self {
        let written = "application/octet-stream";
        Self {
            written: written.into(),
            essence_len: written.len(),
        }
    }

    /// As its stream's creator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.written
    }

    fn essence(&self) -> &str {
        &self.written[..self.essence_len]
    }

    /// Whether both name the same type. Case and parameters do not count.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.essence().eq_ignore_ascii_case(other.essence())
    }

    /// Whether its stream keeps JSON values: then an array that is appended is one publication for each of its elements.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.essence().eq_ignore_ascii_case(Self::JSON)
    }

    /// Whether its stream keeps text.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let kind = self.written.split('/').next().unwrap_or_default();
        kind.eq_ignore_ascii_case("text")
    }
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::MediaType;

    #[test]
    fn case_and_parameters_do_not_count() {
        let read = |text| MediaType::parse(text).expect(text);
        assert!(read("text/plain").matches(&read("TEXT/Plain ; charset=utf-8")));
        assert!(!read("text/plain").matches(&read("text/plainer")));
        assert!(read(" Application/JSON;charset=utf-8").is_json());
        assert!(!read("application/json-seq").is_json());
        assert!(read("Text/html").is_text() && !read("application/text").is_text());
        assert_eq!(
            read(" Text/HTML; charset=utf-8\t").as_str(),
            "Text/HTML; charset=utf-8"
        );
        assert!(MediaType::json().is_json());
        assert!(!MediaType::octets().is_json() && !MediaType::octets().is_text());
    }

    #[test]
    fn other_text_is_no_media_type() {
        let long = format!("text/{}", "a".repeat(MediaType::BYTES_MAX));
        for text in [
            "",
            "text",
            "/plain",
            "text/",
            "te xt/plain",
            "text/plain, text/html",
            "text/plain;\n",
            &long,
        ] {
            assert_eq!(MediaType::parse(text), None, "{text:?}");
        }
    }
}
