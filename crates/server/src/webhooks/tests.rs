//! Endpoints against receivers that are down, slow, lying, or gone.

use super::counts::WebhookCounts;
use super::endpoint::Endpoint;
use super::receiver::{Act, Receiver, Request};
use super::signature::sign;
use super::{Event, post};
use crate::config::{WebhookEndpoint, Webhooks, WebhooksTable};
use myriad_reserved_port::ReservedPort;
use myriad_shard::{Notice, NoticeKind};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// An endpoint and its task.
struct Bench {
    runtime: Runtime,
    endpoint: Arc<Endpoint>,
    closing: watch::Sender<bool>,
    task: JoinHandle<()>,
    registry: Registry,
}

fn config(url: &str, lines: &str) -> WebhookEndpoint {
    let text = format!(
        "[[endpoints]]\nname = \"app\"\nurl = \"{url}\"\nbatch_delay = 0\nsecret = \"sesame\"\n{lines}"
    );
    let table: WebhooksTable = toml::from_str(&text).expect("a table");
    let Webhooks { mut endpoints, .. } = table.resolve().expect("good values");
    endpoints.remove(0)
}

impl Bench {
    fn new(config: WebhookEndpoint) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let mut registry = Registry::default();
        let counts = WebhookCounts::registered(&mut registry);
        let client = post::client().expect("a client");
        let name = Arc::clone(&config.name);
        let endpoint = Endpoint::new(
            config,
            "5eed".into(),
            Arc::default(),
            client,
            counts.of(&name),
        );
        let endpoint = Arc::new(endpoint);
        let closing = watch::Sender::new(false);
        let task = runtime.spawn(Arc::clone(&endpoint).run(closing.subscribe()));
        Self {
            runtime,
            endpoint,
            closing,
            task,
            registry,
        }
    }

    fn tell(&self, channels: &[&str]) {
        let event = |channel: &&str| {
            Arc::new(Event {
                at_ms: 1,
                what: Notice::Occupied((*channel).into()),
            })
        };
        let events: Vec<_> = channels.iter().map(event).collect();
        self.endpoint.take(&events, &[0; NoticeKind::ALL.len()]);
    }

    /// Ends it, and waits until everything is sent.
    fn close(&mut self) {
        self.closing.send_replace(true);
        let task = &mut self.task;
        self.runtime.block_on(task).expect("no panic");
    }

    /// The value of a metric; `name` with its labels.
    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("text");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    fn batches(&self, outcome: &str) -> u64 {
        let labels = format!("{{endpoint=\"app\",outcome=\"{outcome}\"}}");
        self.metric(&format!("webhook_batches_total{labels}"))
    }

    fn requests(&self, outcome: &str) -> u64 {
        let labels = format!("{{endpoint=\"app\",outcome=\"{outcome}\"}}");
        self.metric(&format!("webhook_requests_total{labels}"))
    }
}

fn channels(request: &Request) -> Vec<&str> {
    let events = request.events().iter();
    events
        .map(|event| event["channel"].as_str().expect("a name"))
        .collect()
}

#[test]
fn user_and_password_of_the_url_are_sent_as_basic_authentication() {
    let receiver = Receiver::start();
    let url = receiver.url().replace("http://", "http://user:s%40same@");
    let bench = Bench::new(config(&url, ""));
    bench.tell(&["a"]);
    let request = receiver.next();
    // user:s@same
    let authorization = request.header("authorization");
    assert_eq!(authorization, Some("Basic dXNlcjpzQHNhbWU="));
    assert_eq!(request.target(), "POST /hook?x=1");
}

