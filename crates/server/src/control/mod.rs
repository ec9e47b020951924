//! The control plane: an ordinary HTTP server for everything that is not a million connections.

mod admission;
mod api;
mod asks;
mod client_stream;
mod connection;
mod dev_page;
mod emulation;
mod error;
pub mod fuzzing;
mod health;
mod inbound;
mod key;
mod metrics;
mod nodes;
mod origin;
mod places;
mod requests;
mod stream;
mod streams;

pub(crate) use admission::{Admission, Room, Shards, Source};
pub(crate) use api::{ErrorMode, Method, Prefix};
pub(crate) use asks::{Answerer, WithTokens, answer};
pub(crate) use client_stream::ClientStream;
use key::KeysOfShards;
pub(crate) use key::{Keys, Rights, decide as decide_key};
pub(crate) use metrics::Registered;

use crate::auth::Authority;
use crate::broker;
use crate::config::{ApiKey, Config};
use crate::debug_log::{self, PublishLog};
use crate::error::ServerError;
use crate::nodes::Nodes;
use crate::proxy::Application;
use crate::tls::{self, TlsSettings};
use crate::webhooks::Receivers;
use api::Api;
use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, get};
use emulation::ClientRules;
use error::Refusal;
use myriad_shard::{EMULATION, Mesh, Namespaces, Settings, TooMany, Transports};
use myriad_wire::http::{HeadLimits, OriginPattern};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// How far the server's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Clients are welcome.
    Serving,
    /// Connections are being closed, and load balancers should send no more clients.
    Draining,
    /// Every shard has ended.
    Stopped,
}

/// What a node of a cluster has beside what a server alone has.
pub(crate) struct Cluster {
    pub(crate) broker: Arc<broker::State>,
    pub(crate) nodes: Arc<Nodes>,
}

/// What every request may need.
pub(crate) struct Control {
    pub(crate) mesh: Mesh,
    pub(crate) api: Api,
    /// Bytes of answers that clients may leave unread.
    pub(crate) unsent_bytes_max: u64,
    /// Verifies clients' tokens. A reload gives it other keys.
    pub(crate) tokens: Arc<Authority>,
    pub(crate) publish_log: Arc<PublishLog>,
    /// What publications must be, by their channels. A reload replaces it.
    pub(crate) namespaces: ArcSwap<Namespaces>,
    /// What shards were told at last, for requests of clients. A reload replaces it.
    pub(crate) settings: ArcSwap<Settings>,
    /// Who may call the API. A reload replaces it.
    pub(crate) keys: Arc<ArcSwap<Keys>>,
    /// The key that was made at the start, if one was.
    pub(crate) generated_key: Option<Arc<str>>,
    /// Web pages that may use the API beside those of this server's host; none lets every page use it. A reload replaces it.
    pub(crate) allowed_origins: ArcSwap<Option<Arc<[OriginPattern]>>>,
    /// What clients may do whose commands come here. A reload replaces it.
    pub(crate) client_rules: ArcSwap<ClientRules>,
    /// Which transports there are.
    pub(crate) transports: Transports,
    pub(crate) driver: &'static str,
    pub(crate) stage: watch::Receiver<Stage>,
    pub(crate) metrics: Registered,
    /// Who answers what sessions ask. A reload replaces it.
    pub(crate) application: ArcSwap<Application>,
    /// Who is told what happens, once the server tells somebody.
    pub(crate) webhooks: OnceLock<Arc<Receivers>>,
    /// What is known of the broker; none without one.
    pub(crate) broker: Option<Arc<broker::State>>,
    /// The way to the other nodes of a cluster; none without a broker.
    pub(crate) nodes: Option<Arc<Nodes>>,
    /// TLS of the server's own port; none without an address for it. A reload gives it other certificates.
    pub(crate) tls: Option<tls::Running>,
    /// Everybody is shown the metrics. A reload replaces it.
    pub(crate) public_metrics: AtomicBool,
    /// Development: `/` shows a page, and there is an `/echo`.
    pub(crate) is_development: bool,
}

