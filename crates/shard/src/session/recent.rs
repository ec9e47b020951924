//! Orders that come while commands wait for an answer.
//!
//! A connect, a subscribe or a refresh may wait for the application for seconds. An order of that time finds no connection of its
//! user, because nobody knows yet whose the connection will be, or no subscription. So a shard remembers orders as long as such
//! commands wait. What was ordered since a question is carried out with its answer.
//!
//! The memory is bounded. A command that waits from before what is remembered fails, and its client tries again: nobody can say
//! what was ordered meanwhile.
//!
//! Changes `sessions`, and what the deeds change.

use super::Failure;
use crate::orders::{Deed, Instruction, Users, Whose};
use crate::shard::Shard;
use myriad_hub::{ClientId, CloseReason, Now, Phase, SessionState};
use myriad_reactor::Reactor;
use myriad_wheel::Key;
use myriad_wire::centrifuge::ErrorCode;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Orders that are remembered, at most: as many as single requests can bring within the 4 s of a question.
const KEPT_MAX: usize = 65_536;
/// Bytes of what they say. Shards share it.
const BYTES_MAX: usize = 16 << 20;
/// What an order takes beside what it says.
const OVERHEAD_BYTES: usize = 256;

/// What a client is told whose command waits from before what is remembered.
const FORGOTTEN: &str = "internal server error: too many requests about connections came meanwhile";

/// A moment in the order of a shard's orders: how many came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// Nobody can say what was ordered since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forgotten;

impl From<Forgotten> for Failure {
    fn from(_: Forgotten) -> Self {
        Self::Explained(ErrorCode::Internal, FORGOTTEN)
    }
}

/// The orders that a shard remembers.
#[derive(Debug, Default)]
pub(super) struct Recent {
    now: Moment,
    kept: VecDeque<(Moment, Arc<Instruction>)>,
    bytes: usize,
    /// The newest one that was forgotten before its time.
    forgotten: Moment,
    newest: Newest,
}

/// The newest order about each user, about each client, and about all: most commands need not look at the orders themselves.
#[derive(Debug, Default)]
struct Newest {
    users: HashMap<Arc<str>, Moment>,
    clients: HashMap<ClientId, Moment>,
    all: Moment,
}

impl Newest {
    fn note(&mut self, whose: &Whose, at: Moment) {
        match (&whose.client, &whose.users) {
            (Some(client), _) => drop(self.clients.insert(*client, at)),
            (None, Users::One(user)) => drop(self.users.insert(Arc::clone(user), at)),
            (None, Users::Anonymous | Users::All) => self.all = at,
        }
    }

    fn about(&self, user: Option<&str>, client: ClientId) -> Moment {
        let of_user = user.and_then(|user| self.users.get(user));
        let of_client = self.clients.get(&client);
        let known = of_user.into_iter().chain(of_client).copied();
        known.fold(self.all, Moment::max)
    }

    fn forget(&mut self, through: Moment) {
        self.users.retain(|_, at| *at > through);
        self.clients.retain(|_, at| *at > through);
    }
}

