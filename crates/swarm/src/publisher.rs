//! The publisher: posts stamped publications on a schedule, to one URL or to several at once, over connections that are
//! kept open.
//!
//! It has a thread of its own, so that its schedule does not depend on how busy the crowd is. The clock of a round's
//! first publication starts when it is due by the schedule, whatever became of those before it: a server that answers
//! late delays the next push, and its clients wait for that too. The clocks of a round's other channels start one after
//! the other, before the first request is handed to its connection, which then writes it at once. A publication is
//! accepted when the last URL has answered.
//!
//! In a round that is spread, all are due by the schedule, and none waits for the answer to another: the publisher has
//! several lanes, each with a connection to each URL. A channel's publications keep to one lane, so that they stay in order.

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::{Endpoint, Publish, PublishBody};
use crate::engine::plan::Plan;
use crate::engine::shared::Shared;
use crate::failure::Failure;
use crate::measure::push::{Acceptance, PushKey};
use crate::request_connection::{RequestTls, open_connection, was_idle_too_long};
use crate::stamp::{SEQUENCE_MAX, Stamp};
use crate::target::with_channel;
use hyper::body::Body as _;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How long a request may take before it counts as unanswered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What is read of the rest of an answer, so that its connection can be used again, and how long the rest of its request may take: a
/// server may answer without an end, or before it has read all, and the next push waits for this.
const REST_BYTES_MAX: usize = 1 << 20;
const REST_WITHIN: Duration = Duration::from_secs(1);

/// How long before a round is due its requests are made ready. The runtime's timers are a millisecond coarse; the rest
/// of the wait is slept by the thread itself, which has nothing else to do then.
const READY_BEFORE: Duration = Duration::from_millis(3);

/// The end of that sleep, which would otherwise overshoot by some 60 us and put them into every time.
const SPUN: Duration = Duration::from_micros(200);

/// Lanes of a publisher whose rounds are spread: publications that may wait for their answers at once.
const LANES_MAX: usize = 64;

/// What the publisher tells the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Requests made.
    pub published: u64,
    pub failures: BTreeMap<Failure, u64>,
    /// Largest lateness of a round.
    pub late: Duration,
    /// By URL: its last error, in words.
    pub trouble: BTreeMap<String, String>,
    /// All pushes are made.
    pub done: bool,
}

/// A running publisher.
#[derive(Debug)]
pub(crate) struct Publisher {
    stop: watch::Sender<bool>,
    progress: Arc<Mutex<Progress>>,
}

