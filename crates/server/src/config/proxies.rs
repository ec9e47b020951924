//! What the tables for calls to the application mean: their defaults, and the values that cannot be meant.

use super::namespaces::is_namespace;
use super::proxy_tables::{
    ProxyHttpTable, ProxyTable, RpcNamespaceTable, RpcTable, TransformTable,
};
use super::secrets::shown_url;
use super::tables::{ChannelTable, ClientTable, NamespaceTable};
use super::{ConfigError, Options, refuse};
use crate::proxy::{
    ApplicationSettings, Asks, Methods, OWN_HEADERS, ProxySettings, Untellable, disconnect_refusal,
    error_refusal,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use myriad_shard::{CERTIFICATE_USER_HEADER, ChannelProxies, Refusal};
use myriad_units::option::{Count, Size, Span};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Time for an answer, if nobody says. A client waits for it.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// A shard waits no longer for any answer, and SDKs give up after 5 s.
const TIMEOUT_MAX: Duration = Duration::from_secs(4);
/// Calls under way, if nobody says.
const CALLS_MAX_DEFAULT: u64 = 256;
/// Bytes of an answer, if nobody says.
const ANSWER_BYTES_DEFAULT: u64 = 256 << 10;
/// Headers that a proxy may forward.
const HEADERS_MAX: usize = 64;

impl Options {
    /// What the application is asked.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn application(&self) -> Result<ApplicationSettings, ConfigError> {
        let none = ClientTable::default();
        let client = &self.client.as_ref().unwrap_or(&none).proxy;
        let none = ChannelTable::default();
        let channel = self.channel.as_ref().unwrap_or(&none);
        let proxy = &channel.proxy;
        let none = RpcTable::default();
        let rpc = self.rpc.as_ref().unwrap_or(&none);
        let connect = client.connect.switched("client.proxy.connect")?;
        let settings = ApplicationSettings {
            connect: connect.map(|connect| ProxySettings {
                asks: Asks::Connects,
                ..connect
            }),
            refresh: client.refresh.switched("client.proxy.refresh")?,
            subscribe: proxy.subscribe.settings_of("channel.proxy.subscribe")?,
            publish: proxy.publish.settings_of("channel.proxy.publish")?,
            sub_refresh: proxy.sub_refresh.settings_of("channel.proxy.sub_refresh")?,
            rpc: rpc.proxy.settings_of("rpc.proxy")?,
            named: named(self.proxies.as_deref().unwrap_or_default())?,
            methods: rpc.methods()?,
        };
        rpc.check_proxies(&settings)?;
        channel.check_proxies(&settings)?;
        Ok(settings)
    }

    /// Keys that do nothing because others are not there.
    pub(super) fn proxy_remarks(&self) -> Vec<String> {
        let client = self.client.iter().map(|client| &client.proxy);
        let tables = client.flat_map(|client| {
            [
                ("client.proxy.connect", &client.connect),
                ("client.proxy.refresh", &client.refresh),
            ]
        });
        let idle = tables.filter(|(_, table)| table.endpoint.is_some() && table.enabled.is_none());
        idle.map(|(path, _)| format!("{path}: endpoint does nothing without enabled = true"))
            .collect()
    }
}

fn named(tables: &[ProxyTable]) -> Result<Vec<ProxySettings>, ConfigError> {
    let mut proxies: Vec<ProxySettings> = Vec::with_capacity(tables.len());
    for (index, table) in tables.iter().enumerate() {
        let path = format!("proxies[{index}]");
        let name = table.name.as_deref().unwrap_or_default();
        let advice = if name == ApplicationSettings::DEFAULT_NAME {
            "means the proxy without a name; choose another"
        } else if !is_namespace(name) {
            "choose 2 or more of the letters a-z and A-Z, digits, - _ and ."
        } else if proxies.iter().any(|proxy| &*proxy.name == name) {
            "is the name of another proxy; choose another"
        } else {
            proxies.extend(table.settings(&path, name)?);
            continue;
        };
        return Err(refuse(format!("{path}.name"), format!("{name:?}"), advice));
    }
    Ok(proxies)
}

