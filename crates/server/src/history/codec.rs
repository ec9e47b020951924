//! What a publication says, as bytes for the disk.
//!
//! A byte for the version of the form, one for the kind of the data, one for what follows; then the data, tags, publisher and version, each
//! text behind its length in 4 bytes. Numbers are little-endian.

use myriad_shard::{ClientId, ClientInfo, Content, Payload};
use std::sync::Arc;

const FORM: u8 = 1;
const HAS_PUBLISHER: u8 = 1;
const HAS_CONNECTION_INFO: u8 = 2;
const HAS_CHANNEL_INFO: u8 = 4;
const HAS_VERSION: u8 = 8;

/// A publication's content, with the latest version of its channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) content: Content,
    /// 0: none.
    pub(super) version: u64,
    pub(super) version_epoch: Box<str>,
}

pub(super) fn encode(content: &Content, version: u64, version_epoch: &str) -> Vec<u8> {
    let (kind, data) = match &content.payload {
        Payload::Text(text) => (0, text.as_bytes()),
        Payload::Json(text) => (1, text.as_bytes()),
        Payload::JsonBytes(text) => (2, text.as_bytes()),
        Payload::Binary(bytes) => (3, &**bytes),
    };
    let publisher = content.publisher.as_deref();
    let has = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    let flags = has(publisher.is_some(), HAS_PUBLISHER)
        | has(
            publisher.is_some_and(|one| one.connection_info.is_some()),
            HAS_CONNECTION_INFO,
        )
        | has(
            publisher.is_some_and(|one| one.channel_info.is_some()),
            HAS_CHANNEL_INFO,
        )
        | has(version > 0, HAS_VERSION);
    let mut bytes = Vec::with_capacity(data.len() + 16);
    bytes.extend_from_slice(&[FORM, kind, flags]);
    put(&mut bytes, data);
    bytes.extend_from_slice(&length(content.tags.len()));
    for (name, value) in &content.tags {
        put(&mut bytes, name.as_bytes());
        put(&mut bytes, value.as_bytes());
    }
    if let Some(publisher) = publisher {
        put(&mut bytes, publisher.user.as_bytes());
        bytes.extend_from_slice(&publisher.client.0);
        let infos = [&publisher.connection_info, &publisher.channel_info];
        for info in infos.into_iter().flatten() {
            put(&mut bytes, info);
        }
    }
    if version > 0 {
        bytes.extend_from_slice(&version.to_le_bytes());
        put(&mut bytes, version_epoch.as_bytes());
    }
    bytes
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn put(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&length(bytes.len()));
    into.extend_from_slice(bytes);
}

/// What these bytes say; none if another version of the server has written them.
pub(super) fn decode(bytes: &[u8]) -> Option<Stored> {
    let mut rest = Rest(bytes);
    let &[form, kind, flags] = rest.array::<3>()?;
    if form != FORM {
        return None;
    }
    let data = rest.bytes()?;
    let text = || str::from_utf8(data).ok().map(Box::from);
    let payload = match kind {
        0 => Payload::Text(text()?),
        1 => Payload::Json(text()?),
        2 => Payload::JsonBytes(text()?),
        3 => Payload::Binary(data.into()),
        _ => return None,
    };
    let mut tags = Vec::new();
    for _ in 0..u32::from_le_bytes(*rest.array()?) {
        tags.push((rest.text()?.into(), rest.text()?.into()));
    }
    let mut publisher = None;
    if flags & HAS_PUBLISHER != 0 {
        let user = rest.text()?.into();
        let client = ClientId(*rest.array()?);
        let mut info = |flag| match flags & flag {
            0 => Some(None),
            _ => rest.bytes().map(|bytes| Some(Arc::from(bytes))),
        };
        let connection_info = info(HAS_CONNECTION_INFO)?;
        let channel_info = info(HAS_CHANNEL_INFO)?;
        publisher = Some(Arc::new(ClientInfo {
            user,
            client,
            connection_info,
            channel_info,
        }));
    }
    let (version, version_epoch) = match flags & HAS_VERSION {
        0 => (0, "".into()),
        _ => (u64::from_le_bytes(*rest.array()?), rest.text()?.into()),
    };
    let content = Content {
        payload,
        tags: tags.into(),
        publisher,
    };
    rest.0.is_empty().then_some(Stored {
        content,
        version,
        version_epoch,
    })
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(array)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(*self.array()?);
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_read_as_they_were_written_and_no_prefix_is_one() {
        let publisher = |connection_info, channel_info| {
            Some(Arc::new(ClientInfo {
                user: "ada".into(),
                client: ClientId([7; 16]),
                connection_info,
                channel_info,
            }))
        };
        let payloads = [
            Payload::Text("text".into()),
            Payload::Json("{}".into()),
            Payload::JsonBytes("[1]".into()),
            Payload::Binary([0, 255].into()),
        ];
        let publishers = [
            None,
            publisher(None, None),
            publisher(Some(b"{}"[..].into()), None),
            publisher(None, Some(b"1"[..].into())),
        ];
        for payload in payloads {
            for publisher in &publishers {
                for (version, version_epoch) in [(0, ""), (9, "e")] {
                    let content = Content {
                        payload: payload.clone(),
                        tags: [("a".into(), "b".into())].into(),
                        publisher: publisher.clone(),
                    };
                    let bytes = encode(&content, version, version_epoch);
                    let stored = Stored {
                        content,
                        version,
                        version_epoch: version_epoch.into(),
                    };
                    assert_eq!(decode(&bytes), Some(stored));
                    assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
                }
            }
        }
    }
}
