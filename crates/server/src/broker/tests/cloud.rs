//! The servers that keep the simulated log: one leader at a time, over connections that break.
//!
//! They keep the promises of JetStream and no more. An answer may be lost after what was asked was done, and a message may be stored
//! long after nobody waits for it. While there is no leader, nothing is answered. If the plan says so, another leader comes without the
//! end of the log. A consumer may lose a message and say so, or fall silent.

use super::truth::{Fact, Truth, What};
use super::{CHANNELS, Plan, STREAM_NAMESPACE};
use crate::broker::BrokerError;
use crate::broker::link::Log;
use crate::broker::live::envelope_of;
use crate::broker::servers::{
    Ack, Feed, FeedError, NotStored, Servers, Stored, ToStore, Way, Which,
};
use async_nats::header::NATS_ROLLUP;
use futures_util::future::{BoxFuture, pending};
use myriad_broker::{Class, Extent, Subjects};
use myriad_reactor::sim::Prng;
use myriad_shard::{Payload, Told};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

/// How long the client library waits for an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// A consumer without messages sends a beat.
const CONSUMER_BEAT: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(11);
/// So long the ids of messages are remembered.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// What strangers write. It cannot be read.
const RUBBISH: &str = "rubbish";

/// The stream of the log.
#[derive(Debug, Default)]
struct Stream {
    entries: BTreeMap<u64, Stored>,
    /// With those that have gone since.
    ever: Vec<Stored>,
    last: u64,
    ids: HashMap<String, (u64, Instant)>,
}

impl Stream {
    fn first(&self) -> u64 {
        self.entries
            .first_key_value()
            .map_or(self.last + 1, |(first, _)| *first)
    }

    /// A message comes, and takes the place of older ones of its subject.
    fn insert(&mut self, entry: Stored, kept: usize) {
        let subject = entry.subject.clone();
        let headers = entry.headers.as_ref();
        let rolls_up = headers.is_some_and(|headers| headers.get(NATS_ROLLUP).is_some());
        self.entries.insert(entry.sequence, entry);
        let of_subject = self.entries.values().rev();
        let of_subject = of_subject.filter(|entry| entry.subject == subject);
        let old = of_subject.skip(if rolls_up { 1 } else { kept });
        let old: Vec<_> = old.map(|entry| entry.sequence).collect();
        for sequence in old {
            self.entries.remove(&sequence);
        }
    }

    fn last_of(&self, subject: &str) -> Option<&Stored> {
        let mut newest_first = self.entries.values().rev();
        newest_first.find(|entry| *entry.subject == *subject)
    }
}

/// What all servers know.
struct State {
    stream: Stream,
    truth: Truth,
    prng: Prng,
    has_leader: bool,
    /// Messages that a leader has taken, and that will be stored when there is one again.
    late: Vec<ToStore>,
    stored_ns: i128,
    subjects: Subjects,
}

/// The servers.
pub(super) struct Cloud {
    state: Mutex<State>,
    changed: Notify,
    began: Instant,
    plan: Plan,
    is_calm: AtomicBool,
    is_printed: bool,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}

impl Cloud {
    pub(super) fn new(plan: Plan, prng: Prng, subjects: Subjects, is_printed: bool) -> Arc<Self> {
        let state = State {
            stream: Stream::default(),
            truth: Truth::default(),
            prng,
            has_leader: true,
            late: Vec::new(),
            stored_ns: 0,
            subjects,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            began: Instant::now(),
            plan,
            is_calm: AtomicBool::new(false),
            is_printed,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Prints what happens, if somebody looks.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.is_printed {
            println!("{:>8} ms  {}", self.began.elapsed().as_millis(), what());
        }
    }

    /// From now on, nothing goes wrong.
    pub(super) fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Looks at all that the log ever had.
    pub(super) fn with_truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        look(&self.lock().truth)
    }

    pub(super) fn lose_leader(&self) {
        self.say(|| "there is no leader".into());
        self.lock().has_leader = false;
    }

