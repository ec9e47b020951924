//! A publication as a message of NATS: its data as they are, and the rest in headers.
//!
//! So people can read what passes with the tools of NATS, and a program can publish to a stream without us: a message without our
//! headers is JSON if it can be, and bytes otherwise. Header values are JSON, written in ASCII: the client library splits lines at
//! spaces of Unicode.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use myriad_hub::{ClientId, ClientInfo, Content, Payload, Ticket};
use myriad_wheel::Key;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt::Write as _;
use std::sync::Arc;
use thiserror::Error;

/// Names of our headers.
mod name {
    pub(super) const FORMAT: &str = "Myriad-Format";
    pub(super) const PUBLISHER: &str = "Myriad-Publisher";
    pub(super) const TAGS: &str = "Myriad-Tags";
    pub(super) const DELTA: &str = "Myriad-Delta";
    pub(super) const VERSION: &str = "Myriad-Version";
    pub(super) const KEY: &str = "Myriad-Key";
    pub(super) const ORIGIN: &str = "Myriad-Origin";
    pub(super) const REMOVED: &str = "Myriad-Removed";
    pub(super) const BEHIND: &str = "Myriad-Behind";
}

/// Bytes of memory that a message takes beside its headers and its payload: an estimate, not measured.
pub const MESSAGE_OVERHEAD: u32 = 512;

/// A header: its name and its value.
pub type Header = (&'static str, String);

/// A version, 0 for none, and its epoch.
pub type Version = (u64, Box<str>);

/// The version of a publication behind a message with the version `last`; none if it has to be left out, as `last` is the same or a
/// later one. Versions of different epochs are not compared, and a version without an epoch is of the one before it.
#[must_use]
pub fn version_behind(last: &Version, wished: &Version) -> Option<Version> {
    let (version, epoch) = wished;
    let is_comparable = epoch.is_empty() || *epoch == last.1;
    if is_comparable && last.0 >= *version {
        return None;
    }
    let epoch = if epoch.is_empty() { &last.1 } else { epoch };
    Some((*version, epoch.clone()))
}

/// Names the publisher of a message: its node, and its number there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The node.
    pub node: Box<str>,
    /// Different for each message of the node.
    pub serial: u64,
    /// The client that does not want its own publication back. Only its own node knows whom this names.
    pub sender: Option<Ticket>,
}

/// What a message says beside its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The publication; none where the channel's history is removed instead.
    pub content: Option<Arc<Content>>,
    /// It may be sent as a delta to the publication before it.
    pub delta: bool,
    /// The version of what it describes, and that version's epoch. Of a removal: the version of what was removed, so that it still
    /// counts.
    pub version: Version,
    /// Of a removal: the place of the channel's last publication before it, or 0. None: its node did not say it.
    pub behind: Option<u64>,
    /// Its idempotency key.
    pub key: Option<Box<str>>,
    /// Who sent the message; none if it was no node of ours.
    pub origin: Option<Origin>,
}

/// A message that has a header of ours with something else in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("its header {header} is not what a node writes")]
pub struct Unreadable {
    /// The header's name.
    pub header: &'static str,
}

/// A client as it stands in a header.
#[derive(Serialize, Deserialize)]
struct Client<'a> {
    user: std::borrow::Cow<'a, str>,
    client: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    connection_info: Option<Info<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    channel_info: Option<Info<'a>>,
}

/// What is said of a client: JSON, or bytes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Info<'a> {
    #[serde(borrow)]
    Json(&'a RawValue),
    Bytes(String),
}

impl<'a> Info<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        match serde_json::from_slice(bytes) {
            Ok(json) => Self::Json(json),
            Err(_) => Self::Bytes(BASE64.encode(bytes)),
        }
    }

    fn bytes(&self) -> Option<Arc<[u8]>> {
        match self {
            Self::Json(json) => Some(json.get().as_bytes().into()),
            Self::Bytes(text) => BASE64.decode(text).ok().map(Into::into),
        }
    }
}

