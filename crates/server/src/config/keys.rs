//! Keys of the config file that do not exist, or whose values cannot be read: where they are, and what may have been meant.
//!
//! serde would name the first of them, but not the others. It would neither say how a list is written, nor tell a key of
//! Centrifugo's that is still missing here from a typing error, nor say which key is close.

use super::Options;
use super::api::{ApiKeyTable, HttpApiTable};
use super::catalogue::{self, Group};
use super::centrifugo;
use super::misplaced;
use super::proxy_tables::{
    ChannelProxyTable, ClientProxyTable, ProxyHttpTable, ProxyTable, RpcNamespaceTable,
    RpcPingTable, RpcTable,
};
use super::tables::{
    ChannelTable, ClientTable, NamespaceTable, PersonalChannelTable, RateLimitTable, TransportTable,
};
use super::tokens::TokenTable;
use super::webhooks::{WebhookEndpointTable, WebhooksTable};
use serde::de::value::Error as Stop;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use std::sync::OnceLock;
use toml::de::{DeTable, DeValue};

/// A key that does not exist, or whose value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFault {
    /// Bytes from the start of the file.
    pub(super) offset: usize,
    /// Its path, such as `channel.namespaces[0].presense`. Namespaces are counted from 0.
    pub(super) path: String,
    /// What to do about it.
    pub(super) advice: String,
}

/// Which keys a table may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Top,
    Channel,
    Namespace,
    Client,
    PersonalChannel,
    Token,
    RateLimits,
    Webhooks,
    WebhookEndpoint,
    ClientProxy,
    ChannelProxy,
    /// Of calls that are on when their proxy says so.
    SwitchedProxy,
    /// Of calls that namespaces turn on.
    Proxy,
    /// One of `[[proxies]]`.
    NamedProxy,
    ProxyHttp,
    Rpc,
    RpcNamespace,
    RpcPing,
    /// One of the transports of the Centrifuge protocol.
    Transport,
    HttpApi,
    ApiKey,
}

