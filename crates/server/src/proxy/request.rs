//! What the application is asked: bodies and headers of calls.

use super::settings::ProxySettings;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_shard::{AskingClient, Payload};
use serde::Serialize;
use serde_json::value::RawValue;

/// What we call ourselves, unless the client's own name is forwarded.
const USER_AGENT: &str = concat!("myriad/", env!("CARGO_PKG_VERSION"));

/// Headers that speak of one connection or of one body, and so never of a client: neither forwarded nor set by the operator.
pub(crate) const OWN_HEADERS: [&str; 15] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A call's fields. Those that a call does not have are left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fields<'a> {
    pub(super) client: String,
    pub(super) transport: &'static str,
    pub(super) protocol: &'static str,
    pub(super) encoding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) meta: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) version: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) channels: &'a [Box<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) b64data: Option<String>,
}

/// The client's data is bytes, and the proxy is told JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

impl<'a> Fields<'a> {
    /// What every call but the connect says of the client.
    pub(super) fn new(proxy: &ProxySettings, asker: &'a AskingClient) -> Self {
        let meta = asker.meta.as_deref().filter(|_| proxy.includes_meta);
        Self {
            user: Some(asker.user.as_deref().unwrap_or_default()),
            meta: meta.and_then(|meta| serde_json::from_slice(meta).ok()),
            ..Self::of_connect(proxy, asker)
        }
    }

    /// What a connect says: nobody knows yet who it is.
    pub(super) fn of_connect(proxy: &ProxySettings, asker: &AskingClient) -> Self {
        Self {
            client: asker.client.to_string(),
            transport: asker.transport,
            protocol: asker.protocol,
            encoding: if proxy.is_binary { "binary" } else { "json" },
            ..Self::default()
        }
    }

    /// Adds the client's data in the encoding that the proxy has. No data is no field.
    ///
    /// # Errors
    /// The data cannot be told as JSON.
    pub(super) fn with_data(
        mut self,
        proxy: &ProxySettings,
        data: Option<&Payload>,
    ) -> Result<Self, NotJson> {
        let Some(data) = data.filter(|data| !data.bytes().is_empty()) else {
            return Ok(self);
        };
        if proxy.is_binary {
            let json = data.json();
            let bytes = json.as_ref().map_or(data.bytes(), |json| json.as_bytes());
            self.b64data = Some(STANDARD.encode(bytes));
        } else {
            let json = data.json().ok_or(NotJson)?;
            let json = RawValue::from_string(json.into_owned()).map_err(|_| NotJson)?;
            self.data = Some(json);
        }
        Ok(self)
    }

    /// The body.
    pub(super) fn body(&self) -> Vec<u8> {
        // Serialising plain fields to memory cannot fail; an empty body would be refused by the application.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The headers of a call. What the client's request really had is worth more than what its connect command says, and what the
/// operator configured is worth most.
pub(super) fn headers(proxy: &ProxySettings, asker: &AskingClient) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let kept = asker.headers.as_deref().unwrap_or_default();
    forward(&mut headers, kept, &proxy.http_headers);
    let mut emulated = HeaderMap::new();
    let kept = asker.emulated_headers.as_deref().unwrap_or_default();
    forward(&mut emulated, kept, &proxy.emulated_headers);
    for name in emulated.keys() {
        if !headers.contains_key(name) {
            for value in emulated.get_all(name) {
                headers.append(name, value.clone());
            }
        }
    }
    if let Some(name) = &proxy.address_header {
        // Also without an address: what the client wrote there is not it.
        headers.remove(name);
        let address = asker.address.map(|address| address.to_string());
        if let Some(value) = address.and_then(|address| HeaderValue::try_from(address).ok()) {
            headers.insert(name, value);
        }
    }
    for (name, value) in &proxy.static_headers {
        headers.insert(name, value.clone());
    }
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(USER_AGENT));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers
}

/// Adds those of `kept` that `wanted` lists. A value that no header may have is left out: an emulated one is any string.
fn forward(headers: &mut HeaderMap, kept: &[(Box<str>, Box<[u8]>)], wanted: &[HeaderName]) {
    for (name, value) in kept {
        let wanted = wanted.iter().find(|wanted| wanted.as_str() == &**name);
        if let Some(name) = wanted
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(name, value);
        }
    }
}
