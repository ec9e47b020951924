//! What the tasks of a broker share: the connection, the logs, and how the outside world is told of failures.

use super::answers::{Answers, Waiter};
use super::stream::{LogStream, ensure};
use super::{BrokerSettings, State};
use async_nats::connection::State as ConnectionState;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Event};
use myriad_broker::{Class, Subjects};
use myriad_nats::NatsError;
use myriad_shard::{ChannelOptions, Epoch, LogId, Namespaces};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;
use tokio::time::{Instant, sleep};

/// How long a request to JetStream may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that starts waits for its streams.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_secs(1);

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
    position: u64,
    epoch: Option<Epoch>,
}

impl Log {
    /// A publication is stored there: gives the waiter back if this node has read as far already.
    pub(super) fn wait(&self, sequence: u64, waiter: Waiter, now: Instant) -> Option<Waiter> {
        let mut known = self.lock();
        if known.position >= sequence {
            return Some(waiter);
        }
        known.answers.wait(sequence, waiter, now);
        None
    }

    /// Notes how far this node has read, and takes those who waited for that.
    pub(super) fn note_read(&self, epoch: Option<Epoch>, position: u64) -> Vec<(u64, Waiter)> {
        let mut known = self.lock();
        known.position = position;
        known.epoch = epoch;
        known.answers.take_read(position)
    }

    pub(super) fn take_overdue(&self, now: Instant) -> Vec<(u64, Waiter)> {
        self.lock().answers.take_overdue(now)
    }

    /// The epoch of what has been read; none before anything was.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.lock().epoch
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection and the logs.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) subjects: Subjects,
    pub(super) namespaces: Arc<Namespaces>,
    pub(super) logs: Box<[Arc<Log>]>,
    pub(super) node: String,
    pub(super) state: Arc<State>,
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
        let name = format!("myriad {node}");
        let options = settings.nats.options(&name).await?;
        settings.nats.check()?;
        let known = Arc::clone(&state);
        let options = options.event_callback(move |event| {
            note(&event, &known);
            std::future::ready(())
        });
        let client = settings.nats.connect_with(options).await?;
        state.counts.set_connected(true);
        let context = jetstream::context::ContextBuilder::new()
            .timeout(REQUEST_TIMEOUT)
            .build(client.clone());
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
        let link = Self {
            client,
            context,
            subjects: settings.subjects.clone(),
            namespaces,
            logs: logs.collect(),
            node,
            state,
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

    pub(super) fn log(&self, id: LogId) -> &Arc<Log> {
        &self.logs[usize::from(id.0)]
    }

    /// Whether messages reach the servers now, as far as this node knows.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == ConnectionState::Connected
    }
}

/// Tells the log what happens to the connection.
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
        Event::SlowConsumer(_) => tracing::warn!(
            "this node reads publications without history too slowly: some of them are lost"
        ),
        Event::ServerError(error) => tracing::warn!("a NATS server says: {error}"),
        Event::ClientError(error) => tracing::debug!("the connection to NATS: {error}"),
        Event::Draining | Event::Closed => {}
    }
}
