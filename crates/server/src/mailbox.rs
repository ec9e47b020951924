//! Events from shard threads to the control plane, and to the broker's thread.
//!
//! Tokio wakes its runtime by writing to a descriptor *number*. A shard thread that has unshared its descriptor table
//! may have a client's socket at that number: waking a tokio task there, even by dropping a channel's sender, would write
//! eight stray bytes to a client. So shard threads use nothing of tokio's. They post events here, and then write a byte to
//! the mailbox's own pipe, which is made before any thread unshares its table and kept in all tables.

use crate::auth::Authority;
use crate::error::ServerError;
use myriad_shard::{
    Ask, BrokerTask, ControlPlane, InquiryAnswer, MembersQuestion, Mesh, NotPublished, Position,
    RequestId,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::unix::pipe;

/// Something that happened on a shard thread.
#[derive(Debug)]
pub(crate) enum ShardEvent {
    /// A publication has its offset, or will never have one.
    Published {
        /// The publisher's request.
        id: RequestId,
        /// Where the publication is in its channel's order.
        position: Result<Position, NotPublished>,
    },
    /// An inquiry is answered; none when the shard ended before.
    Answered {
        /// The inquiry.
        id: RequestId,
        /// What the shard says.
        answer: Option<InquiryAnswer>,
    },
    /// A client's command waits for an answer.
    Asked(Ask),
    /// A client asks for members of a channel, and other nodes may have some.
    AskedMembers(MembersQuestion),
    /// The shard accepts connections.
    Ready {
        /// Its thread, for what `/proc` says of it.
        thread: rustix::thread::Pid,
    },
    /// The shard has drained.
    Finished,
    /// The shard cannot go on.
    Failed(ServerError),
}

/// A queue of events. It needs no bound of its own: each event belongs to something that is bounded, a publication's permit, an
/// ask's place or a thread.
#[derive(Debug)]
pub(crate) struct Mailbox<E> {
    events: Mutex<Vec<E>>,
    /// The writing end of the pipe.
    notify_fd: OwnedFd,
}

/// The reader's side of a mailbox.
#[derive(Debug)]
pub(crate) struct Letters<E> {
    mailbox: Arc<Mailbox<E>>,
    notified_fd: pipe::Receiver,
}

/// A mailbox and its reader; call it inside the runtime.
pub(crate) fn mailbox<E>() -> io::Result<(Arc<Mailbox<E>>, Letters<E>)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mailbox = Arc::new(Mailbox {
        events: Mutex::new(Vec::new()),
        notify_fd: writer,
    });
    let events = Letters {
        mailbox: Arc::clone(&mailbox),
        notified_fd: pipe::Receiver::from_owned_fd(reader)?,
    };
    Ok((mailbox, events))
}

impl<E> Mailbox<E> {
    /// The descriptor that every thread's table must keep.
    pub(crate) fn raw(&self) -> RawFd {
        self.notify_fd.as_raw_fd()
    }

    /// Queues an event. Notifies the reader only if the queue was empty: the reader takes all events at once.
    pub(crate) fn post(&self, event: E) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let first = events.is_empty();
        events.push(event);
        drop(events);
        if first {
            // A full pipe refuses the byte; the reader has been notified then.
            let _ = rustix::io::write(&self.notify_fd, &[1]);
        }
    }

    fn take(&self) -> Vec<E> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The shards' way to the control plane: their threads only post to the mailbox, or leave a token to the threads that verify.
pub(crate) struct ThroughMailbox {
    pub(crate) mailbox: Arc<Mailbox<ShardEvent>>,
    pub(crate) tokens: Arc<Authority>,
    /// Where the broker is told what to do, if there is one.
    pub(crate) broker: Option<Arc<Mailbox<BrokerTask>>>,
}

impl ControlPlane for ThroughMailbox {
    fn published(&self, id: RequestId, position: Result<Position, NotPublished>) {
        self.mailbox.post(ShardEvent::Published { id, position });
    }

    fn submit(&self, task: BrokerTask) {
        if let Some(broker) = &self.broker {
            broker.post(task);
        }
    }

    fn answered(&self, id: RequestId, answer: Option<InquiryAnswer>) {
        self.mailbox.post(ShardEvent::Answered { id, answer });
    }

    fn ask_members(&self, question: MembersQuestion) {
        self.mailbox.post(ShardEvent::AskedMembers(question));
    }

    fn ask(&self, mesh: &Mesh, ask: Ask) {
        if let Some(ask) = self.tokens.take(mesh, ask) {
            self.mailbox.post(ShardEvent::Asked(ask));
        }
    }
}

impl<E> Letters<E> {
    /// Takes what was posted by now, whether the pipe has said so or not.
    pub(crate) fn take(&self) -> Vec<E> {
        self.mailbox.take()
    }

    /// Waits until there are events, and takes all.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<E>> {
        loop {
            self.notified_fd.readable().await?;
            // Empty the pipe before taking the events: an event posted in between notifies again.
            match self.notified_fd.try_read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let events = self.mailbox.take();
                    if !events.is_empty() {
                        return Ok(events);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Answers;
    use crate::auth::TokenRules;
    use myriad_shard::Epoch;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn answers_come_through_and_a_dropped_one_ends_its_wait() {
        let runtime = runtime();
        let (mailbox, mut events) = runtime.block_on(async { mailbox().unwrap() });
        let answers = Answers::default();
        let wait = answers.begin();
        let position = Position {
            epoch: Epoch::new(7),
            offset: 7,
        };
        let (answered, dropped) = (wait.ask(), wait.ask());
        std::thread::spawn(move || {
            let tokens = Arc::new(Authority::start(TokenRules::default()).unwrap());
            let shard = ThroughMailbox {
                mailbox,
                tokens,
                broker: None,
            };
            shard.published(answered, Ok(position));
            shard.published(dropped, Err(NotPublished::Ended));
        })
        .join()
        .unwrap();
        runtime.block_on(async {
            for event in events.next().await.unwrap() {
                if let ShardEvent::Published { id, position } = event {
                    answers.settle(id, position);
                }
            }
            let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
            let answered = wait.until(deadline).await;
            assert_eq!(
                answered,
                [Some(Ok(position)), Some(Err(NotPublished::Ended))]
            );
        });
    }

    #[test]
    fn what_was_posted_can_be_taken_at_once() {
        let runtime = runtime();
        let (mailbox, mut events) = runtime.block_on(async { mailbox().unwrap() });
        mailbox.post(1);
        mailbox.post(2);
        assert_eq!(events.take(), [1, 2]);
        assert_eq!(events.take(), [0; 0]);
        // The byte for these is still in the pipe.
        mailbox.post(3);
        let next = runtime.block_on(events.next());
        assert_eq!(next.unwrap(), [3]);
    }

    #[test]
    fn no_event_is_lost_between_emptying_and_taking() {
        const EVENTS: usize = 20_000;
        let runtime = runtime();
        let (mailbox, mut events) = runtime.block_on(async { mailbox().unwrap() });
        let thread = std::thread::spawn(move || {
            (0..EVENTS).for_each(|_| mailbox.post(ShardEvent::Finished))
        });
        runtime.block_on(async {
            let mut seen = 0;
            while seen < EVENTS {
                seen += events.next().await.unwrap().len();
            }
        });
        thread.join().unwrap();
    }
}
