//! Messages from other shards, from the control plane, and from ourselves. Changes `messages`, `home`, `hub`, `admission` (its
//! drain) and `turn_end`; sends by `mesh`.

use crate::drain::Drain;
use crate::inquiry::InquiryAnswer;
use crate::marks::hit;
use crate::mesh::{Answer, Message, NotPublished};
use crate::notices::Notice;
use crate::shard::Shard;
use crate::transport::Refused;
use myriad_hub::{
    Asker, Delivery, HomeEffect, Joined, Now, Phase, Position, Publication, ShardSet, Ticket,
};
use myriad_reactor::Reactor;

/// A turn takes so many times [`Settings::slice_max`] publications before it puts further messages off: 8,192 by default, about 10 ms
/// of work. One append is never divided. One that does not fit any more begins the next turn, so a turn takes no more than that, or
/// one append.
///
/// [`Settings::slice_max`]: crate::Settings::slice_max
const SLICES_OF_PUBLICATIONS: usize = 8;

impl<R: Reactor> Shard<R> {
    /// Handles all messages that have arrived, and those that handling them sends to ourselves. Once these have
    /// published much, the rest is put off.
    pub(crate) fn handle_messages(&mut self, now: Now) {
        let publications_max = SLICES_OF_PUBLICATIONS * self.settings.slice_max;
        let mut publications = 0;
        let fits = |taken: usize, message: &Message| {
            taken == 0 || taken + message.publications() <= publications_max
        };
        while self
            .messages
            .put_off
            .front()
            .is_some_and(|message| fits(publications, message))
            && let Some(message) = self.messages.put_off.pop_front()
        {
            publications += message.publications();
            self.handle_message(message, now);
        }
        // What comes from others may be a consequence of what was sent to ourselves before: a broker brings a publication back, and its
        // channel's home has to know of a subscription that its client asked for earlier.
        self.handle_loopback(&mut publications, publications_max, now);
        if self.messages.put_off.is_empty() {
            let mut received = std::mem::take(&mut self.messages.received);
            self.mesh.receive(self.index, &mut received);
            for message in received.drain(..) {
                // What comes later must not overtake what was put off.
                if !self.messages.put_off.is_empty() || !fits(publications, &message) {
                    hit!(MessagePutOff);
                    self.messages.put_off.push_back(message);
                    continue;
                }
                publications += message.publications();
                self.handle_message(message, now);
            }
            self.messages.received = received;
        }
        self.handle_loopback(&mut publications, publications_max, now);
    }

    /// Handles what was sent to ourselves. What is for the home of channels keeps its order when some of it is put off.
    fn handle_loopback(&mut self, publications: &mut usize, publications_max: usize, now: Now) {
        while let Some(message) = self.messages.loopback.pop_front() {
            if message.asks_home() {
                let taken = *publications + message.publications();
                let fits = *publications == 0 || taken <= publications_max;
                if !fits || !self.messages.put_off.is_empty() {
                    hit!(MessagePutOff);
                    self.messages.put_off.push_back(message);
                    continue;
                }
                *publications = taken;
            }
            self.handle_message(message, now);
        }
    }

    /// Whether messages wait for the next turn. Public for the simulator.
    #[must_use]
    pub fn has_put_off(&self) -> bool {
        !self.messages.put_off.is_empty()
    }

    /// Sends to another shard through its inbox, and to ourselves through the loopback. Both keep the order of messages.
    pub(crate) fn send_message(&mut self, shard: usize, message: Message) {
        if shard == self.index {
            self.messages.loopback.push_back(message);
        } else {
            self.mesh.send(shard, message);
        }
    }

    fn handle_message(&mut self, message: Message, now: Now) {
        match message {
            Message::Joined {
                channel,
                serial,
                position,
            } => self.handle_joined(&channel, serial, position, now),
            Message::NotJoined { channel, serial } => self.handle_not_joined(&channel, serial, now),
            Message::Members(question) => self.answer_members(&question),
            Message::MembersPage { gather, page } => self.handle_members_page(gather, *page, now),
            Message::Inquire { id, inquiry } => self.handle_inquiry(id, *inquiry),
            Message::OnlyConnection(other) => self.handle_only_connection(&other, now),
            Message::Deliver(delivery) => self.handle_delivery(delivery),
            Message::Answer { ticket, answer } => self.handle_answer(ticket, *answer, now),
            Message::Settings(settings) => self.handle_settings(&settings),
            Message::Order { id, order } => self.handle_order(id, order),
            Message::Trace { connection, trace } => self.handle_trace(connection, trace, now),
            Message::Emulated(emulated) => self.handle_emulated(&emulated, now),
            Message::HandedBack => self.take_back(now),
            Message::Drain { over } => {
                if self.admission.drain.is_none() {
                    let is_empty = self.hub.connection_count() == 0;
                    hit!(DrainEmpty if is_empty);
                    self.hub.begin_drain();
                    self.admission.drain =
                        Some(Drain::new(over, self.settings.drain_linger, now, &self.hub));
                } else {
                    hit!(DrainAgain);
                }
            }
            Message::Kept { ticket } => self.handle_kept(ticket, now),
            Message::DiskFailed => self.handle_disk_failure(),
            question => {
                if let Some(question) = self.judge_durability(question) {
                    self.ask_home(question, now);
                    self.run_home_effects(now);
                }
            }
        }
    }