impl Recent {
    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Whether [`Recent::note`] has to forget something.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= KEPT_MAX || self.bytes >= BYTES_MAX
    }

    /// Takes in an order. `oldest` is the moment of the command that waits the longest, if [`Recent::is_full`].
    pub(super) fn note(&mut self, instruction: &Arc<Instruction>, oldest: Moment) {
        self.now.0 += 1;
        let bytes = match &instruction.deed {
            // A token counts again when the answer comes; what is described is described as it was.
            Deed::EndRevoked(_) | Deed::Describe(_) => return,
            _ => bytes_of(instruction),
        };
        if self.is_full() {
            self.forget(oldest);
        }
        if self.is_full() {
            let half = self.kept[self.kept.len() / 2].0;
            self.forgotten = half;
            self.forget(half);
        }
        self.bytes += bytes;
        self.newest.note(&instruction.whose, self.now);
        self.kept.push_back((self.now, Arc::clone(instruction)));
    }

    /// Takes in an order while no command waits that could need it.
    pub(super) fn skip(&mut self) {
        self.now.0 += 1;
        self.clear();
    }

    /// No command waits any more.
    pub(super) fn clear(&mut self) {
        if !self.kept.is_empty() {
            *self = Self {
                now: self.now,
                ..Self::default()
            };
        }
    }

    fn forget(&mut self, through: Moment) {
        while self.kept.front().is_some_and(|(at, _)| *at <= through) {
            if let Some((_, instruction)) = self.kept.pop_front() {
                self.bytes -= bytes_of(&instruction);
            }
        }
        self.newest.forget(through);
    }

    /// What was ordered since a moment about a client, in its order.
    pub(super) fn since(
        &self,
        moment: Moment,
        user: Option<&str>,
        client: ClientId,
    ) -> Result<Vec<Arc<Instruction>>, Forgotten> {
        if moment < self.forgotten {
            return Err(Forgotten);
        }
        if moment == self.now || self.newest.about(user, client) <= moment {
            return Ok(Vec::new());
        }
        let first = self.kept.partition_point(|(at, _)| *at <= moment);
        let since = self.kept.range(first..).map(|(_, instruction)| instruction);
        Ok(since
            .filter(|instruction| instruction.whose.are(user, client))
            .cloned()
            .collect())
    }
}

fn bytes_of(instruction: &Instruction) -> usize {
    let length = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().map_or(0, |bytes| bytes.len());
    let said = match &instruction.deed {
        Deed::Subscribe(wanted) => {
            let data = wanted.grant.data.as_ref();
            data.map_or(0, |data| data.bytes().len()) + length(&wanted.grant.info)
        }
        Deed::Refresh { info, .. } => length(info),
        _ => 0,
    };
    OVERHEAD_BYTES + said + instruction.whose.kept.len() * size_of::<ClientId>()
}

impl<R: Reactor> Shard<R> {
    /// Remembers an order for commands that wait.
    pub(super) fn remember(&mut self, instruction: &Arc<Instruction>) {
        let sessions = &mut self.sessions;
        if sessions.connecting.is_empty() && sessions.asks.len() == 0 {
            return sessions.recent.skip();
        }
        let oldest = if sessions.recent.is_full() {
            let connecting = sessions.connecting.values();
            let moments = connecting.map(|connecting| connecting.since);
            let moments = moments.chain(sessions.asks.moments());
            moments.min().unwrap_or_default()
        } else {
            Moment::default()
        };
        sessions.recent.note(instruction, oldest);
    }

    /// Forgets orders that nobody can need any more.
    pub(super) fn forget_orders(&mut self) {
        if self.sessions.connecting.is_empty() && self.sessions.asks.len() == 0 {
            self.sessions.recent.clear();
        }
    }

    /// What was ordered about a client since a moment.
    pub(super) fn ordered_since(
        &self,
        key: Key,
        moment: Moment,
    ) -> Result<Vec<Arc<Instruction>>, Forgotten> {
        let recent = &self.sessions.recent;
        if moment == recent.now() {
            return Ok(Vec::new());
        }
        let user = self.hub.session(key.index).user.as_deref();
        recent.since(moment, user, self.client_id(key))
    }

    /// Ends the connection of a client that connects, if that was ordered since its connect command. True if it has ended.
    pub(super) fn end_as_ordered(
        &mut self,
        key: Key,
        ordered: &[Arc<Instruction>],
        now: Now,
    ) -> bool {
        let close = ordered.iter().find_map(|one| match &one.deed {
            Deed::Disconnect(close) => Some(close),
            _ => None,
        });
        if let Some(close) = close {
            self.close_by_application(key, close, now);
        }
        close.is_some()
    }

    /// Carries out what was ordered about a client while it connected.
    pub(super) fn carry_out_ordered(&mut self, key: Key, ordered: Vec<Arc<Instruction>>, now: Now) {
        for instruction in ordered {
            let is_open = self.hub.connection(key.index).phase == Phase::Open;
            if is_open && self.hub.session(key.index).state == SessionState::Connected {
                self.carry_out_deed(&instruction.deed, key, now);
            }
        }
    }

