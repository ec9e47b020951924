//! Orders of the application, a slice at a time: which connections they are for. Changes `sessions`, and what the deeds change.

use crate::inquiry::InquiryAnswer;
use crate::orders::{Deed, Described, MetaFilter, Order, OrderDone, Question, Users};
use crate::shard::Shard;
use crate::transport::centrifuge::names_of;
use myriad_hub::{ClientId, CloseReason, Now, Phase, RequestId, SessionState};
use myriad_reactor::Reactor;
use myriad_wheel::{Key, TICK_MS};
use std::collections::VecDeque;
use std::sync::Arc;

/// What doing something to a connection costs, where looking at one costs 1. A turn spends as much as a slice has connections.
const DEED_COST: usize = 8;

/// Orders that a shard has not carried out yet. The process has a limit of them.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: VecDeque<(RequestId, Arc<Order>)>,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    id: RequestId,
    order: Arc<Order>,
    next: Next,
    /// Connections to describe: sessions and connections.
    found: Vec<(u32, Key)>,
    done: OrderDone,
}

/// Where an order comes to next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// This connection, if it is there.
    One(Option<Key>),
    /// The hub's walk over a user's connections.
    OfUser,
    /// The first session from here on.
    Any(u32),
    /// The first stream of events from here on that was opened with a token. They come behind the sessions.
    Readers(u32),
}

impl Orders {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.under_way.is_some())
    }

    /// The orders that are not carried out.
    pub(super) fn take(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        let under_way = self.under_way.take().map(|order| order.id);
        let waiting = std::mem::take(&mut self.waiting);
        under_way
            .into_iter()
            .chain(waiting.into_iter().map(|(id, _)| id))
    }
}

impl<R: Reactor> Shard<R> {
    pub(crate) fn handle_order(&mut self, id: RequestId, order: Arc<Order>) {
        self.remember(&order.instruction);
        self.sessions.orders.waiting.push_back((id, order));
    }

    /// Carries on with the orders, for as many connections as a slice has.
    pub(crate) fn run_orders(&mut self, now: Now) {
        let mut budget = self.settings.slice_max.max(DEED_COST);
        while budget > 0 {
            let Some(mut order) = self.next_order() else {
                return;
            };
            if self.run_order(&mut order, &mut budget, now) {
                self.end_order(order, now);
            } else {
                self.sessions.orders.under_way = Some(order);
            }
        }
    }

    fn next_order(&mut self) -> Option<UnderWay> {
        let orders = &mut self.sessions.orders;
        if orders.under_way.is_some() {
            return orders.under_way.take();
        }
        let (id, order) = orders.waiting.pop_front()?;
        let next = match (
            &order.instruction.whose.client,
            &order.instruction.whose.users,
        ) {
            (Some(client), _) => Next::One(self.find_client(*client)),
            (None, Users::One(user)) => {
                self.hub.begin_user_walk(user);
                Next::OfUser
            }
            (None, Users::Anonymous | Users::All) => Next::Any(match &order.instruction.deed {
                Deed::Describe(question) => question.from,
                _ => 0,
            }),
        };
        Some(UnderWay {
            id,
            order,
            next,
            found: Vec::new(),
            done: OrderDone::default(),
        })
    }

    /// Carries an order out until the budget is spent; true if it has come to the end.
    fn run_order(&mut self, under_way: &mut UnderWay, budget: &mut usize, now: Now) -> bool {
        let order = Arc::clone(&under_way.order);
        while *budget > 0 {
            *budget -= 1;
            if let Next::Readers(from) = &mut under_way.next {
                let Some(done) = self.order_reader(&order, from, now) else {
                    return true;
                };
                if done {
                    under_way.done.done += 1;
                    *budget = budget.saturating_sub(DEED_COST - 1);
                }
                continue;
            }
            let key = match &mut under_way.next {
                Next::One(key) => key.take(),
                Next::OfUser => self
                    .hub
                    .walk_user()
                    .and_then(|index| self.hub.key_of(index)),
                Next::Any(from) => self.hub.session_from(*from).and_then(|(index, next)| {
                    *from = next;
                    self.hub.key_of(index)
                }),
                Next::Readers(_) => None,
            };
            let Some(key) = key else {
                if !order.instruction.is_for_readers() {
                    return true;
                }
                under_way.next = Next::Readers(0);
                continue;
            };
            if !self.is_for(&order, key) {
                continue;
            }
            if let Deed::Describe(question) = &order.instruction.deed {
                if self.note_found(under_way, question, key) {
                    return true;
                }
                continue;
            }
            *budget = budget.saturating_sub(DEED_COST - 1);
            match self.carry_out_deed(&order.instruction.deed, key, now) {
                Some(true) => under_way.done.done += 1,
                Some(false) => under_way.done.failed += 1,
                None => {}
            }
        }
        false
    }

