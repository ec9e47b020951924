//! Moves connections of the client library away from servers that give no answers.

use crate::nats::{connects_of, is_connected};
use async_nats::Client;
use myriad_nats::Avoided;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a connection may take to be made again.
const MOVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked whether it is there.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Moves each of these connections whenever another server is avoided, until the runtime ends.
pub(super) async fn keep_away(clients: [Client; 3], avoided: Avoided) {
    loop {
        avoided.added().await;
        for client in &clients {
            move_away(client, &avoided).await;
        }
    }
}

/// The library picks the next server at random, so it may take some attempts. Where all servers are avoided, one is as good as another.
async fn move_away(client: &Client, avoided: &Avoided) {
    let Ok(pool) = client.server_pool().await else {
        return;
    };
    if pool.len() < 2 {
        return;
    }
    for _ in 0..2 * pool.len() {
        let is_there = is_connected(client) && avoided.has(&client.server_info().server_id);
        let connects = connects_of(client);
        if !is_there || client.force_reconnect().await.is_err() {
            return;
        }
        let moved = async {
            while connects_of(client) == connects || !is_connected(client) {
                sleep(LOOK_INTERVAL).await;
            }
        };
        if timeout(MOVE_TIMEOUT, moved).await.is_err() {
            return;
        }
    }
}