    /// Nobody can say what was ordered about a client that connects: it connects again.
    pub(super) fn end_forgotten(&mut self, key: Key, now: Now) {
        self.close_stream(key, CloseReason::Overloaded, now);
    }

    /// Whether the application has ended a subscription to a channel since a moment.
    pub(super) fn is_unsubscribed_since(
        &self,
        key: Key,
        channel: &str,
        moment: Moment,
    ) -> Result<bool, Forgotten> {
        let ordered = self.ordered_since(key, moment)?;
        Ok(ordered.iter().any(|one| match &one.deed {
            Deed::Unsubscribe(None) => true,
            Deed::Unsubscribe(Some(ended)) => **ended == *channel,
            _ => false,
        }))
    }

    /// Whether the application has said since a moment when a connection expires.
    pub(super) fn is_refreshed_since(&self, key: Key, moment: Moment) -> bool {
        let ordered = self.ordered_since(key, moment).unwrap_or_default();
        let is_refresh = |one: &Arc<Instruction>| matches!(one.deed, Deed::Refresh { .. });
        ordered.iter().any(is_refresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use myriad_hub::ApplicationClose;

    const ME: ClientId = ClientId([7; 16]);

    fn disconnect(whose: Whose) -> Arc<Instruction> {
        let close = ApplicationClose::new(4000, "").unwrap();
        Arc::new(Instruction {
            whose,
            deed: Deed::Disconnect(close),
        })
    }

    fn user(name: &str) -> Whose {
        Whose {
            users: Users::One(name.into()),
            ..Whose::default()
        }
    }

    fn count(recent: &Recent, moment: Moment, user: Option<&str>) -> usize {
        recent.since(moment, user, ME).unwrap().len()
    }

    #[test]
    fn what_was_ordered_since_a_moment_is_found_by_user_client_and_for_all() {
        let mut recent = Recent::default();
        let begin = recent.now();
        recent.note(&disconnect(user("42")), begin);
        let middle = recent.now();
        let mine = Whose {
            client: Some(ME),
            ..Whose::default()
        };
        recent.note(&disconnect(mine.clone()), begin);
        recent.note(
            &disconnect(Whose {
                users: Users::Anonymous,
                ..mine
            }),
            begin,
        );
        recent.note(
            &disconnect(Whose {
                kept: vec![ME],
                ..Whose::default()
            }),
            begin,
        );
        assert_eq!(count(&recent, begin, Some("42")), 2);
        assert_eq!(count(&recent, middle, Some("42")), 1);
        assert_eq!(count(&recent, begin, Some("43")), 1);
        assert_eq!(count(&recent, begin, None), 2);
        assert_eq!(count(&recent, recent.now(), None), 0);
        recent.note(&disconnect(Whose::default()), begin);
        assert_eq!(count(&recent, middle, Some("43")), 2);
        recent.clear();
        assert_eq!(count(&recent, begin, Some("42")), 0);
    }

    #[test]
    fn the_memory_is_bounded_and_says_what_it_has_forgotten() {
        let mut recent = Recent::default();
        let begin = recent.now();
        let order = disconnect(user("42"));
        for _ in 0..KEPT_MAX {
            recent.note(&order, begin);
        }
        let middle = Moment(KEPT_MAX as u64 / 4 * 3);
        assert!(recent.is_full() && recent.since(begin, None, ME).is_ok());
        recent.note(&order, begin);
        assert_eq!(recent.since(begin, None, ME).err(), Some(Forgotten));
        assert_eq!(count(&recent, middle, Some("42")), KEPT_MAX / 4 + 1);
        assert!(recent.kept.len() < KEPT_MAX && recent.bytes < BYTES_MAX);
        // Where nobody waits from so long ago, nothing is forgotten that anybody needs.
        let forgotten = recent.forgotten;
        while !recent.is_full() {
            recent.note(&order, begin);
        }
        let last = recent.now();
        recent.note(&order, last);
        assert_eq!((recent.forgotten, recent.kept.len()), (forgotten, 1));
    }
}