impl Envelope {
    /// The end of a channel's history up to this message.
    #[must_use]
    pub fn removal(origin: Origin) -> Self {
        Self {
            content: None,
            delta: false,
            version: (0, "".into()),
            behind: None,
            key: None,
            origin: Some(origin),
        }
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        let mut headers = Vec::new();
        if let Some(origin) = &self.origin {
            headers.push((name::ORIGIN, origin_text(origin)));
        }
        if self.version.0 > 0 {
            headers.push((name::VERSION, ascii_json(&self.version)));
        }
        let Some(content) = &self.content else {
            headers.push((name::REMOVED, "1".to_owned()));
            if let Some(behind) = self.behind {
                headers.push((name::BEHIND, behind.to_string()));
            }
            return headers;
        };
        let format = match &content.payload {
            Payload::Json(_) => "json",
            Payload::Text(_) => "text",
            Payload::JsonBytes(_) | Payload::Binary(_) => "binary",
        };
        headers.push((name::FORMAT, format.to_owned()));
        if let Some(publisher) = &content.publisher {
            headers.push((name::PUBLISHER, client_json(publisher)));
        }
        if !content.tags.is_empty() {
            headers.push((name::TAGS, ascii_json(&content.tags)));
        }
        if self.delta {
            headers.push((name::DELTA, "1".to_owned()));
        }
        if let Some(key) = &self.key {
            headers.push((name::KEY, ascii_json(key)));
        }
        headers
    }

    /// Its data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match &self.content {
            Some(content) => content.payload.bytes(),
            None => &[],
        }
    }

    /// Reads a message. Of several headers with one name the first one counts.
    ///
    /// # Errors
    /// A header of ours has something else in it.
    pub fn read<'m>(
        headers: impl IntoIterator<Item = (&'m str, &'m str)>,
        data: &[u8],
    ) -> Result<Self, Unreadable> {
        let found = OurHeaders::of(headers);
        let origin = read(name::ORIGIN, found.origin, origin_of)?;
        let version = read(name::VERSION, found.version, from_json)?;
        let version = version.unwrap_or((0, "".into()));
        if found.removed.is_some() {
            return Ok(Self {
                origin,
                version,
                behind: read(name::BEHIND, found.behind, |text| text.parse().ok())?,
                ..Self::removal(Origin {
                    node: "".into(),
                    serial: 0,
                    sender: None,
                })
            });
        }
        let payload = match found.format {
            None => payload_of_stranger(data),
            format => read(name::FORMAT, format, |format| payload_of(format, data))?
                .expect("a format was there"),
        };
        let publisher = read(name::PUBLISHER, found.publisher, client_of)?;
        let tags = read(name::TAGS, found.tags, from_json)?;
        let content = Content {
            payload,
            tags: tags.unwrap_or_default(),
            publisher: publisher.map(Arc::new),
        };
        Ok(Self {
            content: Some(Arc::new(content)),
            delta: found.delta.is_some(),
            version,
            behind: None,
            key: read(name::KEY, found.key, from_json)?,
            origin,
        })
    }
}

/// The values of our headers in a message.
#[derive(Default)]
struct OurHeaders<'m> {
    format: Option<&'m str>,
    publisher: Option<&'m str>,
    tags: Option<&'m str>,
    delta: Option<&'m str>,
    version: Option<&'m str>,
    key: Option<&'m str>,
    origin: Option<&'m str>,
    removed: Option<&'m str>,
    behind: Option<&'m str>,
}

impl<'m> OurHeaders<'m> {
    fn of(headers: impl IntoIterator<Item = (&'m str, &'m str)>) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let place = match name {
                name::FORMAT => &mut found.format,
                name::PUBLISHER => &mut found.publisher,
                name::TAGS => &mut found.tags,
                name::DELTA => &mut found.delta,
                name::VERSION => &mut found.version,
                name::KEY => &mut found.key,
                name::ORIGIN => &mut found.origin,
                name::REMOVED => &mut found.removed,
                name::BEHIND => &mut found.behind,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        found
    }
}

