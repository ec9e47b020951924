//! What is counted of webhooks.

use crate::config::event_name;
use myriad_shard::NoticeKind;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The counters of all endpoints; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookCounts {
    events: Family<EventLabels, Counter>,
    requests: Family<OutcomeLabels, Counter>,
    batches: Family<OutcomeLabels, Counter>,
    dropped: Family<EndpointLabels, Counter>,
    queued: Family<EndpointLabels, Gauge>,
    lag: Family<EndpointLabels, Gauge<f64, AtomicU64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    endpoint: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    endpoint: Arc<str>,
    outcome: &'static str,
}

/// What becomes of a request.
const REQUEST_OUTCOMES: [&str; 5] = ["delivered", "gone", "timeout", "unreachable", "refused"];

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// The receiver has it.
    Delivered,
    /// It was tried for the whole time.
    GivenUp,
    /// The receiver wants no more.
    Gone,
    /// The server ended first.
    Unsent,
}

impl BatchEnd {
    const ALL: [Self; 4] = [Self::Delivered, Self::GivenUp, Self::Gone, Self::Unsent];

    fn label(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::GivenUp => "given_up",
            Self::Gone => "gone",
            Self::Unsent => "unsent",
        }
    }
}

impl WebhookCounts {
    /// Counters that `registry` shows.
    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let counts = Self::default();
        registry.register(
            "webhook_events",
            "Events that shards noted for webhooks, by kind",
            counts.events.clone(),
        );
        registry.register(
            "webhook_requests",
            "Requests to webhook endpoints, by outcome",
            counts.requests.clone(),
        );
        registry.register(
            "webhook_batches",
            "Batches of webhook endpoints that are done with, by outcome",
            counts.batches.clone(),
        );
        registry.register(
            "webhook_dropped_events",
            "Events that a webhook endpoint was not told",
            counts.dropped.clone(),
        );
        registry.register(
            "webhook_queued_events",
            "Events that wait for a webhook endpoint, those of the batch under way among them",
            counts.queued.clone(),
        );
        registry.register_with_unit(
            "webhook_lag",
            "Age of the oldest event that waits for a webhook endpoint",
            Unit::Seconds,
            counts.lag.clone(),
        );
        counts
    }

    pub(super) fn count_event(&self, kind: NoticeKind) {
        let event = event_name(kind);
        self.events.get_or_create(&EventLabels { event }).inc();
    }

    /// The counters of one endpoint. What has not happened yet is shown as 0.
    pub(super) fn of(&self, endpoint: &Arc<str>) -> EndpointCounts {
        for kind in NoticeKind::ALL {
            let event = event_name(kind);
            drop(self.events.get_or_create(&EventLabels { event }));
        }
        let counts = EndpointCounts {
            all: self.clone(),
            endpoint: Arc::clone(endpoint),
        };
        for end in BatchEnd::ALL {
            drop(self.batches.get_or_create(&counts.outcome(end.label())));
        }
        for outcome in REQUEST_OUTCOMES {
            drop(self.requests.get_or_create(&counts.outcome(outcome)));
        }
        counts.add_dropped(0);
        counts.set_waiting(0, 0.0);
        counts
    }
}

/// The counters of one endpoint.
#[derive(Clone, Debug)]
pub(super) struct EndpointCounts {
    all: WebhookCounts,
    endpoint: Arc<str>,
}

impl EndpointCounts {
    fn outcome(&self, outcome: &'static str) -> OutcomeLabels {
        OutcomeLabels {
            endpoint: Arc::clone(&self.endpoint),
            outcome,
        }
    }

    fn labels(&self) -> EndpointLabels {
        EndpointLabels {
            endpoint: Arc::clone(&self.endpoint),
        }
    }

    pub(super) fn count_request(&self, outcome: &'static str) {
        let labels = self.outcome(outcome);
        self.all.requests.get_or_create(&labels).inc();
    }

    pub(super) fn count_batch(&self, end: BatchEnd) {
        let labels = self.outcome(end.label());
        self.all.batches.get_or_create(&labels).inc();
    }

    pub(super) fn add_dropped(&self, count: u64) {
        self.all.dropped.get_or_create(&self.labels()).inc_by(count);
    }

    pub(super) fn set_waiting(&self, events: u64, lag_seconds: f64) {
        let events = i64::try_from(events).unwrap_or(i64::MAX);
        self.all.queued.get_or_create(&self.labels()).set(events);
        self.all.lag.get_or_create(&self.labels()).set(lag_seconds);
    }
}
