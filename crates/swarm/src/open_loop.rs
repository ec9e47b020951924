//! HTTP requests by an open-loop schedule, over connections that are kept open.
//!
//! A request falls due whatever became of those before it, goes out on the first lane that is free, and its time counts
//! from when it was due. Lanes are bounded in number: while all of them wait for answers, what falls due waits too. What has
//! not been sent when the schedule ends never is.

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::Endpoint;
use crate::engine::pacing::{Pacing, SEND_GRACE};
use crate::failure::Failure;
use crate::measure::round_trip::RoundTrips;
use crate::request_connection::{RequestTls, open_connection, was_idle_too_long};
use hyper::body::Body as _;
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, StatusCode};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Shortest and longest sleep between looks at the schedule, and the sleep after its end.
const PACE_MIN: Duration = Duration::from_micros(50);
const PACE_MAX: Duration = Duration::from_millis(20);
const PACE_AT_END: Duration = Duration::from_millis(1);

/// What a schedule tells the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub trips: RoundTrips,
    pub failures: BTreeMap<Failure, u64>,
    /// By URL: its last error, in reason.
    pub trouble: BTreeMap<String, String>,
    /// When the schedule began and ended.
    pub from: Nanos,
    pub until: Nanos,
    /// Lanes that are through.
    ended: usize,
}

impl Progress {
    /// Notes what went wrong with a request to an endpoint.
    pub(crate) fn note(&mut self, failure: Failure, endpoint: &Endpoint, reason: String) {
        self.trouble.insert(endpoint.url.clone(), reason);
        *self.failures.entry(failure).or_default() += 1;
    }
}

/// Who makes requests, one at a time.
pub(crate) trait Asker: Send + 'static {
    /// Gets ready before the schedule begins.
    fn open(&mut self) -> impl Future<Output = ()> + Send;

    /// Makes the request of this index in the schedule, which was due then, and notes what became of it.
    fn ask(&mut self, index: u64, due: Nanos) -> impl Future<Output = ()> + Send;
}

/// Requests under way.
#[derive(Debug)]
pub(crate) struct OpenLoop {
    schedule: Arc<Mutex<Schedule>>,
    lanes: usize,
}

impl OpenLoop {
    /// Begins the schedule at `from`; it ends at `until`, or when it is stopped. `lanes` makes those who ask.
    pub(crate) fn start<L: Asker>(
        name: &str,
        rate_per_s: f64,
        (from, until): (Nanos, Option<Nanos>),
        clock: RunClock,
        lanes: impl FnOnce(&Arc<Mutex<Schedule>>) -> Vec<L>,
    ) -> io::Result<Self> {
        let due = Arc::new(Notify::new());
        let schedule = Arc::new(Mutex::new(Schedule::new(rate_per_s, from, until)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let lanes = lanes(&schedule);
        let count = lanes.len();
        let shared = (Arc::clone(&schedule), Arc::clone(&due));
        // Nobody joins it: it ends by itself once stopped, and holds nothing that outlives its use.
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let run = |lane| tokio::spawn(keep_asking(lane, shared.clone(), clock));
                    let lanes: Vec<_> = lanes.into_iter().map(run).collect();
                    for lane in lanes {
                        // A lane that panicked has said so on standard error.
                        let _ = lane.await;
                    }
                });
            })?;
        let paced = Arc::clone(&schedule);
        std::thread::Builder::new()
            .name(format!("{name} due"))
            .spawn(move || keep_pace(&paced, &due, count, clock))?;
        Ok(Self {
            schedule,
            lanes: count,
        })
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        lock(&self.schedule).progress.clone()
    }

    /// Whether every request has ended, one way or another.
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.schedule).progress.ended == self.lanes
    }

    /// Ends the schedule now, unless it ended before; answers are still awaited.
    pub(crate) fn stop(&self, now: Nanos) {
        let progress = &mut lock(&self.schedule).progress;
        progress.until = progress.until.min(now);
    }
}

async fn keep_asking<L: Asker>(
    mut lane: L,
    (schedule, due): (Arc<Mutex<Schedule>>, Arc<Notify>),
    clock: RunClock,
) {
    lane.open().await;
    loop {
        let next = lock(&schedule).next(clock.now());
        match next {
            Next::Send {
                index,
                due: at,
                more,
            } => {
                if more {
                    due.notify_one();
                }
                lane.ask(index, at).await;
            }
            Next::Wait => due.notified().await,
            Next::End => break,
        }
    }
    lock(&schedule).progress.ended += 1;
}

