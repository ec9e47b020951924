//! The most that some gauges may reach. An alert compares the two, and nobody has to write a limit down a second time.

use super::{Description, describe};
use myriad_shard::ProcessLimits;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// Reads a limit.
type Field = fn(&ProcessLimits) -> u64;

/// Each has the name of its gauge, with `max` before the unit.
const CEILINGS: [(Description, Field); 5] = [
    (
        (
            "connections_max",
            None,
            "Connections that are let in at most",
        ),
        |limits| limits.connections_max,
    ),
    (
        (
            "buffered_max",
            Some(Unit::Bytes),
            "Bytes that may be buffered for connections at most",
        ),
        |limits| limits.buffered_bytes_max,
    ),
    (
        (
            "unconnected_buffered_max",
            Some(Unit::Bytes),
            "Bytes that may be buffered at most for clients that have not connected",
        ),
        |limits| limits.unconnected_bytes_max,
    ),
    (
        (
            "publications_in_flight_max",
            Some(Unit::Bytes),
            "Bytes of publications at most that are not yet submitted to all subscribers",
        ),
        |limits| limits.publication_bytes_max,
    ),
    (
        (
            "history_max",
            Some(Unit::Bytes),
            "Bytes of history at most, in equal parts for all shards",
        ),
        |limits| limits.history_bytes_max,
    ),
];

pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, limits: &ProcessLimits) -> fmt::Result {
    for (description, field) in CEILINGS {
        describe(encoder, &description, MetricType::Gauge)?.encode_gauge(&field(limits))?;
    }
    Ok(())
}
