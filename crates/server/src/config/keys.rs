//! Keys of the config file that do not exist: where they are, and what may have been meant.
//!
//! serde would name them as well, but neither tell a key of Centrifugo's that is still missing here from a typing error,
//! nor say which key is close.

use super::Options;
use super::tables::{ChannelTable, ClientTable, NamespaceTable, PersonalChannelTable};
use serde::de::value::Error as Stop;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::{DeTable, DeValue};

/// A key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownKey {
    /// Bytes from the start of the file.
    pub(super) offset: usize,
    /// Its path, such as `channel.namespaces[0].presense`. Namespaces are counted from 0.
    pub(super) path: String,
    /// What to do about it.
    pub(super) advice: String,
}

/// Which keys a table may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Top,
    Channel,
    Namespace,
    Client,
    PersonalChannel,
}

impl Table {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Top => fields_of::<Options>(),
            Self::Channel => fields_of::<ChannelTable>(),
            Self::Namespace => fields_of::<NamespaceTable>(),
            Self::Client => fields_of::<ClientTable>(),
            Self::PersonalChannel => fields_of::<PersonalChannelTable>(),
        }
    }

    /// The table that a key of this one contains.
    fn inner(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Top, "channel") => Some(Self::Channel),
            (Self::Top, "client") => Some(Self::Client),
            (Self::Channel, "without_namespace" | "namespaces") => Some(Self::Namespace),
            (Self::Client, "subscribe_to_user_personal_channel") => Some(Self::PersonalChannel),
            _ => None,
        }
    }

    /// What to say about keys that Centrifugo has.
    fn missing(self, key: &str) -> Option<&'static str> {
        match (self, key) {
            (
                Self::Client,
                "token"
                | "subscription_token"
                | "insecure_skip_token_signature_verify"
                | "disallow_anonymous_connection_tokens",
            ) => Some("tokens are not supported yet"),
            (Self::Top, "rpc") => Some("rpc is not supported yet"),
            (Self::Top, "proxies") => Some("proxies are not supported yet"),
            (_, key) if key == "proxy" || key.contains("_proxy_") => {
                Some("proxies are not supported yet")
            }
            (Self::Client, "allowed_origins") => {
                Some("write allowed-origins at the top of the file instead")
            }
            (Self::Client, "queue_max_size") => {
                Some("write outbound-bytes-max at the top of the file instead")
            }
            (Self::Client, "connection_limit") => {
                Some("write max-connections at the top of the file instead")
            }
            (
                Self::Client,
                "expired_close_delay"
                | "expired_sub_close_delay"
                | "presence_update_interval"
                | "channel_position_check_delay"
                | "channel_position_max_time_lag"
                | "concurrency"
                | "user_connection_limit"
                | "connection_rate_limit"
                | "connect_include_server_time"
                | "connect_code_to_http_response",
            )
            | (
                Self::Top,
                "http_api" | "websocket" | "sse" | "http_stream" | "uni_websocket" | "uni_sse"
                | "uni_http_stream" | "http_server" | "admin" | "engine" | "broker"
                | "presence_manager" | "emulation" | "health" | "prometheus" | "consumers",
            ) => Some("this key of Centrifugo's is not supported yet"),
            (
                Self::Channel,
                "private_prefix" | "namespace_boundary" | "user_boundary" | "user_separator",
            ) => Some("the signs $ : # and , in channel names cannot be changed"),
            _ => None,
        }
    }

    fn advice(self, key: &str) -> String {
        if let Some(advice) = self.missing(key) {
            return advice.into();
        }
        if self == Self::Channel && Self::Namespace.keys().contains(&key) {
            return format!(
                "write {key} under [channel.without_namespace] or in one of [[channel.namespaces]]"
            );
        }
        // A third of the letters may be wrong; more is another word.
        let distance = |known: &&str| {
            strsim::damerau_levenshtein(&known.replace('-', "_"), &key.replace('-', "_"))
        };
        let nearest = self.keys().iter().copied().min_by_key(distance);
        match nearest.filter(|known| distance(known) <= (key.len() / 3).max(1)) {
            Some(known) => format!("there is no such key; did you mean {known}?"),
            None => "there is no such key".into(),
        }
    }
}

/// The first key of a document that does not exist.
pub(super) fn first_unknown(document: &DeTable<'_>) -> Option<UnknownKey> {
    let mut unknown = Vec::new();
    collect(document, Table::Top, "", &mut unknown);
    unknown.into_iter().min_by_key(|key| key.offset)
}

