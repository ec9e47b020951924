//! What the tasks of a broker share: the connection, the logs, and how the outside world is told of failures.

use super::answers::{Answers, Waiter};
use super::remarks::Remarks;
use super::stream::{LogStream, ensure};
use super::{BrokerSettings, State};
use crate::nats::is_connected;
use crate::nodes::Nodes;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Event};
use myriad_broker::{Class, Subjects};
use myriad_nats::NatsError;
use myriad_shard::{ChannelOptions, Epoch, LogId, Mesh, Namespaces};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::time::{Instant, sleep};

/// How long a request to JetStream may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that starts waits for its streams.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_secs(1);

/// Publications in the library's queue.
const OUTGOING_MAX: usize = 64;

/// Why a server cannot start with its broker.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// There is no connection.
    #[error("{}", advised(.0))]
    Nats(#[from] NatsError),
    /// The servers have no JetStream.
    #[error(
        "NATS answers, but JetStream does not ({0}); start nats-server with -js, or enable it for this account"
    )]
    JetStream(String),
    /// A stream cannot be made now.
    #[error(
        "stream {stream} cannot be made: {why}; with broker-replicas = {replicas} the NATS cluster needs as many servers"
    )]
    NoStream {
        /// Its name.
        stream: String,
        /// What JetStream says.
        why: String,
        /// On how many servers it is wanted.
        replicas: usize,
    },
    /// A stream is none of ours.
    #[error("stream {stream} {why}")]
    Stream {
        /// Its name.
        stream: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// Why there is no connection, and what to do: most reasons say so themselves.
fn advised(error: &NatsError) -> String {
    match error {
        NatsError::Connect { .. } => {
            format!("{error}; start the NATS servers, or correct broker")
        }
        error => error.to_string(),
    }
}

/// A log, and what is known of it.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) id: LogId,
    pub(super) class: Class,
    pub(super) options: Arc<ChannelOptions>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    answers: Answers,
    read: ReadUpTo,
    /// Where the epoch began, and the one before it.
    began: u64,
    former: Option<Epoch>,
    /// The stream is not what this node has read: positions mean nothing until it is opened again.
    is_suspect: bool,
}

/// How far this node has read a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadUpTo {
    /// None before anything was.
    pub(super) epoch: Option<Epoch>,
    pub(super) position: u64,
}

impl Log {
    /// A publication is stored there: gives the waiter back if this node has read as far already.
    pub(super) fn wait(&self, sequence: u64, waiter: Waiter, now: Instant) -> Option<Waiter> {
        let mut known = self.lock();
        if known.read.position >= sequence && !known.is_suspect {
            return Some(waiter);
        }
        known.answers.wait(sequence, waiter, now);
        None
    }

    /// Notes how far this node has read, in an epoch that began there, and takes those who waited for that.
    pub(super) fn note_read(&self, read: ReadUpTo, began: u64) -> Vec<(u64, Waiter)> {
        let mut known = self.lock();
        if known.is_suspect {
            return Vec::new();
        }
        if known.read.epoch != read.epoch {
            known.former = known.read.epoch;
            known.began = began;
        }
        known.read = read;
        known.answers.take_read(read.position)
    }

    pub(super) fn take_overdue(&self, now: Instant) -> Vec<(u64, Waiter)> {
        self.lock().answers.take_overdue(now)
    }

    pub(super) fn read_up_to(&self) -> ReadUpTo {
        self.lock().read
    }

    /// The epoch of a place; none while that is not known.
    pub(super) fn epoch_of(&self, sequence: u64) -> Option<Epoch> {
        let known = self.lock();
        if known.is_suspect {
            None
        } else if sequence > known.began {
            known.read.epoch
        } else {
            known.former
        }
    }

    /// A new message was stored there, after this node had read so much. Below that the stream has lost its end: the reader opens it
    /// again.
    pub(super) fn note_stored(&self, sequence: u64, before: ReadUpTo) {
        let mut known = self.lock();
        if sequence <= before.position && known.read.epoch == before.epoch {
            known.is_suspect = true;
        }
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.lock().is_suspect
    }