    /// There is a leader again: perhaps one without the last so many messages.
    pub(super) fn elect(&self, lost: u64) {
        let mut state = self.lock();
        if lost > 0 {
            state.cut(lost, self.plan.kept_by_log);
        }
        let last = state.stream.last;
        self.say(|| format!("there is a leader; the log ends at {last}"));
        state.has_leader = true;
        for message in std::mem::take(&mut state.late) {
            let _ = self.store(&mut state, message);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A stranger writes something where beats stand, or a message that cannot be read.
    pub(super) fn write_rubbish(&self) {
        let mut state = self.lock();
        if !state.has_leader {
            return;
        }
        let class = Class::of(Some(STREAM_NAMESPACE));
        let subjects = &state.subjects;
        let (beat, first, elsewhere) = (
            subjects.beat(&class),
            subjects.stored(&class, CHANNELS[0]),
            // Its namespace has another stream.
            subjects.stored(&class, "elsewhere:a"),
        );
        let subject = state.prng.pick(&[beat, first, elsewhere]).clone();
        let message = ToStore {
            subject,
            payload: RUBBISH.into(),
            ..ToStore::default()
        };
        let _ = self.store(&mut state, message);
        drop(state);
        self.changed.notify_waiters();
    }

    fn store(&self, state: &mut State, message: ToStore) -> Result<Ack, NotStored> {
        self.expire(state);
        let now = Instant::now();
        let stream = &mut state.stream;
        if let Some(id) = &message.id
            && let Some((sequence, at)) = stream.ids.get(id)
            && at.elapsed() < DUPLICATE_WINDOW
        {
            return Ok(Ack {
                sequence: *sequence,
                is_new: false,
            });
        }
        if let Some(behind) = message.behind
            && stream
                .last_of(&message.subject)
                .map_or(0, |last| last.sequence)
                != behind
        {
            return Err(NotStored::Overtaken);
        }
        let sequence = stream.last + 1;
        stream.last = sequence;
        if let Some(id) = message.id {
            stream.ids.insert(id, (sequence, now));
        }
        // Two messages never have one time.
        let elapsed = i128::try_from(self.began.elapsed().as_nanos()).unwrap_or(i128::MAX);
        state.stored_ns = elapsed.max(state.stored_ns + 1);
        let is_spoiled = *message.payload == *RUBBISH.as_bytes();
        let stored = Stored {
            sequence,
            stored_ns: state.stored_ns,
            subject: message.subject.into(),
            headers: Some(message.headers),
            payload: message.payload,
            is_spoiled,
        };
        let fact = fact_of(&stored, &state.subjects);
        self.say(|| format!("stored: {fact:?}"));
        state.truth.append(fact);
        state.stream.ever.push(stored.clone());
        state.stream.insert(stored, self.plan.kept_by_log);
        Ok(Ack {
            sequence,
            is_new: true,
        })
    }

    fn expire(&self, state: &mut State) {
        let now = i128::try_from(self.began.elapsed().as_nanos()).unwrap_or(i128::MAX);
        let max = i128::try_from(self.plan.log_ttl.as_nanos()).unwrap_or(i128::MAX);
        let entries = &mut state.stream.entries;
        while let Some(first) = entries.first_entry()
            && first.get().stored_ns + max < now
        {
            first.remove();
        }
    }

    fn look(state: &State, which: &Looked) -> Option<Stored> {
        let from = |sequence| state.stream.entries.range(sequence..).map(|(_, one)| one);
        let found = match which {
            Looked::From(sequence) => from(*sequence).next(),
            Looked::OfFrom(subject, sequence) => {
                from(*sequence).find(|entry| *entry.subject == **subject)
            }
            Looked::LastOf(subject) => state.stream.last_of(subject),
        };
        found.cloned()
    }
}

impl State {
    /// Another server leads, without the last messages and all that they did.
    fn cut(&mut self, lost: u64, kept: usize) {
        let stream = &mut self.stream;
        let after = stream.last.saturating_sub(lost);
        stream.last = after;
        stream.ids.retain(|_, (sequence, _)| *sequence <= after);
        stream.ever.retain(|entry| entry.sequence <= after);
        stream.entries.clear();
        for entry in stream.ever.clone() {
            stream.insert(entry, kept);
        }
        self.truth.cut(after);
    }
}

fn fact_of(stored: &Stored, subjects: &Subjects) -> Fact {
    let class = Class::of(Some(STREAM_NAMESPACE));
    let channel = subjects.channel_of_stored(&class, &stored.subject);
    let channel = channel.and_then(|name| CHANNELS.iter().position(|channel| *channel == name));
    let what = match content_of(stored) {
        _ if stored.is_spoiled => What::Other,
        None => What::Removal,
        Some(Payload::Text(text)) if channel.is_some() => {
            What::Publication(text.parse().expect("its number"))
        }
        Some(_) => What::Other,
    };
    Fact {
        sequence: stored.sequence,
        channel,
        what,
    }
}

fn content_of(stored: &Stored) -> Option<Payload> {
    let envelope = envelope_of(stored.headers.as_ref(), &stored.payload).expect("it is ours");
    envelope.content.map(|content| content.payload.clone())
}

/// [`Which`], for a task.
#[derive(Debug)]
enum Looked {
    From(u64),
    OfFrom(String, u64),
    LastOf(String),
}

impl From<Which<'_>> for Looked {
    fn from(which: Which<'_>) -> Self {
        match which {
            Which::From(sequence) => Self::From(sequence),
            Which::OfFrom(subject, sequence) => Self::OfFrom(subject.to_owned(), sequence),
            Which::LastOf(subject) => Self::LastOf(subject.to_owned()),
        }
    }
}

/// A node's connection: how often it was made, and whether it is there.
#[derive(Debug, Default)]
struct Connection {
    count: u64,
    is_down: bool,
}

/// A node's way to the servers.
#[derive(Debug)]
pub(super) struct Client {
    cloud: Arc<Cloud>,
    connection: Arc<Mutex<Connection>>,
}

impl Client {
    pub(super) fn new(cloud: &Arc<Cloud>) -> Self {
        Self {
            cloud: Arc::clone(cloud),
            connection: Arc::default(),
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// What is on its way is lost.
    pub(super) fn cut(&self) {
        let mut connection = self.connection();
        connection.is_down = true;
        connection.count += 1;
    }

    pub(super) fn reconnect(&self) {
        self.connection().is_down = false;
        self.cloud.changed.notify_waiters();
    }

    /// Has the servers do something, and waits for the answer. They may do it although nobody waits any more.
    async fn ask<T: Send + 'static>(
        &self,
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
                state.has_leader.then(|| act(&cloud, &mut state))
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

/// Whatever happened to whoever had it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn extent_of(state: &State) -> Extent {
    Extent {
        first: state.stream.first(),
        last: state.stream.last,
    }
}

impl Servers for Client {
    fn is_connected(&self) -> bool {
        !self.connection().is_down
    }

    fn open<'a>(&'a self, _log: &'a Log) -> BoxFuture<'a, Result<Extent, BrokerError>> {
        Box::pin(async {
            let extent = self.ask(|_, state| extent_of(state)).await;
            extent.map_err(|why| BrokerError::NoStream {
                stream: "the log".into(),
                why: why.into(),
                replicas: 3,
            })
        })
    }

    fn extent<'a>(&'a self, _log: &'a Log) -> BoxFuture<'a, Result<Extent, FeedError>> {
        Box::pin(async {
            let extent = self.ask(|_, state| extent_of(state)).await;
            extent.map_err(|why| FeedError::Info(why.into()))
        })
    }

    fn follow<'a>(
        &'a self,
        _log: &'a Log,
        first: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Feed>, FeedError>> {
        Box::pin(async move {
            let made = self.ask(|_, state| state.prng.fork()).await;
            let prng = made.map_err(|why| FeedError::Make(why.into()))?;
            let (sender, messages) = unbounded_channel();
            let count = self.connection().count;
            let consumer = Consumer {
                cloud: Arc::clone(&self.cloud),
                connection: Arc::clone(&self.connection),
                count,
                prng,
                next: first,
            };
            tokio::spawn(consumer.run(sender));
            let feed: Box<dyn Feed> = Box::new(SimFeed {
                messages,
                connection: Arc::clone(&self.connection),
                count,
                heard: Instant::now(),
            });
            Ok(feed)
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
            let found = self.ask(move |_, state| Cloud::look(state, &which)).await;
            found.map_err(|why| FeedError::Look(why.into()))
        })
    }

    fn store<'a>(
        &'a self,
        _way: Way,
        _log: &'a Log,
        message: ToStore,
    ) -> BoxFuture<'a, Result<Ack, NotStored>> {
        Box::pin(async move {
            // A leader that goes may have passed the message on.
            let late = {
                let mut state = self.cloud.lock();
                let is_late = !state.has_leader && state.prng.one_in(4);
                is_late.then(|| message.clone())
            };
            if let Some(late) = late
                && self.is_connected()
            {
                self.cloud.lock().late.push(late);
            }
            let stored = self.ask(move |cloud, state| cloud.store(state, message));
            stored
                .await
                .unwrap_or_else(|why| Err(NotStored::Unknown(why.into())))
        })
    }

