//! The servers of NATS: the connections to them, and what is asked there.

use super::asker::Asker;
use super::direct;
use super::link::START_TIMEOUT;
use super::link::{BrokerError, Log};
use super::listening::Republishing;
use super::servers::{
    Ack, Feed, FeedError, LastBySubject, Listener, NotStored, Page, PageSize, Servers, Stored,
    ToStore, Way, Which,
};
use super::stream::ensure;
use super::{BrokerSettings, State, feed};
use crate::nats::is_connected;
use crate::nodes::Nodes;
use async_nats::jetstream::context::{
    AccountErrorKind, Context, ContextBuilder, PublishError, PublishErrorKind,
};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{Client, Event};
use futures_util::future::BoxFuture;
use myriad_broker::{Extent, Subjects};
use myriad_nats::{Nats, NatsError};
use myriad_shard::Told;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a request to JetStream may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Publications in the library's queue.
const OUTGOING_MAX: usize = 64;
/// Errors of JetStream that say that another message came first: with one replica, and with several.
const OVERTAKEN: [u64; 2] = [10071, 10164];
/// The one that says that the same message is being stored.
const IN_PROCESS: u64 = 10158;

/// The connections to the NATS servers of a cluster.
#[derive(Debug)]
pub(super) struct Jetstream {
    /// Publications leave by it, and their acknowledgements come.
    pub(super) client: Client,
    publishing: Context,
    /// Stored messages come by it.
    reads: Client,
    /// Of what is asked about streams, and of beats.
    reading: Context,
    /// What no history keeps comes by it.
    pub(super) live: Client,
    /// The way to other nodes, over the same connection.
    pub(super) nodes: Arc<Nodes>,
    subjects: Subjects,
    replicas: usize,
    /// Of questions for many messages at once.
    asker: Asker,
    /// For connections that hear what streams republish.
    nats: Nats,
    name: String,
    by_channel: bool,
}

impl Jetstream {
    /// Connects.
    ///
    /// # Errors
    /// NATS cannot be reached, or has no JetStream.
    pub(super) async fn connect(
        settings: &BrokerSettings,
        node: &str,
        state: &Arc<State>,
    ) -> Result<Self, BrokerError> {
        settings.nats.check()?;
        let known = Some(Arc::clone(state));
        let client = connect(settings, &format!("myriad {node}"), known).await?;
        state.counts.set_connected(true);
        let reads = connect(settings, &format!("myriad {node} reads"), None).await?;
        let live = connect(settings, &format!("myriad {node} live"), None).await?;
        let reading = context_of(&reads);
        await_jetstream(&reading).await?;
        let subjects = settings.subjects.clone();
        let nodes = Nodes::new(client.clone(), subjects.clone(), node.to_owned());
        Ok(Self {
            publishing: context_of(&client),
            client,
            reads,
            reading,
            live,
            nodes: Arc::new(nodes),
            subjects,
            replicas: settings.replicas,
            asker: Asker::new(settings.nats.clone(), format!("myriad {node} asks")),
            nats: settings.nats.clone(),
            name: format!("myriad {node}"),
            by_channel: settings.by_channel,
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

    async fn store_message(
        &self,
        way: Way,
        log: &Log,
        message: ToStore,
    ) -> Result<Ack, PublishError> {
        let mut publish = PublishMessage::build()
            .headers(message.headers)
            .expected_stream(self.stream_of(log))
            .payload(message.payload);
        if let Some(id) = message.id {
            publish = publish.message_id(id);
        }
        if let Some(sequence) = message.behind {
            publish = publish.expected_last_subject_sequence(sequence);
        }
        let sent = self.context(way).send_publish(message.subject, publish);
        let ack = sent.await?.await?;
        Ok(Ack {
            sequence: ack.sequence,
            is_new: !ack.duplicate,
        })
    }
}

impl Servers for Jetstream {
    fn is_connected(&self) -> bool {
        is_connected(&self.client)
    }

    fn open<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>> {
        Box::pin(async {
            let stream = ensure(
                &self.reading,
                &self.subjects,
                log,
                self.replicas,
                self.by_channel,
            )
            .await?;
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
            let feed = feed::Consumer::open(&self.reads, &self.reading, stream, first).await?;
            let feed: Box<dyn Feed> = Box::new(feed);
            Ok(feed)
        })
    }

    fn listen<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Box<dyn Listener>, FeedError>> {
        Box::pin(async move {
            let stream = self.stream_of(log);
            let connection = self
                .nats
                .connect_raw(&format!("{} {stream}", self.name))
                .await;
            let connection = connection.map_err(|error| FeedError::Ended(error.to_string()))?;
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
        Box::pin(async move { feed::look(self.context(way), &self.stream_of(log), which).await })
    }

    fn store<'a>(
        &'a self,
        way: Way,
        log: &'a Log,
        message: ToStore,
    ) -> BoxFuture<'a, Result<Ack, NotStored>> {
        Box::pin(async move {
            let stored = self.store_message(way, log, message).await;
            stored.map_err(|error| not_stored(&error))
        })
    }

    fn send(&self, message: ToStore) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let ToStore {
                subject,
                headers,
                payload,
                ..
            } = message;
            let sent = self.client.publish_with_headers(subject, headers, payload);
            sent.await.is_ok()
        })
    }

    fn tell(&self, told: Told) {
        self.nodes.tell(told);
    }
}

/// Why a message is not stored. Without a leader JetStream does not answer, and says 503 in between.
fn not_stored(error: &PublishError) -> NotStored {
    let source = std::error::Error::source(error);
    let said = source.and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>());
    let code = said.map_or(0, |said| said.error_code().0);
    let is_of_request = said.is_some_and(|said| (400..500).contains(&said.code()));
    if OVERTAKEN.contains(&code) {
        NotStored::Overtaken
    } else if error.kind() == PublishErrorKind::MaxPayloadExceeded
        || (is_of_request && code != IN_PROCESS)
    {
        NotStored::Refused(error.to_string())
    } else {
        NotStored::Unknown(error.to_string())
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

/// Servers that have just started have no leader that would answer.
async fn await_jetstream(context: &Context) -> Result<(), BrokerError> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match context.query_account().await {
            Ok(_) => return Ok(()),
            Err(error)
                if Instant::now() >= deadline || error.kind() != AccountErrorKind::TimedOut =>
            {
                return Err(BrokerError::JetStream(error.to_string()));
            }
            Err(error) => {
                tracing::info!("JetStream does not answer yet ({error}); it is asked again")
            }
        }
    }
}

fn context_of(client: &Client) -> Context {
    ContextBuilder::new()
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
