//! Bodies that are read whole before anybody looks at them: their framing, and commands that come apart from their connection.

use super::spread;
use crate::centrifuge::{EmulationRequest, Encoding};
use crate::http::{BodyError, BodyLength, ChunkedBody, RequestBody};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::marker::PhantomData;

/// The most places at which an input is cut.
const CUTS_MAX: usize = if cfg!(any(fuzzing, miri)) { 8 } else { 384 };

/// The body and its bytes on the wire; none while it is not whole.
type Read = Result<Option<(Vec<u8>, usize)>, BodyError>;

/// Fuzz target: any bytes as the body of a request, and what comes behind it. The first two bytes choose the framing and the limit.
///
/// # Panics
/// If a property does not hold.
pub fn request_body(bytes: &[u8]) {
    let [setting, limit, input @ ..] = bytes else {
        return;
    };
    let bytes_max = usize::from(*limit);
    let length = match setting & 3 {
        0 => BodyLength::Chunked,
        1 => BodyLength::Bytes(u64::MAX >> (setting >> 2)),
        _ => BodyLength::Bytes(u64::from(setting >> 2)),
    };
    let whole = read([input], length, bytes_max);
    for cut in spread(input, CUTS_MAX) {
        let (front, back) = input.split_at(cut);
        assert_eq!(
            read([front, back], length, bytes_max),
            whole,
            "cut at {cut}"
        );
    }
    assert_eq!(read(input.chunks(1), length, bytes_max), whole, "in bytes");
    match length {
        BodyLength::Bytes(length) => check_counted(input, length, bytes_max, &whole),
        BodyLength::Chunked => check_chunks(input, bytes_max, &whole),
    }
}

fn read<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    length: BodyLength,
    bytes_max: usize,
) -> Read {
    let mut body = RequestBody::new(length, bytes_max)?;
    let mut taken = 0;
    for piece in pieces {
        let count = body.advance(piece)?;
        assert!(
            count == piece.len() || body.is_done(),
            "nothing else is left"
        );
        assert!(
            body.bytes().len() <= bytes_max,
            "no more than the limit is kept"
        );
        taken += count;
    }
    Ok(body.is_done().then(|| (body.bytes().to_vec(), taken)))
}

fn check_counted(input: &[u8], length: u64, bytes_max: usize, read: &Read) {
    let expected = match usize::try_from(length) {
        Ok(length) if length <= bytes_max => {
            Ok(input.get(..length).map(|body| (body.to_vec(), length)))
        }
        _ => Err(BodyError::TooLarge),
    };
    assert_eq!(*read, expected);
}

/// Compares with who looks for the end first, and then for the data.
fn check_chunks(input: &[u8], bytes_max: usize, read: &Read) {
    let mut framing = ChunkedBody::default();
    match framing.advance(input) {
        Ok(end) if framing.is_done() => {
            let data = data_of(&input[..end]);
            let expected = if data.len() > bytes_max {
                Err(BodyError::TooLarge)
            } else {
                Ok(Some((data, end)))
            };
            assert_eq!(*read, expected);
        }
        // What is too large is refused before its end.
        Ok(_) => assert!(
            matches!(read, Ok(None) | Err(BodyError::TooLarge)),
            "{read:?}"
        ),
        Err(error) => {
            let is_same = *read == Err(BodyError::Chunk(error));
            assert!(
                is_same || *read == Err(BodyError::TooLarge),
                "{read:?}, and {error:?}"
            );
        }
    }
}

/// The data of whole and well-formed chunks. The first line end ends a size's line, because an extension cannot have one.
fn data_of(chunks: &[u8]) -> Vec<u8> {
    let (mut data, mut rest) = (Vec::new(), chunks);
    loop {
        let line_end = rest.windows(2).position(|two| two == b"\r\n");
        let (line, behind) = rest.split_at(line_end.expect("a line"));
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
        let digits: String = digits.map(|&byte| char::from(byte)).collect();
        let size = usize::from_str_radix(&digits, 16).expect("a size");
        if size == 0 {
            return data;
        }
        let (chunk, behind) = behind[2..].split_at(size);
        data.extend_from_slice(chunk);
        rest = &behind[2..];
    }
}

