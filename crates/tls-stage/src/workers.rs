//! Threads for handshakes whose signature takes long.
//!
//! A key of RSA with 2,048 bits signs in some 700 us, and one of P-384 in some 500: a shard that did that itself would deliver nothing
//! meanwhile. So a step that may sign goes to another thread, the connection with it, and comes back with its answers. The kernel shares
//! the cores between shards and these threads.
//!
//! Anybody can ask for a signature with some 200 bytes. So a job has the place of its handshake, and goes when that ends: a client that is
//! gone costs no signature, and the queue is no longer than there are places.

use crate::Offer;
use crate::connection::{Connection, ConnectionFailed, Step};
use myriad_reactor::Waker;
use myriad_wheel::Key;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A step that a thread is to make.
struct Job {
    key: Key,
    connection: Box<Connection>,
    offer: Arc<Offer>,
    done: Sender<Done>,
    waker: Waker,
}

/// A step that was made.
pub(crate) struct Done {
    pub(crate) key: Key,
    pub(crate) connection: Box<Connection>,
    pub(crate) result: Result<Step, ConnectionFailed>,
}

/// Names a job for whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Jobs that no thread has begun.
#[derive(Default)]
struct Jobs {
    /// The first of them has waited longest.
    waiting: BTreeMap<Ticket, Job>,
    next: u64,
    /// Nobody can ask any more.
    is_over: bool,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    /// A job has come, or the end.
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        // Nothing that happens under the lock can fail in the middle.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The job that has waited longest, once there is one. None at the end.
    fn take(&self) -> Option<Job> {
        let mut jobs = self.lock();
        loop {
            if let Some((_, job)) = jobs.waiting.pop_first() {
                return Some(job);
            }
            if jobs.is_over {
                return None;
            }
            let woken = self.changed.wait(jobs);
            jobs = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Threads that make steps for the stages of all shards. They end with the last clone.
#[derive(Clone)]
pub struct Workers(Arc<Owner>);

/// Ends the threads when it is dropped.
struct Owner(Arc<Queue>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Workers {
    /// Starts so many threads.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start(count: usize) -> io::Result<Self> {
        let workers = Self::without_threads();
        for nth in 0..count.max(1) {
            let queue = Arc::clone(&workers.0.0);
            let thread = std::thread::Builder::new().name(format!("handshakes-{nth}"));
            thread.spawn(move || {
                while let Some(job) = queue.take() {
                    job.make();
                }
            })?;
        }
        Ok(workers)
    }

    /// Without any thread: each step waits for [`Workers::make_step`]. For tests, which so decide when a signature is made.
    #[must_use]
    pub fn without_threads() -> Self {
        Self(Arc::new(Owner(Arc::default())))
    }

    /// Makes the step that has waited longest, on this thread. False if none waits.
    pub fn make_step(&self) -> bool {
        let next = self.0.0.lock().waiting.pop_first();
        next.map(|(_, job)| job.make()).is_some()
    }

    /// Steps that no thread has begun.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.0.lock().waiting.len()
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Workers")
    }
}

impl Job {
    fn make(mut self) {
        let result = self.connection.step(&self.offer);
        let done = Done {
            key: self.key,
            connection: self.connection,
            result,
        };
        // The shard may have ended.
        if self.done.send(done).is_ok() {
            self.waker.wake();
        }
    }
}

/// One stage's way to the threads.
pub(crate) struct Desk {
    workers: Workers,
    sender: Sender<Done>,
    receiver: Receiver<Done>,
    waker: Waker,
}

impl Desk {
    pub(crate) fn new(workers: Workers, waker: Waker) -> Self {
        let (sender, receiver) = channel();
        Self {
            workers,
            sender,
            receiver,
            waker,
        }
    }

    /// Gives a step to the threads.
    pub(crate) fn ask(&self, key: Key, connection: Box<Connection>, offer: Arc<Offer>) -> Ticket {
        let job = Job {
            key,
            connection,
            offer,
            done: self.sender.clone(),
            waker: self.waker.clone(),
        };
        let queue = &self.workers.0.0;
        let mut jobs = queue.lock();
        let ticket = Ticket(jobs.next);
        jobs.next += 1;
        jobs.waiting.insert(ticket, job);
        drop(jobs);
        queue.changed.notify_one();
        ticket
    }

    /// Takes a step back, and drops its connection. Nothing happens if a thread has begun with it: it comes back as done.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        // Dropped behind the lock.
        let job = self.workers.0.0.lock().waiting.remove(&ticket);
        drop(job);
    }

    /// A step that was made, if there is one.
    pub(crate) fn take(&self) -> Option<Done> {
        self.receiver.try_recv().ok()
    }
}
