//! Where and how the application is called: checked values, made by `config`.

use super::tls::Tls;
use axum::http::{HeaderMap, HeaderName};
use myriad_shard::{Access, Refusal};
use reqwest::Url;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a proxy is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Who connects. Its calls wait longer for a place than others, and more of them may wait.
    Connects,
    /// What connected clients want.
    #[default]
    Commands,
}

/// An address of the application, and how calls to it are made.
#[derive(Clone, PartialEq)]
pub(crate) struct ProxySettings {
    /// What logs and metrics call it: the path of its table in the config file, or its own name.
    pub(crate) name: Arc<str>,
    /// What it is asked.
    pub(crate) asks: Asks,
    /// Where calls go.
    pub(crate) endpoint: Url,
    /// How they are protected; none with `http`.
    pub(crate) tls: Option<Tls>,
    /// Time for a place among the calls, and then time for the answer.
    pub(crate) timeout: Duration,
    /// Calls that may be under way.
    pub(crate) calls_max: usize,
    /// Bytes of an answer.
    pub(crate) answer_bytes_max: usize,
    /// Headers of the client's upgrade request that are forwarded.
    pub(crate) http_headers: Vec<HeaderName>,
    /// Entries of the connect command's `headers` that are forwarded.
    pub(crate) emulated_headers: Vec<HeaderName>,
    /// A header of every call with the client's address.
    pub(crate) address_header: Option<HeaderName>,
    /// Headers of every call. They replace forwarded ones of the same name.
    pub(crate) static_headers: HeaderMap,
    /// Data is told in base64.
    pub(crate) is_binary: bool,
    /// Calls say what the application gave as `meta` at the connect.
    pub(crate) includes_meta: bool,
    /// What a status other than 200 means to the client.
    pub(crate) transforms: HashMap<u16, Refusal>,
}

/// Without what may be secret: an endpoint's user and query, and values of headers.
impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings")
            .field("name", &self.name)
            .field("host", &self.endpoint.host_str())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// What the application is asked, and where. Proxies without a name of their own are none where they are not configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApplicationSettings {
    /// `client.proxy.connect`.
    pub(crate) connect: Option<ProxySettings>,
    /// `client.proxy.refresh`.
    pub(crate) refresh: Option<ProxySettings>,
    /// `channel.proxy.subscribe`.
    pub(crate) subscribe: Option<ProxySettings>,
    /// `channel.proxy.publish`.
    pub(crate) publish: Option<ProxySettings>,
    /// `channel.proxy.sub_refresh`.
    pub(crate) sub_refresh: Option<ProxySettings>,
    /// `rpc.proxy`.
    pub(crate) rpc: Option<ProxySettings>,
    /// `proxies`.
    pub(crate) named: Vec<ProxySettings>,
    /// Which methods may be called.
    pub(crate) methods: Methods,
}

impl ApplicationSettings {
    /// The name by which a namespace means the proxy without a name.
    pub(crate) const DEFAULT_NAME: &'static str = "default";

    /// Every proxy.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &ProxySettings> {
        let unnamed = [
            &self.connect,
            &self.refresh,
            &self.subscribe,
            &self.publish,
            &self.sub_refresh,
            &self.rpc,
        ];
        unnamed.into_iter().flatten().chain(&self.named)
    }

    /// `access` with what shards do for the application: whom they ask, and which headers they keep for it.
    pub(crate) fn access(&self, access: Access) -> Access {
        Access {
            connect_proxy: self.connect.is_some(),
            refresh_proxy: self.refresh.is_some(),
            headers: names(self.proxies().flat_map(|proxy| &proxy.http_headers)),
            emulated_headers: names(self.proxies().flat_map(|proxy| &proxy.emulated_headers)),
            addresses: self.proxies().any(|proxy| proxy.address_header.is_some()),
            ..access
        }
    }
}

/// Names in lower case, each once.
fn names<'a>(headers: impl Iterator<Item = &'a HeaderName>) -> Arc<[Box<str>]> {
    let mut names: Vec<Box<str>> = headers.map(|header| header.as_str().into()).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

/// Which RPC methods may be called, by the namespace before the first `:` of their names. A proxy is named as in the file;
/// none where the namespace has no proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Methods {
    /// Methods without a namespace.
    pub(crate) without_namespace: Option<Arc<str>>,
    /// The namespaces.
    pub(crate) namespaces: HashMap<Box<str>, Option<Arc<str>>>,
    /// A method that answers nothing, without the application; for clients that measure the way to here.
    pub(crate) ping: Option<Box<str>>,
}