impl Table {
    /// The names that the parser takes.
    pub(super) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Top => fields_of::<Options>(),
            Self::Channel => fields_of::<ChannelTable>(),
            Self::Namespace => fields_of::<NamespaceTable>(),
            Self::Client => fields_of::<ClientTable>(),
            Self::PersonalChannel => fields_of::<PersonalChannelTable>(),
            Self::Token => fields_of::<TokenTable>(),
            Self::RateLimits => fields_of::<RateLimitTable>(),
            Self::Webhooks => fields_of::<WebhooksTable>(),
            Self::WebhookEndpoint => fields_of::<WebhookEndpointTable>(),
            Self::ClientProxy => fields_of::<ClientProxyTable>(),
            Self::ChannelProxy => fields_of::<ChannelProxyTable>(),
            Self::SwitchedProxy => proxy_keys(&SWITCHED_PROXY_KEYS, &["name"]),
            Self::Proxy => proxy_keys(&PROXY_KEYS, &["name", "enabled"]),
            Self::NamedProxy => proxy_keys(&NAMED_PROXY_KEYS, &["enabled"]),
            Self::ProxyHttp => fields_of::<ProxyHttpTable>(),
            Self::Rpc => fields_of::<RpcTable>(),
            Self::RpcNamespace => fields_of::<RpcNamespaceTable>(),
            Self::RpcPing => fields_of::<RpcPingTable>(),
            Self::Transport => fields_of::<TransportTable>(),
            Self::HttpApi => fields_of::<HttpApiTable>(),
            Self::ApiKey => fields_of::<ApiKeyTable>(),
        }
    }

    /// What people read about these keys.
    pub(super) fn groups(self) -> &'static [Group] {
        match self {
            Self::Top => catalogue::SERVER,
            Self::Channel => catalogue::CHANNEL,
            Self::Namespace => catalogue::NAMESPACE,
            Self::Client => catalogue::CLIENT,
            Self::PersonalChannel => catalogue::PERSONAL_CHANNEL,
            Self::Token => catalogue::TOKEN,
            Self::RateLimits => catalogue::RATE_LIMITS,
            Self::Webhooks => catalogue::WEBHOOKS,
            Self::WebhookEndpoint => catalogue::WEBHOOK_ENDPOINT,
            Self::ClientProxy => catalogue::CLIENT_PROXY,
            Self::ChannelProxy => catalogue::CHANNEL_PROXY,
            Self::SwitchedProxy => catalogue::SWITCHED_PROXY,
            Self::Proxy => catalogue::PROXY,
            Self::NamedProxy => catalogue::NAMED_PROXY,
            Self::ProxyHttp => catalogue::PROXY_HTTP,
            Self::Rpc => catalogue::RPC,
            Self::RpcNamespace => catalogue::RPC_NAMESPACE,
            Self::RpcPing => catalogue::RPC_PING,
            Self::Transport => catalogue::TRANSPORT,
            Self::HttpApi => catalogue::HTTP_API,
            Self::ApiKey => catalogue::API_KEY,
        }
    }

    /// Why the parser does not take a table with these keys alone, if it does not.
    pub(super) fn refusal(self, table: toml::Table) -> Option<String> {
        let refused = match self {
            Self::Top => table.try_into::<Options>().err(),
            Self::Channel => table.try_into::<ChannelTable>().err(),
            Self::Namespace => table.try_into::<NamespaceTable>().err(),
            Self::Client => table.try_into::<ClientTable>().err(),
            Self::PersonalChannel => table.try_into::<PersonalChannelTable>().err(),
            Self::Token => table.try_into::<TokenTable>().err(),
            Self::RateLimits => table.try_into::<RateLimitTable>().err(),
            Self::Webhooks => table.try_into::<WebhooksTable>().err(),
            Self::WebhookEndpoint => table.try_into::<WebhookEndpointTable>().err(),
            Self::ClientProxy => table.try_into::<ClientProxyTable>().err(),
            Self::ChannelProxy => table.try_into::<ChannelProxyTable>().err(),
            Self::SwitchedProxy | Self::Proxy | Self::NamedProxy => {
                table.try_into::<ProxyTable>().err()
            }
            Self::ProxyHttp => table.try_into::<ProxyHttpTable>().err(),
            Self::Rpc => table.try_into::<RpcTable>().err(),
            Self::RpcNamespace => table.try_into::<RpcNamespaceTable>().err(),
            Self::RpcPing => table.try_into::<RpcPingTable>().err(),
            Self::Transport => table.try_into::<TransportTable>().err(),
            Self::HttpApi => table.try_into::<HttpApiTable>().err(),
            Self::ApiKey => table.try_into::<ApiKeyTable>().err(),
        };
        refused.map(|error| error.message().trim_end().to_owned())
    }

    /// The table that a key of this one contains.
    pub(super) fn inner(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Top, "channel") => Some(Self::Channel),
            (Self::Top, "client") => Some(Self::Client),
            (Self::Top, "webhooks") => Some(Self::Webhooks),
            (Self::Webhooks, "endpoints") => Some(Self::WebhookEndpoint),
            (Self::Top, "rpc") => Some(Self::Rpc),
            (Self::Client, "proxy") => Some(Self::ClientProxy),
            (Self::Channel, "proxy") => Some(Self::ChannelProxy),
            (Self::ClientProxy, _) => Some(Self::SwitchedProxy),
            (Self::ChannelProxy, _) | (Self::Rpc, "proxy") => Some(Self::Proxy),
            (Self::Top, "proxies") => Some(Self::NamedProxy),
            (Self::SwitchedProxy | Self::Proxy | Self::NamedProxy, "http") => Some(Self::ProxyHttp),
            (Self::Rpc, "without_namespace" | "namespaces") => Some(Self::RpcNamespace),
            (Self::Rpc, "ping") => Some(Self::RpcPing),
            (
                Self::Top,
                "sse" | "http_stream" | "uni_websocket" | "uni_sse" | "uni_http_stream",
            ) => Some(Self::Transport),
            (Self::Top, "http_api") => Some(Self::HttpApi),
            (Self::HttpApi, "keys") => Some(Self::ApiKey),
            (Self::Channel, "without_namespace" | "namespaces") => Some(Self::Namespace),
            (Self::Client, "subscribe_to_user_personal_channel") => Some(Self::PersonalChannel),
            (Self::Client, "token" | "subscription_token") => Some(Self::Token),
            (Self::Client, "rate_limits") => Some(Self::RateLimits),
            _ => None,
        }
    }

    fn advice(self, key: &str) -> String {
        if let Some(advice) = centrifugo::advice(self, key) {
            return advice.into();
        }
        if let Some(advice) = misplaced::advice(self, key) {
            return advice;
        }
        match nearest(key, self.keys().iter().copied()) {
            Some(known) => format!("there is no such key; did you mean {known}?"),
            None => "there is no such key".into(),
        }
    }
}

