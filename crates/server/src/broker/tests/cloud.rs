//! The servers that keep the simulated log: one leader at a time, over connections that break.
//!
//! They keep the promises of JetStream and no more. An answer may be lost after what was asked was done, and a message may be stored
//! long after nobody waits for it. While there is no leader, it answers nothing. If the plan says so, another leader comes without the
//! end of the log. A consumer may lose a message and say so, or fall silent ([`consumer`]). The other servers of the log answer who reads,
//! and may be behind ([`replica`]). What the leader republishes may be lost around a fault ([`listener`]).

mod client;
mod consumer;
mod listener;
mod replica;
mod wire;

pub(super) use client::Client;

use super::plan::Plan;
use super::reached::ReachedByChannel;
use super::truth::{Fact, Truth, What};
use super::{CHANNELS, STREAM_NAMESPACE};
use crate::broker::beat::parse;
use crate::broker::link::Log;
use crate::broker::servers::{Ack, NotStored, Stored, ToStore, Which};
use crate::broker::store::ROLLUP;
use listener::Listeners;
use myriad_broker::{Class, Extent, Subjects};
use myriad_reactor::sim::Prng;
use myriad_shard::{Epoch, Payload};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A connection on which nothing comes for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(11);
/// Messages that a new leader may not have applied yet, and how long that takes.
const UNAPPLIED_MAX: usize = 8;
const APPLIES_MS_MAX: usize = 600;
/// So long the ids of messages are remembered.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// What strangers write. It cannot be read.
const RUBBISH: &str = "rubbish";

/// The stream of the log.
#[derive(Debug, Default)]
struct Stream {
    entries: BTreeMap<u64, Stored>,
    /// With those that have gone since.
    ever: Vec<Stored>,
    last: u64,
    ids: HashMap<String, (u64, Instant)>,
}

impl Stream {
    fn first(&self) -> u64 {
        self.entries
            .first_key_value()
            .map_or(self.last + 1, |(first, _)| *first)
    }

    /// A message comes, and takes the place of older ones of its subject.
    fn insert(&mut self, entry: Stored, kept: usize) {
        let subject = entry.subject.clone();
        let rolls_up = rolls_up(&entry);
        self.entries.insert(entry.sequence, entry);
        let of_subject = self.entries.values().rev();
        let of_subject = of_subject.filter(|entry| entry.subject == subject);
        let old = of_subject.skip(if rolls_up { 1 } else { kept });
        let old: Vec<_> = old.map(|entry| entry.sequence).collect();
        for sequence in old {
            self.entries.remove(&sequence);
        }
    }

    fn last_of(&self, subject: &str) -> Option<&Stored> {
        let mut newest_first = self.entries.values().rev();
        newest_first.find(|entry| *entry.subject == *subject)
    }
}

/// Whether a message takes the place of all others of its subject.
fn rolls_up(entry: &Stored) -> bool {
    entry.header(ROLLUP).is_some()
}

/// What all servers know.
struct State {
    stream: Stream,
    truth: Truth,
    prng: Prng,
    has_leader: bool,
    /// How many messages a new leader has not applied yet, and until when: it has them, and does not show them. Before it stores the next
    /// one, it applies them.
    unapplied: (u64, Instant),
    /// The next beat is followed by another one at once.
    repeats_beat: bool,
    /// Beats are not stored, and nobody is told.
    holds_beats: bool,
    /// Messages that a leader has taken, and that will be stored when there is one again.
    late: Vec<ToStore>,
    stored_ns: i128,
    subjects: Subjects,
    listeners: Listeners,
    reached: ReachedByChannel,
}

/// The servers.
pub(super) struct Cloud {
    state: Mutex<State>,
    changed: Notify,
    began: Instant,
    plan: Plan,
    is_calm: AtomicBool,
    is_printed: bool,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").finish_non_exhaustive()
    }
}

impl Cloud {
    /// `hearing` decides about what is republished, and about servers that are behind; `prng` decides about all else.
    pub(super) fn new(
        plan: Plan,
        prng: Prng,
        hearing: Prng,
        subjects: Subjects,
        is_printed: bool,
    ) -> Arc<Self> {
        let state = State {
            stream: Stream::default(),
            truth: Truth::default(),
            prng,
            has_leader: true,
            unapplied: (0, Instant::now()),
            repeats_beat: false,
            holds_beats: false,
            late: Vec::new(),
            stored_ns: 0,
            subjects,
            listeners: Listeners::new(hearing),
            reached: ReachedByChannel::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            began: Instant::now(),
            plan,
            is_calm: AtomicBool::new(false),
            is_printed,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Prints what happens, if somebody looks.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        if self.is_printed {
            println!("{:>8} ms  {}", self.began.elapsed().as_millis(), what());
        }
    }

    /// From now on, nothing goes wrong.
    pub(super) fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Looks at all that the log ever had.
    pub(super) fn with_truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        look(&self.lock().truth)
    }

