//! A subscription of a client: what it has got, and what it should have got.

use crate::ledger::{Attempt, Ledger};
use crate::plan::{Plan, TAG, has_history};
use myriad_wire::centrifuge::client::{Publication, Subscribed};
use myriad_wire::centrifuge::{Data, Encoding, apply_delta};
use std::collections::{HashMap, HashSet};

/// No epoch of this server.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// A client and its connection.
type Owner = (usize, u64);

/// A place that a client was not given.
#[derive(Debug)]
pub(crate) struct LeftOut {
    channel: usize,
    epoch: String,
    offset: u64,
    /// Whose publications did not come.
    own: Option<Owner>,
    /// The only ones that its filter lets pass.
    kind: Option<&'static str>,
}

impl LeftOut {
    /// There was a reason.
    pub(crate) fn check(&self, ledger: &Ledger) {
        let number = ledger.at(self.channel, &self.epoch, self.offset);
        let is_right = number.is_none_or(|number| {
            let attempt = &ledger.attempts[number];
            self.own.is_some() && attempt.publisher == self.own || !passes(self.kind, attempt)
        });
        assert!(is_right, "left out: {self:?}");
    }
}

fn passes(filter: Option<&'static str>, attempt: &Attempt) -> bool {
    filter.is_none_or(|kind| attempt.kind == Some(kind))
}

/// A subscription that was answered.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Its client's command.
    command: u32,
    /// Everything published later comes to it.
    live_at: u64,
    pub(crate) epoch: String,
    pub(crate) last: u64,
    /// Everything after this place comes to it.
    begin: u64,
    has_deltas: bool,
    base: Option<Vec<u8>>,
    seen: HashSet<usize>,
    /// The only publications that its filter lets pass.
    pub(crate) kind: Option<&'static str>,
    /// Whether each other client is there, as far as it was told.
    pub(crate) members: HashMap<String, bool>,
}