/// Reads a header that is there.
fn read<T>(
    header: &'static str,
    value: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Unreadable> {
    value
        .map(|value| parse(value).ok_or(Unreadable { header }))
        .transpose()
}

fn from_json<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// `NODE:SERIAL`, and of a sender its shard, its connection's index and generation, and its command.
fn origin_text(origin: &Origin) -> String {
    let Origin {
        node,
        serial,
        sender,
    } = origin;
    match sender {
        None => format!("{node}:{serial}"),
        Some(sender) => format!(
            "{node}:{serial}:{}:{}:{}:{}",
            sender.shard, sender.connection.index, sender.connection.generation, sender.command
        ),
    }
}

fn origin_of(text: &str) -> Option<Origin> {
    let mut parts = text.split(':');
    let node = parts.next()?.into();
    let serial = parts.next()?.parse().ok()?;
    let sender = match parts.next() {
        None => None,
        Some(shard) => Some(Ticket {
            mark: 0,
            shard: shard.parse().ok()?,
            connection: Key {
                index: parts.next()?.parse().ok()?,
                generation: parts.next()?.parse().ok()?,
            },
            command: parts.next()?.parse().ok()?,
        }),
    };
    parts.next().is_none().then_some(Origin {
        node,
        serial,
        sender,
    })
}

fn payload_of(format: &str, data: &[u8]) -> Option<Payload> {
    let text = || str::from_utf8(data).ok();
    match format {
        "json" => {
            let json: &RawValue = serde_json::from_slice(data).ok()?;
            Some(Payload::Json(json.get().into()))
        }
        "text" => Some(Payload::Text(text()?.into())),
        "binary" => Some(Payload::of_bytes(data.into())),
        _ => None,
    }
}

fn payload_of_stranger(data: &[u8]) -> Payload {
    payload_of("json", data).unwrap_or_else(|| Payload::Binary(data.into()))
}

/// A client as JSON whose every character is printable ASCII.
pub(crate) fn client_json(client: &ClientInfo) -> String {
    ascii_json(&Client {
        user: (&*client.user).into(),
        client: client.client.to_string(),
        connection_info: client.connection_info.as_deref().map(Info::of),
        channel_info: client.channel_info.as_deref().map(Info::of),
    })
}

/// The client of such JSON.
pub(crate) fn client_of(text: &str) -> Option<ClientInfo> {
    let client: Client<'_> = serde_json::from_str(text).ok()?;
    let info = |info: Option<Info<'_>>| match info {
        None => Some(None),
        Some(info) => info.bytes().map(Some),
    };
    Some(ClientInfo {
        user: client.user.into(),
        client: ClientId::parse(&client.client)?,
        connection_info: info(client.connection_info)?,
        channel_info: info(client.channel_info)?,
    })
}

