//! What the application wants done to connections, and whether it was.

use super::client::Client;
use super::facts::Facts;
use super::rules::{ROOMS, TOKEN_IDS, USERS};
use super::tokens::user_name;
use crate::ledger::Replies;
use crate::verdict::TICK_NS;
use myriad_reactor::sim::Prng;
use myriad_shard::{
    ApplicationClose, ClientId, ConnectionQuestion, Deed, Described, InquiryAnswer, Mesh,
    Refreshed, RequestId, RevokedTokens, ServerSubscribe, SubscribeGrant, Users, Whose,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Shards that a node may have, and more.
const SHARDS_MAX: u64 = 16;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Disconnect,
    EndRevoked(u64),
    Unsubscribe(Option<usize>),
    Subscribe(usize),
    /// The connection goes on for so many seconds; 0 for ever.
    Refresh(u32),
    Expire,
    Describe,
}

/// A client that an order is for, and what it had been told by then.
#[derive(Clone, Copy, Debug)]
struct Target {
    number: usize,
    refreshes: usize,
    unsubscribes: usize,
}

/// An order that was given.
#[derive(Debug)]
pub(crate) struct Issued {
    number: usize,
    pub(crate) wanted: Wanted,
    whose: Whose,
    /// When it was given.
    pub(crate) at: u64,
    /// When all shards had answered that it is carried out.
    answered_at: Option<u64>,
    /// Who had connected by then.
    targets: Vec<Target>,
    /// Answers that are missing.
    missing: usize,
    done: u64,
    failed: u64,
    found: Vec<Described>,
    is_checked: bool,
}

impl Issued {
    /// The code with which it ends connections.
    pub(crate) fn code(&self) -> u16 {
        4_600 + u16::try_from(self.number % 300).expect("small")
    }

    /// Whether it may be for a client. Nobody knows of one that has not been told who it is.
    pub(crate) fn may_be_for(&self, client: &Client) -> bool {
        client.name.is_none() || self.is_for(client)
    }

    /// Whether all shards have answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.missing == 0
    }

    /// Whether a shard may have come to it at some time since. An order waits until the shard turns, and a turn reads what clients have
    /// sent before it takes in orders.
    pub(crate) fn may_be_done_since(&self, at: u64) -> bool {
        self.answered_at.is_none_or(|answered_at| answered_at >= at)
    }

    /// Whether it may have ended a client's connection as expired by now.
    pub(crate) fn may_expire(&self, client: &Client, facts: &Facts) -> bool {
        let is_over = match self.wanted {
            Wanted::Expire => true,
            Wanted::Refresh(seconds) => {
                let due = facts.due(self.at, seconds, false);
                due.is_some_and(|due| due.from <= facts.now + TICK_NS)
            }
            _ => false,
        };
        is_over && self.may_be_for(client)
    }

    fn is_for(&self, client: &Client) -> bool {
        let id = client.name.as_deref().and_then(ClientId::parse);
        let Some(id) = id else { return false };
        let user = user_name(client.user);
        let is_users = match &self.whose.users {
            Users::One(wanted) => user.as_ref() == Some(wanted),
            Users::Anonymous => user.is_none(),
            Users::All => true,
        };
        let is_one = self.whose.client.is_none_or(|one| one == id);
        let is_revoked = match self.wanted {
            Wanted::EndRevoked(token) => client.token_id == token,
            _ => true,
        };
        is_users && is_one && is_revoked && !self.whose.kept.contains(&id)
    }
}