impl Control {
    /// What requests need of a server with this configuration.
    ///
    /// # Errors
    /// The application cannot be called as it is configured.
    pub(crate) fn new(
        config: &Config,
        mesh: Mesh,
        tokens: Arc<Authority>,
        key: Option<Arc<str>>,
        driver: &'static str,
        stage: watch::Receiver<Stage>,
        cluster: Option<Cluster>,
    ) -> Result<Self, ServerError> {
        let metrics = Registered::new(
            mesh.clone(),
            Arc::clone(&tokens),
            cluster.as_ref(),
            config.commit,
        );
        let (broker, nodes) = cluster
            .map(|cluster| (cluster.broker, cluster.nodes))
            .unzip();
        if let Some(nodes) = &nodes {
            nodes.set_keys(config.keys_mark());
        }
        let application = Application::new(config, metrics.proxies(), None)?;
        let keys = Keys::new(&config.api, key.as_deref());
        let settings = &config.settings;
        Ok(Self {
            mesh,
            tokens,
            api: Api::new(
                config.api.prefix.clone(),
                config.api.error_mode,
                metrics.bodies().clone(),
                &config.memory,
            ),
            unsent_bytes_max: config.memory.unsent,
            publish_log: Arc::new(PublishLog::default()),
            namespaces: ArcSwap::new(Arc::clone(&settings.namespaces)),
            settings: ArcSwap::from_pointee(settings.clone()),
            allowed_origins: ArcSwap::from_pointee(Self::origins(settings, !keys.is_open())),
            client_rules: ArcSwap::from_pointee(ClientRules::from(settings)),
            transports: settings.transports,
            keys: Arc::new(ArcSwap::from_pointee(keys)),
            generated_key: key.filter(|_| config.api.lone == ApiKey::Generated),
            driver,
            stage,
            metrics,
            application: ArcSwap::from_pointee(application),
            webhooks: OnceLock::new(),
            broker,
            nodes,
            tls: None,
            public_metrics: AtomicBool::new(config.public_metrics),
            is_development: settings.echo,
        })
    }

    /// Begins to have TLS, for so many shards.
    pub(crate) fn begin_tls(&mut self, settings: &TlsSettings, shards: usize) -> tls::Running {
        let running = tls::Running::new(settings, shards);
        self.metrics.show_tls(&running);
        self.tls = Some(running.clone());
        running
    }

    /// Takes another configuration, and sends every shard its settings.
    ///
    /// This is the place of everything that a reload changes. What shards know is in [`Settings`] and goes by the mesh. What the
    /// control plane knows is replaced here: make it an [`ArcSwap`], and store the new value. Requests under way keep the old.
    ///
    /// [`Settings`]: myriad_shard::Settings
    pub(crate) fn reload(&self, config: &Config) {
        let settings = self.settings(config);
        self.tokens.replace(config.tokens.clone());
        if let Some(nodes) = &self.nodes {
            nodes.set_keys(config.keys_mark());
        }
        if let (Some(running), Some(settings)) = (&self.tls, &config.tls) {
            running.replace(settings);
        }
        self.namespaces.store(Arc::clone(&settings.namespaces));
        self.public_metrics
            .store(config.public_metrics, Ordering::Relaxed);
        self.reload_keys(config);
        let origins = Self::origins(&settings, !self.keys.load().is_open());
        self.allowed_origins.store(Arc::new(origins));
        self.client_rules
            .store(Arc::new(ClientRules::from(&settings)));
        let before = self.application.load_full();
        match Application::new(config, self.metrics.proxies(), Some(&before)) {
            Ok(application) => self.application.store(Arc::new(application)),
            Err(error) => tracing::error!("the application is called as before: {error}"),
        }
        self.reload_webhooks(config);
        let settings = Arc::new(settings);
        self.settings.store(Arc::clone(&settings));
        self.mesh.reload(&settings);
    }

    fn reload_webhooks(&self, config: &Config) {
        let endpoints = &config.webhooks.endpoints;
        match self.webhooks.get() {
            Some(receivers) => receivers.replace(endpoints),
            None if endpoints.is_empty() => {}
            None => tracing::warn!(
                "webhooks begin with a restart: the server was started without any, and shards note nothing for them"
            ),
        }
    }

    /// What shards are told, with what only a running server knows.
    pub(crate) fn settings(&self, config: &Config) -> Settings {
        let mut settings = config.settings.clone();
        settings.events = debug_log::is_on();
        settings.access.tokens = Some(Arc::<Authority>::clone(&self.tokens));
        settings.access.keys = Some(Arc::new(KeysOfShards(Arc::clone(&self.keys))));
        settings
    }

    /// Takes other keys. The key that was made at the start comes back when the file has none again. Without one nobody has a key: an
    /// API that was open, or a key that leaked, must not stay because nothing came instead.
    fn reload_keys(&self, config: &Config) {
        let lone = match &config.api.lone {
            ApiKey::Configured(key) => Some(&**key),
            ApiKey::Generated => {
                if self.generated_key.is_none() {
                    tracing::warn!(
                        "nobody has a key to the API now: write http_api.key, or start the server again, which makes one"
                    );
                }
                self.generated_key.as_deref()
            }
            ApiKey::Open | ApiKey::None => None,
        };
        self.api.set_error_mode(config.api.error_mode);
        self.keys.store(Arc::new(Keys::new(&config.api, lone)));
    }

    /// Web pages that may use the API. Without a key every page could publish; with one, the key says who may.
    pub(crate) fn origins(settings: &Settings, has_key: bool) -> Option<Arc<[OriginPattern]>> {
        (!has_key).then(|| Arc::clone(&settings.allowed_origins))
    }

    /// Takes so many of what clients may publish to a channel now, all or none.
    fn take_publications(&self, channel: &str, count: usize) -> Result<(), TooMany> {
        let Some(limit) = self.settings.load().limits.publishes_per_channel else {
            return Ok(());
        };
        let now = crate::shards::monotonic_now();
        self.mesh
            .take_client_publications(channel, count as u64, limit, now)
    }

