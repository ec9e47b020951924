//! What a request with the header `X-Myriad-Debug: true` is told and refused besides.
//!
//! By default the API reads and answers as Centrifugo does: unknown fields are ignored, because newer libraries send them, and an
//! error has a code and a message alone, because some libraries refuse anything else.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;

const HEADER: &str = "x-myriad-debug";

tokio::task_local! {
    static IS_ON: bool;
}

/// Whether the request at hand asks for it. False outside of requests.
pub(super) fn is_on() -> bool {
    IS_ON.try_with(|is_on| *is_on).unwrap_or_default()
}

/// Writes what another node is told: everything.
pub(super) fn explained<T>(write: impl FnOnce() -> T) -> T {
    IS_ON.sync_scope(true, write)
}

/// The layer in front of the API.
pub(super) async fn layer(request: Request, next: Next) -> Response {
    let value = request.headers().get(HEADER);
    let is_on = value.is_some_and(|value| value == "true" || value == "1");
    IS_ON.scope(is_on, next.run(request)).await
}
