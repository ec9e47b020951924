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
pub(super) enum Beat {
    /// Ask the server.
    Ping,
    /// Give the connection up.
    Silent,
}

/// The clock of one connection.
///
/// A connection whose owner was busy for long, and did not read, is not given up before the server was asked.
pub(super) struct Pulse {
    sleep: Pin<Box<Sleep>>,
    ping_at: Instant,
    /// When the server was asked first after the last byte came.
    asked_at: Option<Instant>,
}

impl Pulse {
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
    pub(super) fn poll(&mut self, context: &mut Context<'_>, heard_at: Instant) -> Poll<Beat> {
        loop {
            ready!(self.sleep.as_mut().poll(context));
            let now = Instant::now();
            self.asked_at = self.asked_at.filter(|asked_at| *asked_at > heard_at);
            if self.silent_at(heard_at).is_some_and(|at| at <= now) {
                return Poll::Ready(Beat::Silent);
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
                return Poll::Ready(Beat::Ping);
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

    async fn next(pulse: &mut Pulse, heard_at: Instant) -> (Beat, Duration) {
        let start = Instant::now();
        let beat = poll_fn(|context| pulse.poll(context, heard_at)).await;
        (beat, start.elapsed())
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_twice_and_given_up() {
        let (mut pulse, heard_at) = (Pulse::start(), Instant::now());
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(5)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(5)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Silent, seconds(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_is_asked_on() {
        let (mut pulse, mut heard_at) = (Pulse::start(), Instant::now());
        for _ in 0..10 {
            assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(5)));
            heard_at = Instant::now();
        }
        sleep(seconds(2)).await;
        heard_at = Instant::now();
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(3)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(5)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Silent, seconds(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_not_asked_is_not_silent() {
        let (mut pulse, heard_at) = (Pulse::start(), Instant::now());
        advance(seconds(100)).await;
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(0)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Ping, seconds(5)));
        assert_eq!(next(&mut pulse, heard_at).await, (Beat::Silent, seconds(1)));
    }
}