#[test]
fn a_batch_is_posted_and_signed() {
    let receiver = Receiver::start();
    let mut bench = Bench::new(config(&receiver.url(), ""));
    bench.tell(&["a", "b"]);
    let request = receiver.next();
    assert_eq!(request.target(), "POST /hook?x=1");
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("x-myriad-batch"), Some("5eed-1"));
    assert_eq!(request.body["id"], "5eed-1");
    assert_eq!(channels(&request), ["a", "b"]);
    let signature = request.header("x-myriad-signature").expect("a signature");
    let seconds = signature.strip_prefix("t=").and_then(|rest| {
        let (seconds, _) = rest.split_once(',')?;
        seconds.parse().ok()
    });
    let seconds = seconds.expect("a time");
    let expected = sign("sesame", seconds, &request.bytes);
    assert_eq!(signature, expected);
    bench.close();
    assert_eq!(
        (bench.batches("delivered"), bench.requests("delivered")),
        (1, 1)
    );
}

#[test]
fn only_what_is_wanted_is_told() {
    let receiver = Receiver::start();
    let lines = "channels = [\"chat:*\"]\nevents = [\"channel_occupied\"]";
    let mut bench = Bench::new(config(&receiver.url(), lines));
    let vacated = Event {
        at_ms: 1,
        what: Notice::Vacated("chat:0".into()),
    };
    // Of the kinds that shards dropped, only the wanted ones count.
    bench
        .endpoint
        .take(&[Arc::new(vacated)], &[1, 10, 100, 1_000]);
    bench.tell(&["news", "chat:1"]);
    bench.close();
    let requests = receiver.rest();
    let told: Vec<_> = requests.iter().flat_map(channels).collect();
    assert_eq!(told, ["chat:1"]);
    let dropped: u64 = requests
        .iter()
        .filter_map(|request| request.body["dropped"].as_u64())
        .sum();
    assert_eq!(dropped, 1);
}

#[test]
fn a_receiver_that_fails_gets_the_same_batch_again_and_then_the_next() {
    const NONSENSE: &[u8] = b"220 smtp.example.com\r\n\r\n";
    let receiver = Receiver::start();
    receiver.then([
        Act::Answer(500),
        Act::Close,
        Act::Bytes(NONSENSE),
        Act::Answer(302),
    ]);
    let mut bench = Bench::new(config(&receiver.url(), ""));
    bench.tell(&["a"]);
    let first = receiver.next();
    bench.tell(&["b", "c"]);
    for _ in 0..4 {
        let again = receiver.next();
        assert_eq!(again.bytes, first.bytes);
    }
    let second = receiver.next();
    assert_eq!(second.body["sequence"], 2);
    assert_eq!(channels(&second), ["b", "c"]);
    bench.close();
    assert!(receiver.rest().is_empty());
    assert_eq!(bench.requests("refused"), 2);
    assert_eq!(bench.requests("unreachable"), 2);
    assert_eq!(bench.batches("delivered"), 2);
}

#[test]
fn a_receiver_that_is_too_slow_is_asked_again() {
    let receiver = Receiver::start();
    receiver.then([Act::Hang]);
    let mut bench = Bench::new(config(&receiver.url(), "timeout = \"100ms\""));
    bench.tell(&["a"]);
    assert_eq!(receiver.next().bytes, receiver.next().bytes);
    bench.close();
    assert_eq!(bench.requests("delivered"), 1);
    // On a busy machine an answer may come too late, too.
    assert!(bench.requests("timeout") >= 1);
}

#[test]
fn an_answer_without_end_is_an_answer() {
    let receiver = Receiver::start();
    receiver.then([Act::Endless]);
    let mut bench = Bench::new(config(&receiver.url(), ""));
    bench.tell(&["a"]);
    let first = receiver.next();
    bench.tell(&["b"]);
    let second = receiver.next();
    assert_eq!(
        (channels(&first), channels(&second)),
        (vec!["a"], vec!["b"])
    );
    bench.close();
    assert_eq!(bench.requests("delivered"), 2);
}

