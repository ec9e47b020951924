//! Endpoints whose configuration changes while events wait for them.

use super::counts::WebhookCounts;
use super::receiver::{Act, Receiver, Request};
use super::receivers::Receivers;
use super::{Event, post};
use crate::config::{WebhookEndpoint, WebhooksTable};
use myriad_shard::{Notice, NoticeKind, NoticeSettings};
use prometheus_client::registry::Registry;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn endpoints(table: &str) -> Vec<WebhookEndpoint> {
    let table: WebhooksTable = toml::from_str(table).expect("a table");
    table.resolve().expect("good values").endpoints
}

fn endpoint(name: &str, url: &str, lines: &str) -> String {
    format!("[[endpoints]]\nname = \"{name}\"\nurl = \"{url}\"\nbatch_delay = 0\n{lines}\n")
}

/// Receivers, and the runtime of their tasks.
struct Bench {
    runtime: Runtime,
    receivers: Receivers,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let counts = WebhookCounts::registered(&mut Registry::default());
        let client = post::client().expect("a client");
        let noted = NoticeSettings {
            clients: true,
            vacated_delay: Some(Duration::ZERO),
        };
        let receivers = Receivers::new(client, "5eed".into(), counts, noted);
        Self { runtime, receivers }
    }

    fn reload(&self, table: &str) {
        let _entered = self.runtime.enter();
        self.receivers.replace(&endpoints(table));
    }

    /// Tells everybody that these channels are occupied.
    fn tell(&self, channels: &[&str]) {
        for endpoint in self.receivers.told() {
            let event = |channel: &&str| {
                Arc::new(Event {
                    at_ms: 1,
                    what: Notice::Occupied((*channel).into()),
                })
            };
            let events: Vec<_> = channels.iter().map(event).collect();
            endpoint.take(&events, &[0; NoticeKind::ALL.len()]);
        }
    }

    fn finish(&self) {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.receivers.finish(deadline));
    }
}

fn told(request: &Request) -> (u64, Vec<&str>) {
    let sequence = request.body["sequence"].as_u64().expect("a number");
    let events = request.events().iter();
    let channels = events.map(|event| event["channel"].as_str().expect("a name"));
    (sequence, channels.collect())
}

#[test]
fn what_waits_for_a_wrong_address_goes_to_the_right_one() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let dead = format!("http://{}/", dead.local_addr().expect("an address"));
    let (receiver, bench) = (Receiver::start(), Bench::new());
    // Without a reload the next attempt could be half a minute away.
    bench.reload(&endpoint("app", &dead, "batch_size = 1"));
    bench.tell(&["a", "b"]);
    bench.reload(&endpoint("app", &receiver.url(), "batch_size = 1"));
    assert_eq!(told(&receiver.next()), (1, vec!["a"]));
    assert_eq!(told(&receiver.next()), (2, vec!["b"]));
    bench.finish();
}

#[test]
fn an_endpoint_that_is_the_same_notices_nothing() {
    let (kept, other, bench) = (Receiver::start(), Receiver::start(), Bench::new());
    let same = endpoint("kept", &kept.url(), "");
    bench.reload(&same);
    let before = bench.receivers.told();
    bench.tell(&["a"]);
    bench.reload(&format!("{}{same}", endpoint("other", &other.url(), "")));
    let after = bench.receivers.told();
    assert!(Arc::ptr_eq(&before[0], &after[1]));
    bench.tell(&["b"]);
    bench.finish();
    let events: Vec<_> = kept.rest();
    let events: Vec<_> = events.iter().flat_map(|request| told(request).1).collect();
    assert_eq!(events, ["a", "b"]);
    assert_eq!(told(&other.next()), (1, vec!["b"]));
}

#[test]
fn a_removed_endpoint_is_told_what_waits_and_goes_on_counting_when_it_comes_back() {
    let (receiver, bench) = (Receiver::start(), Bench::new());
    receiver.then([Act::Answer(500)]);
    let table = endpoint("app", &receiver.url(), "");
    bench.reload(&table);
    bench.tell(&["a"]);
    bench.reload("");
    assert!(bench.receivers.told().is_empty());
    assert_eq!(told(&receiver.next()), (1, vec!["a"]));
    // The first attempt failed.
    assert_eq!(told(&receiver.next()), (1, vec!["a"]));
    bench.tell(&["nobody"]);
    bench.reload(&table);
    bench.tell(&["b"]);
    assert_eq!(told(&receiver.next()), (2, vec!["b"]));
    bench.finish();
    assert!(receiver.rest().is_empty());
}

#[test]
fn an_endpoint_that_wanted_no_more_is_told_again_when_it_changes() {
    let (receiver, bench) = (Receiver::start(), Bench::new());
    receiver.then([Act::Answer(410)]);
    bench.reload(&endpoint("app", &receiver.url(), ""));
    bench.tell(&["a"]);
    assert_eq!(told(&receiver.next()), (1, vec!["a"]));
    // Until the answer has come the endpoint is another one with each reload, and not gone.
    let mut timeout = 5;
    let after = loop {
        timeout = 6 + timeout % 50;
        let lines = format!("timeout = \"{timeout}s\"");
        bench.reload(&endpoint("app", &receiver.url(), &lines));
        bench.tell(&["b"]);
        if let Some(request) = receiver.rest().pop() {
            break request;
        }
        std::thread::yield_now();
    };
    assert!(told(&after).1.contains(&"b"));
    bench.finish();
}
