//! Subscribers and publishers of the simulated cluster, and what they must be told.
//!
//! A subscriber may lack something only if it was told so. It may be told a little later: what counts is the end of the run, when it has
//! all that came since it began, or since it was told last.

use super::CHANNELS;
use super::reached::Reached;
use super::truth::{Truth, What};
use myriad_hub::{Delivery, HomeEffect, NotRecovered, Recovered};
use myriad_shard::{Asker, Epoch, HistoryAnswer, Kept, NotPublished, Payload, Position, Wanting};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Where a subscriber is with its node.
#[derive(Debug)]
enum Stage {
    /// It has no node, or its subscription has ended.
    Away,
    /// It has joined, and waits for the answer.
    Joining,
    /// It waits for what it missed; what has come meanwhile, by offset.
    Recovering(Vec<(u64, u64)>),
    Live,
}

/// A subscriber of one channel.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) channel: usize,
    /// The number of its node.
    pub(super) node: Option<u64>,
    /// It comes to no node before.
    away_until: Option<Instant>,
    stage: Stage,
    /// Of its last join.
    pub(super) serial: u32,
    /// The last position that it knows.
    position: Option<Position>,
    /// Where it began, or begins again because something is missing.
    began: u64,
    /// What it got since.
    got: Vec<u64>,
}

impl Subscriber {
    fn new(channel: usize) -> Self {
        Self {
            channel,
            node: None,
            away_until: None,
            stage: Stage::Away,
            serial: 0,
            position: None,
            began: 0,
            got: Vec::new(),
        }
    }

    pub(super) fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }

    /// It comes to no node for a while.
    pub(super) fn stay_away(&mut self, until: Instant) {
        self.away_until = Some(until);
    }

    pub(super) fn stays_away(&self) -> bool {
        self.away_until.is_some_and(|until| Instant::now() < until)
    }

    /// It joins at a node, and recovers if it has a position.
    pub(super) fn begin(&mut self, node: u64) {
        self.serial += 1;
        self.node = Some(node);
        self.stage = Stage::Joining;
    }

    pub(super) fn leave(&mut self) {
        self.serial += 1;
        self.node = None;
        self.stage = Stage::Away;
    }

    /// Begins at a position: what came before is of no interest, or known to be missing.
    fn begin_at(&mut self, position: Position) {
        self.position = Some(position);
        self.began = position.offset;
        self.got.clear();
    }

    fn handle_publication(&mut self, truth: &Truth, offset: u64, publication: u64) {
        match &mut self.stage {
            Stage::Recovering(meanwhile) => meanwhile.push((offset, publication)),
            // A batch may begin before the subscriber does.
            Stage::Live if self.got.is_empty() && offset <= self.began => {}
            Stage::Live => self.take(truth, offset, publication),
            Stage::Joining | Stage::Away => {}
        }
    }

    fn take(&mut self, truth: &Truth, offset: u64, publication: u64) {
        let position = self.position.as_mut().expect("it has begun");
        let channel = CHANNELS[self.channel];
        let last = position.offset;
        assert!(offset > last, "{channel}: {offset} came after {last}");
        assert!(
            truth.has(publication, offset),
            "{channel}: {publication} was never at {offset}"
        );
        position.offset = offset;
        self.got.push(publication);
    }
}

/// A publication, as its publisher knows it.
#[derive(Debug)]
pub(super) struct Published {
    /// The number of the node where it was published.
    pub(super) node: u64,
    pub(super) channel: usize,
    /// Others with the same key are the same publication.
    pub(super) key: Option<u64>,
    /// It is left out behind one with a later version.
    pub(super) has_version: bool,
    pub(super) answer: Option<Result<Position, NotPublished>>,
}

/// What a subscriber does next.
#[derive(Debug)]
pub(super) enum Next {
    /// It asks its home what it missed.
    Recover { subscriber: usize, since: Position },
    /// It was told that its node is behind, and leaves.
    Leave { subscriber: usize },
}

/// What histories have at the end.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// What was published behind this place of the log.
    behind: u64,
    /// Or so much of it.
    history_size: usize,
}

/// All subscribers and publishers. Each subscriber is a shard of its node.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) publications: BTreeMap<u64, Published>,
    /// Who has a history removed: its node, and the answer.
    pub(super) removals: BTreeMap<u64, (u64, Option<bool>)>,
    /// The numbers of nodes that hear by channel.
    hearers: BTreeSet<u64>,
    /// None before the end.
    expected: Option<Expected>,
    pub(super) reached: Reached,
    /// Of all that subscribers got.
    pub(super) trace: u64,
}

