//! What a development server shows in a browser, so that whoever opens the printed address sees something alive: `/` with its
//! figures, commands to try and a chat, and `/chat`, which is `examples/chat` alone.

use super::Control;
use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use std::sync::Arc;

/// A page's own scripts, frames and connections are all it may use: text of strangers that got into it could do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src 'self' ws: wss:; \
     frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

const HTML: &str = "text/html; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("dev_page/index.html");
const FIGURES: &str = include_str!("dev_page/dev_page.js");
const CHAT_PAGE: &str = include_str!("../../../../examples/chat/index.html");
const CHAT: &str = include_str!("../../../../examples/chat/chat.js");
const SDK: &str = include_str!("../../../../examples/chat/vendor/centrifuge-5.8.0/centrifuge.js");

pub(super) fn router() -> Router<Arc<Control>> {
    Router::new()
        .route("/", get(async || file(HTML, PAGE)))
        .route("/dev_page.js", get(async || file(JAVASCRIPT, FIGURES)))
        .route("/chat", get(async || file(HTML, CHAT_PAGE)))
        // The page names its scripts relative to its own path.
        .route("/chat/", get(async || Redirect::permanent("/chat")))
        .route("/chat.js", get(async || file(JAVASCRIPT, CHAT)))
        .route("/centrifuge.js", get(async || file(JAVASCRIPT, SDK)))
}

fn file(kind: &'static str, content: &'static str) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // The next server at this address may be another version.
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, content)
}
