//! What a client with a session is told, and whether it may be.

use super::{Asked, Client, Since};
use crate::channels::{Facts, ROOMS};
use crate::members::ledger::{Glimpse, epoch_named};
use crate::members::socket::{Event, Way};
use crate::members::subscription::{Subscription, check_recovery};
use crate::secured::Net;
use myriad_wire::centrifuge::EventId;
use myriad_wire::centrifuge::client::{
    CommandWriter, Connected, Failure, History, Outcome, ServerEvent, ServerMessage,
    ServerMessages, Subscribed,
};
use std::collections::HashMap;

impl Client {
    /// Reads what has come; true if anything did.
    pub(crate) fn receive(&mut self, net: &Net, facts: &mut Facts) -> bool {
        let Some(socket) = &mut self.socket else {
            return false;
        };
        let mut events = Vec::new();
        let mut is_moving = socket.receive(net, &mut events);
        let end = socket.end(net);
        // The end may have come with more bytes.
        is_moving |= socket.receive(net, &mut events);
        for event in events {
            match event {
                Event::Message(message) => {
                    self.read(net, facts, &message);
                    if self.socket.is_none() {
                        return true;
                    }
                }
                Event::Place(id) => self.check_place(&id, facts),
                Event::Close(code) => {
                    self.check_close(code, facts);
                    self.leave(net, false);
                    return true;
                }
            }
        }
        if end.is_some() && self.socket.is_some() {
            facts.note("sessions: a connection ends without a close frame");
            self.leave(net, false);
            return true;
        }
        is_moving
    }

    /// The id of an event says where its channel stands. Behind a publication that is its place. At the beginning a stream may have
    /// ended after it.
    fn check_place(&self, id: &str, facts: &mut Facts) {
        let id = EventId::parse(id).expect("an id that was made there");
        let room = ROOMS.iter().position(|room| room.name == id.channel);
        let room = room.expect("one of ours");
        let subscription = self.subscriptions.get(&room);
        let subscription = subscription.expect("one that it was told of");
        let (epoch, last) = (subscription.epoch, subscription.last);
        if self.has_just_got {
            // Who subscribed before the channel had a history counts no places.
            let is_right = (id.position.epoch, id.position.offset) == (epoch, last);
            assert!(is_right || facts.has_lost_history(room), "{id:?} at {last}");
            facts.note("sessions: a publication says its place as the id of its event");
        } else {
            assert_eq!(id.position.epoch, epoch);
            assert!(id.position.offset >= last, "{id:?} before {last}");
            facts.note("sessions: a reader of events is told where it stands");
        }
    }

    fn check_close(&self, code: u16, facts: &mut Facts) {
        let what = match code {
            1007 | 3501 if self.has_sent_nonsense => "sessions: nonsense ends with 1007 or 3501",
            3501 if facts.has_lost_namespaces() => "sessions: a namespace has gone",
            3010 if facts.is_tight && self.has_server_side => {
                "sessions: who missed something has to connect anew"
            }
            // Its subscriptions are made before it is told that it is connected, and their publications wait in a stranger's room.
            3010 if facts.are_strangers_tight && self.has_server_side && !self.is_connected => {
                "sessions: a client that connects misses something"
            }
            3008 if facts.is_tight => "sessions: a slow client ends with 3008",
            503 | 1013 if facts.is_tight => "sessions: there is no memory for a client",
            503 | 1013 if facts.are_strangers_tight && !self.is_connected => {
                "sessions: a client that has not connected makes room"
            }
            503 | 3001 if facts.is_draining => "sessions: told that the server shuts down",
            3012 if self.was_stalled || facts.may_be_silent => {
                "sessions: a silent client ends with 3012"
            }
            // Time may leap while a connect command is under way.
            3502 | 408 => "sessions: a client is too late",
            other => panic!("client {} is closed with {other}", self.id),
        };
        facts.note(what);
    }

