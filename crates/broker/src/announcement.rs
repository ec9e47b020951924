//! Joins and leaves as messages of NATS.

use crate::envelope::{Header, Unreadable, client_json, client_of};
use crate::nodes::is_node_name;
use myriad_hub::{FromNode, NodeSays, PresenceChange, PresenceEvent, Told};
use std::sync::Arc;

mod name {
    pub(super) const NODE: &str = "Myriad-Node";
    pub(super) const CHANGE: &str = "Myriad-Change";
    pub(super) const ROUND: &str = "Myriad-Round";
    pub(super) const HOMES: &str = "Myriad-Homes";
}

/// What other nodes are told, as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The channel that it is about; none: it is about all.
    pub channel: Option<Arc<str>>,
    /// Its headers.
    pub headers: Vec<Header>,
    /// Its data.
    pub data: String,
}

impl Announced {
    /// What the node of this name tells, which has so many homes.
    #[must_use]
    pub fn new(node: &str, homes: usize, told: &Told) -> Self {
        let mut headers = vec![(name::NODE, node.to_owned())];
        let (event, round) = match told {
            Told::Client(event) => (Some(event), None),
            Told::User(event, round) => (Some(event), Some(round)),
            Told::RoundEnd(round) => {
                headers.push((name::HOMES, homes.to_string()));
                (None, Some(round))
            }
        };
        if let Some(round) = round {
            headers.push((name::ROUND, round.to_string()));
        }
        if let Some(event) = event {
            headers.push((name::CHANGE, text_of(event.change).to_owned()));
        }
        Self {
            channel: event.map(|event| Arc::clone(&event.channel)),
            headers,
            data: event.map_or_else(String::new, |event| client_json(&event.info)),
        }
    }

    /// Reads such a message. `channel` is that of its subject.
    ///
    /// # Errors
    /// It is none that a node writes.
    pub fn read<'m>(
        channel: Option<&str>,
        header: impl Fn(&str) -> Option<&'m str>,
        data: &[u8],
    ) -> Result<FromNode, Unreadable> {
        let unreadable = |header| Unreadable { header };
        let number = |header_name| -> Result<Option<u64>, Unreadable> {
            let text = header(header_name);
            let number = text.map(str::parse).transpose();
            number.map_err(|_| unreadable(header_name))
        };
        let node = header(name::NODE).filter(|node| is_node_name(node));
        let node = node.ok_or(unreadable(name::NODE))?;
        let round = number(name::ROUND)?;
        let says = match channel {
            None => {
                let homes = number(name::HOMES)?.and_then(|homes| u32::try_from(homes).ok());
                NodeSays::RoundEnd {
                    round: round.ok_or(unreadable(name::ROUND))?,
                    homes: homes.ok_or(unreadable(name::HOMES))?,
                }
            }
            Some(channel) => {
                let client = str::from_utf8(data).ok().and_then(client_of);
                let event = PresenceEvent {
                    channel: channel.into(),
                    change: change_of(header(name::CHANGE)).ok_or(unreadable(name::CHANGE))?,
                    info: Arc::new(client.ok_or(unreadable(name::CHANGE))?),
                };
                match round {
                    Some(round) => NodeSays::User(event, round),
                    None => NodeSays::Client(event),
                }
            }
        };
        let node = node.into();
        Ok(FromNode { node, says })
    }
}

fn text_of(change: PresenceChange) -> &'static str {
    match change {
        PresenceChange::Joined => "joined",
        PresenceChange::Left => "left",
    }
}

fn change_of(text: Option<&str>) -> Option<PresenceChange> {
    match text? {
        "joined" => Some(PresenceChange::Joined),
        "left" => Some(PresenceChange::Left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_hub::{ClientId, ClientInfo};

    fn read(announced: &Announced) -> Result<FromNode, Unreadable> {
        let header = |wanted: &str| {
            let mut headers = announced.headers.iter();
            let found = headers.find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        let channel = announced.channel.as_deref();
        Announced::read(channel, header, announced.data.as_bytes())
    }

    fn event(change: PresenceChange) -> PresenceEvent {
        PresenceEvent {
            channel: "a".into(),
            change,
            info: Arc::new(ClientInfo {
                user: "\u{e9}".into(),
                client: ClientId([7; 16]),
                connection_info: Some(br#"{"n":1}"#[..].into()),
                channel_info: Some([0xff][..].into()),
            }),
        }
    }

    #[test]
    fn what_is_told_is_read_as_it_was_written() {
        let (joined, left) = (event(PresenceChange::Joined), event(PresenceChange::Left));
        for (told, says) in [
            (Told::Client(joined.clone()), NodeSays::Client(joined)),
            (Told::User(left.clone(), 7), NodeSays::User(left, 7)),
            (Told::RoundEnd(8), NodeSays::RoundEnd { round: 8, homes: 2 }),
        ] {
            let announced = Announced::new("n", 2, &told);
            let node = "n".into();
            assert_eq!(read(&announced), Ok(FromNode { node, says }));
        }
    }

    #[test]
    fn what_no_node_writes_is_refused() {
        let good = Announced::new("n", 2, &Told::User(event(PresenceChange::Left), 7));
        for (header, value) in [
            (name::NODE, None),
            (name::CHANGE, None),
            (name::CHANGE, Some("came")),
            (name::ROUND, Some("-1")),
        ] {
            let mut bad = good.clone();
            bad.headers.retain(|(known, _)| *known != header);
            bad.headers
                .extend(value.map(|value| (header, value.to_owned())));
            assert_eq!(read(&bad), Err(Unreadable { header }));
        }
        for data in ["", "{}", "7"] {
            let mut bad = good.clone();
            bad.data = data.into();
            assert!(read(&bad).is_err(), "{data}");
        }
        let mut bad = Announced::new("n", 2, &Told::RoundEnd(8));
        bad.headers.retain(|(known, _)| *known != name::HOMES);
        assert!(read(&bad).is_err());
    }
}
