//! The connection to NATS.

use super::FleetError;
use async_nats::Client;
use myriad_nats::{Nats, NatsError};

/// Connects.
pub(super) async fn connect(nats: &Nats, name: &str) -> Result<Client, FleetError> {
    nats.connect(name).await.map_err(|error| match error {
        NatsError::Credentials { path, why } => FleetError::Credentials(path, why),
        NatsError::Connect { url, why } => FleetError::Connect(url, why),
        NatsError::Address { .. } => FleetError::Connect(nats.shown(), error.to_string()),
    })
}