impl Crowd {
    pub(super) fn new(subscribers: usize) -> Self {
        let subscribers = (0..subscribers).map(|one| Subscriber::new(one % CHANNELS.len()));
        Self {
            subscribers: subscribers.collect(),
            publications: BTreeMap::new(),
            removals: BTreeMap::new(),
            hearers: BTreeSet::new(),
            expected: None,
            reached: Reached::default(),
            trace: 0,
        }
    }

    /// A node begins that hears by channel.
    pub(super) fn note_hearer(&mut self, node: u64) {
        self.hearers.insert(node);
    }

    /// A home wants something of a channel.
    pub(super) fn note_wish(&mut self, wanting: Wanting) {
        let reached = &mut self.reached.by_channel;
        match wanting {
            Wanting::Hear => reached.wanted += 1,
            Wanting::Nothing => reached.unwanted += 1,
            Wanting::Confirm(_) => reached.confirmed += 1,
        }
    }

    /// All come back who stay away.
    pub(super) fn call_back(&mut self) {
        let subscribers = self.subscribers.iter_mut();
        subscribers.for_each(|subscriber| subscriber.away_until = None);
    }

    /// From now on, histories have what was published behind a place of the log, as far as they are so long.
    pub(super) fn expect_histories(&mut self, behind: u64, history_size: usize) {
        self.expected = Some(Expected {
            behind,
            history_size,
        });
    }

    /// What a node's home says. Returns what a subscriber does next.
    pub(super) fn handle(&mut self, truth: &Truth, node: u64, effect: HomeEffect) -> Option<Next> {
        match effect {
            HomeEffect::Joined {
                shard,
                serial,
                position,
                ..
            } => {
                let is_current = u64::from(self.subscribers[shard].serial) == serial;
                return is_current.then(|| self.handle_joined(shard, position))?;
            }
            HomeEffect::NotJoined { shard, serial, .. } => {
                if u64::from(self.subscribers[shard].serial) != serial {
                    return None;
                }
                self.reached.not_joined += 1;
                return Some(Next::Leave { subscriber: shard });
            }
            HomeEffect::Recovered(recovered) => {
                return self.handle_recovered(truth, node, recovered);
            }
            HomeEffect::Deliver { delivery, shards } => {
                for shard in shards.iter() {
                    self.handle_delivery(truth, node, shard, &delivery);
                }
            }
            HomeEffect::History { asker, answer } => {
                self.handle_history(truth, node, asker, answer);
            }
            HomeEffect::Held { .. } => {}
            other => panic!("{other:?}"),
        }
        None
    }

    fn handle_joined(&mut self, shard: usize, position: Position) -> Option<Next> {
        let subscriber = &mut self.subscribers[shard];
        let Some(since) = subscriber.position else {
            subscriber.begin_at(position);
            subscriber.stage = Stage::Live;
            return None;
        };
        subscriber.stage = Stage::Recovering(Vec::new());
        Some(Next::Recover {
            subscriber: shard,
            since,
        })
    }

    fn handle_recovered(&mut self, truth: &Truth, node: u64, recovered: Recovered) -> Option<Next> {
        let Recovered {
            ticket,
            position,
            publications,
            ..
        } = recovered;
        let index = usize::from(ticket.shard);
        let subscriber = &mut self.subscribers[index];
        if subscriber.serial != ticket.command || subscriber.node != Some(node) {
            return None;
        }
        let meanwhile = match std::mem::replace(&mut subscriber.stage, Stage::Live) {
            Stage::Recovering(meanwhile) => meanwhile,
            // Its subscription has ended since.
            other => {
                subscriber.stage = other;
                return None;
            }
        };
        let known = subscriber.position.expect("it recovers from somewhere");
        if publications == Err(NotRecovered::Behind) {
            self.reached.behind += 1;
            return Some(Next::Leave { subscriber: index });
        }
        if let Ok(missed) = publications {
            assert_eq!(known.epoch, position.epoch, "another epoch says nothing");
            for kept in missed {
                subscriber.take(truth, kept.offset, number_of(&kept.content.payload));
            }
            subscriber.position = Some(position);
            self.reached.recovered += 1;
            let is_by_channel = self.hearers.contains(&node);
            self.reached.by_channel.recovered += u64::from(is_by_channel);
        } else {
            // Nothing is lost that has a later place: what it has seen would come again.
            let is_older = position.epoch == known.epoch && position.offset < known.offset;
            assert!(
                !is_older || !truth.is_whole(),
                "subscriber {index} knows {known:?}, and is to begin at {position:?}"
            );
            subscriber.begin_at(position);
            self.reached.unrecovered += 1;
        }
        for (offset, publication) in meanwhile {
            if offset > position.offset {
                subscriber.take(truth, offset, publication);
            }
        }
        None
    }