/// Checks the answer to a client that was at `since`.
pub(crate) fn check_recovery(
    subscribed: &Subscribed<'_>,
    since: &(String, u64),
    plan: &Plan,
    count: &mut impl FnMut(&'static str),
) {
    let (epoch, offset) = since;
    if subscribed.recovered {
        count("a client recovers");
        assert_eq!((&*subscribed.epoch, subscribed.offset), (&**epoch, *offset));
        return;
    }
    count("a client cannot recover");
    if epoch == ELSEWHERE {
        count("a client comes from elsewhere");
    }
    assert!(subscribed.publications.is_empty());
    if plan.is_roomy && epoch != ELSEWHERE {
        assert_eq!(subscribed.epoch, *epoch);
        let missed = subscribed.offset - offset;
        let most = u64::from(plan.recovered_max);
        assert!(missed > most, "{missed} missed could be recovered");
    }
}

impl Subscription {
    pub(crate) fn new(
        command: u32,
        subscribed: &Subscribed<'_>,
        kind: Option<&'static str>,
        live_at: u64,
    ) -> Self {
        Self {
            command,
            live_at,
            epoch: subscribed.epoch.clone().into_owned(),
            last: subscribed.offset,
            begin: subscribed.offset,
            has_deltas: subscribed.delta,
            kind,
            ..Self::default()
        }
    }

    /// Checks the answer in a channel of which the newest publication is recovered, to a client that was at `since`.
    pub(crate) fn check_newest(
        &mut self,
        subscribed: &Subscribed<'_>,
        since: &(String, u64),
        plan: &Plan,
        count: &mut impl FnMut(&'static str),
    ) {
        if !subscribed.recovered {
            count("no publication is kept to recover");
            assert!(subscribed.publications.is_empty());
            let is_new = subscribed.offset == 0;
            assert!(is_new || !plan.is_roomy, "the newest is kept");
            return;
        }
        let (epoch, offset) = since;
        match &subscribed.publications[..] {
            [newest] => {
                count("a client recovers the newest publication");
                let is_known = subscribed.epoch == *epoch && newest.offset == *offset;
                assert!(!is_known, "it has the newest");
                assert_eq!(subscribed.offset, newest.offset, "not the client's own");
            }
            [] if self.kind.is_some() => {}
            [] => {
                count("a client has the newest publication");
                assert_eq!((&*subscribed.epoch, subscribed.offset), (&**epoch, *offset));
            }
            more => panic!("{} publications of a cache", more.len()),
        }
    }

    /// The places between `before` and the last one, which came right after it.
    pub(crate) fn left_out_after(
        &self,
        before: u64,
        channel: usize,
        own: Option<Owner>,
    ) -> Vec<LeftOut> {
        let left_out = |offset| LeftOut {
            channel,
            epoch: self.epoch.clone(),
            offset,
            own,
            kind: self.kind,
        };
        (before + 1..self.last).map(left_out).collect()
    }

    /// Takes a publication in; its number.
    pub(crate) fn take(
        &mut self,
        channel: usize,
        publication: &Publication<'_>,
        ledger: &mut Ledger,
        encoding: Encoding,
        count: &mut impl FnMut(&'static str),
    ) -> usize {
        let told = match (publication.data, encoding) {
            (Data::Json(text), Encoding::Json) if self.has_deltas => {
                let text: String = serde_json::from_str(text).expect("a string");
                text.into_bytes()
            }
            (data, _) => data.as_bytes().to_vec(),
        };
        let data = if publication.delta {
            count("a delta is applied");
            let base = self.base.as_ref().expect("a base");
            apply_delta(base, &told, usize::MAX).expect("a delta to the one before")
        } else {
            told
        };
        let number = ledger.number_of(&data);
        assert!(self.seen.insert(number), "{number} comes once");
        let attempt = &ledger.attempts[number];
        assert!(passes(self.kind, attempt), "{number} does not pass");
        let kind = publication.tags.get(TAG).map(|kind| &**kind);
        assert_eq!(kind, attempt.kind, "with its tag");
        if attempt.has_place {
            ledger.note(channel, &self.epoch, publication.offset, number);
            self.last = publication.offset;
        } else {
            assert_eq!(publication.offset, 0, "no place, so no offset");
            if has_history(channel) {
                count("a publication without a place comes");
            }
        }
        self.base = self.has_deltas.then_some(data);
        number
    }

    /// The client was told that its command has ended the subscription. Its own publications before that must have come. False if it
    /// has none.
    pub(crate) fn check_has_own(
        &self,
        channel: usize,
        client: Owner,
        command: u32,
        ledger: &Ledger,
    ) -> bool {
        let mut has_own = false;
        for (number, attempt) in ledger.attempts.iter().enumerate() {
            let is_own = attempt.channel == channel
                && attempt.publisher == Some(client)
                && (self.command..command).contains(&attempt.command);
            if is_own && attempt.is_acknowledged && passes(self.kind, attempt) {
                has_own = true;
                assert!(
                    self.seen.contains(&number),
                    "{number} of channel {channel} did not come before the end"
                );
            }
        }
        has_own
    }

    /// Nothing is under way: everything has come that was published later, or by the client itself behind its command.
    pub(crate) fn check_has_all(
        &self,
        channel: usize,
        client: Owner,
        own: Option<Owner>,
        ledger: &Ledger,
    ) {
        for (number, attempt) in ledger.attempts.iter().enumerate() {
            let is_due = attempt.channel == channel
                && attempt.is_acknowledged
                && (attempt.at > self.live_at
                    || attempt.publisher == Some(client) && attempt.command > self.command)
                && passes(self.kind, attempt);
            let is_left_out = own.is_some() && attempt.publisher == own;
            assert!(
                !is_due || is_left_out || self.seen.contains(&number),
                "{number} of channel {channel} is missing"
            );
        }
    }

    /// Nothing is under way: everything has come that has a place behind the one at which it began.
    pub(crate) fn check_has_places(&self, channel: usize, own: Option<Owner>, ledger: &Ledger) {
        if !has_history(channel) {
            return;
        }
        for offset in self.begin + 1..=ledger.top(channel, &self.epoch) {
            let number = ledger.at(channel, &self.epoch, offset);
            let is_missing = number.is_some_and(|number| !self.seen.contains(&number));
            if is_missing {
                let left_out = LeftOut {
                    channel,
                    epoch: self.epoch.clone(),
                    offset,
                    own,
                    kind: self.kind,
                };
                left_out.check(ledger);
            }
        }
    }
}