/// The name that may have been meant. A third of the letters may be wrong; more is another word.
pub(super) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let name = name.replace('-', "_");
    let distance = |known: &str| strsim::damerau_levenshtein(&known.replace('-', "_"), &name);
    let (distance, nearest) = known.map(|known| (distance(known), known)).min()?;
    (distance <= (name.len() / 3).max(1)).then_some(nearest)
}

/// The keys of the three kinds of proxies, which have one structure.
static SWITCHED_PROXY_KEYS: OnceLock<Vec<&str>> = OnceLock::new();
static PROXY_KEYS: OnceLock<Vec<&str>> = OnceLock::new();
static NAMED_PROXY_KEYS: OnceLock<Vec<&str>> = OnceLock::new();

/// The keys of a proxy but for those that its kind does not have.
fn proxy_keys(
    kind: &'static OnceLock<Vec<&'static str>>,
    without: &[&str],
) -> &'static [&'static str] {
    kind.get_or_init(|| {
        let keys = fields_of::<ProxyTable>().iter().copied();
        keys.filter(|key| !without.contains(key)).collect()
    })
}

/// The keys of a document that do not exist or whose values cannot be read, in their order. `values` is the same document.
pub(super) fn faults(document: &DeTable<'_>, values: &toml::Table) -> Vec<KeyFault> {
    let mut faults = Vec::new();
    collect(document, values, Table::Top, "", &mut faults);
    faults.sort_by_key(|fault| fault.offset);
    faults
}