    fn handle_delivery(&mut self, truth: &Truth, node: u64, shard: usize, delivery: &Delivery) {
        let subscriber = &mut self.subscribers[shard];
        assert_eq!(subscriber.node, Some(node), "it is elsewhere");
        assert_eq!(**delivery.channel(), *CHANNELS[subscriber.channel]);
        if matches!(delivery, Delivery::Lost(_)) {
            subscriber.stage = Stage::Away;
            self.reached.lost += 1;
        }
        for publication in delivery.publications() {
            let number = number_of(&publication.content().payload);
            subscriber.handle_publication(truth, publication.offset(), number);
            self.reached.deliveries += 1;
            let step = number ^ publication.offset().rotate_left(20) ^ shard as u64;
            self.trace = (self.trace ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn handle_history(&mut self, truth: &Truth, node: u64, asker: Asker, answer: HistoryAnswer) {
        let (position, publications) = match answer {
            HistoryAnswer::Page {
                position,
                publications,
            } => (position, publications),
            HistoryAnswer::Behind => {
                assert!(self.expected.is_none(), "node {node} has read all");
                self.reached.behind += 1;
                return;
            }
            HistoryAnswer::Unrecoverable => panic!("it was asked for all"),
        };
        let Asker::Session(ticket) = asker else {
            panic!("{asker:?} asked for no history")
        };
        let channel = ticket.command as usize;
        self.reached.histories += 1;
        let is_read_by_channel = !publications.is_empty() && self.hearers.contains(&node);
        self.reached.by_channel.histories += u64::from(is_read_by_channel);
        if !truth.is_whole() {
            // Its node may not know yet that something was lost.
            return;
        }
        if let Some(last) = publications.last() {
            let fact = truth.at(last.offset).expect("it stands there");
            assert_eq!(fact.channel, Some(channel), "of another channel");
        }
        let number = |kept: &Kept| number_of(&kept.content.payload);
        let read: Vec<_> = publications.iter().map(number).collect();
        let kept = truth.kept(channel, position.offset);
        assert!(kept.ends_with(&read), "{read:?} were read of {kept:?}");
        if let Some(expected) = self.expected {
            let last = truth.publications(channel, expected.behind);
            let count = last.len().min(expected.history_size);
            assert!(
                read.len() >= count,
                "node {node} has {read:?} of {channel}, whose last ones are {last:?}"
            );
        }
    }

    /// Asserts that every subscriber has all that its channel has said since it began, or since it was told that something is missing.
    pub(super) fn check_subscribers(&self, truth: &Truth) {
        for (index, subscriber) in self.subscribers.iter().enumerate() {
            assert!(
                matches!(subscriber.stage, Stage::Live),
                "subscriber {index} waits: {subscriber:?}"
            );
            let all = truth.publications(subscriber.channel, subscriber.began);
            assert_eq!(subscriber.got, all, "subscriber {index}: {subscriber:?}");
        }
    }

    /// Asserts, when nothing happens any more, that all have what they were promised.
    pub(super) fn check(&self, truth: &Truth, epoch: Epoch) {
        self.check_subscribers(truth);
        for (index, subscriber) in self.subscribers.iter().enumerate() {
            let known = subscriber.position.map(|position| position.epoch);
            assert_eq!(known, Some(epoch), "subscriber {index}");
        }
        truth.check_once();
        let mut last: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for (number, published) in &self.publications {
            self.check_publication(truth, *number, published);
            let Some(Ok(position)) = published.answer else {
                continue;
            };
            // What has a key or a version may be an earlier one.
            if truth.is_whole() && published.key.is_none() && !published.has_version {
                let last = last.entry((published.node, published.channel)).or_default();
                assert!(position.offset > *last, "{number} was overtaken");
                *last = position.offset;
            }
        }
    }

    fn check_publication(&self, truth: &Truth, number: u64, published: &Published) {
        let Some(Ok(position)) = published.answer else {
            // It may be there or not; what was asked of a node that went was never answered.
            return;
        };
        let is_there = |number| truth.has(number, position.offset);
        let is_promised = is_there(number)
            || published.key.is_some_and(|key| {
                let mut same = self.publications.iter();
                same.any(|(other, of)| of.key == Some(key) && is_there(*other))
            })
            || published.has_version;
        assert!(
            is_promised,
            "{number} is not at {position:?}: {published:?}"
        );
        if truth.is_whole() {
            let now = truth.at(position.offset).map(|fact| fact.what);
            assert!(
                matches!(now, Some(What::Publication(_))) || published.has_version,
                "{number} was acknowledged, and is lost"
            );
        }
    }
}

/// The number that a publication says.
fn number_of(payload: &Payload) -> u64 {
    let Payload::Text(text) = payload else {
        panic!("{payload:?}")
    };
    text.parse().expect("its number")
}
