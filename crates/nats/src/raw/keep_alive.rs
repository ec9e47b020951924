//! Signs of life: when a server is asked for one, and when it counts as dead.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// How often a server is asked.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long a server may send nothing. Two questions are unanswered then.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(11);
/// How long it has for the answer to the first question: [`SILENCE_MAX`], less the time before it is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

const _: () = assert!(
    PING_INTERVAL.as_secs() + ANSWER_TIMEOUT.as_secs() == SILENCE_MAX.as_secs(),
    "a server that sends nothing is asked first"
);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Ask the server.
    Ping,
    /// Give the connection up.
    Silent,
}

/// The clock of one connection.
///
/// A connection whose owner was busy for long, and did not read, is not given up before the server was asked.
pub(super) struct KeepAlive {
    sleep: Pin<Box<Sleep>>,
    ping_at: Instant,
    /// When the server was asked first after the last byte came.
    asked_at: Option<Instant>,
}

impl KeepAlive {
    pub(super) fn start() -> Self {
        let ping_at = Instant::now() + PING_INTERVAL;
        Self {
            sleep: Box::pin(sleep_until(ping_at)),
            ping_at,
            asked_at: None,
        }
    }

    /// The next thing that is to be done, when it is time. To be asked when nothing is there to be read. `heard_at` is when the last
    /// byte came.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, heard_at: Instant) -> Poll<Due> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let now = Instant::now();
            self.asked_at = self.asked_at.filter(|asked_at| *asked_at > heard_at);
            if self.silent_at(heard_at).is_some_and(|at| at <= now) {
                return Poll::Ready(Due::Silent);
            }
            let is_due = self.ping_at <= now;
            if is_due {
                self.ping_at = now + PING_INTERVAL;
                self.asked_at.get_or_insert(now);
            }
            let silent_at = self.silent_at(heard_at);
            let wake_at = silent_at.map_or(self.ping_at, |at| at.min(self.ping_at));
            self.sleep.as_mut().reset(wake_at);
            if is_due {
                return Poll::Ready(Due::Ping);
            }
        }
    }

    /// When the connection is to be given up, if nothing comes.
    fn silent_at(&self, heard_at: Instant) -> Option<Instant> {
        let asked_at = self.asked_at?;
        Some((heard_at + SILENCE_MAX).max(asked_at + ANSWER_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::time::{advance, sleep};

    async fn next(clock: &mut KeepAlive, heard_at: Instant) -> (Due, Duration) {
        let start = Instant::now();
        let due = poll_fn(|context| clock.poll(context, heard_at)).await;
        (due, start.elapsed())
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_twice_and_given_up() {
        let (mut clock, heard_at) = (KeepAlive::start(), Instant::now());
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(5)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(5)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Silent, seconds(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_is_asked_on() {
        let (mut clock, mut heard_at) = (KeepAlive::start(), Instant::now());
        for _ in 0..10 {
            assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(5)));
            heard_at = Instant::now();
        }
        sleep(seconds(2)).await;
        heard_at = Instant::now();
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(3)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(5)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Silent, seconds(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_not_asked_is_not_silent() {
        let (mut clock, heard_at) = (KeepAlive::start(), Instant::now());
        advance(seconds(100)).await;
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(0)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Ping, seconds(5)));
        assert_eq!(next(&mut clock, heard_at).await, (Due::Silent, seconds(1)));
    }
}
