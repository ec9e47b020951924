//! What the application answers: JSON that nobody may trust, read into plain data.

use myriad_shard::{ApplicationClose, ApplicationCloseError, ErrorCode, Refusal};
use myriad_wire::centrifuge::DisconnectCode;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// Bytes of an error's message.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// What is wrong with an answer. The application is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AnswerFault {
    /// The path of the field, such as `result.expire_at`; empty where it is the whole.
    field: String,
    cause: String,
}

impl AnswerFault {
    pub(super) fn new(field: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            cause: cause.into(),
        }
    }

    /// The same in a field of `prefix`.
    pub(super) fn below(self, prefix: &str) -> Self {
        let field = match &*self.field {
            "" => prefix.to_owned(),
            field => format!("{prefix}.{field}"),
        };
        Self { field, ..self }
    }
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.field {
            "" => write!(f, "{}", self.cause),
            field => write!(f, "{field}: {}", self.cause),
        }
    }
}

/// What an answer says at its top: a result, nothing, or that the client is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<T> {
    Result(T),
    Nothing,
    Refused(Refusal),
}

#[derive(Debug, Default, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    disconnect: Option<&'a RawValue>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorFields {
    code: u32,
    message: Option<String>,
    temporary: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DisconnectFields {
    code: u32,
    reason: Option<String>,
}

/// A structure that was written as an object. serde would take its fields from an array as well, by their order.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Reads an object; a fault names the field by its path.
pub(super) fn read<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, AnswerFault> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = serde_path_to_error::deserialize(&mut deserializer);
    let Object(fields) = read.map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "" } else { &*path };
        AnswerFault::new(field, error.inner().to_string())
    })?;
    let rest = deserializer.end();
    rest.map_err(|error| AnswerFault::new("", error.to_string()))?;
    Ok(fields)
}

/// What a client cannot be told: the field at fault, and what to do.
pub(crate) type Untellable = (&'static str, String);

/// An error that a client is told. SDKs take codes below 100 for their own, and some need a message.
pub(crate) fn error_refusal(
    code: u32,
    message: Option<String>,
    temporary: bool,
) -> Result<Refusal, Untellable> {
    if !(100..=1_999).contains(&code) {
        let advice = "choose 400 to 1999, which are for applications; 100 to 399 are the protocol's and may be sent, too";
        return Err(("code", format!("{code} is not allowed: {advice}")));
    }
    let message = message.unwrap_or_default();
    if message.len() > MESSAGE_BYTES_MAX {
        let advice = format!(
            "has {} bytes; {MESSAGE_BYTES_MAX} are the most",
            message.len()
        );
        return Err(("message", advice));
    }
    let message = if message.is_empty() {
        let known = ErrorCode::ALL.iter().find(|known| known.code() == code);
        known
            .map_or("refused by the application", |code| code.text())
            .into()
    } else {
        message.into()
    };
    Ok(Refusal::Error {
        code,
        message,
        temporary,
    })
}

/// The end of a connection that a client is told.
pub(crate) fn disconnect_refusal(code: u32, reason: Option<&str>) -> Result<Refusal, Untellable> {
    let close = ApplicationClose::new(code, reason.unwrap_or_default());
    close.map(Refusal::Disconnect).map_err(|error| {
        let field = match error {
            ApplicationCloseError::Code(_) => "code",
            ApplicationCloseError::ReasonLength(_) | ApplicationCloseError::ReasonObject => {
                "reason"
            }
        };
        (field, error.to_string())
    })
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, AnswerFault> {
    let body = str::from_utf8(body).map_err(|_| AnswerFault::new("", "is not UTF-8"))?;
    read(body)
}

/// Reads the top of an answer, and its result by `result`. Disconnect is looked at first, then error.
pub(super) fn read_answer<'a, T>(
    body: &'a [u8],
    result: impl FnOnce(&'a str) -> Result<T, AnswerFault>,
) -> Result<Said<T>, AnswerFault> {
    let envelope = envelope(body)?;
    if let Some(disconnect) = envelope.disconnect {
        let fields: DisconnectFields =
            read(disconnect.get()).map_err(|fault| fault.below("disconnect"))?;
        // Without a code the connection ends without a word, and its client comes back.
        let code = match fields.code {
            0 => DisconnectCode::ConnectionClosed.code().into(),
            code => code,
        };
        let refusal = disconnect_refusal(code, fields.reason.as_deref());
        return refusal
            .map(Said::Refused)
            .map_err(|(field, cause)| AnswerFault::new(format!("disconnect.{field}"), cause));
    }
    if let Some(error) = envelope.error {
        let fields: ErrorFields = read(error.get()).map_err(|fault| fault.below("error"))?;
        let refusal = error_refusal(
            fields.code,
            fields.message,
            fields.temporary.unwrap_or(false),
        );
        return refusal
            .map(Said::Refused)
            .map_err(|(field, cause)| AnswerFault::new(format!("error.{field}"), cause));
    }
    match envelope.result {
        None => Ok(Said::Nothing),
        Some(json) => result(json.get())
            .map(Said::Result)
            .map_err(|fault| fault.below("result")),
    }
}

/// Reads the result of an answer of which nothing else counts.
pub(super) fn read_result_only<'a, T>(
    body: &'a [u8],
    result: impl FnOnce(&'a str) -> Result<T, AnswerFault>,
) -> Result<Option<T>, AnswerFault> {
    let result_of = envelope(body)?.result.map(|json| result(json.get()));
    result_of.transpose().map_err(|fault| fault.below("result"))
}