#[test]
fn a_receiver_that_is_down_gets_everything_when_it_comes_back() {
    let port = ReservedPort::take().expect("a port");
    let address = port.address();
    let url = format!("http://{address}/hook?x=1");
    let mut bench = Bench::new(config(&url, "batch_size = 2"));
    bench.tell(&["a", "b", "c", "d", "e"]);
    while bench.requests("unreachable") < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let receiver = Receiver::on(TcpListener::bind(address).expect("our port"));
    let told: Vec<_> = (0..3).map(|_| receiver.next()).collect();
    let told: Vec<_> = told.iter().flat_map(channels).collect();
    assert_eq!(told, ["a", "b", "c", "d", "e"]);
    bench.close();
    assert_eq!(
        bench.metric("webhook_dropped_events_total{endpoint=\"app\"}"),
        0
    );
}

#[test]
fn what_does_not_fit_is_dropped_from_the_oldest_and_told() {
    let receiver = Receiver::start();
    receiver.then([Act::Hang]);
    let mut bench = Bench::new(config(
        &receiver.url(),
        "queue_size = 256\ntimeout = \"200ms\"",
    ));
    bench.tell(&["first"]);
    assert_eq!(channels(&receiver.next()), ["first"]);
    // The first batch is under way, and nothing else is.
    let names: Vec<String> = (0..300).map(|nth| nth.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bench.tell(&names);
    assert_eq!(channels(&receiver.next()), ["first"], "again");
    // Once more for each answer that comes too late.
    let next = std::iter::repeat_with(|| receiver.next())
        .find(|request| channels(request) != ["first"])
        .expect("no end");
    assert_eq!(next.body["dropped"], 44);
    assert_eq!(channels(&next), names[44..]);
    bench.close();
    assert_eq!(
        bench.metric("webhook_dropped_events_total{endpoint=\"app\"}"),
        44
    );
}

#[test]
fn a_batch_that_is_given_up_is_told_as_dropped() {
    let receiver = Receiver::start();
    receiver.then([Act::Answer(503)]);
    let mut bench = Bench::new(config(&receiver.url(), "retry_for = 0"));
    bench.tell(&["a", "b"]);
    assert_eq!(receiver.next().body["sequence"], 1);
    let next = receiver.next();
    assert_eq!(
        (
            next.body["sequence"].as_u64(),
            next.body["dropped"].as_u64()
        ),
        (Some(2), Some(2))
    );
    assert!(next.events().is_empty());
    bench.close();
    assert_eq!(
        (bench.batches("given_up"), bench.batches("delivered")),
        (1, 1)
    );
}

#[test]
fn a_receiver_that_is_gone_is_told_nothing_more() {
    let receiver = Receiver::start();
    receiver.then([Act::Answer(410)]);
    let mut bench = Bench::new(config(&receiver.url(), "batch_size = 1"));
    bench.tell(&["a", "b"]);
    // It ends by itself.
    let task = &mut bench.task;
    bench.runtime.block_on(task).expect("no panic");
    bench.tell(&["c"]);
    assert_eq!(receiver.rest().len(), 1);
    assert_eq!((bench.batches("gone"), bench.endpoint.abandon()), (1, 0));
    assert_eq!(
        bench.metric("webhook_dropped_events_total{endpoint=\"app\"}"),
        2
    );
}

#[test]
fn what_cannot_be_sent_at_the_end_is_counted() {
    let receiver = Receiver::start();
    receiver.then([Act::Hang, Act::Hang]);
    let bench = Bench::new(config(&receiver.url(), "batch_size = 2\ntimeout = \"60s\""));
    bench.tell(&["a", "b", "c"]);
    receiver.next();
    bench.closing.send_replace(true);
    bench.task.abort();
    assert_eq!(bench.endpoint.abandon(), 3);
    assert_eq!(bench.batches("unsent"), 1);
}

#[test]
fn a_full_batch_does_not_wait_and_the_end_waits_for_none() {
    let receiver = Receiver::start();
    let patient = WebhookEndpoint {
        batch_delay: Duration::from_secs(3_600),
        ..config(&receiver.url(), "batch_size = 2")
    };
    let mut bench = Bench::new(patient);
    bench.tell(&["a"]);
    bench.tell(&["b", "c"]);
    assert_eq!(channels(&receiver.next()), ["a", "b"]);
    bench.close();
    assert_eq!(channels(&receiver.next()), ["c"]);
}
