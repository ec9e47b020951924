//! Writers of messages: each message says its fields once, and is written as JSON or as protobuf.
//!
//! Zero values are left out, as proto3 and the protocol's JSON do. Fields that JSON always has are written by the methods
//! that end in `_always`.

use crate::varint::push_varint;

/// Writes the fields of one message.
pub(super) trait Fields {
    /// A string, always.
    fn string_always(&mut self, number: u32, name: &str, value: &str);
    /// A number, always in JSON.
    fn number_always(&mut self, number: u32, name: &str, value: u64);
    /// Data: JSON as it is, or bytes; left out if empty.
    fn data(&mut self, number: u32, name: &str, value: &[u8]);
    /// A message of its own, always, even without fields.
    fn message(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Self));
    /// A list of messages, always in JSON.
    fn list_always<T>(
        &mut self,
        number: u32,
        name: &str,
        items: impl Iterator<Item = T>,
        write: impl FnMut(&mut Self, T),
    );
    /// An object of messages by their keys, always in JSON.
    fn map_always<K: AsRef<str>, T>(
        &mut self,
        number: u32,
        name: &str,
        pairs: impl Iterator<Item = (K, T)>,
        write: impl FnMut(&mut Self, T),
    );
    /// An object of strings by their names; left out if empty.
    fn strings(&mut self, number: u32, name: &str, pairs: &[(Box<str>, Box<str>)]);

    /// A string, unless it is empty.
    fn string(&mut self, number: u32, name: &str, value: &str) {
        if !value.is_empty() {
            self.string_always(number, name, value);
        }
    }

    /// A number, unless it is 0.
    fn number(&mut self, number: u32, name: &str, value: u64) {
        if value != 0 {
            self.number_always(number, name, value);
        }
    }

    /// A bool, if it is true.
    fn flag(&mut self, number: u32, name: &str, value: bool);
}

/// Writes JSON to the end of a buffer.
pub(super) struct Json<'a>(pub(super) &'a mut Vec<u8>);

impl Json<'_> {
    /// The whole message, with its braces.
    pub(super) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.0.push(b'{');
        write(self);
        self.0.push(b'}');
    }

    /// The name of the next field, after a comma where it is not the first. No value ends with an opening bracket.
    fn name(&mut self, name: &str) {
        self.comma();
        self.0.push(b'"');
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    fn comma(&mut self) {
        if !matches!(self.0.last(), Some(b'{' | b'[')) {
            self.0.push(b',');
        }
    }

    fn quoted(&mut self, text: &str) {
        serde_json::to_writer(&mut *self.0, text).expect("a Vec takes everything");
    }
}

impl Fields for Json<'_> {
    fn string_always(&mut self, _number: u32, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    fn number_always(&mut self, _number: u32, name: &str, value: u64) {
        self.name(name);
        push_decimal(self.0, value);
    }

    fn data(&mut self, _number: u32, name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.name(name);
            self.0.extend_from_slice(value);
        }
    }

    fn message(&mut self, _number: u32, name: &str, write: impl FnOnce(&mut Self)) {
        self.name(name);
        self.object(write);
    }

    fn list_always<T>(
        &mut self,
        _number: u32,
        name: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.name(name);
        self.0.push(b'[');
        for item in items {
            self.comma();
            self.object(|fields| write(fields, item));
        }
        self.0.push(b']');
    }

    fn map_always<K: AsRef<str>, T>(
        &mut self,
        _number: u32,
        name: &str,
        pairs: impl Iterator<Item = (K, T)>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.name(name);
        self.0.push(b'{');
        for (key, value) in pairs {
            self.comma();
            self.quoted(key.as_ref());
            self.0.push(b':');
            self.object(|fields| write(fields, value));
        }
        self.0.push(b'}');
    }

    fn strings(&mut self, number: u32, name: &str, pairs: &[(Box<str>, Box<str>)]) {
        if pairs.is_empty() {
            return;
        }
        self.message(number, name, |fields| {
            for (key, value) in pairs {
                fields.comma();
                fields.quoted(key);
                fields.0.push(b':');
                fields.quoted(value);
            }
        });
    }

    fn flag(&mut self, _number: u32, name: &str, value: bool) {
        if value {
            self.name(name);
            self.0.extend_from_slice(b"true");
        }
    }
}

fn push_decimal(out: &mut Vec<u8>, mut value: u64) {
    /// Digits of the largest number of 64 bits.
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Writes protobuf to the end of a buffer.
pub(super) struct Protobuf<'a>(pub(super) &'a mut Vec<u8>);

const WIRE_VARINT: u32 = 0;
const WIRE_BYTES: u32 = 2;

impl Protobuf<'_> {
    fn tag(&mut self, number: u32, wire_type: u32) {
        self.varint(u64::from(number << 3 | wire_type));
    }

    fn varint(&mut self, value: u64) {
        push_varint(self.0, value);
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.tag(number, WIRE_BYTES);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message after its length. One byte is kept for the length; what was written moves up where that is not enough,
    /// which costs less than to write the message twice.
    pub(super) fn delimited(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.0.len();
        self.0.push(0);
        write(self);
        let length = self.0.len() - start - 1;
        let mut prefix = Vec::with_capacity(5);
        push_varint(&mut prefix, length as u64);
        self.0.splice(start..=start, prefix);
    }
}

impl Fields for Protobuf<'_> {
    fn string_always(&mut self, number: u32, _name: &str, value: &str) {
        if !value.is_empty() {
            self.bytes(number, value.as_bytes());
        }
    }

    fn number_always(&mut self, number: u32, _name: &str, value: u64) {
        if value != 0 {
            self.tag(number, WIRE_VARINT);
            self.varint(value);
        }
    }

    fn data(&mut self, number: u32, _name: &str, value: &[u8]) {
        if !value.is_empty() {
            self.bytes(number, value);
        }
    }

    fn message(&mut self, number: u32, _name: &str, write: impl FnOnce(&mut Self)) {
        self.tag(number, WIRE_BYTES);
        self.delimited(write);
    }

    fn list_always<T>(
        &mut self,
        number: u32,
        name: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        for item in items {
            self.message(number, name, |fields| write(fields, item));
        }
    }

    fn map_always<K: AsRef<str>, T>(
        &mut self,
        number: u32,
        name: &str,
        pairs: impl Iterator<Item = (K, T)>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        for (key, value) in pairs {
            self.message(number, name, |entry| {
                entry.bytes(1, key.as_ref().as_bytes());
                entry.message(2, "", |fields| write(fields, value));
            });
        }
    }

    fn strings(&mut self, number: u32, name: &str, pairs: &[(Box<str>, Box<str>)]) {
        for (key, value) in pairs {
            self.message(number, name, |entry| {
                entry.bytes(1, key.as_bytes());
                entry.bytes(2, value.as_bytes());
            });
        }
    }

    fn flag(&mut self, number: u32, name: &str, value: bool) {
        self.number_always(number, name, u64::from(value));
    }
}
