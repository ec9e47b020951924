//! The metrics of TLS.

use super::Loaded;
use arc_swap::ArcSwap;
use myriad_tls_stage::{Failure, Figures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the stages count, and what the certificates say.
#[derive(Clone, Debug)]
pub(crate) struct ShownTls {
    pub(crate) stages: Arc<[Arc<Figures>]>,
    pub(crate) loaded: Arc<ArcSwap<Loaded>>,
}

/// The type of an empty set of labels.
type NoLabels = [(&'static str, &'static str); 0];

impl ShownTls {
    fn sum(&self, of: impl Fn(&Figures) -> &AtomicU64) -> u64 {
        let values = self.stages.iter().map(|stage| of(stage).load(Relaxed));
        values.sum()
    }

    fn encode_handshakes(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut made = encoder.encode_descriptor(
            "tls_handshakes",
            "TLS handshakes that ended well: full ones, and those that a ticket shortened",
            None,
            MetricType::Counter,
        )?;
        for (kind, value) in [
            ("full", self.sum(|stage| &stage.full)),
            ("resumed", self.sum(|stage| &stage.resumed)),
        ] {
            count(made.encode_family(&[("kind", kind)])?, value)?;
        }
        let mut failed = encoder.encode_descriptor(
            "tls_handshakes_failed",
            "TLS handshakes that failed, by reason",
            None,
            MetricType::Counter,
        )?;
        for failure in Failure::ALL {
            let value = self.sum(|stage| &stage.failed[failure as usize]);
            count(failed.encode_family(&[("reason", failure.label())])?, value)?;
        }
        for (name, help, value) in [
            (
                "tls_handshakes_legacy",
                "TLS handshakes that ended well with version 1.2",
                self.sum(|stage| &stage.legacy),
            ),
            (
                "tls_broken",
                "Connections that ended because of a TLS record behind their handshake",
                self.sum(|stage| &stage.broken),
            ),
        ] {
            let kind = MetricType::Counter;
            count(encoder.encode_descriptor(name, help, None, kind)?, value)?;
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut open = encoder.encode_descriptor(
            "tls_connections",
            "Connections of clients with TLS that shards have, by version; one with 1.2 costs some 3.5 KB",
            None,
            MetricType::Gauge,
        )?;
        for (version, value) in [
            ("1.3", self.sum(|stage| &stage.open)),
            ("1.2", self.sum(|stage| &stage.open_legacy)),
        ] {
            let labels = [("version", version)];
            open.encode_family(&labels)?.encode_gauge(&value)?;
        }
        for (name, help, value) in [
            (
                "tls_handshakes_under_way",
                "TLS handshakes under way",
                self.sum(|stage| &stage.under_way),
            ),
            (
                "tls_handshakes_waiting",
                "Connections that wait for their TLS handshake to begin",
                self.sum(|stage| &stage.waiting),
            ),
        ] {
            let kind = MetricType::Gauge;
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            metric.encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl Collector for ShownTls {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_handshakes(&mut encoder)?;
        self.encode_gauges(&mut encoder)?;
        let mut ends = encoder.encode_descriptor(
            "tls_certificate_expires",
            "Time until a certificate ends, by the first name in it; negative behind its end",
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        let now = super::pair::now();
        for shown in &self.loaded.load().certificates {
            let name = shown.names.first().map_or("", |name| name);
            let left = shown.expires_at - now;
            let labels = [("name", name)];
            ends.encode_family(&labels)?.encode_gauge(&left)?;
        }
        Ok(())
    }
}

fn count(mut encoder: MetricEncoder<'_>, value: u64) -> fmt::Result {
    encoder.encode_counter::<NoLabels, _, u64>(&value, None)
}
