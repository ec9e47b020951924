//! Threads for handshakes whose signature takes long.
//!
//! A key of RSA with 2,048 bits signs in some 700 us, and one of P-384 in some 500: a shard that did that itself would deliver nothing
//! meanwhile. So a whole step goes to another thread, the connection with it, and comes back with its answers. The kernel shares the cores
//! between shards and these threads.

use crate::Offer;
use crate::connection::{Connection, ConnectionFailed, Step};
use myriad_reactor::Waker;
use myriad_wheel::Key;
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

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

/// Threads that make steps for the stages of all shards. They end with the last clone.
#[derive(Clone)]
pub struct Workers(Sender<Job>);

impl Workers {
    /// Starts so many threads.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start(count: usize) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        for nth in 0..count.max(1) {
            let receiver = Arc::clone(&receiver);
            let thread = std::thread::Builder::new().name(format!("handshakes-{nth}"));
            thread.spawn(move || work(&receiver))?;
        }
        Ok(Self(sender))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Workers")
    }
}

/// Makes steps until nobody can ask for one any more.
fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        // A thread that panicked here held no job.
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let Job {
            key,
            mut connection,
            offer,
            done,
            waker,
        } = job;
        let result = connection.step(&offer);
        let done_with = Done {
            key,
            connection,
            result,
        };
        // The shard may have ended.
        if done.send(done_with).is_ok() {
            waker.wake();
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

    /// Gives a step to the threads. The connection comes back if there are none any more.
    pub(crate) fn ask(
        &self,
        key: Key,
        connection: Box<Connection>,
        offer: Arc<Offer>,
    ) -> Result<(), Box<Connection>> {
        let job = Job {
            key,
            connection,
            offer,
            done: self.sender.clone(),
            waker: self.waker.clone(),
        };
        self.workers
            .0
            .send(job)
            .map_err(|refused| refused.0.connection)
    }

    /// A step that was made, if there is one.
    pub(crate) fn take(&self) -> Option<Done> {
        self.receiver.try_recv().ok()
    }
}