    /// The stream was opened again, and looked at.
    pub(super) fn clear_suspicion(&self) {
        self.lock().is_suspect = false;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connections and the logs.
///
/// A message that the client library cannot parse costs the connection that it comes by, and all that is on its way there. So what
/// strangers write comes by other connections than publications leave by.
#[derive(Debug)]
pub(super) struct Link {
    /// Publications leave by it, and their acknowledgements come.
    pub(super) client: Client,
    pub(super) publishing: Context,
    /// Stored messages come by it.
    pub(super) reads: Client,
    /// Of what is asked about streams, and of beats.
    pub(super) context: Context,
    /// What no history keeps comes by it.
    pub(super) live: Client,
    pub(super) subjects: Subjects,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) logs: Box<[Arc<Log>]>,
    pub(super) node: String,
    pub(super) state: Arc<State>,
    /// The way to other nodes, over the same connection.
    pub(super) nodes: Arc<Nodes>,
    pub(super) remarks: Remarks,
    settings: BrokerSettings,
}

impl Link {
    /// Connects, and makes the streams that are missing.
    ///
    /// # Errors
    /// NATS cannot be reached, or does not do what it should.
    pub(super) async fn open(
        settings: BrokerSettings,
        namespaces: Arc<Namespaces>,
        node: String,
        state: Arc<State>,
    ) -> Result<Self, BrokerError> {
        settings.nats.check()?;
        let known = Some(Arc::clone(&state));
        let client = connect(&settings, &format!("myriad {node}"), known).await?;
        state.counts.set_connected(true);
        let reads = connect(&settings, &format!("myriad {node} reads"), None).await?;
        let live = connect(&settings, &format!("myriad {node} live"), None).await?;
        let (publishing, context) = (context_of(&client), context_of(&reads));
        context
            .query_account()
            .await
            .map_err(|error| BrokerError::JetStream(error.to_string()))?;
        let logs = namespaces.logs().into_iter().enumerate();
        let logs = logs.map(|(id, (name, options))| {
            let id = LogId(u16::try_from(id).expect("a server has fewer namespaces"));
            Arc::new(Log {
                id,
                class: Class::of(name.as_deref()),
                options,
                known: Mutex::default(),
            })
        });
        let nodes = Nodes::new(client.clone(), settings.subjects.clone(), node.clone());
        let link = Self {
            client,
            nodes: Arc::new(nodes),
            publishing,
            reads,
            context,
            live,
            subjects: settings.subjects.clone(),
            namespaces,
            logs: logs.collect(),
            node,
            state,
            remarks: Remarks::default(),
            settings,
        };
        for log in &link.logs {
            link.await_stream(log).await?;
        }
        Ok(link)
    }

    /// Makes a log's stream. Servers that have just started have no leader yet.
    async fn await_stream(&self, log: &Log) -> Result<(), BrokerError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.ensure_stream(log).await {
                Ok(_) => return Ok(()),
                Err(error @ BrokerError::NoStream { .. }) if Instant::now() < deadline => {
                    tracing::info!("{error}; it is tried again");
                    sleep(START_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A log's stream, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made, or is none of ours.
    pub(super) async fn ensure_stream(&self, log: &Log) -> Result<LogStream, BrokerError> {
        ensure(&self.context, &self.subjects, log, self.settings.replicas).await
    }

    /// The log that orders a channel; none if no history keeps its publications, or no channel may have that name.
    pub(super) fn log_of(&self, channel: &str) -> Option<&Arc<Log>> {
        if channel.is_empty() || channel.len() > Mesh::CHANNEL_BYTES_MAX {
            return None;
        }
        let id = self.namespaces.options_of(channel)?.log?;
        Some(&self.logs[usize::from(id.0)])
    }

    /// Whether publications reach the servers now, as far as this node knows.
    pub(super) fn is_connected(&self) -> bool {
        is_connected(&self.client)
    }
}

/// Connects. With a state, as the connection that publications leave by.
async fn connect(
    settings: &BrokerSettings,
    name: &str,
    state: Option<Arc<State>>,
) -> Result<Client, NatsError> {
    let options = settings.nats.options(name).await?;
    // What is in the library's queue when a connection is lost is sent by the next one, however late.
    let options = match state {
        Some(_) => options.client_capacity(OUTGOING_MAX),
        None => options,
    };
    let name = name.to_owned();
    let options = options.event_callback(move |event| {
        match &state {
            Some(state) => note(&event, state),
            None => note_incoming(&event, &name),
        }
        std::future::ready(())
    });
    settings.nats.connect_with(options).await
}

fn context_of(client: &Client) -> Context {
    jetstream::context::ContextBuilder::new()
        .timeout(REQUEST_TIMEOUT)
        .build(client.clone())
}

/// Tells the log what happens to a connection by which messages come.
fn note_incoming(event: &Event, name: &str) {
    match event {
        Event::SlowConsumer(_) => tracing::warn!(
            "this node reads publications without history too slowly: some of them are lost"
        ),
        Event::Disconnected => {
            tracing::info!("connection {name:?} to NATS is lost; it is made again");
        }
        event => tracing::debug!("connection {name:?} to NATS: {event}"),
    }
}

/// Tells the log what happens to the connection that publications leave by.
fn note(event: &Event, state: &State) {
    match event {
        Event::Connected => {
            state.counts.set_connected(true);
            tracing::info!("the broker is connected");
        }
        Event::Disconnected => {
            state.counts.set_connected(false);
            tracing::warn!(
                "the broker is disconnected: clients stay, publications are refused until it is back"
            );
        }
        Event::LameDuckMode => tracing::info!("a NATS server asks its clients to go to another"),
        Event::ServerError(error) => tracing::warn!("a NATS server says: {error}"),
        Event::ClientError(error) => tracing::debug!("the connection to NATS: {error}"),
        Event::SlowConsumer(_) | Event::Draining | Event::Closed => {}
    }
}
