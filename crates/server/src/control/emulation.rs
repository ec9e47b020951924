//! `/emulation`: commands of clients whose connection takes replies only (`http_stream`, `sse`). They name their session, and go to its
//! shard; the replies travel on the session's own connection.
//!
//! Also the questions that a browser asks before a page of another origin sends them, or begins such a connection.

use super::api::bodies::Sender;
use super::api::body::{self, Limit};
use super::error::Refusal;
use super::requests::ClientAddress;
use super::{Control, stream, streams, wrong_method};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{any, options, post};
use bytes::Bytes;
use myriad_shard::{EMULATION, EmulatedRefused, OriginPattern, Settings, Transport, Transports};
use myriad_wire::centrifuge::{EmulationRequest, Encoding};
use myriad_wire::http::check_origin;
use std::sync::Arc;

/// Bytes of a request beside its commands: the names of node and session.
const ENVELOPE_BYTES: usize = 1024;

/// Seconds for which a browser need not ask again.
const PREFLIGHT_AGE_S: &str = "300";

/// What clients may do here, as shards have it. A reload replaces it.
#[derive(Debug)]
pub(crate) struct ClientRules {
    /// Web pages of other hosts that may connect.
    origins: Arc<[OriginPattern]>,
    /// Bytes of one message.
    message_bytes_max: usize,
}

impl From<&Settings> for ClientRules {
    fn from(settings: &Settings) -> Self {
        Self {
            origins: settings.allowed_origins.clone(),
            message_bytes_max: usize::try_from(settings.message_bytes_max).unwrap_or(usize::MAX),
        }
    }
}

/// The paths over HTTP whose answers go on, those that are served.
pub(super) fn stream_paths(served: Transports) -> impl Iterator<Item = &'static str> {
    [
        (served.http_stream, "/connection/http_stream"),
        (served.sse, "/connection/sse"),
        (served.uni_sse, "/connection/uni_sse"),
        (served.uni_http_stream, "/connection/uni_http_stream"),
    ]
    .into_iter()
    .filter_map(|(is_served, path)| is_served.then_some(path))
}

/// The routes of clients.
pub(super) fn router(control: &Arc<Control>) -> Router<Arc<Control>> {
    let mut router = Router::new();
    // A layer over no routes is an error of the library's.
    if !control.transports.any() {
        return router;
    }
    if control.transports.emulates() {
        router = router.route(EMULATION, post(emulate).options(preflight));
    }
    for path in stream_paths(control.transports) {
        router = router.route(path, options(preflight).fallback(misplaced));
    }
    if control.transports.uni_websocket {
        router = router.route(Transport::UniWebSocket.path(), any(stream));
    }
    router
        .method_not_allowed_fallback(wrong_method)
        .route_layer(middleware::from_fn_with_state(Arc::clone(control), cors))
}

/// Lets the pages pass that may connect, and tells their browsers so.
async fn cors(
    State(control): State<Arc<Control>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let asked = request.headers();
    let origins = asked.get_all(header::ORIGIN).into_iter();
    let host = asked.get(header::HOST).map(HeaderValue::as_bytes);
    let allowed = &control.client_rules.load().origins;
    check_origin(origins.map(HeaderValue::as_bytes), host, allowed)
        .map_err(|refused| Refusal::new(StatusCode::FORBIDDEN, "origin", refused.sentence()))?;
    let origin = asked.get(header::ORIGIN).cloned();
    let wanted = streams::named_headers(asked);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if let Some(origin) = origin {
        let allowed = header::ACCESS_CONTROL_ALLOW_ORIGIN;
        headers.insert(allowed, origin);
        let credentials = header::ACCESS_CONTROL_ALLOW_CREDENTIALS;
        headers.insert(credentials, HeaderValue::from_static("true"));
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(wanted) = wanted {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    }
    Ok(response)
}

/// A browser asks whether a page may send its request. Who may not has been turned away.
async fn preflight() -> (StatusCode, [(header::HeaderName, &'static str); 2]) {
    let allowed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE_S),
    ];
    (StatusCode::NO_CONTENT, allowed)
}

/// A stream on a connection that came here for something else.
async fn misplaced() -> Refusal {
    Refusal::busy("no stream is at the address of the HTTP API: connect to the one for clients")
}

/// Takes commands. That they are taken says nothing of the session: whoever made its name up learns nothing.
async fn emulate(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let (head, body) = request.into_parts();
    let message_bytes_max = control.client_rules.load().message_bytes_max;
    let is_protobuf = head
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == "application/octet-stream");
    let (encoding, limit) = if is_protobuf {
        (Encoding::Protobuf, message_bytes_max)
    } else {
        // In a string, a quotation mark takes two bytes.
        (Encoding::Json, message_bytes_max.saturating_mul(2))
    };
    let limit = Limit::Commands(limit.saturating_add(ENVELOPE_BYTES));
    // The session that the commands are for is named in the body.
    let sender = Sender::Stranger(ClientAddress::of(&head.extensions));
    let body = body::receive(&control, body, limit, sender).await?;
    let request = EmulationRequest::decode(encoding, &body).map_err(|error| {
        let message =
            format!("the body is no request with commands ({error}); send node, session and data");
        Refusal::bad_request("malformed", message)
    })?;
    if request.data.len() > message_bytes_max {
        let message = format!(
            "the commands have more than {message_bytes_max} bytes (message-bytes-max); send fewer in one request"
        );
        return Err(Refusal::too_large(message));
    }
    let taken = control
        .mesh
        .emulate(&request.node, &request.session, &request.data);
    match taken {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(EmulatedRefused::UnknownNode) => {
            let node = request.node.into_owned();
            let body = Bytes::copy_from_slice(&body);
            control.emulate_elsewhere(&node, encoding, body).await?;
            Ok(StatusCode::NO_CONTENT)
        }
        Err(EmulatedRefused::Busy) => Err(too_many_commands()),
    }
}

/// The shards of this node, or of the session's, have no room for more commands.
pub(super) fn too_many_commands() -> Refusal {
    Refusal::busy("too many commands are on their way; send them again after a second")
}
