//! What shard threads tell the control plane.
//!
//! Tokio wakes its runtime by writing to a descriptor *number*. A shard thread that has unshared its descriptor table
//! has something else at that number, perhaps a client's socket: waking a tokio task there, even by dropping a
//! channel's sender, would write eight stray bytes to a client. So shard threads touch nothing of tokio's. They put
//! notes here, and the mailbox's own eventfd, made before any thread unshares and kept by all of them, tells the
//! control plane to look.

use crate::error::ServerError;
use myriad_shard::{Position, Reply};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

/// Something a shard thread has to say.
#[derive(Debug)]
pub(crate) enum Note {
    /// A publication has its place; none when the shard ended before it got one.
    Placed(oneshot::Sender<Position>, Option<Position>),
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

/// The way from shard threads to the control plane. Unbounded, because every note answers something that is bounded:
/// a publication's permit, or a thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    notes: Mutex<Vec<Note>>,
    bell: OwnedFd,
}

/// The reader's side of a mailbox.
#[derive(Debug)]
pub(crate) struct Notes {
    mailbox: Arc<Mailbox>,
    bell: pipe::Receiver,
}

/// A mailbox and its reader; call it inside the runtime.
pub(crate) fn mailbox() -> io::Result<(Arc<Mailbox>, Notes)> {
    let (heard, rung) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mailbox = Arc::new(Mailbox {
        notes: Mutex::default(),
        bell: rung,
    });
    let notes = Notes {
        mailbox: Arc::clone(&mailbox),
        bell: pipe::Receiver::from_owned_fd(heard)?,
    };
    Ok((mailbox, notes))
}

impl Mailbox {
    /// The descriptor that every thread's table must keep.
    pub(crate) fn raw(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Leaves a note. Rings only when the box was empty: the reader takes all notes at once.
    pub(crate) fn leave(&self, note: Note) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let first = notes.is_empty();
        notes.push(note);
        drop(notes);
        if first {
            // A full pipe refuses, and then the bell is ringing already.
            let _ = rustix::io::write(&self.bell, &[1]);
        }
    }

    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Notes {
    /// Waits until there are notes, and takes all.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<Note>> {
        loop {
            self.bell.readable().await?;
            // The bell is silenced before the box is opened: a note that comes in between rings it again.
            match self.bell.try_read(&mut [0; 64]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    let notes = self.mailbox.take();
                    if !notes.is_empty() {
                        return Ok(notes);
                    }
                }
            }
        }
    }
}

/// A reply that reaches `sender` through the mailbox, also when the shard drops it unanswered.
pub(crate) fn reply_through(mailbox: Arc<Mailbox>, sender: oneshot::Sender<Position>) -> Reply {
    let mut pending = PendingReply {
        mailbox,
        sender: Some(sender),
    };
    Box::new(move |position| pending.settle(Some(position)))
}

struct PendingReply {
    mailbox: Arc<Mailbox>,
    sender: Option<oneshot::Sender<Position>>,
}

impl PendingReply {
    fn settle(&mut self, position: Option<Position>) {
        if let Some(sender) = self.sender.take() {
            self.mailbox.leave(Note::Placed(sender, position));
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.settle(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    /// Answers what the notes carry, as the control plane does.
    fn settle(notes: Vec<Note>) {
        for note in notes {
            if let Note::Placed(sender, Some(position)) = note {
                let _ = sender.send(position);
            }
        }
    }

    #[test]
    fn replies_come_through_and_a_dropped_one_ends_its_wait() {
        let runtime = runtime();
        let (mailbox, mut notes) = runtime.block_on(async { mailbox().unwrap() });
        let (answered, answer) = oneshot::channel();
        let (dropped, nothing) = oneshot::channel();
        let first = reply_through(Arc::clone(&mailbox), answered);
        let second = reply_through(Arc::clone(&mailbox), dropped);
        std::thread::spawn(move || {
            first(Position { offset: 7 });
            drop(second);
        })
        .join()
        .unwrap();
        runtime.block_on(async {
            settle(notes.next().await.unwrap());
            assert_eq!(answer.await.unwrap().offset, 7);
            assert!(nothing.await.is_err());
        });
    }

    #[test]
    fn no_note_is_lost_between_silencing_and_taking() {
        const NOTES: usize = 20_000;
        let runtime = runtime();
        let (mailbox, mut notes) = runtime.block_on(async { mailbox().unwrap() });
        let thread =
            std::thread::spawn(move || (0..NOTES).for_each(|_| mailbox.leave(Note::Finished)));
        runtime.block_on(async {
            let mut seen = 0;
            while seen < NOTES {
                seen += notes.next().await.unwrap().len();
            }
        });
        thread.join().unwrap();
    }
}