/// Adds the faults of a table and of those in it. `prefix` is empty or ends in a dot.
fn collect(
    table: &DeTable<'_>,
    values: &toml::Table,
    kind: Table,
    prefix: &str,
    faults: &mut Vec<KeyFault>,
) {
    for (key, value) in table {
        let (offset, name) = (key.span().start, &**key.get_ref());
        let path = format!("{prefix}{name}");
        let Some(plain) = values.get(name) else {
            continue;
        };
        if let Some(advice) = kind.fault(name, &path, plain) {
            faults.push(KeyFault {
                offset,
                path,
                advice,
            });
            continue;
        }
        let Some(inner) = kind.inner(name) else {
            continue;
        };
        match (value.get_ref(), plain) {
            (DeValue::Table(table), toml::Value::Table(values)) => {
                collect(table, values, inner, &format!("{path}."), faults);
            }
            (DeValue::Array(items), toml::Value::Array(values)) => {
                for (index, (item, value)) in items.iter().zip(values).enumerate() {
                    if let (DeValue::Table(table), toml::Value::Table(values)) =
                        (item.get_ref(), value)
                    {
                        collect(table, values, inner, &format!("{path}[{index}]."), faults);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The first key of a table that does not exist or whose value cannot be read, also in the tables in it, and what to do about it.
/// `prefix` is the path of the table, with a dot at its end.
pub(super) fn first_fault(
    values: &toml::Table,
    kind: Table,
    prefix: &str,
) -> Option<(String, String)> {
    values.iter().find_map(|(key, value)| {
        let path = format!("{prefix}{key}");
        if let Some(advice) = kind.fault(key, &path, value) {
            return Some((path, advice));
        }
        let inner = kind.inner(key)?;
        match value {
            toml::Value::Table(values) => first_fault(values, inner, &format!("{path}.")),
            toml::Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
                first_fault(item.as_table()?, inner, &format!("{path}[{index}]."))
            }),
            _ => None,
        }
    })
}

impl Table {
    /// What is wrong with a key or its value, without the tables in it.
    pub(super) fn fault(self, key: &str, path: &str, value: &toml::Value) -> Option<String> {
        if !self.keys().contains(&key) {
            return Some(self.advice(key));
        }
        let inner = self.inner(key);
        if let Some(advice) = form_advice(key, path, inner, value) {
            return Some(advice);
        }
        // A table of Centrifugo's where ours is a text.
        if inner.is_none()
            && value.is_table()
            && let Some(advice) = centrifugo::advice(self, key)
        {
            return Some(advice.into());
        }
        let are_tables = match value {
            toml::Value::Table(_) => inner.is_some(),
            toml::Value::Array(items) => inner.is_some() && items.iter().all(toml::Value::is_table),
            _ => false,
        };
        if are_tables {
            return None;
        }
        let refusal = self.refusal(toml::Table::from_iter([(key.to_owned(), value.clone())]));
        let secret = catalogue::find(self, key).filter(|option| option.is_secret);
        // The parser would repeat the value.
        refusal.map(|refusal| match secret {
            Some(option) if option.form == catalogue::Form::Json => {
                format!(
                    "it has a key or a value that it cannot have: {}",
                    option.about
                )
            }
            Some(_) => "write one text in quotes".into(),
            None => {
                let advice = misplaced::kind_advice(self, key, value, &refusal);
                advice.unwrap_or(refusal)
            }
        })
    }
}

/// Keys whose values are lists of strings.
pub(super) const LISTS: [&str; 12] = [
    "methods",
    "allowed_delta_types",
    "allowed_origins",
    "allowed-origins",
    "announce",
    "channels",
    "emulated_headers",
    "events",
    "http_headers",
    "tls-acme",
    "trusted-proxies",
    "unlimited_addresses",
];
/// Keys whose values are lists of tables, where they contain tables. A key of the API has a list of texts of the first name.
pub(super) const LISTS_OF_TABLES: [&str; 4] = ["namespaces", "endpoints", "proxies", "keys"];

fn is_list_of_texts(key: &str, inner: Option<Table>) -> bool {
    LISTS.contains(&key) || inner.is_none() && LISTS_OF_TABLES.contains(&key)
}

/// What to write instead of a value that has the form of another key's. `inner` is the table that the key contains.
fn form_advice(key: &str, path: &str, inner: Option<Table>, value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) if is_list_of_texts(key, inner) => {
            Some(format!("write {key} = [{text:?}]: it is a list"))
        }
        toml::Value::Table(_) if inner.is_some() && LISTS_OF_TABLES.contains(&key) => Some(
            format!("write [[{path}]], and the name in it as name = \"...\": it is a list"),
        ),
        toml::Value::Array(_) if inner.is_some() && !LISTS_OF_TABLES.contains(&key) => {
            Some(format!("write [{path}]: there is only one"))
        }
        _ => None,
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
        Table::Token,
        Table::RateLimits,
        Table::ClientProxy,
        Table::ChannelProxy,
        Table::SwitchedProxy,
        Table::Proxy,
        Table::NamedProxy,
        Table::ProxyHttp,
        Table::Rpc,
        Table::RpcNamespace,
        Table::RpcPing,
        Table::Transport,
    ];
    tables
        .into_iter()
        .flat_map(|table| table.keys().iter().copied())
}

/// Every key of the tables for webhooks.
#[cfg(test)]
pub(super) fn of_webhooks() -> impl Iterator<Item = &'static str> {
    let tables = [Table::Webhooks, Table::WebhookEndpoint];
    tables
        .into_iter()
        .flat_map(|table| table.keys().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::{Table, faults};
    use toml::de::DeTable;

    fn refused(text: &str) -> Option<(String, String)> {
        let (document, values) = (DeTable::parse(text).unwrap(), text.parse().unwrap());
        let first = faults(document.get_ref(), &values).into_iter().next();
        first.map(|key| (key.path, key.advice))
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
                "[client.token]\nhmac_secretkey = \"a\"",
                "client.token.hmac_secretkey",
                "did you mean hmac_secret_key?",
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
        ] {
            let (found, said) = refused(text).expect(text);
            assert_eq!(found, path);
            assert!(said.contains(advice), "{path}: {said}");
        }
        assert_eq!(refused("dev = true\n[client]\nchannel_limit = 5"), None);
    }

    #[test]
    fn an_unknown_key_of_a_proxy_has_a_path_and_advice() {
        for (text, path, advice) in [
            (
                "[channel.proxy.subscribe]\nendpint = \"a\"",
                "channel.proxy.subscribe.endpint",
                "did you mean endpoint?",
            ),
            (
                "[channel.proxy.subscribe_stream]",
                "channel.proxy.subscribe_stream",
                "there are no subscription streams here",
            ),
            (
                "[channel.without_namespace]\npublish_proxy_enable = true",
                "channel.without_namespace.publish_proxy_enable",
                "did you mean publish_proxy_enabled?",
            ),
            (
                "[[proxies]]\nname = \"ab\"\n[[proxies.http.status_to_code_transforms]]\nto_eror = {}",
                "proxies[0].http.status_to_code_transforms",
                "unknown field `to_eror`",
            ),
            (
                "[channel.proxy.publish]\nenabled = true",
                "channel.proxy.publish.enabled",
                "subscribe_proxy_enabled",
            ),
            (
                "[rpc.proxy]\nname = \"ab\"",
                "rpc.proxy.name",
                "only [[proxies]]",
            ),
            (
                "[rpc.without_namespace]\nproxy_enable = true",
                "rpc.without_namespace.proxy_enable",
                "did you mean proxy_enabled?",
            ),
            ("[proxy]", "proxy", "did you mean [client.proxy.connect]"),
        ] {
            let (found, said) = refused(text).expect(text);
            assert_eq!(found, path);
            assert!(said.contains(advice), "{path}: {said}");
        }
    }

    #[test]
    fn what_belongs_into_another_table_is_sent_there() {
        for (text, path, advice) in [
            (
                "[[namespaces]]\nname = \"ab\"",
                "namespaces",
                "did you mean [[channel.namespaces]]?",
            ),
            (
                "[without_namespace]",
                "without_namespace",
                "did you mean [channel.without_namespace]?",
            ),
            (
                "history_size = 1",
                "history_size",
                "under [channel.without_namespace]",
            ),
        ] {
            let (found, said) = refused(text).expect(text);
            assert_eq!(found, path);
            assert!(said.contains(advice), "{path}: {said}");
        }
    }

    #[test]
    fn a_value_of_another_form_is_shown_as_it_should_be() {
        for (text, path, advice) in [
            (
                "[channel.namespaces]\nname = \"chat\"",
                "channel.namespaces",
                "write [[channel.namespaces]]",
            ),
            (
                "[channel.namespaces.chat]\npresence = true",
                "channel.namespaces",
                "write [[channel.namespaces]]",
            ),
            (
                "[[channel.without_namespace]]",
                "channel.without_namespace",
                "write [channel.without_namespace]: there is only one",
            ),
            ("[[client]]", "client", "write [client]"),
            ("[proxies]\nname = \"ab\"", "proxies", "write [[proxies]]"),
            (
                "[client.proxy.connect]\nhttp_headers = \"Cookie\"",
                "client.proxy.connect.http_headers",
                "write http_headers = [\"Cookie\"]",
            ),
            (
                "[channel.without_namespace]\nallowed_delta_types = \"fossil\"",
                "channel.without_namespace.allowed_delta_types",
                "write allowed_delta_types = [\"fossil\"]",
            ),
            (
                "allowed-origins = \"https://a.example\"",
                "allowed-origins",
                "write allowed-origins = [\"https://a.example\"]",
            ),
            ("announce = \"t=1m\"", "announce", "[\"t=1m\"]"),
        ] {
            let (found, said) = refused(text).expect(text);
            assert_eq!(found, path);
            assert!(said.contains(advice), "{path}: {said}");
        }
        for text in [
            "[channel]\nnamespaces = []",
            "[client.proxy.connect.http.static_headers]\nAnything = \"a\"",
        ] {
            assert_eq!(refused(text), None);
        }
    }

    #[test]
    fn every_list_is_known() {
        // A string is refused where a list is expected, and the message says so.
        let keys = [
            Table::Top,
            Table::Namespace,
            Table::Client,
            Table::WebhookEndpoint,
            Table::Proxy,
        ];
        let keys = keys.iter().flat_map(|table| table.keys());
        let tables = [
            "channel", "client", "webhooks", "http_api", "rpc", "proxies", "proxy", "http",
        ];
        for key in keys.filter(|key| !tables.contains(key)) {
            let is_refused = |value: &str, words: &str| {
                let text = format!("{key} = {value}");
                let faults = [
                    toml::from_str::<super::Options>(&text).err(),
                    toml::from_str::<super::NamespaceTable>(&text).err(),
                    toml::from_str::<super::ClientTable>(&text).err(),
                    toml::from_str::<super::WebhookEndpointTable>(&text).err(),
                    toml::from_str::<super::ProxyTable>(&text).err(),
                ];
                let mut faults = faults.into_iter().flatten();
                faults.any(|fault| fault.to_string().contains(words))
            };
            // A list of tables takes no text.
            let is_of_tables = is_refused("[\"1s\"]", "expected struct");
            let is_list = is_refused("\"1s\"", "expected a sequence") && !is_of_tables;
            assert_eq!(
                is_list,
                super::is_list_of_texts(key, Some(Table::Top)),
                "{key}"
            );
        }
    }

    #[test]
    fn the_first_in_the_file_is_named() {
        let (path, _) = refused("zebra = 1\nape = 2").unwrap();
        assert_eq!(path, "zebra");
    }
}
