//! What a client may be told, and that it is told it once.

use super::client::{Asked, Client, Visit, What};
use super::desk::{Desk, Said};
use super::facts::{Due, Facts};
use super::rules::ROOMS;
use super::tokens::{Fault, Token};
use crate::decoder::{Item, close_of};
use crate::secured::Net;
use crate::verdict::TICK_NS;
use myriad_reactor::sim::PeerEnd;
use myriad_shard::TokenFault;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn room_of(channel: &Value) -> Option<usize> {
    let room = ROOMS.iter().position(|room| channel == room);
    // Its user's own channel.
    let is_personal = || channel.as_str().is_some_and(|name| name.starts_with("d:#"));
    assert!(room.is_some() || is_personal(), "of {channel}");
    room
}

/// Seconds until something expires; 0 for never.
fn ttl_of(result: &Value) -> u32 {
    let ttl = result["ttl"].as_u64().unwrap_or(0);
    assert_eq!(result["expires"] == true, ttl > 0, "{result}");
    u32::try_from(ttl).expect("some seconds")
}

impl Client {
    /// Takes what has come, and checks it. True when something came.
    pub(crate) fn receive(&mut self, net: &Net, facts: &mut Facts, desk: &Desk) -> bool {
        if self.is_broken {
            return false;
        }
        let mut bytes = net.read(self.id);
        if self.end.is_none() {
            self.end = net.end(self.id);
            bytes.extend(net.read(self.id));
        }
        self.decoder.push(&bytes);
        while let Some(item) = self.decoder.next() {
            match item {
                Item::Upgraded { .. } => self.is_upgraded = true,
                Item::Response { status, .. } => self.status = Some(status),
                Item::Frame { opcode: 1, payload } => {
                    let text = str::from_utf8(&payload).expect("text");
                    for line in text.lines() {
                        let told = serde_json::from_str(line).expect("JSON");
                        self.take(&told, facts, desk);
                    }
                }
                Item::Frame { opcode: 8, payload } => {
                    let code = close_of(&payload).map_or(0, |(code, _)| code);
                    self.close = Some(code);
                    // Who has not been told that it is connected may be ended behind the order, with the answer to its command.
                    if self.name.is_some() {
                        *facts.closes.entry(code).or_default() += 1;
                    }
                }
                Item::Frame { opcode, .. } => panic!("a frame of opcode {opcode}"),
            }
        }
        if self.end.is_some() && !self.has_sent_fin {
            let has_end = self.end != Some(PeerEnd::Fin) || self.close.is_some();
            assert!(has_end || !self.is_upgraded, "ends without a word");
            net.fin(self.id);
            self.has_sent_fin = true;
        }
        !bytes.is_empty()
    }

    fn take(&mut self, told: &Value, facts: &mut Facts, desk: &Desk) {
        assert_eq!(self.close, None, "{told} behind the end");
        if let Some(push) = told.get("push") {
            return self.take_push(push, facts);
        }
        let id = told["id"].as_u64().expect("a reply or a push");
        let id = u32::try_from(id).expect("a number of ours");
        let asked = self.asked.remove(&id).expect("one reply to each command");
        if let Some(error) = told.get("error") {
            return self.take_error(id, &asked, error, facts, desk);
        }
        self.note_taken(&asked);
        self.check_order(id, &asked);
        match asked.what {
            What::Connect => self.take_connected(id, &asked, &told["connect"], facts, desk),
            What::Refresh => {
                let granted = self.granted_by(id, &asked, facts, desk);
                let token = granted.expect("a token");
                assert_eq!(token.user, self.user, "another user's token");
                self.token_id = token.id;
                let ttl = ttl_of(&told["refresh"]);
                assert_eq!(ttl, token.ttl, "{told}");
                self.due = facts.due(asked.at, ttl, false);
                facts.note("access: a client refreshes its connection");
            }
            What::Subscribe(room) => {
                self.take_subscribed(id, &asked, room, &told["subscribe"], facts, desk);
            }
            What::SubRefresh(room) => {
                self.take_sub_refreshed(id, &asked, room, &told["sub_refresh"], facts, desk);
            }
            What::Unsubscribe(room) => drop(self.visits.remove(&room)),
            What::Publish(room, publication) => {
                let granted = self.granted_by(id, &asked, facts, desk);
                // It may have left the room since.
                let was_inside = self.entered.contains(&room);
                let by_rules = facts.may_be(asked.version, |rules| {
                    rules.may_publish(room, was_inside) == Some(true)
                });
                assert!(granted.is_some() || by_rules, "published without a right");
                facts.issues[publication].is_accepted = true;
            }
            What::Rpc => {
                let granted = self.granted_by(id, &asked, facts, desk);
                assert!(granted.is_some(), "nobody has answered");
                assert_eq!(told["rpc"]["data"], id, "another's answer");
            }
        }
    }

