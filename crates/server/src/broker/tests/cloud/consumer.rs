//! A consumer of the simulated servers: the whole log in its order, from a place on.

use super::client::Connection;
use super::{Cloud, Looked, lock};
use crate::broker::servers::{Feed, FeedError, Stored};
use myriad_reactor::sim::Prng;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

/// A consumer without messages sends a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// What a consumer sends.
enum Sent {
    Message(Stored),
    Heartbeat,
    /// The messages after one that was lost on its way.
    Hole,
    Ended,
}

/// Follows the log from a place on.
pub(super) fn follow(
    cloud: &Arc<Cloud>,
    connection: &Arc<Mutex<Connection>>,
    prng: Prng,
    first: u64,
) -> SimFeed {
    let (sender, messages) = unbounded_channel();
    let count = lock(connection).count;
    let consumer = Consumer {
        cloud: Arc::clone(cloud),
        connection: Arc::clone(connection),
        count,
        prng,
        next: first,
    };
    tokio::spawn(consumer.run(sender));
    SimFeed {
        messages,
        connection: Arc::clone(connection),
        count,
        heard: Instant::now(),
    }
}

/// A consumer of the servers.
struct Consumer {
    cloud: Arc<Cloud>,
    connection: Arc<Mutex<Connection>>,
    count: u64,
    prng: Prng,
    next: u64,
}

impl Consumer {
    /// Sends what stands in the stream, for as long as the connection is the same.
    async fn run(mut self, sender: UnboundedSender<Sent>) {
        let plan = self.cloud.plan;
        loop {
            let cloud = Arc::clone(&self.cloud);
            let changed = cloud.changed.notified();
            if lock(&self.connection).count != self.count || sender.is_closed() {
                return;
            }
            let next = {
                let state = cloud.lock();
                let found = state
                    .has_leader
                    .then(|| Cloud::look(&state, &Looked::From(self.next)));
                found.flatten()
            };
            let Some(next) = next else {
                let is_idle = timeout(HEARTBEAT_INTERVAL, changed).await.is_err();
                if is_idle && cloud.lock().has_leader {
                    let _ = sender.send(Sent::Heartbeat);
                }
                continue;
            };
            if self.prng.one_in(4) {
                sleep(Duration::from_micros(self.prng.below(plan.delay_us) as u64)).await;
                if lock(&self.connection).count != self.count {
                    return;
                }
            }
            self.next = next.sequence + 1;
            let breaks = plan.breaks_consumers && self.prng.one_in(60) && !cloud.is_calm();
            let sent = match breaks {
                false => Sent::Message(next),
                true => match self.prng.below(3) {
                    0 => Sent::Hole,
                    1 => Sent::Ended,
                    // It falls silent.
                    _ => return sender.closed().await,
                },
            };
            let is_over = matches!(sent, Sent::Hole | Sent::Ended);
            if sender.send(sent).is_err() || is_over {
                return;
            }
        }
    }
}

/// A node's end of a consumer.
pub(super) struct SimFeed {
    messages: UnboundedReceiver<Sent>,
    connection: Arc<Mutex<Connection>>,
    count: u64,
    heard: Instant,
}

impl Feed for SimFeed {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Stored, FeedError>> {
        loop {
            let sent = match self.messages.poll_recv(context) {
                Poll::Ready(Some(sent)) => sent,
                _ if self.is_cut() => return Poll::Ready(Err(FeedError::Cut)),
                // A consumer that has gone says nothing.
                _ => return Poll::Pending,
            };
            self.heard = Instant::now();
            match sent {
                Sent::Message(stored) => return Poll::Ready(Ok(stored)),
                Sent::Heartbeat => {}
                Sent::Hole => return Poll::Ready(Err(FeedError::Hole)),
                Sent::Ended => return Poll::Ready(Err(FeedError::Ended("it said so".into()))),
            }
        }
    }

    fn heard(&self) -> Instant {
        self.heard
    }
}

impl SimFeed {
    /// Whether the connection by which it came is lost.
    fn is_cut(&self) -> bool {
        let connection = lock(&self.connection);
        connection.count != self.count || connection.is_down
    }
}
