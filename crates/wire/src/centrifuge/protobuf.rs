//! Reading protobuf without copying, as the encoding's specification describes it.

use super::CommandError;
use crate::varint::{VarintError, split_varint};

/// Messages within messages. A tags filter of the allowed depth in a subscription of a connect request needs 36.
const DEPTH_MAX: u8 = 40;

/// The bytes of one message, or of several.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// What an error names until the field is known.
    name: &'static str,
    depth: u8,
}

/// A field's value as it is on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes. No field of the protocol has such a type, so they only get skipped.
    Fixed,
}

/// One field of a message. Its name comes from the table of the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    name: &'static str,
    wire: Wire<'a>,
    depth: u8,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            name,
            depth: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// The next message of a frame: its length, then its bytes.
    pub(super) fn next_message(&mut self, name: &'static str) -> Result<Self, CommandError> {
        self.name = name;
        Ok(Self {
            rest: self.bytes()?,
            ..*self
        })
    }

    /// The next field, or none at the end of the message.
    pub(super) fn next_field(&mut self) -> Result<Option<Field<'a>>, CommandError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = u32::try_from(self.varint()?).map_err(|_| CommandError::FieldNumber)?;
        let number = key >> 3;
        if number == 0 {
            return Err(CommandError::FieldNumber);
        }
        let wire = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => Wire::Bytes(self.bytes()?),
            5 => self.take(4).map(|_| Wire::Fixed)?,
            // 3 and 4 are groups, which proto3 does not have; 6 and 7 do not exist.
            _ => return Err(CommandError::WireType { field: self.name }),
        };
        Ok(Some(Field {
            number,
            name: self.name,
            wire,
            depth: self.depth,
        }))
    }

    fn bytes(&mut self) -> Result<&'a [u8], CommandError> {
        let length = self.varint()?;
        let length =
            usize::try_from(length).map_err(|_| CommandError::Truncated { field: self.name })?;
        self.take(length)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], CommandError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(CommandError::Truncated { field: self.name })?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, CommandError> {
        let (value, rest) = split_varint(self.rest).map_err(|error| match error {
            VarintError::Truncated => CommandError::Truncated { field: self.name },
            VarintError::TooLarge => CommandError::Varint { field: self.name },
        })?;
        self.rest = rest;
        Ok(value)
    }
}

impl<'a> Field<'a> {
    pub(super) fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) fn varint(&self) -> Result<u64, CommandError> {
        match self.wire {
            Wire::Varint(value) => Ok(value),
            _ => Err(CommandError::WireType { field: self.name }),
        }
    }

    pub(super) fn bytes(&self) -> Result<&'a [u8], CommandError> {
        match self.wire {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(CommandError::WireType { field: self.name }),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, CommandError> {
        simdutf8::basic::from_utf8(self.bytes()?)
            .map_err(|_| CommandError::NotUtf8 { field: self.name })
    }

    /// The fields of a message in this field.
    pub(super) fn message(&self) -> Result<Reader<'a>, CommandError> {
        if self.depth == DEPTH_MAX {
            return Err(CommandError::TooDeep { field: self.name });
        }
        Ok(Reader {
            rest: self.bytes()?,
            name: self.name,
            depth: self.depth + 1,
        })
    }
}
