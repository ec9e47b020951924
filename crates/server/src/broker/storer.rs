//! Stores messages in streams, over a connection of our own.
//!
//! The client library makes a map of each message's headers, and a future with a timer of its own for each acknowledgement. Here each
//! message is written once, straight to the buffer. The last token of its reply subject finds who waits for the acknowledgement. When the
//! connection is lost, everybody who waits is told, what was not written is dropped, and the connection is made again.

use super::direct::status_of;
use super::servers::{Ack, NotStored, ToStore};
use myriad_nats::raw::{RawConnection, RawError, RawMessage};
use myriad_nats::{Nats, NatsError};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// How long an acknowledgement may take: without a leader nobody answers.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that has answered nothing for so long, and not these many messages, may have lost its cluster: another one is tried. Without a
/// leader none answers either, for 4 to 9 s: then this does no harm.
const UNANSWERED_MAX: Duration = Duration::from_secs(6);
const UNANSWERED_MIN: usize = 2;
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(250);
/// A connection that ends sooner than this is not made again at once.
const LIFE_MIN: Duration = Duration::from_secs(1);
/// How often those are forgotten who wait no more, and how often it is told what the servers forbid.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that may wait for a server that reads too slowly: they are stored as soon as it reads again, however late. Further messages stay
/// with their callers. A caller that gives up takes its message along.
const UNWRITTEN_BYTES_MAX: usize = 128 << 10;
/// How often it is looked whether there is room again.
const ROOM_PAUSE: Duration = Duration::from_millis(10);
/// Messages that are written before acknowledgements have their turn, and acknowledgements that are read before anything else has.
const TURN_MAX: usize = 256;
/// Headers that JetStream knows: the stream that is to take the message, the message's id, and the place of the message before it.
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
const ID: &str = "Nats-Msg-Id";
const BEHIND: &str = "Nats-Expected-Last-Subject-Sequence";
/// Errors of JetStream that say that another message came first: with one replica, and with several.
const OVERTAKEN: [u64; 2] = [10071, 10164];
/// The one that says that the same message is being stored.
const IN_PROCESS: u64 = 10158;

/// A message to be stored, and who waits for that.
struct Request {
    stream: String,
    message: ToStore,
    answer: Answer,
}

type Answer = oneshot::Sender<Result<Ack, NotStored>>;

/// Where messages are left. The task that stores them ends with it.
#[derive(Debug)]
pub(super) struct Storer {
    requests: Sender<Request>,
    is_connected: Arc<AtomicBool>,
}

impl Storer {
    /// Connects, and begins a task of the runtime that this is called in. `name` is the connection's name.
    ///
    /// # Errors
    /// No server can be reached, or none lets us in.
    pub(super) async fn connect(nats: &Nats, name: String) -> Result<Self, NatsError> {
        let connection = nats.connect_raw(&name).await?;
        let (requests, received) = channel(TURN_MAX);
        let is_connected = Arc::new(AtomicBool::new(true));
        let task = StoringTask {
            nats: nats.clone(),
            name,
            is_connected: Arc::clone(&is_connected),
            requests: received,
        };
        tokio::spawn(task.run(connection));
        Ok(Self {
            requests,
            is_connected,
        })
    }

    /// Whether messages reach the servers now, as far as this process knows.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Stores a message, and waits for its acknowledgement. When the future is dropped before the message is
    /// in the connection's buffer, it never leaves.
    ///
    /// # Errors
    /// It was not stored, or nobody knows.
    pub(super) async fn store(&self, stream: String, message: ToStore) -> Result<Ack, NotStored> {
        let (answer, answered) = oneshot::channel();
        let request = Request {
            stream,
            message,
            answer,
        };
        let asking = async {
            self.requests.send(request).await.map_err(|_| lost())?;
            answered.await.unwrap_or_else(|_| Err(lost()))
        };
        let answer = timeout(ACK_TIMEOUT, asking).await;
        answer.unwrap_or_else(|_| {
            let why = format!("no acknowledgement in {} s", ACK_TIMEOUT.as_secs());
            Err(NotStored::Unknown(why))
        })
    }
}

fn lost() -> NotStored {
    NotStored::Unknown("the connection to the NATS servers was lost".to_owned())
}

/// The task behind a storer.
struct StoringTask {
    nats: Nats,
    name: String,
    is_connected: Arc<AtomicBool>,
    requests: Receiver<Request>,
}

impl Drop for StoringTask {
    fn drop(&mut self) {
        self.note(false);
    }
}

impl StoringTask {
    fn note(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }

    /// Stores what is asked for, by one connection after the other, until nobody can ask.
    async fn run(mut self, mut connection: RawConnection) {
        let mut found = Vec::new();
        loop {
            let begun = Instant::now();
            let mut storing = Storing::new(connection);
            let Some(why) = storing.run(&mut self.requests).await else {
                return;
            };
            let newer = storing.connection.found_servers();
            if !newer.is_empty() {
                found = newer.to_vec();
            }
            let server = storing.connection.server_id().to_owned();
            drop(storing);
            match why {
                Ending::Lost(why) => {
                    self.note(false);
                    tracing::warn!(
                        "the broker is disconnected ({why}): clients stay, publications are refused until it is back"
                    );
                }
                // Publications wait until they are over: the next server may take them.
                Ending::Unanswered => {
                    self.nats.avoided.add(&server);
                    tracing::warn!(
                        "NATS server {server} has stored nothing for {} s: this node tries another one, if there is one",
                        UNANSWERED_MAX.as_secs()
                    );
                }
            }
            let was_short = begun.elapsed() < LIFE_MIN;
            let pause = if was_short { RETRY } else { Duration::ZERO };
            let Some(next) = self.reconnect(&found, pause).await else {
                return;
            };
            connection = next;
            self.note(true);
            tracing::info!("the broker is connected");
        }
    }

    /// Connects again, after a pause: to a server of the URL, or else to one of those that were found. None if nobody can ask any more.
    async fn reconnect(&mut self, found: &[String], pause: Duration) -> Option<RawConnection> {
        let (nats, name) = (self.nats.clone(), self.name.clone());
        let is_connected = Arc::clone(&self.is_connected);
        let connecting = async move {
            sleep(pause).await;
            let mut is_first = true;
            loop {
                match nats.connect_raw_or(&name, found).await {
                    Ok(connection) => return connection,
                    Err(_) if is_connected.swap(false, Ordering::Relaxed) => {}
                    Err(error) if is_first => tracing::warn!("{error}; it is tried again"),
                    Err(error) => tracing::debug!("{error}"),
                }
                is_first = false;
                sleep(RETRY).await;
            }
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                connection = &mut connecting => return Some(connection),
                request = self.requests.recv() => {
                    let _ = request?.answer.send(Err(lost()));
                }
            }
        }
    }
}

/// Who waits for an acknowledgement.
struct Waiting {
    stream: String,
    answer: Answer,
}

/// What was sent since a stream has answered last.
#[derive(Debug, Default)]
struct Unanswered {
    since: Option<Instant>,
    /// Messages that nobody has answered in time, or that no stream took.
    failed: usize,
}

impl Unanswered {
    fn note_sent(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    fn note_failed(&mut self, count: usize) {
        self.failed += count;
    }

    /// Whether a server that has its cluster would have answered.
    fn is_over(&self) -> bool {
        let is_long = |since: Instant| since.elapsed() >= UNANSWERED_MAX;
        self.failed >= UNANSWERED_MIN && self.since.is_some_and(is_long)
    }
}

/// How a connection ends.
#[derive(Debug)]
enum Ending {
    /// It is lost, and why.
    Lost(String),
    /// Its server gives no answers.
    Unanswered,
}

/// One connection, and who waits for acknowledgements by it.
struct Storing {
    connection: RawConnection,
    inbox: String,
    /// By the last token of the reply subject.
    waiting: HashMap<u64, Waiting>,
    unanswered: Unanswered,
    /// Of the last message.
    serial: u64,
    /// Makes tokens of serials. Others may read one, and must not foretell the next.
    tokens: RandomState,
    /// The reply subject of the next message.
    reply: String,
}

impl Storing {
    fn new(mut connection: RawConnection) -> Self {
        let inbox = connection.new_inbox();
        connection.subscribe(&format!("{inbox}.*"));
        // A message that we may not publish must not cost the others their acknowledgements.
        connection.stay_when_forbidden();
        Self {
            connection,
            inbox,
            waiting: HashMap::new(),
            unanswered: Unanswered::default(),
            serial: 0,
            tokens: RandomState::new(),
            reply: String::new(),
        }
    }

