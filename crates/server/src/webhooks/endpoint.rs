//! One endpoint: its queue, and the task that empties it.

use super::Event;
use super::batch::Batch;
use super::counts::{BatchEnd, EndpointCounts};
use super::post::{Failure, Outcome, post};
use super::queue::Queue;
use crate::config::WebhookEndpoint;
use crate::shards::random_bits;
use arc_swap::ArcSwap;
use myriad_shard::{Notice, NoticeKind};
use myriad_units::counted;
use myriad_units::option::Span;
use reqwest::Client;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The longest pause after a first failure. It doubles with each further one.
const FIRST_PAUSE_MAX: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause while the server ends: there may not be much time.
const LAST_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Somebody who is told.
#[derive(Debug)]
pub(super) struct Endpoint {
    name: Arc<str>,
    /// A reload may change it.
    config: ArcSwap<WebhookEndpoint>,
    /// Names this run of the server, as `info` does.
    server: Arc<str>,
    /// The number of the last batch. Shared with whoever has the same name later: a receiver takes a number that it has seen for a
    /// batch that it has.
    sequence: Arc<AtomicU64>,
    client: Client,
    counts: EndpointCounts,
    state: Mutex<State>,
    /// Events have come.
    arrived: Notify,
    /// The configuration is another one.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// The batch that is being sent: its events, and when the oldest of them happened.
    under_way: Option<(u64, Option<u64>)>,
    /// It has answered that it wants no more.
    is_gone: bool,
    /// Its queue is full, and the log says so.
    is_full: bool,
}

