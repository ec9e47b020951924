//! The cluster's broker: NATS JetStream, behind which channels have one order on all nodes.
//!
//! Without one, a channel's home numbers its publications, and this module has nothing to do. With one, publications go from their
//! publisher's shard to the *broker's thread* ([`publisher`]), from there to the stream of their namespace, and come back by its
//! readers ([`reader`], one for each log) to the channel's home. A node may also hear only the channels that its clients want
//! ([`by_channel`]). What no history keeps goes by core NATS ([`live`]), at most once. The
//! thread has a runtime of its own, so that a flood of messages does not delay requests of the API.
//!
//! What is asked of the servers goes through one seam ([`servers`]). NATS is behind it ([`jetstream`]), or the simulator of the tests.
//!
//! One of the connections also carries what nodes ask each other ([`crate::nodes`]). What can be decided without I/O is in the crate
//! `myriad-broker`.

mod acknowledged;
mod answers;
mod asker;
mod beat;
mod by_channel;
mod consumer;
mod counts;
mod direct;
mod entries;
mod fault;
mod fill_budget;
mod hearing;
mod homes;
mod jetstream;
mod leader;
mod link;
mod listening;
mod live;
mod looking;
mod moving;
mod opening;
mod pause;
#[cfg(test)]
mod played;
mod publisher;
mod reader;
mod remarks;
mod servers;
mod settings;
mod store;
mod storer;
mod stream;
#[cfg(test)]
mod tests;

pub use link::{BrokerError, NoStreamCause};
pub(crate) use settings::{BROKER_PREFIX_DEFAULT, BrokerInterest, BrokerSettings};

use crate::control::Cluster;
use crate::error::ServerError;
use crate::mailbox::{Letters, Mailbox, mailbox};
use crate::nodes::Nodes;
use counts::BrokerCounts;
use hearing::Hearing;
use homes::Homes;
use jetstream::Jetstream;
use link::Link;
use myriad_shard::{BrokerTask, Mesh, Namespaces};
use servers::Servers;
use std::convert::Infallible;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How long a server that ends waits until the library has sent what it was given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A broker whose thread runs.
pub(crate) struct Broker {
    tasks: Arc<Mailbox<BrokerTask>>,
    nodes: Arc<Nodes>,
    /// Gives the thread the mesh, when there is one.
    mesh: Option<oneshot::Sender<Mesh>>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
    /// Fails when the thread ends.
    ended: oneshot::Receiver<Infallible>,
}

/// What others may know of a broker.
#[derive(Debug, Default)]
pub(crate) struct State {
    logs: usize,
    /// Logs that have been read to their ends in their present epochs.
    live: AtomicUsize,
    /// Whether this node hears its logs.
    pub(crate) hearing: Hearing,
    /// Its figures.
    pub(crate) counts: BrokerCounts,
    /// Whether the thread is to end when it has published what it was given.
    finish: Notify,
    /// Whether the thread is to end.
    stop: Notify,
}

impl State {
    /// Whether every log has been read up to its end.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.live.load(Ordering::Relaxed) == self.logs
    }
}

impl Broker {
    /// Connects, and opens the streams of all logs.
    ///
    /// # Errors
    /// NATS cannot be reached, or does not do what it should.
    pub(crate) fn start(
        settings: BrokerSettings,
        namespaces: Arc<Namespaces>,
        node: String,
    ) -> Result<Self, ServerError> {
        let state = Arc::new(State {
            logs: namespaces.log_count(),
            ..State::default()
        });
        let (started, starting) = sync_channel(1);
        let (mesh, meshes) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let known = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("broker".into())
            .spawn(move || {
                let _ending = ending;
                let ended = occupy(open(settings, namespaces, node, known), &started, meshes);
                if let Err(error) = ended {
                    let _ = started.send(Err(error));
                }
            })
            .map_err(ServerError::system("start a thread"))?;
        let panicked = || ServerError::Panicked {
            thread: "the broker's thread".into(),
        };
        let Ready { tasks, nodes } = starting.recv().map_err(|_| panicked())??;
        Ok(Self {
            tasks,
            nodes,
            mesh: Some(mesh),
            state,
            thread: Some(thread),
            ended,
        })
    }

    /// Where shards and the API leave what it is to do.
    pub(crate) fn tasks(&self) -> Arc<Mailbox<BrokerTask>> {
        Arc::clone(&self.tasks)
    }

    /// The descriptor that every thread's table must keep.
    pub(crate) fn raw(&self) -> RawFd {
        self.tasks.raw()
    }

