//! Calls to the application: what clients may do, asked over HTTP.
//!
//! * [`ApplicationSettings`] is what was configured; `config` checks it.
//! * [`Application`] answers the questions of shards. It chooses the proxy, makes the call and reads the answer.
//! * A proxy (`caller.rs`) is one address: its places (`places.rs`), its circuit (`circuit.rs`), its figures (`metrics.rs`), its
//!   host (`names.rs`).
//! * `request.rs` writes what is asked, `answer.rs` and `grants.rs` read what is answered. Nothing of an answer is trusted.

mod answer;
mod caller;
mod circuit;
mod grants;
mod metrics;
mod names;
mod places;
mod request;
mod settings;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use answer::{Untellable, disconnect_refusal, error_refusal};
pub(crate) use metrics::ProxyMetrics;
pub(crate) use request::OWN_HEADERS;
pub(crate) use settings::{ApplicationSettings, Asks, Methods, ProxySettings};
pub(crate) use tls::{Tls, TlsFault, innermost};

use crate::config::Config;
use crate::control::Answerer;
use crate::error::ServerError;
use answer::{AnswerFault, Said};
use caller::{CallFault, Called, Proxy, http_client};
use grants::{Against, Past};
use metrics::Outcome;
use myriad_shard::{
    AskAnswer, AskingClient, ErrorCode, Namespaces, Payload, Question, RefreshGrant, Refusal,
};
use request::{Fields, NotJson, headers};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Between the namespace of a method and the rest of its name.
const METHOD_BOUNDARY: char = ':';

/// The application, as shards ask it.
#[derive(Debug)]
pub(crate) struct Application {
    connect: Option<Arc<Proxy>>,
    refresh: Option<Arc<Proxy>>,
    subscribe: ByName,
    publish: ByName,
    sub_refresh: ByName,
    rpc: ByName,
    /// All of them.
    proxies: Vec<Arc<Proxy>>,
    /// What calls are made with, for each TLS that proxies have.
    clients: Vec<(Option<Tls>, reqwest::Client)>,
    methods: Methods,
    namespaces: Arc<Namespaces>,
    /// A client about which the application says nothing may be anonymous.
    allows_anonymous: bool,
}

/// The proxies that one kind of call may name.
#[derive(Debug, Default)]
struct ByName(HashMap<Arc<str>, Arc<Proxy>>);

impl ByName {
    fn find(&self, name: Option<&str>) -> Option<&Proxy> {
        name.and_then(|name| self.0.get(name)).map(|proxy| &**proxy)
    }
}

/// Makes proxies, or takes those that were the same before.
struct Proxies<'a> {
    metrics: &'a ProxyMetrics,
    before: Option<&'a Application>,
    clients: Vec<(Option<Tls>, reqwest::Client)>,
    made: Vec<Arc<Proxy>>,
}

impl Proxies<'_> {
    fn make(&mut self, settings: ProxySettings) -> reqwest::Result<Arc<Proxy>> {
        let http = self.client(settings.tls.as_ref())?;
        let before = self.before.iter().flat_map(|before| &before.proxies);
        let same = before.clone().find(|proxy| *proxy.settings() == settings);
        let proxy = match same {
            Some(proxy) => Arc::clone(proxy),
            None => {
                let counts = self.metrics.of(&settings.name);
                Arc::new(Proxy::new(settings, http, counts))
            }
        };
        self.made.push(Arc::clone(&proxy));
        Ok(proxy)
    }

    fn client(&mut self, tls: Option<&Tls>) -> reqwest::Result<reqwest::Client> {
        let before = self.before.iter().flat_map(|before| &before.clients);
        if let Some((_, client)) = self.clients.iter().find(|(with, _)| with.as_ref() == tls) {
            return Ok(client.clone());
        }
        let same = before.clone().find(|(with, _)| with.as_ref() == tls);
        let client = match same {
            Some((_, client)) => client.clone(),
            None => http_client(tls)?,
        };
        self.clients.push((tls.cloned(), client.clone()));
        Ok(client)
    }
}

