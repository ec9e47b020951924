//! The servers of NATS: the connections to them, and what is asked there.

use super::asker::Asker;
use super::consumer::Consumer;
use super::direct;
use super::link::{BrokerError, Log, START_PAUSE, START_TIMEOUT};
use super::listening::Republishing;
use super::servers::{
    Ack, Feed, FeedError, LastBySubject, Listener, NotStored, Page, PageSize, Part, Servers,
    Stored, ToStore, Way, Which,
};
use super::storer::Storer;
use super::stream::ensure;
use super::{BrokerSettings, State, leader, moving};
use crate::nats::{headers, is_connected};
use crate::nodes::{Nodes, Says};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{AccountErrorKind, Context, ContextBuilder};
use async_nats::{Client, Event};
use futures_util::future::BoxFuture;
use myriad_broker::{Extent, Subjects};
use myriad_nats::raw::RawConnection;
use myriad_nats::{Nats, NatsError};
use myriad_shard::{Namespaces, Told};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a request to JetStream may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How the name of the connection ends by which publications without history come.
const LIVE: &str = " live";
/// Messages in the library's queue: publications without history, and what nodes ask each other.
const OUTGOING_MAX: usize = 64;

/// The connections to the NATS servers of a cluster.
#[derive(Debug)]
pub(super) struct Jetstream {
    /// What a stream keeps leaves by it.
    storer: Storer,
    /// What no history keeps leaves by it, and what nodes ask each other.
    pub(super) client: Client,
    /// The publisher looks for messages by it.
    publishing: Context,
    /// Streams, and messages in them, are asked about by it.
    reading: Context,
    /// What no history keeps comes by it.
    pub(super) live: Client,
    /// The way to other nodes, over the same connection.
    pub(super) nodes: Arc<Nodes>,
    subjects: Subjects,
    replicas: usize,
    /// Of questions for many messages at once.
    asker: Asker,
    /// For connections that hear streams.
    nats: Nats,
    name: String,
    /// By stream: the id of the server by which it was heard last.
    heard_by: Mutex<HashMap<String, String>>,
    /// By which questions are asked.
    reads: Client,
}

impl Jetstream {
    /// Connects.
    ///
    /// # Errors
    /// NATS cannot be reached, or has no JetStream.
    pub(super) async fn connect(
        settings: &BrokerSettings,
        node: &str,
        namespaces: &Namespaces,
        state: &Arc<State>,
    ) -> Result<Self, BrokerError> {
        settings.nats.check()?;
        let client = connect(settings, &format!("myriad {node}"), Some(OUTGOING_MAX)).await?;
        let reads = connect(settings, &format!("myriad {node} reads"), None).await?;
        let live = connect(settings, &format!("myriad {node}{LIVE}"), None).await?;
        let name = format!("myriad {node} stores");
        let storer = Storer::connect(&settings.nats, name).await?;
        let moved = [&client, &reads, &live].map(Client::clone);
        tokio::spawn(moving::keep_away(moved, settings.nats.avoided.clone()));
        state.counts.set_connected(true);
        let reading = context_of(&reads);
        await_jetstream(&reading).await?;
        let subjects = settings.subjects.clone();
        let says = Says::new(namespaces, Arc::clone(state));
        let nodes = Nodes::new(client.clone(), subjects.clone(), node.to_owned(), says);
        Ok(Self {
            storer,
            publishing: context_of(&client),
            client,
            reading,
            live,
            nodes: Arc::new(nodes),
            subjects,
            replicas: settings.replicas,
            asker: Asker::new(settings.nats.clone(), format!("myriad {node} asks")),
            nats: settings.nats.clone(),
            name: format!("myriad {node}"),
            heard_by: Mutex::default(),
            reads,
        })
    }

    fn context(&self, way: Way) -> &Context {
        match way {
            Way::Publishing => &self.publishing,
            Way::Reading => &self.reading,
        }
    }

    fn stream_of(&self, log: &Log) -> String {
        self.subjects.stream(&log.class)
    }

    /// A connection for one stream: to a server of the URL, or else to one that another connection was told of.
    async fn connect_to(&self, stream: &str) -> Result<RawConnection, FeedError> {
        let name = format!("{} {stream}", self.name);
        let found = self.client.server_info().connect_urls;
        let connection = self.nats.connect_raw_or(&name, &found).await;
        let connection = connection.map_err(|error| FeedError::make(&error))?;
        let id = connection.server_id().to_owned();
        self.lock_heard_by().insert(stream.to_owned(), id);
        Ok(connection)
    }

    fn lock_heard_by(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.heard_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask_extent(&self, log: &Log) -> Result<Extent, FeedError> {
        let failed = |error: &dyn std::fmt::Display| FeedError::Info(error.to_string());
        let stream = self.reading.get_stream_no_info(self.stream_of(log)).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let info = stream.get_info().await.map_err(|error| failed(&error))?;
        Ok(Extent {
            first: info.state.first_sequence,
            last: info.state.last_sequence,
        })
    }
}

impl Servers for Jetstream {
    fn can_store(&self) -> bool {
        self.storer.is_connected()
    }

    fn can_send(&self) -> bool {
        is_connected(&self.client)
    }

    fn open<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>> {
        Box::pin(async {
            let stream = ensure(&self.reading, &self.subjects, log, self.replicas).await?;
            let state = &stream.cached_info().state;
            Ok(Extent {
                first: state.first_sequence,
                last: state.last_sequence,
            })
        })
    }