impl Publisher {
    /// Starts publishing after the warm-up.
    pub(crate) fn start(
        publish: Publish,
        channels: Vec<String>,
        plan: Arc<Plan>,
        shared: Arc<Shared>,
        clock: RunClock,
    ) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let progress = Arc::new(Mutex::new(Progress::default()));
        let lanes = if publish.is_spread {
            channels.len().clamp(1, LANES_MAX)
        } else {
            1
        };
        let tls = plan.request_tls();
        let lanes = (0..lanes)
            .map(|_| Lane::new(&publish.endpoints, &tls))
            .collect();
        let rounds = Rounds {
            publish,
            channels,
            plan,
            shared,
            clock,
            progress: Arc::clone(&progress),
            lanes,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Nobody joins it: it ends by itself once stopped, and holds nothing that outlives its use.
        std::thread::Builder::new()
            .name("publisher".to_owned())
            .spawn(move || runtime.block_on(rounds.run(stopped)))?;
        Ok(Self { stop, progress })
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Begins no further push. One that is under way still gets its answer; [`Progress::done`] tells when.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The publisher's thread.
struct Rounds {
    publish: Publish,
    channels: Vec<String>,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    clock: RunClock,
    progress: Arc<Mutex<Progress>>,
    lanes: Vec<Lane>,
}

impl Rounds {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        self.publish_all(&mut stopped).await;
        for lane in 0..self.lanes.len() {
            self.await_answer(lane).await;
        }
        lock(&self.progress).done = true;
    }

    async fn publish_all(&mut self, stopped: &mut watch::Receiver<bool>) {
        let warmed_at = self.clock.now().plus(self.publish.warmup);
        for lane in 0..self.lanes.len() {
            self.connect(lane).await;
        }
        // A server that was slow to let us in has delayed no push yet.
        let begin = warmed_at.max(self.clock.now().plus(READY_BEFORE));
        let pushes = self
            .publish
            .pushes
            .unwrap_or(SEQUENCE_MAX)
            .min(SEQUENCE_MAX);
        for sequence in 1..=pushes {
            let round_due = due_at(begin, self.publish.every, sequence);
            for stream in 0..self.channels.len() {
                let due = self.due_in_round(round_due, stream);
                if let Some(due) = due
                    && !self.sleep_until_ready(due, stopped).await
                {
                    return;
                }
                let stream = u16::try_from(stream).expect("channels are at most 65,536");
                self.publish_one(stream, sequence, due).await;
            }
        }
    }

    /// When a channel of a round is due; none if that is when the one before it is done.
    fn due_in_round(&self, round_due: Nanos, stream: usize) -> Option<Nanos> {
        if stream == 0 {
            return Some(round_due);
        }
        #[expect(clippy::cast_precision_loss, reason = "channels are at most 65,536")]
        let share = stream as f64 / self.channels.len() as f64;
        let spread = self.publish.is_spread;
        spread.then(|| round_due.plus(self.publish.every.mul_f64(share)))
    }

    /// Waits until the requests of a publication are to be made ready. False if the run is over before.
    async fn sleep_until_ready(&self, due: Nanos, stopped: &mut watch::Receiver<bool>) -> bool {
        let remaining = due.since(self.clock.now().plus(READY_BEFORE));
        tokio::select! {
            biased;
            // An error means that the run is gone, which is as good a reason.
            _ = stopped.wait_for(|&stop| stop) => false,
            () = sleep_for(remaining) => true,
        }
    }

    /// Waits for the rest of the time until a publication is due, and notes how late it is.
    async fn await_due(&self, due: Nanos) {
        let remaining = due.since(self.clock.now());
        if self.publish.is_spread {
            // Other lanes have answers to read meanwhile. The overshoot of up to a millisecond is in the times.
            sleep_for(remaining).await;
        } else {
            std::thread::sleep(remaining.saturating_sub(SPUN));
            while self.clock.now() < due {
                std::hint::spin_loop();
            }
        }
        let late = self.clock.now().since(due);
        let mut progress = lock(&self.progress);
        progress.late = progress.late.max(late);
    }

    /// Makes sure of a lane's connections. Nothing is sent: the server gets the pushes that were asked for and no other
    /// request.
    async fn connect(&mut self, lane: usize) {
        let links = self.lanes[lane].links().await;
        let links = with_links(links, &self.progress, |mut link| async move {
            link.connect().await;
            (link, ())
        });
        let (links, _) = links.await;
        self.lanes[lane] = Lane::Free(links);
    }

    /// Waits until nothing is under way in a lane.
    async fn await_answer(&mut self, lane: usize) {
        let links = self.lanes[lane].links().await;
        self.lanes[lane] = Lane::Free(links);
    }

    /// Makes one publication: when it is due, or at once. Where rounds are not spread it is answered then.
    async fn publish_one(&mut self, stream: u16, sequence: u32, due: Option<Nanos>) {
        let lane = usize::from(stream) % self.lanes.len();
        self.connect(lane).await;
        let links = self.lanes[lane].links().await;
        let mut requests: VecDeque<_> = links
            .iter()
            .map(|link| self.request(&link.endpoint, stream, sequence))
            .collect();
        if let Some(due) = due {
            self.await_due(due).await;
        }
        let key = PushKey::Own { stream, sequence };
        let number = self.plan.number_of(stream, sequence);
        let mut roll = self.shared.call_roll(number, |target| {
            self.plan.targets[target].slot(stream).is_some()
        });
        roll.deserted &= self.plan.is_wanted(stream);
        lock(&self.progress).published += 1;

        let now = self.clock.now();
        let published = due.unwrap_or(now);
        self.shared
            .ledger
            .publish(key, number, roll, published, now);
        let (progress, shared, clock) = (
            Arc::clone(&self.progress),
            Arc::clone(&self.shared),
            self.clock,
        );
        let answered = tokio::spawn(async move {
            let sending = with_links(links, &progress, |mut link| {
                let request = requests.pop_front().expect("one for each link");
                async move {
                    let outcome = link.send(request).await;
                    (link, outcome)
                }
            });
            let (links, outcomes) = sending.await;
            let acceptance = acceptance_of(&outcomes, clock.now().since(published));
            shared.ledger.answer(key, acceptance);
            for untaken in outcomes.into_iter().filter_map(Result::err) {
                let failures = &mut lock(&progress).failures;
                *failures.entry(untaken.failure()).or_default() += 1;
            }
            links
        });
        self.lanes[lane] = Lane::Publishing(answered);
        if self.publish.is_spread {
            // A publisher that is late never sleeps: the request leaves now all the same.
            tokio::task::yield_now().await;
        } else {
            self.await_answer(lane).await;
        }
    }

    fn request(&self, endpoint: &Endpoint, stream: u16, sequence: u32) -> Request<String> {
        let stamp = Stamp {
            run: self.plan.run,
            stream,
            sequence,
        };
        let payload = stamp.filled(self.publish.payload_bytes, self.publish.filler);
        let (body, content_type) = match self.publish.body {
            PublishBody::Api => {
                let channel = &self.channels[usize::from(stream)];
                (
                    serde_json::json!({ "channel": channel, "data": payload }).to_string(),
                    "application/json",
                )
            }
            PublishBody::Plain => (payload, "text/plain"),
            PublishBody::Stream => {
                let content_type = self.publish.content_type.as_str();
                // The stamp and its filler need no escape, but for records.
                let body = match content_type {
                    "application/json" => serde_json::json!(payload).to_string(),
                    _ => payload,
                };
                (body, content_type)
            }
        };
        let channel = &self.channels[usize::from(stream)];
        let path = match self.publish.body {
            PublishBody::Stream => with_channel(&endpoint.path, channel),
            PublishBody::Api | PublishBody::Plain => endpoint.path.clone(),
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, &endpoint.host)
            .header(CONTENT_TYPE, content_type)
            // Then the status says whether it was published; otherwise errors are in the bodies of answers 200.
            .header("x-centrifugo-error-mode", "transport");
        if let Some(key) = &self.publish.api_key {
            request = request.header("x-api-key", key);
        }
        request
            .body(body)
            .expect("the endpoint and the key were checked when the run was prepared")
    }
}

/// Sleeps, if there is time left. Even a sleep of no time would take the runtime a millisecond: a publisher that is late would make
/// 400 publications a second at most, and never be on time again.
async fn sleep_for(remaining: Duration) {
    if !remaining.is_zero() {
        sleep(remaining).await;
    }
}

/// A connection to each URL, and what is under way on them.
enum Lane {
    Free(Vec<Link>),
    /// A publication that is not answered yet.
    Publishing(JoinHandle<Vec<Link>>),
}

impl Lane {
    fn new(endpoints: &[Endpoint], tls: &RequestTls) -> Self {
        let link = |endpoint: &Endpoint| Link::new(endpoint.clone(), tls.clone());
        Self::Free(endpoints.iter().map(link).collect())
    }