fn deed_of(wanted: Wanted, code: u16) -> Deed {
    match wanted {
        Wanted::Disconnect => {
            Deed::Disconnect(ApplicationClose::new(code.into(), "go").expect("a close"))
        }
        Wanted::EndRevoked(id) => Deed::EndRevoked(RevokedTokens::Id(id.to_string().into())),
        Wanted::Unsubscribe(room) => Deed::Unsubscribe(room.map(|room| ROOMS[room].into())),
        Wanted::Subscribe(room) => Deed::Subscribe(Box::new(ServerSubscribe {
            channel: ROOMS[room].into(),
            grant: SubscribeGrant::default(),
            since: None,
        })),
        Wanted::Refresh(seconds) => Deed::Refresh {
            refreshed: Refreshed::For((seconds > 0).then(|| Duration::from_secs(seconds.into()))),
            info: None,
        },
        Wanted::Expire => Deed::Refresh {
            refreshed: Refreshed::Expired,
            info: None,
        },
        Wanted::Describe => Deed::Describe(ConnectionQuestion {
            max: 1_000,
            ..ConnectionQuestion::default()
        }),
    }
}

/// Something that the application may want done.
pub(crate) fn draw(clients: &[Client], facts: &Facts, prng: &mut Prng) -> (Whose, Wanted) {
    let room = prng.below(ROOMS.len());
    let wanted = match prng.below(12) {
        0 | 1 => Wanted::Disconnect,
        2 => Wanted::EndRevoked(prng.between(1, TOKEN_IDS - 1) as u64),
        3 | 4 => Wanted::Unsubscribe(Some(room)),
        5 => Wanted::Unsubscribe(None),
        6 | 7 => Wanted::Subscribe(room),
        8 | 9 if !facts.fixed.refresh_proxy => Wanted::Refresh(*prng.pick(&[0, 1, 2])),
        10 => Wanted::Expire,
        _ => Wanted::Describe,
    };
    let names = clients.iter().filter_map(|client| client.name.as_deref());
    let ids: Vec<ClientId> = names.filter_map(ClientId::parse).collect();
    let mut whose = Whose::default();
    if matches!(wanted, Wanted::EndRevoked(_)) {
        return (whose, wanted);
    }
    if prng.one_in(4) && !ids.is_empty() {
        whose.client = Some(*prng.pick(&ids));
    } else {
        let user = user_name(prng.below(USERS + 1));
        whose.users = user.map_or(Users::Anonymous, Users::One);
    }
    if prng.one_in(4) && !ids.is_empty() {
        whose.kept = vec![*prng.pick(&ids)];
    }
    (whose, wanted)
}

impl Facts {
    /// Gives an order. Its number, if there was room for it.
    pub(crate) fn order(
        &mut self,
        mesh: &Mesh,
        clients: &[Client],
        whose: Whose,
        wanted: Wanted,
    ) -> Option<usize> {
        let number = self.orders.len();
        if let Wanted::EndRevoked(id) = wanted {
            self.revoked.add(id);
            self.revoked_at.entry(id).or_insert(self.now);
        }
        let shards = mesh.shards_of(&whose);
        let mut issued = Issued {
            number,
            wanted,
            whose,
            at: self.now,
            answered_at: shards.is_empty().then_some(self.now),
            targets: Vec::new(),
            missing: shards.len(),
            done: 0,
            failed: 0,
            found: Vec::new(),
            is_checked: false,
        };
        let order = mesh.new_order(issued.whose.clone(), deed_of(wanted, issued.code()));
        let Ok(order) = order else {
            assert!(self.is_draining, "there is room for orders");
            return None;
        };
        let room = match wanted {
            Wanted::Unsubscribe(room) => room,
            _ => None,
        };
        let connected = clients.iter().filter(|client| client.is_connected());
        let targets = connected.filter(|client| issued.is_for(client));
        issued.targets = targets
            .map(|client| Target {
                number: client.number,
                refreshes: client.refreshes,
                unsubscribes: room.map_or(0, |room| client.unsubscribes_of(room)),
            })
            .collect();
        self.orders.push(issued);
        for shard in shards {
            let id = number as u64 * SHARDS_MAX + shard as u64;
            mesh.order(shard, RequestId(id), order.clone());
        }
        Some(number)
    }

    /// Whether the application may be subscribing a client to a room, which is not told yet.
    pub(crate) fn subscribes(&self, room: usize, client: &Client) -> bool {
        let mut orders = self.orders.iter();
        orders.any(|order| order.wanted == Wanted::Subscribe(room) && order.may_be_for(client))
    }