    fn extent<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, FeedError>> {
        Box::pin(self.ask_extent(log))
    }

    fn follow<'a>(
        &'a self,
        log: &'a Log,
        first: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Feed>, FeedError>> {
        Box::pin(async move {
            let stream = self.stream_of(log);
            let connection = self.connect_to(&stream).await?;
            let mut consumer = Consumer::open(connection, &stream, first);
            consumer.created().await?;
            let feed: Box<dyn Feed> = Box::new(consumer);
            Ok(feed)
        })
    }

    fn listen<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Box<dyn Listener>, FeedError>> {
        Box::pin(async move {
            let stream = self.stream_of(log);
            let connection = self.connect_to(&stream).await?;
            let subjects = self.subjects.clone();
            let listener = Republishing::new(connection, subjects, &stream);
            let listener: Box<dyn Listener> = Box::new(listener);
            Ok(listener)
        })
    }

    fn last_by_subject<'a>(
        &'a self,
        log: &'a Log,
        subjects: &'a [String],
    ) -> BoxFuture<'a, Result<LastBySubject, FeedError>> {
        Box::pin(async move {
            direct::last_by_subject(&self.asker, &self.stream_of(log), subjects).await
        })
    }

    fn page<'a>(
        &'a self,
        log: &'a Log,
        subject: &'a str,
        from: u64,
        size: PageSize,
    ) -> BoxFuture<'a, Result<Page, FeedError>> {
        Box::pin(async move {
            direct::page(&self.asker, &self.stream_of(log), subject, from, size).await
        })
    }

    fn look<'a>(
        &'a self,
        way: Way,
        log: &'a Log,
        which: Which<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, FeedError>> {
        Box::pin(async move { leader::look(self.context(way), &self.stream_of(log), which).await })
    }

    fn store<'a>(
        &'a self,
        log: &'a Log,
        message: ToStore,
    ) -> BoxFuture<'a, Result<Ack, NotStored>> {
        Box::pin(self.storer.store(self.stream_of(log), message))
    }

    fn send(&self, message: ToStore) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let ToStore {
                subject,
                headers: values,
                payload,
                ..
            } = message;
            let values = values.iter();
            let headers = headers(values.map(|(name, value)| (*name, value.as_str())));
            let sent = self.client.publish_with_headers(subject, headers, payload);
            sent.await.is_ok()
        })
    }

    fn leave_server(&self, log: &Log, part: Part) {
        let stream = self.stream_of(log);
        let id = match part {
            Part::Feed => self.lock_heard_by().get(&stream).cloned(),
            Part::Questions => Some(self.reads.server_info().server_id),
        };
        if let Some(id) = id.filter(|id| self.nats.avoided.add(id)) {
            tracing::warn!(
                "nothing of stream {stream} comes by NATS server {id}: this node tries another one, if there is one"
            );
        }
    }

    fn tell(&self, told: Told) {
        self.nodes.tell(told);
    }
}

/// Connects. At most `outgoing_max` messages wait in the library. When the connection is lost, they leave by the next one, however late.
async fn connect(
    settings: &BrokerSettings,
    name: &str,
    outgoing_max: Option<usize>,
) -> Result<Client, NatsError> {
    let options = settings.nats.options(name).await?;
    let options = match outgoing_max {
        Some(count) => options.client_capacity(count),
        None => options,
    };
    let name = name.to_owned();
    let options = options.event_callback(move |event| {
        note(&event, &name);
        std::future::ready(())
    });
    settings.nats.connect_with(options).await
}

/// Whether servers that say this may answer soon: while they elect a leader they say that they are not available.
fn may_come(error: &AccountErrorKind) -> bool {
    match error {
        AccountErrorKind::TimedOut => true,
        AccountErrorKind::JetStream(said) => {
            let never = [
                ErrorCode::JETSTREAM_NOT_ENABLED,
                ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
                ErrorCode::CLUSTER_REQUIRED,
            ];
            said.code() >= 500 && !never.contains(&said.error_code())
        }
        // Nobody listens where JetStream is asked: it is off, or this server does not reach the others yet.
        AccountErrorKind::JetStreamUnavailable => true,
        AccountErrorKind::Other => false,
    }
}

/// Servers that have just started have no leader that would answer.
async fn await_jetstream(context: &Context) -> Result<(), BrokerError> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match context.query_account().await {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline || !may_come(&error.kind()) => {
                return Err(BrokerError::JetStream(error.to_string()));
            }
            Err(error) => {
                tracing::info!("JetStream does not answer yet ({error}); it is asked again");
                sleep(START_PAUSE).await;
            }
        }
    }
}

fn context_of(client: &Client) -> Context {
    ContextBuilder::new()
        .timeout(REQUEST_TIMEOUT)
        .build(client.clone())
}

/// Tells the log what happens to a connection.
fn note(event: &Event, name: &str) {
    let is_live = name.ends_with(LIVE);
    match event {
        Event::SlowConsumer(_) if is_live => tracing::warn!(
            "this node reads publications without history too slowly: some of them are lost"
        ),
        Event::Disconnected => {
            tracing::info!("connection {name:?} to NATS is lost; it is made again");
        }
        Event::LameDuckMode => {
            tracing::info!("a NATS server asks connection {name:?} to go to another");
        }
        Event::ServerError(error) => {
            tracing::warn!("a NATS server says to connection {name:?}: {error}");
        }
        event => tracing::debug!("connection {name:?} to NATS: {event}"),
    }
}
