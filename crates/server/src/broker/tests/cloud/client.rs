//! A node's way to the servers of the simulated log: a connection that breaks, and answers that are late or lost.

use super::listener::SimListener;
use super::{Cloud, Looked, State, consumer, extent_of, lock};
use crate::broker::link::Log;
use crate::broker::servers::{
    Ack, Feed, FeedError, LastBySubject, Listener, NotStored, Page, PageSize, Part,
    SUBJECTS_ASKED_MAX, Servers, Stored, ToStore, Way, Which,
};
use crate::broker::{BrokerError, NoStreamCause};
use futures_util::future::{BoxFuture, pending};
use myriad_broker::{Extent, Source};
use myriad_reactor::sim::Prng;
use myriad_shard::Told;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long the client library waits for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A node's connection: how often it was made, and whether it is there.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) count: u64,
    pub(super) is_down: bool,
}

/// Who answers a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Leader,
    /// Some server. Without a leader it may be one that is down.
    Any,
}

/// A node's way to the servers.
#[derive(Debug)]
pub(in super::super) struct Client {
    pub(super) cloud: Arc<Cloud>,
    pub(super) connection: Arc<Mutex<Connection>>,
    /// What the node heard last.
    source: Mutex<Option<Source>>,
}

impl Client {
    pub(in super::super) fn new(cloud: &Arc<Cloud>) -> Self {
        Self {
            cloud: Arc::clone(cloud),
            connection: Arc::default(),
            source: Mutex::default(),
        }
    }

    fn note_source(&self, source: Source) {
        let before = lock(&self.source).replace(source);
        if before.is_some_and(|before| before != source) {
            let reached = &mut self.cloud.lock().reached;
            match source {
                Source::Channels => reached.changes_to_channels += 1,
                Source::Whole => reached.changes_to_whole += 1,
            }
        }
    }

    pub(super) fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// What is on its way is lost.
    pub(in super::super) fn cut(&self) {
        {
            let mut connection = self.connection();
            connection.is_down = true;
            connection.count += 1;
        }
        self.cloud.cut_listeners(&self.connection);
    }

    pub(in super::super) fn reconnect(&self) {
        self.connection().is_down = false;
        self.cloud.changed.notify_waiters();
    }

    /// Has the servers do something, and waits for the answer. They may do it although nobody waits any more.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        whom: Whom,
        act: impl FnOnce(&Cloud, &mut State) -> T + Send + 'static,
    ) -> Result<T, &'static str> {
        let (answer, answered) = oneshot::channel();
        let cloud = Arc::clone(&self.cloud);
        let connection = Arc::clone(&self.connection);
        let before = lock(&connection).count;
        let (going, coming, is_lost, refuses) = {
            let plan = cloud.plan;
            let mut state = cloud.lock();
            let prng = &mut state.prng;
            let delay = |prng: &mut Prng| Duration::from_micros(prng.below(plan.delay_us) as u64);
            (
                delay(prng),
                delay(prng),
                plan.loses_answers && prng.one_in(40) && !cloud.is_calm(),
                prng.one_in(2),
            )
        };
        tokio::spawn(async move {
            sleep(going).await;
            let is_same = |connection: &Mutex<Connection>| {
                let connection = lock(connection);
                connection.count == before && !connection.is_down
            };
            if !is_same(&connection) {
                return;
            }
            let done = {
                let mut state = cloud.lock();
                cloud.expire(&mut state);
                let is_there =
                    state.has_leader || (whom == Whom::Any && state.listeners.has_server());
                is_there.then(|| act(&cloud, &mut state))
            };
            cloud.changed.notify_waiters();
            if done.is_none() && !refuses {
                return;
            }
            sleep(coming).await;
            if is_same(&connection) && !is_lost {
                let _ = answer.send(done);
            }
        });
        let answered = async {
            match answered.await {
                Ok(answer) => answer.ok_or("there is no leader"),
                Err(_) => pending().await,
            }
        };
        let answered = timeout(REQUEST_TIMEOUT, answered).await;
        answered.unwrap_or(Err("there is no answer"))
    }
}

impl Servers for Client {
    fn can_store(&self) -> bool {
        !self.connection().is_down
    }

