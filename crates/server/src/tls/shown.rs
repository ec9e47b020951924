//! The metrics of TLS.

use super::{Loaded, Orders, Shown};
use arc_swap::ArcSwap;
use myriad_tls_stage::{Failure, Figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What the stages count, and what the certificates say.
#[derive(Clone, Debug)]
pub(crate) struct ShownTls {
    pub(crate) stages: Arc<[Arc<Figures>]>,
    pub(crate) loaded: Arc<ArcSwap<Loaded>>,
    pub(crate) orders: Option<Arc<Orders>>,
    pub(crate) is_in_force: Arc<AtomicBool>,
}

impl ShownTls {
    fn sum(&self, of: impl Fn(&Figures) -> &AtomicU64) -> u64 {
        let values = self.stages.iter().map(|stage| of(stage).load(Relaxed));
        values.sum()
    }

    fn counter(&self, of: impl Fn(&Figures) -> &AtomicU64) -> ConstCounter<u64> {
        ConstCounter::new(self.sum(of))
    }

    fn gauge(&self, of: impl Fn(&Figures) -> &AtomicU64) -> ConstGauge<u64> {
        ConstGauge::new(self.sum(of))
    }

    fn encode_handshakes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        family(
            encoder,
            "tls_handshakes",
            "TLS handshakes that ended well: full ones, and those that a ticket shortened",
            "kind",
            [
                ("full", self.counter(|stage| &stage.full)),
                ("resumed", self.counter(|stage| &stage.resumed)),
            ],
        )?;
        family(
            encoder,
            "tls_handshakes_failed",
            "TLS handshakes that failed, by reason",
            "reason",
            Failure::ALL.map(|failure| {
                let count = self.counter(|stage| &stage.failed[failure as usize]);
                (failure.label(), count)
            }),
        )?;
        single(
            encoder,
            "tls_handshakes_legacy",
            "TLS handshakes that ended well with version 1.2",
            &self.counter(|stage| &stage.legacy),
        )?;
        single(
            encoder,
            "tls_broken",
            "Connections that ended because of a TLS record behind their handshake",
            &self.counter(|stage| &stage.broken),
        )
    }
}

impl ShownTls {
    fn encode_orders(&self, encoder: &mut DescriptorEncoder<'_>, orders: &Orders) -> fmt::Result {
        let counter = |count: &AtomicU64| ConstCounter::new(count.load(Relaxed));
        family(
            encoder,
            "tls_acme_orders",
            "Certificates ordered from an authority, by what came of it",
            "result",
            [
                ("issued", counter(&orders.issued)),
                ("refused", counter(&orders.refused)),
                ("unreachable", counter(&orders.unreachable)),
                ("unsaved", counter(&orders.unsaved)),
            ],
        )?;
        single(
            encoder,
            "tls_acme_challenges",
            "TLS handshakes in which an authority asked whether a name is ours, and got an answer",
            &self.counter(|stage| &stage.challenges),
        )
    }
}

impl Collector for ShownTls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_handshakes(&mut encoder)?;
        if let Some(orders) = &self.orders {
            self.encode_orders(&mut encoder, orders)?;
        }
        family(
            &mut encoder,
            "tls_connections",
            "Connections of clients with TLS that shards have, by version; one with 1.2 costs some 3.5 KB",
            "version",
            [
                ("1.3", self.gauge(|stage| &stage.open)),
                ("1.2", self.gauge(|stage| &stage.open_legacy)),
            ],
        )?;
        single(
            &mut encoder,
            "tls_handshakes_under_way",
            "TLS handshakes under way",
            &self.gauge(|stage| &stage.under_way),
        )?;
        single(
            &mut encoder,
            "tls_handshakes_signing",
            "TLS handshakes whose signature waits for a thread, or is being made by one",
            &self.gauge(|stage| &stage.signing),
        )?;
        single(
            &mut encoder,
            "tls_handshakes_waiting",
            "Connections that wait for their TLS handshake to begin",
            &self.gauge(|stage| &stage.waiting),
        )?;
        single(
            &mut encoder,
            "tls_files_in_force",
            "1 if the files of TLS that were read last are in force, 0 if they cannot be used and those before are",
            &ConstGauge::new(u64::from(self.is_in_force.load(Relaxed))),
        )?;
        let now = super::pair::now();
        let mut metric = encoder.encode_descriptor(
            "tls_certificate_expires",
            "Time until a certificate ends, by the first name in it; negative behind its end",
            Some(&Unit::Seconds),
            ConstGauge::new(now).metric_type(),
        )?;
        for (name, end) in ends(&self.loaded.load().certificates) {
            let labels = [("name", name)];
            ConstGauge::new(end - now).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// When certificates end, by the first name in each. Of several with one name it is the first that ends: a metric has one value.
fn ends(certificates: &[Shown]) -> BTreeMap<&str, i64> {
    let mut ends = BTreeMap::new();
    for shown in certificates {
        let name = shown.names.first().map_or("", |name| name);
        let end = ends.entry(name).or_insert(shown.expires_at);
        *end = shown.expires_at.min(*end);
    }
    ends
}

fn single(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// Metrics of one name, by a label.
fn family<const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    metrics: [(&str, impl EncodeMetric); N],
) -> fmt::Result {
    let kind = metrics[0].1.metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, metric) in &metrics {
        metric.encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn certificates_with_one_name_have_one_end() {
        let shown = |names: &[&str], expires_at| Shown {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            begins_at: 0,
            expires_at,
            is_renewed: false,
            path: PathBuf::new(),
            remarks: Vec::new(),
        };
        let certificates = [
            shown(&["a.example", "b.example"], 30),
            shown(&["a.example"], 20),
            shown(&["b.example"], 40),
            shown(&[], 50),
            shown(&[], 60),
        ];
        let expected = [("", 50), ("a.example", 20), ("b.example", 40)];
        assert_eq!(ends(&certificates), BTreeMap::from(expected));
    }
}
