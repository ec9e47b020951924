//! A subscription of a client: what it has got, and what it should have got.

use super::TAG;
use super::ledger::{Attempt, EpochName, Ledger, Owner, epoch_named};
use crate::channels::Facts;
use myriad_wire::centrifuge::client::{Publication, Subscribed};
use myriad_wire::centrifuge::{Data, Encoding, apply_delta};
use std::collections::{HashMap, HashSet};

/// No epoch of this server.
pub(super) const ELSEWHERE: &str = "elsewhere";

/// A place that a client was not given.
#[derive(Debug)]
pub(super) struct LeftOut {
    room: usize,
    epoch: EpochName,
    offset: u64,
    /// Whose publications did not come.
    own: Option<Owner>,
    /// The only ones that its filter lets pass.
    tag: Option<&'static str>,
}

impl LeftOut {
    /// There was a reason. The end of a stream takes a place, too.
    pub(super) fn check(&self, ledger: &Ledger) {
        let number = ledger.at(self.room, self.epoch, self.offset);
        let is_right = number.is_none_or(|number| {
            let attempt = &ledger.attempts[number];
            self.own.is_some() && attempt.publisher == self.own || !passes(self.tag, attempt)
        });
        assert!(is_right, "left out: {self:?}");
    }
}

fn passes(filter: Option<&'static str>, attempt: &Attempt) -> bool {
    filter.is_none_or(|tag| attempt.tag == Some(tag))
}

/// A subscription that was answered.
#[derive(Debug, Default)]
pub(super) struct Subscription {
    /// Who asked for it, and with which command; nobody of a listener's.
    asker: Option<Owner>,
    command: u32,
    /// Everything published later comes to it.
    live_at: u64,
    pub(super) epoch: EpochName,
    pub(super) last: u64,
    /// Everything after this place comes to it.
    begin: u64,
    /// Its publications have offsets.
    has_places: bool,
    has_deltas: bool,
    base: Option<Vec<u8>>,
    seen: HashSet<usize>,
    /// The only publications that its filter lets pass.
    pub(super) tag: Option<&'static str>,
    /// Whether each other client is there, as far as it was told.
    pub(super) members: HashMap<String, bool>,
}

/// Checks the answer to a client that was at `since`.
pub(super) fn check_recovery(
    room: usize,
    subscribed: &Subscribed<'_>,
    since: &(String, u64),
    facts: &mut Facts,
) {
    let (epoch, offset) = since;
    if subscribed.recovered {
        facts.note("sessions: a client recovers");
        assert_eq!((&*subscribed.epoch, subscribed.offset), (&**epoch, *offset));
        return;
    }
    facts.note("sessions: a client cannot recover");
    if epoch == ELSEWHERE {
        facts.note("sessions: a client comes from elsewhere");
    }
    assert!(subscribed.publications.is_empty());
    if facts.keeps_all_that_fits(room) && epoch != ELSEWHERE {
        assert_eq!(subscribed.epoch, *epoch);
        let missed = subscribed.offset - offset;
        let most = u64::from(facts.rules[room].recovered_max);
        assert!(missed > most, "{missed} missed could be recovered");
    }
}

impl Subscription {
    pub(super) fn new(
        (asker, command): (Owner, u32),
        subscribed: &Subscribed<'_>,
        tag: Option<&'static str>,
        live_at: u64,
    ) -> Self {
        Self {
            asker: Some(asker),
            command,
            live_at,
            epoch: if subscribed.positioned {
                epoch_named(&subscribed.epoch)
            } else {
                EpochName::default()
            },
            last: subscribed.offset,
            begin: subscribed.offset,
            has_places: subscribed.positioned,
            has_deltas: subscribed.delta,
            tag,
            ..Self::default()
        }
    }

    /// One that gets data and nothing else.
    pub(super) fn bare(live_at: u64) -> Self {
        Self {
            live_at,
            ..Self::default()
        }
    }

    /// Whether its publications have offsets that it can recover from.
    pub(super) fn is_positioned(&self) -> bool {
        self.has_places
    }

    /// The position that it would recover from.
    pub(super) fn position(&self) -> (String, u64) {
        (String::from_utf8_lossy(&self.epoch).into_owned(), self.last)
    }

    /// Checks the answer in a channel of which the newest publication is recovered, to a client that was at `since`.
    pub(super) fn check_newest(
        &self,
        room: usize,
        subscribed: &Subscribed<'_>,
        since: &(String, u64),
        facts: &mut Facts,
    ) {
        if !subscribed.recovered {
            facts.note("sessions: no publication is kept to recover");
            assert!(subscribed.publications.is_empty());
            let is_new = subscribed.offset == 0;
            assert!(
                is_new || !facts.keeps_all_that_fits(room),
                "the newest is kept"
            );
            return;
        }
        let (epoch, offset) = since;
        match &subscribed.publications[..] {
            [newest] => {
                facts.note("sessions: a client recovers the newest publication");
                let is_known = subscribed.epoch == *epoch && newest.offset == *offset;
                assert!(!is_known, "it has the newest");
                assert_eq!(subscribed.offset, newest.offset, "not the client's own");
            }
            [] if self.tag.is_some() => {}
            [] => {
                facts.note("sessions: a client has the newest publication");
                assert_eq!((&*subscribed.epoch, subscribed.offset), (&**epoch, *offset));
            }
            more => panic!("{} publications of a cache", more.len()),
        }
    }