    fn can_send(&self) -> bool {
        self.can_store()
    }

    fn open<'a>(&'a self, log: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>> {
        Box::pin(async {
            let republishes = log.needs_republish();
            let extent = self.ask(Whom::Leader, move |_, state| {
                state.listeners.turn_on(republishes);
                extent_of(state)
            });
            extent.await.map_err(|why| BrokerError::NoStream {
                stream: "the log".into(),
                why: why.into(),
                cause: NoStreamCause::NoLeader,
                replicas: 3,
            })
        })
    }

    fn extent<'a>(&'a self, _log: &'a Log) -> BoxFuture<'a, Result<Extent, FeedError>> {
        Box::pin(async {
            let extent = self.ask(Whom::Leader, |_, state| extent_of(state)).await;
            extent.map_err(|why| FeedError::Info(why.into()))
        })
    }

    fn follow<'a>(
        &'a self,
        _log: &'a Log,
        first: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Feed>, FeedError>> {
        Box::pin(async move {
            let made = self.ask(Whom::Leader, |_, state| state.prng.fork()).await;
            let prng = made.map_err(|why| FeedError::Make(why.into()))?;
            self.note_source(Source::Whole);
            let feed = consumer::follow(&self.cloud, &self.connection, prng, first);
            let feed: Box<dyn Feed> = Box::new(feed);
            Ok(feed)
        })
    }

    fn listen<'a>(&'a self, _log: &'a Log) -> BoxFuture<'a, Result<Box<dyn Listener>, FeedError>> {
        Box::pin(async move {
            self.note_source(Source::Channels);
            let listener: Box<dyn Listener> = Box::new(SimListener::open(self).await?);
            Ok(listener)
        })
    }

    fn last_by_subject<'a>(
        &'a self,
        _log: &'a Log,
        subjects: &'a [String],
    ) -> BoxFuture<'a, Result<LastBySubject, FeedError>> {
        assert!(
            subjects.len() <= SUBJECTS_ASKED_MAX,
            "no server answers that"
        );
        let subjects = subjects.to_vec();
        Box::pin(async move {
            let found = self.ask(Whom::Any, move |cloud, state| {
                cloud.last_by_subject(state, &subjects)
            });
            found.await.map_err(|why| FeedError::Look(why.into()))
        })
    }

    fn page<'a>(
        &'a self,
        _log: &'a Log,
        subject: &'a str,
        from: u64,
        size: PageSize,
    ) -> BoxFuture<'a, Result<Page, FeedError>> {
        let subject = subject.to_owned();
        Box::pin(async move {
            let found = self.ask(Whom::Any, move |cloud, state| {
                cloud.page(state, &subject, from, size.messages_max)
            });
            found.await.map_err(|why| FeedError::Look(why.into()))
        })
    }

    fn look<'a>(
        &'a self,
        _way: Way,
        _log: &'a Log,
        which: Which<'a>,
    ) -> BoxFuture<'a, Result<Option<Stored>, FeedError>> {
        let which = Looked::from(which);
        Box::pin(async move {
            let found = self.ask(Whom::Leader, move |_, state| Cloud::look(state, &which));
            found.await.map_err(|why| FeedError::Look(why.into()))
        })
    }

    fn store<'a>(
        &'a self,
        log: &'a Log,
        message: ToStore,
    ) -> BoxFuture<'a, Result<Ack, NotStored>> {
        Box::pin(async move {
            if self.cloud.holds(log, &message) {
                return pending().await;
            }
            // A leader that goes may have passed the message on.
            let late = {
                let mut state = self.cloud.lock();
                let is_late = !state.has_leader && state.prng.one_in(4);
                is_late.then(|| message.clone())
            };
            if let Some(late) = late
                && self.can_store()
            {
                self.cloud.lock().late.push(late);
            }
            let stored = self.ask(Whom::Leader, move |cloud, state| {
                cloud.store(state, message)
            });
            stored
                .await
                .unwrap_or_else(|why| Err(NotStored::Unknown(why.into())))
        })
    }

    fn send(&self, _message: ToStore) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    /// There is one server at a time.
    fn leave_server(&self, _log: &Log, _part: Part) {}

    fn tell(&self, _told: Told) {}
}
