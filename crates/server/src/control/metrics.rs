//! `GET /metrics`: what shards count, what the control plane counts, and the process, as OpenMetrics text.

mod ceilings;
mod process;
mod reloads;
mod shown;

use super::Cluster;
use super::api::Method;
use super::places::Eviction;
use crate::auth::{Authority, ShownTokens};
use crate::proxy::ProxyMetrics;
use crate::tls::{self, ShownTls};
use crate::webhooks::WebhookCounts;
use axum::body::Bytes;
use axum::http::StatusCode;
use myriad_shard::{
    CLOSE_REASONS, Count, DefectScope, Distribution, Limit, Mesh, Metrics, REFUSALS, Transport,
};
use myriad_wire::centrifuge::ErrorCode;
use process::OwnProcess;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use reloads::ReloadOutcome;
use rustix::thread::Pid;
pub(super) use shown::metrics;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How old metrics may be while the control plane is crowded.
const TEXT_AGE_MAX: Duration = Duration::from_secs(1);

/// The registry and the counters that requests write to.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Registry,
    requests: RequestCounts,
    calls: CallCounts,
    connections: ConnectionCounts,
    bodies: BodyCounts,
    webhooks: WebhookCounts,
    proxies: ProxyMetrics,
    reloads: ReloadOutcome,
    tables: Arc<OnceLock<Vec<Pid>>>,
    last_text: Mutex<Option<(Instant, Bytes)>>,
}

/// Requests answered, by route and status; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestCounts(Family<RequestLabels, Counter>);

impl RequestCounts {
    pub(crate) fn count(&self, route: &'static str, status: StatusCode) {
        self.0
            .get_or_create(&RequestLabels {
                route,
                status: status.as_u16(),
            })
            .inc();
    }
}

/// Calls of the API's methods that were carried out, by key; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallCounts(Family<CallLabels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    key: String,
    method: &'static str,
}

impl CallCounts {
    /// Keys have the names of the configuration, so that strangers can make no label.
    pub(super) fn count(&self, key: &str, method: Method, count: u64) {
        let labels = CallLabels {
            key: key.to_owned(),
            method: method.name(),
        };
        self.0.get_or_create(&labels).inc_by(count);
    }
}

/// The control plane's connections; all clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionCounts {
    open: Gauge,
    is_crowded: Arc<AtomicBool>,
    evictions: Family<EvictionLabels, Counter>,
}

impl ConnectionCounts {
    fn registered(registry: &mut Registry) -> Self {
        let counts = Self::default();
        for reason in Eviction::ALL {
            // A reason that has not happened yet is shown as 0.
            drop(counts.evictions.get_or_create(&reason.into()));
        }
        registry.register(
            "api_connections",
            "Connections of the control plane",
            counts.open.clone(),
        );
        registry.register(
            "api_evictions",
            "Connections of the control plane ended to make room for others, by reason",
            counts.evictions.clone(),
        );
        counts
    }

    pub(super) fn set_open(&self, count: usize, is_crowded: bool) {
        self.open.set(i64::try_from(count).unwrap_or(i64::MAX));
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    pub(super) fn count_eviction(&self, reason: Eviction) {
        self.evictions.get_or_create(&reason.into()).inc();
    }
}

/// The memory for bodies of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyCounts {
    bytes: Gauge,
    evictions: Counter,
}

impl BodyCounts {
    fn registered(registry: &mut Registry) -> Self {
        let counts = Self::default();
        registry.register_with_unit(
            "api_bodies",
            "Bodies of requests in memory",
            Unit::Bytes,
            counts.bytes.clone(),
        );
        registry.register(
            "api_bodies_evicted",
            "Requests whose bodies were ended under way, because their memory was needed for others",
            counts.evictions.clone(),
        );
        counts
    }