    fn note_taken(&mut self, asked: &Asked) {
        if asked.what != What::Connect {
            self.taken[0] += 1;
            self.taken[1] += u64::from(matches!(asked.what, What::Publish(..)));
            self.taken[2] += u64::from(matches!(asked.what, What::Subscribe(_)));
        }
    }

    /// Subscriptions to a room begin and end in the order of the commands.
    fn check_order(&self, id: u32, asked: &Asked) {
        let (What::Subscribe(room) | What::Unsubscribe(room)) = asked.what else {
            return;
        };
        let is_first = |(other, asked): (&u32, &Asked)| {
            *other > id
                || !matches!(asked.what, What::Subscribe(of) | What::Unsubscribe(of) if of == room)
        };
        let is_in_order = self.asked.iter().all(is_first);
        assert!(
            is_in_order,
            "{:?} before an earlier one: {:?}",
            asked, self.asked
        );
    }

    /// What a command that succeeds was granted by a token or the application; none if by the rules alone.
    fn granted_by(&self, id: u32, asked: &Asked, facts: &mut Facts, desk: &Desk) -> Option<Token> {
        if desk.asked.contains_key(&id) {
            let Some(Said::Granted(granted)) = desk.said(id) else {
                panic!("{asked:?} succeeds, and was answered {:?}", desk.said(id));
            };
            facts.note("access: the control plane grants a command");
            return Some((**granted).clone());
        }
        let token = asked.token.clone()?;
        assert!(!token.is_later, "nobody has verified {token:?}");
        assert!(
            facts.may_be_good(&token, asked.at),
            "by a bad token: {asked:?}"
        );
        assert!(facts.may_be(asked.version, |rules| rules.tokens), "no key");
        facts.note("access: a token grants a command");
        Some(token)
    }

    fn take_connected(
        &mut self,
        id: u32,
        asked: &Asked,
        told: &Value,
        facts: &mut Facts,
        desk: &Desk,
    ) {
        assert_eq!(self.name, None, "connected twice");
        let name = told["client"].as_str().expect("an id").to_owned();
        let granted = self.granted_by(id, asked, facts, desk);
        let by_rules = facts.may_be(asked.version, |rules| {
            rules.anonymous && !rules.connect_proxy
        });
        assert!(granted.is_some() || by_rules, "connected without a right");
        let wants_user =
            asked.token.is_some() && !facts.may_be(asked.version, |rules| !rules.wants_user);
        let granted = granted.unwrap_or_default();
        assert!(granted.user > 0 || !wants_user, "it has no user");
        assert!(
            granted.serial == 0 || told["data"] == id,
            "another's answer: {told}"
        );
        let by_server = facts.fixed.refresh_proxy;
        assert_eq!(
            ttl_of(told),
            if by_server { 0 } else { granted.ttl },
            "{told}"
        );
        let due = facts.due(asked.at, granted.ttl, by_server);
        if by_server {
            facts.renew((name.clone(), None), due);
        } else {
            self.due = due;
        }
        self.connected_at = asked.at;
        self.name = Some(name);
        (self.user, self.token_id) = (granted.user, granted.id);
        let no_subs = serde_json::Map::new();
        let subs = told["subs"].as_object().unwrap_or(&no_subs);
        let mut made = Vec::new();
        for (channel, result) in subs {
            let Some(room) = room_of(&channel.as_str().into()) else {
                assert_eq!(*channel, format!("d:#{}", self.user), "its own channel");
                continue;
            };
            made.push(room);
            self.begin_visit(room, asked.at, granted.sub_ttl, result, facts);
            let visit = self.visits.get_mut(&room);
            visit.expect("it has begun").is_server_side = true;
        }
        made.sort_unstable();
        assert_eq!(made, granted.subs, "what was granted is subscribed");
        self.granted = granted.subs;
    }

    fn begin_visit(&mut self, room: usize, at: u64, ttl: u32, told: &Value, facts: &mut Facts) {
        let by_server = facts.refreshes(room);
        assert_eq!(ttl_of(told), if by_server { 0 } else { ttl }, "{told}");
        let due = facts.due(at, ttl, by_server);
        if let Some(name) = self.name.as_ref().filter(|_| by_server) {
            facts.renew((name.clone(), Some(room)), due);
        }
        let visit = Visit {
            since: facts.issues.len(),
            is_server_side: false,
            token_id: 0,
            due: due.filter(|_| !by_server),
            received: BTreeSet::new(),
            last: BTreeMap::new(),
        };
        self.entered.insert(room);
        let before = self.visits.insert(room, visit);
        assert!(before.is_none(), "{}: subscribed twice", ROOMS[room]);
    }