    fn read(&mut self, net: &Net, facts: &mut Facts, message: &[u8]) {
        let mut publications = 0;
        // A push without a reply around it, as clients without commands get it.
        let wrapped = [b"{\"push\":", message, b"}"].concat();
        let message = if self.way.is_unidirectional() {
            &wrapped
        } else {
            message
        };
        for message in ServerMessages::new(self.encoding, message) {
            match message.expect("the server speaks the protocol") {
                ServerMessage::Ping => {
                    facts.note("sessions: a ping is answered");
                    let mut pong = Vec::new();
                    CommandWriter::new(self.encoding, &mut pong).pong();
                    self.send(net, &pong, usize::MAX);
                }
                ServerMessage::Reply { id, outcome } => {
                    let asked = self.asked.remove(&id);
                    let asked = asked.expect("each command is answered once");
                    match outcome {
                        Ok(outcome) => self.take_outcome((id, asked), outcome, facts),
                        Err(failure) => self.take_failure(&asked, &failure, facts),
                    }
                }
                ServerMessage::Push {
                    event: ServerEvent::Disconnected(end),
                    ..
                } => {
                    assert_ne!(self.way, Way::WebSocket, "it has close frames");
                    let code = u16::try_from(end.code).expect("a code");
                    self.check_close(code, facts);
                    return self.leave(net, false);
                }
                ServerMessage::Push {
                    event: ServerEvent::Connected(connected),
                    ..
                } => {
                    assert!(self.way.is_unidirectional(), "it is a reply to others");
                    let asked = self.asked.remove(&0).expect("it connects once");
                    self.take_outcome((0, asked), Outcome::Connected(connected), facts);
                    facts.note("sessions: a client without commands is told of its subscriptions");
                }
                // A ping.
                ServerMessage::Push {
                    event: ServerEvent::Other,
                    ..
                } if self.way.is_unidirectional() => {}
                ServerMessage::Push { channel, event, .. } => {
                    let room = ROOMS.iter().position(|room| room.name == channel);
                    let room = room.expect("one of ours");
                    publications += usize::from(matches!(event, ServerEvent::Publication(_)));
                    self.take_push(room, event, facts);
                }
            }
        }
        self.has_just_got = publications > 0;
        if publications > 1 {
            facts.note("sessions: a batch comes as one frame");
        }
    }

    fn take_failure(&self, asked: &Asked, failure: &Failure<'_>, facts: &mut Facts) {
        let may_be_closed = |number: &usize| {
            let room = facts.ledger.attempts[*number].room;
            facts.streams[room].may_be_closed
        };
        let may_be_unknown = match asked {
            Asked::Subscribe { room, .. } | Asked::History(room) | Asked::Presence(room) => {
                facts.may_be_unknown(*room)
            }
            Asked::Publish(number) => facts.may_be_unknown(facts.ledger.attempts[*number].room),
            Asked::Connect(_) | Asked::Unsubscribe(_) => false,
        };
        facts.note(match (asked, failure.code) {
            (Asked::History(_), 106) => "sessions: a page of history has no room",
            (Asked::Presence(_), 106) => "sessions: a member list has no room",
            // A filter takes bytes of the process (docs/protocol.md). A subscription without one takes none.
            (Asked::Subscribe { tag: Some(_), .. }, 106) if facts.is_short_of_memory => {
                "sessions: a filter has no room"
            }
            (Asked::Publish(_), 111) if !self.has_quiet => "sessions: a channel is crowded",
            (Asked::Publish(number), 108) if may_be_closed(number) => {
                "sessions: a publication to a closed stream is refused"
            }
            (_, 100) if facts.is_draining => "sessions: told that the server shuts down",
            (Asked::History(room), 108) if facts.has_lost_history(*room) => {
                "sessions: a namespace keeps no history"
            }
            (_, 102 | 103 | 108) if may_be_unknown => "sessions: a namespace has gone",
            _ => panic!("{asked:?} fails: {failure:?}"),
        });
    }

