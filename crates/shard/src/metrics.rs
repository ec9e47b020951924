//! What a shard counts. One writer, the shard; readers sum over shards.

use crate::limits::Limit;
use myriad_hub::{CloseReason, DefectScope, Transport};
use myriad_wire::centrifuge::ErrorCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The order of [`Metrics::closes`].
pub const CLOSE_REASONS: [CloseReason; CloseReason::ALL.len()] = CloseReason::ALL;

/// A counter or gauge with one writer: no locked instruction is needed to add.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The value now.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed) + more, Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// A histogram of durations in power-of-two buckets: bucket `i` counts durations of less than `2^i` microseconds.
#[derive(Debug, Default)]
pub struct Distribution {
    buckets: [Count; Self::BUCKETS],
    sum_ns: Count,
}

impl Distribution {
    /// Buckets; the last one takes everything from 2^25 us (33 s) up.
    pub const BUCKETS: usize = 27;

    pub(crate) fn record(&self, duration_ns: u64) {
        let bits = u64::BITS - (duration_ns / 1000).leading_zeros();
        self.buckets[(bits as usize).min(Self::BUCKETS - 1)].add(1);
        self.sum_ns.add(duration_ns);
    }

    /// Counts by bucket, each on its own (not cumulative).
    pub fn counts(&self) -> [u64; Self::BUCKETS] {
        std::array::from_fn(|index| self.buckets[index].value())
    }

    /// Upper bound of a bucket in seconds; infinite for the last.
    #[must_use]
    pub fn upper_bound_s(bucket: usize) -> f64 {
        if bucket + 1 >= Self::BUCKETS {
            f64::INFINITY
        } else {
            (1u64 << bucket) as f64 / 1e6
        }
    }

    /// Sum of all durations, nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns.value()
    }
}

/// One counter for each of [`CLOSE_REASONS`].
#[derive(Debug)]
pub struct Closes([Count; CLOSE_REASONS.len()]);

impl Default for Closes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl std::ops::Index<usize> for Closes {
    type Output = Count;

    fn index(&self, reason: usize) -> &Count {
        &self.0[reason]
    }
}

/// One shard's figures. Counters only grow; gauges say so.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Gauge: connections open now, including those in their handshake.
    pub connections: Count,
    /// Gauge: subscriptions of these connections.
    pub subscriptions: Count,
    /// Connections accepted.
    pub accepts: Count,
    /// Pauses of accepting, because descriptors or kernel memory ran out.
    pub accept_pauses: Count,
    /// WebSocket upgrades answered with 101.
    pub upgrades: Count,
    /// Streams opened, by [`Transport::ALL`]: WebSocket upgrades, and requests over HTTP whose answers go on.
    pub streams: [Count; Transport::ALL.len()],
    /// Of those streams, the ones that have ended.
    pub streams_ended: [Count; Transport::ALL.len()],
    /// Messages with commands for sessions that had gone, or never were.
    pub emulated_dropped: Count,
    /// Of those upgrades, the ones that agreed on compression.
    pub compressed_upgrades: Count,
    /// Requests that the shard answered with an error, by [`REFUSALS`].
    pub refusals: Refusals,
    /// Connections and commands beyond a limit on strangers, by [`Limit::ALL`].
    pub limited: [Count; Limit::ALL.len()],
    /// Requests handed over to the control plane.
    pub handed_over: Count,
    /// Requests not handed over, because the control plane was too busy or no descriptor was free.
    pub hand_overs_refused: Count,
    /// Connections that the control plane handed back, because their next request was for a shard.
    pub handed_back: Count,
    /// Connections that it handed back in vain: no descriptor was free, or the drain was over.
    pub hand_backs_refused: Count,
    /// Publications that got an offset from this shard, the home of their channels.
    pub publications: Count,
    /// Deliveries of one publication to one subscriber, sent or queued.
    pub deliveries: Count,
    /// Gauge: requests that are held until something comes.
    pub parked_polls: Count,
    /// Held requests, and others like them that found something at once, answered with data or with the end of their stream.
    pub poll_answers: Count,
    /// Held requests whose time was over, answered without data.
    pub poll_timeouts: Count,
    /// From the time when such a request was to be answered to the end of the turn that answered it.
    pub poll_lateness: Distribution,
    /// Requests that read what a stream keeps, answered.
    pub stream_reads: Count,
    /// Questions to homes about what a stream keeps.
    pub stream_questions: Count,
    /// Gauge: streams of events.
    pub event_streams: Count,
    /// Streams of events that were opened.
    pub event_streams_opened: Count,
    /// Publications dropped from the queues of slow consumers, for one subscriber each.
    pub dropped_publications: Count,
    /// Publications left out for one client each, because they are not JSON and the client reads only JSON.
    pub unreadable_publications: Count,
    /// Subscriptions of slow consumers ended, so that they recover.
    pub subscription_gaps: Count,
    /// Joins and leaves that were not delivered on this shard, because their channel had too much to deliver.
    pub dropped_announcements: Count,
    /// Compressed frames: one for each publication and window, shared by all clients with that window, and one for each echo.
    pub compressed_frames: Count,
    /// Bytes that compression saved on deliveries.
    pub compression_saved_bytes: Count,
    /// Messages from clients.
    pub messages_received: Count,
    /// Of those messages, the compressed ones.
    pub compressed_messages_received: Count,
    /// Commands of clients with sessions, including pongs.
    pub commands: Count,
    /// Of those commands, the ones answered with an error, by [`ErrorCode::ALL`].
    pub command_errors: [Count; ErrorCode::ALL.len()],
    /// Commands answered with an error of the application's.
    pub application_errors: Count,
    /// Connect commands answered with a result.
    pub client_connects: Count,
    /// Subscribe commands answered with a result.
    pub subscribes: Count,
    /// Commands that asked the control plane.
    pub asks: Count,
    /// Commands that could not: as many as may wait did, or there was no memory for one more.
    pub asks_refused: Count,
    /// Commands that the control plane had not answered by their deadline.
    pub ask_timeouts: Count,
    /// Answers of the control plane that came after the deadline.
    pub late_answers: Count,
    /// Gauge: commands that wait for the control plane, those of clients that have gone among them.
    pub asks_waiting: Count,
    /// Bytes from clients.
    pub received_bytes: Count,
    /// Bytes the kernel took for clients.
    pub sent_bytes: Count,
    /// Pings sent.
    pub pings: Count,
    /// Connections ended, by [`CLOSE_REASONS`].
    pub closes: Closes,
    /// Gauge: distinct filters of tags that subscriptions have.
    pub filters: Count,
    /// Publications that were compared with a filter: once for each distinct one in a slice of a delivery.
    pub filter_comparisons: Count,
    /// Statements about connections, channels and messages that did not hold, by [`DefectScope::LABELS`].
    pub defects: [Count; DefectScope::LABELS.len()],
    /// More of them, about what had one in the same turn, or too many for one turn.
    pub defects_left_out: Count,
    /// Gauge: bytes buffered for connections, in outbound queues and as partial input.
    pub buffered_bytes: Count,
    /// Gauge: those of them that are buffered for clients that have not connected.
    pub unconnected_bytes: Count,
    /// Clients that were ended before they connected, to make room.
    pub unconnected_ended: Count,
    /// Time that turns took, without waiting for events.
    pub turns: Distribution,
    /// Gauge: channels at home on this shard that have subscribers or a history.
    pub channels: Count,
    /// Gauge: publications that these channels keep.
    pub history_publications: Count,
    /// Gauge: bytes of these publications and of the records of channels with history.
    pub history_bytes: Count,
    /// Publications dropped before they expired, because these bytes had reached their limit.
    pub history_evictions: Count,
    /// Time from accepting a publication to submitting its last delivery on this node. The last shard counts it.
    pub publish_to_last_submit: Distribution,
}

