//! The control plane: an ordinary HTTP server for everything that is not a million connections.

mod admission;
mod asks;
mod connection;
mod dev_page;
mod error;
pub mod fuzzing;
mod health;
mod inbound;
mod key;
mod metrics;
mod origin;
mod places;
mod publish;
mod requests;
mod stream;

pub(crate) use admission::{Admission, REFUSALS_MAX, Source};
pub(crate) use asks::{NoApplication, answer};
pub(crate) use key::decide as decide_key;
pub(crate) use metrics::Registered;

use crate::debug_log::PublishLog;
use crate::publishers::Publishers;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, get, post};
use error::Refusal;
use myriad_shard::{Mesh, Namespaces};
use myriad_wire::http::{HeadLimits, OriginPattern};
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

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

/// What every request may need.
pub(crate) struct Control {
    pub(crate) mesh: Mesh,
    pub(crate) publishers: Publishers,
    pub(crate) publish_log: Arc<PublishLog>,
    /// What publications must be, by their channels.
    pub(crate) namespaces: Arc<Namespaces>,
    pub(crate) key: Option<Arc<str>>,
    /// Web pages that may use the API beside those of this server's host; none lets every page use it.
    pub(crate) allowed_origins: Option<Arc<[OriginPattern]>>,
    pub(crate) driver: &'static str,
    pub(crate) stage: watch::Receiver<Stage>,
    pub(crate) metrics: Registered,
    pub(crate) body_kib: Semaphore,
    /// Development: `/` shows a page, and there is an `/echo`.
    pub(crate) is_development: bool,
}

impl Control {
    /// Kibibytes of bodies that may be in memory: the value for [`Control::body_kib`].
    pub(crate) fn body_room() -> Semaphore {
        Semaphore::new(publish::BODIES_KIB_MAX)
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }
}

/// What every connection is served by.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) router: Router,
    /// The shards' limits of a request head: both planes give the same verdict.
    pub(crate) limits: HeadLimits,
    /// The API's key; none when the API is open.
    pub(crate) key: Option<Arc<str>>,
}

/// The paths that there are, for the sentences of refusals.
fn paths(control: &Control) -> &'static str {
    if control.is_development {
        "/ and /chat (pages), POST /api/publish, GET /healthz, GET /metrics, and WebSocket at /connection/websocket, /raw?channel=NAME and /echo"
    } else {
        "POST /api/publish, GET /healthz, GET /metrics, and WebSocket at /connection/websocket and /raw?channel=NAME (/echo needs --dev)"
    }
}

/// Paths of streams. The shards serve them; without an upgrade, and on the control plane's own address, requests come here.
const STREAMS: [&str; 2] = ["/connection/websocket", "/raw"];
/// The same, in development only.
const ECHO: &str = "/echo";

pub(crate) fn router(control: Arc<Control>) -> Router {
    let keyed = middleware::from_fn_with_state(Arc::clone(&control), key::require);
    let origins = middleware::from_fn_with_state(Arc::clone(&control), origin::require);
    let publish = post(publish::publish)
        .route_layer(keyed)
        .route_layer(origins);
    let mut router = Router::new();
    for path in STREAMS {
        router = router.route(path, any(stream));
    }
    if control.is_development {
        router = router.route(ECHO, any(stream)).merge(dev_page::router());
    }
    router
        .route("/api/publish", publish)
        .route("/healthz", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&control), count))
        .with_state(control)
}

/// Counts every request by route and status, and turns away upgrades, which only a shard can serve.
async fn count(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    // A path that is no route must not become a label: anybody could make any number of them.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", known_route);
    let response = if asks_for_websocket(request.headers()) {
        axum::response::IntoResponse::into_response(Refusal::bad_request(
            "connection",
            "a WebSocket needs a new connection to the address that clients use; this one already belongs to the HTTP API",
        ))
    } else {
        next.run(request).await
    };
    control.metrics.requests().count(route, response.status());
    response
}

fn known_route(path: &MatchedPath) -> &'static str {
    ["/api/publish", "/healthz", "/metrics", ECHO]
        .into_iter()
        .chain(STREAMS)
        .find(|route| *route == path.as_str())
        .unwrap_or("other")
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::UPGRADE).into_iter();
    let mut protocols = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// A stream's path without an upgrade, on a connection that came here for something else.
async fn stream() -> Refusal {
    Refusal::upgrade_required(
        "this path serves WebSocket only; connect to it with a WebSocket client",
    )
}

async fn unknown_path(State(control): State<Arc<Control>>, request: Request) -> Refusal {
    let message = format!(
        "path {} does not exist; the paths are {}",
        shown(request.uri().path()),
        paths(&control)
    );
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
