//! Quiet moments: nothing is under way and nothing waits, so all must agree.

use super::client::Client;
use super::orders::Wanted;
use super::rules::{ROOMS, USERS};
use super::scenario::Scenario;
use super::tokens::{Token, user_name};
use crate::node::Node;
use crate::verdict::TICK_NS;
use myriad_shard::{Users, Whose};

/// What may come late: some ticks.
const SLACK_NS: u64 = 4 * TICK_NS;

impl Scenario {
    /// Everybody reads all there is, and nothing waits; then all agree.
    pub(super) fn check_quiet(&mut self) {
        for client in &mut self.clients {
            self.world.net.resume(client.id);
            client.is_stalled = false;
        }
        self.settle();
        self.desk.holds = false;
        self.desk
            .clear(&self.world.mesh, self.world.now(), &mut self.world.prng);
        // Longer than the deadline of what it has dropped, also of some that wait for each other.
        let timeout = self.facts.fixed.ask_timeout;
        self.walk(2 * timeout);
        let is_waiting = |client: &Client| client.is_connected() && !client.asked.is_empty();
        for _ in 0..40 {
            if self.clients.iter().any(is_waiting) {
                self.walk(timeout);
            }
        }
        assert_eq!(self.world.mesh.publication_bytes(), 0, "all is delivered");
        for client in &self.clients {
            self.check_client(client);
        }
        self.check_users();
        self.facts.check_orders(&self.clients);
        self.check_described();
        self.check_room_for_one_more();
        self.check_room_at_an_address();
        self.desk.holds = true;
        self.world.work.quiets += 1;
        self.facts.note("access: a quiet moment");
        self.world.log(format_args!("quiet"));
    }

    /// It has got everything, and nothing of it is overdue.
    pub(super) fn check_client(&self, client: &Client) {
        if !client.is_connected() {
            return;
        }
        let (number, now) = (client.number, self.facts.now);
        assert!(
            client.asked.is_empty(),
            "client {number} waits: {:?}",
            client.asked
        );
        let is_over = |due: &super::facts::Due| due.to.is_some_and(|to| to + SLACK_NS < now);
        let is_overdue = client.due.as_ref().is_some_and(is_over);
        assert!(
            !is_overdue,
            "client {number} has not expired: {:?}",
            client.due
        );
        assert!(
            !self.facts.revoked.contains(client.token_id),
            "client {number} is revoked"
        );
        let limits = self
            .facts
            .versions
            .iter()
            .map(|rules| rules.subscriptions_max);
        let most = limits.max().unwrap_or_default() as usize;
        assert!(
            client.visits.len() <= most,
            "client {number}: {:?}",
            client.visits
        );
        let name = client.name.clone().unwrap_or_default();
        let renewal = |room| self.facts.renewals.get(&(name.clone(), room));
        let is_forgotten = |room| {
            let due = renewal(room).and_then(|renewal| renewal.due);
            due.as_ref().is_some_and(is_over) && !self.facts.is_tight
        };
        assert!(
            !is_forgotten(None),
            "client {number}: nobody is asked about it"
        );
        for (&room, visit) in &client.visits {
            let is_overdue = visit.due.as_ref().is_some_and(is_over);
            assert!(!is_overdue, "client {number} {}: {visit:?}", ROOMS[room]);
            assert!(
                !is_forgotten(Some(room)),
                "client {number}: nobody is asked about {room}"
            );
            for (id, issue) in self.facts.issues.iter().enumerate().skip(visit.since) {
                let is_missing =
                    issue.room == room && issue.is_accepted && !visit.received.contains(&id);
                assert!(
                    !is_missing,
                    "client {number} has not got {id} of {}",
                    ROOMS[room]
                );
            }
        }
    }

    pub(super) fn connected_of(&self, user: usize) -> usize {
        let of_user = |client: &&Client| client.is_connected() && client.user == user;
        self.clients.iter().filter(of_user).count()
    }

    /// No user has more connections than it may.
    pub(super) fn check_users(&self) {
        let fixed = self.facts.fixed;
        let most = match fixed.users_max {
            _ if fixed.single_connection => 1,
            0 => usize::MAX,
            limit => limit as usize,
        };
        let users: Vec<usize> = (1..=USERS).map(|user| self.connected_of(user)).collect();
        assert!(users.iter().all(|count| *count <= most), "{users:?}");
    }

    /// The application finds who is there, each user by himself, and all.
    pub(super) fn check_described(&mut self) {
        let users = (0..=USERS).map(|user| user_name(user).map_or(Users::Anonymous, Users::One));
        let whose = users.chain([Users::All]).map(|users| Whose {
            users,
            ..Whose::default()
        });
        let orders: Vec<usize> = whose
            .filter_map(|whose| {
                self.facts
                    .order(&self.world.mesh, &self.clients, whose, Wanted::Describe)
            })
            .collect();
        self.settle();
        for number in orders {
            self.facts.check_described(number, &self.clients);
        }
    }

    /// A user who has fewer connections than the limit gets one more, and a user with as many gets none.
    pub(super) fn check_room_for_one_more(&mut self) {
        let rules = *self.facts.rules();
        let fixed = self.facts.fixed;
        if fixed.users_max == 0
            || fixed.single_connection
            || !rules.tokens
            || fixed.limits_connections()
        {
            return;
        }
        let user = self.world.prng.between(1, USERS);
        let before = self.connected_of(user);
        let number = self.add_client();
        self.settle();
        let serial = self.facts.serial();
        let token = Token {
            serial,
            user,
            ..Token::default()
        };
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.number == number);
        let Some(client) = client.filter(|client| client.is_upgraded) else {
            return;
        };
        client.connect_with(Some(token), &mut self.facts);
        self.settle();
        let client = self.clients.iter().find(|client| client.number == number);
        let has_connected = client.is_some_and(Client::is_connected);
        assert_eq!(
            has_connected,
            before < fixed.users_max as usize,
            "one more than {before}"
        );
        self.facts
            .note("access: a user has as many connections as it may, and no more");
    }

    /// As [`Scenario::check_room_for_one_more`], of an address.
    pub(super) fn check_room_at_an_address(&mut self) {
        let fixed = self.facts.fixed;
        if fixed.per_address == 0
            || fixed.rate_per_address > 0
            || fixed.rate > 0
            || fixed.proxy_protocol
        {
            return;
        }
        let number = self.add_client();
        let host = self.clients.last().map(|client| client.host);
        let of_host = |client: &&Client| Some(client.host) == host && client.is_upgraded;
        self.settle();
        let there = self.clients.iter().filter(of_host);
        let before = there.filter(|client| client.number != number).count();
        let client = self.clients.iter().find(|client| client.number == number);
        let is_admitted = client.is_some_and(|client| client.is_upgraded);
        assert_eq!(
            is_admitted,
            before < fixed.per_address as usize,
            "one more than {before}"
        );
        self.facts
            .note("access: an address has as many connections as it may, and no more");
    }
}
