//! The HTTP API: `POST /api/METHOD`, batches of methods, and the legacy form.
//!
//! [`method`] is the table of methods. Each has a file with its request and what it does. A request is read whole, then carried out,
//! then answered: `{"result": ..}` or `{"error": ..}` with status 200. Requests that are no such request have a status of their own.

pub(super) mod asking;
mod batch;
pub(super) mod bodies;
pub(super) mod body;
mod broadcast;
mod channels;
mod connections;
mod debugging;
mod disconnect;
pub(super) mod everywhere;
mod fault;
mod heard;
mod history;
mod info;
mod json;
mod legacy;
mod method;
mod openapi;
pub(super) mod orders;
mod prefix;
pub(super) mod presence;
mod publication;
mod publish;
mod reading;
mod refresh;
mod reply;
mod revoke;
mod rpc;
mod sending;
#[cfg(test)]
mod stuck;
mod subscribe;
mod trace;
mod unsubscribe;

#[cfg(test)]
pub(super) use body::read_body;
pub(super) use fault::Fault;
pub(crate) use method::{Command, Method, Scope};
pub(super) use openapi::router as description;
pub(crate) use prefix::Prefix;
pub(super) use publication::{Publication, options_of};
pub(super) use publish::{Unusable, parse};
pub(crate) use reply::ErrorMode;

use super::Control;
use super::error::Refusal;
use super::key::Caller;
use super::metrics::BodyCounts;
use crate::answers::Answers;
use crate::config::MemoryShares;
use asking::QUESTIONS_MAX;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use bodies::{Bodies, Sender};
use body::Limit;
use info::Node;
use myriad_shard::{InquiryAnswer, NotPublished, Position};
use reading::{Unread, read};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    pub(crate) positions: Answers<Result<Position, NotPublished>>,
    /// Requests that wait for answers of shards; none where a shard ended.
    pub(crate) inquiries: Answers<Option<InquiryAnswer>>,
    /// Where the methods are.
    prefix: Prefix,
    /// Errors are told by statuses, unless a request says otherwise.
    is_transport: AtomicBool,
    /// The memory for bodies.
    pub(super) bodies: Bodies,
    /// Kibibytes of results of batches that may be in memory.
    result_kib: Semaphore,
    /// Turns to ask what costs shards milliseconds.
    questions: Semaphore,
    /// Traces that may begin.
    traces: Arc<Semaphore>,
    /// What is told of this server.
    node: Node,
}

impl Api {
    /// What is shared by no request yet.
    pub(crate) fn new(
        prefix: Prefix,
        mode: ErrorMode,
        bodies: BodyCounts,
        memory: &MemoryShares,
    ) -> Self {
        let result_kib = usize::try_from(memory.results >> 10).unwrap_or(usize::MAX);
        Self {
            positions: Answers::default(),
            inquiries: Answers::default(),
            prefix,
            is_transport: AtomicBool::new(mode == ErrorMode::Transport),
            bodies: Bodies::new(bodies, memory.bodies),
            result_kib: Semaphore::new(result_kib.min(Semaphore::MAX_PERMITS)),
            questions: Semaphore::new(QUESTIONS_MAX),
            traces: Arc::new(Semaphore::new(trace::TRACES_MAX)),
            node: Node::new(),
        }
    }

    /// Where the methods are.
    pub(super) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// Says how errors are told from now on.
    pub(super) fn set_error_mode(&self, mode: ErrorMode) {
        let is_transport = mode == ErrorMode::Transport;
        self.is_transport.store(is_transport, Ordering::Relaxed);
    }

    /// How a request is told errors.
    fn error_mode(&self, headers: &HeaderMap) -> ErrorMode {
        let configured = if self.is_transport.load(Ordering::Relaxed) {
            ErrorMode::Transport
        } else {
            ErrorMode::Body
        };
        ErrorMode::of(headers, configured)
    }
}