/// A count for each of [`REFUSALS`].
#[derive(Debug)]
pub struct Refusals([Count; REFUSALS.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl std::ops::Deref for Refusals {
    type Target = [Count];

    fn deref(&self) -> &[Count] {
        &self.0
    }
}

/// Why a shard answered a request with an error: the labels of `wire`'s errors, then the shard's own.
pub const REFUSALS: [&str; 41] = [
    "head_too_long",
    "too_many_headers",
    "malformed_head",
    "transfer_coding",
    "framing",
    "expectation",
    "connect",
    "malformed_query",
    "method",
    "http_version",
    "host",
    "not_upgrade",
    "connection_header",
    "body",
    "websocket_key",
    "websocket_version",
    "channel",
    "namespace",
    "permission",
    "path",
    "anonymous",
    "origin",
    "foreign_host",
    "handshake_timeout",
    "full",
    "draining",
    "overloaded",
    "join_timeout",
    "proxy_protocol",
    "connections_per_address",
    "connection_rate_per_address",
    "connection_rate",
    "body_too_large",
    "connect_request",
    "offset",
    "live",
    "stream",
    "gone",
    "token",
    "pipelined",
    "reads",
];

impl Metrics {
    pub(crate) fn count_close(&self, reason: CloseReason) {
        self.closes[reason as usize].add(1);
    }

    /// Counts an error in a reply. The application's codes count together: it may have any number of them.
    pub(crate) fn count_command_error(&self, code: u32) {
        let known = ErrorCode::ALL.iter().find(|known| known.code() == code);
        match known {
            Some(known) => self.command_errors[known.index()].add(1),
            None => self.application_errors.add(1),
        }
    }

    pub(crate) fn count_limited(&self, limit: Limit) {
        self.limited[limit as usize].add(1);
    }

    /// Counts a refusal by its label, one of [`REFUSALS`].
    pub(crate) fn count_refusal(&self, label: &str) {
        let index = REFUSALS.iter().position(|known| *known == label);
        debug_assert!(index.is_some(), "{label} is not listed");
        if let Some(index) = index {
            self.refusals[index].add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Distribution, REFUSALS};
    use myriad_wire::handshake::Refusal;
    use myriad_wire::http::{
        BodyError, ChunkError, HeadError, HostRefused, OriginRefused, QueryError,
    };

    #[test]
    fn every_refusal_of_wire_is_listed() {
        let wire = Refusal::ALL.map(Refusal::label);
        let heads = [
            HeadError::TooLong.label(),
            HeadError::TooManyHeaders.label(),
            HeadError::Host.label(),
            HeadError::TransferCoding.label(),
            HeadError::Framing.label(),
            HeadError::Version.label(),
            HeadError::Expectation.label(),
            HeadError::Connect.label(),
            OriginRefused.label(),
            HostRefused.label(),
            QueryError.label(),
            BodyError::TooLarge.label(),
            BodyError::Chunk(ChunkError::Size).label(),
        ];
        for label in wire.into_iter().chain(heads) {
            assert!(REFUSALS.contains(&label), "{label}");
        }
    }

    #[test]
    fn durations_fall_below_their_bound() {
        let distribution = Distribution::default();
        for (ns, bucket) in [
            (0, 0),
            (999, 0),
            (1_000, 1),
            (1_999, 1),
            (2_000, 2),
            (1_000_000, 10),
            (u64::MAX / 2, 26),
        ] {
            let before = distribution.counts()[bucket];
            distribution.record(ns);
            assert_eq!(distribution.counts()[bucket], before + 1, "{ns}");
            assert!((ns as f64) < Distribution::upper_bound_s(bucket) * 1e9);
        }
    }
}