    fn take_outcome(&mut self, (id, asked): (u32, Asked), outcome: Outcome<'_>, facts: &mut Facts) {
        match (asked, outcome) {
            (Asked::Connect(wanted), Outcome::Connected(connected)) => {
                self.take_connected(id, wanted, connected, facts);
            }
            (
                Asked::Subscribe {
                    room,
                    since,
                    delta,
                    tag,
                },
                Outcome::Subscribed(subscribed),
            ) => {
                let rules = facts.rules[room];
                let has_deltas = subscribed.positioned && delta && !rules.may_drop;
                assert_eq!(subscribed.delta, has_deltas);
                self.take_subscribed(id, room, since, tag, &subscribed, facts);
            }
            (Asked::Unsubscribe(room), Outcome::Unsubscribed) => {
                let rules = facts.rules[room];
                let is_exact = !rules.may_drop && !rules.excludes_sender && !rules.is_batched;
                if let Some(subscription) = self.subscriptions.remove(&room)
                    && is_exact
                    && subscription.check_has_own(room, id, &facts.ledger)
                {
                    facts.note("sessions: a client publishes and unsubscribes");
                }
            }
            (Asked::Publish(number), Outcome::Published) => {
                facts.ledger.attempts[number].is_acknowledged = true;
            }
            (Asked::History(room), Outcome::History(history)) => {
                self.note_glimpse(id, room, &history.epoch, history.offset, facts);
                check_history(room, &history, facts);
            }
            (Asked::Presence(room), Outcome::Presence(presence)) => {
                let names = presence.presence.into_keys().map(|name| name.into_owned());
                self.presence.insert(room, names.collect());
            }
            (asked, outcome) => panic!("{outcome:?} is no answer to {asked:?}"),
        }
    }

    fn take_connected(
        &mut self,
        command: u32,
        mut wanted: HashMap<usize, Option<Since>>,
        connected: Connected<'_>,
        facts: &mut Facts,
    ) {
        let has_session = self.way.is_emulated() || self.way.is_unidirectional();
        assert_eq!(connected.session.is_empty(), !has_session);
        let names = (connected.node.into_owned(), connected.session.into_owned());
        self.address = Some(names).filter(|_| self.way.is_emulated());
        self.name = connected.client.into_owned();
        self.is_connected = true;
        for (channel, subscribed) in &connected.subs {
            let room = ROOMS.iter().position(|room| room.name == *channel);
            let room = room.expect("one of ours");
            let since = wanted.remove(&room).expect("one that it asked for");
            assert!(!subscribed.delta, "it did not ask for deltas");
            self.take_subscribed(command, room, since, None, subscribed, facts);
            facts.note("sessions: a subscription comes with the connection");
        }
        let mut socket = self.socket.iter();
        if socket.any(|socket| socket.last_event_id.is_some()) {
            facts.note("sessions: a reader of events goes on from the id of an event");
        }
        let lacks = wanted.keys().find(|room| !facts.may_be_unknown(**room));
        assert_eq!(lacks, None, "a subscription that it had");
    }

    fn take_subscribed(
        &mut self,
        command: u32,
        room: usize,
        since: Option<Since>,
        tag: Option<&'static str>,
        subscribed: &Subscribed<'_>,
        facts: &mut Facts,
    ) {
        let rules = facts.rules[room];
        let has_places = subscribed.positioned;
        let may_differ = facts.has_lost_history(room);
        assert!(has_places == rules.has_history || may_differ);
        assert_eq!(subscribed.recoverable, has_places);
        let by = ((self.id, self.connection), command);
        let mut subscription = Subscription::new(by, subscribed, tag, facts.ledger.tick());
        // Where publications are delivered later than they are answered, a shard may count from an earlier place.
        if has_places && !subscribed.recovered && !rules.is_batched {
            self.note_glimpse(command, room, &subscribed.epoch, subscribed.offset, facts);
        }
        let is_unasked = rules.is_cached && rules.recovers_unasked && has_places;
        let is_recovering = since.is_some() || is_unasked;
        assert_eq!(subscribed.was_recovering, is_recovering, "{since:?}");
        let since = since.unwrap_or_default();
        if !is_recovering || !has_places {
            assert!(!subscribed.recovered && subscribed.publications.is_empty());
        } else if rules.is_cached {
            subscription.check_newest(room, subscribed, &since, facts);
        } else {
            check_recovery(room, subscribed, &since, facts);
        }
        for publication in &subscribed.publications {
            let before = subscription.last;
            subscription.take(room, publication, self.encoding, facts);
            if !rules.is_cached {
                // Its own are among them.
                let left_out = subscription.left_out_after(before, room, None);
                assert!(left_out.is_empty() || tag.is_some(), "nothing is missing");
                self.left_out.extend(left_out);
            }
        }
        if has_places {
            self.positions.insert(room, subscription.position());
        }
        let before = self.subscriptions.insert(room, subscription);
        assert!(before.is_none(), "subscribed once");
    }

