//! The codec of the Centrifuge client protocol against independent readings: `prost` and `serde_json::Value`.

mod client;
mod commands;
mod replies;
mod schema;

use proptest::prelude::ProptestConfig;

/// How often a property is tried. Miri gets a few cases: it is some thousand times slower.
fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
