//! Threads that verify signatures by public keys, which take 20 to 300 microseconds each.
//!
//! Their number is half of the cores', and the kernel prefers every other thread of the server: a crowd that connects with such
//! tokens must not delay deliveries. What waits is bounded. Whoever comes then is told to try again.

use super::keys::PublicKey;
use rustix::process::setpriority_process;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Signatures that wait, at most. At 5,000 a second they wait for a fifth of a second.
const WAITING_MAX: usize = 1024;
/// How much the kernel prefers other threads (nice).
const NICENESS: i32 = 10;

/// A signature to verify.
struct Job {
    key: PublicKey,
    token: Box<str>,
    signature: Vec<u8>,
    verified: oneshot::Sender<bool>,
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
    is_over: bool,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panics holds no half of a change: each is one call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job; none when the pool has gone.
    fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            match state.waiting.pop_front() {
                // Nobody waits for it any more: its client was answered at its deadline.
                Some(job) if job.verified.is_closed() => {}
                Some(job) => return Some(job),
                None => {
                    let changed = self.changed.wait(state);
                    state = changed.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn work(&self) {
        // Without the right to change it, the threads are as important as others.
        let _ = setpriority_process(Some(rustix::thread::gettid()), NICENESS);
        while let Some(job) = self.next() {
            let signed = job.token.rsplit_once('.').map_or("", |(signed, _)| signed);
            let is_good = job.key.verifies(signed.as_bytes(), &job.signature);
            // It fails if nobody waits any more.
            let _ = job.verified.send(is_good);
        }
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
        {
            let mut state = self.0.state();
            if state.waiting.len() >= WAITING_MAX {
                return Err(Busy);
            }
            state.waiting.push_back(Job {
                key,
                token: token.into(),
                signature,
                verified,
            });
        }
        self.0.changed.notify_one();
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