/// Wakes a lane whenever a request falls due: the runtime's own timers are a millisecond coarse, which is more than many
/// answers take.
fn keep_pace(schedule: &Mutex<Schedule>, due: &Notify, lanes: usize, clock: RunClock) {
    loop {
        let pause = {
            let schedule = lock(schedule);
            if schedule.progress.ended == lanes {
                return;
            }
            schedule.pause(clock.now())
        };
        match pause {
            // The schedule is over: everybody is to see that.
            None => {
                due.notify_waiters();
                std::thread::sleep(PACE_AT_END);
            }
            Some(Duration::ZERO) => {
                due.notify_one();
                std::thread::sleep(PACE_MIN);
            }
            Some(pause) => std::thread::sleep(pause.min(PACE_MAX)),
        }
    }
}

/// The schedule, and what became of its requests.
pub(crate) fn lock(schedule: &Mutex<Schedule>) -> MutexGuard<'_, Schedule> {
    schedule.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a lane is to do next.
enum Next {
    /// The request of this index in the schedule, which was due then.
    Send {
        index: u64,
        due: Nanos,
        /// Whether another one is due already.
        more: bool,
    },
    Wait,
    End,
}

/// What the lanes share.
#[derive(Debug)]
pub(crate) struct Schedule {
    pacing: Pacing,
    pub progress: Progress,
}

impl Schedule {
    fn new(rate_per_s: f64, from: Nanos, until: Option<Nanos>) -> Self {
        Self {
            pacing: Pacing::new(Some(rate_per_s), from),
            progress: Progress {
                from,
                until: until.unwrap_or(Nanos(u64::MAX)),
                ..Progress::default()
            },
        }
    }

    fn next(&mut self, now: Nanos) -> Next {
        let (pacing, progress) = (&mut self.pacing, &mut self.progress);
        let counts = &mut progress.trips.counts;
        let due = pacing.due_before(progress.until, now);
        counts.due = counts.sent + due;
        if due == 0 {
            return if now >= progress.until {
                Next::End
            } else {
                Next::Wait
            };
        }
        if now >= progress.until.plus(SEND_GRACE) {
            return Next::End;
        }
        counts.held = counts.held.max(pacing.lateness(now));
        let index = pacing.issued();
        pacing.issue(1);
        counts.sent += 1;
        Next::Send {
            index,
            due: pacing.at(index),
            more: due > 1,
        }
    }

    /// Notes that the request that was due then came back as it should.
    pub(crate) fn note_answer(&mut self, due: Nanos, now: Nanos) {
        let trips = &mut self.progress.trips;
        trips.counts.received += 1;
        trips.counts.last = Some(now);
        trips.record(now.since(due));
    }

    /// How long no lane needs waking; none once the schedule is over.
    fn pause(&self, now: Nanos) -> Option<Duration> {
        let left = self.progress.until.since(now);
        (!left.is_zero()).then(|| self.pacing.wait(now).min(left))
    }
}

/// A connection to an endpoint, which is kept between requests and opened again when it has ended.
#[derive(Debug)]
pub(crate) struct Kept {
    pub endpoint: Endpoint,
    tls: RequestTls,
    open: Option<SendRequest<String>>,
}

impl Kept {
    pub(crate) fn new(endpoint: Endpoint, tls: RequestTls) -> Self {
        Self {
            endpoint,
            tls,
            open: None,
        }
    }

    /// Opens it, if that works in this time.
    pub(crate) async fn open(&mut self, within: Duration) {
        if let Ok(Ok(open)) = timeout(within, open_connection(&self.endpoint, &self.tls)).await {
            self.open = Some(open);
        }
    }

    /// Sends a request, and reads the status and the body of its answer: of a body longer than `bytes` only so much that it is
    /// seen to be longer. An error says why nothing whole came back in this time.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<String>,
        bytes: usize,
        within: Duration,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        match timeout(within, self.ask(request, bytes)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.open = None;
                Err("no answer within --settle".to_owned())
            }
        }
    }

    async fn ask(
        &mut self,
        request: Request<String>,
        bytes: usize,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let mut kept = self.open.take();
        if let Some(open) = &mut kept
            && open.ready().await.is_err()
        {
            kept = None;
        }
        let Some(connection) = kept else {
            return self.ask_anew(request, bytes).await;
        };
        match self.ask_over(connection, request.clone(), bytes).await {
            Ok((status, _)) if was_idle_too_long(status) => {
                self.open = None;
                self.ask_anew(request, bytes).await
            }
            answer => answer,
        }
    }

    async fn ask_anew(
        &mut self,
        request: Request<String>,
        bytes: usize,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let connection = open_connection(&self.endpoint, &self.tls).await?;
        self.ask_over(connection, request, bytes).await
    }

    async fn ask_over(
        &mut self,
        mut connection: SendRequest<String>,
        request: Request<String>,
        bytes: usize,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let response = connection
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let answer = read(response.into_body(), bytes).await?;
        self.open = Some(connection);
        Ok((status, answer))
    }
}