    /// Takes what shards have answered.
    pub(crate) fn take_ordered(&mut self, replies: &Replies) {
        for (id, answer) in replies.take_answers() {
            let number = usize::try_from(id.0 / SHARDS_MAX).expect("an index");
            let order = &mut self.orders[number];
            assert!(order.missing > 0, "one answer of each shard: {order:?}");
            order.missing -= 1;
            if order.missing == 0 {
                order.answered_at = Some(self.now);
            }
            match answer {
                Some(InquiryAnswer::Ordered(done)) => {
                    order.done += done.done;
                    order.failed += done.failed;
                    order.found.extend(done.connections);
                }
                None => assert!(self.is_draining, "a shard has not answered: {order:?}"),
                Some(other) => panic!("an order is answered {other:?}"),
            }
        }
    }

    /// All orders are carried out, for everybody whom they were for.
    pub(crate) fn check_orders(&mut self, clients: &[Client]) {
        for order in self.orders.iter_mut().filter(|order| !order.is_checked) {
            order.is_checked = true;
            assert_eq!(order.missing, 0, "it is not carried out: {order:?}");
            for target in &order.targets {
                let client = clients.iter().find(|client| client.number == target.number);
                let Some(client) = client.filter(|client| client.is_connected()) else {
                    continue;
                };
                let is_done = match order.wanted {
                    Wanted::Disconnect | Wanted::Expire => false,
                    Wanted::EndRevoked(id) => client.token_id != id,
                    Wanted::Unsubscribe(Some(room)) => {
                        client.unsubscribes_of(room) > target.unsubscribes
                    }
                    Wanted::Refresh(_) => client.refreshes > target.refreshes,
                    Wanted::Unsubscribe(None) | Wanted::Subscribe(_) | Wanted::Describe => true,
                };
                assert!(is_done, "client {} has escaped {order:?}", client.number);
            }
            let told = self.closes.get(&order.code()).copied().unwrap_or(0);
            assert!(told <= order.done, "{told} were told of {order:?}");
        }
        // Whoever was connecting with a token that was revoked meanwhile has not come in.
        for client in clients.iter().filter(|client| client.is_connected()) {
            let is_revoked = client.token_id > 0 && self.revoked.contains(client.token_id);
            assert!(!is_revoked, "a revoked token counts: {client:?}");
            for (room, visit) in &client.visits {
                let is_revoked = visit.token_id > 0 && self.revoked.contains(visit.token_id);
                assert!(!is_revoked, "{}: a revoked token counts", ROOMS[*room]);
            }
        }
        self.refreshed_since = self.now;
    }

    /// What was found is who is there.
    pub(crate) fn check_described(&mut self, number: usize, clients: &[Client]) {
        let order = &mut self.orders[number];
        assert_eq!((order.missing, order.failed), (0, 0), "{order:?}");
        let found = std::mem::take(&mut order.found);
        assert_eq!(order.done, found.len() as u64);
        let found: BTreeMap<String, Vec<String>> = found
            .into_iter()
            .map(|found| {
                let channels = found.channels.iter().map(|channel| channel.to_string());
                let mut channels: Vec<String> = channels
                    .filter(|channel| !channel.starts_with("d:#"))
                    .collect();
                channels.sort_unstable();
                (found.client.to_string(), channels)
            })
            .collect();
        let order = &self.orders[number];
        let there = clients
            .iter()
            .filter(|client| client.is_connected() && order.is_for(client));
        let expected: BTreeMap<String, Vec<String>> = there
            .map(|client| {
                let rooms = client.visits.keys().map(|&room| ROOMS[room].to_owned());
                let mut channels: Vec<String> = rooms.collect();
                channels.sort_unstable();
                (client.name.clone().unwrap_or_default(), channels)
            })
            .collect();
        assert_eq!(found, expected, "{:?}", order.whose);
    }
}