/// JSON whose every character is printable ASCII.
fn ascii_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("strings and numbers can be written");
    let is_printable = |character: char| (' '..='~').contains(&character);
    if json.bytes().all(|byte| is_printable(byte.into())) {
        return json;
    }
    let mut ascii = String::with_capacity(2 * json.len());
    for character in json.chars() {
        if is_printable(character) {
            ascii.push(character);
            continue;
        }
        // Outside of strings JSON that we write is ASCII; what an application wrote may have line breaks and tabs there.
        if matches!(character, '\n' | '\r' | '\t') {
            ascii.push(' ');
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(ascii, "\\u{unit:04x}").expect("a String takes everything");
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sent(envelope: &Envelope) -> Envelope {
        let headers = envelope.headers();
        for (name, value) in &headers {
            assert!(
                value.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{name}: {value}"
            );
        }
        let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
        Envelope::read(headers, envelope.data()).expect("what we write we can read")
    }

    fn plain(payload: Payload) -> Envelope {
        Envelope {
            content: Some(Arc::new(Content::new(payload))),
            ..Envelope::removal(Origin {
                node: "n1".into(),
                serial: 7,
                sender: Some(Ticket {
                    mark: 0,
                    shard: 3,
                    connection: Key {
                        index: 9,
                        generation: 2,
                    },
                    command: u32::MAX,
                }),
            })
        }
    }

    #[test]
    fn a_client_and_all_wishes_come_through() {
        let publisher = ClientInfo {
            user: "J\u{f6}rg\u{a0}\u{2028}\u{7f}".into(),
            client: ClientId([7; 16]),
            connection_info: Some(Arc::from(&b"{\"a\": \"\xc3\xa9\"}"[..])),
            channel_info: Some(Arc::from(&b"\xff\0"[..])),
        };
        let content = Content {
            payload: Payload::Json("{\"text\":\"\u{1f600}\"}".into()),
            tags: [("k\u{3000}".into(), "\r\nv".into())].into(),
            publisher: Some(Arc::new(publisher)),
        };
        let envelope = Envelope {
            content: Some(Arc::new(content)),
            delta: true,
            version: (9, "\u{e9}poque".into()),
            behind: None,
            key: Some("\u{2028}".into()),
            ..plain(Payload::Text("".into()))
        };
        let read = sent(&envelope);
        let info = |envelope: &Envelope| {
            let content = envelope.content.as_ref().unwrap();
            let publisher = content.publisher.as_ref().unwrap();
            let json: serde_json::Value =
                serde_json::from_slice(publisher.connection_info.as_ref().unwrap()).unwrap();
            (publisher.user.clone(), publisher.channel_info.clone(), json)
        };
        assert_eq!(info(&read), info(&envelope));
        assert_eq!(
            (read.delta, &read.version, &read.key),
            (true, &envelope.version, &envelope.key)
        );
        let tags = |envelope: &Envelope| envelope.content.as_ref().unwrap().tags.clone();
        assert_eq!(tags(&read), tags(&envelope));
    }

    #[test]
    fn a_removal_says_so() {
        let removal = Envelope::removal(Origin {
            node: "n1".into(),
            serial: 1,
            sender: None,
        });
        assert_eq!(sent(&removal), removal);
    }

    #[test]
    fn a_removal_keeps_the_version_of_what_it_removes() {
        let removal = Envelope {
            version: (7, "e".into()),
            behind: Some(5),
            ..Envelope::removal(Origin {
                node: "n1".into(),
                serial: 1,
                sender: None,
            })
        };
        assert_eq!(sent(&removal), removal);
    }

    #[test]
    fn an_earlier_version_is_left_out() {
        for (last, wished, becomes) in [
            ((0, ""), (1, ""), Some((1, ""))),
            ((5, ""), (5, ""), None),
            ((5, ""), (4, ""), None),
            ((5, ""), (6, ""), Some((6, ""))),
            // Another epoch begins again, and counts on where none is named.
            ((5, "a"), (1, "b"), Some((1, "b"))),
            ((5, "a"), (5, "a"), None),
            ((5, "a"), (4, ""), None),
            ((5, "a"), (6, ""), Some((6, "a"))),
        ] {
            let of = |(version, epoch): (u64, &str)| -> Version { (version, epoch.into()) };
            let found = version_behind(&of(last), &of(wished));
            assert_eq!(found, becomes.map(of), "{wished:?} behind {last:?}");
        }
    }

    #[test]
    fn messages_of_strangers_are_json_if_they_can_be() {
        for (data, payload) in [
            (&b"{\"a\":1}"[..], Payload::Json("{\"a\":1}".into())),
            (b" 1 ", Payload::Json("1".into())),
            (b"hello", Payload::Binary((*b"hello").into())),
            (b"", Payload::Binary(Box::default())),
        ] {
            let envelope = Envelope::read([], data).unwrap();
            assert_eq!(envelope.content.unwrap().payload, payload);
            assert_eq!(envelope.origin, None);
        }
    }

    #[test]
    fn a_header_of_ours_with_something_else_is_named() {
        for (header, value) in [
            ("Myriad-Origin", "n1"),
            ("Myriad-Format", "xml"),
            ("Myriad-Format", "json"),
            ("Myriad-Publisher", "{}"),
            ("Myriad-Tags", "1"),
            ("Myriad-Version", "-1"),
            ("Myriad-Key", "key"),
        ] {
            let refused = Envelope::read([(header, value)], b"\xff").unwrap_err();
            assert_eq!(refused.header, header);
        }
    }

    #[test]
    fn of_two_headers_with_one_name_the_first_one_counts() {
        let headers = [("Myriad-Format", "text"), ("Myriad-Format", "json")];
        let envelope = Envelope::read(headers, b"1").unwrap();
        assert_eq!(envelope.content.unwrap().payload, Payload::Text("1".into()));
    }

    proptest! {
        #[test]
        fn every_payload_comes_back(text in "(?s:.{0,60})", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let json = serde_json::to_string(&text).unwrap();
            for payload in [
                Payload::Text(text.into()),
                Payload::Json(json.into()),
                Payload::of_bytes(bytes),
            ] {
                let envelope = plain(payload);
                prop_assert_eq!(sent(&envelope), envelope);
            }
        }

        /// Whatever stands in the headers: an answer, and never a panic.
        #[test]
        fn any_header_is_read_or_refused(value in "(?s:.{0,40})", data in prop::collection::vec(any::<u8>(), 0..40)) {
            for header in ["Origin", "Format", "Publisher", "Tags", "Version", "Key"] {
                let name = format!("Myriad-{header}");
                let _ = Envelope::read([(&*name, &*value)], &data);
            }
        }
    }
}