    /// Whether everybody is shown the metrics.
    fn shows_metrics(&self) -> bool {
        self.public_metrics.load(Ordering::Relaxed)
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }
}

/// What every connection is served by.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) router: Router,
    /// The same for connections that come from shards: where the API has an address of its own, they may not use it.
    pub(crate) router_of_shards: Router,
    /// The shards' limits of a request head: both planes give the same verdict.
    pub(crate) limits: HeadLimits,
    /// Who may call the API.
    pub(crate) keys: Arc<ArcSwap<Keys>>,
}

/// The paths that there are, for the sentences of refusals.
fn paths(control: &Control) -> String {
    let (pages, streams) = if control.is_development {
        (
            "/ and /chat (pages), ",
            "/connection/websocket, /raw?channel=NAME and /echo",
        )
    } else {
        (
            "",
            "/connection/websocket and /raw?channel=NAME (/echo needs --dev)",
        )
    };
    let api = control.api.prefix().as_str();
    format!(
        "{pages}POST {api}/METHOD such as {api}/publish, streams at /v1/stream/CHANNEL, GET /healthz, GET /metrics, and WebSocket at {streams}"
    )
}

/// Paths of streams. The shards serve them; requests to the control plane's own address come here.
const STREAMS: [&str; 2] = ["/connection/websocket", "/raw"];
/// The same, in development only.
const ECHO: &str = "/echo";

pub(crate) fn router(control: Arc<Control>) -> Router {
    let keyed = middleware::from_fn_with_state(Arc::clone(&control), key::require);
    let origins = middleware::from_fn_with_state(Arc::clone(&control), origin::require);
    let prefix = control.api.prefix();
    let mut router = api::router(prefix)
        .route_layer(keyed)
        .route_layer(origins)
        .merge(api::description(prefix));
    router = router.merge(streams::router());
    for path in STREAMS {
        router = router.route(path, any(stream));
    }
    if control.is_development {
        router = router.route(ECHO, any(stream)).merge(dev_page::router());
    }
    router
        .merge(emulation::router(&control))
        .route("/healthz", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&control), count))
        .with_state(control)
}

/// What clients need where the API has an address of its own.
pub(crate) fn router_of_clients(control: Arc<Control>) -> Router {
    emulation::router(&control)
        .merge(streams::router_of_clients())
        .route("/healthz", get(health::of_clients))
        .fallback(unknown_path)
        .layer(middleware::from_fn_with_state(Arc::clone(&control), count))
        .with_state(control)
}

/// Counts every request by route and status, and turns away upgrades on the control plane's own address. On the clients' address
/// they go to a shard.
async fn count(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    // A path that is no route must not become a label: anybody could make any number of them.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", |path| known_route(&control, path));
    let response = if let Err(refusal) = origin::check_host(&control, request.headers()) {
        axum::response::IntoResponse::into_response(refusal)
    } else if asks_for_websocket(request.headers()) {
        axum::response::IntoResponse::into_response(Refusal::bad_request(
            "connection",
            "this address serves the HTTP API and no WebSocket; connect to the address that clients use",
        ))
    } else {
        next.run(request).await
    };
    control.metrics.requests().count(route, response.status());
    response
}

fn known_route(control: &Control, path: &MatchedPath) -> &'static str {
    if path.as_str() == streams::ROUTE {
        return "/v1/stream";
    }
    let mut others = ["/healthz", "/metrics", ECHO, EMULATION]
        .into_iter()
        .chain(STREAMS)
        .chain(emulation::stream_paths(control.transports));
    let of_api = control.api.prefix().standard(path.as_str());
    of_api
        .or_else(|| others.find(|route| *route == path.as_str()))
        .unwrap_or("other")
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::UPGRADE).into_iter();
    let mut protocols = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// A stream's path without an upgrade, on the control plane's own address.
async fn stream() -> Refusal {
    Refusal::upgrade_required(
        "this path serves WebSocket only; connect to it with a WebSocket client, at the address that clients use",
    )
}

async fn unknown_path(State(control): State<Arc<Control>>, request: Request) -> Refusal {
    let path = request.uri().path();
    let mut message = format!(
        "path {} does not exist; the paths are {}",
        shown(path),
        paths(&control)
    );
    if path.starts_with("/connection/") {
        message.push_str(
            "; other transports are served where their option says so, such as sse.enabled",
        );
    }
    Refusal::new(StatusCode::NOT_FOUND, "path", message)
}

/// The layer that calls this adds the Allow header.
async fn wrong_method(State(control): State<Arc<Control>>, request: Request) -> Refusal {
    let message = format!(
        "method {} is not allowed at {}; the paths are {}",
        request.method(),
        shown(request.uri().path()),
        paths(&control)
    );
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", message)
}

/// A path, cut to what an answer repeats.
fn shown(path: &str) -> &str {
    // A path in a parsed request is ASCII, so that every index is a boundary.
    path.get(..path.len().min(100)).unwrap_or("the path")
}