    /// Carries an order out for a reader: whether there was something to do. None behind the last reader.
    fn order_reader(&mut self, order: &Order, from: &mut u32, now: Now) -> Option<bool> {
        let (whose, deed) = (&order.instruction.whose, &order.instruction.deed);
        let user = match &whose.users {
            Users::One(user) => Some(user),
            Users::Anonymous | Users::All => None,
        };
        let (index, bearer) = self.hub.bearer_from(user, *from)?;
        *from = index.checked_add(1)?;
        let reason = match deed {
            Deed::Disconnect(_) | Deed::Unsubscribe(None) => Some(CloseReason::Application),
            Deed::Unsubscribe(Some(channel)) => {
                let mut channels = self.hub.subscriptions_of(index);
                let reads_it = channels.any(|(_, of, _)| of == channel);
                reads_it.then_some(CloseReason::Application)
            }
            Deed::EndRevoked(tokens) => {
                let token = bearer.token.as_deref();
                let is_revoked = token.is_some_and(|token| tokens.contain(token));
                is_revoked.then_some(CloseReason::InvalidToken)
            }
            _ => None,
        };
        let reason = reason.filter(|_| whose.users.have(bearer.user.as_deref()));
        if let Some(reason) = reason {
            self.close_index(index, reason, now);
        }
        Some(reason.is_some())
    }

    fn end_order(&mut self, mut order: UnderWay, now: Now) {
        if let Deed::Describe(question) = &order.order.instruction.deed {
            order.found.sort_unstable_by_key(|(session, _)| *session);
            if order.found.len() > question.max {
                order.done.next = Some(order.found[question.max].0);
                order.found.truncate(question.max);
            }
            // Between two slices some may have gone.
            let found = order.found.iter().map(|(_, key)| *key);
            let found: Vec<Key> = found
                .filter(|key| self.hub.contains(*key) && self.is_connected(key.index))
                .collect();
            let described = found.into_iter().map(|key| self.describe(key, now));
            order.done.connections = described.collect();
            order.done.done = order.done.connections.len() as u64;
        }
        self.mesh
            .answered(order.id, InquiryAnswer::Ordered(order.done));
    }

    /// Whether an order is for a connection.
    fn is_for(&self, order: &Order, key: Key) -> bool {
        if self.hub.connection(key.index).phase != Phase::Open {
            return false;
        }
        let session = self.hub.session(key.index);
        let may = match (&order.instruction.deed, &order.instruction.whose.users) {
            // A user who is to go goes although his connection is not made yet.
            (Deed::Disconnect(_), Users::One(_)) | (Deed::EndRevoked(_), _) => true,
            (Deed::Disconnect(_), Users::All) => session.state != SessionState::New,
            _ => session.state == SessionState::Connected,
        };
        let user = session.user.as_deref();
        may && order.instruction.whose.are(user, self.client_id(key))
    }

    /// The connection of a client of this shard, if it is there and has a session.
    fn find_client(&self, client: ClientId) -> Option<Key> {
        let (shard, key) = self.sessions.ids.place_of(client)?;
        let is_here = usize::from(shard) == self.index && self.hub.contains(key);
        (is_here && self.hub.connection(key.index).has_session()).then_some(key)
    }

    /// Notes a connection that is asked about; true if there are enough.
    fn note_found(&self, under_way: &mut UnderWay, question: &Question, key: Key) -> bool {
        let session = self.hub.session_number(key.index);
        if session < question.from || !self.is_asked_about(question, key) {
            return false;
        }
        let found = &mut under_way.found;
        found.push((session, key));
        match under_way.next {
            // In the order of sessions: one more shows that there is a next page.
            Next::Any(_) => found.len() > question.max,
            Next::One(_) | Next::Readers(_) => false,
            // In the order they came: the first ones of all are wanted.
            Next::OfUser => {
                if found.len() > 2 * question.max + 1 {
                    found.select_nth_unstable_by_key(question.max, |(session, _)| *session);
                    found.truncate(question.max + 1);
                }
                false
            }
        }
    }

    fn is_asked_about(&self, question: &Question, key: Key) -> bool {
        let is_subscribed =
            |channel: &str| self.hub.find_subscription(key.index, channel).is_some();
        if !question.channel.as_deref().is_none_or(is_subscribed) {
            return false;
        }
        let Some(MetaFilter(is_wanted)) = &question.meta else {
            return true;
        };
        let details = self.hub.session(key.index).details.as_deref();
        let meta = details.and_then(|details| details.meta.as_deref());
        meta.is_some_and(is_wanted)
    }

    fn describe(&mut self, key: Key, now: Now) -> Described {
        let address = self.client_address(key);
        let connection = self.hub.connection(key.index);
        let (transport, protocol) = names_of(connection.transport());
        let session = self.hub.session(key.index);
        let details = session.details.as_deref();
        let ticks = now.tick().0.saturating_sub(connection.opened.0);
        Described {
            client: self.client_id(key),
            user: session.user.clone(),
            transport,
            protocol,
            address,
            open_ms: u64::from(ticks) * u64::from(TICK_MS),
            info: session.info().cloned(),
            meta: details.and_then(|details| details.meta.clone()),
            channels: self
                .hub
                .subscriptions_of(key.index)
                .map(|(_, channel, _)| Arc::clone(channel))
                .collect(),
            token: details.and_then(|details| details.token.clone()),
        }
    }
}
