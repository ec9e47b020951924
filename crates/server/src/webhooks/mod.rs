//! Webhooks: an application is told which channels are occupied, and which clients are connected.
//!
//! Shards note what happens in the mesh ([`Notice`]). [`Collector`] takes it ten times a second and gives it to the endpoints that
//! want it. Each endpoint has a bounded queue and one task, which posts one batch after the other. So the order of a
//! channel's events is kept, and an endpoint that is slow or down holds up nobody but itself. Past a bound the oldest event is
//! dropped, and the next batch says how many.
//!
//! | file | what it does |
//! | --- | --- |
//! | `queue.rs` | events that wait for one endpoint |
//! | `batch.rs` | the body of a request |
//! | `signature.rs` | proves who sent it |
//! | `post.rs` | one request, and what its answer means |
//! | `endpoint.rs` | batches of one endpoint, in their order, with retries |
//! | `receivers.rs` | all endpoints; a reload changes them |
//! | `counts.rs` | metrics |

mod batch;
mod counts;
mod endpoint;
mod post;
mod queue;
#[cfg(test)]
mod receiver;
mod receivers;
#[cfg(test)]
mod reload_tests;
mod signature;
#[cfg(test)]
mod tests;

pub(crate) use counts::WebhookCounts;
pub(crate) use receivers::Receivers;

use crate::config::Webhooks as Config;
use crate::error::ServerError;
use crate::shards::monotonic_now;
use myriad_shard::{Mesh, Notice, NoticeKind, Now};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often notices are taken from the mesh.
const EVERY: Duration = Duration::from_millis(100);

/// Something that an application is told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    /// Milliseconds since 1970.
    at_ms: u64,
    what: Notice,
}

/// The webhooks of a running server.
#[derive(Debug)]
pub(crate) struct Webhooks {
    receivers: Arc<Receivers>,
    collector: JoinHandle<()>,
    stop_collecting: oneshot::Sender<()>,
}

impl Webhooks {
    /// Begins to tell. None if nobody is to be told. Call it inside the runtime.
    ///
    /// # Errors
    /// The client for requests cannot be made: the machine's certificates cannot be read.
    pub(crate) fn start(
        config: &Config,
        mesh: Mesh,
        counts: &WebhookCounts,
    ) -> Result<Option<Self>, ServerError> {
        if config.endpoints.is_empty() {
            return Ok(None);
        }
        let client = post::client().map_err(|error| ServerError::System {
            what: "make a client for webhooks",
            source: io::Error::other(error),
        })?;
        // As `info` names the node, so that what both say can be joined.
        let server = Arc::from(mesh.node());
        let receivers = Receivers::new(client, server, counts.clone(), config.notices());
        receivers.replace(&config.endpoints);
        let receivers = Arc::new(receivers);
        let collector = Collector {
            mesh,
            receivers: Arc::clone(&receivers),
            counts: counts.clone(),
        };
        let (stop_collecting, stopped) = oneshot::channel();
        Ok(Some(Self {
            receivers,
            collector: tokio::spawn(collector.run(stopped)),
            stop_collecting,
        }))
    }

    /// Those who are told, for a reload.
    pub(crate) fn receivers(&self) -> Arc<Receivers> {
        Arc::clone(&self.receivers)
    }

    /// All shards have ended: sends what is left, until the deadline.
    pub(crate) async fn finish(self, deadline: Instant) {
        let _ = self.stop_collecting.send(());
        let _ = self.collector.await;
        self.receivers.finish(deadline).await;
    }
}

/// Gives endpoints what shards note.
struct Collector {
    mesh: Mesh,
    receivers: Arc<Receivers>,
    counts: WebhookCounts,
}

impl Collector {
    /// Collects until it is told to stop, and then what is left.
    async fn run(self, mut stopped: oneshot::Receiver<()>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                _ = &mut stopped => true,
            };
            self.collect(&Clock::read());
            if is_last {
                return;
            }
        }
    }

    fn collect(&self, clock: &Clock) {
        let (mut events, mut dropped) = (Vec::new(), [0; NoticeKind::ALL.len()]);
        for shard in 0..self.mesh.shard_count() {
            let notices = self.mesh.take_notices(shard);
            events.extend(notices.kept.into_iter().map(|(at, what)| {
                let at_ms = clock.unix_ms(at);
                Arc::new(Event { at_ms, what })
            }));
            for (sum, count) in dropped.iter_mut().zip(notices.dropped) {
                *sum += count;
            }
        }
        // Stable: each shard's own order stays.
        events.sort_by_key(|event| event.at_ms);
        for event in &events {
            self.counts.count_event(event.what.kind());
        }
        for endpoint in self.receivers.told() {
            endpoint.take(&events, &dropped);
            endpoint.note_lag(clock.unix_ms);
        }
    }
}

/// What the shards' clock is on the wall.
struct Clock {
    shards: Now,
    unix_ms: u64,
}

impl Clock {
    fn read() -> Self {
        Self {
            shards: monotonic_now(),
            unix_ms: unix_ms(),
        }
    }

    /// Milliseconds since 1970, of a time that has passed.
    fn unix_ms(&self, at: Now) -> u64 {
        let age_ms = self.shards.0.saturating_sub(at.0) / 1_000_000;
        self.unix_ms.saturating_sub(age_ms)
    }
}

/// Milliseconds since 1970. A clock before 1970 is set wrong, and counts as 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
