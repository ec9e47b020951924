//! What writers did to streams, and what all readers together were told of them.

use super::limited::Rate;
use super::scenario::{META_TTL, Profile};
use crate::ledger::Replies;
use crate::members::Ledger;
use crate::plan::{Plan, ROOMY};
use crate::verdict::{TICK_NS, ns};
use myriad_hub::RecoveryMode;
use myriad_reactor::sim::Prng;
use myriad_shard::{ChannelOptions, Settings, SlowConsumer, StreamOffset};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How a stream's data looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Text,
    Bytes,
}

/// How a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasts {
    Forever,
    /// Until it is not used.
    WhileUsed,
    /// Until some time.
    Until,
}

/// A channel that is a stream at times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(super) lasts: Lasts,
}

const fn room(name: &'static str, kind: Kind, lasts: Lasts) -> Room {
    Room { name, kind, lasts }
}

/// Of the namespace `h`, which keeps all; of `t`, which keeps few; of `b`, where batches leave; of `e`, where publications age; and
/// of `kept`, `cached` and `loose`, whose options the seed draws. The last one has no history, and so is never a stream.
pub(crate) const ROOMS: [Room; 12] = [
    room("h:json", Kind::Json, Lasts::Forever),
    room("h:text", Kind::Text, Lasts::Forever),
    room("h:bytes", Kind::Bytes, Lasts::Forever),
    room("t:few", Kind::Json, Lasts::Forever),
    room("b:batched", Kind::Json, Lasts::Forever),
    room("h:idle", Kind::Json, Lasts::WhileUsed),
    room("h:until", Kind::Json, Lasts::Until),
    room("e:aging", Kind::Json, Lasts::Forever),
    room("kept:a", Kind::Json, Lasts::Forever),
    room("kept:b", Kind::Json, Lasts::Forever),
    room("cached:a", Kind::Json, Lasts::Forever),
    room("loose:a", Kind::Json, Lasts::Forever),
];
/// Those that may be streams: the first ones.
pub(super) const STREAMS: usize = 11;
/// Where those begin whose options the seed draws.
const DRAWN: usize = 8;
/// Limits above this are never reached by clients that have not connected.
const STRANGERS_ROOMY: u64 = 1 << 20;
/// Publications that the namespace `t` keeps.
pub(super) const FEW: u32 = 4;

/// What is known of a channel as a stream. Moments are counted by [`Facts::moment`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// By what was sent last, it exists.
    pub(super) is_wanted: bool,
    /// When it was last to be deleted.
    pub(super) deleted_at: Option<u64>,
    /// It may have been missing until this moment.
    pub(super) missing_until: u64,
    /// Since then it is known to exist.
    pub(super) is_known: bool,
    /// Somebody wanted to close it since it was last created.
    pub(crate) may_be_closed: bool,
    /// Publications that somebody tried to make.
    pub(super) issued: u64,
}

/// What a channel promises by the options of its namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) has_history: bool,
    /// Only the newest publication is recovered.
    pub(crate) is_cached: bool,
    /// It comes also to those who do not ask for it.
    pub(crate) recovers_unasked: bool,
    /// Whoever is slow may miss publications without being told.
    pub(crate) may_drop: bool,
    pub(crate) excludes_sender: bool,
    /// Publications wait for others before they are delivered.
    pub(crate) is_batched: bool,
    /// Publications that are kept.
    size: u64,
    /// Publications that a client may have missed and recovers.
    pub(crate) recovered_max: u32,
    /// Publications age while a run lasts.
    is_aging: bool,
    /// So does the record of a channel that nobody uses.
    is_forgotten: bool,
}

impl Rules {
    fn of(options: &ChannelOptions, settings: &Settings) -> Self {
        let most = settings.client.recovery_max_publication_limit;
        Self {
            has_history: options.has_history(),
            is_cached: options.recovery_mode == RecoveryMode::Cache,
            recovers_unasked: options.auto_cache_recover,
            may_drop: matches!(
                options.slow_consumer,
                SlowConsumer::DropOldest | SlowConsumer::KeepLatest
            ),
            excludes_sender: options.exclude_sender,
            is_batched: !options.batch_delay.is_zero(),
            size: options.history_size.into(),
            recovered_max: options.history_size.min(most),
            is_aging: options.history_ttl < META_TTL,
            is_forgotten: options.history_meta_ttl < META_TTL,
        }
    }
}

