//! Channels on the disk: nobody is shown what the disk does not have yet.

use crate::node::{Driver, Node, Options};
use myriad_shard::{ChannelOptions, DurableEntry, Journal, Namespaces, Payload, RequestId, Right};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tungstenite::Message;

on_both_drivers!(
    nobody_sees_what_the_disk_does_not_have,
    a_full_disk_refuses_and_a_failed_one_shows_nothing,
);

/// A disk that keeps nothing before the test says so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    submitted: Arc<Mutex<Vec<(u64, usize)>>>,
    is_full: Arc<AtomicBool>,
}

impl Journal for Disk {
    fn submit(&mut self, ticket: u64, entries: Vec<DurableEntry>) {
        let mut submitted = self.submitted.lock().expect("no panic");
        submitted.push((ticket, entries.len()));
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

fn start(driver: Driver, disk: &Disk) -> Node {
    let kept = ChannelOptions {
        history_size: 10,
        history_ttl: Duration::from_secs(60),
        history_meta_ttl: Duration::from_secs(60),
        subscribe: Right::ALL,
        ..ChannelOptions::default()
    };
    let in_memory = ChannelOptions {
        history_in_memory: true,
        ..kept.clone()
    };
    let options = Options {
        shards: 1,
        namespaces: Namespaces::new(kept, [("memory".into(), in_memory)]),
        disk: Some(disk.clone()),
        ..Options::default()
    };
    Node::start(driver, options)
}

fn publish(node: &Node, channel: &str, data: &str) {
    let payload = Payload::Text(data.into());
    let published = node.mesh().publish(channel, payload, Some(RequestId(7)));
    published.expect("there is room");
}

fn nobody_sees_what_the_disk_does_not_have(driver: Driver) {
    let disk = Disk::default();
    let node = start(driver, &disk);
    let mut on_disk = node.connect("/raw?channel=news");
    let mut in_memory = node.connect("/raw?channel=memory:news");
    publish(&node, "news", "1");
    publish(&node, "memory:news", "2");
    // The one that waits for nothing was published later, and is the first to be answered.
    assert_eq!(in_memory.read().expect("a message"), Message::text("2"));
    assert_eq!(node.published().expect("a position").offset, 1);
    // What was delivered before the ping would come before the pong.
    on_disk.send(Message::Ping("p".into())).expect("a ping");
    assert!(on_disk.read().expect("a message").is_pong());
    // The channel, and its publication, at once.
    assert_eq!(*disk.submitted.lock().expect("no panic"), [(1, 2)]);
    node.mesh().kept(0, 1);
    assert_eq!(on_disk.read().expect("a message"), Message::text("1"));
    assert_eq!(node.published().expect("a position").offset, 1);
}

fn a_full_disk_refuses_and_a_failed_one_shows_nothing(driver: Driver) {
    let disk = Disk::default();
    let node = start(driver, &disk);
    let mut on_disk = node.connect("/raw?channel=news");
    disk.is_full.store(true, Ordering::Relaxed);
    publish(&node, "news", "1");
    assert_eq!(node.published(), None);
    publish(&node, "memory:news", "2");
    assert!(node.published().is_some());
    disk.is_full.store(false, Ordering::Relaxed);
    publish(&node, "news", "3");
    node.mesh().disk_failed();
    assert_eq!(node.published(), None);
    publish(&node, "news", "4");
    assert_eq!(node.published(), None);
    on_disk.send(Message::Ping("p".into())).expect("a ping");
    assert!(on_disk.read().expect("a message").is_pong());
}