impl Application {
    /// The application that is configured. A proxy that was the same `before` a reload stays, with its circuit and the calls that
    /// are under way or wait; and connections stay to whatever is reached in the same way.
    ///
    /// # Errors
    /// An address needs TLS, and the machine's certificates cannot be read.
    pub(crate) fn new(
        config: &Config,
        metrics: &ProxyMetrics,
        before: Option<&Self>,
    ) -> Result<Self, ServerError> {
        let client = &config.settings.client;
        Self::with(
            config.application.clone(),
            Arc::clone(&config.settings.namespaces),
            client.insecure || client.allow_anonymous_connect_without_token,
            metrics,
            before,
        )
        .map_err(|error| {
            ServerError::system("prepare calls to the application")(io::Error::other(error))
        })
    }

    fn with(
        settings: ApplicationSettings,
        namespaces: Arc<Namespaces>,
        allows_anonymous: bool,
        metrics: &ProxyMetrics,
        before: Option<&Self>,
    ) -> reqwest::Result<Self> {
        let mut proxies = Proxies {
            metrics,
            before,
            clients: Vec::new(),
            made: Vec::new(),
        };
        let mut named = HashMap::new();
        for settings in settings.named {
            named.insert(Arc::clone(&settings.name), proxies.make(settings)?);
        }
        let mut by_name = |unnamed: Option<ProxySettings>| {
            let unnamed = unnamed.map(|settings| proxies.make(settings)).transpose()?;
            let unnamed = unnamed.map(|proxy| (ApplicationSettings::DEFAULT_NAME.into(), proxy));
            reqwest::Result::Ok(ByName(named.clone().into_iter().chain(unnamed).collect()))
        };
        Ok(Self {
            subscribe: by_name(settings.subscribe)?,
            publish: by_name(settings.publish)?,
            sub_refresh: by_name(settings.sub_refresh)?,
            rpc: by_name(settings.rpc)?,
            connect: settings
                .connect
                .map(|proxy| proxies.make(proxy))
                .transpose()?,
            refresh: settings
                .refresh
                .map(|proxy| proxies.make(proxy))
                .transpose()?,
            clients: proxies.clients,
            proxies: proxies.made,
            methods: settings.methods,
            namespaces,
            allows_anonymous,
        })
    }

    fn against(&self) -> Against<'_> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Against {
            now_s: now.map_or(0, |now| now.as_secs()),
            namespaces: &self.namespaces,
        }
    }
}

impl Answerer for Application {
    /// Questions about tokens are not the application's.
    async fn answer(&self, asker: &AskingClient, question: &Question) -> AskAnswer {
        let answer = match question {
            Question::Connect {
                data,
                name,
                version,
                channels,
                ..
            } => {
                let asked = Connecting {
                    data: data.as_ref(),
                    name,
                    version,
                    channels,
                };
                self.connect(asker, &asked).await
            }
            Question::Refresh { .. } => self.refresh(asker).await,
            Question::Subscribe {
                channel,
                data,
                proxy,
                ..
            } => {
                let proxy = self.subscribe.find(proxy.as_deref());
                self.subscribe(proxy, asker, channel, data.as_ref()).await
            }
            Question::SubRefresh { channel, proxy, .. } => {
                let proxy = self.sub_refresh.find(proxy.as_deref());
                self.sub_refresh(proxy, asker, channel).await
            }
            Question::Publish {
                channel,
                data,
                proxy,
            } => {
                let proxy = self.publish.find(Some(proxy));
                publish(proxy, asker, channel, data).await
            }
            Question::Rpc { method, data } => self.rpc(asker, method, data).await,
            // It is about a token.
            Question::Read { .. } => Err(AskAnswer::Unavailable),
        };
        answer.unwrap_or_else(|no_answer| no_answer)
    }
}

/// What a client says that connects.
struct Connecting<'a> {
    data: Option<&'a Payload>,
    name: &'a str,
    version: &'a str,
    channels: &'a [Box<str>],
}

/// The answer, or one that takes its place because the application was not asked, refuses, or failed.
type Answered = Result<AskAnswer, AskAnswer>;

