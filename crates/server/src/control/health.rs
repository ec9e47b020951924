//! `GET /healthz`: whether to send clients here.

use super::{Control, Stage};
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Serialize)]
struct Health {
    status: Cow<'static, str>,
    version: &'static str,
    driver: &'static str,
    shards: usize,
    connections: u64,
}

/// Whether channels do not answer yet: their logs have to be read first.
fn is_catching_up(control: &Control) -> bool {
    let broker = control.broker.as_ref();
    broker.is_some_and(|broker| !broker.has_caught_up())
}

/// What is to be said of a node that does not hear its logs, if it is one. Clients stay away only if another node hears them: otherwise no
/// node would be better.
fn deafness(control: &Control) -> Option<(StatusCode, String)> {
    let (stream, duration) = control.broker.as_ref()?.hearing.deaf()?;
    let seconds = duration.as_secs();
    let deaf = format!("hears nothing of stream {stream} for {seconds} s");
    let is_elsewhere = control
        .nodes
        .as_ref()
        .is_some_and(|nodes| nodes.any_hears());
    Some(if is_elsewhere {
        (StatusCode::SERVICE_UNAVAILABLE, deaf)
    } else {
        (
            StatusCode::OK,
            format!("ok, but {deaf}, and so does no other node"),
        )
    })
}

fn status(control: &Control) -> (StatusCode, Cow<'static, str>) {
    match control.stage() {
        Stage::Serving if is_catching_up(control) => {
            (StatusCode::SERVICE_UNAVAILABLE, "catching up".into())
        }
        Stage::Serving => match deafness(control) {
            Some((code, status)) => (code, status.into()),
            None => (StatusCode::OK, "ok".into()),
        },
        Stage::Draining | Stage::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "draining".into()),
    }
}

/// The same for load balancers at the clients' address, where the API has one of its own. Strangers ask there too, so it says no more
/// than the status.
pub(crate) async fn of_clients(State(control): State<Arc<Control>>) -> Response {
    let (code, status) = status(&control);
    let health = Json(serde_json::json!({ "status": status }));
    (code, [(header::CACHE_CONTROL, "no-store")], health).into_response()
}

/// Answers 200 while new clients are welcome, and 503 from the first moment of a drain: load balancers stop sending
/// clients before any connection is closed. A node of a cluster answers 503 until it has read the channels' logs once, and while it does
/// not hear one of them that another node hears.
pub(crate) async fn health(State(control): State<Arc<Control>>) -> Response {
    let (code, status) = status(&control);
    let health = Health {
        status,
        version: env!("CARGO_PKG_VERSION"),
        driver: control.driver,
        shards: control.mesh.shard_count(),
        connections: control
            .mesh
            .metrics()
            .iter()
            .map(|shard| shard.connections.value())
            .sum(),
    };
    // A cache must not answer for a server that has ended.
    (code, [(header::CACHE_CONTROL, "no-store")], Json(health)).into_response()
}
