//! Channels whose history is on the disk: nobody is shown what the disk does not have yet. Changes `durable` and `home`; sends by
//! `mesh`.
//!
//! A home goes ahead of the disk. What it says of such a channel waits here, in its order, until everything is kept that the home had
//! changed before. Permits of publications bound how much that is. What is about other channels does not wait.

use crate::inquiry::InquiryAnswer;
use crate::mesh::{Answer, Message, NotPublished};
use crate::shard::Shard;
use myriad_hub::{
    Asker, DurableEntry, HistoryAnswer, Home, HomeEffect, NotRecovered, Now, ReadRefused,
    Recovered, StoredChannel, StreamCommand, StreamRefused,
};
use myriad_reactor::Reactor;
use std::collections::VecDeque;
use std::fmt;

/// The way from a home to its disk. None of its methods blocks.
pub trait Journal: Send {
    /// Has entries kept, all of them or none. [`Mesh::kept`] says when they are; tickets rise.
    ///
    /// [`Mesh::kept`]: crate::Mesh::kept
    fn submit(&mut self, ticket: u64, entries: Vec<DurableEntry>);

    /// Whether the disk is full, so that nothing more should come now. What was submitted waits for room.
    fn is_full(&self) -> bool;
}

/// What a shard has of its disk.
pub(crate) struct Durable {
    journal: Box<dyn Journal>,
    submitted: u64,
    kept: u64,
    /// The disk has failed: nothing is kept any more.
    has_failed: bool,
    /// Effects, and the ticket that each waits for.
    held: VecDeque<(u64, HomeEffect)>,
    /// The message that the home handles is about a channel on the disk.
    concerns_disk: bool,
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable")
            .field("submitted", &self.submitted)
            .field("kept", &self.kept)
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

impl<R: Reactor> Shard<R> {
    /// The same shard, whose home has a disk with these channels, and with idempotency keys that `keys` gives back. `unix_now_ms` is
    /// the time now. Channels whose namespaces keep nothing on the disk any more are deleted there.
    #[must_use]
    pub fn with_journal(
        mut self,
        journal: Box<dyn Journal>,
        stored: Vec<StoredChannel>,
        keys: impl FnOnce(&mut Home),
        unix_now_ms: u64,
        now: Now,
    ) -> Self {
        self.home.begin_disk();
        let mut left = Vec::new();
        for channel in stored {
            let (name, epoch, last) = (channel.name.clone(), channel.epoch, channel.last);
            if !self.home.restore(channel, unix_now_ms, now) {
                left.push(DurableEntry::deleted(name, epoch, last));
            }
        }
        keys(&mut self.home);
        let mut durable = Durable {
            journal,
            submitted: 0,
            kept: 0,
            has_failed: false,
            held: VecDeque::new(),
            concerns_disk: false,
        };
        if !left.is_empty() {
            durable.submit(left);
        }
        self.durable = Some(durable);
        self
    }

    /// Before the home handles a message: whether what it answers waits for the disk. Returns the message, unless the disk is full and
    /// would have to take more.
    pub(crate) fn judge_durability(&mut self, message: Message) -> Option<Message> {
        let Some(durable) = &mut self.durable else {
            return Some(message);
        };
        durable.concerns_disk = channel_of(&message).is_none_or(|one| self.home.is_durable(one));
        if !durable.concerns_disk || !durable.journal.is_full() {
            return Some(message);
        }
        match message {
            Message::Publish(submission) if !submission.skip_history => {
                self.tell_not_published(submission.asker, NotPublished::DiskFull);
                None
            }
            Message::Stream(request) if writes(&request.command) => {
                self.answer_stream(request.asker, Err(StreamRefused::Behind));
                None
            }
            other => Some(other),
        }
    }

    /// Has the disk keep what the home has changed.
    pub(crate) fn submit_durable(&mut self) {
        if let Some(durable) = &mut self.durable {
            let entries = self.home.take_durable();
            if !entries.is_empty() {
                durable.submit(entries);
            }
        }
    }

    /// An effect that need not wait.
    pub(crate) fn hold(&mut self, effect: HomeEffect) -> Option<HomeEffect> {
        let Some(durable) = &mut self.durable else {
            return Some(effect);
        };
        if durable.kept == durable.submitted && durable.held.is_empty() && !durable.has_failed {
            return Some(effect);
        }
        let concerns_disk = match channel_of_effect(&effect) {
            Some(channel) => self.home.is_durable(channel),
            None => durable.concerns_disk,
        };
        if !concerns_disk {
            return Some(effect);
        }
        if durable.has_failed {
            self.fail_effect(effect);
        } else {
            durable.held.push_back((durable.submitted, effect));
        }
        None
    }

    /// The disk has everything up to a ticket.
    pub(crate) fn handle_kept(&mut self, ticket: u64, now: Now) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.kept = durable.kept.max(ticket);
        while let Some(effect) = self.next_kept() {
            self.run_home_effect(effect, now);
        }
    }

