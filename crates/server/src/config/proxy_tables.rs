//! The tables of the config file for calls to the application, as written.
//!
//! Names are those of Centrifugo. `address_header`, `calls_max` and `answer_bytes_max` are our own.

use myriad_units::option::{Count, Size, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// `[client.proxy]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientProxyTable {
    /// Who clients without a token are.
    pub connect: ProxyTable,
    /// Whether connections go on that expire.
    pub refresh: ProxyTable,
}

/// `[channel.proxy]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChannelProxyTable {
    /// Whether clients may subscribe.
    pub subscribe: ProxyTable,
    /// Whether clients may publish.
    pub publish: ProxyTable,
    /// Whether subscriptions go on that expire.
    pub sub_refresh: ProxyTable,
}

/// `[rpc]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RpcTable {
    /// Who carries out methods.
    pub proxy: ProxyTable,
    /// Methods without a namespace.
    pub without_namespace: RpcNamespaceTable,
    /// The namespaces of methods.
    pub namespaces: Vec<RpcNamespaceTable>,
    /// A method that asks nobody.
    pub ping: RpcPingTable,
}

/// `[rpc.without_namespace]`, or one of `[[rpc.namespaces]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RpcNamespaceTable {
    /// Only among the namespaces.
    pub name: Option<String>,
    /// Whether the application is called.
    pub proxy_enabled: bool,
    /// By which proxy.
    pub proxy_name: Option<String>,
}

/// `[rpc.ping]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RpcPingTable {
    /// Whether there is such a method.
    pub enabled: bool,
    /// Its name.
    pub method: Option<String>,
}

/// A proxy: an address of the application.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the keys mean what ProxySettings says")]
pub struct ProxyTable {
    /// Only in `[[proxies]]`.
    pub name: Option<String>,
    /// Only in `[client.proxy]`. Namespaces say whether they use the others.
    pub enabled: Option<bool>,
    pub endpoint: Option<String>,
    pub timeout: Option<Span>,
    pub http_headers: Vec<String>,
    pub emulated_headers: Vec<String>,
    pub address_header: Option<String>,
    pub binary_encoding: bool,
    pub include_connection_meta: bool,
    pub calls_max: Option<Count>,
    pub answer_bytes_max: Option<Size>,
    pub http: ProxyHttpTable,
}

/// Without the endpoint and the headers, which may be secret.
impl fmt::Debug for ProxyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTable")
            .field("name", &self.name)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// `http` of a proxy.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyHttpTable {
    /// Headers of every call.
    pub static_headers: BTreeMap<String, String>,
    /// What statuses other than 200 mean.
    pub status_to_code_transforms: Vec<TransformTable>,
    /// Certificates, with `https`.
    pub tls: ProxyTlsTable,
}

/// `tls` of a proxy. Each text may be in the file, or in a file of its own.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyTlsTable {
    /// Certificates of the CAs that sign for the application.
    pub server_ca_pem: Option<String>,
    /// The path of a file with them.
    pub server_ca_pem_file: Option<PathBuf>,
    /// Our certificate, and those between it and its CA.
    pub cert_pem: Option<String>,
    /// The path of a file with it.
    pub cert_pem_file: Option<PathBuf>,
    /// Its private key.
    pub key_pem: Option<String>,
    /// The path of a file with it.
    pub key_pem_file: Option<PathBuf>,
}

/// One of `status_to_code_transforms`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformTable {
    /// The status.
    pub status_code: u16,
    /// The error that the client gets.
    pub to_error: Option<TransformErrorTable>,
    /// Or the end of its connection.
    pub to_disconnect: Option<TransformDisconnectTable>,
}

/// `to_error`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the keys mean what the protocol says")]
pub struct TransformErrorTable {
    pub code: u32,
    pub message: Option<String>,
    pub temporary: bool,
}

/// `to_disconnect`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the keys mean what the protocol says")]
pub struct TransformDisconnectTable {
    pub code: u32,
    pub reason: Option<String>,
}
