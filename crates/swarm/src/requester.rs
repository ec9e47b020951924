//! Requests by an open-loop schedule ([`OpenLoop`]): each posts a small body, and the answer is to be 200 with the same body.

use crate::clock::{Clock as _, Nanos, RunClock};
use crate::config::{Endpoint, Requests};
use crate::echo_stamp::EchoStamp;
use crate::failure::Failure;
use crate::open_loop::{Asker, Kept, OpenLoop, Schedule, lock};
use crate::request_connection::RequestTls;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Begins the requests at the first time; they end at the second, or when they are stopped.
pub(crate) fn start(
    requests: &Requests,
    (run, tls): (u16, RequestTls),
    settle: Duration,
    window: (Nanos, Option<Nanos>),
    clock: RunClock,
) -> io::Result<OpenLoop> {
    let kept = |endpoint: &Endpoint| Kept::new(endpoint.clone(), tls.clone());
    let connections = || requests.endpoints.iter().map(kept).collect();
    OpenLoop::start(
        "requester",
        requests.rate_per_s,
        window,
        clock,
        |schedule| {
            let lane = |_| Requester {
                connections: connections(),
                bytes: requests.payload_bytes,
                run,
                settle,
                clock,
                schedule: Arc::clone(schedule),
            };
            (0..requests.connections).map(lane).collect()
        },
    )
}

/// One request at a time, on one kept connection to each URL.
struct Requester {
    connections: Vec<Kept>,
    bytes: usize,
    run: u16,
    settle: Duration,
    clock: RunClock,
    schedule: Arc<Mutex<Schedule>>,
}

impl Asker for Requester {
    async fn open(&mut self) {
        for connection in &mut self.connections {
            connection.open(self.settle).await;
        }
    }

    /// Makes one request, and counts what became of it.
    async fn ask(&mut self, index: u64, due: Nanos) {
        let which = usize::try_from(index % self.connections.len() as u64).expect("URLs are few");
        let stamp = EchoStamp {
            run: self.run,
            number: index,
        };
        let body = stamp.payload(self.bytes);
        let connection = &mut self.connections[which];
        let request = Request::builder()
            .method(Method::POST)
            .uri(&connection.endpoint.path)
            .header(HOST, &connection.endpoint.host)
            .header(CONTENT_TYPE, "text/plain")
            .body(body.clone())
            .expect("the endpoint was checked when it was read");
        let answer = connection.exchange(request, body.len(), self.settle).await;
        let now = self.clock.now();
        let mut schedule = lock(&self.schedule);
        let (failure, reason) = match answer {
            Ok((StatusCode::OK, answer)) if answer == body.as_bytes() => {
                return schedule.note_answer(due, now);
            }
            Ok((StatusCode::OK, _)) => {
                schedule.progress.trips.counts.errors += 1;
                let reason = "200 with another body than was sent".to_owned();
                (Failure::RequestWrong, reason)
            }
            Ok((status, _)) => {
                schedule.progress.trips.counts.errors += 1;
                let status = status.as_u16();
                (Failure::Request(status), format!("status {status}"))
            }
            Err(reason) => (Failure::Request(0), reason),
        };
        schedule.progress.trips.counts.lost += 1;
        let endpoint = &self.connections[which].endpoint;
        schedule.progress.note(failure, endpoint, reason);
    }
}
