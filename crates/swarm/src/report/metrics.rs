//! The run as it goes on, in the text format of Prometheus: `--metrics-listen`.
//!
//! The run sets its figures once a second. A thread of its own answers whoever asks, so that a slow reader holds up nothing.

use crate::engine::flows::figures::FlowFigures;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use myriad_report::Sample;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Readers at once; more wait in the backlog.
const READERS_MAX: usize = 16;

/// How long a reader may take for its request, and stay without one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

type Figure = Gauge<f64, AtomicU64>;
type Labels = Vec<(&'static str, String)>;

/// What has been counted since the run began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub opened: u64,
    pub messages: u64,
    pub sent: u64,
    pub answered: u64,
    pub lost: u64,
    pub missed: u64,
    pub stalled: u64,
    pub stall_ended: u64,
    pub vanished: u64,
    pub vanished_ended: u64,
}

/// The figures that are told.
#[derive(Debug)]
pub(crate) struct Metrics {
    connections: Figure,
    connecting: Figure,
    wanted: Figure,
    opened: Counter,
    messages: Counter,
    sent: Counter,
    answered: Counter,
    lost: Counter,
    missed: Counter,
    stalled: Counter,
    stall_ended: Counter,
    vanished: Counter,
    vanished_ended: Counter,
    errors: Family<Labels, Counter>,
    flow_sent: Family<Labels, Counter>,
    flow_received: Family<Labels, Counter>,
    flow_missing: Family<Labels, Counter>,
    latency: Family<Labels, Figure>,
    cpu_share: Figure,
    machine_cpu_share: Figure,
    memory: Figure,
}

impl Metrics {
    /// Listens, and answers on a thread of its own until the process ends. Also returns where.
    ///
    /// # Errors
    /// Nobody can listen there, or the thread cannot be started.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let local = listener.local_addr()?;
        let mut registry = Registry::with_prefix("myriad_swarm");
        let metrics = Self::registered(&mut registry);
        let registry = Arc::new(registry);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || runtime.block_on(serve(listener, registry)))?;
        Ok((metrics, local))
    }

    fn registered(registry: &mut Registry) -> Self {
        let mut gauge = |name: &str, help: &str| {
            let gauge = Figure::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let connections = gauge("connections", "Clients that are open");
        let connecting = gauge("connecting", "Connections under way");
        let wanted = gauge("connections_wanted", "Clients that the run is to have");
        let cpu_share = gauge(
            "cpu_share",
            "Share of the processors that the crowd's threads can use, in the last second",
        );
        let machine_cpu_share = gauge(
            "machine_cpu_share",
            "Share of all processors of the machine, in the last second",
        );
        let memory = gauge("memory_bytes", "Anonymous memory of the crowd's process");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let metrics = Self {
            connections,
            connecting,
            wanted,
            opened: counter("connects", "Clients that connected"),
            messages: counter("messages", "Data messages received"),
            sent: counter(
                "sent",
                "Messages and requests of all loads but pushes that were sent",
            ),
            answered: counter("answered", "Their answers"),
            lost: counter(
                "lost",
                "Open connections that the server or the network ended",
            ),
            missed: counter("missed", "Deliveries of finished pushes that did not come"),
            stalled: counter("stalled", "Clients that stopped reading"),
            stall_ended: counter(
                "stall_ended",
                "Connections that ended while their client stalled, or later",
            ),
            vanished: counter("vanished", "Clients that were gone without a word"),
            vanished_ended: counter(
                "vanished_ended",
                "Connections of vanished clients whose end came from the server",
            ),
            errors: Family::default(),
            flow_sent: Family::default(),
            flow_received: Family::default(),
            flow_missing: Family::default(),
            latency: Family::default(),
            cpu_share,
            machine_cpu_share,
            memory,
        };
        registry.register("errors", "Failures by kind", metrics.errors.clone());
        metrics.register_flows(registry);
        registry.register(
            "latency_seconds",
            "Times of the last second by what was timed; quantile 1 is the longest",
            metrics.latency.clone(),
        );
        metrics
    }

    /// Sets all figures.
    pub(crate) fn set(
        &self,
        sample: &Sample,
        totals: Totals,
        wanted: u64,
        errors: &BTreeMap<String, u64>,
    ) {
        let float = crate::report::float;
        self.connections.set(float(sample.connected));
        self.connecting.set(float(sample.connecting));
        self.wanted.set(float(wanted));
        self.cpu_share.set(sample.cpu_share);
        self.machine_cpu_share.set(sample.machine_cpu_share);
        self.memory.set(float(sample.rss_anon_bytes));
        for (counter, total) in [
            (&self.opened, totals.opened),
            (&self.messages, totals.messages),
            (&self.sent, totals.sent),
            (&self.answered, totals.answered),
            (&self.lost, totals.lost),
            (&self.missed, totals.missed),
            (&self.stalled, totals.stalled),
            (&self.stall_ended, totals.stall_ended),
            (&self.vanished, totals.vanished),
            (&self.vanished_ended, totals.vanished_ended),
        ] {
            raise(counter, total);
        }
        for (kind, total) in errors {
            let labels = vec![("kind", kind.clone())];
            raise(&self.errors.get_or_create(&labels), *total);
        }
        // A second without any of a kind has no times of it.
        self.latency.clear();
        for (of, times) in &sample.times {
            let quantiles = [
                ("0.5", times.p50_ms),
                ("0.99", times.p99_ms),
                ("1", times.max_ms),
            ];
            for (quantile, millis) in quantiles {
                let labels = vec![("of", of.clone()), ("quantile", quantile.to_owned())];
                self.latency.get_or_create(&labels).set(millis / 1000.0);
            }
        }
    }
}

