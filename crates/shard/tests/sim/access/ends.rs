//! Whether a command may be refused, and a connection may end, as a client is told.

use super::client::{Asked, Client, What};
use super::desk::{Desk, Said, close_code};
use super::facts::Facts;
use super::orders::{Issued, Wanted};
use super::rules::Rules;
use super::tokens::Fault;
use crate::verdict::TICK_NS;
use myriad_shard::TokenFault;
use serde_json::Value;

impl Client {
    /// Takes an error. It must have a cause.
    pub(crate) fn take_error(
        &mut self,
        id: u32,
        asked: &Asked,
        error: &Value,
        facts: &mut Facts,
        desk: &Desk,
    ) {
        let code = error["code"].as_u64().expect("a code");
        self.is_refused |= asked.what == What::Connect;
        if code != 111 {
            let limited = asked.what != What::Connect;
            self.taken[0] += u64::from(limited);
            self.taken[1] += u64::from(matches!(asked.what, What::Publish(..)));
            self.taken[2] += u64::from(matches!(asked.what, What::Subscribe(_)));
        }
        let said = desk.said(id);
        let is_plausible = match code {
            100 => Self::may_fail(asked, error, said, facts),
            103 => self.may_be_denied(asked, said, facts),
            105 => matches!(asked.what, What::Subscribe(room) if self.may_have(id, room, facts)),
            106 => {
                facts.note("access: a client has as many subscriptions as it may");
                facts.may_be(asked.version, Rules::limits_subscriptions)
            }
            109 => match said {
                Some(said) => *said == Said::Fault(TokenFault::Expired),
                None => asked
                    .token
                    .as_ref()
                    .is_some_and(|token| token.fault == Some(Fault::Expired)),
            },
            111 => self.may_be_too_many(asked, facts),
            1000.. => {
                facts.note("access: the application refuses a command");
                said == Some(&Said::Error(code))
            }
            _ => false,
        };
        assert!(
            is_plausible,
            "{asked:?} is answered {error}, and the desk said {said:?}"
        );
    }

    /// Whether the server may have failed.
    fn may_fail(asked: &Asked, error: &Value, said: Option<&Said>, facts: &mut Facts) -> bool {
        let message = error["message"].as_str().expect("words");
        if message.contains("in time") {
            facts.note("access: the control plane is too late");
            return facts.now - asked.at + TICK_NS > facts.fixed.ask_timeout_ns();
        }
        if message.contains("too many") {
            facts.note("access: too many wait for the control plane");
            return facts.is_tight;
        }
        facts.note("access: the application is not available");
        facts.is_draining || said == Some(&Said::Nothing)
    }

    /// Whether a right may be missing.
    fn may_be_denied(&self, asked: &Asked, said: Option<&Said>, facts: &mut Facts) -> bool {
        facts.note("access: a right is missing");
        if self.may_have_changed(asked, facts) {
            return true;
        }
        match (asked.what, &asked.token) {
            // The rules have changed, or it was unsubscribed, while the control plane was asked.
            (What::SubRefresh(room), _) if !self.visits.contains_key(&room) => true,
            (What::Subscribe(_) | What::SubRefresh(_), Some(token)) => match said {
                Some(Said::Fault(fault)) => {
                    matches!(fault, TokenFault::Invalid(_) | TokenFault::Revoked)
                }
                Some(_) => false,
                None => {
                    let has_no_key = facts.may_be(asked.version, |rules| !rules.tokens);
                    let is_revoked = facts.revoked.contains(token.id);
                    token.fault == Some(Fault::Invalid) || is_revoked || has_no_key
                }
            },
            (What::Subscribe(room), None) => facts.may_be(asked.version, |rules| {
                rules.may_subscribe(room, self.user) == Some(false)
            }),
            (What::Publish(room, _), _) => facts.may_be(asked.version, |rules| {
                rules.may_publish(room, self.visits.contains_key(&room)) == Some(false)
            }),
            _ => false,
        }
    }

    /// Whether the application may have ended what a command asks for, or revoked its token, while the command waited.
    fn may_have_changed(&self, asked: &Asked, facts: &Facts) -> bool {
        let token = asked.token.as_ref();
        let is_revoked = token.and_then(|token| facts.revoked_at.get(&token.id));
        let may_be_revoked = is_revoked.is_some_and(|at| *at >= asked.at);
        let What::Subscribe(room) = asked.what else {
            return may_be_revoked;
        };
        let ends = |order: &Issued| {
            let is_of_room =
                matches!(order.wanted, Wanted::Unsubscribe(of) if of.is_none_or(|of| of == room));
            is_of_room && order.may_be_done_since(asked.at) && order.may_be_for(self)
        };
        may_be_revoked || facts.orders.iter().any(ends)
    }

    /// Whether it may have a subscription, or may be about to get one.
    pub(crate) fn may_have(&self, id: u32, room: usize, facts: &Facts) -> bool {
        let is_earlier =
            |(other, asked): (&u32, &Asked)| *other < id && asked.what == What::Subscribe(room);
        self.visits.contains_key(&room)
            || self.asked.iter().any(is_earlier)
            || facts.subscribes(room, self)
    }

    /// Whether it may have sent more than the limits allow.
    fn may_be_too_many(&self, asked: &Asked, facts: &mut Facts) -> bool {
        facts.note("access: a client sends too much");
        let fixed = facts.fixed;
        let is_over = |count: u64, limit: u64| limit > 0 && count > limit;
        let of_kind = match asked.what {
            What::Publish(room, _) => {
                is_over(self.sent[1], fixed.publishes)
                    || is_over(facts.attempts[room], fixed.publishes_per_room)
            }
            What::Subscribe(_) => is_over(self.sent[2], fixed.subscribes),
            _ => false,
        };
        of_kind || is_over(self.sent[0], fixed.commands)
    }

