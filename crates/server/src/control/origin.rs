//! Which web pages may use the API, and by which names of the server.
//!
//! A browser sends a form or a `text/plain` body to any server without asking first. Where the API is open, as in
//! development, every page that the developer visits could publish. The browser says in Origin which page it was.
//!
//! A page whose own name resolves to this machine is of the same host, for its browser. So an open API outside of development takes
//! pages of addresses, of loopback and of the list only; in development all requests are checked ([`check_host`]).

use super::Control;
use super::error::Refusal;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use myriad_shard::OwnHosts;
use myriad_wire::http::{HostRefused, check_origin};
use std::sync::Arc;

/// Checks the host that a request asks for, where that matters: [`Settings::own_hosts`].
///
/// # Errors
/// It is not this machine.
///
/// [`Settings::own_hosts`]: myriad_shard::Settings::own_hosts
pub(super) fn check_host(control: &Control, headers: &HeaderMap) -> Result<(), Refusal> {
    let settings = control.settings.load();
    let own = settings.own_hosts.as_ref();
    let checked = own.map_or(Ok(()), |own| own.check(host_of(headers)));
    checked.map_err(refused_host)
}

fn host_of(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::HOST).map(HeaderValue::as_bytes)
}

fn refused_host(refused: HostRefused) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, refused.label(), refused.sentence())
}

/// Lets requests of programs, of pages of this server's host, and of listed pages pass.
pub(crate) async fn require(
    State(control): State<Arc<Control>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Some(allowed) = &**control.allowed_origins.load() {
        let headers = request.headers();
        if headers.contains_key(header::ORIGIN) {
            let own = OwnHosts::new([], Arc::clone(allowed));
            own.check(host_of(headers)).map_err(refused_host)?;
        }
        let origins = headers.get_all(header::ORIGIN).into_iter();
        let host = host_of(headers);
        check_origin(origins.map(HeaderValue::as_bytes), host, allowed)
            .map_err(|refused| Refusal::new(StatusCode::FORBIDDEN, "origin", refused.sentence()))?;
    }
    Ok(next.run(request).await)
}