    /// The last place of the log.
    pub(super) fn last(&self) -> u64 {
        self.lock().stream.last
    }

    /// What listeners came through.
    pub(super) fn reached(&self) -> ReachedByChannel {
        self.lock().reached
    }

    pub(super) fn lose_leader(&self) {
        self.say(|| "there is no leader".into());
        let mut state = self.lock();
        state.has_leader = false;
        self.stop_republishing(&mut state);
    }

    /// There is a leader again: perhaps one without the last so many messages.
    pub(super) fn elect(&self, lost: u64) {
        let mut state = self.lock();
        if lost > 0 {
            state.cut(lost, self.plan.kept_by_log);
        } else {
            let prng = &mut state.listeners.prng;
            let (count, ms) = (
                prng.between(0, UNAPPLIED_MAX),
                prng.between(0, APPLIES_MS_MAX),
            );
            state.unapplied = (
                count as u64,
                Instant::now() + Duration::from_millis(ms as u64),
            );
        }
        let last = state.stream.last;
        self.say(|| format!("there is a leader; the log ends at {last}"));
        state.has_leader = true;
        self.go_on_republishing(&mut state);
        for message in std::mem::take(&mut state.late) {
            let _ = self.store(&mut state, message);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Another node writes a beat right behind the next one, before anybody looks.
    pub(super) fn repeat_beat(&self) {
        self.lock().repeats_beat = true;
    }

    /// The leader is new, and does not show the last messages until it stores the next one.
    pub(super) fn hide_end(&self, count: u64) {
        self.lock().unapplied = (count, Instant::now() + Duration::from_secs(3_600));
    }

    /// From now on beats are not stored, and who writes one waits for an answer.
    pub(super) fn hold_beats(&self) {
        self.lock().holds_beats = true;
    }

    /// Whether this is a beat that is not stored.
    fn holds(&self, log: &Log, message: &ToStore) -> bool {
        let state = self.lock();
        state.holds_beats && message.subject == state.subjects.beat(&log.class)
    }

    /// A stranger writes something where beats stand, or a message that cannot be read.
    pub(super) fn write_rubbish(&self) {
        let mut state = self.lock();
        if !state.has_leader {
            return;
        }
        let class = Class::of(Some(STREAM_NAMESPACE));
        let subjects = &state.subjects;
        let (beat, first, elsewhere) = (
            subjects.beat(&class),
            subjects.stored(&class, CHANNELS[0]),
            // Its namespace has another stream.
            subjects.stored(&class, "elsewhere:a"),
        );
        let subject = state.prng.pick(&[beat, first, elsewhere]).clone();
        let message = ToStore {
            subject,
            payload: RUBBISH.into(),
            ..ToStore::default()
        };
        let _ = self.store(&mut state, message);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Stores a beat of each of these epochs, before anybody hears of one of them.
    pub(super) fn write_beats(&self, epochs: &[Epoch]) {
        let mut state = self.lock();
        let class = Class::of(Some(STREAM_NAMESPACE));
        let subject = state.subjects.beat(&class);
        for epoch in epochs {
            let last = state.stream.last_of(&subject);
            let last = last.and_then(|last| parse(&last.payload, last.sequence));
            let since = match last.filter(|last| last.epoch == *epoch) {
                Some(last) => format!(r#","since":{}"#, last.since),
                None => String::new(),
            };
            let text = format!(r#"{{"epoch":"{}"{since}}}"#, epoch.as_str());
            let message = ToStore {
                subject: subject.clone(),
                payload: text.into(),
                ..ToStore::default()
            };
            let _ = self.store(&mut state, message);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn store(&self, state: &mut State, message: ToStore) -> Result<Ack, NotStored> {
        self.expire(state);
        let now = Instant::now();
        state.unapplied.0 = 0;
        let stream = &mut state.stream;
        if let Some(id) = &message.id
            && let Some((sequence, at)) = stream.ids.get(id)
            && at.elapsed() < DUPLICATE_WINDOW
        {
            return Ok(Ack {
                sequence: *sequence,
                is_new: false,
            });
        }
        let is_repeated = state.repeats_beat && parse(&message.payload, 0).is_some();
        let again = is_repeated.then(|| ToStore {
            subject: message.subject.clone(),
            payload: message.payload.clone(),
            ..ToStore::default()
        });
        let previous = stream.last_of(&message.subject);
        let previous = previous.map_or(0, |last| last.sequence);
        if message.behind.is_some_and(|behind| behind != previous) {
            return Err(NotStored::Overtaken);
        }
        let sequence = stream.last + 1;
        stream.last = sequence;
        if let Some(id) = message.id {
            stream.ids.insert(id, (sequence, now));
        }
        // Two messages never have one time.
        state.stored_ns = self.now_ns().max(state.stored_ns + 1);
        let is_spoiled = *message.payload == *RUBBISH.as_bytes();
        let values = message.headers.iter();
        let stored = Stored {
            sequence,
            stored_ns: state.stored_ns,
            subject: message.subject.into(),
            headers: Some(
                values
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect(),
            ),
            payload: message.payload,
            is_spoiled,
        };
        let fact = fact_of(&stored, &state.subjects);
        self.say(|| format!("stored: {fact:?}"));
        state.truth.append(fact);
        state.stream.ever.push(stored.clone());
        state.stream.insert(stored.clone(), self.plan.kept_by_log);
        self.republish(state, stored, previous);
        if let Some(again) = again {
            state.repeats_beat = false;
            let _ = self.store(state, again);
        }
        Ok(Ack {
            sequence,
            is_new: true,
        })
    }

    /// The servers' clock.
    fn now_ns(&self) -> i128 {
        i128::try_from(self.began.elapsed().as_nanos()).unwrap_or(i128::MAX)
    }

    /// What was stored before has gone.
    fn oldest_ns(&self) -> i128 {
        let max = i128::try_from(self.plan.log_ttl.as_nanos()).unwrap_or(i128::MAX);
        self.now_ns() - max
    }

    fn expire(&self, state: &mut State) {
        let oldest_ns = self.oldest_ns();
        let entries = &mut state.stream.entries;
        while let Some(first) = entries.first_entry()
            && first.get().stored_ns < oldest_ns
        {
            first.remove();
        }
    }

    fn look(state: &State, which: &Looked) -> Option<Stored> {
        let applied = state.applied();
        let from = |sequence| {
            let entries = state.stream.entries.range(sequence..);
            let applied = entries.take_while(move |(place, _)| **place <= applied);
            applied.map(|(_, one)| one)
        };
        let found = match which {
            Looked::From(sequence) => from(*sequence).next(),
            Looked::OfFrom(subject, sequence) => {
                from(*sequence).find(|entry| *entry.subject == **subject)
            }
            Looked::LastOf(subject) => from(0).filter(|entry| *entry.subject == **subject).last(),
        };
        found.cloned()
    }
}

impl State {
    /// The last place that the leader shows.
    fn applied(&self) -> u64 {
        let (count, until) = self.unapplied;
        let count = if Instant::now() < until { count } else { 0 };
        self.stream.last.saturating_sub(count)
    }

    /// Another server leads, without the last messages and all that they did.
    fn cut(&mut self, lost: u64, kept: usize) {
        let stream = &mut self.stream;
        let after = stream.last.saturating_sub(lost);
        stream.last = after;
        stream.ids.retain(|_, (sequence, _)| *sequence <= after);
        stream.ever.retain(|entry| entry.sequence <= after);
        stream.entries.clear();
        for entry in stream.ever.clone() {
            stream.insert(entry, kept);
        }
        self.truth.cut(after);
    }
}

fn fact_of(stored: &Stored, subjects: &Subjects) -> Fact {
    let class = Class::of(Some(STREAM_NAMESPACE));
    let channel = subjects.channel_of_stored(&class, &stored.subject);
    let channel = channel.and_then(|name| CHANNELS.iter().position(|channel| *channel == name));
    let what = match content_of(stored) {
        _ if stored.is_spoiled => What::Other,
        None => What::Removal,
        Some(Payload::Text(text)) if channel.is_some() => {
            What::Publication(text.parse().expect("its number"))
        }
        Some(_) => What::Other,
    };
    Fact {
        sequence: stored.sequence,
        channel,
        what,
    }
}

fn content_of(stored: &Stored) -> Option<Payload> {
    let envelope = stored.envelope().expect("it is ours");
    envelope.content.map(|content| content.payload.clone())
}

/// [`Which`], for a task.
#[derive(Debug)]
enum Looked {
    From(u64),
    OfFrom(String, u64),
    LastOf(String),
}

impl From<Which<'_>> for Looked {
    fn from(which: Which<'_>) -> Self {
        match which {
            Which::From(sequence) => Self::From(sequence),
            Which::OfFrom(subject, sequence) => Self::OfFrom(subject.to_owned(), sequence),
            Which::LastOf(subject) => Self::LastOf(subject.to_owned()),
        }
    }
}

/// Whatever happened to whoever had it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn extent_of(state: &State) -> Extent {
    Extent {
        first: state.stream.first(),
        last: state.applied(),
    }
}
