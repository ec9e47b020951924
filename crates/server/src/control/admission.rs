//! The way in to the control plane: from the shards, and from its own listener.

use super::client_stream::ClientStream;
use super::connection::{Return, Service, linger};
use super::error::Refusal;
use super::inbound::{Asked, Inbound};
use super::metrics::{ConnectionCounts, RequestCounts};
use super::places::{Newcomer, Places};
use super::stream::Unsent;
use super::{Rules, Stage};
use crate::handover::WayBack;
use axum::http::StatusCode;
use myriad_shard::{Origin, ShardRequests};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// What the control plane's descriptors are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Connections that are served at a time.
    pub(crate) places: usize,
    /// Connections that are being told that there are too many; more are closed without a word.
    pub(crate) refusals: usize,
    /// Connections that are closing while new ones already count.
    pub(super) leaving: usize,
}

impl Room {
    pub(crate) fn of(descriptors: usize) -> Self {
        let part = descriptors / 16;
        Self {
            places: descriptors - 2 * part,
            refusals: part,
            leaving: part,
        }
    }

    /// Connections that a shard's receiver admits before other tasks run. Each may make another one leave.
    pub(crate) fn arrivals_at_a_time(self) -> usize {
        (self.leaving / 2).max(1)
    }
}

/// Where a connection came from, and so what it has already said.
#[derive(Debug)]
pub(crate) enum Source {
    /// From a shard, with the bytes of its first request. It goes back when a later one is for a shard.
    Shard { received: Vec<u8>, origin: Origin },
    /// From the control plane's own listener, where there are no streams.
    Listener,
}

#[cfg(test)]
impl Source {
    pub(super) fn of_shard(received: Vec<u8>) -> Self {
        let origin = Origin::default();
        Self::Shard { received, origin }
    }
}

/// Where requests for shards go.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    pub(crate) requests: ShardRequests,
    pub(crate) way: WayBack,
}

/// Admits connections to the router, a bounded number at a time.
///
/// Who gets in when there is no room is decided by [`Places`].
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    service: Service,
    places: Places,
    refusals: Arc<Semaphore>,
    shards: Option<Shards>,
}

impl Admission {
    pub(crate) fn new(
        rules: Rules,
        stage: watch::Receiver<Stage>,
        requests: RequestCounts,
        connections: ConnectionCounts,
        room: Room,
        unsent_bytes_max: u64,
        shards: Option<Shards>,
    ) -> Self {
        Self {
            service: Service {
                rules,
                stage,
                counts: requests,
                unsent: Unsent::new(unsent_bytes_max),
            },
            places: Places::new(room.places, connections),
            refusals: Arc::new(Semaphore::new(room.refusals)),
            shards,
        }
    }

    /// Serves the connection in a task of its own, or tells it that there are too many.
    pub(crate) fn admit(&self, stream: ClientStream, source: Source) {
        let mut service = self.service.clone();
        let (received, back) = match source {
            Source::Shard { received, origin } => {
                let rules = &mut service.rules;
                rules.router = rules.router_of_shards.clone();
                let shards = self.shards.clone();
                (received, shards.map(|shards| Return { shards, origin }))
            }
            Source::Listener => (Vec::new(), None),
        };
        let Rules { limits, keys, .. } = &self.service.rules;
        let for_shards = back.as_ref().map(|back| back.shards.requests);
        let mut inbound = Inbound::new(received, *limits).stopping_for(for_shards);
        let mut asked = None;
        // A fault is found again by whoever answers it.
        let _ = inbound.next(|head| asked = Some(Asked::of(head, &keys.load())));
        let address = stream.peer_addr().map(|address| address.ip());
        let place = self.places.enter(Newcomer {
            // A client that has gone already: its end is found where all ends are.
            address: address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            is_keyed: asked.is_some_and(|asked| asked.is_keyed),
            may_be_probe: asked.is_none_or(|asked| asked.is_probe),
            has_whole_request: inbound.holds_whole_request(),
        });
        if let Some(place) = place {
            tokio::spawn(service.serve(stream, inbound, place, back));
        } else if let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() {
            tokio::spawn(self.clone().turn_away(stream, permit));
        } else {
            let counts = &self.service.counts;
            counts.count("other", StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    /// Ends the connections that are worth least, because there is no descriptor for another one. False if all are owed an answer.
    pub(crate) fn make_room(&self) -> bool {
        self.places.make_room()
    }

    /// Waits until no connection is left.
    pub(crate) async fn emptied(&self) {
        self.places.emptied().await;
    }

    async fn turn_away(self, mut stream: ClientStream, _permit: OwnedSemaphorePermit) {
        let refusal = Refusal::busy(
            "too many requests to the HTTP API are being answered; send fewer at a time, or retry",
        );
        self.service.refuse(&mut stream, &refusal).await;
        linger(&mut stream).await;
    }
}
