//! The codec of the Centrifuge client protocol against independent readings: `prost` and `serde_json::Value`.

mod client;
mod commands;
mod replies;
mod schema;
