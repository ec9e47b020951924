//! Threads that verify signatures by public keys, which take 20 to 300 microseconds each.
//!
//! Their number is half of the cores', so that a crowd that connects with such tokens leaves shards the other half. What waits is
//! bounded. Whoever comes then is told to try again.
//!
//! They are as important to the kernel as shards. With 2 cores, both ends there, and 4,000 connects with ES256 a second, a push to
//! one subscriber takes as long as on an idle server (p99 0.6 ms). With a nice value of 10 it is the same, but a crowd that connects
//! as fast as it can gets a third less done.

use super::keys::PublicKey;
use myriad_shard::{Ask, AskAnswer, Mesh};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Signatures that wait, at most: as many as the connects (16,384) and commands (4,096) that may wait for the control plane.
const WAITING_MAX: usize = 16_384 + 4096;

/// What a thread does, and whom it tells. Boxed: each is another closure.
type Job = Box<dyn FnOnce() -> Option<Told> + Send>;

/// Answers that a thread keeps while others wait, at most. A shard that is woken for each answer takes a turn for each: that costs
/// half as much as a signature.
const TOLD_MAX: usize = 64;

/// An answer, and the shard's question.
pub(super) struct Told {
    pub(super) mesh: Mesh,
    pub(super) ask: Ask,
    pub(super) answer: AskAnswer,
}

/// Why a signature was not verified. A client should try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// The threads. They end when the last clone of their pool is dropped.
#[derive(Debug)]
pub(super) struct Pool(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Threads that wait for a job. Waking nobody costs a system call all the same.
    asleep: usize,
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics holds no half of a change: each is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; none when the pool has gone. Whoever is to be told is told before it waits.
    fn next(&self, told: &mut Vec<Told>) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            match state.waiting.pop_front() {
                None if !told.is_empty() => {
                    drop(state);
                    tell(told);
                    state = self.state();
                }
                Some(job) => return Some(job),
                None => {
                    state.asleep += 1;
                    let changed = self.changed.wait(state);
                    state = changed.unwrap_or_else(PoisonError::into_inner);
                    state.asleep -= 1;
                }
            }
        }
    }

    fn work(&self) {
        let mut told = Vec::new();
        while let Some(job) = self.next(&mut told) {
            told.extend(job());
            if told.len() >= TOLD_MAX {
                tell(&mut told);
            }
        }
    }
}

fn tell(told: &mut Vec<Told>) {
    for Told { mesh, ask, answer } in told.drain(..) {
        mesh.answer(ask, answer);
    }
}

impl Pool {
    /// # Errors
    /// The threads could not be started.
    pub(super) fn start(threads: usize) -> io::Result<Self> {
        let pool = Self(Arc::default());
        for _ in 0..threads {
            let queue = Arc::clone(&pool.0);
            std::thread::Builder::new()
                .name("signatures".into())
                .spawn(move || queue.work())?;
        }
        Ok(pool)
    }

    /// Gives `work` to a thread, with what it is about.
    ///
    /// # Errors
    /// Gives `subject` back: too many wait.
    pub(super) fn run_with<T: Send + 'static>(
        &self,
        subject: T,
        work: impl FnOnce(T) -> Option<Told> + Send + 'static,
    ) -> Result<(), T> {
        let mut state = self.0.state();
        if state.waiting.len() >= WAITING_MAX {
            return Err(subject);
        }
        state.waiting.push_back(Box::new(move || work(subject)));
        let is_awaited = state.asleep > 0;
        drop(state);
        if is_awaited {
            self.0.changed.notify_one();
        }
        Ok(())
    }

    /// Whether the signature of a token is by this key.
    ///
    /// # Errors
    /// Too many signatures wait.
    pub(super) async fn verify(
        &self,
        key: PublicKey,
        token: &str,
        signature: Vec<u8>,
    ) -> Result<bool, Busy> {
        let (verified, is_verified) = oneshot::channel();
        let token: Box<str> = token.into();
        let verify = move |verified: oneshot::Sender<bool>| {
            // Nobody waits for it any more: its client was answered at its deadline.
            if !verified.is_closed() {
                let signed = token.rsplit_once('.').map_or("", |(signed, _)| signed);
                // It fails if nobody waits any more.
                let _ = verified.send(key.verifies(signed.as_bytes(), &signature));
            }
            None
        };
        self.run_with(verified, verify).map_err(|_| Busy)?;
        is_verified.await.map_err(|_| Busy)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_over = true;
        state.waiting.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}

/// One thread for two cores, and at least one.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_comes_when_too_many_wait_is_given_back() {
        let pool = Pool::start(0).unwrap();
        for nth in 0..WAITING_MAX {
            assert_eq!(pool.run_with(nth, |_| None), Ok(()));
        }
        assert_eq!(pool.run_with(7, |_| None), Err(7));
    }

    #[test]
    fn threads_that_wait_are_woken_for_each_job() {
        let pool = Pool::start(2).unwrap();
        let (done, is_done) = mpsc::channel();
        for nth in 0..1_000 {
            let done = done.clone();
            let told = move |nth| {
                done.send(nth).unwrap();
                None
            };
            assert!(pool.run_with(nth, told).is_ok());
            assert_eq!(is_done.recv(), Ok(nth));
        }
    }
}