    /// What the control plane needs of it.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster {
            broker: Arc::clone(&self.state),
            nodes: Arc::clone(&self.nodes),
        }
    }

    /// Begins to read and to publish.
    pub(crate) fn begin(&mut self, mesh: Mesh) {
        if let Some(sender) = self.mesh.take() {
            let _ = sender.send(mesh);
        }
    }

    /// Publishes or refuses what is left, and waits until the thread has ended: 4 s for the publications and 1 s to flush, at most. Call it
    /// once, when nobody publishes any more.
    pub(crate) async fn finish(&mut self) {
        self.state.finish.notify_one();
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.mesh = None;
        self.state.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread needs.
struct Opened {
    link: Link,
    servers: Arc<Jetstream>,
    tasks: Arc<Mailbox<BrokerTask>>,
    letters: Letters<BrokerTask>,
}

/// What others need of a broker that has been opened.
struct Ready {
    tasks: Arc<Mailbox<BrokerTask>>,
    nodes: Arc<Nodes>,
}

/// The life of the broker's thread. Says what others need once it is open.
///
/// # Errors
/// It could not be opened.
fn occupy(
    opening: impl Future<Output = Result<Opened, ServerError>>,
    started: &SyncSender<Result<Ready, ServerError>>,
    meshes: oneshot::Receiver<Mesh>,
) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServerError::system("start the broker's runtime"))?;
    let lived = runtime.block_on(async {
        let opened = opening.await?;
        let (tasks, nodes) = (&opened.tasks, &opened.servers.nodes);
        let _ = started.send(Ok(Ready {
            tasks: Arc::clone(tasks),
            nodes: Arc::clone(nodes),
        }));
        // Without a mesh the server did not start.
        if let Ok(mesh) = meshes.await {
            run(opened, mesh).await;
        }
        Ok(())
    });
    // A thread may be asking for the address of a NATS server, for as long as the resolver takes.
    runtime.shutdown_background();
    lived
}

async fn open(
    settings: BrokerSettings,
    namespaces: Arc<Namespaces>,
    node: String,
    state: Arc<State>,
) -> Result<Opened, ServerError> {
    let (tasks, letters) = mailbox().map_err(ServerError::system("make a pipe"))?;
    let connecting = Jetstream::connect(&settings, &node, &namespaces, &state).await;
    let servers = Arc::new(connecting.map_err(ServerError::Broker)?);
    let random = || crate::shards::random_bits().ok();
    let link = Link::new(
        Arc::clone(&servers) as Arc<dyn Servers>,
        settings.subjects,
        namespaces,
        node,
        state,
        random,
        settings.interest,
    );
    link.await_streams().await.map_err(ServerError::Broker)?;
    let streams: Vec<_> = link.logs.iter().map(|log| link.stream_of(log)).collect();
    tracing::info!("{}; broker-interest = {}", shown(&streams), link.interest);
    Ok(Opened {
        link,
        servers,
        tasks,
        letters,
    })
}

/// Names of streams, as far as a line has room.
fn shown(streams: &[String]) -> String {
    match streams {
        [] => "no stream, because no channel has a history".to_owned(),
        [first] => format!("stream {first}"),
        [first, .., last] => format!("{} streams, {first} to {last}", streams.len()),
    }
}

async fn run(opened: Opened, mesh: Mesh) {
    let Opened {
        link,
        servers,
        letters,
        ..
    } = opened;
    let (client, live) = (servers.client.clone(), servers.live.clone());
    let state = Arc::clone(&link.state);
    let link = Arc::new(link);
    tokio::spawn(live::run(Arc::clone(&link), live, mesh.clone()));
    tokio::select! {
        () = work(link, Arc::new(mesh), letters) => {}
        () = state.stop.notified() => {}
    }
    // Publishers were told that these were sent.
    let _ = tokio::time::timeout(FLUSH_TIMEOUT, client.flush()).await;
}

/// Reads all logs, and publishes, until there is nothing more to publish.
async fn work(link: Arc<Link>, homes: Arc<dyn Homes>, letters: Letters<BrokerTask>) {
    for log in &link.logs {
        let (link, homes, log) = (Arc::clone(&link), Arc::clone(&homes), Arc::clone(log));
        if link.interest.keeps_only_wanted() {
            tokio::spawn(by_channel::Hearer::new(link, homes, log).run());
        } else {
            tokio::spawn(reader::Reader::new(link, homes, log).run());
        }
    }
    publisher::run(link, homes, letters).await;
}