    /// Takes the connections, once the publication that is under way is answered.
    async fn links(&mut self) -> Vec<Link> {
        match std::mem::replace(self, Self::Free(Vec::new())) {
            Self::Free(links) => links,
            Self::Publishing(answered) => answered.await.expect("links do not panic"),
        }
    }
}

/// Has all links do the same at once, and waits for the last of them.
async fn with_links<T, F>(
    links: Vec<Link>,
    progress: &Mutex<Progress>,
    act: impl FnMut(Link) -> F,
) -> (Vec<Link>, Vec<T>)
where
    T: Send + 'static,
    F: Future<Output = (Link, T)> + Send + 'static,
{
    let acting: Vec<_> = links.into_iter().map(act).map(tokio::spawn).collect();
    let mut links = Vec::with_capacity(acting.len());
    let mut outcomes = Vec::with_capacity(acting.len());
    for acting in acting {
        let (mut link, outcome) = acting.await.expect("links do not panic");
        if let Some(trouble) = link.trouble.take() {
            let troubles = &mut lock(progress).trouble;
            troubles.insert(link.endpoint.url.clone(), trouble);
        }
        links.push(link);
        outcomes.push(outcome);
    }
    (links, outcomes)
}

/// What became of a publication that the last URL has answered after this time.
fn acceptance_of(outcomes: &[Result<(), Untaken>], after: Duration) -> Acceptance {
    let is_unreached = |outcome: &Result<(), Untaken>| *outcome == Err(Untaken::Unreached);
    // Where some servers took it their clients get it, and those of the others are missing from its reach.
    if outcomes.iter().any(Result::is_ok) {
        Acceptance::After(after)
    } else if outcomes.contains(&Err(Untaken::Unanswered)) {
        Acceptance::Unanswered
    } else if outcomes.iter().all(is_unreached) {
        Acceptance::Unreached
    } else {
        Acceptance::Refused
    }
}

/// When a round is due: the first one when the warm-up is over, however late its predecessors were.
fn due_at(begin: Nanos, every: Duration, sequence: u32) -> Nanos {
    begin.plus(every * (sequence - 1))
}

/// Why a URL did not take a push, as far as anybody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Untaken {
    /// There was no connection to ask on.
    Unreached,
    /// It was answered with this status.
    Refused(StatusCode),
    /// It was asked, and may have taken it.
    Unanswered,
}