    /// As many as its rates allow since it has connected, and no more.
    pub(crate) fn check_rates(&self, facts: &Facts) {
        let fixed = facts.fixed;
        let elapsed = facts.now - self.connected_at;
        let limits = [fixed.commands, fixed.publishes, fixed.subscribes];
        for (taken, limit) in self.taken.iter().zip(limits) {
            let most = limit + limit * elapsed / 1_000_000_000 + 1;
            assert!(
                limit == 0 || *taken <= most,
                "{taken} in {elapsed} ns, and {limit} a second"
            );
        }
    }

    /// Whether the reason that it was told can be.
    pub(crate) fn check_end(&self, facts: &mut Facts, desk: &Desk) {
        if let Some(status) = self.status {
            let fixed = facts.fixed;
            let is_plausible = match status {
                400 => fixed.proxy_protocol,
                429 => fixed.per_address > 0 || fixed.rate_per_address > 0,
                503 => fixed.rate > 0 || facts.is_draining,
                _ => false,
            };
            assert!(is_plausible, "client {}: status {status}", self.number);
        }
        let Some(code) = self.close else { return };
        let rules = |holds: fn(&Rules) -> bool| facts.may_be(0, holds);
        let tokens = || self.asked.values().filter_map(|asked| asked.token.as_ref());
        let is_plausible = match code {
            // It was told why it may not connect, and did not go.
            1000 => self.is_refused,
            3001 => facts.is_draining,
            3005 => self.may_be_expired(facts),
            3006 => self.may_lose_a_room(facts),
            3010 => self.asked.values().any(|asked| asked.what == What::Refresh),
            3013 => facts.fixed.commands > 0 && self.sent[0] > 2 * facts.fixed.commands,
            3500 => {
                tokens().count() > 0
                    || facts.revoked.contains(self.token_id)
                    || self.may_be_revoked(facts)
            }
            3501 => {
                self.has_erred
                    || self.name.is_none()
                        && rules(|rules| !rules.connect_proxy && !rules.anonymous)
            }
            3502 => self.name.is_none(),
            3504 => facts.fixed.single_connection || facts.fixed.users_max > 0,
            3004 => rules(Rules::limits_subscriptions),
            3507 => self.name.is_none() && rules(|rules| rules.wants_user),
            4_100..4_200 => {
                let is_said = |serial: &u32| {
                    close_code(*serial) == code
                        && matches!(desk.said(*serial), Some(Said::Disconnect(_)))
                };
                self.serials.iter().any(is_said)
            }
            4_600.. => facts
                .orders
                .iter()
                .any(|order| order.code() == code && order.may_be_for(self)),
            _ => false,
        };
        assert!(is_plausible, "close {code} of {self:?}");
        facts.note(match code {
            3005 => "access: a connection expires",
            3006 => "access: a subscription by the server expires",
            3504 => "access: a user has too many connections",
            4_600.. => "access: an order ends a connection",
            _ => return,
        });
    }

    /// Whether a subscription by the server may be over by now. A refresh that is not answered may have counted.
    fn may_lose_a_room(&self, facts: &Facts) -> bool {
        // One that came with the connection may end before the client has been told that it is connected.
        let comes_with_rooms = |asked: &Asked| {
            let token = asked.token.as_ref();
            asked.what == What::Connect && token.is_none_or(|token| !token.subs.is_empty())
        };
        if self.name.is_none() && self.asked.values().any(comes_with_rooms) {
            return true;
        }
        self.visits.iter().any(|(&room, visit)| {
            let is_over = |asked: &Asked| {
                let token = asked
                    .token
                    .as_ref()
                    .filter(|_| asked.what == What::SubRefresh(room));
                let due = token.and_then(|token| facts.due(asked.at, token.ttl, false));
                due.is_some_and(|due| due.from <= facts.now + TICK_NS)
            };
            let is_over = self.asked.values().any(is_over);
            visit.is_server_side && (is_over || self.may_have_expired(room, visit.due, facts))
        })
    }

    fn may_be_revoked(&self, facts: &Facts) -> bool {
        let is_for = |order: &Issued| matches!(order.wanted, Wanted::EndRevoked(_));
        self.name.is_none() && facts.orders.iter().any(is_for)
    }

    /// Whether the connection may be over by now.
    fn may_be_expired(&self, facts: &Facts) -> bool {
        let name = self.name.clone().unwrap_or_default();
        let renewal = facts.renewals.get(&(name, None));
        let is_ordered = |order: &Issued| order.may_expire(self, facts);
        // One that is not answered may have counted: what waits is dropped for the end.
        let is_over = |asked: &Asked| {
            let Some(token) = asked.token.as_ref().filter(|_| asked.what == What::Refresh) else {
                return false;
            };
            let due = facts.due(asked.at, token.ttl, false);
            token.fault.is_some() || due.is_some_and(|due| due.from <= facts.now + TICK_NS)
        };
        // It may expire before it has been told that it is connected.
        self.name.is_none()
            || self.due.is_some_and(|due| due.from <= facts.now + TICK_NS)
            || renewal.is_some_and(|renewal| renewal.is_expired)
            || facts.orders.iter().any(is_ordered)
            || self.asked.values().any(is_over)
    }
}