    pub(super) fn set_bytes(&self, bytes: usize) {
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn count_eviction(&self) {
        self.evictions.inc();
    }

    #[cfg(test)]
    pub(super) fn evictions(&self) -> u64 {
        self.evictions.get()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictionLabels {
    reason: &'static str,
}

impl From<Eviction> for EvictionLabels {
    fn from(reason: Eviction) -> Self {
        Self {
            reason: reason.label(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

impl Registered {
    /// Everything that is shown of a program built from this commit.
    pub(crate) fn new(
        mesh: Mesh,
        tokens: Arc<Authority>,
        cluster: Option<&Cluster>,
        commit: &'static str,
    ) -> Self {
        let mut registry = Registry::default();
        let requests = RequestCounts::default();
        let tables = Arc::<OnceLock<Vec<Pid>>>::default();
        let ours = registry.sub_registry_with_prefix("myriad");
        ours.register(
            "api_requests",
            "Requests to the control plane, by route and status",
            requests.0.clone(),
        );
        let calls = CallCounts::default();
        ours.register(
            "api_calls",
            "Calls of the API's methods, by the name of the key and the method; those of a batch are counted one by one",
            calls.0.clone(),
        );
        let connections = ConnectionCounts::registered(ours);
        let bodies = BodyCounts::registered(ours);
        let webhooks = WebhookCounts::registered(ours);
        let proxies = ProxyMetrics::registered(ours);
        if let Some(cluster) = cluster {
            cluster.broker.counts.register(ours);
            cluster.nodes.counts.register(ours);
        }
        let reloads = ReloadOutcome::registered(ours, commit);
        ours.register_collector(Box::new(Shards { mesh }));
        ours.register_collector(Box::new(ShownTokens(tokens)));
        registry.register_collector(Box::new(OwnProcess {
            tables: Arc::clone(&tables),
        }));
        Self {
            registry,
            requests,
            calls,
            connections,
            bodies,
            webhooks,
            proxies,
            reloads,
            tables,
            last_text: Mutex::default(),
        }
    }

    /// Shows what becomes of clients with TLS.
    pub(crate) fn show_tls(&mut self, running: &tls::Running) {
        let ours = self.registry.sub_registry_with_prefix("myriad");
        ours.register_collector(Box::new(ShownTls {
            stages: Arc::clone(&running.figures),
            loaded: Arc::clone(&running.loaded),
            orders: running.orders.clone(),
            is_in_force: Arc::clone(&running.is_in_force),
        }));
    }

    /// Where requests are counted.
    pub(crate) fn requests(&self) -> &RequestCounts {
        &self.requests
    }

    /// Where calls of methods are counted.
    pub(super) fn calls(&self) -> &CallCounts {
        &self.calls
    }

    /// Where the control plane's connections are counted.
    pub(crate) fn connections(&self) -> &ConnectionCounts {
        &self.connections
    }

    /// Where bodies of requests are counted.
    pub(super) fn bodies(&self) -> &BodyCounts {
        &self.bodies
    }

    /// Where webhooks are counted.
    pub(crate) fn webhooks(&self) -> &WebhookCounts {
        &self.webhooks
    }

    /// Where calls to the application are counted.
    pub(crate) fn proxies(&self) -> &ProxyMetrics {
        &self.proxies
    }

    /// Where it is noted how reloads end.
    pub(crate) fn reloads(&self) -> &ReloadOutcome {
        &self.reloads
    }

    /// Sets the threads that have descriptor tables of their own, once all run.
    pub(crate) fn know_tables(&self, threads: Vec<Pid>) {
        // Said once, at the start; a second time would say the same.
        let _ = self.tables.set(threads);
    }
}

impl Registered {
    /// The metrics as text. They are current, or up to a second old while strangers crowd the control plane: no other
    /// answer without a key takes as long to write.
    fn text(&self) -> Result<Bytes, fmt::Error> {
        let mut last = self
            .last_text
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((written_at, text)) = &*last
            && self.connections.is_crowded.load(Ordering::Relaxed)
            && written_at.elapsed() < TEXT_AGE_MAX
        {
            return Ok(text.clone());
        }
        let mut text = String::with_capacity(16 << 10);
        encode(&mut text, &self.registry)?;
        let text = Bytes::from(text);
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

/// The shards' figures, summed at each scrape.
struct Shards {
    mesh: Mesh,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("count", &self.mesh.shard_count())
            .finish_non_exhaustive()
    }
}

/// A metric's name without prefix and suffixes, its unit and its help.
type Description = (&'static str, Option<Unit>, &'static str);
/// Reads it from a shard's figures.
type Field = fn(&Metrics) -> &Count;

const COUNTERS: [(Description, Field); 37] = [
    (
        (
            "tags_filter_comparisons",
            None,
            "Publications compared with a filter of tags, once for each distinct filter",
        ),
        |shard| &shard.filter_comparisons,
    ),
    (
        (
            "poll_answers",
            None,
            "Long polls answered with data, or with the end of their stream",
        ),
        |shard| &shard.poll_answers,
    ),
    (
        (
            "poll_timeouts",
            None,
            "Long polls answered without data, because their time was over",
        ),
        |shard| &shard.poll_timeouts,
    ),
    (
        (
            "stream_reads",
            None,
            "Requests answered that read what a stream keeps",
        ),
        |shard| &shard.stream_reads,
    ),
    (
        (
            "stream_questions",
            None,
            "Questions to homes of channels about what a stream keeps",
        ),
        |shard| &shard.stream_questions,
    ),
    (
        ("event_streams_opened", None, "Streams of events opened"),
        |shard| &shard.event_streams_opened,
    ),
    (("accepts", None, "Connections accepted"), |shard| {
        &shard.accepts
    }),
    (
        (
            "accept_pauses",
            None,
            "Times accepting paused because descriptors or kernel memory ran out",
        ),
        |shard| &shard.accept_pauses,
    ),
    (
        ("upgrades", None, "WebSocket upgrades answered with 101"),
        |shard| &shard.upgrades,
    ),
    (
        (
            "emulated_dropped",
            None,
            "Messages to /emulation for sessions that had gone, or never were",
        ),
        |shard| &shard.emulated_dropped,
    ),
    (
        (
            "compressed_upgrades",
            None,
            "WebSocket upgrades that agreed to compress messages",
        ),
        |shard| &shard.compressed_upgrades,
    ),
    (
        (
            "hand_overs",
            None,
            "Requests handed over from shards to the control plane",
        ),
        |shard| &shard.handed_over,
    ),
    (
        (
            "hand_overs_refused",
            None,
            "Requests that could not be handed over: the control plane was too busy, or no descriptor was free",
        ),
        |shard| &shard.hand_overs_refused,
    ),
    (
        (
            "hand_backs",
            None,
            "Connections handed back from the control plane to shards",
        ),
        |shard| &shard.handed_back,
    ),
    (
        (
            "hand_backs_refused",
            None,
            "Connections that could not be handed back: no descriptor was free, or the drain was over",
        ),
        |shard| &shard.hand_backs_refused,
    ),
    (
        (
            "publications",
            None,
            "Publications that got an offset in their channel",
        ),
        |shard| &shard.publications,
    ),
    (
        (
            "deliveries",
            None,
            "Publications submitted to one subscriber each",
        ),
        |shard| &shard.deliveries,
    ),
    (
        (
            "dropped_publications",
            None,
            "Publications dropped from the queues of slow consumers, each for one subscriber",
        ),
        |shard| &shard.dropped_publications,
    ),
    (
        (
            "unreadable_publications",
            None,
            "Publications left out for one client each, because they are not JSON and the client reads only JSON",
        ),
        |shard| &shard.unreadable_publications,
    ),
    (
        (
            "subscription_gaps",
            None,
            "Subscriptions of slow consumers ended so that they recover",
        ),
        |shard| &shard.subscription_gaps,
    ),
    (
        (
            "dropped_announcements",
            None,
            "Joins and leaves that a shard did not deliver, because their channel had too much to deliver",
        ),
        |shard| &shard.dropped_announcements,
    ),
    (
        (
            "commands",
            None,
            "Commands of Centrifuge clients, pongs among them",
        ),
        |shard| &shard.commands,
    ),
    (
        (
            "client_connects",
            None,
            "Connect commands of Centrifuge clients answered with a result",
        ),
        |shard| &shard.client_connects,
    ),
    (
        (
            "client_subscribes",
            None,
            "Subscribe commands of Centrifuge clients answered with a result",
        ),
        |shard| &shard.subscribes,
    ),
    (
        (
            "asks",
            None,
            "Commands of Centrifuge clients that asked the control plane",
        ),
        |shard| &shard.asks,
    ),
    (
        (
            "unconnected_ended",
            None,
            "Clients that were ended before they connected, because there was no memory for all of those",
        ),
        |shard| &shard.unconnected_ended,
    ),
    (
        (
            "asks_refused",
            None,
            "Commands that could not ask the control plane: too many waited, or there was no memory",
        ),
        |shard| &shard.asks_refused,
    ),
    (
        (
            "ask_timeouts",
            None,
            "Commands that the control plane had not answered by their deadline",
        ),
        |shard| &shard.ask_timeouts,
    ),
    (
        (
            "late_answers",
            None,
            "Answers of the control plane that came after the deadline and were dropped",
        ),
        |shard| &shard.late_answers,
    ),
    (
        ("messages_received", None, "Messages from clients"),
        |shard| &shard.messages_received,
    ),
    (
        (
            "compressed_messages_received",
            None,
            "Compressed messages from clients",
        ),
        |shard| &shard.compressed_messages_received,
    ),
    (
        (
            "compressed_frames",
            None,
            "Compressed frames made, each for all clients of its window",
        ),
        |shard| &shard.compressed_frames,
    ),
    (
        (
            "compression_saved",
            Some(Unit::Bytes),
            "Bytes saved in deliveries by compression",
        ),
        |shard| &shard.compression_saved_bytes,
    ),
    (
        (
            "history_evictions",
            None,
            "Publications dropped from history before their time, to keep the limit of its bytes",
        ),
        |shard| &shard.history_evictions,
    ),
    (
        ("received", Some(Unit::Bytes), "Bytes from clients"),
        |shard| &shard.received_bytes,
    ),
    (
        (
            "sent",
            Some(Unit::Bytes),
            "Bytes for clients that the kernel accepted",
        ),
        |shard| &shard.sent_bytes,
    ),
    (("pings", None, "Pings sent"), |shard| &shard.pings),
];

const GAUGES: [(Description, Field); 11] = [
    (
        (
            "tags_filters",
            None,
            "Distinct filters of tags that subscriptions have on their shards",
        ),
        |shard| &shard.filters,
    ),
    (
        (
            "parked_polls",
            None,
            "Requests for streams that are held until something comes",
        ),
        |shard| &shard.parked_polls,
    ),
    (("event_streams", None, "Streams of events open"), |shard| {
        &shard.event_streams
    }),
    (
        (
            "connections",
            None,
            "Connections open, including those in their handshake",
        ),
        |shard| &shard.connections,
    ),
    (
        (
            "subscriptions",
            None,
            "Subscriptions of these connections to channels",
        ),
        |shard| &shard.subscriptions,
    ),
    (
        (
            "buffered",
            Some(Unit::Bytes),
            "Bytes buffered for connections, outbound and partial input",
        ),
        |shard| &shard.buffered_bytes,
    ),
    (
        (
            "unconnected_buffered",
            Some(Unit::Bytes),
            "Bytes buffered for clients that have not connected",
        ),
        |shard| &shard.unconnected_bytes,
    ),
    (
        (
            "asks_waiting",
            None,
            "Commands that wait for the control plane",
        ),
        |shard| &shard.asks_waiting,
    ),
    (
        ("channels", None, "Channels with subscribers or a history"),
        |shard| &shard.channels,
    ),
    (
        (
            "history_publications",
            None,
            "Publications that channels keep",
        ),
        |shard| &shard.history_publications,
    ),
    (
        (
            "history",
            Some(Unit::Bytes),
            "Bytes of publications that channels keep, and of the records of these channels",
        ),
        |shard| &shard.history_bytes,
    ),
];

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let shards = self.mesh.metrics();
        for (description, field) in COUNTERS {
            describe(&mut encoder, &description, MetricType::Counter)?
                .encode_counter::<NoLabels, _, u64>(&sum(shards, field), None)?;
        }
        for (description, field) in GAUGES {
            describe(&mut encoder, &description, MetricType::Gauge)?
                .encode_gauge(&sum(shards, field))?;
        }
        ceilings::encode(&mut encoder, self.mesh.limits())?;
        self.encode_rest(&mut encoder)
    }
}

impl Shards {
    /// What the limits on strangers count.
    fn encode_limits(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let shards = self.mesh.metrics();
        let limited = (
            "limited",
            None,
            "Connections and commands beyond a limit on strangers, by limit",
        );
        let mut family = describe(encoder, &limited, MetricType::Counter)?;
        for limit in Limit::ALL {
            let counts = shards.iter().map(|shard| &shard.limited[limit as usize]);
            labelled_by(
                &mut family,
                "limit",
                limit.label(),
                counts.map(Count::value).sum(),
            )?;
        }
        let (addresses, forgotten) = self.mesh.counted_addresses();
        let counted = (
            "counted_addresses",
            None,
            "Addresses of clients whose connections or attempts are counted",
        );
        describe(encoder, &counted, MetricType::Gauge)?.encode_gauge(&addresses)?;
        let evicted = (
            "counted_addresses_evicted",
            None,
            "Addresses forgotten too early, because too many were counted",
        );
        describe(encoder, &evicted, MetricType::Counter)?
            .encode_counter::<NoLabels, _, u64>(&forgotten, None)
    }

    /// Streams by transport. Transports that share a name differ in their format only.
    fn encode_transports(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let mut by_name: Vec<(&str, u64, u64)> = Vec::new();
        for transport in Transport::ALL {
            let index = transport as usize;
            let shards = self.mesh.metrics().iter();
            // The end first: it was counted after the begin.
            let ended: u64 = shards
                .clone()
                .map(|shard| shard.streams_ended[index].value())
                .sum();
            let opened: u64 = shards.map(|shard| shard.streams[index].value()).sum();
            match by_name.iter_mut().find(|known| known.0 == transport.name()) {
                Some(known) => (known.1, known.2) = (known.1 + opened, known.2 + ended),
                // Readers of streams have counters of their own.
                None if transport == Transport::Http || transport.reads_streams() => {}
                None => by_name.push((transport.name(), opened, ended)),
            }
        }
        let open = ("streams", None, "Streams open now, by transport");
        let mut family = describe(encoder, &open, MetricType::Gauge)?;
        for (name, opened, ended) in &by_name {
            family
                .encode_family(&[("transport", *name)])?
                .encode_gauge(&opened.saturating_sub(*ended))?;
        }
        let opened = ("streams_opened", None, "Streams opened, by transport");
        let mut family = describe(encoder, &opened, MetricType::Counter)?;
        for (name, opened, _) in &by_name {
            labelled_by(&mut family, "transport", name, *opened)?;
        }
        Ok(())
    }

    /// What is to be zero for ever.
    fn encode_defects(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let shards = self.mesh.metrics();
        let defects = (
            "defects",
            None,
            "Faults of the server that ended something instead of the process, by what they were about",
        );
        let mut family = describe(encoder, &defects, MetricType::Counter)?;
        for (index, scope) in DefectScope::LABELS.into_iter().enumerate() {
            let counts = shards.iter().map(|shard| shard.defects[index].value());
            labelled_by(&mut family, "scope", scope, counts.sum())?;
        }
        let more = shards.iter().map(|shard| shard.defects_left_out.value());
        labelled_by(&mut family, "scope", "repeated", more.sum())
    }

    fn encode_rest(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let shards = self.mesh.metrics();
        let waiting = (
            "inbox_messages",
            None,
            "Messages from other shards and the control plane that wait in inboxes",
        );
        describe(encoder, &waiting, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(self.mesh.waiting_messages()).unwrap_or(i64::MAX))?;
        self.encode_transports(encoder)?;
        let closes = ("closes", None, "Connections ended, by reason");
        let mut family = describe(encoder, &closes, MetricType::Counter)?;
        for (index, reason) in CLOSE_REASONS.iter().enumerate() {
            let count = shards.iter().map(|shard| shard.closes[index].value()).sum();
            labelled(&mut family, reason.label(), count)?;
        }
        self.encode_defects(encoder)?;
        let errors = (
            "command_errors",
            None,
            "Commands of Centrifuge clients answered with an error, by code",
        );
        let mut family = describe(encoder, &errors, MetricType::Counter)?;
        for code in ErrorCode::ALL {
            let counts = shards
                .iter()
                .map(|shard| &shard.command_errors[code.index()]);
            let count = counts.map(Count::value).sum();
            labelled_by(&mut family, "code", &code.code().to_string(), count)?;
        }
        let count = shards.iter().map(|shard| shard.application_errors.value());
        labelled_by(&mut family, "code", "application", count.sum())?;
        let refused = (
            "upgrades_refused",
            None,
            "Requests a shard answered with an error, by reason",
        );
        let mut family = describe(encoder, &refused, MetricType::Counter)?;
        for (index, reason) in REFUSALS.iter().enumerate() {
            let count = shards
                .iter()
                .map(|shard| shard.refusals[index].value())
                .sum();
            labelled(&mut family, reason, count)?;
        }
        self.encode_limits(encoder)?;
        let in_flight = (
            "publications_in_flight",
            Some(Unit::Bytes),
            "Bytes of publications that are not yet submitted to all subscribers",
        );
        describe(encoder, &in_flight, MetricType::Gauge)?
            .encode_gauge(&self.mesh.publication_bytes())?;
        let count = ("shards", None, "Shards (threads) of this server");
        describe(encoder, &count, MetricType::Gauge)?
            .encode_gauge(&(self.mesh.shard_count() as u64))?;
        encode_durations(encoder, shards)
    }
}

/// The type of an empty set of labels.
type NoLabels = [(&'static str, &'static str); 0];

fn describe<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    (name, unit, help): &'e Description,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, unit.as_ref(), kind)
}

fn labelled(family: &mut MetricEncoder, reason: &'static str, count: u64) -> fmt::Result {
    labelled_by(family, "reason", reason, count)
}

fn labelled_by(
    family: &mut MetricEncoder,
    name: &'static str,
    value: &str,
    count: u64,
) -> fmt::Result {
    family
        .encode_family(&[(name, value)])?
        .encode_counter::<NoLabels, _, u64>(&count, None)
}

fn sum(shards: &[Metrics], field: Field) -> u64 {
    shards.iter().map(|shard| field(shard).value()).sum()
}

/// The histograms of the shards.
fn encode_durations(encoder: &mut DescriptorEncoder, shards: &[Metrics]) -> fmt::Result {
    let turns = (
        "turn_duration",
        Some(Unit::Seconds),
        "Time of one turn of a shard's loop, without its wait",
    );
    histogram(encoder, &turns, shards, |shard| &shard.turns)?;
    let last = (
        "publish_to_last_submit",
        Some(Unit::Seconds),
        "Time from the acceptance of a publication to the submission of its last delivery",
    );
    histogram(encoder, &last, shards, |shard| {
        &shard.publish_to_last_submit
    })?;
    let late = (
        "poll_lateness",
        Some(Unit::Seconds),
        "Time from the end of a long poll's time to the submission of its answer without data",
    );
    histogram(encoder, &late, shards, |shard| &shard.poll_lateness)
}

fn histogram(
    encoder: &mut DescriptorEncoder,
    description: &Description,
    shards: &[Metrics],
    field: fn(&Metrics) -> &Distribution,
) -> fmt::Result {
    let mut buckets = [(0.0, 0); Distribution::BUCKETS];
    for (index, bucket) in buckets.iter_mut().enumerate() {
        // The encoder knows the infinite bucket by the largest finite number.
        bucket.0 = Distribution::upper_bound_s(index).min(f64::MAX);
    }
    for shard in shards {
        for (bucket, count) in buckets.iter_mut().zip(field(shard).counts()) {
            bucket.1 += count;
        }
    }
    let sum_ns: u64 = shards.iter().map(|shard| field(shard).sum_ns()).sum();
    let count = buckets.iter().map(|bucket| bucket.1).sum();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of seconds is read as a rate; 15 digits do"
    )]
    let sum_s = sum_ns as f64 / 1e9;
    describe(encoder, description, MetricType::Histogram)?
        .encode_histogram::<NoLabels>(sum_s, count, &buckets, None)
}