impl ProxyTable {
    /// A proxy that is on when its table says so.
    fn switched(&self, path: &'static str) -> Result<Option<ProxySettings>, ConfigError> {
        let settings = self.settings(path, path)?;
        if self.enabled != Some(true) {
            return Ok(None);
        }
        match settings {
            Some(settings) => Ok(Some(settings)),
            None => Err(refuse(
                format!("{path}.enabled"),
                true,
                format!("needs {path}.endpoint, such as \"http://127.0.0.1:3000/\""),
            )),
        }
    }

    /// A proxy that namespaces turn on.
    fn settings_of(&self, path: &str) -> Result<Option<ProxySettings>, ConfigError> {
        self.settings(path, path)
    }

    /// None without an endpoint. `name` is what logs and metrics call it.
    fn settings(&self, path: &str, name: &str) -> Result<Option<ProxySettings>, ConfigError> {
        let Some(endpoint) = self.endpoint.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let key = |key: &str| format!("{path}.{key}");
        let timeout = self.timeout.unwrap_or(Span(TIMEOUT_DEFAULT));
        if timeout.0.is_zero() || timeout.0 > TIMEOUT_MAX {
            let advice =
                "choose more than zero and at most 4s: clients wait no longer for an answer";
            return Err(refuse(key("timeout"), timeout, advice));
        }
        let calls = self.calls_max.unwrap_or(Count(CALLS_MAX_DEFAULT));
        let calls_max = usize::try_from(calls.0).unwrap_or(usize::MAX);
        if !(1..=10_000).contains(&calls_max) {
            return Err(refuse(key("calls_max"), calls, "choose 1 to 10,000"));
        }
        let bytes = self.answer_bytes_max.unwrap_or(Size(ANSWER_BYTES_DEFAULT));
        let answer_bytes_max = usize::try_from(bytes.0).unwrap_or(usize::MAX);
        if !(1 << 10..=1 << 20).contains(&answer_bytes_max) {
            return Err(refuse(
                key("answer_bytes_max"),
                bytes,
                "choose 1KiB to 1MiB",
            ));
        }
        let endpoint = parse_endpoint(key("endpoint"), endpoint)?;
        let address_header = self.address_header.as_deref();
        let address_header = address_header.filter(|name| !name.is_empty());
        Ok(Some(ProxySettings {
            name: name.into(),
            asks: Asks::Commands,
            tls: self
                .http
                .tls
                .settings(&format!("{path}.http.tls"), &endpoint)?,
            endpoint,
            timeout: timeout.0,
            calls_max,
            answer_bytes_max,
            http_headers: header_names(&key("http_headers"), &self.http_headers)?,
            emulated_headers: emulated_names(&key("emulated_headers"), &self.emulated_headers)?,
            address_header: address_header
                .map(|name| header_name(&key("address_header"), name))
                .transpose()?,
            static_headers: self.http.headers(path)?,
            is_binary: self.binary_encoding,
            includes_meta: self.include_connection_meta,
            transforms: self.http.transforms(path)?,
        }))
    }
}

fn parse_endpoint(field: String, text: &str) -> Result<reqwest::Url, ConfigError> {
    let advice = match text.parse::<reqwest::Url>() {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => return Ok(url),
        Ok(url) if url.scheme() == "grpc" => {
            "only HTTP is spoken; write http:// or https:// and an address of the application that speaks it"
        }
        Ok(_) | Err(_) => "write an address that begins with http:// or https://",
    };
    Err(refuse(field, shown_url(text), advice))
}

fn header_name(field: &str, text: &str) -> Result<HeaderName, ConfigError> {
    let refused = |advice| refuse(field.to_owned(), format!("{text:?}"), advice);
    let name: HeaderName = text
        .parse()
        .map_err(|_| refused("is no name of a header: choose letters, digits and -"))?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err(refused(
            "remove it: this header speaks of one connection or one body, never of a client",
        ));
    }
    Ok(name)
}

fn header_names(field: &str, texts: &[String]) -> Result<Vec<HeaderName>, ConfigError> {
    if texts.len() > HEADERS_MAX {
        let advice = format!("choose at most {HEADERS_MAX} headers");
        return Err(refuse(field.to_owned(), texts.len(), advice));
    }
    let texts = texts.iter();
    texts.map(|text| header_name(field, text)).collect()
}

