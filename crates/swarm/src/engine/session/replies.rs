//! Answers to a terminal's commands, and pushes that end something.

use super::place::{Epoch, Place};
use super::{CONNECT_ID, slot_of, subscribe_id};
use crate::clock::Nanos;
use crate::engine::crowd::World;
use crate::engine::terminal::Phase;
use crate::failure::Failure;
use myriad_reactor::{Reactor, Token};
use myriad_wire::centrifuge::UnsubscribeCode;
use myriad_wire::centrifuge::client::{
    Connected, Failure as Refusal, Outcome, ServerEvent, ServerMessage, Subscribed, Unsubscribed,
};
use std::sync::Arc;

/// From this code on clients subscribe again.
const RESUBSCRIBE_FROM: u32 = UnsubscribeCode::InsufficientState.code();

/// A code of the protocol as failures carry it. Larger ones are those of no server.
pub(super) fn code(code: u32) -> u16 {
    u16::try_from(code).unwrap_or(u16::MAX)
}

impl World {
    /// Handles a message that is no publication. Returns false if the terminal's connection has ended over it.
    pub(super) fn handle_server_message<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        message: ServerMessage<'_>,
        now: Nanos,
    ) -> bool {
        match message {
            ServerMessage::Reply { id, outcome } => {
                self.handle_reply(reactor, token, id, outcome, now)
            }
            ServerMessage::Push { channel, event, .. } => match event {
                ServerEvent::Unsubscribed(unsubscribed) => {
                    self.handle_unsubscribed(token, &channel, &unsubscribed);
                    true
                }
                ServerEvent::Disconnected(disconnected) => {
                    let failure = Failure::SessionClosed(code(disconnected.code));
                    self.fail_session(reactor, token, failure, &disconnected.reason, now);
                    false
                }
                ServerEvent::Message(content) => {
                    self.hear_data(token, content.data.as_bytes(), now);
                    true
                }
                // Joins and leaves are nothing that a listener acts on.
                _ => true,
            },
            ServerMessage::Ping => true,
        }
    }

    fn handle_reply<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        id: u32,
        outcome: Result<Outcome<'_>, Refusal<'_>>,
        now: Nanos,
    ) -> bool {
        if self.take_publish_reply(token, id, outcome.as_ref().err(), now) {
            return true;
        }
        if self.take_flow_reply(token, id, &outcome, now) {
            return true;
        }
        if !self.take_awaited(token.index, id) {
            // To a command that was given up when its terminal stalled.
            if self.excuses_answer(token.index, now) {
                self.totals.unwell.late_answers += 1;
            } else {
                self.keep_example(Failure::ReplyUnknown, &format!("a reply to command {id}"));
                self.note_failure(Failure::ReplyUnknown);
            }
            return true;
        }
        match (outcome, slot_of(id)) {
            (Err(refusal), _) => return self.handle_refusal(reactor, token, id, &refusal, now),
            (Ok(Outcome::Connected(connected)), None) => self.note_connected(token, &connected),
            (Ok(Outcome::Subscribed(subscribed)), Some(slot)) => {
                self.note_subscribed(token, slot, &subscribed, now);
            }
            (Ok(_), _) => {
                let said = format!("another result than command {id} asks for");
                self.fail_session(reactor, token, Failure::SessionInvalid, &said, now);
                return false;
            }
        }
        let index = token.index as usize;
        let is_joining = self.terminals[index].phase == Phase::Joining;
        if is_joining && !self.sessions_mut().awaited.contains_key(&token.index) {
            self.note_opened(index, now);
        }
        true
    }

    /// Strikes a command from those that are not answered. False if it was not among them.
    fn take_awaited(&mut self, index: u32, id: u32) -> bool {
        let awaited = &mut self.sessions_mut().awaited;
        let Some(ids) = awaited.get_mut(&index) else {
            return false;
        };
        let Some(at) = ids.iter().position(|&known| known == id) else {
            return false;
        };
        ids.swap_remove(at);
        if ids.is_empty() {
            awaited.remove(&index);
        }
        true
    }

    /// A command is refused. A terminal that cannot have all its channels is no use; one that had them is kept.
    fn handle_refusal<R: Reactor>(
        &mut self,
        reactor: &mut R,
        token: Token,
        id: u32,
        refusal: &Refusal<'_>,
        now: Nanos,
    ) -> bool {
        let failure = match id {
            CONNECT_ID => Failure::ConnectError(code(refusal.code)),
            _ => Failure::SubscribeError(code(refusal.code)),
        };
        let said = match self.channel_of(token, id) {
            Some(channel) => format!("{} {}: {channel}", refusal.code, refusal.message),
            None => format!("{} {}", refusal.code, refusal.message),
        };
        if self.terminals[token.index as usize].phase == Phase::Joining {
            self.fail_session(reactor, token, failure, &said, now);
            return false;
        }
        self.keep_example(failure, &said);
        self.note_failure(failure);
        true
    }

    /// The channel that a command is about.
    fn channel_of(&self, token: Token, id: u32) -> Option<&str> {
        let subscription = self.subscription_at(token.index, slot_of(id)?)?;
        let session = self.plan.session.as_ref()?;
        Some(&session.channels[subscription.channel as usize])
    }

    fn note_connected(&mut self, token: Token, connected: &Connected<'_>) {
        let answers = connected.pong && connected.ping_s > 0;
        self.sessions_mut().set_answers_pings(token.index, answers);
    }

    /// A subscription begins, or begins again where it was.
    fn note_subscribed(
        &mut self,
        token: Token,
        slot: usize,
        subscribed: &Subscribed<'_>,
        now: Nanos,
    ) {
        let plan = Arc::clone(&self.plan);
        let subscription = self.subscription_at(token.index, slot);
        let subscription = subscription.expect("it was subscribed to");
        let session = plan.session.as_ref().expect("the run has sessions");
        let channel = &session.channels[subscription.channel as usize];
        let was_asked = self
            .sessions_mut()
            .place(token.index, slot)
            .epoch()
            .is_named();
        let epoch = if subscribed.recoverable {
            let epochs = &mut self.sessions_mut().epochs;
            epochs.find_or_add(subscription.channel, &subscribed.epoch)
        } else {
            Epoch::UNNAMED
        };
        let has_position = !subscribed.epoch.is_empty();
        if was_asked && subscribed.recovered {
            self.totals.recoveries += 1;
            let place = self.sessions_mut().place_mut(token.index, slot);
            // The client counts on from its own offset, in an epoch that may have got another name.
            *place = Place::at(epoch, place.offset());
            self.totals.recovered += subscribed.publications.len() as u64;
            for publication in &subscribed.publications {
                let heard = self.recognise(channel, publication);
                self.hear_publication(token, heard, now);
            }
            return;
        }
        if was_asked {
            self.totals.recoveries_failed += 1;
            self.forget_place(token.index, slot, subscription);
        }
        // What a server gives without being asked came before the terminal: the newest publication of a cache.
        let given = subscribed.publications.len() as u64;
        self.totals.messages += given;
        self.totals.replayed += given;
        let newest = subscribed.publications.last().map_or(0, |last| last.offset);
        if has_position {
            *self.sessions_mut().place_mut(token.index, slot) =
                Place::at(epoch, subscribed.offset.max(newest));
        }
    }

    /// The server ended a subscription. From a certain code on the client is to subscribe again.
    fn handle_unsubscribed(
        &mut self,
        token: Token,
        channel: &str,
        unsubscribed: &Unsubscribed<'_>,
    ) {
        let failure = Failure::Unsubscribed(code(unsubscribed.code));
        let said = format!("{} {}: {channel}", unsubscribed.code, unsubscribed.reason);
        self.keep_example(failure, &said);
        self.note_failure(failure);
        let session = self.plan.session.as_ref().expect("the run has sessions");
        let found = session.index_of(channel);
        let slot = found.and_then(|channel| self.slot_of_channel(token.index, channel));
        let (Some(channel_index), Some(slot)) = (found, slot) else {
            return;
        };
        if unsubscribed.code < RESUBSCRIBE_FROM {
            return;
        }
        if unsubscribed.code == UnsubscribeCode::StateInvalidated.code()
            && let Some(subscription) = self.subscription_at(token.index, slot)
        {
            self.forget_place(token.index, slot, subscription);
        }
        let id = subscribe_id(slot);
        let sessions = self.sessions_mut();
        let awaited = sessions.awaited.entry(token.index).or_default();
        // A server that goes on unsubscribing is answered once it has answered.
        if awaited.contains(&id) {
            return;
        }
        awaited.push(id);
        let recovery = sessions.recovery(token.index, slot, channel_index);
        let message = sessions.commands(|writer| writer.subscribe(id, channel, recovery, false));
        self.send_commands(token, &message);
    }
}