/// Adds the unknown keys of a table and of those in it. `prefix` is empty or ends in a dot.
fn collect(table: &DeTable<'_>, kind: Table, prefix: &str, unknown: &mut Vec<UnknownKey>) {
    let known = kind.keys();
    for (key, value) in table {
        let (offset, name) = (key.span().start, key.get_ref());
        let path = format!("{prefix}{name}");
        if !known.contains(&&**name) {
            let advice = kind.advice(name);
            unknown.push(UnknownKey {
                offset,
                path,
                advice,
            });
            continue;
        }
        let Some(inner) = kind.inner(name) else {
            continue;
        };
        match value.get_ref() {
            DeValue::Table(table) => collect(table, inner, &format!("{path}."), unknown),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let DeValue::Table(table) = item.get_ref() {
                        collect(table, inner, &format!("{path}[{index}]."), unknown);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The names of a structure's fields: its implementation of [`Deserialize`] says them before it reads anything.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut fields: &[_] = &[];
    // It ends with the error by which the listener stops it.
    drop(T::deserialize(Listener(&mut fields)));
    fields
}

struct Listener<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Listener<'_> {
    type Error = Stop;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Stop> {
        *self.0 = fields;
        Err(Stop::custom("only the names were wanted"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("not a structure"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Every key of the tables for channels and clients.
#[cfg(test)]
pub(super) fn of_tables() -> impl Iterator<Item = &'static str> {
    let tables = [
        Table::Channel,
        Table::Namespace,
        Table::Client,
        Table::PersonalChannel,
    ];
    tables
        .into_iter()
        .flat_map(|table| table.keys().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::{Table, first_unknown};
    use toml::de::DeTable;

    fn refused(text: &str) -> Option<(String, String)> {
        let document = DeTable::parse(text).unwrap();
        first_unknown(document.get_ref()).map(|key| (key.path, key.advice))
    }

    #[test]
    fn structures_name_their_keys() {
        assert!(Table::Top.keys().contains(&"max-connections"));
        assert!(Table::Top.keys().contains(&"channel"));
        assert!(Table::Namespace.keys().contains(&"history_ttl"));
        assert!(Table::Client.keys().contains(&"channel_limit"));
    }

    #[test]
    fn an_unknown_key_has_a_path_and_advice() {
        for (text, path, advice) in [
            (
                "max-conections = 1",
                "max-conections",
                "did you mean max-connections?",
            ),
            (
                "ping_interval = 1",
                "ping_interval",
                "did you mean ping-interval?",
            ),
            ("zebra = 1", "zebra", "there is no such key"),
            (
                "[[channel.namespaces]]\nname = \"ab\"\n[[channel.namespaces]]\nhistroy_size = 1",
                "channel.namespaces[1].histroy_size",
                "did you mean history_size?",
            ),
            (
                "[channel]\npresence = true",
                "channel.presence",
                "under [channel.without_namespace]",
            ),
            (
                "[channel]\nuser_boundary = \"/\"",
                "channel.user_boundary",
                "cannot be changed",
            ),
            (
                "[channel.proxy.subscribe]\nendpoint = \"a\"",
                "channel.proxy",
                "proxies are not supported yet",
            ),
            (
                "[channel.without_namespace]\npublish_proxy_enabled = true",
                "channel.without_namespace.publish_proxy_enabled",
                "proxies are not supported yet",
            ),
            (
                "[client.token]\nhmac_secret_key = \"a\"",
                "client.token",
                "tokens are not supported yet",
            ),
            (
                "[client.proxy]",
                "client.proxy",
                "proxies are not supported yet",
            ),
            (
                "[client]\nqueue_max_size = 1",
                "client.queue_max_size",
                "outbound-bytes-max",
            ),
            (
                "[client.subscribe_to_user_personal_channel]\nenable = true",
                "client.subscribe_to_user_personal_channel.enable",
                "did you mean enabled?",
            ),
            ("[rpc]", "rpc", "rpc is not supported yet"),
        ] {
            let (found, said) = refused(text).expect(text);
            assert_eq!(found, path);
            assert!(said.contains(advice), "{path}: {said}");
        }
        assert_eq!(refused("dev = true\n[client]\nchannel_limit = 5"), None);
    }

    #[test]
    fn the_first_in_the_file_is_named() {
        let (path, _) = refused("zebra = 1\nape = 2").unwrap();
        assert_eq!(path, "zebra");
    }
}