impl Application {
    async fn connect(&self, asker: &AskingClient, asked: &Connecting<'_>) -> Answered {
        let proxy = configured(self.connect.as_deref())?;
        let fields = Fields {
            name: asked.name,
            version: asked.version,
            channels: asked.channels,
            ..Fields::of_connect(proxy.settings(), asker)
        };
        let fields = fields.with_data(proxy.settings(), asked.data);
        let body = call(proxy, "connect", asker, fields).await?;
        let said = grants::read_connect(&body, self.against());
        match result(proxy, "connect", said)? {
            Some(grant) => unexpired(grant).map(|grant| AskAnswer::Connect(Box::new(grant))),
            None if self.allows_anonymous => Ok(AskAnswer::Connect(Box::default())),
            // As for a client that connects without a token where nobody else says who it is.
            None => Err(AskAnswer::Refused(Refusal::Nobody)),
        }
    }

    async fn refresh(&self, asker: &AskingClient) -> Answered {
        let proxy = configured(self.refresh.as_deref())?;
        let fields = Fields::new(proxy.settings(), asker);
        let grant = self.refreshed(proxy, "refresh", asker, fields).await?;
        Ok(AskAnswer::Refresh(Box::new(grant)))
    }

    async fn sub_refresh(
        &self,
        proxy: Option<&Proxy>,
        asker: &AskingClient,
        channel: &str,
    ) -> Answered {
        let proxy = configured(proxy)?;
        let fields = Fields {
            channel: Some(channel),
            ..Fields::new(proxy.settings(), asker)
        };
        let grant = self.refreshed(proxy, "sub_refresh", asker, fields).await?;
        Ok(AskAnswer::SubRefresh(Box::new(grant)))
    }

    async fn refreshed(
        &self,
        proxy: &Proxy,
        name: &str,
        asker: &AskingClient,
        fields: Fields<'_>,
    ) -> Result<RefreshGrant, AskAnswer> {
        let body = call(proxy, name, asker, Ok(fields)).await;
        // A status says nothing of whether something has expired: only a result does. So what expires goes on for a while.
        let body = body.map_err(|_| AskAnswer::Unavailable)?;
        let read = grants::read_refresh(&body, self.against()).map(Said::Result);
        result(proxy, name, read)?.ok_or(AskAnswer::Unavailable)
    }

    async fn subscribe(
        &self,
        proxy: Option<&Proxy>,
        asker: &AskingClient,
        channel: &str,
        data: Option<&Payload>,
    ) -> Answered {
        let proxy = configured(proxy)?;
        let fields = Fields {
            channel: Some(channel),
            ..Fields::new(proxy.settings(), asker)
        };
        let fields = fields.with_data(proxy.settings(), data);
        let body = call(proxy, "subscribe", asker, fields).await?;
        let said = grants::read_subscribe(&body, self.against());
        let grant = result(proxy, "subscribe", said)?;
        let grant = unexpired(grant.unwrap_or(Ok(Default::default())))?;
        Ok(AskAnswer::Subscribe(Box::new(grant)))
    }

    async fn rpc(&self, asker: &AskingClient, method: &str, data: &Payload) -> Answered {
        if self.methods.ping.as_deref() == Some(method) {
            return Ok(AskAnswer::Rpc(nothing()));
        }
        let proxy = self.proxy_of(method).map_err(refused)?;
        let fields = Fields {
            method: Some(method),
            ..Fields::new(proxy.settings(), asker)
        };
        let fields = fields.with_data(proxy.settings(), Some(data));
        let body = call(proxy, "rpc", asker, fields).await?;
        let data = result(proxy, "rpc", grants::read_rpc(&body))?;
        Ok(AskAnswer::Rpc(data.flatten().unwrap_or_else(nothing)))
    }