    fn next_kept(&mut self) -> Option<HomeEffect> {
        let durable = self.durable.as_mut()?;
        let kept = durable.kept;
        let next = durable.held.pop_front_if(|(ticket, _)| *ticket <= kept);
        next.map(|(_, effect)| effect)
    }

    /// The disk has failed. Nothing that it does not have is shown to anybody, until the next start.
    pub(crate) fn handle_disk_failure(&mut self) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.has_failed = true;
        for (_, effect) in std::mem::take(&mut durable.held) {
            self.fail_effect(effect);
        }
    }

    /// Says instead of an effect that the disk has failed.
    fn fail_effect(&mut self, effect: HomeEffect) {
        match effect {
            HomeEffect::Published { asker, .. } | HomeEffect::PublishRefused { asker } => {
                self.tell_not_published(Some(asker), NotPublished::DiskFailed);
            }
            HomeEffect::Stream { asker, .. } => {
                self.answer_stream(asker, Err(StreamRefused::Behind));
            }
            HomeEffect::StreamRead { asker, .. } => {
                let answer = Box::new(Err(ReadRefused::Behind));
                match asker {
                    Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::StreamRead(answer)),
                    Asker::Session(ticket) => self.send_answer(ticket, Answer::StreamRead(answer)),
                }
            }
            HomeEffect::History { asker, .. } => {
                let answer = HistoryAnswer::Behind;
                match asker {
                    Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::History(answer)),
                    Asker::Session(ticket) => self.send_answer(ticket, Answer::History(answer)),
                }
            }
            HomeEffect::HistoryRemoved { asker } => {
                if let Asker::Control(id) = asker {
                    self.mesh.unanswered(id);
                }
            }
            HomeEffect::Recovered(recovered) => {
                let publications = Err(NotRecovered::Behind);
                let recovered = Recovered {
                    publications,
                    ..recovered
                };
                self.send_answer(recovered.ticket, Answer::Recovered(recovered));
            }
            HomeEffect::Joined {
                shard,
                channel,
                serial,
                ..
            } => self.send_message(shard, Message::NotJoined { channel, serial }),
            HomeEffect::Fenced { ticket, channel } => {
                self.send_answer(ticket, Answer::Fenced(channel));
            }
            // Nobody asks for these.
            HomeEffect::Deliver { .. }
            | HomeEffect::NotJoined { .. }
            | HomeEffect::Held { .. }
            | HomeEffect::Occupied { .. }
            | HomeEffect::Vacated { .. } => {}
        }
    }

    fn tell_not_published(&mut self, asker: Option<Asker>, why: NotPublished) {
        match asker {
            Some(Asker::Control(id)) => self.mesh.published(id, Err(why)),
            Some(Asker::Session(ticket)) => self.send_answer(ticket, Answer::NotPublished(why)),
            None => {}
        }
    }

    fn answer_stream(&mut self, asker: Asker, answer: myriad_hub::StreamAnswer) {
        let answer = Box::new(answer);
        match asker {
            Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::Stream(answer)),
            Asker::Session(ticket) => self.send_answer(ticket, Answer::Stream(answer)),
        }
    }
}

impl Durable {
    fn submit(&mut self, entries: Vec<DurableEntry>) {
        self.submitted += 1;
        self.journal.submit(self.submitted, entries);
    }
}

/// Whether a command would have the disk keep more.
fn writes(command: &StreamCommand) -> bool {
    matches!(command, StreamCommand::Create(_) | StreamCommand::Append(_))
}

/// The channel that a message for a home is about; none if it may be about several.
fn channel_of(message: &Message) -> Option<&str> {
    match message {
        Message::Publish(submission) => Some(&submission.channel),
        Message::Join { channel, .. } | Message::Leave { channel, .. } => Some(channel),
        Message::Recover(request) => Some(&request.channel),
        Message::ReadHistory(request) => Some(&request.channel),
        Message::Fence { channel, .. } | Message::RemoveHistory { channel, .. } => Some(channel),
        Message::PresenceEvent(event) => Some(&event.channel),
        Message::Stream(request) => Some(&request.channel),
        Message::ReadStream(request) => Some(&request.channel),
        _ => None,
    }
}

/// The channel that an effect names.
fn channel_of_effect(effect: &HomeEffect) -> Option<&str> {
    match effect {
        HomeEffect::Joined { channel, .. }
        | HomeEffect::NotJoined { channel, .. }
        | HomeEffect::Occupied { channel }
        | HomeEffect::Vacated { channel } => Some(channel),
        HomeEffect::Fenced { channel, .. } => Some(channel),
        HomeEffect::Recovered(recovered) => Some(&recovered.channel),
        HomeEffect::Deliver { delivery, .. } => Some(delivery.channel()),
        HomeEffect::Published { .. }
        | HomeEffect::PublishRefused { .. }
        | HomeEffect::Stream { .. }
        | HomeEffect::StreamRead { .. }
        | HomeEffect::Held { .. }
        | HomeEffect::History { .. }
        | HomeEffect::HistoryRemoved { .. } => None,
    }
}
