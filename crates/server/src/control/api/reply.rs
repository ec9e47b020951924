//! Answers as JSON.

use super::fault::Fault;
use super::method::Method;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A method's result as JSON, or why there is none.
pub(crate) type Reply = Result<Json, Fault>;

/// JSON that is written once, and then only copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json(pub(super) String);

impl Json {
    /// The result of a method that has nothing to say.
    pub(crate) fn empty() -> Self {
        Self("{}".into())
    }

    /// Writes a value.
    pub(crate) fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).expect("results have names for keys"))
    }
}

/// How errors are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ErrorMode {
    /// In the body of an answer 200.
    #[default]
    Body,
    /// By the answer's status.
    Transport,
}

impl ErrorMode {
    /// What the request wants; what the configuration says otherwise.
    pub(super) fn of(headers: &HeaderMap, configured: Self) -> Self {
        match headers.get("x-centrifugo-error-mode") {
            Some(value) if value == "transport" => Self::Transport,
            Some(_) => Self::Body,
            None => configured,
        }
    }
}

/// `{"result": ..}` or `{"error": ..}`.
pub(super) fn write(reply: &Reply, into: &mut String) {
    match reply {
        Ok(Json(result)) => {
            into.push_str("{\"result\":");
            into.push_str(result);
        }
        Err(fault) => {
            into.push_str("{\"error\":");
            write_error(fault, into);
        }
    }
    into.push('}');
}

/// One entry of a batch's replies: `{"publish": ..}` or `{"error": ..}`.
pub(super) fn write_named(method: Option<Method>, reply: &Reply, into: &mut String) {
    match (method, reply) {
        (Some(method), Ok(Json(result))) => {
            into.push_str("{\"");
            into.push_str(method.name());
            into.push_str("\":");
            into.push_str(result);
            into.push('}');
        }
        (_, reply) => write(reply, into),
    }
}

fn write_error(fault: &Fault, into: &mut String) {
    into.push_str(&Json::of(&fault.body()).0);
}

/// The answer to a request of one method.
pub(super) fn response(reply: &Reply, mode: ErrorMode) -> Response {
    if let Err(fault) = reply {
        if let Some(refusal) = fault.refusal() {
            return refusal.into_response();
        }
        if mode == ErrorMode::Transport {
            return json(fault.code.status(), Json::of(&fault.body()).0);
        }
    }
    let mut body = String::with_capacity(64);
    write(reply, &mut body);
    json(StatusCode::OK, body)
}

pub(super) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
