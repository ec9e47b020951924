//! The description of the API for programs: `docs/openapi.json`, as it is for this server.

use super::prefix::Prefix;
use super::reply;
use crate::control::Control;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use std::sync::Arc;

/// Where it is.
pub(super) const PATH: &str = "/api/openapi.json";

const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");

/// Its route. Nobody needs a key for it: it is the same on all servers.
pub(in super::super) fn router(prefix: &Prefix) -> Router<Arc<Control>> {
    let document = Bytes::from(document(prefix));
    let serve = move || async move { reply::json(StatusCode::OK, document) };
    Router::new().route(&prefix.path(PATH), get(serve))
}

/// The document, with the paths of this server.
fn document(prefix: &Prefix) -> String {
    // Paths are the only texts of the document that begin so.
    DOCUMENT.replace("\"/api", &format!("\"{}", prefix.as_str()))
}

#[cfg(test)]
mod fields;

#[cfg(test)]
mod tests {
    use super::super::method::Method;
    use super::super::{BATCH, LEGACY, PATHS};
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn parsed(prefix: &Prefix) -> Value {
        serde_json::from_str(&document(prefix)).expect("JSON")
    }

    fn keys(value: &Value) -> BTreeSet<&str> {
        let object = value.as_object().expect("an object");
        object.keys().map(String::as_str).collect()
    }

    #[test]
    fn it_has_a_path_for_every_method_and_no_other() {
        let document = parsed(&Prefix::default());
        let paths = PATHS.iter().copied().chain([BATCH, LEGACY, PATH]);
        assert_eq!(keys(&document["paths"]), paths.collect());
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn its_paths_begin_with_the_prefix() {
        let document = parsed(&Prefix::parse("/v1/push").unwrap());
        let paths = keys(&document["paths"]);
        assert!(paths.iter().all(|path| path.starts_with("/v1/push")));
        assert_eq!(paths.len(), Method::ALL.len() + 3);
        let (here, there) = (parsed(&Prefix::default()), document);
        for part in ["info", "components"] {
            assert_eq!(here[part], there[part], "only paths differ");
        }
    }
}