impl Metrics {
    fn register_flows(&self, registry: &mut Registry) {
        for (name, help, counters) in [
            (
                "flow_sent",
                "Messages and requests of a flow that were sent",
                &self.flow_sent,
            ),
            (
                "flow_received",
                "Deliveries of a flow that came, each member once",
                &self.flow_received,
            ),
            (
                "flow_missing",
                "Deliveries of a flow that did not come in time",
                &self.flow_missing,
            ),
        ] {
            registry.register(name, help, counters.clone());
        }
    }

    /// Sets the figures of a flow.
    pub(crate) fn set_flow(&self, name: &str, figures: &FlowFigures) {
        let labels = vec![("flow", name.to_owned())];
        for (counters, total) in [
            (&self.flow_sent, figures.sent),
            (&self.flow_received, figures.received),
            (&self.flow_missing, figures.missing),
        ] {
            raise(&counters.get_or_create(&labels), total);
        }
    }
}

/// Counters never go down: polls that are refused are taken back from those that connected.
fn raise(counter: &Counter, total: u64) {
    counter.inner().fetch_max(total, Ordering::Relaxed);
}

async fn serve(listener: TcpListener, registry: Arc<Registry>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let places = Arc::new(Semaphore::new(READERS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Without a descriptor: the crowd has them all, and gives some back.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let registry = Arc::clone(&registry);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let answer = answer(&request, &registry);
                async { Ok::<_, Infallible>(answer) }
            });
            // A reader that goes away is nobody's loss.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let is_known = request.method() == Method::GET && request.uri().path() == "/metrics";
    let mut text = String::new();
    if !is_known || encode(&mut text, registry).is_err() {
        let mut answer = Response::new(Full::new(Bytes::from_static(b"GET /metrics\n")));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        return answer;
    }
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let form = form.parse().expect("a valid header");
    answer.headers_mut().insert(CONTENT_TYPE, form);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_report::SampleTimes;
    use std::io::{Read as _, Write as _};

    fn asked(address: SocketAddr, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn whoever_asks_is_told_the_newest_figures() {
        let (metrics, address) = Metrics::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let times = SampleTimes {
            count: 5,
            p50_ms: 1.0,
            p99_ms: 20.0,
            max_ms: 30.0,
        };
        let sample = Sample {
            connected: 7,
            times: [("echo".to_owned(), times)].into(),
            ..Sample::default()
        };
        let totals = Totals {
            opened: 9,
            ..Totals::default()
        };
        let errors = BTreeMap::from([("refused".to_owned(), 2)]);
        metrics.set(&sample, totals, 10, &errors);
        metrics.set(&sample, totals, 10, &errors);
        let flow = FlowFigures {
            sent: 120,
            received: 700,
            missing: 20,
            ..FlowFigures::default()
        };
        metrics.set_flow("chat", &flow);
        let told = asked(address, "/metrics");
        for line in [
            "myriad_swarm_flow_sent_total{flow=\"chat\"} 120\n",
            "myriad_swarm_flow_received_total{flow=\"chat\"} 700\n",
            "myriad_swarm_flow_missing_total{flow=\"chat\"} 20\n",
            "myriad_swarm_connections 7.0\n",
            "myriad_swarm_connections_wanted 10.0\n",
            "myriad_swarm_connects_total 9\n",
            "myriad_swarm_errors_total{kind=\"refused\"} 2\n",
            "myriad_swarm_latency_seconds{of=\"echo\",quantile=\"0.99\"} 0.02\n",
            "# EOF\n",
        ] {
            assert!(told.contains(line), "{line} in {told}");
        }
        assert!(asked(address, "/").starts_with("HTTP/1.1 404"));
    }
}