/// Headers that clients write themselves. None of them may say whom a certificate names.
fn emulated_names(field: &str, texts: &[String]) -> Result<Vec<HeaderName>, ConfigError> {
    let names = header_names(field, texts)?;
    if names.iter().any(|name| *name == CERTIFICATE_USER_HEADER) {
        let advice = "list it in http_headers: a client could write any user into its own";
        let shown = format!("{CERTIFICATE_USER_HEADER:?}");
        return Err(refuse(field.to_owned(), shown, advice));
    }
    Ok(names)
}

impl ProxyHttpTable {
    fn headers(&self, path: &str) -> Result<HeaderMap, ConfigError> {
        let field = format!("{path}.http.static_headers");
        let mut headers = HeaderMap::new();
        for (name, value) in &self.static_headers {
            let name = header_name(&field, name)?;
            let Ok(mut value) = HeaderValue::from_str(value) else {
                let advice = "no header may have this value: choose printable ASCII in one line";
                return Err(refuse(format!("{field}.{name}"), "(hidden)", advice));
            };
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }

    fn transforms(&self, path: &str) -> Result<HashMap<u16, Refusal>, ConfigError> {
        let mut transforms = HashMap::new();
        for (index, table) in self.status_to_code_transforms.iter().enumerate() {
            let path = format!("{path}.http.status_to_code_transforms[{index}]");
            let status = table.status_code;
            let field = || format!("{path}.status_code");
            if !(201..=599).contains(&status) {
                return Err(refuse(field(), status, "choose a status from 201 to 599"));
            }
            if transforms.insert(status, table.refusal(&path)?).is_some() {
                let advice = "another transform has this status; choose another";
                return Err(refuse(field(), status, advice));
            }
        }
        Ok(transforms)
    }
}

impl TransformTable {
    fn refusal(&self, path: &str) -> Result<Refusal, ConfigError> {
        let refused = |table: &str, (key, advice): Untellable, code: u32| {
            let value = match key {
                "code" => code.to_string(),
                _ => "(hidden)".to_owned(),
            };
            refuse(format!("{path}.{table}.{key}"), value, advice)
        };
        match (&self.to_error, &self.to_disconnect) {
            (Some(error), None) => {
                let refusal = error_refusal(error.code, error.message.clone(), error.temporary);
                refusal.map_err(|fault| refused("to_error", fault, error.code))
            }
            (None, Some(end)) => {
                let refusal = disconnect_refusal(end.code, end.reason.as_deref());
                refusal.map_err(|fault| refused("to_disconnect", fault, end.code))
            }
            (None, None) | (Some(_), Some(_)) => Err(refuse(
                path.to_owned(),
                self.status_code,
                "write to_error or to_disconnect, one of both",
            )),
        }
    }
}

impl RpcTable {
    fn methods(&self) -> Result<Methods, ConfigError> {
        if let Some(name) = &self.without_namespace.name {
            let advice = "remove it, or write the options under [[rpc.namespaces]]";
            let field = "rpc.without_namespace.name";
            return Err(refuse(field, format!("{name:?}"), advice));
        }
        let mut namespaces = HashMap::new();
        for (index, table) in self.namespaces.iter().enumerate() {
            let name = table.name.as_deref().unwrap_or_default();
            let field = format!("rpc.namespaces[{index}].name");
            if !is_namespace(name) {
                let advice = "choose 2 or more of the letters a-z and A-Z, digits, - _ and .";
                return Err(refuse(field, format!("{name:?}"), advice));
            }
            if namespaces.insert(name.into(), table.proxy()).is_some() {
                let advice = "is the name of another namespace; choose another";
                return Err(refuse(field, format!("{name:?}"), advice));
            }
        }
        let method = self.ping.method.as_deref().unwrap_or("ping");
        Ok(Methods {
            without_namespace: self.without_namespace.proxy(),
            namespaces,
            ping: self.ping.enabled.then(|| method.into()),
        })
    }

