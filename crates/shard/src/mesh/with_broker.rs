//! The mesh of a node whose broker orders channels.

use super::{Answer, ControlPlane, Mesh, Message, NotPublished, PublishRefused};
use crate::inquiry::InquiryAnswer;
use crate::session::{MembersPage, MembersQuestion};
use crate::settings::ProcessLimits;
use myriad_hub::{
    Asker, ClientIds, Content, Epoch, FromNode, LogEntry, LogEvent, NodeSays, Permit, Position,
    RequestId, Submission, Told, Wish,
};
use myriad_reactor::Waker;

/// The logs of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How many there are.
    pub count: usize,
    /// Homes read no more of them than the channels that somebody wants: [`BrokerTask::Wish`].
    pub by_channel: bool,
}

/// What the broker of a node is to do.
#[derive(Debug)]
pub enum BrokerTask {
    /// Publish this. [`Mesh::answer_publisher`] answers its asker. It comes back by [`Mesh::read_log`], or where no history keeps it
    /// by [`Mesh::deliver_live`].
    Publish(Submission),
    /// Remove what all histories of a channel have up to now. [`Mesh::answer_remover`] answers.
    RemoveHistory {
        /// The channel.
        channel: Box<str>,
        /// Who asks.
        id: RequestId,
    },
    /// Tell the other nodes. [`Mesh::hear_node`] takes it there.
    Tell(Told),
    /// A home wants to hear a channel, or no more.
    Wish(Wish),
}

impl Mesh {
    /// As [`Mesh::new`], with a broker that orders channels in logs. Publications go to [`ControlPlane::submit`], and come
    /// back from the broker.
    ///
    /// # Panics
    /// No waker, or more than [`Mesh::SHARDS_MAX`].
    #[must_use]
    pub fn with_broker(
        wakers: Vec<Waker>,
        limits: ProcessLimits,
        epoch: Epoch,
        client_ids: ClientIds,
        logs: LogSettings,
        control_plane: Box<dyn ControlPlane>,
    ) -> Self {
        let logs = Some(logs);
        Self::assemble(wakers, limits, epoch, client_ids, logs, control_plane)
    }

    /// Whether a broker orders channels.
    #[must_use]
    pub fn has_broker(&self) -> bool {
        self.0.logs.is_some()
    }

    /// What comes from the broker takes its share of the limit of publication bytes, as what publishers bring does.
    ///
    /// # Errors
    /// There is no room now, or there will never be.
    pub fn take_in(&self, content: &Content) -> Result<Permit, PublishRefused> {
        let bytes = self.permit_bytes(content);
        if bytes > self.0.publications.size() {
            return Err(PublishRefused::TooLarge);
        }
        // In a drain, too: clients that are still here get what others publish.
        Permit::take(&self.0.publications, bytes, 0).ok_or(PublishRefused::Busy)
    }

    /// Tells homes what a log says next. Entries of one log come in its order.
    pub fn read_log(&self, entry: LogEntry) {
        let channel = match &entry.event {
            _ if entry.channel.is_some() => entry.channel.as_deref(),
            LogEvent::Publication(submission, _) => Some(&*submission.channel),
            LogEvent::Removed { channel, .. } | LogEvent::LostIn(channel) => Some(&**channel),
            LogEvent::Began(_)
            | LogEvent::CaughtUp { .. }
            | LogEvent::Whole
            | LogEvent::Passed
            | LogEvent::Beat(_)
            | LogEvent::Heard(_)
            | LogEvent::Lost => None,
        };
        match channel {
            Some(channel) => {
                let home = self.home_of(channel);
                self.send(home, Message::Log(Box::new(entry)));
            }
            None => self.tell_homes(entry.log, entry.offset, &entry.event),
        }
    }

    /// What is about no channel is told to every home.
    fn tell_homes(&self, log: myriad_hub::LogId, offset: u64, event: &LogEvent) {
        for home in 0..self.shard_count() {
            let event = match event {
                LogEvent::Began(epoch) => LogEvent::Began(*epoch),
                LogEvent::CaughtUp { floor } => LogEvent::CaughtUp { floor: *floor },
                LogEvent::Whole => LogEvent::Whole,
                LogEvent::Lost => LogEvent::Lost,
                LogEvent::Passed => LogEvent::Passed,
                LogEvent::Beat(age_max) => LogEvent::Beat(*age_max),
                LogEvent::Heard(is_heard) => LogEvent::Heard(*is_heard),
                LogEvent::Publication(..) | LogEvent::Removed { .. } | LogEvent::LostIn(_) => {
                    return;
                }
            };
            let entry = LogEntry {
                log,
                channel: None,
                offset,
                event,
            };
            self.send(home, Message::Log(Box::new(entry)));
        }
    }

    /// Delivers a publication that no log has.
    pub fn deliver_live(&self, submission: Submission) {
        let home = self.home_of(&submission.channel);
        self.send(home, Message::Publish(Box::new(submission)));
    }

    /// Has the other nodes told of joins and leaves.
    pub(crate) fn tell_nodes(&self, told: Told) {
        self.0.control_plane.submit(BrokerTask::Tell(told));
    }

    /// Takes a home's wish to the broker.
    pub(crate) fn wish(&self, wish: Wish) {
        self.0.control_plane.submit(BrokerTask::Wish(wish));
    }

    /// Tells homes what another node says.
    pub fn hear_node(&self, from: FromNode) {
        let channel = match &from.says {
            NodeSays::Client(event) | NodeSays::User(event, _) => Some(&event.channel),
            NodeSays::RoundEnd { .. } | NodeSays::Gone => None,
        };
        match channel.map(|channel| self.home_of(channel)) {
            Some(home) => self.send(home, Message::FromNode(Box::new(from))),
            None => {
                for home in 0..self.shard_count() {
                    self.send(home, Message::FromNode(Box::new(from.clone())));
                }
            }
        }
    }

    /// Has all homes say to other nodes which users are here. Each round has a higher number than the one before.
    pub fn begin_round(&self, round: u64) {
        for home in 0..self.shard_count() {
            self.send(home, Message::BeginRound(round));
        }
    }

    /// Tells who wanted a channel's history removed that it is, or that it is not known.
    pub fn answer_remover(&self, id: RequestId, is_removed: bool) {
        let answer = is_removed.then_some(InquiryAnswer::HistoryRemoved);
        self.0.control_plane.answered(id, answer);
    }

    /// Asks the other nodes for a channel's members.
    pub(crate) fn ask_members(&self, question: MembersQuestion) {
        self.0.control_plane.ask_members(question);
    }

    /// Brings what all other nodes say of a channel's members.
    pub fn answer_members(&self, question: &MembersQuestion, page: MembersPage) {
        let (asker, gather) = question.asker;
        let page = Box::new(page);
        self.send(asker, Message::MembersPage { gather, page });
    }

    /// Tells a publisher what became of its publication.
    pub fn answer_publisher(&self, asker: Asker, position: Result<Position, NotPublished>) {
        match asker {
            Asker::Control(id) => self.published(id, position),
            Asker::Session(ticket) => {
                let answer = Box::new(match position {
                    Ok(_) => Answer::Published,
                    Err(why) => Answer::NotPublished(why),
                });
                self.send(ticket.shard.into(), Message::Answer { ticket, answer });
            }
        }
    }
}
