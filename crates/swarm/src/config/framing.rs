//! What clients of plain TCP need: how messages are told apart, and what they do not have.

use super::Config;
use crate::config_error::ConfigError;
use crate::echo_stamp::EchoStamp;
use crate::engine::framing::{FrameMark, Framing, LengthForm, Unfit};
use crate::protocol::Scheme;

/// Largest message of a scenario that says nothing about it.
const MESSAGE_BYTES_DEFAULT: usize = 1 << 20;

/// Largest message that can be asked for: a client keeps the whole of one that is incomplete.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Longest delimiter, and longest header in front of a length.
const MARK_BYTES_MAX: usize = 256;

/// A framing that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FramingError {
    /// Clients speak something that has frames of its own: what they speak.
    #[error(
        "[framing] is for plain TCP, and {0} has frames of its own; write protocol = \"tcp\" in [terminals], or leave [framing] out"
    )]
    OfItsOwn(&'static str),
    /// The delimiter has no byte, or too many: how many.
    #[error("a delimiter has 1 to {MARK_BYTES_MAX} bytes, and this has {0}")]
    Delimiter(usize),
    /// The delimiter has variables.
    #[error("a delimiter is the same for all messages; only ${{hex:DIGITS}} may stand in it")]
    Variables,
    /// A width that no length has.
    #[error("a length has 1, 2, 4 or 8 bytes, and not {0}")]
    Width(usize),
    /// The length stands too far behind.
    #[error("a length stands behind at most {MARK_BYTES_MAX} bytes, and not {0}")]
    At(usize),
    /// Messages of a size that cannot be asked for.
    #[error("messages have 1 to {MESSAGE_BYTES_MAX} bytes at most, and not {0}")]
    Bytes(usize),
    /// A fixed size over the bound: both.
    #[error("each message would have {0} bytes, and message-max is {1}; raise it, or leave it out")]
    Size(usize, usize),
    /// What the server is to send back cannot be sent.
    #[error("a message of [echo] does not fit: {0}; change echo.size, or the framing")]
    Echo(Unfit),
}

impl Default for Framing {
    /// Lines.
    fn default() -> Self {
        Self {
            mark: FrameMark::Delimiter(b"\n".to_vec()),
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
        }
    }
}

impl Framing {
    fn check(&self) -> Result<(), (&'static str, FramingError)> {
        let most = self.message_bytes_max;
        if !(1..=MESSAGE_BYTES_MAX).contains(&most) {
            return Err(("framing.message-max", FramingError::Bytes(most)));
        }
        let is_mark = |bytes: usize| (1..=MARK_BYTES_MAX).contains(&bytes);
        match &self.mark {
            FrameMark::Delimiter(delimiter) if !is_mark(delimiter.len()) => {
                let wrong = FramingError::Delimiter(delimiter.len());
                Err(("framing.delimiter", wrong))
            }
            FrameMark::Size(size) if !(1..=most).contains(size) => {
                Err(("framing.size", FramingError::Size(*size, most)))
            }
            FrameMark::Length(field) if field.at > MARK_BYTES_MAX => {
                Err(("framing.length-at", FramingError::At(field.at)))
            }
            FrameMark::Length(field) => match field.form {
                LengthForm::Varint
                | LengthForm::BigEndian(1 | 2 | 4 | 8)
                | LengthForm::LittleEndian(1 | 2 | 4 | 8) => Ok(()),
                LengthForm::BigEndian(width) | LengthForm::LittleEndian(width) => {
                    Err(("framing.length-bytes", FramingError::Width(width)))
                }
            },
            FrameMark::Delimiter(_) | FrameMark::Size(_) => Ok(()),
        }
    }
}

impl Config {
    /// How messages are told apart; none where clients do not speak plain TCP.
    pub(super) fn planned_framing(&self) -> Option<Framing> {
        let is_tcp = self.protocol.scheme() == Scheme::Tcp;
        is_tcp.then(|| self.framing.clone().unwrap_or_default())
    }

    /// What clients of plain TCP have, and what they do not.
    pub(super) fn check_framing(&self) -> Result<(), ConfigError> {
        let name = self.protocol.name();
        let at = |key| move |error| ConfigError::Framing(key, error);
        let Some(framing) = self.planned_framing() else {
            return match &self.framing {
                Some(_) => Err(at("framing")(FramingError::OfItsOwn(name))),
                None => Ok(()),
            };
        };
        framing.check().map_err(|(key, error)| at(key)(error))?;
        if !self.headers.is_empty() {
            return Err(ConfigError::NoRequests("--header", name));
        }
        let has_beat = self.flows.as_ref().is_some_and(|it| it.heartbeat.is_some());
        if self.heartbeat.is_some() && !has_beat {
            return Err(ConfigError::NoPings(name));
        }
        let Some(echo) = self.echo else {
            return Ok(());
        };
        let stamp = EchoStamp { run: 0, number: 0 };
        let sample = stamp.payload(echo.payload_bytes);
        let written = framing.write(&mut Vec::new(), sample.as_bytes());
        written.map_err(|unfit| at("echo.size")(FramingError::Echo(unfit)))
    }
}
