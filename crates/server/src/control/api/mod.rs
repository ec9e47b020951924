//! The HTTP API: `POST /api/METHOD`, batches of methods, and the legacy form.
//!
//! [`method`] is the table of methods. Each has a file with its request and what it does. A request is read whole, then carried out,
//! then answered: `{"result": ..}` or `{"error": ..}` with status 200. Requests that are no such request have a status of their own.

mod asking;
mod batch;
mod body;
mod broadcast;
mod channels;
mod connections;
mod disconnect;
mod fault;
mod history;
mod info;
mod json;
mod legacy;
mod method;
mod orders;
mod presence;
mod publication;
mod publish;
mod reading;
mod refresh;
mod reply;
mod revoke;
mod rpc;
mod sending;
mod subscribe;
mod unsubscribe;

#[cfg(test)]
pub(super) use body::read_body;
pub(crate) use method::Method;
pub(super) use publication::Publication;
pub(super) use publish::{Unusable, parse};

use super::Control;
use super::error::Refusal;
use crate::answers::Answers;
use asking::QUESTIONS_MAX;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use batch::Batch;
use body::{BODIES_KIB_MAX, Limit};
use info::Node;
use myriad_shard::{InquiryAnswer, Position};
use reading::read;
use reply::ErrorMode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Time that shards have for their answers. Clients of APIs give up after 5 to 10 s.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(4);

/// Paths that are no method's.
const BATCH: &str = "/api/batch";
const LEGACY: &str = "/api";

/// The paths of all methods.
const PATHS: &[&str] = &paths();

const fn paths() -> [&'static str; Method::ALL.len()] {
    let mut paths = [""; Method::ALL.len()];
    let mut index = 0;
    while index < paths.len() {
        paths[index] = Method::ALL[index].path();
        index += 1;
    }
    paths
}

/// What requests to the API share.
#[derive(Debug)]
pub(crate) struct Api {
    /// Requests that wait for the positions of publications; none where a home ended.
    pub(crate) positions: Answers<Option<Position>>,
    /// Requests that wait for answers of shards; none where a shard ended.
    pub(crate) inquiries: Answers<Option<InquiryAnswer>>,
    /// How errors are told, unless a request says.
    error_mode: ErrorMode,
    /// Kibibytes of bodies that may be in memory.
    body_kib: Semaphore,
    /// Turns to ask what costs shards milliseconds.
    questions: Semaphore,
    /// What is told of this server.
    node: Node,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            positions: Answers::default(),
            inquiries: Answers::default(),
            error_mode: ErrorMode::default(),
            body_kib: Semaphore::new(BODIES_KIB_MAX),
            questions: Semaphore::new(QUESTIONS_MAX),
            node: Node::new(),
        }
    }
}

impl Control {
    /// When an answer of shards that is asked for now comes too late.
    pub(crate) fn answers_deadline() -> Instant {
        Instant::now() + ANSWERS_TIMEOUT
    }
}

/// The routes of the API.
pub(super) fn router() -> Router<Arc<Control>> {
    let mut router = Router::new()
        .route(BATCH, post(serve_batch))
        .route(LEGACY, post(serve_legacy));
    for &method in Method::ALL {
        let serve =
            move |State(control), request| async move { serve(control, method, request).await };
        router = router.route(method.path(), post(serve));
    }
    router
}

/// The path as a label of metrics, if it is one of the API.
pub(super) fn known_path(path: &str) -> Option<&'static str> {
    let mut paths = PATHS.iter().copied().chain([BATCH, LEGACY]);
    paths.find(|known| *known == path)
}

/// Answers a request of one method.
async fn serve(
    control: Arc<Control>,
    method: Method,
    request: Request,
) -> Result<Response, Refusal> {
    let mode = ErrorMode::of(request.headers(), control.api.error_mode);
    let body = body::receive(&control, request.into_body(), Limit::One).await?;
    let command = read(&body, method.form(), |json| method.read(json))?;
    let reply = command.answer(&control).await;
    Ok(reply::response(&reply, mode))
}

/// Answers a batch. Errors are in its replies, whatever the mode.
async fn serve_batch(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    let mode = ErrorMode::of(request.headers(), control.api.error_mode);
    let body = body::receive(&control, request.into_body(), Limit::Many).await?;
    let batch: Batch<'_> = read(&body, batch::FORM, |json| Batch::deserialize(json))?;
    Ok(match batch.answer(&control).await {
        Ok(answered) => reply::json(StatusCode::OK, batch::body(&answered)),
        Err(fault) => reply::response(&Err(fault), mode),
    })
}

/// Answers requests in the form of older clients.
async fn serve_legacy(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    let body = body::receive(&control, request.into_body(), Limit::Many).await?;
    let answer = legacy::answer(&control, &body).await?;
    Ok(reply::json(StatusCode::OK, answer))
}