    /// The answer to a command says how far a channel has come.
    fn note_glimpse(&self, command: u32, room: usize, epoch: &str, offset: u64, facts: &mut Facts) {
        facts.ledger.glimpses.push(Glimpse {
            room,
            epoch: epoch_named(epoch),
            offset,
            client: (self.id, self.connection),
            command,
        });
    }

    fn take_push(&mut self, room: usize, event: ServerEvent<'_>, facts: &mut Facts) {
        let subscription = self.subscriptions.get_mut(&room);
        let subscription = subscription.expect("nothing comes before the answer, or after the end");
        match event {
            ServerEvent::Publication(publication) => {
                let before = subscription.last;
                let number = subscription.take(room, &publication, self.encoding, facts);
                let own = Some((self.id, self.connection));
                let is_own = facts.ledger.attempts[number].publisher == own;
                let rules = facts.rules[room];
                assert!(!(is_own && rules.excludes_sender), "its own are left out");
                if publication.offset == 0 || !subscription.is_positioned() {
                    return;
                }
                assert!(publication.offset > before, "in order");
                if !rules.may_drop && !facts.has_lost_history(room) {
                    let own = own.filter(|_| rules.excludes_sender);
                    let left_out = subscription.left_out_after(before, room, own);
                    let has_ended = facts.may_have_ended(room);
                    let may_be = rules.excludes_sender || subscription.tag.is_some() || has_ended;
                    assert!(left_out.is_empty() || may_be, "nothing is missing");
                    if !left_out.is_empty() {
                        facts.note(if has_ended {
                            "sessions: an offset is of no publication"
                        } else {
                            "sessions: publications are left out"
                        });
                    }
                    self.left_out.extend(left_out);
                }
                self.positions.insert(room, subscription.position());
            }
            ServerEvent::Join(info) => {
                let known = subscription.members.insert(info.client.into_owned(), true);
                assert_ne!(known, Some(true), "nobody joins twice");
                facts.note("sessions: a join is told");
            }
            ServerEvent::Leave(info) => {
                let known = subscription.members.insert(info.client.into_owned(), false);
                assert_ne!(known, Some(false), "nobody leaves twice");
                facts.note("sessions: a leave is told");
            }
            ServerEvent::Unsubscribed(unsubscribed) => {
                assert_eq!(unsubscribed.code, 2500);
                let mut asked = self.asked.values();
                let is_leaving =
                    asked.any(|asked| matches!(asked, Asked::Unsubscribe(of) if *of == room));
                assert!(self.is_idle_in(room) || is_leaving);
                self.subscriptions.remove(&room);
                facts.note("sessions: a subscription ends in a gap");
            }
            other => panic!("{other:?} is not sent"),
        }
    }
}

fn check_history(room: usize, history: &History<'_>, facts: &mut Facts) {
    let mut last = None;
    for publication in &history.publications {
        let number = facts.ledger.number_of(publication.data.as_bytes());
        let epoch = epoch_named(&history.epoch);
        facts.ledger.note(room, epoch, publication.offset, number);
        assert!(publication.offset <= history.offset);
        let has_hole = last.is_some_and(|last| publication.offset != last + 1);
        assert!(!has_hole || facts.has_lost_history(room));
        last = Some(publication.offset);
    }
}
