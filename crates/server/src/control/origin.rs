//! Which web pages may use the API.
//!
//! A browser sends a form or a `text/plain` body to any server without asking first. Where the API is open, as in
//! development, every page that the developer visits could publish. The browser says in Origin which page it was.

use super::Control;
use super::error::Refusal;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use myriad_wire::http::check_origin;
use std::sync::Arc;

/// Lets requests of programs, of pages of this server's host, and of listed pages pass.
pub(crate) async fn require(
    State(control): State<Arc<Control>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Some(allowed) = &**control.allowed_origins.load() {
        let headers = request.headers();
        let origins = headers.get_all(header::ORIGIN).into_iter();
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        check_origin(origins.map(HeaderValue::as_bytes), host, allowed)
            .map_err(|refused| Refusal::new(StatusCode::FORBIDDEN, "origin", refused.sentence()))?;
    }
    Ok(next.run(request).await)
}
