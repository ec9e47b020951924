//! What is counted of tokens.

use myriad_shard::TokenFault;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A connect or refresh command.
    Connection,
    /// A subscribe or sub_refresh command.
    Subscription,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Connection, Self::Subscription];

    fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Subscription => "subscription",
        }
    }
}

/// Results of a verification, as labels.
const RESULTS: [&str; 8] = [
    "valid",
    "invalid",
    "expired",
    "revoked",
    "other_user",
    "other_channel",
    "other_client",
    "unavailable",
];

/// Tokens by kind and result. Shards write to it.
#[derive(Debug, Default)]
pub(crate) struct Counts([[AtomicU64; RESULTS.len()]; Kind::ALL.len()]);

impl Counts {
    pub(super) fn count<T>(&self, kind: Kind, result: &Result<T, TokenFault>) {
        let nth = match result {
            Ok(_) => 0,
            Err(TokenFault::Invalid(_)) => 1,
            Err(TokenFault::Expired) => 2,
            Err(TokenFault::Revoked) => 3,
            Err(TokenFault::OtherUser) => 4,
            Err(TokenFault::OtherChannel) => 5,
            Err(TokenFault::OtherClient) => 6,
        };
        self.0[kind as usize][nth].fetch_add(1, Ordering::Relaxed);
    }

    /// A token that could not be verified now: there was no key, or no time.
    pub(super) fn count_unavailable(&self, kind: Kind) {
        self.0[kind as usize][RESULTS.len() - 1].fetch_add(1, Ordering::Relaxed);
    }
}

/// Shows the counts, at each scrape.
pub(crate) struct ShownTokens(pub(crate) Arc<super::Authority>);

impl fmt::Debug for ShownTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownTokens").finish_non_exhaustive()
    }
}

impl Collector for ShownTokens {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(
            "tokens",
            "Tokens of clients verified, by what they are for and by result",
            None,
            MetricType::Counter,
        )?;
        for kind in Kind::ALL {
            for (nth, result) in RESULTS.into_iter().enumerate() {
                let count = self.0.counts.0[kind as usize][nth].load(Ordering::Relaxed);
                let labels = [("kind", kind.label()), ("result", result)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "token_key_fetches",
            "Requests for sets of keys (jwks_public_endpoint), by result",
            None,
            MetricType::Counter,
        )?;
        let fetches = self.0.key_sets.fetches();
        for (result, count) in [("ok", &fetches.succeeded), ("failed", &fetches.failed)] {
            let count = count.load(Ordering::Relaxed);
            let labels = [("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let age = self.0.key_sets.age().unwrap_or_default().as_secs_f64();
        let gauge = ConstGauge::new(age);
        let description = "Age of the oldest set of keys in use; 0 without one";
        let name = "token_keys_age";
        gauge.encode(encoder.encode_descriptor(
            name,
            description,
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?)
    }
}