/// What a channel was without at some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taken {
    pub(super) namespace: bool,
    pub(super) history: bool,
    /// Its publications were removed.
    pub(super) publications: bool,
}

#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) streams: [Stream; ROOMS.len()],
    pub(crate) rules: [Rules; ROOMS.len()],
    pub(super) takings: [Taken; ROOMS.len()],
    /// What was published, and in which order.
    pub(crate) ledger: Ledger,
    /// Who is there.
    pub(super) profile: Profile,
    /// Bytes that publications have beside what names them: fewer than these.
    pub(crate) data_bytes_max: usize,
    /// The stream that readers ask for most: one that was just created again.
    pub(super) focus: usize,
    /// Counts what happens.
    pub(super) moment: u64,
    pub(crate) now: u64,
    pub(crate) is_draining: bool,
    /// Histories have little room: all of a channel may be forgotten.
    pub(super) is_forgetful: bool,
    /// Connections have little room.
    pub(crate) is_tight: bool,
    /// All connections together have little room for what is queued, and for filters.
    pub(crate) is_short_of_memory: bool,
    /// Those who have not connected have little room: newcomers end the oldest of them. Nobody else is ended by that.
    pub(crate) are_strangers_tight: bool,
    /// Pings come, and who does not answer in time is ended.
    pub(crate) may_be_silent: bool,
    pub(crate) settings: Settings,
    /// Requests on one connection.
    pub(super) reads: Option<Rate>,
    pub(super) reached: BTreeMap<&'static str, u64>,
    /// Publications that readers were told.
    pub(super) told: u64,
}

impl Facts {
    pub(super) fn new(profile: Profile, data_bytes_max: usize, plan: &Plan) -> Self {
        let settings = &plan.settings;
        let rules = |room: Room| {
            let options = settings.namespaces.options_of(room.name);
            options.map_or_else(Rules::default, |options| Rules::of(options, settings))
        };
        Self {
            streams: Default::default(),
            rules: ROOMS.map(rules),
            takings: Default::default(),
            ledger: Ledger::default(),
            profile,
            data_bytes_max,
            focus: 0,
            moment: 1,
            now: plan.start,
            is_draining: false,
            is_forgetful: plan.limits.history_bytes_max < ROOMY,
            is_tight: settings.outbound_bytes_max < 1 << 20 || plan.is_tight(),
            is_short_of_memory: plan.is_tight(),
            are_strangers_tight: plan.limits.unconnected_bytes_max < STRANGERS_ROOMY,
            may_be_silent: !settings.ping_interval.is_zero(),
            settings: settings.clone(),
            reads: None,
            reached: BTreeMap::new(),
            told: 0,
        }
    }

    /// Whether a time-out of this length may have ended since.
    pub(crate) fn may_have_passed(&self, since: u64, timeout: Duration) -> bool {
        self.now - since + TICK_NS > ns(timeout)
    }

    /// Whether a connection may have been reset since, because its client had not read all of its last bytes in time.
    pub(crate) fn may_have_lingered(&self, since: u64) -> bool {
        self.may_have_passed(since, self.settings.linger_timeout)
    }

    /// Whether a connection may have been reset since, because its client took nothing of what was queued for it.
    pub(crate) fn may_have_stalled(&self, since: u64) -> bool {
        self.may_have_passed(since, self.settings.stall_timeout)
    }

    /// Whether there may have been no memory for somebody who has not connected.
    pub(crate) fn may_end_strangers(&self) -> bool {
        self.is_tight || self.are_strangers_tight
    }