    /// The places between `before` and the last one, which came right after it.
    pub(super) fn left_out_after(
        &self,
        before: u64,
        room: usize,
        own: Option<Owner>,
    ) -> Vec<LeftOut> {
        let left_out = |offset| self.left_out(room, offset, own);
        (before + 1..self.last).map(left_out).collect()
    }

    fn left_out(&self, room: usize, offset: u64, own: Option<Owner>) -> LeftOut {
        LeftOut {
            room,
            epoch: self.epoch,
            offset,
            own,
            tag: self.tag,
        }
    }

    /// Takes a publication in; its number.
    pub(super) fn take(
        &mut self,
        room: usize,
        publication: &Publication<'_>,
        encoding: Encoding,
        facts: &mut Facts,
    ) -> usize {
        let told = match (publication.data, encoding) {
            (Data::Json(text), Encoding::Json) if self.has_deltas => {
                let text: String = serde_json::from_str(text).expect("a string");
                text.into_bytes()
            }
            (data, _) => data.as_bytes().to_vec(),
        };
        let data = if publication.delta {
            facts.note("sessions: a delta is applied");
            let base = self.base.as_ref().expect("a base");
            apply_delta(base, &told, usize::MAX).expect("a delta to the one before")
        } else {
            told
        };
        let number = self.take_data(&data, facts);
        let attempt = &facts.ledger.attempts[number];
        assert_eq!(attempt.room, room, "{number} is of another channel");
        assert!(passes(self.tag, attempt), "{number} does not pass");
        let tag = publication.tags.get(TAG).map(|tag| &**tag);
        assert_eq!(tag, attempt.tag, "with its tag");
        if attempt.has_place && self.has_places && publication.offset > 0 {
            facts
                .ledger
                .note(room, self.epoch, publication.offset, number);
            self.last = publication.offset;
        } else {
            // A channel that got its history later tells offsets to those, too, whose subscription has no position.
            let has_changed = !self.has_places && facts.has_lost_history(room);
            assert!(
                publication.offset == 0 || has_changed,
                "no place, so no offset"
            );
            let may_lack = !attempt.has_place || !self.has_places || facts.has_lost_history(room);
            assert!(may_lack, "{number} has a place, and comes without");
            if self.has_places {
                facts.note("sessions: a publication without a place comes");
            }
        }
        self.base = self.has_deltas.then_some(data);
        number
    }

    /// Takes the data of a publication in; its number.
    pub(super) fn take_data(&mut self, data: &[u8], facts: &Facts) -> usize {
        let number = facts.ledger.number_of(data);
        assert!(self.seen.insert(number), "{number} comes once");
        number
    }

    /// The client was told that its command has ended the subscription. Its own publications before that must have come. False if it
    /// has none.
    pub(super) fn check_has_own(&self, room: usize, command: u32, ledger: &Ledger) -> bool {
        let mut has_own = false;
        for (number, attempt) in ledger.attempts.iter().enumerate() {
            let is_due = attempt.room == room
                && self.is_behind(attempt)
                && attempt.command < command
                && attempt.is_acknowledged
                && passes(self.tag, attempt);
            if is_due {
                has_own = true;
                assert!(
                    self.seen.contains(&number),
                    "{number} of channel {room} did not come before the end"
                );
            }
        }
        has_own
    }

    /// Whether the client itself published it, with a command after that for the subscription.
    fn is_behind(&self, attempt: &Attempt) -> bool {
        self.asker.is_some() && attempt.publisher == self.asker && attempt.command > self.command
    }

    /// Nothing is under way: everything has come that was published later, or by the client itself behind its command.
    pub(super) fn check_has_all(&self, room: usize, own: Option<Owner>, ledger: &Ledger) {
        for (number, attempt) in ledger.attempts.iter().enumerate() {
            let is_due = attempt.room == room
                && attempt.is_acknowledged
                && (attempt.at > self.live_at || self.is_behind(attempt))
                && passes(self.tag, attempt);
            let is_left_out = own.is_some() && attempt.publisher == own;
            assert!(
                !is_due || is_left_out || self.seen.contains(&number),
                "{number} of channel {room} is missing"
            );
        }
    }

    /// Nothing is under way: everything has come that has a place behind the one at which it began.
    pub(super) fn check_has_places(&self, room: usize, own: Option<Owner>, ledger: &Ledger) {
        if !self.has_places {
            return;
        }
        for offset in self.begin + 1..=ledger.top(room, self.epoch) {
            let number = ledger.at(room, self.epoch, offset);
            if number.is_some_and(|number| !self.seen.contains(&number)) {
                self.left_out(room, offset, own).check(ledger);
            }
        }
    }
}