impl Untaken {
    fn failure(self) -> Failure {
        match self {
            Self::Unreached => Failure::PublishUnreached,
            Self::Unanswered => Failure::Publish(0),
            Self::Refused(status) => Failure::Publish(status.as_u16()),
        }
    }
}

/// The way to one publish URL.
struct Link {
    endpoint: Endpoint,
    tls: RequestTls,
    connection: Option<SendRequest<String>>,
    /// Its last error, in words.
    trouble: Option<String>,
}

impl Link {
    fn new(endpoint: Endpoint, tls: RequestTls) -> Self {
        Self {
            endpoint,
            tls,
            connection: None,
            trouble: None,
        }
    }

    /// Makes sure of an open connection, if there can be one.
    async fn connect(&mut self) {
        // A server may answer a request and read no more of it: then its connection never takes the next one.
        if let Some(mut connection) = self.connection.take()
            && let Ok(Ok(())) = timeout(REST_WITHIN, connection.ready()).await
        {
            self.connection = Some(connection);
            return;
        }
        match timeout(ANSWER_TIMEOUT, open_connection(&self.endpoint, &self.tls)).await {
            Ok(Ok(connection)) => self.connection = Some(connection),
            Ok(Err(trouble)) => self.trouble = Some(trouble),
            Err(_) => self.trouble = Some("no connection in time".to_owned()),
        }
    }

    /// Sends a request over the connection, and again over a new one if the server has not read it.
    async fn send(&mut self, request: Request<String>) -> Result<(), Untaken> {
        let outcome = self.send_once(request.clone()).await;
        match outcome {
            Err(Untaken::Refused(status)) if was_idle_too_long(status) => {
                self.connection = None;
                self.trouble = None;
                self.connect().await;
                self.send_once(request).await
            }
            outcome => outcome,
        }
    }

    async fn send_once(&mut self, request: Request<String>) -> Result<(), Untaken> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Untaken::Unreached);
        };
        let response = match timeout(ANSWER_TIMEOUT, connection.send_request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                self.trouble = Some(error.to_string());
                return Err(Untaken::Unanswered);
            }
            Err(_) => {
                self.trouble = Some("no answer in time".to_owned());
                return Err(Untaken::Unanswered);
            }
        };
        let status = response.status();
        // The status says it all; reading the rest only keeps the connection usable.
        if let Ok(Ok(true)) = timeout(REST_WITHIN, read_out(response)).await {
            self.connection = Some(connection);
        }
        if status.is_success() {
            Ok(())
        } else {
            self.trouble = Some(format!("status {}", status.as_u16()));
            Err(Untaken::Refused(status))
        }
    }
}

/// Reads a response to its end and drops it. False if it is too long for that.
async fn read_out(response: Response<hyper::body::Incoming>) -> Result<bool, hyper::Error> {
    let mut body = response.into_body();
    let mut bytes = 0;
    while bytes <= REST_BYTES_MAX {
        match std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            Some(frame) => bytes += frame?.data_ref().map_or(0, hyper::body::Bytes::len),
            None => return Ok(true),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// More than the buffers of two sockets hold.
    const BODY_BYTES: usize = 64 << 20;

    #[test]
    fn a_server_that_answers_and_reads_no_further_does_not_hold_up_the_next_push() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            assert!(first.read(&mut [0; 4096]).unwrap() > 0);
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            first.write_all(answer).unwrap();
            // It stays open, unread, until the next connection has come.
            listener.accept().unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let mut link = Link::new(Endpoint::parse(&url).unwrap(), None);
        runtime.block_on(async {
            link.connect().await;
            let request = Request::builder().method(Method::POST).header(HOST, "a");
            let request = request.body(".".repeat(BODY_BYTES)).unwrap();
            assert_eq!(link.send(request).await, Ok(()));
            link.connect().await;
        });
        assert!(link.connection.is_some(), "{:?}", link.trouble);
        server.join().unwrap();
    }
}
