//! What writers did to streams, and what all readers together were told of them.

use super::limited::Rate;
use crate::plan::{Plan, ROOMY};
use crate::verdict::{TICK_NS, ns};
use myriad_shard::{Settings, StreamOffset};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// How a stream's data looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Text,
    Bytes,
}

/// How a stream ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    Forever,
    /// Until it is not used.
    WhileUsed,
    /// Until some time.
    Until,
}

/// A channel that is a stream at times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) lasts: Lasts,
}

impl Room {
    /// Whether publications wait for others before they are delivered.
    pub(super) fn is_batched(self) -> bool {
        self.name.starts_with('b')
    }
}

const fn room(name: &'static str, kind: Kind, lasts: Lasts) -> Room {
    Room { name, kind, lasts }
}

/// Of the namespace `h`, which keeps all; of `t`, which keeps few; of `b`, where batches leave; of `e`, where publications age.
pub(super) const ROOMS: [Room; 8] = [
    room("h:json", Kind::Json, Lasts::Forever),
    room("h:text", Kind::Text, Lasts::Forever),
    room("h:bytes", Kind::Bytes, Lasts::Forever),
    room("t:few", Kind::Json, Lasts::Forever),
    room("b:batched", Kind::Json, Lasts::Forever),
    room("h:idle", Kind::Json, Lasts::WhileUsed),
    room("h:until", Kind::Json, Lasts::Until),
    room("e:aging", Kind::Json, Lasts::Forever),
];
/// Publications that the namespace `t` keeps.
pub(super) const FEW: u32 = 4;

/// What is known of a channel as a stream. Moments are counted by [`Facts::moment`].
#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    /// By what was sent last, it exists.
    pub(super) is_wanted: bool,
    /// When it was last to be deleted.
    pub(super) deleted_at: Option<u64>,
    /// It may have been missing until this moment.
    pub(super) missing_until: u64,
    /// Since then it is known to exist.
    pub(super) is_known: bool,
    /// Somebody wanted to close it since it was last created.
    pub(super) may_be_closed: bool,
    /// Publications that somebody tried to make.
    pub(super) issued: u64,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) streams: [Stream; ROOMS.len()],
    /// The publication at each position that somebody was told of.
    places: HashMap<(usize, [u8; 8], u64), usize>,
    /// Where each publication is; its room, and whether history skips it.
    publications: Vec<(usize, bool, Option<StreamOffset>)>,
    /// The highest offset that was given out, by room and epoch.
    tops: HashMap<(usize, [u8; 8]), u64>,
    /// The stream that readers ask for most: one that was just created again.
    pub(super) focus: usize,
    /// Counts what happens.
    pub(super) moment: u64,
    pub(super) now: u64,
    pub(super) is_draining: bool,
    /// Histories have little room: all of a channel may be forgotten.
    pub(super) is_forgetful: bool,
    /// Connections have little room.
    pub(super) is_tight: bool,
    pub(super) settings: Settings,
    /// Requests on one connection.
    pub(super) reads: Option<Rate>,
    pub(super) reached: BTreeMap<&'static str, u64>,
    /// Publications that readers were told.
    pub(super) told: u64,
}

impl Facts {
    pub(super) fn new(plan: &Plan) -> Self {
        let settings = &plan.settings;
        Self {
            streams: Default::default(),
            places: HashMap::new(),
            publications: Vec::new(),
            tops: HashMap::new(),
            focus: 0,
            moment: 1,
            now: plan.start,
            is_draining: false,
            is_forgetful: plan.limits.history_bytes_max < ROOMY,
            is_tight: settings.outbound_bytes_max < 1 << 20 || plan.is_tight(),
            settings: settings.clone(),
            reads: None,
            reached: BTreeMap::new(),
            told: 0,
        }
    }

    /// Whether a time-out of this length may have ended since.
    pub(super) fn may_have_passed(&self, since: u64, timeout: Duration) -> bool {
        self.now - since + TICK_NS > ns(timeout)
    }

    /// Whether a connection may have been reset since, because its client had not read all of its last bytes in time.
    pub(super) fn may_have_lingered(&self, since: u64) -> bool {
        self.may_have_passed(since, self.settings.linger_timeout)
    }

    /// Whether a connection may have been reset since, because its client took nothing of what was queued for it.
    pub(super) fn may_have_stalled(&self, since: u64) -> bool {
        self.may_have_passed(since, self.settings.stall_timeout)
    }

    pub(super) fn note(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// The next moment.
    pub(super) fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A new publication in a room.
    pub(super) fn issue(&mut self, room: usize, is_skipped: bool) -> usize {
        self.publications.push((room, is_skipped, None));
        self.streams[room].issued += 1;
        self.publications.len() - 1
    }

    /// A publication has a place: no other has it, and it has no other.
    pub(super) fn place(&mut self, room: usize, at: StreamOffset, number: usize) {
        let publication = &mut self.publications[number];
        assert_eq!(publication.0, room, "{number} is of another stream");
        assert!(!publication.1, "{number} has a place, and is not kept");
        let known = *publication.2.get_or_insert(at);
        assert_eq!(known, at, "{number} has one place");
        let there = *self
            .places
            .entry((room, at.epoch, at.offset))
            .or_insert(number);
        assert_eq!(there, number, "one publication is at {at}");
        let top = self.tops.entry((room, at.epoch)).or_default();
        *top = at.offset.max(*top);
    }

    /// All tops that are known now of a room.
    pub(super) fn tops(&self, room: usize) -> HashMap<[u8; 8], u64> {
        let of_room = self.tops.iter().filter(|((of, _), _)| *of == room);
        of_room.map(|((_, epoch), top)| (*epoch, *top)).collect()
    }

    /// Whether there may have been no such stream since some moment. `is_used` says that somebody has read it all the time.
    pub(super) fn may_be_missing(&self, room: usize, since: u64, is_used: bool) -> bool {
        let stream = &self.streams[room];
        let may_expire = match ROOMS[room].lasts {
            Lasts::Forever => self.is_forgetful && !is_used,
            Lasts::WhileUsed => !is_used,
            Lasts::Until => true,
        };
        may_expire || !stream.is_known || stream.missing_until >= since
    }

    /// Whether what follows a position may be kept no more.
    pub(super) fn may_be_trimmed(&self, room: usize) -> bool {
        let stream = &self.streams[room];
        let may_end = stream.deleted_at.is_some() || ROOMS[room].lasts != Lasts::Forever;
        let is_short = ROOMS[room].name.starts_with('t') && stream.issued > u64::from(FEW);
        may_end || is_short || ROOMS[room].name.starts_with('e') || self.is_forgetful
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