    fn send(&self, _message: ToStore) -> BoxFuture<'_, bool> {
        Box::pin(async { true })
    }

    fn tell(&self, _told: Told) {}
}

/// What a consumer sends.
enum Sent {
    Message(Stored),
    Beat,
    /// The messages after one that was lost on its way.
    Hole,
    Ended,
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
                let is_idle = timeout(CONSUMER_BEAT, changed).await.is_err();
                if is_idle && cloud.lock().has_leader {
                    let _ = sender.send(Sent::Beat);
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
struct SimFeed {
    messages: UnboundedReceiver<Sent>,
    connection: Arc<Mutex<Connection>>,
    count: u64,
    heard: Instant,
}

impl Feed for SimFeed {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Stored, FeedError>> {
        loop {
            let Some(sent) = ready!(self.messages.poll_recv(context)) else {
                // The consumer has gone. Nobody says so.
                return Poll::Pending;
            };
            self.heard = Instant::now();
            match sent {
                Sent::Message(stored) => return Poll::Ready(Ok(stored)),
                Sent::Beat => {}
                Sent::Hole => return Poll::Ready(Err(FeedError::Hole)),
                Sent::Ended => return Poll::Ready(Err(FeedError::Ended("it said so".into()))),
            }
        }
    }

    fn fault(&self) -> Option<FeedError> {
        let connection = lock(&self.connection);
        if connection.count != self.count || connection.is_down {
            return Some(FeedError::Cut);
        }
        let is_silent = self.heard.elapsed() > SILENCE_MAX;
        is_silent.then_some(FeedError::Silent(SILENCE_MAX.as_secs()))
    }
}