    fn take_subscribed(
        &mut self,
        id: u32,
        asked: &Asked,
        room: usize,
        told: &Value,
        facts: &mut Facts,
        desk: &Desk,
    ) {
        let granted = self.granted_by(id, asked, facts, desk);
        let by_rules = facts.may_be(asked.version, |rules| {
            rules.may_subscribe(room, self.user) == Some(true)
        });
        assert!(
            granted.is_some() || by_rules,
            "{}: subscribed without a right",
            ROOMS[room]
        );
        assert!(granted.is_none() || told["data"] == id, "another's: {told}");
        if let (Some(granted), Some(_)) = (&granted, &asked.token) {
            assert_eq!((granted.room, granted.user), (room, self.user), "another's");
        }
        let (ttl, token_id) = granted.map_or((0, 0), |granted| (granted.ttl, granted.id));
        self.begin_visit(room, asked.at, ttl, told, facts);
        let visit = self.visits.get_mut(&room);
        visit.expect("it has begun").token_id = token_id;
    }

    fn take_sub_refreshed(
        &mut self,
        id: u32,
        asked: &Asked,
        room: usize,
        told: &Value,
        facts: &mut Facts,
        desk: &Desk,
    ) {
        let told = ttl_of(told);
        let shown = asked.token.as_ref().and_then(|token| token.fault);
        let is_expired = match desk.said(id) {
            Some(said) => *said == Said::Fault(TokenFault::Expired),
            None => shown == Some(Fault::Expired),
        };
        let may_have = self.may_have(id, room, facts);
        assert!(may_have, "{}: there is nothing to refresh", ROOMS[room]);
        if is_expired {
            assert_eq!(told, 1, "it may try again");
            return facts.note("access: an expired token leaves a subscription its time");
        }
        let granted = self.granted_by(id, asked, facts, desk).expect("a token");
        assert_eq!(told, granted.ttl);
        let due = facts.due(asked.at, told, false);
        if let Some(visit) = self.visits.get_mut(&room) {
            visit.due = due;
            visit.token_id = granted.id;
        }
        facts.note("access: a client refreshes a subscription");
    }

    fn take_push(&mut self, push: &Value, facts: &mut Facts) {
        if let Some(refresh) = push.get("refresh") {
            self.refreshes += 1;
            self.due = facts.due(facts.refreshed_since, ttl_of(refresh), false);
            return;
        }
        let Some(room) = room_of(&push["channel"]) else {
            return;
        };
        if let Some(publication) = push.get("pub") {
            return self.take_publication(room, &publication["data"], facts);
        }
        if push.get("subscribe").is_some() {
            let none = Value::Null;
            self.begin_visit(room, facts.now, 0, &none, facts);
            let visit = self.visits.get_mut(&room);
            visit.expect("it has begun").is_server_side = true;
            return;
        }
        let code = push["unsubscribe"]["code"].as_u64();
        let visit = self.visits.remove(&room);
        match code {
            Some(2000) => {
                *self.unsubscribes.entry(room).or_default() += 1;
                let is_revoked = |visit: Visit| facts.revoked.contains(visit.token_id);
                if visit.is_some_and(is_revoked) {
                    facts.note("access: a revoked token ends a subscription");
                }
            }
            Some(2501) => {
                let visit = visit.expect("it had one");
                assert!(!visit.is_server_side, "that ends the connection");
                let may_end = self.may_have_expired(room, visit.due, facts);
                assert!(may_end, "{}: expired too early", ROOMS[room]);
                facts.note("access: a subscription expires");
            }
            _ => panic!("a push of {push}"),
        }
    }

    /// Whether a subscription may be over by now.
    pub(crate) fn may_have_expired(&self, room: usize, due: Option<Due>, facts: &Facts) -> bool {
        let name = self.name.clone().unwrap_or_default();
        let renewal = facts.renewals.get(&(name, Some(room)));
        due.is_some_and(|due| due.from <= facts.now + TICK_NS)
            || renewal.is_some_and(|renewal| renewal.is_expired)
    }

    /// Nobody gets a publication without a subscription, twice, or before an earlier one of the same publisher.
    fn take_publication(&mut self, room: usize, data: &Value, facts: &Facts) {
        let id = data["n"].as_u64().expect("the number of a publication");
        let id = usize::try_from(id).expect("an index");
        let visit = self.visits.get_mut(&room);
        let visit = visit.unwrap_or_else(|| {
            let (number, name) = (self.number, &self.name);
            panic!(
                "client {number} {name:?}: {id} of {} without a subscription",
                ROOMS[room]
            )
        });
        let issue = facts.issues[id];
        assert_eq!(issue.room, room, "of another channel");
        assert!(visit.received.insert(id), "{}: {id} twice", ROOMS[room]);
        let last = visit.last.insert(issue.publisher, id);
        assert!(
            last.is_none_or(|last| last < id),
            "{}: {id} after {last:?}",
            ROOMS[room]
        );
    }
}