    /// Gives the home of channels a message that is for it.
    fn ask_home(&mut self, question: Message, now: Now) {
        match question {
            Message::Publish(submission) => self.home.handle_publish(*submission, now),
            Message::Log(entry) => self.home.handle_log(*entry, now),
            Message::Join {
                channel,
                shard,
                serial,
            } => self.home.handle_join(channel, shard, serial, now),
            Message::Leave { channel, shard } => self.home.handle_leave(&channel, shard, now),
            Message::Recover(request) => self.home.handle_recover(*request, now),
            Message::ReadHistory(request) => self.home.handle_history(*request, now),
            Message::Fence { channel, ticket } => self.home.handle_fence(channel, ticket),
            Message::RemoveHistory { channel, id } => {
                let asker = Asker::Control(id);
                self.home.handle_remove_history(&channel, asker, now);
            }
            Message::PresenceEvent(event) => self.home.handle_presence_event(*event),
            Message::FromNode(from) => self.home.handle_node(*from),
            Message::BeginRound(round) => self.home.begin_round(round),
            Message::Stream(request) => self.home.handle_stream(*request, now),
            Message::ReadStream(request) => self.home.handle_read_stream(*request, now),
            Message::Joined { .. }
            | Message::NotJoined { .. }
            | Message::Deliver(_)
            | Message::Members(_)
            | Message::MembersPage { .. }
            | Message::Inquire { .. }
            | Message::OnlyConnection(_)
            | Message::Answer { .. }
            | Message::Order { .. }
            | Message::Trace { .. }
            | Message::HandedBack
            | Message::Kept { .. }
            | Message::DiskFailed
            | Message::Emulated(_)
            | Message::Settings(_)
            | Message::Drain { .. } => self.note_defect_of_message("the message is for a home"),
        }
    }

    /// What time asks of the home of channels: batches leave, histories expire.
    pub(crate) fn handle_home_time(&mut self, now: Now) {
        let deadline = self.home.next_deadline();
        if deadline.is_some_and(|deadline| deadline <= now.tick()) {
            self.home.handle_time(now);
            self.run_home_effects(now);
        }
    }

    /// Carries out what the home of channels asks for, in its order.
    pub(crate) fn run_home_effects(&mut self, now: Now) {
        self.submit_durable();
        while let Some(effect) = self.home.poll_effect() {
            if let Some(effect) = self.hold(effect) {
                self.run_home_effect(effect, now);
            }
        }
        while let Some(told) = self.home.poll_told() {
            self.mesh.tell_nodes(told);
        }
        while let Some(wish) = self.home.poll_wish() {
            self.mesh.wish(wish);
        }
    }