/// Fuzz target: any bytes as the body of a request with commands, in JSON and in protobuf.
///
/// # Panics
/// If a property does not hold.
pub fn emulation_request(body: &[u8]) {
    let json = EmulationRequest::decode(Encoding::Json, body);
    let by_the_book = emulation_of_json(body);
    match &json {
        Ok(request) => {
            // A Value is read with recursion, one level less deep, and has numbers of limited size.
            if let Some(expected) = by_the_book {
                assert_eq!(expected.as_ref(), Some(request));
            }
            assert!(
                request.data.len() <= body.len(),
                "no data comes from nowhere"
            );
        }
        Err(error) => {
            assert!(!matches!(by_the_book, Some(Some(_))), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
    let protobuf = EmulationRequest::decode(Encoding::Protobuf, body);
    match &protobuf {
        Ok(request) => {
            assert_eq!(emulation_of_protobuf(body).as_ref(), Some(request));
            // Fields have no order, and the last of a number counts: a message behind another one is merged with it.
            let twice = [body, body].concat();
            let again = EmulationRequest::decode(Encoding::Protobuf, &twice);
            assert_eq!(again.as_ref(), Ok(request));
        }
        Err(error) => {
            assert_eq!(emulation_of_protobuf(body), None, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A JSON object's members in their order, repeated names among them.
pub struct Members<V>(pub Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Members<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsList<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for AsList<V> {
            type Value = Members<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<V>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(AsList(PhantomData))
    }
}

/// What a body says as a tree of values; the inner none where it is no request, the outer one where it is no tree. Null stands for
/// what is not there.
fn emulation_of_json(body: &[u8]) -> Option<Option<EmulationRequest<'static>>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    if value.is_null() {
        return Some(Some(EmulationRequest::default()));
    }
    let Ok(Members::<Value>(members)) = serde_json::from_slice(body) else {
        return Some(None);
    };
    let text = |value: &Value| match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    let read = || {
        let mut request = EmulationRequest::default();
        for (name, value) in &members {
            match &**name {
                "node" => request.node = text(value)?.into(),
                "session" => request.session = text(value)?.into(),
                _ => {}
            }
        }
        // It is kept as it is written, and read when all is known: the last one counts.
        if let Some((_, value)) = members.iter().rfind(|(name, _)| name == "data") {
            request.data = text(value)?.into_bytes().into();
        }
        Some(request)
    };
    Some(read())
}

/// What a body says by the description of the encoding; none where it is no message.
fn emulation_of_protobuf(body: &[u8]) -> Option<EmulationRequest<'static>> {
    let mut request = EmulationRequest::default();
    let mut rest = body;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let (number, kind) = (key >> 3, key & 7);
        if number == 0 || key > u64::from(u32::MAX) {
            return None;
        }
        let value = match kind {
            0 => varint(&mut rest).map(|_| None)?,
            1 => taken(&mut rest, 8).map(|_| None)?,
            5 => taken(&mut rest, 4).map(|_| None)?,
            2 => {
                let length = varint(&mut rest)?;
                Some(taken(&mut rest, length)?)
            }
            _ => return None,
        };
        let text = || String::from_utf8(value?.to_vec()).ok();
        match number {
            1 => request.node = text()?.into(),
            2 => request.session = text()?.into(),
            3 => request.data = value?.to_vec().into(),
            _ => {}
        }
    }
    Some(request)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let end = rest.iter().position(|byte| byte & 0x80 == 0)?;
    let bytes = taken(rest, end as u64 + 1)?;
    let mut value: u128 = 0;
    for (index, byte) in bytes.iter().enumerate() {
        // The tenth byte is the last that means anything.
        value |= u128::from(byte & 0x7f).checked_shl(u32::try_from(7 * index).ok()?)?;
        if index > 9 {
            return None;
        }
    }
    u64::try_from(value).ok()
}

fn taken<'a>(rest: &mut &'a [u8], count: u64) -> Option<&'a [u8]> {
    let (front, back) = rest.split_at_checked(usize::try_from(count).ok()?)?;
    *rest = back;
    Some(front)
}
