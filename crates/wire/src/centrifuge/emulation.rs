//! Commands that come apart from the connection they are for.

use std::borrow::Cow;

use serde::de::DeserializeSeed;

use super::json::Seed;
use super::message::{Message, message};
use super::protobuf::Reader;
use super::{CommandError, Data, Encoding};

message! {
    /// The fields as they are on the wire.
    struct Envelope<'a> {
        node: 1 "node" => Cow<'a, str>,
        session: 2 "session" => Cow<'a, str>,
        data: 3 "data" => Data<'a>,
    }
}

/// Commands of a client whose connection only takes replies: the body of a request of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmulationRequest<'a> {
    /// Names the server, as the answer to `connect` did.
    pub node: Cow<'a, str>,
    /// Names the session, as the answer to `connect` did.
    pub session: Cow<'a, str>,
    /// A frame of commands, in the session's encoding.
    pub data: Cow<'a, [u8]>,
}

impl<'a> EmulationRequest<'a> {
    /// Reads a whole body. In JSON, the commands are a string.
    ///
    /// # Errors
    /// The body is no such message.
    pub fn decode(encoding: Encoding, body: &'a [u8]) -> Result<Self, CommandError> {
        let envelope = match encoding {
            Encoding::Json => read_json(body)?,
            Encoding::Protobuf => read_protobuf(body)?,
        };
        let data = match envelope.data {
            Data::Binary(bytes) => Cow::Borrowed(bytes),
            // Left out.
            Data::Json("null") => Cow::Borrowed(&[][..]),
            Data::Json(text) => match serde_json::from_str::<String>(text) {
                Ok(text) => Cow::Owned(text.into_bytes()),
                Err(error) => return Err(json_error(&error)),
            },
        };
        Ok(Self {
            node: envelope.node,
            session: envelope.session,
            data,
        })
    }
}

fn read_json(body: &[u8]) -> Result<Envelope<'_>, CommandError> {
    let text = simdutf8::basic::from_utf8(body);
    let text = text.map_err(|_| CommandError::NotUtf8 { field: "the body" })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Seed::<Envelope<'_>>::new()
        .deserialize(&mut deserializer)
        .and_then(|envelope| deserializer.end().map(|()| envelope))
        .map_err(|error| json_error(&error))
}

fn json_error(error: &serde_json::Error) -> CommandError {
    CommandError::Json {
        sentence: error.to_string(),
    }
}

fn read_protobuf(body: &[u8]) -> Result<Envelope<'_>, CommandError> {
    let mut fields = Reader::new("the body", body);
    let mut envelope = Envelope::default();
    while let Some(field) = fields.next_field()? {
        envelope.read_protobuf(field)?;
    }
    Ok(envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_json_are_a_string() {
        let body = br#" {"session":"s", "node":"n","data":"{\"id\":1}\n{\"id\":2}","more":[1]}
"#;
        let read = EmulationRequest::decode(Encoding::Json, body).expect("a request");
        assert_eq!((&*read.node, &*read.session), ("n", "s"));
        assert_eq!(&*read.data, b"{\"id\":1}\n{\"id\":2}");
        for body in [
            &b""[..],
            b"[]",
            b"1",
            b"{",
            b"{}{}",
            b"{\"data\":{}}",
            b"{\"data\":1}",
            b"{\"data\":\"\xff\"}",
            b"{\"node\":1}",
        ] {
            let read = EmulationRequest::decode(Encoding::Json, body);
            assert!(read.is_err(), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn what_is_left_out_is_empty() {
        for (encoding, body) in [(Encoding::Json, &b"{}"[..]), (Encoding::Protobuf, b"")] {
            let read = EmulationRequest::decode(encoding, body);
            assert_eq!(read, Ok(EmulationRequest::default()));
        }
    }

    #[test]
    fn commands_of_protobuf_are_bytes() {
        let body = b"\x0a\x01n\x12\x02ss\x1a\x03\x00\xff\x01\x20\x07";
        let read = EmulationRequest::decode(Encoding::Protobuf, body).expect("a request");
        assert_eq!((&*read.node, &*read.session), ("n", "ss"));
        assert_eq!(&*read.data, b"\x00\xff\x01");
        for cut in [1, 2, 4, 8] {
            assert!(EmulationRequest::decode(Encoding::Protobuf, &body[..cut]).is_err());
        }
    }
}