    /// Stores until the connection is lost, or its server gives no answers, and returns why; none if nobody can ask any more.
    async fn run(&mut self, requests: &mut Receiver<Request>) -> Option<Ending> {
        let mut tidying = interval(TIDY_INTERVAL);
        tidying.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = tidying.tick() => {
                    self.tidy();
                    if self.unanswered.is_over() {
                        return Some(Ending::Unanswered);
                    }
                }
                first = requests.recv(), if self.has_room() => {
                    if let Err(error) = self.take_turn(first?, requests) {
                        return Some(Ending::Lost(error.to_string()));
                    }
                }
                message = self.connection.next() => match message {
                    Ok(message) => self.handle_message(&message),
                    Err(error) => return Some(Ending::Lost(error.to_string())),
                },
                () = sleep(ROOM_PAUSE), if !self.has_room() => {}
            }
        }
    }

    fn has_room(&self) -> bool {
        self.connection.waiting_bytes() < UNWRITTEN_BYTES_MAX
    }

    /// Writes what is asked for, as far as there is room, and takes acknowledgements that have come.
    fn take_turn(
        &mut self,
        first: Request,
        requests: &mut Receiver<Request>,
    ) -> Result<(), RawError> {
        self.store(first);
        for _ in 1..TURN_MAX {
            if !self.has_room() {
                break;
            }
            let Ok(next) = requests.try_recv() else {
                break;
            };
            self.store(next);
        }
        for _ in 0..TURN_MAX {
            // This writes what waits, too.
            let Some(message) = self.connection.next_now()? else {
                break;
            };
            self.handle_message(&message);
        }
        Ok(())
    }

    fn store(&mut self, request: Request) {
        let Request {
            stream,
            message,
            answer,
        } = request;
        if answer.is_closed() {
            return;
        }
        let behind = message.behind.map(|sequence| sequence.to_string());
        let own = message.headers.iter();
        let headers = own
            .map(|(name, value)| (*name, value.as_str()))
            .chain([(EXPECTED_STREAM, &*stream)])
            .chain(message.id.as_deref().map(|id| (ID, id)))
            .chain(behind.as_deref().map(|behind| (BEHIND, behind)));
        self.serial += 1;
        let token = self.tokens.hash_one(self.serial);
        self.reply.clear();
        write!(self.reply, "{}.{token}", self.inbox).expect("memory takes what is written");
        let (subject, payload) = (&message.subject, &message.payload);
        let connection = &mut self.connection;
        match connection.publish_with_headers(subject, &self.reply, headers, payload) {
            Ok(()) => {
                self.unanswered.note_sent();
                self.waiting.insert(token, Waiting { stream, answer });
            }
            Err(too_large) => {
                let _ = answer.send(Err(NotStored::Refused(too_large.to_string())));
            }
        }
    }

    fn handle_message(&mut self, message: &RawMessage) {
        let token = message.subject.rsplit('.').next();
        let token = token.and_then(|token| token.parse().ok());
        if let Some(waiting) = token.and_then(|token: u64| self.waiting.remove(&token)) {
            let acknowledged = acknowledgement(message, &waiting.stream);
            match &acknowledged {
                Err(NotStored::Unknown(_)) => self.unanswered.note_failed(1),
                Ok(_) | Err(NotStored::Overtaken | NotStored::Refused(_)) => {
                    self.unanswered = Unanswered::default();
                }
            }
            let _ = waiting.answer.send(acknowledged);
        }
    }

    fn tidy(&mut self) {
        let before = self.waiting.len();
        self.waiting
            .retain(|_, waiting| !waiting.answer.is_closed());
        self.unanswered.note_failed(before - self.waiting.len());
        if let Some(forbidden) = self.connection.take_forbidden() {
            tracing::warn!("{forbidden}");
        }
    }
}

/// What JetStream answers to a message: where it stands, or why it does not.
#[derive(Deserialize)]
struct PubAck {
    #[serde(default)]
    stream: String,
    /// 0 beside an error.
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct ApiError {
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// What an acknowledgement of a stream says. Without a leader JetStream does not answer, and says 503 in between.
fn acknowledgement(message: &RawMessage, stream: &str) -> Result<Ack, NotStored> {
    let unknown = |why: &dyn std::fmt::Display| NotStored::Unknown(why.to_string());
    if let Some(status) = message.headers.as_deref().and_then(status_of) {
        return Err(unknown(&format_args!("no server took it: status {status}")));
    }
    let ack: PubAck = serde_json::from_slice(&message.payload)
        .map_err(|error| unknown(&format_args!("the answer cannot be read: {error}")))?;
    let Some(error) = ack.error else {
        if ack.stream != stream || ack.seq == 0 {
            return Err(unknown(&"the answer is not of its stream"));
        }
        return Ok(Ack {
            sequence: ack.seq,
            is_new: !ack.duplicate,
        });
    };
    let ApiError {
        code,
        err_code,
        description,
    } = error;
    let why = format!("{description} ({code}, {err_code})");
    Err(if OVERTAKEN.contains(&err_code) {
        NotStored::Overtaken
    } else if (400..500).contains(&code) && err_code != IN_PROCESS {
        NotStored::Refused(why)
    } else {
        NotStored::Unknown(why)
    })
}

#[cfg(test)]
mod tests;