/// Reads an answer to its end; of one longer than `bytes` only so much that it is seen to be longer.
async fn read(mut body: hyper::body::Incoming, bytes: usize) -> Result<Vec<u8>, String> {
    let mut answer = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let Some(frame) = frame else {
            return Ok(answer);
        };
        let frame = frame.map_err(|error| error.to_string())?;
        if let Ok(data) = frame.into_data() {
            let room = (bytes + 1).saturating_sub(answer.len());
            answer.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// One connection, and 100 requests a second for a second, in virtual time; `answer_ms` says how long each takes.
    fn simulate(answer_ms: impl Fn(u64) -> u64) -> Schedule {
        let mut schedule = Schedule::new(100.0, at(0), Some(at(1000)));
        let mut now = at(0);
        loop {
            match schedule.next(now) {
                Next::Send { index, due, .. } => {
                    now = now.plus(Duration::from_millis(answer_ms(index)));
                    schedule.note_answer(due, now);
                }
                Next::Wait => now = now.plus(schedule.pause(now).expect("it is not over")),
                Next::End => return schedule,
            }
        }
    }

    #[test]
    fn a_stall_is_charged_for_all_that_fell_due_in_it() {
        let schedule = simulate(|index| if index == 20 { 500 } else { 1 });
        let trips = &schedule.progress.trips;
        let counts = trips.counts;
        assert_eq!(
            (counts.sent, counts.received, counts.unsent()),
            (100, 100, 0)
        );
        assert_eq!(counts.held, Duration::from_millis(490));
        // The one that stalled, and those behind it: 491 ms, 482 ms, and so on, 9 ms less each.
        let late = trips.times.count_between(99_000, 2_000_000);
        assert_eq!(late, 1 + (491 - 99) / 9 + 1);
        // 55 in all waited, the last of them for 5 ms, and one only for its own stall.
        assert_eq!(trips.times.count_between(0, 1001), 100 - 56);
    }

    #[test]
    fn what_the_end_finds_unsent_is_in_no_time() {
        let schedule = simulate(|index| if index == 20 { 5000 } else { 1 });
        let counts = schedule.progress.trips.counts;
        assert_eq!(
            (counts.sent, counts.received, counts.unsent()),
            (21, 21, 79)
        );
        assert_eq!(schedule.pause(at(1000)), None, "the schedule is over");
    }

    /// Reads the head of a request, and writes this answer.
    fn answer(listener: &std::net::TcpListener, answer: &str) -> String {
        use std::io::{BufRead as _, BufReader, Write as _};
        let (mut connection, _) = listener.accept().expect("a connection");
        let mut head = String::new();
        let mut lines = BufReader::new(connection.try_clone().expect("a second handle"));
        while !head.ends_with("\r\n\r\n") {
            let read = lines.read_line(&mut head).expect("a head");
            assert!(read > 0, "the head ended early: {head}");
        }
        connection
            .write_all(answer.as_bytes())
            .expect("a peer that reads");
        head
    }

    #[test]
    fn a_request_that_met_the_end_of_an_idle_connection_is_sent_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let server = std::thread::spawn(move || {
            let late =
                "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            answer(&listener, late);
            answer(&listener, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let within = Duration::from_secs(30);
        let answer = runtime.block_on(async {
            let mut kept = Kept::new(Endpoint::parse(&url).expect("a URL"), None);
            kept.open(within).await;
            let request = Request::post("/")
                .header(hyper::header::HOST, "here")
                .body("twice".to_owned())
                .expect("a request");
            kept.exchange(request, 16, within).await
        });
        assert_eq!(answer, Ok((StatusCode::OK, b"ok".to_vec())));
        let head = server.join().expect("no panic");
        assert!(head.starts_with("POST / HTTP/1.1"), "{head}");
    }
}