impl Endpoint {
    pub(super) fn new(
        config: WebhookEndpoint,
        server: Arc<str>,
        sequence: Arc<AtomicU64>,
        client: Client,
        counts: EndpointCounts,
    ) -> Self {
        let state = State {
            queue: Queue::new(config.queue_size),
            under_way: None,
            is_gone: false,
            is_full: false,
        };
        Self {
            name: Arc::clone(&config.name),
            config: ArcSwap::from_pointee(config),
            server,
            sequence,
            client,
            counts,
            state: Mutex::new(state),
            arrived: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Takes another configuration from now on; what waits is sent by it. True if it needs a task again, because it had answered
    /// that it wants no more.
    pub(super) fn reconfigure(&self, config: &WebhookEndpoint) -> bool {
        if **self.config.load() == *config {
            return false;
        }
        self.config.store(Arc::new(config.clone()));
        let mut state = self.state();
        let lost = state.queue.resize(config.queue_size);
        self.counts.add_dropped(lost);
        // A retry that waits begins at once. Nobody else does: a later one keeps its pause.
        self.changed.notify_waiters();
        self.arrived.notify_one();
        std::mem::take(&mut state.is_gone)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the events that it wants. `dropped` is what shards had to drop, by kind: whether it was wanted is not known.
    pub(super) fn take(&self, events: &[Arc<Event>], dropped: &[u64; NoticeKind::ALL.len()]) {
        let mut state = self.state();
        if state.is_gone {
            return;
        }
        let config = self.config.load();
        let kinds = dropped.iter().zip(config.events);
        let mut lost: u64 = kinds
            .filter(|(_, wants)| *wants)
            .map(|(count, _)| *count)
            .sum();
        state.queue.note_dropped(lost);
        for event in events.iter().filter(|event| wants(&config, &event.what)) {
            lost += state.queue.push(Arc::clone(event));
        }
        if lost > 0 {
            self.counts.add_dropped(lost);
            if !state.is_full {
                state.is_full = true;
                tracing::warn!(
                    "webhook endpoint {}: events come faster than it takes them; the oldest are dropped, {} so far",
                    self.name(),
                    counted(lost, "event"),
                );
            }
        }
        if state.queue.has_news() {
            self.arrived.notify_one();
        }
    }

    /// Shows how many events wait, and how old the oldest is at `now_ms`.
    pub(super) fn note_lag(&self, now_ms: u64) {
        let state = self.state();
        let (under_way, oldest) = state.under_way.unwrap_or_default();
        let oldest = oldest.or_else(|| state.queue.front().map(|event| event.at_ms));
        let lag_ms = oldest.map_or(0, |oldest| now_ms.saturating_sub(oldest));
        let waiting = under_way + state.queue.len() as u64;
        self.counts
            .set_waiting(waiting, Duration::from_millis(lag_ms).as_secs_f64());
    }

    /// The server ends: gives up what is left. Returns how many events that is.
    pub(super) fn abandon(&self) -> u64 {
        let mut state = self.state();
        let mut events = state.queue.clear();
        if let Some((count, _)) = state.under_way.take() {
            events += count;
            self.counts.count_batch(BatchEnd::Unsent);
        }
        self.counts.add_dropped(events);
        events
    }

    /// Sends batch after batch, until it is closing and nothing is left, or the receiver wants no more.
    pub(super) async fn run(self: Arc<Self>, mut closing: watch::Receiver<bool>) {
        let mut retries = Retries::default();
        while let Some(batch) = self.next_batch(&mut closing).await {
            let end = self.deliver(&batch, &mut retries, &mut closing).await;
            self.counts.count_batch(end);
            let mut state = self.state();
            state.under_way = None;
            match end {
                BatchEnd::Delivered => state.is_full = false,
                BatchEnd::Gone => {
                    state.is_gone = true;
                    let lost = batch.count + state.queue.clear();
                    self.counts.add_dropped(lost);
                    return;
                }
                BatchEnd::GivenUp | BatchEnd::Unsent => {
                    // What this batch says of others that were dropped is untold again.
                    state.queue.note_dropped(batch.count + batch.dropped);
                    self.counts.add_dropped(batch.count);
                }
            }
        }
    }

    /// The next batch: when it is full, or its delay is over, or the server ends. None if it ends and nothing is left.
    async fn next_batch(&self, closing: &mut watch::Receiver<bool>) -> Option<Batch> {
        let mut deadline = None;
        loop {
            let arrived = self.arrived.notified();
            let config = self.config.load_full();
            let is_closing = *closing.borrow_and_update();
            {
                let mut state = self.state();
                if state.queue.has_news() && deadline.is_none() {
                    deadline = Some(Instant::now() + config.batch_delay);
                }
                let is_due = deadline.is_some_and(|deadline| deadline <= Instant::now());
                if is_closing || is_due || state.queue.len() >= config.batch_size {
                    let sequence = self.sequence.load(Ordering::Relaxed) + 1;
                    let (max, server) = (config.batch_size, &self.server);
                    let batch = Batch::take(&mut state.queue, max, server, sequence);
                    if batch.is_some() {
                        self.sequence.store(sequence, Ordering::Relaxed);
                    }
                    state.under_way = batch.as_ref().map(|batch| (batch.count, batch.oldest_ms));
                    if batch.is_some() || is_closing {
                        return batch;
                    }
                    deadline = None;
                }
            }
            let due = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = arrived => {}
                () = due => {}
                // It fails when the server has gone, and this task with it.
                _ = closing.changed() => {}
            }
        }
    }

    /// Sends a batch until it is delivered, or its time is over.
    async fn deliver(
        &self,
        batch: &Batch,
        retries: &mut Retries,
        closing: &mut watch::Receiver<bool>,
    ) -> BatchEnd {
        let begun = Instant::now();
        loop {
            let config = self.config.load_full();
            let deadline = begun + config.retry_for;
            let failure = match post(&self.client, &config, batch).await {
                Outcome::Delivered => {
                    self.counts.count_request("delivered");
                    if let Some(failures) = retries.reset() {
                        let failed = counted(failures, "failed request");
                        tracing::info!(
                            "webhook endpoint {}: it takes batches again, after {failed}",
                            self.name(),
                        );
                    }
                    return BatchEnd::Delivered;
                }
                Outcome::Gone => {
                    self.counts.count_request("gone");
                    tracing::warn!(
                        "webhook endpoint {}: it answers 410, so it is told nothing more until its configuration changes, or a restart",
                        self.name(),
                    );
                    return BatchEnd::Gone;
                }
                Outcome::Failed(failure) => failure,
            };
            self.counts.count_request(failure.label());
            if retries.failures == 0 {
                self.report(&failure, config.retry_for);
            }
            let mut pause = retries.next_pause(random_bits().unwrap_or(u64::MAX / 2));
            if *closing.borrow() {
                pause = pause.min(LAST_PAUSE_MAX);
            }
            if Instant::now() + pause > deadline {
                tracing::warn!(
                    "webhook endpoint {}: batch {} is given up after {}: {failure}; its events are dropped",
                    self.name(),
                    batch.id,
                    Span(config.retry_for),
                );
                // The next batch is tried at once otherwise, and the one after it.
                pause_unless_closing(pause, closing).await;
                return BatchEnd::GivenUp;
            }
            tokio::select! {
                () = pause_unless_closing(pause, closing) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn report(&self, failure: &Failure, retry_for: Duration) {
        tracing::warn!(
            "webhook endpoint {}: a batch was not delivered: {failure}; it is tried again for {}",
            self.name(),
            Span(retry_for),
        );
    }
}

fn wants(config: &WebhookEndpoint, notice: &Notice) -> bool {
    let is_of_channel = || match notice {
        Notice::Occupied(channel) | Notice::Vacated(channel) => {
            let mut filters = config.channels.iter();
            filters.any(|filter| filter.takes(channel))
        }
        Notice::Connected(_) | Notice::Disconnected(..) => true,
    };
    config.events[notice.kind() as usize] && is_of_channel()
}

/// Waits, but no longer once the server begins to end.
async fn pause_unless_closing(pause: Duration, closing: &mut watch::Receiver<bool>) {
    let is_closing = *closing.borrow();
    if is_closing {
        sleep(pause).await;
    } else {
        let _ = timeout(pause, closing.wait_for(|is_closing| *is_closing)).await;
    }
}

/// Pauses between requests that fail: they double, and each is a random part of its bound (full jitter), so that servers which
/// failed together do not come back together.
#[derive(Debug, Default)]
struct Retries {
    failures: u32,
}

impl Retries {
    /// The pause after one more failure. `random` is any 64 bits.
    fn next_pause(&mut self, random: u64) -> Duration {
        let doubled = FIRST_PAUSE_MAX.saturating_mul(1 << self.failures.min(16));
        let bound = doubled.min(PAUSE_MAX).as_nanos();
        self.failures = self.failures.saturating_add(1);
        let pause = (bound * u128::from(random)) >> u64::BITS;
        Duration::from_nanos(u64::try_from(pause).unwrap_or(u64::MAX))
    }

    /// A request has succeeded. How many failed before it, if any did.
    fn reset(&mut self) -> Option<u64> {
        let failures = std::mem::take(&mut self.failures);
        (failures > 0).then_some(failures.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_a_random_part_of_a_bound_that_doubles() {
        let pauses = |random: u64| {
            let mut retries = Retries::default();
            let pauses: Vec<_> = (0..9).map(|_| retries.next_pause(random)).collect();
            assert_eq!(retries.reset(), Some(9));
            assert_eq!(retries.reset(), None);
            pauses
        };
        assert!(pauses(0).iter().all(Duration::is_zero));
        let bounds = [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000,
        ];
        for (bound, (half, all)) in bounds
            .iter()
            .zip(pauses(1 << 63).iter().zip(pauses(u64::MAX)))
        {
            let bound = Duration::from_millis(*bound);
            assert_eq!(*half, bound / 2);
            assert_eq!(all, bound - Duration::from_nanos(1));
        }
    }
}
