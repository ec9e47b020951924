//! Frames: several messages one after the other.

use super::json::Seed;
use super::message::{Message, Value};
use super::protobuf::Reader;
use super::{CommandError, Encoding};

/// What is left of a frame.
#[derive(Clone, Debug)]
pub(super) struct Messages<'a> {
    state: State<'a>,
    /// What errors call a message.
    name: &'static str,
}

#[derive(Clone, Debug)]
enum State<'a> {
    Json(&'a str),
    Protobuf(Reader<'a>),
    /// Found when the frame was taken in, to be given once.
    Broken(CommandError),
    End,
}

impl<'a> Messages<'a> {
    pub(super) fn new(encoding: Encoding, name: &'static str, frame: &'a [u8]) -> Self {
        let state = match encoding {
            _ if frame.is_empty() => State::Broken(CommandError::EmptyFrame),
            Encoding::Protobuf => State::Protobuf(Reader::new(name, frame)),
            Encoding::Json => match simdutf8::basic::from_utf8(frame) {
                Ok(text) => match text.strip_suffix('\n').unwrap_or(text) {
                    "" => State::Broken(CommandError::EmptyFrame),
                    lines => State::Json(lines),
                },
                Err(_) => State::Broken(CommandError::NotUtf8 { field: "the frame" }),
            },
        };
        Self { state, name }
    }

    /// The bytes behind the last message: a frame too, or empty.
    pub(super) fn remaining(&self) -> &'a [u8] {
        match &self.state {
            State::Json(lines) => lines.as_bytes(),
            State::Protobuf(reader) => reader.remaining(),
            State::Broken(_) | State::End => &[],
        }
    }

    /// Gives no more messages.
    pub(super) fn end(&mut self) {
        self.state = State::End;
    }

    pub(super) fn next<M: Message<'a> + Value<'a>>(&mut self) -> Option<Result<M, CommandError>> {
        let message = match &mut self.state {
            State::End => return None,
            State::Broken(_) => {
                let State::Broken(error) = std::mem::replace(&mut self.state, State::End) else {
                    return None;
                };
                Err(error)
            }
            State::Json(lines) => {
                let text = *lines;
                if let Some((line, rest)) = text.split_once('\n') {
                    *lines = rest;
                    read_line(line)
                } else {
                    self.state = State::End;
                    read_line(text)
                }
            }
            State::Protobuf(reader) => {
                let message = read_message(reader, self.name);
                if reader.is_empty() {
                    self.state = State::End;
                }
                message
            }
        };
        if message.is_err() {
            self.end();
        }
        Some(message)
    }
}

fn read_line<'a, M: Message<'a> + Value<'a>>(line: &'a str) -> Result<M, CommandError> {
    if line.is_empty() {
        return Err(CommandError::BlankLine);
    }
    let mut deserializer = serde_json::Deserializer::from_str(line);
    serde::de::DeserializeSeed::deserialize(Seed::<M>::new(), &mut deserializer)
        .and_then(|message| deserializer.end().map(|()| message))
        .map_err(|error| CommandError::Json {
            sentence: error.to_string(),
        })
}

fn read_message<'a, M: Message<'a>>(
    frame: &mut Reader<'a>,
    name: &'static str,
) -> Result<M, CommandError> {
    let mut fields = frame.next_message(name)?;
    let mut message = M::default();
    while let Some(field) = fields.next_field()? {
        message.read_protobuf(field)?;
    }
    Ok(message)
}