    pub(crate) fn note(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// The next moment.
    pub(super) fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A new publication of the application.
    pub(super) fn issue(&mut self, room: usize, is_skipped: bool) -> usize {
        let has_place = self.rules[room].has_history && !is_skipped;
        self.streams[room].issued += 1;
        self.ledger.attempt(room, None, has_place)
    }

    /// A new publication of a client.
    pub(crate) fn issue_by(&mut self, room: usize, publisher: Option<(usize, u64)>) -> usize {
        self.streams[room].issued += 1;
        let has_place = self.rules[room].has_history;
        self.ledger.attempt(room, publisher, has_place)
    }

    /// A publication has a place: no other has it, and it has no other.
    pub(super) fn place(&mut self, room: usize, at: StreamOffset, number: usize) {
        self.ledger.note(room, at.epoch, at.offset, number);
    }

    /// Takes answers to publications of the application. True if there was one.
    pub(super) fn take_replies(&mut self, replies: &Replies) -> bool {
        let replies = replies.take_others();
        let is_moving = !replies.is_empty();
        for (id, position) in replies {
            self.ledger.take_reply(id, position);
        }
        is_moving
    }

    /// All tops that are known now of a room.
    pub(super) fn tops(&self, room: usize) -> HashMap<[u8; 8], u64> {
        self.ledger.tops(room)
    }

    // Rooms.

    /// A channel for somebody who reads anything.
    pub(crate) fn draw_room(&self, prng: &mut Prng) -> usize {
        match self.profile {
            Profile::Readers => prng.below(STREAMS),
            Profile::Sessions => prng.between(DRAWN, ROOMS.len() - 1),
            Profile::Together if prng.one_in(2) => self.focus,
            Profile::Together => prng.below(ROOMS.len()),
        }
    }

    /// A channel for somebody who reads JSON and nothing else.
    pub(crate) fn draw_json_room(&self, prng: &mut Prng) -> usize {
        let room = self.draw_room(prng);
        if self.is_json(room) {
            return room;
        }
        prng.between(DRAWN, ROOMS.len() - 1)
    }

    /// Whether all of a channel's publications are JSON.
    pub(crate) fn is_json(&self, room: usize) -> bool {
        ROOMS[room].kind == Kind::Json
    }

    /// Whether a channel may have had no history at some time, although its namespace has one.
    pub(crate) fn has_lost_history(&self, room: usize) -> bool {
        self.takings[room].history
    }

    /// Whether a channel's namespace may be unknown.
    pub(crate) fn may_be_unknown(&self, room: usize) -> bool {
        self.takings[room].namespace
    }

    pub(crate) fn has_lost_namespaces(&self) -> bool {
        self.takings.iter().any(|taken| taken.namespace)
    }

    /// Whether a channel may have been a stream that ended, with everything that it kept.
    pub(crate) fn may_have_ended(&self, room: usize) -> bool {
        self.streams[room].deleted_at.is_some()
            || ROOMS[room].lasts != Lasts::Forever
            || self.has_lost_history(room)
    }

    /// Whether nothing but a channel's size, and the most that a client recovers, takes publications from somebody who comes back.
    pub(crate) fn keeps_all_that_fits(&self, room: usize) -> bool {
        let rules = self.rules[room];
        let is_taken = self.takings[room].publications;
        let loses = is_taken || rules.is_aging || rules.is_forgotten || self.may_have_ended(room);
        !loses && !self.is_tight && !self.is_forgetful && !self.is_draining
    }

    /// Whether there may have been no such stream since some moment. `is_used` says that somebody has read it all the time.
    pub(super) fn may_be_missing(&self, room: usize, since: u64, is_used: bool) -> bool {
        let stream = &self.streams[room];
        let is_forgotten = self.is_forgetful || self.rules[room].is_forgotten;
        let may_expire = match ROOMS[room].lasts {
            Lasts::Forever => is_forgotten && !is_used,
            Lasts::WhileUsed => !is_used,
            Lasts::Until => true,
        };
        let is_taken = self.has_lost_history(room);
        may_expire || is_taken || !stream.is_known || stream.missing_until >= since
    }

    /// Whether what follows a position may be kept no more.
    pub(super) fn may_be_trimmed(&self, room: usize) -> bool {
        let rules = self.rules[room];
        let is_short = self.streams[room].issued > rules.size;
        let may_age = rules.is_aging || rules.is_forgotten || self.is_forgetful;
        let is_taken = self.takings[room].publications;
        self.may_have_ended(room) || is_short || may_age || is_taken
    }

    /// A stream is known to exist, by an answer to what was sent at some moment.
    pub(super) fn confirm(&mut self, room: usize, sent: u64) {
        let moment = self.tick();
        let stream = &mut self.streams[room];
        if stream.deleted_at.is_none_or(|at| at < sent) && !stream.is_known {
            stream.is_known = true;
            stream.missing_until = moment;
        }
    }
}