    fn check_proxies(&self, settings: &ApplicationSettings) -> Result<(), ConfigError> {
        let without = ("rpc.without_namespace".to_owned(), &self.without_namespace);
        let tables = self.namespaces.iter().enumerate();
        let tables = tables.map(|(index, table)| (format!("rpc.namespaces[{index}]"), table));
        for (path, table) in tables.chain([without]) {
            let named = table.proxy();
            let (unnamed, field) = ((settings.rpc.is_some(), "rpc.proxy"), "proxy");
            check_proxy(settings, &path, field, named.as_deref(), unnamed)?;
        }
        Ok(())
    }
}

impl RpcNamespaceTable {
    fn proxy(&self) -> Option<Arc<str>> {
        named_proxy(self.proxy_enabled, self.proxy_name.as_deref())
    }
}

fn named_proxy(is_enabled: bool, name: Option<&str>) -> Option<Arc<str>> {
    let name = name.filter(|name| !name.is_empty());
    is_enabled.then(|| name.unwrap_or(ApplicationSettings::DEFAULT_NAME).into())
}

/// Whether a proxy that a namespace names is there. `unnamed` says whether the one without a name is, and its path.
fn check_proxy(
    settings: &ApplicationSettings,
    path: &str,
    key: &str,
    name: Option<&str>,
    unnamed: (bool, &str),
) -> Result<(), ConfigError> {
    match (name, unnamed) {
        (None, _) | (Some(ApplicationSettings::DEFAULT_NAME), (true, _)) => Ok(()),
        (Some(ApplicationSettings::DEFAULT_NAME), (false, unnamed)) => Err(refuse(
            format!("{path}.{key}_enabled"),
            true,
            format!("needs {unnamed}.endpoint, such as \"http://127.0.0.1:3000/\", or {key}_name"),
        )),
        (Some(name), _) if settings.named.iter().any(|proxy| &*proxy.name == name) => Ok(()),
        (Some(name), _) => Err(refuse(
            format!("{path}.{key}_name"),
            format!("{name:?}"),
            "no such proxy with an endpoint; add it to [[proxies]]",
        )),
    }
}

impl ChannelTable {
    fn check_proxies(&self, settings: &ApplicationSettings) -> Result<(), ConfigError> {
        let unnamed = [
            (settings.subscribe.is_some(), "channel.proxy.subscribe"),
            (settings.publish.is_some(), "channel.proxy.publish"),
            (settings.sub_refresh.is_some(), "channel.proxy.sub_refresh"),
        ];
        let without = (
            "channel.without_namespace".to_owned(),
            &self.without_namespace,
        );
        let tables = self.namespaces.iter().enumerate();
        let tables = tables.map(|(index, table)| (format!("channel.namespaces[{index}]"), table));
        for (path, table) in tables.chain([without]) {
            let proxies = table.proxies();
            let named = [
                ("subscribe_proxy", &proxies.subscribe),
                ("publish_proxy", &proxies.publish),
                ("sub_refresh_proxy", &proxies.sub_refresh),
            ];
            for ((key, name), unnamed) in named.into_iter().zip(unnamed) {
                let checked = check_proxy(settings, &path, key, name.as_deref(), unnamed);
                let namespace = table.name.as_deref();
                checked.map_err(|error| match namespace {
                    Some(namespace) => error.in_namespace(&path, namespace),
                    None => error,
                })?;
            }
        }
        Ok(())
    }
}

impl NamespaceTable {
    /// The proxies that decide for the application.
    pub(super) fn proxies(&self) -> ChannelProxies {
        ChannelProxies {
            subscribe: named_proxy(
                self.subscribe_proxy_enabled,
                self.subscribe_proxy_name.as_deref(),
            ),
            publish: named_proxy(
                self.publish_proxy_enabled,
                self.publish_proxy_name.as_deref(),
            ),
            sub_refresh: named_proxy(
                self.sub_refresh_proxy_enabled,
                self.sub_refresh_proxy_name.as_deref(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError, Options};
    use crate::Machine;
    use std::path::Path;
    use std::time::Duration;

    fn resolve(text: &str) -> Result<Config, ConfigError> {
        let machine = Machine::OF_TESTS;
        Options::from_text(text, Path::new("a.toml"))?.resolve(&machine)
    }

    #[test]
    fn the_documented_files_are_good() {
        let page = include_str!("../../../../docs/application.md");
        let mut examples = page.split("```toml\n").skip(1);
        let mut example = || examples.next().unwrap().split("```").next().unwrap();
        let first = example();
        let Config {
            application,
            settings,
            remarks,
            ..
        } = resolve(first).unwrap();
        assert_eq!(remarks, [""; 0]);
        let connect = application.connect.as_ref().unwrap();
        assert_eq!(&*connect.name, "client.proxy.connect");
        assert_eq!(connect.timeout, Duration::from_secs(1));
        assert_eq!(connect.endpoint.path(), "/connect");
        assert!(application.refresh.is_some() && application.rpc.is_some());
        assert_eq!(application.named[0].timeout, Duration::from_millis(500));
        let orders = application.methods.namespaces.get("orders").unwrap();
        assert_eq!(orders.as_deref(), Some("default"));
        let access = &settings.access;
        assert!(access.connect_proxy && access.refresh_proxy);
        assert_eq!(*access.headers, ["cookie".into(), "x-forwarded-for".into()]);
        assert_eq!(*access.emulated_headers, ["authorization".into()]);
        let proxies = |channel| &settings.namespaces.options_of(channel).unwrap().proxies;
        assert_eq!(proxies("chat:1").subscribe.as_deref(), Some("default"));
        assert_eq!(proxies("chat:1").publish.as_deref(), Some("default"));
        assert_eq!(proxies("audit:1").subscribe.as_deref(), Some("strict"));
        assert_eq!(*proxies("news"), myriad_shard::ChannelProxies::default());
        // The files of the second one are not on this machine.
        let mistake = resolve(example()).unwrap_err().to_string();
        assert!(mistake.contains("tls.server_ca_pem_file"), "{mistake}");
        // The third example goes on where the first ends.
        let transforms = resolve(&format!("{first}{}", example())).unwrap();
        assert_eq!(transforms.application.connect.unwrap().transforms.len(), 2);
    }

    #[test]
    fn without_tables_nobody_is_asked() {
        let config = resolve("").unwrap();
        assert_eq!(config.application.proxies().count(), 0);
        assert!(!config.settings.access.connect_proxy);
        let off = resolve("[client.proxy.connect]\nendpoint = \"http://a/\"").unwrap();
        assert!(off.application.connect.is_none());
        assert!(
            off.remarks
                .iter()
                .any(|remark| remark.contains("enabled = true"))
        );
    }

    fn assert_refused(text: &str, field: &str, advice: &str) {
        let said = resolve(text).expect_err(text).to_string();
        assert!(
            said.contains(field) && said.contains(advice),
            "{text}\n{said}"
        );
    }

    /// What is written below `[client.proxy.connect]` with an endpoint, the key that is refused, and what to do.
    const REFUSED: &[(&str, &str, &str)] = &[
        ("timeout = \"5s\"", "timeout", "at most 4s"),
        ("timeout = \"0s\"", "timeout", "more than zero"),
        ("calls_max = 0", "calls_max", "1 to 10,000"),
        ("answer_bytes_max = \"2MiB\"", "answer_bytes_max", "1MiB"),
        ("http_headers = [\"a b\"]", "http_headers", "letters"),
        ("http_headers = [\"Connection\"]", "http_headers", "remove"),
        (
            "emulated_headers = [\"Host\"]",
            "emulated_headers",
            "remove",
        ),
        (
            "emulated_headers = [\"Myriad-Certificate-User\"]",
            "emulated_headers",
            "http_headers",
        ),
        (
            "http.static_headers = { x-secret = \"a\\nb\" }",
            "http.static_headers.x-secret",
            "printable",
        ),
        (
            "http.status_to_code_transforms = [{ status_code = 404 }]",
            "http.status_to_code_transforms[0]",
            "to_error or to_disconnect",
        ),
        (
            "http.status_to_code_transforms = [{ status_code = 200 }]",
            "http.status_to_code_transforms[0].status_code",
            "201 to 599",
        ),
        (
            "http.status_to_code_transforms = [{ status_code = 404, to_error = { code = 1 } }]",
            "http.status_to_code_transforms[0].to_error.code",
            "400 to 1999",
        ),
        (
            "http.status_to_code_transforms = [{ status_code = 404, to_disconnect = { code = 5000 } }]",
            "http.status_to_code_transforms[0].to_disconnect.code",
            "from 4000 to 4999",
        ),
        (
            "http.status_to_code_transforms = [{ status_code = 404, to_error = { code = 400 } }, \
             { status_code = 404, to_error = { code = 400 } }]",
            "http.status_to_code_transforms[1].status_code",
            "another transform",
        ),
    ];

    #[test]
    fn a_proxy_that_cannot_be_meant_is_refused_by_its_key() {
        let on = "[client.proxy.connect]\nenabled = true\n";
        for (line, key, advice) in REFUSED {
            let text = format!("{on}endpoint = \"http://a/\"\n{line}");
            assert_refused(&text, &format!("client.proxy.connect.{key}"), advice);
        }
        assert_refused(
            on,
            "client.proxy.connect.enabled",
            "needs client.proxy.connect.endpoint",
        );
        for (endpoint, advice) in [
            ("a.example:80", "begins with http://"),
            ("grpc://a", "only HTTP"),
            ("http://", "begins with http://"),
        ] {
            let text = format!("{on}endpoint = \"{endpoint}\"");
            assert_refused(&text, "client.proxy.connect.endpoint", advice);
        }
    }

    #[test]
    fn who_uses_a_proxy_that_is_not_there_is_refused() {
        for (text, field, advice) in [
            (
                "[channel.proxy.publish]\nenabled = true\nendpoint = \"http://a/\"",
                "channel.proxy.publish.enabled",
                "namespaces say",
            ),
            (
                "[channel.without_namespace]\npublish_proxy_enabled = true",
                "channel.without_namespace.publish_proxy_enabled",
                "needs channel.proxy.publish.endpoint",
            ),
            (
                "[[channel.namespaces]]\nname = \"chat\"\nsub_refresh_proxy_enabled = true\nsub_refresh_proxy_name = \"no\"",
                "namespace \"chat\": channel.namespaces[0].sub_refresh_proxy_name",
                "[[proxies]]",
            ),
            (
                "[[proxies]]\nendpoint = \"http://a/\"",
                "proxies[0].name",
                "2 or more",
            ),
            (
                "[[proxies]]\nname = \"default\"",
                "proxies[0].name",
                "choose another",
            ),
            (
                "[[proxies]]\nname = \"ab\"\nendpoint = \"http://a/\"\n[[proxies]]\nname = \"ab\"",
                "proxies[1].name",
                "another proxy",
            ),
            (
                "[rpc.without_namespace]\nproxy_enabled = true",
                "rpc.without_namespace.proxy_enabled",
                "needs rpc.proxy.endpoint",
            ),
            (
                "[[rpc.namespaces]]\nname = \"ab\"\nproxy_enabled = true\nproxy_name = \"no\"",
                "rpc.namespaces[0].proxy_name",
                "[[proxies]]",
            ),
            (
                "[[rpc.namespaces]]\nname = \"a\"",
                "rpc.namespaces[0].name",
                "2 or more",
            ),
            (
                "[[rpc.namespaces]]\nname = \"ab\"\n[[rpc.namespaces]]\nname = \"ab\"",
                "rpc.namespaces[1].name",
                "another namespace",
            ),
        ] {
            assert_refused(text, field, advice);
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        let text = "[client.proxy.connect]\nendpoint = \"ftp://user:hush@a/\"";
        let said = resolve(text).unwrap_err().to_string();
        assert!(
            said.contains("endpoint") && !said.contains("hush"),
            "{said}"
        );
        let text = "[client.proxy.connect]\nenabled = true\nendpoint = \"http://user:hush@a/?hush\"\n\
                    [client.proxy.connect.http.static_headers]\nx = \"hush\"";
        let options = Options::from_text(text, Path::new("a.toml")).unwrap();
        assert!(!format!("{options:?}").contains("hush"));
        assert!(!format!("{:?}", resolve(text).unwrap()).contains("hush"));
    }
}