    /// The proxy that carries out a method.
    fn proxy_of(&self, method: &str) -> Result<&Proxy, ErrorCode> {
        let methods = &self.methods;
        if methods.without_namespace.is_none() && methods.namespaces.values().all(Option::is_none) {
            return Err(ErrorCode::NotAvailable);
        }
        let name = match method.split_once(METHOD_BOUNDARY) {
            None => &methods.without_namespace,
            Some((namespace, _)) => {
                let proxy = methods.namespaces.get(namespace);
                proxy.ok_or(ErrorCode::MethodNotFound)?
            }
        };
        let proxy = self.rpc.find(name.as_deref());
        proxy.ok_or(ErrorCode::NotAvailable)
    }
}

async fn publish(
    proxy: Option<&Proxy>,
    asker: &AskingClient,
    channel: &str,
    data: &Payload,
) -> Answered {
    let proxy = configured(proxy)?;
    let fields = Fields {
        channel: Some(channel),
        ..Fields::new(proxy.settings(), asker)
    };
    let fields = fields.with_data(proxy.settings(), Some(data));
    let body = call(proxy, "publish", asker, fields).await?;
    let grant = result(proxy, "publish", grants::read_publish(&body))?;
    Ok(AskAnswer::Publish(Box::new(grant.unwrap_or_default())))
}

/// No data at all.
fn nothing() -> Payload {
    Payload::Json("".into())
}

fn refused(code: ErrorCode) -> AskAnswer {
    AskAnswer::Refused(code.into())
}

/// A question about a proxy that is not there: the configuration changed after the shard had read it.
fn configured(proxy: Option<&Proxy>) -> Result<&Proxy, AskAnswer> {
    proxy.ok_or_else(|| refused(ErrorCode::NotAvailable))
}

fn unexpired<T>(grant: Result<T, Past>) -> Result<T, AskAnswer> {
    grant.map_err(|past| refused(past.into()))
}

/// Makes a call. Every fault and every refusal by a status is counted here; what a body says is counted by [`result`].
async fn call(
    proxy: &Proxy,
    name: &str,
    asker: &AskingClient,
    fields: Result<Fields<'_>, NotJson>,
) -> Result<Vec<u8>, AskAnswer> {
    // The client sent bytes, and the operator's application reads JSON.
    let fields = fields.map_err(|NotJson| refused(ErrorCode::BadRequest))?;
    let request = || (headers(proxy.settings(), asker), fields.body());
    match proxy.call(asker, request).await {
        Ok(Called::Body(body)) => Ok(body),
        Ok(Called::Refused(refusal)) => Err(counted_refusal(proxy, refusal)),
        Err(CallFault::Share) => {
            proxy.counts().count(CallFault::Share.outcome());
            // What one client does fills no log.
            Err(refused(ErrorCode::TooManyRequests))
        }
        Err(fault) => {
            proxy.counts().count(fault.outcome());
            // A line for each call that is not made would say nothing that the line about the circuit does not.
            if fault != CallFault::CircuitOpen {
                proxy.log_fault(name, &fault);
            }
            Err(AskAnswer::Unavailable)
        }
    }
}

fn counted_refusal(proxy: &Proxy, refusal: Refusal) -> AskAnswer {
    proxy.counts().count(match refusal {
        Refusal::Error { .. } => Outcome::Error,
        Refusal::Disconnect(_) | Refusal::Nobody => Outcome::Disconnect,
    });
    AskAnswer::Refused(refusal)
}

/// The result in an answer; none where it says nothing.
fn result<T>(
    proxy: &Proxy,
    name: &str,
    said: Result<Said<T>, AnswerFault>,
) -> Result<Option<T>, AskAnswer> {
    match said {
        Ok(Said::Refused(refusal)) => Err(counted_refusal(proxy, refusal)),
        Ok(Said::Result(result)) => {
            proxy.counts().count(Outcome::Result);
            Ok(Some(result))
        }
        Ok(Said::Nothing) => {
            proxy.counts().count(Outcome::Result);
            Ok(None)
        }
        Err(fault) => {
            proxy.counts().count(Outcome::Malformed);
            proxy.log_fault(name, &Malformed(&fault));
            Err(AskAnswer::Unavailable)
        }
    }
}

/// How a fault of an answer is logged.
struct Malformed<'a>(&'a AnswerFault);

impl fmt::Display for Malformed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer is refused: {}", self.0)
    }
}
