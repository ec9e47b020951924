//! What is counted of calls to the application.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of the histogram's buckets, in seconds: around the default timeout of 1 s and up to the longest.
const BUCKETS_S: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 4.0,
];

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With a result, or with nothing.
    Result,
    /// With an error for the client.
    Error,
    /// With the end of the connection.
    Disconnect,
    /// Nobody was called: the calls under way and those that wait were as many as may be.
    Busy,
    /// Nobody was called: the circuit was open.
    CircuitOpen,
    /// Without an answer in time.
    Timeout,
    /// No connection could be made.
    Unreachable,
    /// The connection ended before the answer was complete, or what came was no HTTP.
    Broken,
    /// With a status that is neither 200 nor configured.
    Status,
    /// With more bytes than an answer may have.
    TooLarge,
    /// With something that is not what the call asks for.
    Malformed,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    const ALL: [(Self, &'static str); 11] = [
        (Self::Result, "result"),
        (Self::Error, "error"),
        (Self::Disconnect, "disconnect"),
        (Self::Busy, "busy"),
        (Self::CircuitOpen, "circuit_open"),
        (Self::Timeout, "timeout"),
        (Self::Unreachable, "unreachable"),
        (Self::Broken, "broken"),
        (Self::Status, "status"),
        (Self::TooLarge, "too_large"),
        (Self::Malformed, "malformed"),
    ];
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProxyLabel {
    proxy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    proxy: String,
    outcome: &'static str,
}

/// The figures of all proxies; all clones count together.
#[derive(Clone, Debug)]
pub(crate) struct ProxyMetrics {
    calls: Family<CallLabels, Counter>,
    durations: Family<ProxyLabel, Histogram, fn() -> Histogram>,
    under_way: Family<ProxyLabel, Gauge>,
    waiting: Family<ProxyLabel, Gauge>,
    circuits: Family<ProxyLabel, Gauge>,
}

impl ProxyMetrics {
    pub(crate) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS_S)),
            under_way: Family::default(),
            waiting: Family::default(),
            circuits: Family::default(),
        };
        registry.register(
            "proxy_calls",
            "Calls to the application, by proxy and outcome",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "proxy_call_duration",
            "Time of a call to the application, without the wait for a place among the calls",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register(
            "proxy_calls_under_way",
            "Calls to the application that are under way",
            metrics.under_way.clone(),
        );
        registry.register(
            "proxy_calls_waiting",
            "Calls to the application that wait for a place",
            metrics.waiting.clone(),
        );
        registry.register(
            "proxy_circuit",
            "Whether the application is left alone because it fails: 0 no, 1 it is being tried, 2 yes",
            metrics.circuits.clone(),
        );
        metrics
    }

    /// The figures of one proxy. They are shown from now on.
    pub(super) fn of(&self, proxy: &str) -> ProxyCounts {
        let label = ProxyLabel {
            proxy: proxy.to_owned(),
        };
        ProxyCounts {
            calls: Outcome::ALL.map(|(_, outcome)| {
                let labels = CallLabels {
                    proxy: proxy.to_owned(),
                    outcome,
                };
                self.calls.get_or_create(&labels).clone()
            }),
            duration: self.durations.get_or_create(&label).clone(),
            under_way: self.under_way.get_or_create(&label).clone(),
            waiting: self.waiting.get_or_create(&label).clone(),
            circuit: self.circuits.get_or_create(&label).clone(),
        }
    }
}

/// The figures of one proxy.
#[derive(Debug)]
pub(super) struct ProxyCounts {
    calls: [Counter; Outcome::ALL.len()],
    duration: Histogram,
    pub(super) under_way: Gauge,
    pub(super) waiting: Gauge,
    pub(super) circuit: Gauge,
}

impl ProxyCounts {
    pub(super) fn count(&self, outcome: Outcome) {
        self.calls[outcome as usize].inc();
    }

    pub(super) fn observe(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    #[cfg(test)]
    pub(super) fn value(&self, outcome: Outcome) -> u64 {
        self.calls[outcome as usize].get()
    }
}

/// Counts in a gauge as long as it lives.
pub(super) struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    pub(super) fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn outcomes_are_listed_by_their_numbers() {
        for (index, (outcome, _)) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
    }
}