impl Control {
    /// When an answer of shards that is asked for now comes too late.
    pub(crate) fn answers_deadline() -> Instant {
        Instant::now() + ANSWERS_TIMEOUT
    }
}

/// The routes of the API.
pub(super) fn router(prefix: &Prefix) -> Router<Arc<Control>> {
    let mut router = Router::new()
        .route(&prefix.path(BATCH), post(serve_batch))
        .route(&prefix.path(LEGACY), post(serve_legacy));
    for &method in Method::ALL {
        let serve =
            move |State(control), request| async move { serve(control, method, request).await };
        router = router.route(&prefix.path(method.path()), post(serve));
    }
    router.layer(axum::middleware::from_fn(debugging::layer))
}

/// Who calls. The layer in front of the API notes it.
fn caller(request: &Request) -> Caller {
    let caller = request.extensions().get::<Caller>();
    caller
        .expect("the keys' layer is in front of every route")
        .clone()
}

/// Refuses the request if its key may not carry out all of its commands; counts them otherwise.
fn admit<'c, 'a: 'c>(
    control: &Control,
    caller: &Caller,
    commands: impl IntoIterator<Item = &'c Command<'a>>,
) -> Result<(), Refusal> {
    let mut counts = BTreeMap::new();
    for command in commands {
        caller.check(command)?;
        *counts.entry(command.method()).or_insert(0) += 1;
    }
    for (method, count) in counts {
        control.metrics.calls().count(caller.name(), method, count);
    }
    Ok(())
}

/// Answers a request of one method.
async fn serve(
    control: Arc<Control>,
    method: Method,
    request: Request,
) -> Result<Response, Refusal> {
    let mode = control.api.error_mode(request.headers());
    let caller = caller(&request);
    caller.check_method(method)?;
    let body = body::receive(
        &control,
        request.into_body(),
        Limit::One,
        Sender::Application,
    )
    .await?;
    let command = match read(&body, method.form(), method) {
        Ok(command) => command,
        Err(Unread::Malformed(refusal)) => return Err(refusal),
        Err(Unread::Incomplete(fault)) => return Ok(reply::response(&Err(fault), mode)),
    };
    admit(&control, &caller, [&command])?;
    let reply = match command {
        Command::Trace(trace) => match trace.begin(&control) {
            Ok(response) => return Ok(response),
            Err(fault) => Err(fault),
        },
        command => command.answer(&control).await,
    };
    Ok(reply::response(&reply, mode))
}

/// Answers a batch. Errors are in its replies, whatever the mode.
async fn serve_batch(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    let mode = control.api.error_mode(request.headers());
    let caller = caller(&request);
    let body = body::receive(
        &control,
        request.into_body(),
        Limit::Many,
        Sender::Application,
    )
    .await?;
    let batch = match read(&body, batch::FORM, batch::Whole) {
        Ok(batch) => batch,
        Err(Unread::Malformed(refusal)) => return Err(refusal),
        Err(Unread::Incomplete(fault)) => return Ok(reply::response(&Err(fault), mode)),
    };
    admit(&control, &caller, batch.commands())?;
    Ok(match batch.answer(&control).await {
        Ok(answered) => reply::json(StatusCode::OK, batch::body(&answered.replies)),
        Err(fault) => reply::response(&Err(fault), mode),
    })
}

/// Answers requests in the form of older clients.
async fn serve_legacy(
    State(control): State<Arc<Control>>,
    request: Request,
) -> Result<Response, Refusal> {
    let caller = caller(&request);
    let body = body::receive(
        &control,
        request.into_body(),
        Limit::Many,
        Sender::Application,
    )
    .await?;
    let (ids, commands) = legacy::commands(&body)?;
    admit(&control, &caller, batch::readable(&commands))?;
    let answer = legacy::answer(&control, ids, commands).await;
    Ok(reply::json(StatusCode::OK, answer))
}