    /// Carries out one of them.
    pub(crate) fn run_home_effect(&mut self, effect: HomeEffect, now: Now) {
        match effect {
            HomeEffect::Published { asker, position } => match asker {
                Asker::Control(id) => self.mesh.published(id, Ok(position)),
                Asker::Session(ticket) => self.send_answer(ticket, Answer::Published),
            },
            HomeEffect::PublishRefused { asker } => match asker {
                Asker::Control(id) => self.mesh.published(id, Err(NotPublished::Closed)),
                Asker::Session(ticket) => {
                    self.send_answer(ticket, Answer::NotPublished(NotPublished::Closed));
                }
            },
            HomeEffect::Stream { asker, answer } => match asker {
                Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::Stream(answer)),
                Asker::Session(ticket) => self.send_answer(ticket, Answer::Stream(answer)),
            },
            HomeEffect::StreamRead { asker, answer } => match asker {
                Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::StreamRead(answer)),
                Asker::Session(ticket) => self.send_answer(ticket, Answer::StreamRead(answer)),
            },
            HomeEffect::Fenced { ticket, channel } => {
                self.send_answer(ticket, Answer::Fenced(channel));
            }
            HomeEffect::Held { ticket } => self.send_answer(ticket, Answer::Held),
            HomeEffect::Recovered(recovered) => {
                self.send_answer(recovered.ticket, Answer::Recovered(recovered));
            }
            HomeEffect::History { asker, answer } => match asker {
                Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::History(answer)),
                Asker::Session(ticket) => self.send_answer(ticket, Answer::History(answer)),
            },
            HomeEffect::HistoryRemoved { asker } => match asker {
                Asker::Control(id) => self.mesh.answered(id, InquiryAnswer::HistoryRemoved),
                Asker::Session(_) => self.note_defect_of_message("no client removes history"),
            },
            HomeEffect::Joined {
                shard,
                channel,
                serial,
                position,
            } => self.send_message(
                shard,
                Message::Joined {
                    channel,
                    serial,
                    position,
                },
            ),
            HomeEffect::NotJoined {
                shard,
                channel,
                serial,
            } => self.send_message(shard, Message::NotJoined { channel, serial }),
            HomeEffect::Deliver { delivery, shards } => {
                self.send_delivery(&delivery, shards, now);
            }
            HomeEffect::Occupied { channel } => {
                self.note_occupancy(Notice::Occupied(channel), now);
            }
            HomeEffect::Vacated { channel } => {
                self.note_occupancy(Notice::Vacated(channel), now);
            }
        }
    }

    /// As a home: says to other nodes which users a slice of the channels have, if they have asked.
    pub(crate) fn say_round(&mut self, now: Now) {
        if self.home.is_in_round() {
            let max = u32::try_from(self.settings.slice_max).unwrap_or(u32::MAX);
            self.home.say_round(max);
            self.run_home_effects(now);
        }
    }

    /// As a home: answers a client's command, behind everything that was sent to the client's shard before.
    pub(crate) fn send_answer(&mut self, ticket: Ticket, answer: Answer) {
        let answer = Box::new(answer);
        self.send_message(ticket.shard.into(), Message::Answer { ticket, answer });
    }

    /// A home, or the control plane, answers a client's command. The answer to a connection that has gone is dropped.
    fn handle_answer(&mut self, ticket: Ticket, answer: Answer, now: Now) {
        match answer {
            Answer::Published => self.handle_published(ticket, now),
            Answer::NotPublished(why) => self.handle_not_published(ticket, why, now),
            Answer::Held => self.handle_held(ticket),
            Answer::Fenced(channel) => self.handle_fence(ticket, &channel, now),
            Answer::Recovered(recovered) => self.handle_recovered(recovered, now),
            Answer::History(answer) => self.handle_history_answer(ticket, answer, now),
            Answer::StreamRead(answer) => self.handle_stream_read(ticket, *answer, now),
            // Clients that write are the control plane's.
            Answer::Stream(answer) => drop(answer),
            Answer::Asked(id, answer) => self.handle_ask_answer(ticket, id, answer, now),
        }
    }

    /// As its home: sends something to every shard with a subscriber.
    fn send_delivery(&mut self, delivery: &Delivery, shards: ShardSet, now: Now) {
        for publication in delivery.publications() {
            self.count_publication(publication, shards);
            self.note_published(publication, now);
        }
        for shard in shards.iter() {
            self.send_message(shard, Message::Deliver(delivery.clone()));
        }
    }

    fn count_publication(&mut self, publication: &Publication, shards: ShardSet) {
        self.metrics().publications.add(1);
        hit!(PublishToNobody if shards.is_empty());
        hit!(PublishToOne if shards.len() == 1);
        hit!(PublishToMany if shards.len() > 1);
        if shards.is_empty() {
            self.turn_end.completed.push(publication.published_at());
        }
    }

    fn handle_delivery(&mut self, delivery: Delivery) {
        if !self.hub.deliver(delivery.clone()) {
            self.note_submitted(&delivery);
        }
    }

    fn handle_joined(&mut self, channel: &str, serial: u64, position: Position, now: Now) {
        let mut joined = Vec::new();
        self.hub
            .handle_joined(channel, serial, position, &mut joined);
        for Joined {
            key,
            subscription,
            position,
        } in joined
        {
            // A connection is answered once all of its channels have joined.
            let connection = self.hub.connection(key.index);
            if self.reads.is_reading(key.index) {
                self.handle_reader_joined(key, now);
            } else if connection.phase == Phase::Joining && connection.joins_pending() == 0 {
                self.admit_joined(key, now);
            } else if connection.has_session() {
                self.handle_session_joined(key, subscription, position, now);
            }
        }
    }

    /// The home has not read a channel's log up to its end: whoever waits for the channel is to ask again, here or elsewhere.
    fn handle_not_joined(&mut self, channel: &str, serial: u64, now: Now) {
        for (key, subscription) in self.hub.not_joined(channel, serial) {
            // One that is closed ends others of the same connection.
            if !self.hub.contains(key)
                || self.hub.find_subscription(key.index, channel) != Some(subscription)
            {
                continue;
            }
            let connection = self.hub.connection(key.index);
            if self.reads.is_reading(key.index) {
                self.refuse(key, Refused::behind(), now);
            } else if connection.phase == Phase::Joining {
                self.refuse(key, Refused::not_caught_up(), now);
            } else if connection.has_session() {
                self.handle_session_not_joined(key, subscription, now);
            }
        }
    }

    /// Sends a leave to the home of each channel that lost its last member here. Called before any later join of the same
    /// channel is sent, so that the home gets the two in order.
    pub(crate) fn send_leaves(&mut self) {
        for channel in std::mem::take(&mut self.turn_end.emptied_channels) {
            let (shard, home) = (self.index, self.mesh.home_of(&channel));
            hit!(LeaveSelf if home == shard);
            hit!(LeaveOther if home != shard);
            self.send_message(home, Message::Leave { channel, shard });
        }
    }

    /// This shard has submitted a delivery to all its members.
    pub(crate) fn note_submitted(&mut self, delivery: &Delivery) {
        for publication in delivery.publications() {
            if publication.note_shard_done() {
                self.turn_end.completed.push(publication.published_at());
            }
        }
    }
}
